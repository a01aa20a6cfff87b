"""Power iteration on Jᵀ J (the method of Section 5 of the paper, with the tangent where its scripts take the value)."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Found(NamedTuple):
    """Values (...,), flags (...,), and unit vectors left and right."""

    value: Tensor
    converged: Tensor
    left: Tensor
    right: Tensor


def power_iteration(
    jvp: Callable[[Tensor], Tensor],
    vjp: Callable[[Tensor], Tensor],
    start: Tensor,
    axes: int,
    rtol: float,
    max_iter: int,
) -> Found:
    """Largest singular values of a batch of Jacobians; each stops where |σ_t − σ_{t−1}| ≤ rtol σ_t.

    The published loop stops at an absolute change of σ², at once where σ is small; the change is relative here.

    Args:
        jvp: E ↦ J E, over the last `axes` axes; those before are a batch.
        vjp: Y ↦ Jᵀ Y.
        start: (..., *shape of X) first vectors.
        axes: how many axes a vector has.
        rtol: relative change at which a vector stops.
        max_iter: most steps.
    """
    right = _unit(start, axes)[0]
    batch = start.shape[: start.ndim - axes]
    value = torch.zeros(batch, dtype=start.dtype, device=start.device)
    converged = torch.zeros(batch, dtype=torch.bool, device=start.device)
    left = right
    for _ in range(max_iter):
        left = jvp(right)
        size = torch.linalg.vector_norm(left.flatten(len(batch)), dim=-1)
        converged = (size - value).abs() <= rtol * size
        value = torch.maximum(size, value)
        if bool(converged.all()):
            break
        right = _unit(vjp(left), axes, right)[0]
    return Found(value, converged, _unit(left, left.ndim - len(batch))[0], right)


def _unit(x: Tensor, axes: int, otherwise: Tensor | None = None) -> tuple[Tensor, Tensor]:
    norm = torch.linalg.vector_norm(x, dim=tuple(range(-axes, 0)), keepdim=True)
    if otherwise is None:
        return x / norm.clamp_min(torch.finfo(x.dtype).tiny), norm
    return torch.where(norm > 0, x / norm.clamp_min(torch.finfo(x.dtype).tiny), otherwise), norm
