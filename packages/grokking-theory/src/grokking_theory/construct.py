"""The exact network of proposition 3.8: zero loss, written down with Fourier features, with small ‖θ‖_∞."""

import math

import torch
from jaxtyping import Float
from offprints.checks import require_finite, require_range, require_shape
from torch import Tensor


def fourier_construction(
    p: int, compact: bool = False, balanced: bool = False, copies: int = 1
) -> tuple[Float[Tensor, "h two_p"], Float[Tensor, "p h"]]:
    """Weights W (h, 2p) and V (p, h) with f(a, b)_c = p · 1[a + b ≡ c (mod p)] exactly.

    For each frequency ω_k = 2πk/p, (q_a + r_b)² - (q_a - r_b)² = 4 q_a r_b turns pairs of neurons into products of
    cosines and sines of ω_k a and ω_k b, and eight of them into cos(ω_k (a + b - c)), whose sum over k is the target.

    Args:
        p: the modulus, at least 2.
        compact: one neuron for k = 0 and eight (output weights ½) for 1 <= k < p/2, since k and p - k give the same
            cosine; two more for k = p/2. Width 4p - 3 for odd p, 4p - 5 for even p, instead of 8p.
        balanced: move scale between W and V, frequency by frequency (f is homogeneous in both), until their largest
            entries agree.
        copies: repeat each neuron m times with all weights times m^{-1/3}: the same function.

    Returns:
        W and V in float64. ‖θ‖_∞ is 1 plain; balanced it is 4^{-1/3} ≈ 0.630, compact and balanced 2^{-1/3} ≈ 0.794
        (4^{-1/3} for p = 2); all times copies^{-1/3}.

    Raises:
        TypeError: if p or copies is no integer.
        ValueError: if p < 2 or copies < 1.
    """
    require_range("p", p, low=2, integer=True)
    require_range("copies", copies, low=1, integer=True)
    rows, heads = [], []
    for k in range(p // 2 + 1 if compact else p):
        q, r, head = _frequency(p, k, compact)
        if balanced:
            shift = (head.abs().amax() / q.abs().amax()).pow(1 / 3)
            q, r, head = q * shift, r * shift, head / shift.square()
        rows.append(torch.cat([q, r], dim=1))
        heads.append(head)
    W, V = torch.cat(rows), torch.cat(heads).t()
    shrink = copies ** (-1 / 3)
    return (W * shrink).repeat(copies, 1), (V * shrink).repeat(1, copies)


def _frequency(p: int, k: int, compact: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The neurons of one frequency: q and r (neurons, p), output weights (neurons, p)."""
    angle = 2 * math.pi / p * (k * torch.arange(p) % p).double()  # reduced first: exact for large k z
    cos, sin = angle.cos(), angle.sin()
    if compact and k == 0:
        half = torch.full((1, p), 0.5, dtype=torch.float64)
        return half, half, 2 * half
    if compact and 2 * k == p:  # all sines vanish
        return torch.stack([cos, cos]), torch.stack([cos, -cos]), torch.stack([cos, -cos]) / 4
    q = torch.stack([cos, cos, sin, sin, sin, sin, cos, cos])
    r = torch.stack([cos, -cos, sin, -sin, cos, -cos, sin, -sin])
    head = torch.stack([cos, -cos, -cos, cos, sin, -sin, sin, -sin])
    return q, r, head / 2 if compact else head / 4


def verify_construction(W: Float[Tensor, "h two_p"], V: Float[Tensor, "p h"], p: int) -> float:
    """The largest absolute error of a network over all p³ triples: max |Σ_k V_ck (Q_ka + R_kb)² - p · 1[a + b ≡ c]|.

    Raises:
        ValueError: if a shape does not fit p, or an entry is not finite.
    """
    require_range("p", p, low=2, integer=True)
    require_shape("W", W, ("h", 2 * p))
    require_shape("V", V, (p, W.shape[0]))
    require_finite("W", W)
    require_finite("V", V)
    a = torch.arange(p, device=W.device)
    worst = 0.0
    for first in range(p):  # one row of the table at a time: O(p² + p h) memory
        outputs = (W[:, first, None] + W[:, p:]).square().t() @ V.t()
        right = p * ((first + a)[:, None] % p == a).to(outputs.dtype)
        worst = max(worst, float((outputs - right).abs().amax()))
    return worst
