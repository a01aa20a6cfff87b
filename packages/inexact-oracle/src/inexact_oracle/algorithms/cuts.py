"""The cuts of a run and their linear masters: by scipy from scratch, or by highspy from the last basis."""

from typing import Literal

import numpy as np
from offprints.checks import require_choice
from scipy import optimize

from inexact_oracle.masters import without_solver_lines
from inexact_oracle.points import Vector

MasterSolver = Literal["scipy", "highspy"]

# What HiGHS's feasibility tolerance (1e-7) can move a lower bound by, relative to the values: only more is a crossing.
MASTER_TOLERANCE = 1e-6


class CutPool:
    """Cuts value_i + <s_i, x - x_i> as rows <s_i, x> - t <= <s_i, x_i> - value_i."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.slopes: list[Vector] = []
        self.offsets: list[float] = []
        self.scale = 0.0

    def add(self, x: Vector, value: float, grad: Vector) -> None:
        """One reply as a cut."""
        self.slopes.append(grad)
        self.offsets.append(value - float(grad @ x))
        self.scale = max(self.scale, abs(value))

    def rows(self) -> tuple[Vector, Vector]:
        """A (m, d + 1) and b (m,) of A (x, t) <= b."""
        slopes = np.array(self.slopes)
        return np.hstack([slopes, -np.ones((len(slopes), 1))]), -np.array(self.offsets)

    def crossed(self, lower: float, upper: float) -> bool:
        """Whether the lower bound is above the upper one by more than the master's tolerance."""
        return lower > upper + MASTER_TOLERANCE * (1.0 + self.scale)

    def minimum(self, lower: Vector, upper: Vector) -> tuple[float, Vector]:
        """Minimum over the box and where, by HiGHS.

        Raises:
            RuntimeError: the linear program was not solved.
        """
        a, b = self.rows()
        cost = np.eye(1, self.dim + 1, self.dim)[0]
        limits = [*zip(lower, upper, strict=True), (None, None)]
        found = optimize.linprog(cost, A_ub=a, b_ub=b, bounds=limits, method="highs")
        if found.x is None:
            raise RuntimeError(f"the master problem was not solved: {found.message}")
        return float(found.fun), np.clip(found.x[:-1], lower, upper)


class WarmCutPool(CutPool):
    """The same cuts; the simplex method continues from the optimal basis before the newest cuts."""

    def __init__(self, dim: int) -> None:
        super().__init__(dim)
        try:
            import highspy
        except ImportError as err:
            raise ImportError('solver="highspy" needs highspy: pip install "inexact-oracle[highs]"') from err
        free = np.full(dim + 1, highspy.kHighsInf)
        none = np.empty(0, np.int32)
        with without_solver_lines():  # a banner when an instance is made, before any option can forbid it
            self._highs = highspy.Highs()
            self._highs.setOptionValue("output_flag", False)
            self._highs.addCols(dim + 1, np.eye(1, dim + 1, dim)[0], -free, free, 0, none, none, np.empty(0))
        self._optimal, self._columns = highspy.HighsModelStatus.kOptimal, np.arange(dim + 1, dtype=np.int32)
        self._known = 0

    def minimum(self, lower: Vector, upper: Vector) -> tuple[float, Vector]:
        """Minimum over the box and where.

        Raises:
            RuntimeError: the linear program was not solved.
        """
        solver, columns = self._highs, self._columns
        solver.changeColsBounds(self.dim, columns[:-1], np.array(lower, float), np.array(upper, float))
        for slope, offset in zip(self.slopes[self._known :], self.offsets[self._known :], strict=True):
            solver.addRow(-np.inf, -offset, self.dim + 1, columns, np.append(slope, -1.0))
        self._known = len(self.slopes)
        solver.run()
        status = solver.getModelStatus()
        if status != self._optimal:
            raise RuntimeError(f"the master problem was not solved: {solver.modelStatusToString(status)}")
        x = np.array(solver.getSolution().col_value[: self.dim])
        return float(solver.getObjectiveValue()), np.clip(x, lower, upper)


def cut_pool(dim: int, solver: MasterSolver) -> CutPool:
    """An empty pool whose masters are solved by scipy from scratch, or by highspy from the last basis.

    Raises:
        ValueError: another solver.
        ImportError: highspy is asked for and not installed.
    """
    require_choice("solver", solver, ("scipy", "highspy"))
    return WarmCutPool(dim) if solver == "highspy" else CutPool(dim)
