"""Certificates at and around given tokens, for one head or a layer.

They refine Theorem 3.3 of the paper: the same three terms of the derivative (Section 2) with what is known at X in
place of the radius. Of several heads the bounds add up, with O_h V_h for V.
"""

import math

import torch
from offprints.checks import require_finite, require_range
from torch import Tensor

from attention_lipschitz.blocks import AttentionBlock
from attention_lipschitz.core import AttentionHead, AttentionLayer
from attention_lipschitz.linearization import Linearization

Attention = AttentionLayer | AttentionHead


class PositionalBoundError(ValueError):
    """The bound holds for attention whose logits know no positions; pass `allow_loose=True` for a looser one."""


def _norm(matrix: Tensor) -> Tensor:
    return torch.linalg.matrix_norm(matrix, 2)


def _prepared(layer: Attention, X: Tensor, causal: bool) -> tuple[AttentionLayer, Linearization, Tensor]:
    """The layer in float64, its derivative at X, and the maps O_h V_h up to a rotation of the output."""
    layer = layer.layer(causal) if isinstance(layer, AttentionHead) else layer
    layer = layer.measured()
    if layer.frequencies is None and layer.key_bias is not None:  # it cancels in the softmax
        layer = layer._rebuilt(key_bias=None)
    require_finite("X", X)
    here = layer.linearize(layer._tokens(X.detach()))
    if layer.out is None or layer.out.shape[1] <= layer.out.shape[2]:
        return layer, here, layer.maps().detach()
    return layer, here, (torch.linalg.qr(layer.out)[1] @ layer.value).detach()  # the same norms, fewer rows


def local(layer: Attention, X: Tensor, causal: bool = False) -> float:
    """‖D_X f‖ ≤ Σ_h ‖V‖ ‖P‖ + max_i ‖V Cov_i A‖ + ‖B‖, B_ij = P_ij ‖V (x_j − m_i)‖ ‖A x_i + c‖ (terms of Section 2).

    V is O_h V_h; with rotary positions Cov_i A is the covariance of tokens and rotated keys, and A x_i + c what the
    logit ij multiplies x_j with, so that the bound is as sharp there.

    Args:
        layer: a layer or a head.
        X: (n, d) tokens.
        causal: for a head: masked or not.

    Raises:
        ValueError: if X is empty or not finite.
        FloatingPointError: if the attention is not finite.
    """
    return float(sum(local_by_head(layer, X, causal)))


def local_by_head(layer: Attention, X: Tensor, causal: bool = False) -> list[float]:
    """`local` of each head by itself."""
    layer, here, maps = _prepared(layer, X, causal)
    found = []
    for h, V in enumerate(maps):
        P = here.P[h]
        values = here.X @ V.mT
        means = P @ values
        first = _norm(V) * _norm(P)
        second = _largest_covariance(layer, here, h, values, means)
        third = _norm(P * _spread(values, means) * _pull_sizes(here, h))
        found.append(float(first + second + third))
    return found


def _spread(values: Tensor, means: Tensor) -> Tensor:
    """(n, n) ‖V (x_j − m_i)‖."""
    return torch.cdist(means, values, compute_mode="donot_use_mm_for_euclid_dist")


def _pull_sizes(here: Linearization, h: int) -> Tensor:
    """(n, n) or (n, 1) ‖A x_i + c‖, of rotated keys where there are rotations."""
    layer = here.layer
    if here.turn is None:
        return torch.linalg.vector_norm(layer.scale * (here.q[h] @ layer.key[h]), dim=-1, keepdim=True)
    return layer.scale * torch.linalg.vector_norm(here.turn.towards_keys(here.q[h]) @ layer.key[h], dim=-1)


def _largest_covariance(layer: AttentionLayer, here: Linearization, h: int, values: Tensor, means: Tensor) -> Tensor:
    """max_i ‖Σ_j P_ij V (x_j − m_i) (k_j − k̄_i)ᵀ s R_i Q‖: V Cov_i A without positions.

    A spectral norm is at most the Frobenius norm: rows are tried from the largest of those on, until none can be
    larger.
    """
    P, keys = here.P[h], here.k[h]
    query = torch.linalg.qr(layer.query[h].mT)[1].mT if here.turn is None else layer.query[h]  # the same norms, smaller
    covariances = []
    for rows in torch.arange(len(P), device=P.device).split(32):
        weight = P[rows].unsqueeze(-1)
        right = keys - (P[rows] @ keys).unsqueeze(-2)
        covariance = (weight * (values - means[rows].unsqueeze(-2))).mT @ right
        if here.turn is not None:
            covariance = torch.stack([here.turn.one_back(c, int(i)) for c, i in zip(covariance, rows, strict=True)])
        covariances.append(covariance @ query)
    matrices = torch.cat(covariances)
    size = torch.linalg.matrix_norm(matrices)
    best = size.new_zeros(())
    for i in size.argsort(descending=True).tolist():
        if size[i] <= best:
            break
        best = torch.maximum(best, _norm(matrices[i]))
    return layer.scale * best


def ball(layer: Attention, X: Tensor, delta: float, causal: bool = False) -> float:
    """A bound of ‖D_Y f‖, hence of the Lipschitz constant, on all Y with ‖Y − X‖_F ≤ δ (terms of Section 2).

    Of one head: D_ij = δ (‖Aᵀx_j‖ + ‖A x_i + c‖) + ‖A‖ δ² bounds the change of a logit, so that P_ij grows at most to
    P⁺_ij = min(1, P_ij e^{D_ij + max_k D_ik}). With s = min(n, max_j Σ_i P⁺_ij), ρ = min(max ‖x_i‖ + δ, (diam X +
    2δ)/√2) a bound of the standard deviation of the tokens and q = max_i ‖A x_i + c‖ + ‖A‖ δ: v (√s (1 + ρq) + ρ² ‖A‖).
    With rotary positions ρ² ‖A‖ becomes ρ κ s‖Q‖, κ = max ‖k_j‖ + ‖K‖ δ.

    Args:
        layer: a layer or a head.
        X: (n, d) tokens.
        delta: δ > 0, in the units of the tokens.
        causal: for a head: masked or not.

    Raises:
        ValueError: if δ ≤ 0, or X is empty or not finite.
    """
    require_range("delta", delta, low=0.0, low_open=True, hint="For delta = 0 there is the local bound.")
    layer, here, maps = _prepared(layer, X, causal)
    tokens = here.X
    n = len(tokens)
    diameter = torch.pdist(tokens).max() if n > 1 else tokens.new_zeros(())
    rho = torch.minimum(torch.linalg.vector_norm(tokens, dim=-1).max() + delta, (diameter + 2 * delta) / math.sqrt(2))
    seen, total, grow = layer.mask(n), 0.0, max(1.0, layer.rotary_factor)
    for h, V in enumerate(maps):
        pull, push = _pull_sizes(here, h), _push_sizes(here, h)
        if layer.frequencies is None:
            norm_A = _norm(layer.scale * layer.key[h].mT @ layer.query[h])
            second = rho**2 * norm_A
        else:
            norm_A = layer.scale * grow**2 * _norm(layer.key[h]) * _norm(layer.query[h])
            kappa = torch.linalg.vector_norm(here.k[h], dim=-1).max() + grow * _norm(layer.key[h]) * delta
            second = rho * kappa * layer.scale * grow * _norm(layer.query[h])
        change = (delta * (pull + push) + norm_A * delta**2).expand(n, n)
        change = change if seen is None else change.masked_fill(~seen, 0.0)
        upper = (here.P[h] * (change + change.max(-1, keepdim=True).values).exp()).nan_to_num(0.0).clamp_max(1.0)
        s = upper.sum(0).max().clamp_max(float(n))
        q = (pull if seen is None or pull.shape[1] == 1 else pull.masked_fill(~seen, 0.0)).max() + norm_A * delta
        total += float(_norm(V) * (s.sqrt() * (1 + rho * q) + second))
    return total


def _push_sizes(here: Linearization, h: int) -> Tensor:
    """(1, n) or (n, n) ‖Aᵀ x_j‖, towards rotated queries where there are rotations."""
    layer = here.layer
    if here.turn is None:
        return torch.linalg.vector_norm(layer.scale * (here.k[h] @ layer.query[h]), dim=-1).unsqueeze(0)
    return layer.scale * torch.linalg.vector_norm(here.turn.towards_keys(here.k[h]) @ layer.query[h], dim=-1).mT


def certified_bound(layer: Attention, X: Tensor, radius: float, causal: bool = False) -> float:
    """A bound of the Lipschitz constant on all Y with ‖Y − X‖_F ≤ radius; at 0 of ‖D_X f‖ (Theorem 3.3, refined).

    Args:
        layer: a layer or a head.
        X: (n, d) tokens.
        radius: ≥ 0, in the units of the tokens.
        causal: for a head: masked or not.

    Raises:
        TypeError: for a block: certificates are of attention alone.
        ValueError: if the radius is negative.
    """
    if isinstance(layer, AttentionBlock):
        raise TypeError('layer must be attention alone, got a block with its norm. Extract it with scope="self+out".')
    require_range("radius", radius, low=0.0)
    return local(layer, X, causal) if radius == 0 else ball(layer, X, radius, causal)
