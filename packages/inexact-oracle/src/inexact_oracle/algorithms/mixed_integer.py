"""Mixed-integer convex minimisation by outer approximation, with masters solved by HiGHS."""

import numpy as np
from numpy.typing import ArrayLike
from offprints.checks import require_range

from inexact_oracle.algorithms.cuts import CutPool, MasterSolver, cut_pool
from inexact_oracle.algorithms.result import Recorder, Result, box, check_budget
from inexact_oracle.masters import mixed_integer_minimum
from inexact_oracle.oracle import FirstOrderOracle
from inexact_oracle.points import Vector


def outer_approximation(
    oracle: FirstOrderOracle,
    integrality: ArrayLike,
    bounds: tuple[ArrayLike, ArrayLike],
    T: int = 200,
    *,
    inner: int = 10,
    tol: float = 1e-6,
    solver: MasterSolver = "scipy",
) -> Result:
    """Min f(x) over a box with some entries integer: Duran and Grossmann's scheme with cutting planes inside.

    A mixed-integer master over all cuts gives a lower bound and integer values; with these fixed, up to `inner` cutting
    planes improve the continuous entries. On exact data lower <= minimum <= upper at all times.

    Args:
        oracle: x (d,) -> (value, subgradient).
        integrality: (d,) of 0 and 1; 1 for integer entries.
        bounds: (lower, upper) of the box, scalars or (d,).
        T: queries.
        inner: queries per integer assignment.
        tol: stop when upper - lower is at most this.
        solver: of the linear programs inside: "scipy", or "highspy" (extra `highs`: from the last basis).

    Raises:
        ValueError: T < 1, integrality of other values, a box that is not finite or holds no integer point.
        RuntimeError: a master was not solved.
    """
    kinds = np.asarray(integrality)
    if kinds.ndim != 1 or not np.isin(kinds, (0, 1)).all():
        raise ValueError(f"integrality must be a vector of 0 and 1, got {integrality!r}.")
    low, high = box(bounds, len(kinds), oracle)
    whole = kinds.astype(bool)
    low[whole], high[whole] = np.ceil(low[whole] - 1e-9), np.floor(high[whole] + 1e-9)
    if (low > high).any():
        raise ValueError("bounds must leave an integer for every integer entry, got an empty range.")
    require_range("inner", inner, low=1, integer=True)
    require_range("tol", tol, low=0.0)
    budget, ask, pool = check_budget(T), Recorder(oracle), cut_pool(len(kinds), solver)
    x = 0.5 * (low + high)
    x[whole] = np.floor(x[whole])
    while True:
        fixed_low, fixed_high = np.where(whole, x, low), np.where(whole, x, high)
        for _ in range(inner):
            pool.add(x, *ask(x))
            if ask.queries == budget:
                break
            model, x = pool.minimum(fixed_low, fixed_high)
            if model >= ask.value - tol:
                break  # this assignment cannot improve on the best point
        model, x = _master(pool, whole, low, high)
        ask.bound(model)
        if pool.crossed(ask.lower, ask.value):
            return ask.result("crossed")
        if ask.value - ask.lower <= tol:
            return ask.result("converged")
        if ask.queries == budget:
            return ask.result("budget")


def _master(pool: CutPool, whole: Vector, low: Vector, high: Vector) -> tuple[float, Vector]:
    """Minimum of all cuts over the box with integer entries: the lower bound that HiGHS proved, and a point."""
    slopes, offsets = np.array(pool.slopes), np.array(pool.offsets)
    proved, x = mixed_integer_minimum(slopes, offsets, whole, low, high)
    x = np.clip(x, low, high)
    x[whole] = np.rint(x[whole])
    return proved, x
