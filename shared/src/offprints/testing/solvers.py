"""Checks of convex solvers, on a problem whose answer is known: scaled, shifted, already solved, without a solution."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from offprints.testing.conformance import Conformance, when
from offprints.testing.values import assert_same, copied


@dataclass(frozen=True)
class Problem:
    """Minimise a convex function over a box.

    Attributes:
        objective: x (d,) -> value, subgradient (d,).
        lower: (d,) lower bounds.
        upper: (d,) upper bounds.
        start: (d,) where to start.
        solution: (d,) a minimiser.
    """

    objective: Callable[[np.ndarray], tuple[float, np.ndarray]]
    lower: np.ndarray
    upper: np.ndarray
    start: np.ndarray
    solution: np.ndarray

    @property
    def best(self) -> float:
        """The least value."""
        return self.objective(self.solution)[0]


class Outcome(NamedTuple):
    """What `solve(problem)` returns: a point, its value, and "optimal", "infeasible", "unbounded" or another word."""

    x: np.ndarray
    value: float
    status: str = "optimal"


def quadratic() -> Problem:
    """Sum of w_i (x_i - c_i)^2 / 2 over a box that holds c inside in two directions and outside in the third."""
    w, c = np.array([1.0, 2.0, 4.0]), np.array([0.3, -0.5, 1.5])
    return Problem(
        lambda x: (float(w @ (x - c) ** 2) / 2, w * (x - c)), -np.ones(3), np.ones(3), np.zeros(3), np.clip(c, -1, 1)
    )


def act(case: Conformance) -> Callable[[], object]:
    """Solve the problem."""
    problem = case.problem()
    return lambda: tuple(case.solve(problem))


def check_optimum(case: Conformance) -> None:
    """The least value is found, at a point of the box that has it."""
    _solved(case, case.problem())


def check_already_optimal(case: Conformance) -> None:
    """Started at the solution, it stays as good."""
    problem = case.problem()
    _solved(case, replace(problem, start=problem.solution.copy()))


def check_scale(case: Conformance) -> None:
    """An objective a thousand times larger or smaller is solved as well, relative to its scale."""
    problem = case.problem()
    for factor in (1e-3, 1e3):

        def scaled(x: np.ndarray, factor: float = factor) -> tuple[float, np.ndarray]:
            value, gradient = problem.objective(x)
            return factor * value, factor * gradient

        _solved(case, replace(problem, objective=scaled), factor)


def check_shift(case: Conformance) -> None:
    """A moved origin and a constant added to the objective change nothing else."""
    problem = case.problem()
    move = np.full(len(problem.start), 2.0)

    def shifted(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = problem.objective(x - move)
        return value + 5.0, gradient

    ends = (problem.lower, problem.upper, problem.start, problem.solution)
    _solved(case, Problem(shifted, *(end + move for end in ends)))


def check_unmodified(case: Conformance) -> None:
    """Bounds and start are left as they were."""
    problem = case.problem()
    before = copied(problem)
    case.solve(problem)
    assert_same(problem, before, "the problem before and after")


@when(lambda case: case.constrained)
def check_infeasible(case: Conformance) -> None:
    """Bounds that cross are refused by ValueError, or the status says infeasible."""
    problem = case.problem()
    _refused(case, replace(problem, lower=problem.upper + 1.0), "infeasible")


def check_unbounded(case: Conformance) -> None:
    """A linear objective without bounds is refused by ValueError, or the status says unbounded."""
    free, origin, slope = np.full(3, np.inf), np.zeros(3), np.array([1.0, -1.0, 0.5])
    linear = Problem(lambda x: (float(slope @ x), slope.copy()), -free, free, origin, origin.copy())
    _refused(case, linear, "unbounded")


def _solved(case: Conformance, problem: Problem, scale: float = 1.0) -> None:
    outcome = case.solve(problem)
    allowed = case.accuracy * scale
    assert outcome.status == "optimal", f"status {outcome.status!r} of a solvable problem"
    inside = (outcome.x >= problem.lower - case.accuracy) & (outcome.x <= problem.upper + case.accuracy)
    assert inside.all(), f"{outcome.x} lies outside the bounds"
    gap = problem.objective(np.asarray(outcome.x))[0] - problem.best
    assert gap <= allowed, f"the point is {gap:.3g} above the optimum, more than {allowed:.3g}"
    told = abs(outcome.value - problem.best)
    assert told <= allowed, f"the value is {told:.3g} off the optimum, more than {allowed:.3g}"


def _refused(case: Conformance, problem: Problem, word: str) -> None:
    try:
        status = case.solve(problem).status
    except ValueError:
        return
    assert status == word, f"status {status!r} of a problem that is {word}"
