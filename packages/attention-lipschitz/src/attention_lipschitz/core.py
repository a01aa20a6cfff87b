"""Self-attention as a map of its tokens (Section 2): heads (A, c, V, O), the layer they make, and its derivative.

A layer keeps the projections of its heads side by side. Logits are s ⟨R_i (Q x_i + b_q), R_j (K x_j + b_k)⟩ + bias_ij,
where R is a rotation by position (none unless the model has rotary embeddings).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from offprints import checkpoint
from offprints.checks import require_kind, require_range, require_shape
from offprints.device import float_dtype, full_precision
from torch import Tensor, nn

from attention_lipschitz._version import DIST, VERSION
from attention_lipschitz.linearization import Linearization
from attention_lipschitz.rotary import Rotation

_TENSORS = ("query", "key", "value", "out", "query_bias", "key_bias", "value_bias", "out_bias")


@dataclass(frozen=True)
class AttentionHead:
    """One head: f(X)_i = O V Σ_j P_ij x_j with P_i = softmax_j(x_jᵀ (A x_i + c)) (Section 2 of the paper).

    A = Kᵀ Q / √k and c = Kᵀ b_q / √k. A key bias cancels in the softmax; a value bias does not change the derivative.

    Attributes:
        A: (d, d).
        V: (d_v, d).
        c: (d,), zero if None.
        O: (d_out, d_v), the identity if None.
    """

    A: Tensor
    V: Tensor
    c: Tensor | None = None
    O: Tensor | None = None  # noqa: E741 -- the paper's letter

    def __post_init__(self) -> None:
        require_shape("A", self.A, ("d", "d"))
        d = self.A.shape[0]
        require_shape("V", self.V, (None, d))
        if self.c is not None:
            require_shape("c", self.c, (d,))
        if self.O is not None:
            require_shape("O", self.O, (None, self.V.shape[0]))

    @property
    def map(self) -> Tensor:
        """(d_out, d) matrix O V."""
        return self.V if self.O is None else self.O @ self.V

    def layer(self, causal: bool = False) -> "AttentionLayer":
        """The layer that has this head alone."""
        return AttentionLayer([self], causal=causal)


class AttentionLayer(nn.Module):
    """Multi-head attention f(X) = Σ_h O_h f⁽ʰ⁾(X) without dropout (Section 2), with derivatives in closed form.

    Args:
        heads: one `AttentionHead` or more, of equal shapes.
        causal: whether token i attends to j ≤ i only.

    Raises:
        TypeError: if something else than heads is given.
        ValueError: if there is none, or their shapes differ.

    Buffers, with H heads, k the width of a query and d_v that of a value: `query`, `key` (H, k, d), `value` (H, d_v,
    d), `out` (H, d_out, d_v) or None (heads side by side), `query_bias`, `key_bias` (H, k), `value_bias` (H, d_v),
    `out_bias` (d_out,), `frequencies` of rotary positions, `logit_bias` (H or 1, N, N).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor | None
    query_bias: Tensor | None
    key_bias: Tensor | None
    value_bias: Tensor | None
    out_bias: Tensor | None
    frequencies: Tensor | None
    logit_bias: Tensor | None
    window: int | None

    def __init__(self, heads: Sequence[AttentionHead], causal: bool = False) -> None:
        super().__init__()
        heads = [heads] if isinstance(heads, AttentionHead) else list(heads)
        for head in heads:
            require_kind("heads", head, AttentionHead, hint="Use AttentionLayer.from_projections for Q, K, V, O.")
        if not heads:
            raise ValueError("heads must be one head or more, got none.")
        shapes = {(tuple(head.A.shape), tuple(head.V.shape), head.O is None) for head in heads}
        if len(shapes) > 1 or len({head.map.shape[0] for head in heads}) > 1:
            raise ValueError(f"heads must be of equal shapes, got {sorted(map(str, shapes))}.")
        first = heads[0].A
        eye = torch.eye(first.shape[0], dtype=first.dtype, device=first.device)
        biases = [first.new_zeros(first.shape[0]) if head.c is None else head.c for head in heads]
        self._set(
            query=torch.stack([head.A for head in heads]),
            key=eye.expand(len(heads), -1, -1).clone(),
            value=torch.stack([head.V for head in heads]),
            out=torch.stack([head.O for head in heads if head.O is not None]) if heads[0].O is not None else None,
            query_bias=torch.stack(biases) if any(head.c is not None for head in heads) else None,
        )
        if self.out is None and len(heads) > 1:  # a sum over heads, as for O = 1
            eye = torch.eye(self.value.shape[1], dtype=first.dtype, device=first.device)
            self.out = eye.expand(len(heads), -1, -1).clone()
        self.causal, self.scale, self.rotary_factor, self.window, self.norm_fold = bool(causal), 1.0, 1.0, None, False

    @classmethod
    def from_projections(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        out: Tensor | None = None,
        *,
        query_bias: Tensor | None = None,
        key_bias: Tensor | None = None,
        value_bias: Tensor | None = None,
        out_bias: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
        frequencies: Tensor | None = None,
        rotary_factor: float = 1.0,
        logit_bias: Tensor | None = None,
        window: int | None = None,
    ) -> "AttentionLayer":
        """A layer from projections as models keep them, all heads side by side.

        Args:
            query: (H, k, d).
            key: (H, k, d).
            value: (H, d_v, d).
            out: (H, d_out, d_v); None leaves the heads side by side, (n, H d_v).
            query_bias: (H, k).
            key_bias: (H, k); matters with rotary positions only.
            value_bias: (H, d_v); matters to values, not to derivatives. `out_bias`, (d_out,), likewise.
            out_bias: see there.
            causal: whether token i attends to j ≤ i only.
            scale: of the logits, 1/√k if None.
            frequencies: (r/2,) angles per position of rotary embeddings of the first r entries of queries and keys.
            rotary_factor: what the rotated entries are multiplied by.
            logit_bias: (H or 1, N, N) added to the logits (ALiBi, relative positions), for at most N tokens.
            window: with `causal`: token i attends to i − window < j ≤ i.

        Raises:
            ValueError: if shapes disagree.
        """
        require_shape("query", query, ("H", "k", "d"))
        heads, k, d = query.shape
        require_shape("key", key, (heads, k, d), hint="Repeat grouped keys to one per query head.")
        require_shape("value", value, (heads, None, d), hint="Repeat grouped values to one per query head.")
        if out is not None:
            require_shape("out", out, (heads, None, value.shape[1]))
        for name, bias, width in (
            ("query_bias", query_bias, k), ("key_bias", key_bias, k), ("value_bias", value_bias, value.shape[1]),
        ):  # fmt: skip
            if bias is not None:
                require_shape(name, bias, (heads, width))
        if logit_bias is not None:
            require_shape("logit_bias", logit_bias, (None, "N", "N"))
        if window is not None:
            require_range("window", window, low=1, integer=True)
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._set(
            query=query, key=key, value=value, out=out, query_bias=query_bias, key_bias=key_bias,
            value_bias=value_bias, out_bias=out_bias, frequencies=frequencies, logit_bias=logit_bias,
        )  # fmt: skip
        layer.causal, layer.scale = bool(causal), float(k**-0.5 if scale is None else scale)
        layer.rotary_factor, layer.window, layer.norm_fold = float(rotary_factor), window, False
        return layer

    def _set(self, **tensors: Tensor | None) -> None:
        for name in (*_TENSORS, "frequencies", "logit_bias"):
            self.register_buffer(name, tensors.get(name))

    # --- what it is made of

    @property
    def positions(self) -> str:
        """What the logits know of positions besides the causal mask: "none", "rotary" or "bias"."""
        return "rotary" if self.frequencies is not None else "bias" if self.logit_bias is not None else "none"

    @property
    def dim(self) -> int:
        """Width d of a token."""
        return self.query.shape[-1]

    @property
    def heads(self) -> list[AttentionHead]:
        """The heads as (A, c, V, O); with rotary positions A is that of two tokens at the same place."""
        found = []
        for h in range(self.query.shape[0]):
            a = self.scale * self.key[h].T @ self.query[h]
            c = None if self.query_bias is None else self.scale * self.key[h].T @ self.query_bias[h]
            found.append(AttentionHead(a, self.value[h], c, None if self.out is None else self.out[h]))
        return found

    def head(self, h: int) -> "AttentionLayer":
        """The layer that has head h alone (its O_h V_h, without the output bias).

        Raises:
            ValueError: if there is no such head.
        """
        require_range("h", h, low=0, high=self.query.shape[0] - 1, integer=True, because="the heads")
        pick = {name: getattr(self, name) for name in (*_TENSORS, "logit_bias") if name != "out_bias"}
        one = {
            name: x if x is None or x.shape[0] == 1 < self.query.shape[0] else x[h : h + 1] for name, x in pick.items()
        }
        return self._rebuilt(**one)

    def by_head(self) -> "AttentionLayer":
        """The heads as a batch of layers with one head each: takes tokens (..., H, n, d), one set for each head."""
        layer = copy.copy(self)
        layer._buffers = {
            name: x.unsqueeze(1) if x is not None and name in _TENSORS and name != "out_bias" else x
            for name, x in self._buffers.items()
        }
        if self.logit_bias is not None:
            layer._buffers["logit_bias"] = self.logit_bias.unsqueeze(1)
        layer._buffers["out_bias"] = None
        return layer

    def maps(self) -> Tensor:
        """(H, d_out, d) matrices O_h V_h (V_h where there is no O)."""
        return self.value if self.out is None else self.out @ self.value

    def tempered(self, temperature: float) -> "AttentionLayer":
        """The same layer with all logits multiplied by `temperature`."""
        bias = None if self.logit_bias is None else temperature * self.logit_bias
        return self._rebuilt(scale=temperature * self.scale, logit_bias=bias)

    def _rebuilt(self, **changes: object) -> "AttentionLayer":
        names = (*_TENSORS, "frequencies", "logit_bias", "causal", "scale", "rotary_factor", "window")
        given: dict[str, Any] = {name: getattr(self, name) for name in names} | changes
        layer = AttentionLayer.from_projections(**given)
        layer.norm_fold = self.norm_fold
        return layer

    # --- values and derivatives

    def attention(self, X: Tensor) -> Tensor:
        """(..., H, n, n) attention matrices P of tokens X (..., n, d).

        Raises:
            ValueError: if X has no token, another width, or more tokens than `logit_bias` covers.
            FloatingPointError: if a token attends to nothing.
        """
        return Linearization(self, self._tokens(X)).P

    def forward(self, X: Tensor) -> Tensor:
        """(..., n, d_out) values of tokens X (..., n, d), computed in the dtype of the layer, returned in X's.

        Raises:
            ValueError: as `attention`.
        """
        with full_precision(X.device):
            return Linearization(self, self._tokens(X)).value().to(X.dtype)

    def linearize(self, X: Tensor) -> Linearization:
        """The derivative at X, with P, queries, keys and values computed once."""
        with full_precision(X.device):
            return Linearization(self, self._tokens(X))

    def jvp(self, X: Tensor, E: Tensor) -> Tensor:
        """(..., n, d_out) derivative D_X f[E] (Section 2), for E of the shape of X."""
        return self.linearize(X).jvp(E.to(self.query.dtype)).to(X.dtype)

    def vjp(self, X: Tensor, Y: Tensor) -> Tensor:
        """(..., n, d) transpose (D_X f)ᵀ[Y], for Y of the shape of the values."""
        return self.linearize(X).vjp(Y.to(self.query.dtype)).to(X.dtype)

    def _tokens(self, X: Tensor) -> Tensor:
        require_kind("X", X, Tensor)
        require_shape("X", X, ("...", "n", self.dim))
        n = X.shape[-2]
        if n == 0:
            raise ValueError("X must hold one token or more, got none.")
        if self.logit_bias is not None and n > self.logit_bias.shape[-1]:
            raise ValueError(f"X must hold at most {self.logit_bias.shape[-1]} tokens (the position table), got {n}.")
        return X.to(self.query.dtype)

    def mask(self, n: int) -> Tensor | None:
        """(n, n) True where i attends to j; None if everywhere."""
        if not self.causal:
            return None
        place = torch.arange(n, device=self.query.device)
        seen = place[:, None] >= place
        return seen if self.window is None else seen & (place[:, None] - place < self.window)

    def rotation(self, n: int) -> Rotation | None:
        """The rotation of positions 0…n−1, or None."""
        if self.frequencies is None:
            return None
        return Rotation(self.frequencies, n, self.rotary_factor, self.query.dtype)

    # --- on disk

    def save(self, path: str | Path) -> Path:
        """Write `<path>.safetensors` and `<path>.json`; returns the former."""
        names = (*_TENSORS, "frequencies", "logit_bias")
        tensors = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        config = {name: getattr(self, name) for name in ("causal", "scale", "rotary_factor", "window", "norm_fold")}
        return checkpoint.save(path, tensors, method=DIST, version=VERSION, config=config)

    @classmethod
    def load(cls, path: str | Path, device: "str | torch.device | None" = None) -> "AttentionLayer":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is not one of ours.
        """
        found = checkpoint.load(path, method=DIST, device=device, framework="torch")
        if not {"query", "key", "value"} <= set(found.tensors) or "causal" not in found.config:
            raise ValueError(
                f"{path} must hold an attention layer, got {', '.join(sorted(found.tensors)) or 'nothing'}."
            )
        config: dict[str, Any] = dict(found.config)
        tensors: dict[str, Any] = dict(found.tensors)
        folded = bool(config.pop("norm_fold"))
        layer = cls.from_projections(**tensors, **config)
        layer.norm_fold = folded
        return layer

    def measured(self, dtype: torch.dtype | None = None) -> "AttentionLayer":
        """This layer in at least single precision: `dtype`, or float64 where the device has it.

        Raises:
            ValueError: if a half precision is asked for; constants are never measured in one.
        """
        wanted = float_dtype(self.query.device, dtype)
        if wanted not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {wanted}. Halves lose the derivative.")
        if wanted == self.query.dtype:
            return self
        names = (*_TENSORS, "frequencies", "logit_bias")
        return self._rebuilt(**{name: None if (x := getattr(self, name)) is None else x.to(wanted) for name in names})
