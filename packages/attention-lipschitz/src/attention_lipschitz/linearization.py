"""The derivative of attention in closed form (Section 2 of the paper), applied without ever forming it.

With q_i, k_j the queries and keys, w_j = V x_j, and M[T] = P ∘ T − P ∘ rowsum(P ∘ T):
    D_X f[E] = Σ_h (P (E Vᵀ) + M[s (dq kᵀ + q dkᵀ)] w) Oᵀ,   dq = E Qᵀ, dk = E Kᵀ (both rotated where positions are).
Cost of one product O(n² (d_v + k) + n d k) a head, memory O(n² + n d).
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from attention_lipschitz.core import AttentionLayer


class Linearization:
    """D_X f of a layer at X (..., n, d), with what does not depend on the perturbation computed once.

    Attributes:
        P: (..., H, n, n) attention.
        q: (..., H, n, k) queries, rotated, without the scale; k likewise the keys.
        w: (..., H, n, d_v) values V x_j, without their bias.

    Raises:
        FloatingPointError: if a row of P is not finite: a token that attends to nothing, or an overflow.
    """

    def __init__(self, layer: "AttentionLayer", X: Tensor) -> None:
        self.layer, self.X = layer, X
        n, tokens = X.shape[-2], X.unsqueeze(-3)
        self.turn = layer.rotation(n)
        self.q = self._turned(_plus(tokens @ layer.query.mT, layer.query_bias))
        self.k = self._turned(_plus(tokens @ layer.key.mT, layer.key_bias))
        self.w = tokens @ layer.value.mT
        logits = layer.scale * (self.q @ self.k.mT)
        if layer.logit_bias is not None:
            logits = logits + layer.logit_bias[..., :n, :n]
        seen = layer.mask(n)
        self.P = (logits if seen is None else logits.masked_fill(~seen, -torch.inf)).softmax(-1)
        self._require_weights()

    def _require_weights(self) -> None:
        if torch.compiler.is_compiling() or self.P.is_meta or type(self.P) is not Tensor:
            return
        if not bool(torch.isfinite(self.P).all()):
            raise FloatingPointError(
                "attention must be finite, got NaN or inf: X or the weights are not, or a token attends to nothing."
            )

    def _turned(self, x: Tensor) -> Tensor:
        return x if self.turn is None else self.turn(x)

    def value(self) -> Tensor:
        """(..., n, d_out) f(X), with all biases."""
        out = self._joined(self.P @ _plus(self.w, self.layer.value_bias))
        return out if self.layer.out_bias is None else out + self.layer.out_bias

    def _joined(self, heads: Tensor) -> Tensor:
        """Σ_h heads_h O_hᵀ, or the heads side by side."""
        if self.layer.out is not None:
            return (heads @ self.layer.out.mT).sum(-3)
        return heads.transpose(-3, -2).flatten(-2)

    def _split(self, y: Tensor) -> Tensor:
        """(..., H, n, d_v) y O_h: the transpose of `_joined`."""
        if self.layer.out is not None:
            return y.unsqueeze(-3) @ self.layer.out
        return y.unflatten(-1, (self.layer.value.shape[-3], -1)).transpose(-3, -2)

    def logit_change(self, E: Tensor) -> tuple[Tensor, Tensor]:
        """(..., H, n, n) derivatives of the logits through queries (from E_i) and through keys (from E_j)."""
        layer, e = self.layer, E.unsqueeze(-3)
        dq, dk = self._turned(e @ layer.query.mT), self._turned(e @ layer.key.mT)
        return layer.scale * (dq @ self.k.mT), layer.scale * (self.q @ dk.mT)

    def jvp(self, E: Tensor) -> Tensor:
        """(..., n, d_out) D_X f[E]."""
        layer, e = self.layer, E.unsqueeze(-3)
        dq, dk = self._turned(e @ layer.query.mT), self._turned(e @ layer.key.mT)
        T = self.P * (dq @ self.k.mT + self.q @ dk.mT)
        T = layer.scale * (T - self.P * T.sum(-1, keepdim=True))
        return self._joined(self.P @ (e @ layer.value.mT) + T @ self.w)

    def pulled(self, y: Tensor) -> Tensor:
        """(..., H, n, n) H = P ∘ (G − rowsum(P ∘ G)) for G = (y O) wᵀ: what a change of each logit does to ⟨y, f⟩."""
        T = self.P * (self._split(y) @ self.w.mT)
        return T - self.P * T.sum(-1, keepdim=True)

    def vjp(self, y: Tensor) -> Tensor:
        """(..., n, d) (D_X f)ᵀ[y]."""
        layer, heads = self.layer, self._split(y)
        H = self.P * (heads @ self.w.mT)
        H = layer.scale * (H - self.P * H.sum(-1, keepdim=True))
        dq, dk = H @ self.k, H.mT @ self.q
        if self.turn is not None:
            dq, dk = self.turn(dq, back=True), self.turn(dk, back=True)
        pulled = (self.P.mT @ heads) @ layer.value + dq @ layer.query + dk @ layer.key
        return pulled.sum(-3)


def _plus(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias.unsqueeze(-2)
