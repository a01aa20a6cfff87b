"""Inexact oracles made from exact ones: bounded, adversarial, quantised, truncated and finite-difference errors.

Each carries the `eta_f` and `eta_g` that hold for it, so `LipschitzOracle(o, d, o.eta_f, o.eta_g, D)` is always right.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from offprints.checks import require_choice, require_range
from offprints.seeding import rng

from inexact_oracle.oracle import FirstOrderOracle
from inexact_oracle.points import Vector

Mode = Literal["alternate", "up", "rotate", "lookahead"]


class Noisy(ABC):
    """Base: an exact oracle, the error bounds of the noisy one, and a stream of random numbers of its own."""

    def __init__(self, oracle: FirstOrderOracle, eta_f: float, eta_g: float, seed: int = 0) -> None:
        require_range("eta_f", eta_f, low=0.0, high=np.inf, high_open=True)
        require_range("eta_g", eta_g, low=0.0, high=np.inf, high_open=True)
        self.oracle, self.eta_f, self.eta_g = oracle, float(eta_f), float(eta_g)
        self._rng = rng(seed)

    @abstractmethod
    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """The inexact value and gradient at x (d,)."""

    def _direction(self, dim: int) -> Vector:
        """A uniform unit vector."""
        v = self._rng.standard_normal(dim)
        return v / np.linalg.norm(v)


class Uniform(Noisy):
    """Value error uniform in [-eta_f, eta_f], gradient error uniform in the ball of radius eta_g; both zero-mean."""

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """The noisy value and gradient at x (d,)."""
        value, grad = self.oracle(x)
        radius = self._rng.random() ** (1.0 / len(x))
        return value + self.eta_f * self._rng.uniform(-1.0, 1.0), grad + self.eta_g * radius * self._direction(len(x))


class Sign(Noisy):
    """Errors of full size: +-eta_f with a random sign, a uniform vector of norm eta_g; both zero-mean."""

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """The noisy value and gradient at x (d,)."""
        value, grad = self.oracle(x)
        sign = 1.0 if self._rng.random() < 0.5 else -1.0
        return value + sign * self.eta_f, grad + self.eta_g * self._direction(len(x))


class Adversarial(Noisy):
    """Errors of full size, chosen against the solver.

    - "alternate": the signs of a fixed error (eta_f, eta_g w) alternate from query to query.
    - "up": values too high, slopes too flat, so that cuts overshoot near the minimum.
    - "rotate": the value error swings like a cosine, the gradient error turns in the plane orthogonal to the gradient.
    - "lookahead": knows the best point so far; cuts from elsewhere are tilted up there, values near it are pushed down.
    """

    def __init__(self, oracle: FirstOrderOracle, eta_f: float, eta_g: float, mode: Mode, seed: int = 0) -> None:
        super().__init__(oracle, eta_f, eta_g, seed)
        require_choice("mode", mode, get_args(Mode))
        self.mode = mode
        self._queries = 0
        self._fixed: Vector | None = None
        self._best: tuple[float, Vector] | None = None

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """The noisy value and gradient at x (d,)."""
        value, grad = self.oracle(x)
        if self._fixed is None:
            self._fixed = self._direction(len(x))
        if self._best is None or value < self._best[0]:
            self._best = float(value), np.array(x)
        shift, tilt = getattr(self, f"_{self.mode}")(x, np.asarray(grad))
        self._queries += 1
        return value + self.eta_f * shift, grad + self.eta_g * tilt

    def _alternate(self, x: Vector, grad: Vector) -> tuple[float, Vector]:
        sign = 1.0 if self._queries % 2 == 0 else -1.0
        return sign, sign * self._fixed  # type: ignore[operator]

    def _up(self, x: Vector, grad: Vector) -> tuple[float, Vector]:
        size = float(np.linalg.norm(grad))
        return 1.0, -grad / size if size > 0 else self._fixed  # type: ignore[return-value]

    def _rotate(self, x: Vector, grad: Vector) -> tuple[float, Vector]:
        tilt = self._direction(len(x))
        size = float(grad @ grad)
        across = tilt - grad * (tilt @ grad / size) if size > 0 else tilt
        length = float(np.linalg.norm(across))
        # In one dimension, and when the draw lies along the gradient, nothing is orthogonal: the draw itself serves.
        return float(np.cos(self._queries)), across / length if length > 1e-9 else tilt

    def _lookahead(self, x: Vector, grad: Vector) -> tuple[float, Vector]:
        towards = self._best[1] - x  # type: ignore[index]
        size = float(np.linalg.norm(towards))
        return (1.0, towards / size) if size > 0 else (-1.0, self._fixed)  # type: ignore[return-value]


class Quantized(Noisy):
    """Values and gradient entries rounded to 2^bits levels over [-range, range], as by a converter.

    eta_f = value_range / (2^bits - 1), eta_g = sqrt(d) grad_range / (2^bits - 1).

    Raises:
        ValueError: at a query whose exact answer leaves the range (a converter saturates, and no bound holds).
    """

    def __init__(self, oracle: FirstOrderOracle, dim: int, bits: int, value_range: float, grad_range: float) -> None:
        require_range("dim", dim, low=1, integer=True)
        require_range("bits", bits, low=1, high=52, integer=True)
        for name, size in (("value_range", value_range), ("grad_range", grad_range)):
            require_range(name, size, low=0.0, low_open=True, high=np.inf, high_open=True)
        levels = 2**bits - 1
        super().__init__(oracle, value_range / levels, np.sqrt(dim) * grad_range / levels)
        self.bits, self.value_range, self.grad_range, self._levels = bits, value_range, grad_range, levels

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """The quantised value and gradient at x (d,)."""
        value, grad = self.oracle(x)
        answer = self._round(np.asarray(value), self.value_range, "value")
        return float(answer), self._round(np.asarray(grad), self.grad_range, "gradient entry")

    def _round(self, a: NDArray[np.float64], size: float, what: str) -> NDArray[np.float64]:
        if np.max(np.abs(a)) > size:
            raise ValueError(f"{what} must be between {-size} and {size} to be quantised, got {np.max(np.abs(a)):.4g}.")
        step = 2.0 * size / self._levels
        return np.rint((a + size) / step) * step - size


class Truncated(Noisy):
    """f(x) = min_y phi(x, y), by `inner_iters` gradient steps on y: what a truncated inner solve returns.

    With phi strongly convex (mu) and smooth (L) in y and a step 1/L, |y_k - y*(x)| <= (1 - mu/L)^k R =: e. Then
    0 <= phi(x, y_k) - f(x) <= L e^2 / 2 = eta_f and |grad_x phi(x, y_k) - grad f(x)| <= coupling * e = eta_g (Danskin).

    Args:
        partial: (x, y) -> (phi, grad_x phi, grad_y phi).
        start: y_0.
        inner_iters: k >= 0.
        mu: strong convexity in y.
        smoothness: L in y.
        coupling: Lipschitz constant of y -> grad_x phi(x, y).
        radius: R >= |y_0 - y*(x)| for all x that are queried.
    """

    def __init__(
        self,
        partial: Callable[[Vector, Vector], tuple[float, Vector, Vector]],
        start: NDArray[np.float64],
        inner_iters: int,
        *,
        mu: float,
        smoothness: float,
        coupling: float,
        radius: float,
    ) -> None:
        require_range("inner_iters", inner_iters, low=0, integer=True)
        require_range("mu", mu, low=0.0, low_open=True)
        require_range("smoothness", smoothness, low=mu, hint="It is at least mu.")
        require_range("coupling", coupling, low=0.0)
        require_range("radius", radius, low=0.0)
        away = (1.0 - mu / smoothness) ** inner_iters * radius
        super().__init__(self._solve, 0.5 * smoothness * away**2, coupling * away)
        self.partial, self.start, self.inner_iters = partial, np.array(start, dtype=np.float64), inner_iters
        self._step = 1.0 / smoothness

    def _solve(self, x: Vector) -> tuple[float, Vector]:
        y = self.start.copy()
        for _ in range(self.inner_iters):
            y = y - self._step * self.partial(x, y)[2]
        value, grad, _ = self.partial(x, y)
        return value, grad

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """The value and x-gradient of phi at the truncated inner solution."""
        return self._solve(x)


class FiniteDifference(Noisy):
    """Values of `fun` and central differences of them.

    For an L-smooth f and values within eta_f: |D_k - d_k f| <= L h / 2 + eta_f / h in every entry, so
    eta_g = sqrt(d) (L h / 2 + eta_f / h), smallest at h = sqrt(2 eta_f / L). 2 d + 1 values per query.

    Args:
        fun: x (d,) -> value, within eta_f of f.
        dim: d.
        h: step, in units of x.
        smoothness: L.
        eta_f: bound on the value error of `fun`; at least its rounding error.
    """

    def __init__(
        self, fun: Callable[[Vector], float], dim: int, h: float, smoothness: float, eta_f: float = 0.0
    ) -> None:
        require_range("dim", dim, low=1, integer=True)
        require_range("h", h, low=0.0, low_open=True, high=np.inf, high_open=True)
        require_range("smoothness", smoothness, low=0.0, high=np.inf, high_open=True)
        eta_g = float(np.sqrt(dim)) * (smoothness * h / 2.0 + eta_f / h)
        super().__init__(self._differences, eta_f, eta_g)
        self.fun, self.h = fun, float(h)

    def _differences(self, x: Vector) -> tuple[float, Vector]:
        steps = self.h * np.eye(len(x))
        grad = np.array([(self.fun(x + e) - self.fun(x - e)) / (2.0 * self.h) for e in steps])
        return float(self.fun(x)), grad

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """The value and the central differences at x (d,)."""
        return self._differences(x)
