"""Localisation methods: the ellipsoid method and the centre of gravity."""

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from offprints.checks import require_range
from offprints.seeding import rng
from scipy import optimize
from scipy.spatial import Delaunay, HalfspaceIntersection, QhullError

from inexact_oracle.algorithms.result import Recorder, Result, box, check_budget, start_point
from inexact_oracle.oracle import FirstOrderOracle
from inexact_oracle.points import Vector


def ellipsoid(
    oracle: FirstOrderOracle,
    x0: ArrayLike,
    radius: float,
    T: int,
    *,
    separation: Callable[[Vector], NDArray[np.float64] | None] | None = None,
    tol: float = 0.0,
) -> Result:
    """Central cuts by subgradients, outside of the set by separating normals; returns the best feasible point.

    For exact data of an M-Lipschitz function on the ball of radius R: value - minimum <= M R exp(-T / (2 d (d + 1))).
    Exact cuts never lose a minimiser, so every value query gives the lower bound value - sqrt(s' P s).

    Args:
        oracle: x (d,) -> (value, subgradient).
        x0: centre of the ball, (d,).
        radius: R of the ball, which holds a minimiser.
        T: steps; the value oracle is only asked at points of the ball that are declared feasible.
        separation: x -> None when feasible, else a normal s with <s, y - x> <= 0 on the set; None: no constraint.
        tol: stop when value - lower bound is at most this.

    Raises:
        ValueError: T < 1, radius <= 0, or no point was ever declared feasible.
    """
    centre, steps, ask = start_point(x0), check_budget(T), Recorder(oracle)
    require_range("radius", radius, low=0.0, low_open=True, high=np.inf, high_open=True)
    x, d = centre, len(centre)
    shape = radius**2 * np.eye(d)
    for _ in range(steps):
        away = x - centre
        # Ellipsoids that follow reach beyond the ball; a centre there is cut off by the ball itself.
        cut = away if away @ away > radius**2 else None if separation is None else separation(x)
        if cut is None:
            value, cut = ask(x)
            width = float(np.sqrt(max(cut @ shape @ cut, 0.0)))
            ask.bound(value - width)
            if ask.value - ask.lower <= tol:
                return ask.result("converged")
        push = shape @ cut
        width = float(np.sqrt(max(cut @ push, 0.0)))
        if width <= np.finfo(float).tiny:
            return ask.result("converged")  # what is left is thinner than rounding
        push = push / width
        if d == 1:
            x, shape = x - 0.5 * push, shape / 4.0
        else:
            x = x - push / (d + 1.0)
            shape = d**2 / (d**2 - 1.0) * (shape - 2.0 / (d + 1.0) * np.outer(push, push))
            shape = 0.5 * (shape + shape.T)
    return ask.result("budget")


def center_of_gravity(
    oracle: FirstOrderOracle,
    bounds: tuple[ArrayLike, ArrayLike],
    T: int,
    *,
    samples: int = 2000,
    seed: int = 0,
    dim: int | None = None,
) -> Result:
    """Query the centroid of what the cuts leave of the box; exact for d <= 3, by hit-and-run samples above.

    For exact data and exact centroids: value - minimum <= (1 - 1/e)^(T/d) * (range of f on the box).

    Args:
        oracle: x (d,) -> (value, subgradient).
        bounds: (lower, upper) of the box, scalars or (d,).
        T: queries.
        samples: hit-and-run samples per centroid (d > 3).
        seed: of the samples.
        dim: d, when neither oracle nor bounds tell it.

    Raises:
        ValueError: T < 1, or a box that is not finite.
    """
    low, high = box(bounds, dim, oracle)
    require_range("samples", samples, low=1, integer=True)
    d, ask, gen = len(low), Recorder(oracle), rng(seed)
    rows, sides = np.vstack([np.eye(d), -np.eye(d)]), np.concatenate([high, -low])
    x = 0.5 * (low + high)
    for _ in range(check_budget(T)):
        _, grad = ask(x)
        size = float(np.linalg.norm(grad))
        if size == 0.0:
            ask.bound(ask.value)
            return ask.result("converged")
        rows, sides = np.vstack([rows, grad / size]), np.append(sides, grad @ x / size)
        inside = _deepest(rows, sides)
        if inside is None:
            return ask.result("converged")  # what is left is thinner than rounding
        centre = _centroid(rows, sides, inside) if d <= 3 else None
        x = _sampled_centroid(rows, sides, inside, samples, gen) if centre is None else centre
    return ask.result("budget")


def _deepest(rows: Vector, sides: Vector) -> Vector | None:
    """Centre of the largest ball in {rows y <= sides} (unit rows); None when it is no larger than rounding."""
    d = rows.shape[1]
    found = optimize.linprog(
        -np.eye(1, d + 1, d)[0],
        A_ub=np.hstack([rows, np.ones((len(rows), 1))]),
        b_ub=sides,
        bounds=[(None, None)] * d + [(0, None)],
        method="highs",
    )
    if found.x is None or found.x[-1] <= 1e-9 * max(1.0, float(np.abs(sides).max())):
        return None
    return found.x[:-1]


def _centroid(rows: Vector, sides: Vector, inside: Vector) -> Vector | None:
    """Exact centroid of the polytope; None when it is too flat for the triangulation."""
    if rows.shape[1] == 1:
        ends = sides / rows[:, 0]
        return np.array([0.5 * (ends[rows[:, 0] > 0].min() + ends[rows[:, 0] < 0].max())])
    try:
        corners = HalfspaceIntersection(np.hstack([rows, -sides[:, None]]), inside).intersections
        corners = corners[np.isfinite(corners).all(axis=1)]
        simplices = corners[Delaunay(corners).simplices]
    except QhullError:
        return None
    edges = simplices[:, 1:] - simplices[:, :1]
    volumes = np.abs(np.linalg.det(edges))
    return np.average(simplices.mean(axis=1), axis=0, weights=volumes)


def _sampled_centroid(
    rows: Vector, sides: Vector, inside: Vector, samples: int, gen: np.random.Generator
) -> NDArray[np.float64]:
    """Mean of hit-and-run samples started at the deepest point; the first fifth is burnt in."""
    x, total, burn = inside.copy(), np.zeros_like(inside), samples // 5
    for k in range(samples + burn):
        direction = gen.standard_normal(len(x))
        speed, room = rows @ direction, sides - rows @ x
        forward, backward = speed > 0, speed < 0
        ahead = float(np.min(room[forward] / speed[forward]))
        behind = float(np.max(room[backward] / speed[backward]))
        x = x + gen.uniform(min(behind, 0.0), max(ahead, 0.0)) * direction
        if k >= burn:
            total += x
    return total / samples
