"""The transforms of section 3 of the paper as plain functions, and the errors that its section 4 reports."""

import torch
from offprints.checks import message

from direct_spectral.contract import compute_dtype
from direct_spectral.domain import require_finite_where, require_floating


def _phases(points: torch.Tensor, modes: torch.Tensor) -> torch.Tensor:
    require_floating("points", points)
    require_finite_where("points", points)
    if points.ndim == 1:
        points = points.unsqueeze(-1)
    if modes.ndim == 1:
        modes = modes.unsqueeze(-1)
    if modes.shape[-1] != points.shape[-1]:
        raise ValueError(message("modes", f"of {points.shape[-1]} components (as points)", modes.shape[-1]))
    return points @ modes.to(points.device, points.dtype).transpose(-1, -2)


def nudft(u: torch.Tensor, points: torch.Tensor, modes: torch.Tensor) -> torch.Tensor:
    """Σ_j u_j e^{-ik·x_j} for any k: (..., M) complex.

    Args:
        u: (..., N) real or complex.
        points: (N, d), or (N,) in one dimension, as angles.
        modes: (M, d) or (M,) wave vectors, integer or not.

    Raises:
        TypeError: if `u` or `points` are integers.
        ValueError: if shapes differ or entries are not finite.
    """
    require_floating("u", u, complex_too=True)
    require_finite_where("u", u.unsqueeze(-1))
    phase = _phases(points, modes)
    if u.shape[-1] != len(phase):
        raise ValueError(message("u", f"of shape (..., {len(phase)}), a value for each point", tuple(u.shape)))
    wave = torch.polar(torch.ones_like(phase), -phase)
    return u.to(torch.promote_types(u.dtype, wave.dtype)) @ wave.to(torch.promote_types(u.dtype, wave.dtype))


def inudft(c: torch.Tensor, points: torch.Tensor, modes: torch.Tensor) -> torch.Tensor:
    """Σ_k c_k e^{+ik·x_j}: (..., N) complex; the adjoint of `nudft`. Arguments as there, c (..., M).

    Raises:
        TypeError: if `c` or `points` are integers.
        ValueError: if shapes differ or entries are not finite.
    """
    require_floating("c", c, complex_too=True)
    require_finite_where("c", c.unsqueeze(-1))
    phase = _phases(points, modes)
    if c.shape[-1] != phase.shape[-1]:
        raise ValueError(message("c", f"of shape (..., {phase.shape[-1]}), a value for each mode", tuple(c.shape)))
    wave = torch.polar(torch.ones_like(phase), phase).transpose(-1, -2)
    return c.to(torch.promote_types(c.dtype, wave.dtype)) @ wave.to(torch.promote_types(c.dtype, wave.dtype))


def _relative(pred: torch.Tensor, target: torch.Tensor, mask: torch.Tensor | None, power: int) -> torch.Tensor:
    if pred.shape != target.shape:
        raise ValueError(message("target", f"of shape {tuple(pred.shape)} (as pred)", tuple(target.shape)))
    wide = compute_dtype(pred.real.dtype)
    difference, size = (pred - target).abs().to(wide) ** power, target.abs().to(wide) ** power
    if mask is not None:
        kept = mask.reshape(*mask.shape, *[1] * (pred.ndim - mask.ndim))
        difference, size = torch.where(kept, difference, 0), torch.where(kept, size, 0)
    ratio = difference.flatten(1).sum(1) / size.flatten(1).sum(1).clamp_min(torch.finfo(wide).tiny)
    return 100 * ratio ** (1 / power)


def relative_l1(pred: torch.Tensor, target: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """100 Σ|y - ŷ| / Σ|y| of each sample, in per cent: (B,) from (B, N, C).

    Args:
        pred: ŷ.
        target: y.
        mask: (B, N) bool, True at points that count.

    Raises:
        ValueError: if shapes differ.
    """
    return _relative(pred, target, mask, 1)


def relative_l2(pred: torch.Tensor, target: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """100 ‖y - ŷ‖₂ / ‖y‖₂ of each sample, in per cent; as `relative_l1`."""
    return _relative(pred, target, mask, 2)
