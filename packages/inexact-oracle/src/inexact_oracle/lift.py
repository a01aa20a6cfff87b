"""Step 3 of the piecewise-linear wrapper: the highest value that a nearby gradient allows.

    max V   s.t.   V <= f~,   |u| <= eta_g,   V <= a_i + <u, d_i> for all i,   [|g~ + u| <= M]

with a_i = V_i + <g~, x_t - x_i> and d_i = x_t - x_i. Among all optimal u the shortest is wanted when f~ is reached: the
reply then stays closest to what the oracle said. Rows enter one by one (most violated first); one and two rows have a
closed form, more go to the conic solver, warm-started with the rows that were active at the previous query.
"""

from typing import NamedTuple

import numpy as np

from inexact_oracle import conic
from inexact_oracle.points import Vector

MAX_ROUNDS = 60


class Lift(NamedTuple):
    """Correction u (d,), an upper bound on the optimal V, the rows that were active, and what it took."""

    u: Vector
    upper: float
    active: tuple[int, ...]
    conic_calls: int
    failed: bool


class Program(NamedTuple):
    """The data of step 3: `heights` a (k,), `steps` d (k, d), target f~, radius eta_g, and `cap` = (g~, M) or None."""

    heights: Vector
    steps: Vector
    target: float
    radius: float
    cap: tuple[Vector, float] | None

    def capped(self, u: Vector) -> bool:
        """Whether u breaks |g~ + u| <= M by more than rounding."""
        return self.cap is not None and float(np.linalg.norm(self.cap[0] + u)) > self.cap[1] * (1.0 + 1e-13)


def _one_row(height: float, step: Vector, target: float, radius: float) -> tuple[Vector, float]:
    length = float(np.linalg.norm(step))
    need = target - height
    if length == 0.0 or need <= 0.0:
        return np.zeros_like(step), min(target, height)
    reach = min(need / length, radius)
    return step * (reach / length), min(target, height + reach * length)


def _two_rows(heights: Vector, steps: Vector, target: float, radius: float) -> tuple[Vector, float]:
    """Exact optimum for two rows: one row decides alone, or both reach f~, or both are equal on the sphere."""
    for i, j in ((0, 1), (1, 0)):
        u, value = _one_row(heights[i], steps[i], target, radius)
        if heights[j] + u @ steps[j] >= value:
            return u, value
    first, second, mixed = steps[0] @ steps[0], steps[1] @ steps[1], steps[0] @ steps[1]
    area = first * second - mixed**2
    if area > 1e-14 * first * second:
        need = target - heights
        u = ((second * need[0] - mixed * need[1]) * steps[0] + (first * need[1] - mixed * need[0]) * steps[1]) / area
        if u @ u <= radius**2:
            return u, target
    across = steps[0] - steps[1]
    u = across * ((heights[1] - heights[0]) / (across @ across))
    along = steps[1] - across * (steps[1] @ across / (across @ across))
    size = float(np.linalg.norm(along))
    # Opposite steps leave no direction that raises both rows: then the shortest equaliser is the answer.
    if size > 1e-13 * np.sqrt(max(first, second)):
        u = u + along * (np.sqrt(max(radius**2 - u @ u, 0.0)) / size)
    return u, float(min(target, heights[0] + u @ steps[0]))


def _conic(program: Program, rows: list[int]) -> tuple[Vector, float, int] | None:
    """Any number of rows: the largest minimum, then the shortest u that keeps it when f~ is within reach."""
    steps = program.steps[rows]
    reach = float(np.max(np.linalg.norm(steps, axis=1)))
    scale = program.radius * reach
    if scale == 0.0:
        return None
    gaps, steps = (program.target - program.heights[rows]) / scale, steps / reach
    cap = None if program.cap is None else (program.cap[0] / program.radius, program.cap[1] / program.radius)
    best = conic.largest_minimum(gaps, steps, cap)
    if best is None:
        return None
    shortfall, v, calls = best.z[0], best.z[1:], 1
    if shortfall < 1e-8:
        nearest = conic.shortest(gaps, steps, cap)
        calls = 2
        if nearest is not None and np.linalg.norm(nearest.z) <= 1.0 + 1e-9:
            v = nearest.z
    return v * program.radius, program.target - scale * max(best.dual, 0.0), calls


def _within(program: Program, u: Vector) -> Vector:
    """Take rounding off: u back into the ball, then g~ + u back under M."""
    length = float(np.linalg.norm(u))
    if length > program.radius:
        u = u * (program.radius / length)
    if program.cap is not None:
        grad, limit = program.cap
        size = float(np.linalg.norm(grad + u))
        if size > limit:
            u = (grad + u) * (limit / size) - grad
    return u


def _polish(program: Program, u: Vector, value: float) -> Vector:
    """The conic answer to the last digits: the active rows hold with equality, which least squares solves exactly.

    V* < f~: all active rows are equal, and |u| = eta_g. V* = f~: they equal f~, and u is the shortest such. Kept only
    when it is no worse, so a wrong guess of the active rows does no harm.
    """
    reached = program.heights + program.steps @ u
    lengths = program.radius * np.linalg.norm(program.steps, axis=1)
    heights, steps = (part[reached <= value + 1e-6 * lengths.max()] for part in (program.heights, program.steps))
    if not len(heights):
        return u
    if value >= program.target - 1e-9 * lengths.max():
        exact = np.linalg.lstsq(steps, program.target - heights, rcond=1e-10)[0]
    else:
        across, along = steps[1:] - steps[0], steps[0]
        exact = np.linalg.lstsq(across, heights[0] - heights[1:], rcond=1e-10)[0]
        if len(across):
            along = along - across.T @ np.linalg.lstsq(across.T, along, rcond=1e-10)[0]
        rest, size = program.radius**2 - float(exact @ exact), float(np.linalg.norm(along))
        if rest > 0.0 and size > 1e-9 * np.linalg.norm(steps[0]):
            exact = exact + along * (np.sqrt(rest) / size)
    allowed = np.linalg.norm(exact) <= program.radius * (1.0 + 1e-12) and not program.capped(exact)
    better = min(program.target, float((program.heights + program.steps @ exact).min())) >= value - 1e-13 * abs(value)
    return exact if allowed and better else u


def lift(program: Program, first: Vector, warm: tuple[int, ...], tolerance: float, everything: bool = False) -> Lift:
    """Solve step 3 by row generation.

    Args:
        program: the data.
        first: an allowed u to fall back on (zero, or what brings g~ under M).
        warm: rows to add as soon as the conic solver is needed.
        tolerance: an answer this close to the bound of the chosen rows is optimal.
        everything: skip the closed forms and state all rows at once.
    """
    heights, steps, target = program.heights, program.steps, program.target
    reached = heights + steps @ first
    rows = list(range(len(heights))) if everything else [int(np.argmin(reached))]
    best_u, best_value, upper, calls = first, min(target, float(reached.min())), target, 0
    for _ in range(MAX_ROUNDS):
        answer = _closed(program, rows) if len(rows) <= 2 and not everything else None
        if answer is None:
            if not everything:
                rows += [row for row in warm if row not in rows]
            solved = _conic(program, rows)
            if solved is None:
                return Lift(best_u, upper, (), calls + 1, True)
            answer, calls = solved[:2], calls + solved[2]
        u = _within(program, answer[0])
        upper = min(upper, answer[1])
        reached = heights + steps @ u
        if calls and float(reached.min()) >= upper - tolerance:
            u = _polish(program, u, min(target, float(reached.min())))
            reached = heights + steps @ u
        value = min(target, float(reached.min()))
        if value > best_value:
            best_u, best_value = u, value
        if best_value >= upper - tolerance:
            break
        # One row while the closed forms last, a few at a time for the conic solver.
        worst = np.argsort(reached, kind="stable")[: 1 if len(rows) < 2 else 4]
        entering = [int(row) for row in worst if row not in rows and reached[row] < upper - tolerance]
        if not entering:
            break
        rows += entering
    active = tuple(row for row in rows if reached[row] <= best_value + 10.0 * tolerance)
    return Lift(best_u, max(upper, best_value), active, calls, False)


def _closed(program: Program, rows: list[int]) -> tuple[Vector, float] | None:
    """The closed form of one or two rows; None when M forbids it."""
    heights, steps = program.heights[rows], program.steps[rows]
    if len(rows) == 1:
        u, value = _one_row(heights[0], steps[0], program.target, program.radius)
    else:
        u, value = _two_rows(heights, steps, program.target, program.radius)
    return None if program.capped(u) else (u, value)
