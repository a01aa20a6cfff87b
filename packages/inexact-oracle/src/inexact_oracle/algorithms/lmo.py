"""Linear minimisation oracles: argmin <g, v> over a simple set, its diameter and a starting point."""

import numpy as np
from numpy.typing import ArrayLike
from offprints.checks import require_finite, require_range

from inexact_oracle.points import Vector


class Simplex:
    """{v >= 0, sum v = radius} in R^dim; diameter sqrt(2) radius (0 when dim = 1)."""

    def __init__(self, dim: int, radius: float = 1.0) -> None:
        _positive(dim=dim, radius=radius)
        self.dim, self.radius = dim, float(radius)
        self.diameter = np.sqrt(2.0) * self.radius if dim > 1 else 0.0

    def start(self) -> Vector:
        """The centre."""
        return np.full(self.dim, self.radius / self.dim)

    def __call__(self, grad: Vector) -> Vector:
        """The vertex of the smallest entry of grad (dim,), in its dtype; ValueError for NaN, as in all sets here."""
        grad = _direction(grad, self.dim)
        v = np.zeros_like(grad)
        v[int(np.argmin(grad))] = self.radius
        return v


class L1Ball:
    """{|v|_1 <= radius} in R^dim; diameter 2 radius."""

    def __init__(self, dim: int, radius: float = 1.0) -> None:
        _positive(dim=dim, radius=radius)
        self.dim, self.radius, self.diameter = dim, float(radius), 2.0 * radius

    def start(self) -> Vector:
        """The centre."""
        return np.zeros(self.dim)

    def __call__(self, grad: Vector) -> Vector:
        """The signed vertex of the entry that is largest in size."""
        grad = _direction(grad, self.dim)
        k = int(np.argmax(np.abs(grad)))
        v = np.zeros_like(grad)
        v[k] = -self.radius * np.sign(grad[k])
        return v


class Box:
    """{lower <= v <= upper}; diameter |upper - lower|."""

    def __init__(self, lower: ArrayLike, upper: ArrayLike) -> None:
        low, high = np.broadcast_arrays(np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64))
        if low.ndim != 1 or not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
            raise ValueError("lower and upper must be finite vectors (d,) with lower <= upper.")
        self.lower, self.upper = low.copy(), high.copy()
        self.dim, self.diameter = len(low), float(np.linalg.norm(high - low))

    def start(self) -> Vector:
        """The centre."""
        return 0.5 * (self.lower + self.upper)

    def __call__(self, grad: Vector) -> Vector:
        """The corner against the gradient's signs."""
        grad = _direction(grad, self.dim)
        return np.where(grad > 0, self.lower, self.upper).astype(grad.dtype)


class NuclearBall:
    """Matrices (rows, columns), flattened by rows, with sum of singular values <= radius; diameter 2 radius."""

    def __init__(self, shape: tuple[int, int], radius: float = 1.0) -> None:
        _positive(rows=shape[0], columns=shape[1], radius=radius)
        self.shape, self.radius, self.diameter = shape, float(radius), 2.0 * radius
        self.dim = shape[0] * shape[1]

    def start(self) -> Vector:
        """The centre."""
        return np.zeros(self.dim)

    def __call__(self, grad: Vector) -> Vector:
        """Minus radius times the outer product of the leading singular vectors."""
        grad = _direction(grad, self.dim)
        left, _, right = np.linalg.svd(grad.reshape(self.shape), full_matrices=False)
        return (-self.radius * np.outer(left[:, 0], right[0])).ravel()


def _direction(grad: ArrayLike, dim: int) -> Vector:
    """The gradient as a finite vector (dim,), in its own floating dtype."""
    grad = np.asarray(grad)
    if grad.dtype.kind != "f":
        grad = grad.astype(np.float64)
    if grad.shape != (dim,):
        raise ValueError(f"grad must have shape ({dim},), got {grad.shape}.")
    require_finite("grad", grad)
    return grad


def _positive(**sizes: float) -> None:
    for name, size in sizes.items():
        if name == "radius":
            require_range(name, size, low=0.0, low_open=True, high=np.inf, high_open=True)
        else:
            require_range(name, size, low=1, integer=True)
