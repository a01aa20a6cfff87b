"""What a local constant can be measured with otherwise, and what the paper compares with (Section 5).

Dense differentiation, finite differences along random directions, and power iteration with a recomputed tangent.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from offprints.checks import require_range
from offprints.seeding import rng
from torch import Tensor


def dense_constant(fn: Callable[[Tensor], Tensor], X: Tensor) -> float:
    """‖J‖₂ from the whole Jacobian by `torch.func.jacrev` and a singular value decomposition (Section 2).

    O((nd)²) memory and O((nd)³) time.
    """
    jacobian = torch.func.jacrev(fn)(X)
    return float(torch.linalg.matrix_norm(jacobian.reshape(-1, X.numel()).detach(), 2))


def random_directions(
    fn: Callable[[Tensor], Tensor], X: Tensor, directions: int = 100, step: float = 1e-4, seed: int = 0
) -> float:
    """Max ‖f(X + hE) − f(X − hE)‖ / 2h over random unit directions E: about a lower bound of ‖D_X f‖₂ (Section 2).

    Raises:
        ValueError: if a count or the step is not positive.
    """
    require_range("directions", directions, low=1, integer=True)
    require_range("step", step, low=0.0, low_open=True)
    gen, best = rng(seed), 0.0
    for _ in range(directions):
        E = torch.from_numpy(gen.standard_normal(tuple(X.shape))).to(X)
        E = E / torch.linalg.vector_norm(E)
        with torch.no_grad():
            gap = torch.linalg.vector_norm(fn(X + step * E) - fn(X - step * E))
        best = max(best, float(gap) / (2 * step))
    return best


class PowerRun(NamedTuple):
    """A value, the products with J or Jᵀ it took, and whether it stopped by itself."""

    value: float
    products: int
    converged: bool


def published_power_iteration(
    fn: Callable[[Tensor], Tensor], X: Tensor, *, tol: float = 1e-4, max_iter: int = 500, seed: int = 0
) -> PowerRun:
    """The loop of the paper's scripts (Section 5), with the tangent that was meant instead of the value.

    Every step recomputes `torch.func.jvp` and `torch.func.vjp`; it stops where σ² changes by less than `tol`,
    absolutely.

    Raises:
        ValueError: if a number is not positive.
    """
    require_range("tol", tol, low=0.0, low_open=True)
    require_range("max_iter", max_iter, low=1, integer=True)
    u = torch.from_numpy(rng(seed).standard_normal(tuple(X.shape))).to(X)
    u, last = u / torch.linalg.vector_norm(u), torch.inf
    for step in range(1, max_iter + 1):
        tangent = torch.func.jvp(fn, (X,), (u,))[1]
        u = torch.func.vjp(fn, X)[1](tangent)[0]
        square = float(torch.linalg.vector_norm(u))
        if abs(square - last) < tol:
            return PowerRun(square**0.5, 2 * step, True)
        u, last = u / square, square
    return PowerRun(last**0.5, 2 * max_iter, False)
