"""What makes a layer sensitive: its heads, pairs of tokens, attention sinks, and the temperature that tames it.

All are readings of the three terms of the derivative in Section 2 of the paper.
"""

from dataclasses import dataclass

import torch
from offprints.checks import require_range, require_shape
from torch import Tensor

from attention_lipschitz.certificates import Attention, local
from attention_lipschitz.core import AttentionHead, AttentionLayer
from attention_lipschitz.measure import LipschitzResult, local_lipschitz


def head_constants(layer: AttentionLayer, X: Tensor, *, rtol: float = 1e-5, seed: int = 0) -> list[LipschitzResult]:
    """The local constant of O_h f⁽ʰ⁾ for each head by itself (Section 2), in the order of the heads.

    Raises:
        ValueError: if X is empty or not finite.
    """
    return [local_lipschitz(layer.head(h), X, rtol=rtol, seed=seed) for h in range(layer.query.shape[0])]


def rank_heads(layer: AttentionLayer, X: Tensor) -> list[tuple[int, float]]:
    """(head, local constant) from the most to the least sensitive (Section 2)."""
    values = [(h, result.value) for h, result in enumerate(head_constants(layer, X))]
    return sorted(values, key=lambda pair: -pair[1])


def responsible_pairs(layer: AttentionLayer, X: Tensor, result: LipschitzResult | None = None) -> Tensor:
    """(n, n) shares ⟨u_i, (D_X f)_ij w_j⟩ of the pairs (output i, perturbed token j) in the constant (Section 2).

    With u, w the singular vectors of the largest singular value σ, the entries add up to σ: large ones are the pairs
    that are responsible for it.

    Args:
        layer: the layer that was measured.
        X: (n, d) the tokens.
        result: of `local_lipschitz(layer, X)`, if it is at hand.

    Raises:
        ValueError: if the result is of other tokens.
    """
    layer = layer.measured()
    found = local_lipschitz(layer, X) if result is None else result
    require_shape("result.right", found.right, tuple(X.shape))
    here = layer.linearize(layer._tokens(X.detach()))
    w, u = found.right.to(here.X), found.left.to(here.X)
    pulled = here._split(u)
    through_queries, through_keys = here.logit_change(w)
    H = here.pulled(u)
    shares = here.P * (pulled @ (w.unsqueeze(-3) @ layer.value.mT).mT) + H * through_keys
    shares = shares + torch.diag_embed((H * through_queries).sum(-1))
    return shares.sum(-3)


@dataclass(frozen=True)
class Sinks:
    """How attention concentrates on few tokens, by head.

    Attributes:
        received: (H, n) column sums of P: 1 on average; √ of the largest bounds ‖P‖₂ for row-stochastic P.
        token: (H,) the token that receives most.
        share: (H,) the share of all attention that it receives.
        norm: (H,) ‖P‖₂, the first term of the local bound over ‖V‖₂.
    """

    received: Tensor
    token: Tensor
    share: Tensor
    norm: Tensor


def attention_sinks(layer: Attention, X: Tensor) -> Sinks:
    """Column sums of P, the driver of ‖P‖₂ ≤ √(max_j Σ_i P_ij) and with it of the constant (Section 3.1: √n).

    Raises:
        ValueError: if X is empty or not finite.
    """
    layer = (layer.layer() if isinstance(layer, AttentionHead) else layer).measured()
    P = layer.attention(X.detach())
    received = P.sum(-2)
    most = received.max(-1)
    return Sinks(received, most.indices, most.values / P.shape[-1], torch.linalg.matrix_norm(P, 2))


@dataclass(frozen=True)
class Temperature:
    """A factor of the logits, and the local bounds with it and without."""

    value: float
    bound: float
    before: float


def largest_temperature(layer: AttentionLayer, X: Tensor, target: float, *, high: float = 1.0) -> Temperature:
    """The largest factor τ ≤ high of all logits whose local bound at X (see `bounds.local`, Section 2) is ≤ target.

    A grid of 64 factors is tried from the largest down, then the gap above the first that fits is bisected. `bound` is
    checked at the returned factor.

    Args:
        layer: the layer; `layer.tempered(τ)` is the tamed one.
        X: (n, d) tokens.
        target: > 0.
        high: the largest factor allowed.

    Raises:
        ValueError: if even τ = 0 (uniform attention) exceeds the target.
    """
    require_range("target", target, low=0.0, low_open=True)
    require_range("high", high, low=0.0, low_open=True)

    def bound(factor: float) -> float:
        return local(layer.tempered(factor), X)

    before, fits, over = bound(1.0), None, high
    if bound(high) <= target:
        return Temperature(high, bound(high), before)
    for step in range(63, -1, -1):
        factor = high * step / 64
        if bound(factor) <= target:
            fits = factor
            break
        over = factor
    if fits is None:
        least = bound(0.0)
        raise ValueError(
            f"target must be at least {least:.6g}, the bound of uniform attention, got {target}. Scale V down."
        )
    for _ in range(40):
        middle = (fits + over) / 2
        fits, over = (middle, over) if bound(middle) <= target else (fits, middle)
    return Temperature(fits, bound(fits), before)
