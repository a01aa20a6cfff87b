"""The conic programs of the package, each one stated for Clarabel in scaled variables.

Clarabel minimises q'z + z'Pz/2 subject to b - Az in a product of cones. Every function returns None when there is no
usable answer; the callers then fall back and count it.
"""

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from inexact_oracle.points import Vector

Matrix = NDArray[np.float64]
_solver: ModuleType = clarabel  # it comes without type stubs
# Clarabel's default is 1e-8; tighter, because its answer only chooses a reply and rounding never adds up this way.
TOLERANCE = 1e-11
TIME_LIMIT = 10.0  # seconds for one program; the programs here take milliseconds

_STATUS = _solver.SolverStatus
_USABLE = (_STATUS.Solved, _STATUS.AlmostSolved, _STATUS.InsufficientProgress)


class Optimum(NamedTuple):
    """Primal point and a lower bound on the optimal value (the dual objective)."""

    z: Vector
    dual: float


def _settings() -> object:
    settings = _solver.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = TOLERANCE
    settings.time_limit = TIME_LIMIT
    return settings


_SETTINGS = _settings()


@lru_cache(maxsize=64)
def _no_quadratic(n: int) -> sparse.csc_matrix:
    return sparse.csc_matrix((n, n))


def _by_columns(a: Matrix) -> sparse.csc_matrix:
    """Dense to compressed columns in two passes; for the small programs here scipy's own way costs twice the solve."""
    filled = a.T != 0.0
    ends = np.zeros(a.shape[1] + 1, dtype=np.int32)
    np.cumsum(np.count_nonzero(filled, axis=1), out=ends[1:])
    rows = np.nonzero(filled)[1].astype(np.int32)
    return sparse.csc_matrix((a.T[filled], rows, ends), shape=a.shape)


def solve(
    p: Matrix | None, q: Vector, a: Matrix | sparse.csr_matrix, b: Vector, cones: Sequence[object], accept: float = 1e-6
) -> Optimum | None:
    """One program; where rounding stopped the solver early, a relative gap below `accept` will do."""
    quadratic = _no_quadratic(len(q)) if p is None else sparse.csc_matrix(np.triu(p))
    linear = _by_columns(a) if isinstance(a, np.ndarray) else sparse.csc_matrix(a)
    result = _solver.DefaultSolver(quadratic, q, linear, b, list(cones), _SETTINGS).solve()
    if result.status not in _USABLE:
        return None
    z = np.asarray(result.x)
    gap = abs(result.obj_val - result.obj_val_dual)
    if not np.isfinite(z).all() or not gap <= accept * (1.0 + abs(result.obj_val)):
        return None
    return Optimum(z, float(result.obj_val_dual))


def nonnegative(rows: int) -> object:
    """The cone of `rows` linear inequalities Az <= b."""
    return _solver.NonnegativeConeT(rows)


def zero(rows: int) -> object:
    """The cone of `rows` equations Az = b."""
    return _solver.ZeroConeT(rows)


def second_order(rows: int) -> object:
    """The cone {(t, y): |y| <= t} of `rows` entries."""
    return _solver.SecondOrderConeT(rows)


def largest_minimum(gaps: Vector, steps: Matrix, cap: tuple[Vector, float] | None) -> Optimum | None:
    """Min w >= 0 over |v| <= 1 with w + <d_i, v> >= gap_i, and |g + v| <= m when `cap` = (g, m).

    The shortfall w and v are z = (w, v). `gaps` (k,), `steps` (k, d).
    """
    k, d = steps.shape
    rows = [np.hstack([-np.ones((k, 1)), -steps]), np.eye(1, d + 1) * -1.0, _ball(d)]
    sides = [-gaps, np.zeros(1), np.eye(1, d + 1)[0]]
    cones = [nonnegative(k + 1), second_order(d + 1)]
    if cap is not None:
        rows.append(_ball(d))
        sides.append(np.concatenate([[cap[1]], cap[0]]))
        cones.append(second_order(d + 1))
    return solve(None, np.eye(1, d + 1)[0], np.vstack(rows), np.concatenate(sides), cones)


def _ball(d: int) -> Matrix:
    rows = np.zeros((d + 1, d + 1))
    rows[1:, 1:] = -np.eye(d)
    return rows


def shortest(gaps: Vector, steps: Matrix, cap: tuple[Vector, float] | None) -> Optimum | None:
    """Min |v|^2/2 with <d_i, v> >= gap_i, and |g + v| <= m when `cap` = (g, m). `gaps` (k,), `steps` (k, d)."""
    k, d = steps.shape
    rows, sides, cones = [-steps], [-gaps], [nonnegative(k)]
    if cap is not None:
        rows.append(_ball(d)[:, 1:])
        sides.append(np.concatenate([[cap[1]], cap[0]]))
        cones.append(second_order(d + 1))
    return solve(np.eye(d), np.zeros(d), np.vstack(rows), np.concatenate(sides), cones)


def nearest_smooth(rows: Matrix, sides: Vector, prices: tuple[float, float]) -> Optimum | None:
    """The least price of corrections |v| <= p, |w| <= q with |w|^2 <= tau and rows @ (v, w, tau) >= sides.

    The objective is <prices, (p, q)>, the answer z = (v, w, tau, p, q).
    """
    n = rows.shape[1] + 2
    d = n - 4
    cost = np.zeros(n)
    cost[d + 2 :] = prices
    linear = np.zeros((len(sides) + 2, n))
    linear[: len(sides), : d + 2] = -rows
    linear[-2, [0, d + 2]] = 1.0, -1.0
    linear[-1, [0, d + 2]] = -1.0, -1.0
    norm = np.zeros((d + 1, n))
    norm[0, d + 3] = -1.0
    norm[1:, 1 : d + 1] = -np.eye(d)
    # |w|^2 <= tau as |(2w, tau - 1)| <= tau + 1
    square = np.zeros((d + 2, n))
    square[0, d + 1] = square[1, d + 1] = -1.0
    square[2:, 1 : d + 1] = -2.0 * np.eye(d)
    b = np.concatenate([-sides, np.zeros(2), np.zeros(d + 1), [1.0, -1.0], np.zeros(d)])
    cones = [nonnegative(len(sides) + 2), second_order(d + 1), second_order(d + 2)]
    return solve(None, cost, np.vstack([linear, norm, square]), b, cones, accept=1e-3)


def on_simplex(points: Matrix, cost: Vector) -> Optimum | None:
    """Min |sum l_i p_i|^2/2 + <cost, l> over the simplex; z = (sum l_i p_i, l). `points` (n, d), `cost` (n,)."""
    n, d = points.shape
    p = np.zeros((d + n, d + n))
    p[:d, :d] = np.eye(d)
    equal = np.zeros((d + 1, d + n))
    equal[:d, :d] = -np.eye(d)
    equal[:d, d:] = points.T
    equal[d, d:] = 1.0
    positive = np.hstack([np.zeros((n, d)), -np.eye(n)])
    b = np.concatenate([np.zeros(d), [1.0], np.zeros(n)])
    cones = [zero(d + 1), nonnegative(n)]
    return solve(p, np.concatenate([np.zeros(d), cost]), np.vstack([equal, positive]), b, cones)


def lowest_over_ball(heights: Vector, slopes: Matrix, box: tuple[Vector, Vector] | None) -> Optimum | None:
    """min_y max_i heights_i + <slopes_i, y> over |y| <= 1, and within `box` when given; z = (t, y)."""
    k, d = slopes.shape
    rows = [np.hstack([-np.ones((k, 1)), slopes])]
    sides = [-heights]
    if box is not None:
        lower, upper = box
        unit = np.hstack([np.zeros((d, 1)), np.eye(d)])
        for sign, side in ((1.0, upper), (-1.0, -lower)):
            kept = np.isfinite(side)
            rows.append(sign * unit[kept])
            sides.append(side[kept])
    linear = sum(len(side) for side in sides)
    rows.append(_ball(d))
    sides.append(np.eye(1, d + 1)[0])
    cones = [nonnegative(linear), second_order(d + 1)]
    return solve(None, np.eye(1, d + 1)[0], np.vstack(rows), np.concatenate(sides), cones)


def nearest_in_cone(normal: Vector, rows: Matrix, margin: float) -> Optimum | None:
    """Min |s - normal|^2/2 with rows @ s <= -margin."""
    return nearest_in_polyhedron(normal, rows, np.full(len(rows), -margin))


def nearest_in_polyhedron(point: Vector, rows: Matrix, sides: Vector) -> Optimum | None:
    """Min |y - point|^2/2 with rows @ y <= sides (the projection of a level method)."""
    return solve(np.eye(len(point)), -point, rows, sides, [nonnegative(len(sides))])
