"""Exact convex functions and sets with known minima: what the claims, the tests and the examples run on."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from offprints.seeding import rng

from inexact_oracle import conic
from inexact_oracle.masters import mixed_integer_minimum
from inexact_oracle.points import Vector


class MaxAffine(NamedTuple):
    """f(x) = max(A x + b), with A (m, d) and b (m,)."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Value and a subgradient at x (d,)."""
        heights = self.a @ x + self.b
        top = int(heights.argmax())
        return float(heights[top]), self.a[top].copy()

    @property
    def lipschitz(self) -> float:
        """M: the largest norm of a row."""
        return float(np.linalg.norm(self.a, axis=1).max())

    def minimum_on_ball(self, radius: float) -> float:
        """Min f over |x| <= radius."""
        scale = float(np.abs(self.a).max()) * radius
        best = conic.lowest_over_ball((self.b - self.b.max()) / scale, self.a * (radius / scale), None)
        if best is None:
            raise RuntimeError("the minimum was not found.")
        return float(self.b.max()) + scale * best.dual

    def minimum_on_box(self, low: float, high: float, integrality: NDArray[np.int64] | None = None) -> float:
        """Min f over a box, with integer entries where `integrality` is 1."""
        d = self.a.shape[1]
        whole = np.zeros(d) if integrality is None else np.asarray(integrality)
        # Rounded first: HiGHS has returned wrong optima for integer entries with fractional bounds.
        lower, upper = np.where(whole, np.ceil(low), low), np.where(whole, np.floor(high), high)
        return mixed_integer_minimum(self.a, self.b, whole.astype(bool), lower, upper)[0]


def max_affine(dim: int, pieces: int, seed: int) -> MaxAffine:
    """Standard normal rows and offsets; the last row is minus the mean of the others, so that f is bounded below."""
    gen = rng(seed)
    a = gen.standard_normal((pieces, dim))
    a[-1] = -a[:-1].mean(axis=0)
    return MaxAffine(a, gen.standard_normal(pieces))


class LeastAbsolute(NamedTuple):
    """f(x) = mean |A x - b|, with A (n, d) and b (n,)."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Value and a subgradient at x (d,)."""
        residual = self.a @ x - self.b
        return float(np.abs(residual).mean()), self.a.T @ np.sign(residual) / len(self.b)


class Quadratic(NamedTuple):
    """f(x) = (x - c)' Q (x - c) / 2 with minimum 0 at c."""

    q: NDArray[np.float64]
    centre: NDArray[np.float64]

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Value and gradient at x (d,)."""
        grad = self.q @ (x - self.centre)
        return float(0.5 * grad @ (x - self.centre)), grad


def quadratic(dim: int, condition: float, seed: int, reach: float = 0.5) -> Quadratic:
    """Eigenvalues from 1/condition to 1 (log scale) in a random basis; the centre is uniform in [-reach, reach]^d."""
    gen = rng(seed)
    basis, _ = np.linalg.qr(gen.standard_normal((dim, dim)))
    values = np.logspace(-np.log10(condition), 0.0, dim)
    return Quadratic((basis * values) @ basis.T, gen.uniform(-reach, reach, dim))


class Logistic(NamedTuple):
    """f(x) = mean log(1 + exp(-label <row, x>)), with rows (n, d) and labels +-1 (n,)."""

    rows: NDArray[np.float64]
    labels: NDArray[np.float64]

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Value and gradient at x (d,)."""
        margin = self.labels * (self.rows @ x)
        weight = -self.labels / (1.0 + np.exp(np.clip(margin, -500.0, 500.0)))
        return float(np.logaddexp(0.0, -margin).mean()), self.rows.T @ weight / len(self.labels)

    @property
    def smoothness(self) -> float:
        """L: the largest eigenvalue of rows' rows / (4n)."""
        return float(np.linalg.norm(self.rows, 2) ** 2 / (4.0 * len(self.labels)))


def breast_cancer() -> Logistic:
    """Logistic regression on scikit-learn's breast-cancer data, columns standardised, then scaled so that L = 1."""
    from sklearn.datasets import load_breast_cancer  # comes with the extra "repro"

    x, labels = (np.asarray(part) for part in load_breast_cancer(return_X_y=True))
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    problem = Logistic(x, 2.0 * labels - 1.0)
    return Logistic(x / np.sqrt(problem.smoothness), problem.labels)


class UnitCommitment(NamedTuple):
    """A small unit-commitment cost, convex in (on, power): entries 0..n-1 are on/off, n..2n-1 are power.

    f = sum start_i on_i + sum rate_i p_i^2 + penalty * max(0, demand - sum p) + penalty * sum max(0, p_i - cap_i on_i).
    """

    start: NDArray[np.float64]
    rate: NDArray[np.float64]
    cap: NDArray[np.float64]
    demand: float
    penalty: float

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Value and a subgradient at x (2n,)."""
        on, power = np.split(np.asarray(x), 2)
        short = self.demand - power.sum()
        over = power - self.cap * on
        value = self.start @ on + self.rate @ power**2 + self.penalty * (max(short, 0.0) + np.maximum(over, 0.0).sum())
        broken = self.penalty * (over > 0)
        by_power = 2.0 * self.rate * power - self.penalty * float(short > 0) + broken
        return float(value), np.concatenate([self.start - broken * self.cap, by_power])


def unit_commitment(units: int, seed: int) -> UnitCommitment:
    """Random units whose capacity is about twice the demand."""
    gen = rng(seed)
    cap = gen.uniform(0.5, 1.0, units)
    return UnitCommitment(gen.uniform(0.1, 0.5, units), gen.uniform(0.2, 1.0, units), cap, 0.5 * cap.sum(), 2.0)


class Polytope(NamedTuple):
    """{y : <a_i, y> <= b_i} with unit rows a (m, d) and b (m,) > 0: the ball of radius min b lies inside."""

    a: NDArray[np.float64]
    b: NDArray[np.float64]

    def minimum(self, goal: Vector, radius: float) -> float:
        """Minimum of <goal, x> over the polytope within |x| <= radius."""
        m, d = self.a.shape
        ball = np.vstack([np.zeros((1, d)), -np.eye(d)])
        b = np.concatenate([self.b, [radius], np.zeros(d)])
        cones = [conic.nonnegative(m), conic.second_order(d + 1)]
        best = conic.solve(None, goal, np.vstack([self.a, ball]), b, cones)
        if best is None:
            raise RuntimeError("the minimum was not found.")
        return best.dual

    def distance(self, x: Vector) -> float:
        """Distance from x (d,) to the polytope, 0 inside."""
        room = self.b - self.a @ x
        if (room >= 0.0).all():
            return 0.0
        nearest = conic.nearest_in_polyhedron(np.zeros(len(x)), self.a, room)
        if nearest is None:
            raise RuntimeError("the projection onto the polytope was not found.")
        return float(np.linalg.norm(nearest.z))


class NoisySeparation:
    """Separation oracle of a polytope: x passes when it violates no row by more than `margin`; others get a tilted row.

    With |g~ - g| = eta_s exactly. As b >= r for every row, x r / (r + margin) is in the polytope, so that a point that
    passes lies within |x| margin / (r + margin) of it: `rho`.
    """

    def __init__(self, polytope: Polytope, eta_s: float, margin: float, seed: int) -> None:
        self.polytope, self.eta_s, self.margin = polytope, eta_s, margin
        self._rng = rng(seed)

    def rho(self, reach: float) -> float:
        """Largest distance to the polytope of a point with |x| <= reach that passes."""
        return reach * self.margin / (float(self.polytope.b.min()) + self.margin)

    def __call__(self, x: Vector) -> NDArray[np.float64] | None:
        """None or a unit vector within eta_s of a violated row."""
        excess = self.polytope.a @ x - self.polytope.b
        row = int(excess.argmax())
        if excess[row] <= self.margin:
            return None
        return tilted(self.polytope.a[row], self.eta_s, self._rng)


def tilted(normal: Vector, error: float, gen: np.random.Generator) -> NDArray[np.float64]:
    """A unit vector at distance exactly `error` from the unit `normal`, in a random direction (d >= 2)."""
    across = gen.standard_normal(len(normal))
    across -= normal * (across @ normal)
    size = float(np.linalg.norm(across))
    if size < 1e-9:  # the draw lies along the normal: no direction is left
        return normal.copy()
    angle = 2.0 * np.arcsin(error / 2.0)
    return np.cos(angle) * normal + np.sin(angle) * across / size
