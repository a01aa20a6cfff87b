"""Normalisation in front of attention, and attention with its residual and normalisation as one map.

The paper's Section 5 measures attention alone; its scripts for BERT measure `block.attention`, which is this block.
"""

from typing import Any

import torch
from offprints.checks import require_choice, require_range, require_shape
from torch import Tensor, nn

from attention_lipschitz.core import AttentionLayer


class TokenNorm(nn.Module):
    """LayerNorm or RMSNorm of each token: γ ⊙ z + β with z = (x − mean x) / √(var x + ε), or z = x / √(mean x² + ε).

    ‖z‖ ≤ √d, and z ⊥ 1 for LayerNorm: the tokens lie in an ellipsoid, whose size bounds attention (Section 3).

    Args:
        weight: (d,) γ.
        bias: (d,) β, or None.
        eps: ε ≥ 0.
        kind: "layer" or "rms".

    Raises:
        ValueError: if shapes disagree, or ε is negative.
    """

    weight: Tensor
    bias: Tensor | None

    def __init__(self, weight: Tensor, bias: Tensor | None = None, eps: float = 1e-5, kind: str = "layer") -> None:
        super().__init__()
        require_shape("weight", weight, ("d",))
        if bias is not None:
            require_shape("bias", bias, tuple(weight.shape))
        self.eps, self.kind = float(require_range("eps", eps, low=0.0)), require_choice("kind", kind, ("layer", "rms"))
        self.register_buffer("weight", weight)
        self.register_buffer("bias", bias)

    @classmethod
    def from_module(cls, module: nn.Module) -> "TokenNorm":
        """The same norm as a module's: torch's LayerNorm and RMSNorm, and the RMSNorm classes of transformers.

        Raises:
            ValueError: if it is none of these, or has no weight.
        """
        name = type(module).__name__
        weight: Any = getattr(module, "weight", None)
        kind = "rms" if "RMSNorm" in name else "layer" if "LayerNorm" in name else None
        if kind is None or weight is None or "Gemma" in name:
            raise ValueError(f"the norm must be a LayerNorm or RMSNorm with a weight, got {name}.")
        eps: Any = next(
            (e for e in (getattr(module, n, None) for n in ("eps", "variance_epsilon")) if e is not None), None
        )
        bias: Any = getattr(module, "bias", None)
        eps = torch.finfo(weight.dtype).eps if eps is None else eps
        return cls(weight.detach(), None if bias is None else bias.detach(), eps, kind)

    def radius(self) -> float:
        """‖γ‖_∞ √d + ‖β‖: no token that leaves the norm is longer."""
        size = float(self.weight.abs().max()) * self.weight.numel() ** 0.5
        return size + (0.0 if self.bias is None else float(torch.linalg.vector_norm(self.bias)))

    def _centred(self, x: Tensor) -> Tensor:
        return x - x.mean(-1, keepdim=True) if self.kind == "layer" else x

    def scaled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Z and 1/√(… + ε)."""
        centred = self._centred(x)
        inverse = (centred.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        return centred * inverse, inverse

    def forward(self, x: Tensor) -> Tensor:
        """(..., d) normalised tokens."""
        z = self.scaled(x.to(self.weight.dtype))[0] * self.weight
        return (z if self.bias is None else z + self.bias).to(x.dtype)

    def projected(self, z: Tensor) -> Tensor:
        """The nearest z with ‖z‖ ≤ √d (and z ⊥ 1 for LayerNorm)."""
        centred = self._centred(z)
        norm = torch.linalg.vector_norm(centred, dim=-1, keepdim=True)
        return centred * (z.shape[-1] ** 0.5 / norm.clamp_min(1e-300)).clamp_max(1.0)

    def jvp(self, x: Tensor, e: Tensor) -> Tensor:
        """(..., d) derivative at x towards e."""
        return self.weight * self._derivative(x, e)

    def vjp(self, x: Tensor, y: Tensor) -> Tensor:
        """(..., d) transpose of the derivative: that of z is symmetric."""
        return self._derivative(x, self.weight * y)

    def _derivative(self, x: Tensor, e: Tensor) -> Tensor:
        z, inverse = self.scaled(x)
        e = self._centred(e)
        return inverse * (e - z * (z * e).mean(-1, keepdim=True))

    def measured(self, dtype: torch.dtype) -> "TokenNorm":
        """The same in another dtype."""
        return TokenNorm(self.weight.to(dtype), None if self.bias is None else self.bias.to(dtype), self.eps, self.kind)


class AttentionBlock(nn.Module):
    """X + f(norm(X)) where the norm stands before attention, norm(X + f(X)) where it stands behind (as in BERT).

    Args:
        layer: the attention f, with as many outputs as inputs.
        norm: the norm, or None for X + f(X).
        before: whether it stands before attention.

    Raises:
        ValueError: if f gives tokens of another width.
    """

    def __init__(self, layer: AttentionLayer, norm: TokenNorm | None, before: bool = True) -> None:
        super().__init__()
        width = layer.maps().shape[1] * (1 if layer.out is not None else layer.query.shape[0])
        if width != layer.dim:
            raise ValueError(f"layer must give tokens of its own width {layer.dim} to be added to them, got {width}.")
        self.layer, self.norm, self.before = layer, norm, before

    def forward(self, X: Tensor) -> Tensor:
        """(..., n, d) values of tokens (..., n, d)."""
        if self.norm is None:
            return X + self.layer(X)
        return X + self.layer(self.norm(X)) if self.before else self.norm(X + self.layer(X))

    def linearize(self, X: Tensor) -> "LinearizedBlock":
        """The derivative at X, with what it needs computed once."""
        return LinearizedBlock(self, X)

    def measured(self, dtype: torch.dtype | None = None) -> "AttentionBlock":
        """In at least single precision, as `AttentionLayer.measured`."""
        layer = self.layer.measured(dtype)
        norm = None if self.norm is None else self.norm.measured(layer.query.dtype)
        return AttentionBlock(layer, norm, self.before)

    @property
    def query(self) -> Tensor:
        """The layer's queries: their dtype is that of the block."""
        return self.layer.query


class LinearizedBlock:
    """D_X of an `AttentionBlock`, by the chain rule."""

    def __init__(self, block: AttentionBlock, X: Tensor) -> None:
        self.block, self.X = block, X
        norm, before = block.norm, block.before
        self.inner = block.layer.linearize(norm(X) if norm is not None and before else X)
        self.sum = X + self.inner.value()

    def value(self) -> Tensor:
        """(..., n, d) the block at X."""
        norm = self.block.norm
        return self.sum if norm is None or self.block.before else norm(self.sum)

    def jvp(self, E: Tensor) -> Tensor:
        """(..., n, d) D E."""
        norm = self.block.norm
        if norm is None:
            return E + self.inner.jvp(E)
        if self.block.before:
            return E + self.inner.jvp(norm.jvp(self.X, E))
        return norm.jvp(self.sum, E + self.inner.jvp(E))

    def vjp(self, Y: Tensor) -> Tensor:
        """(..., n, d) Dᵀ Y."""
        norm = self.block.norm
        if norm is None:
            return Y + self.inner.vjp(Y)
        if self.block.before:
            return Y + norm.vjp(self.X, self.inner.vjp(Y))
        pulled = norm.vjp(self.sum, Y)
        return pulled + self.inner.vjp(pulled)


def fold_norm(layer: AttentionLayer, norm: TokenNorm) -> AttentionLayer:
    """The layer as a map of z, the tokens before γ and β: A' = Γ A Γ, c' = Γ (A β + c), V' = V Γ, R = √d (Section 3).

    For LayerNorm z ⊥ 1, so all three also get the projection to that subspace, where the bounds are smaller. A constant
    of the folded layer is one with respect to z, not to γ ⊙ z + β.

    Raises:
        ValueError: if widths differ, or the layer is folded already.
    """
    if layer.norm_fold:
        raise ValueError("layer must not be folded already, got one that takes z. Extract it anew.")
    require_shape("norm.weight", norm.weight, (layer.dim,))
    gamma = norm.weight.to(layer.query)
    shift = None if norm.bias is None else norm.bias.to(layer.query)

    def inwards(weight: Tensor) -> Tensor:
        weight = weight * gamma
        return weight - weight.mean(-1, keepdim=True) if norm.kind == "layer" else weight

    def moved(weight: Tensor, bias: Tensor | None) -> Tensor | None:
        if shift is None:
            return bias
        return weight @ shift if bias is None else weight @ shift + bias

    folded = layer._rebuilt(
        query=inwards(layer.query), key=inwards(layer.key), value=inwards(layer.value),
        query_bias=moved(layer.query, layer.query_bias), key_bias=moved(layer.key, layer.key_bias),
        value_bias=moved(layer.value, layer.value_bias),
    )  # fmt: skip
    folded.norm_fold = True
    return folded
