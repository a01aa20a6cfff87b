"""Cutting planes over a box: Kelley's method and the level bundle method (LP and QP masters)."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from offprints.checks import require_range

from inexact_oracle import conic
from inexact_oracle.algorithms.cuts import CutPool, MasterSolver, cut_pool
from inexact_oracle.algorithms.result import Recorder, Result, box, check_budget, start_in_box
from inexact_oracle.oracle import FirstOrderOracle
from inexact_oracle.points import Vector


def kelley(
    oracle: FirstOrderOracle,
    bounds: tuple[ArrayLike, ArrayLike],
    T: int = 100,
    *,
    x0: ArrayLike | None = None,
    tol: float = 1e-6,
    dim: int | None = None,
    solver: MasterSolver = "scipy",
) -> Result:
    """Query where the maximum of all cuts is lowest; stop when upper - lower <= tol, or when they cross.

    On exact data the lower bound never exceeds the minimum over the box.

    Args:
        oracle: x (d,) -> (value, subgradient).
        bounds: (lower, upper) of the box, scalars or (d,).
        T: queries.
        x0: first query; by default the centre of the box.
        tol: gap to stop at.
        dim: d, when neither oracle nor bounds tell it.
        solver: of the linear masters: "scipy" (from scratch), or "highspy" (extra `highs`: from the last basis).

    Raises:
        ValueError: T < 1, or a box that is not finite.
    """
    low, high = box(bounds, dim, oracle)
    require_range("tol", tol, low=0.0)
    ask, pool = Recorder(oracle), cut_pool(len(low), solver)
    x = start_in_box(x0, low, high)
    for _ in range(check_budget(T)):
        pool.add(x, *ask(x))
        model, following = pool.minimum(low, high)
        ask.bound(model)
        if pool.crossed(ask.lower, ask.value):
            return ask.result("crossed")
        if ask.value - ask.lower <= tol:
            return ask.result("converged")
        x = following
    return ask.result("budget")


def level_bundle(
    oracle: FirstOrderOracle,
    bounds: tuple[ArrayLike, ArrayLike],
    T: int = 100,
    *,
    level: float = 0.5,
    x0: ArrayLike | None = None,
    tol: float = 1e-6,
    dim: int | None = None,
    solver: MasterSolver = "scipy",
) -> Result:
    """Project the last point onto {model <= lower + level * (upper - lower)}.

    For exact data of an M-Lipschitz function the gap is below eps after c(level) (M D / eps)^2 queries (Lemarechal,
    Nemirovskii and Nesterov 1995).

    Args:
        oracle: x (d,) -> (value, subgradient).
        bounds: (lower, upper) of the box, scalars or (d,).
        T: queries.
        level: lambda in (0, 1).
        x0: first query; by default the centre of the box.
        tol: gap to stop at.
        dim: d, when neither oracle nor bounds tell it.
        solver: of the linear masters: "scipy" (from scratch), or "highspy" (extra `highs`: from the last basis).

    Raises:
        ValueError: T < 1, level outside (0, 1), or a box that is not finite.
    """
    low, high = box(bounds, dim, oracle)
    require_range("level", level, low=0.0, high=1.0, low_open=True, high_open=True)
    require_range("tol", tol, low=0.0)
    ask, pool = Recorder(oracle), cut_pool(len(low), solver)
    x = start_in_box(x0, low, high)
    for _ in range(check_budget(T)):
        pool.add(x, *ask(x))
        model, lowest = pool.minimum(low, high)
        ask.bound(model)
        if pool.crossed(ask.lower, ask.value):
            return ask.result("crossed")
        if ask.value - ask.lower <= tol:
            return ask.result("converged")
        x = _onto_level(pool, x, ask.lower + level * (ask.value - ask.lower), low, high, lowest)
    return ask.result("budget")


def _onto_level(
    pool: CutPool, x: Vector, target: float, low: Vector, high: Vector, lowest: Vector
) -> NDArray[np.float64]:
    """Projection of x onto the level set within the box; the model's minimiser when the level is missed by rounding."""
    a, b = pool.rows()
    dim = len(x)
    # In steps y - x, in units of the box, so that the solver's tolerance is relative to it.
    unit = max(float(np.max(high - low)), np.finfo(float).tiny)
    rows = np.vstack([a[:, :-1] * unit, np.eye(dim), -np.eye(dim)])
    sides = np.concatenate([b + target - a[:, :-1] @ x, (high - x) / unit, (x - low) / unit])
    sizes = np.maximum(np.linalg.norm(rows, axis=1), np.finfo(float).tiny)
    found = conic.nearest_in_polyhedron(np.zeros(dim), rows / sizes[:, None], sides / sizes)
    return lowest if found is None else np.clip(x + unit * found.z, low, high)
