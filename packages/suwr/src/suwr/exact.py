"""Optima for a known discrete distribution: the linear program without leakage, and the best sequential policy.

A selector that leaks nothing has p(y | x_S, S) = p(y | x_S), so the least loss l(S, x_S) in a cell does not depend on
the policy, and the best policy is a linear program over pi(S | x_S) (Section 2 of the paper). A sequential policy
reveals one feature at a time; dynamic programming over cells finds the best. It is never better, and on some problems
worse.
"""

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Self

import numpy as np
from offprints.checks import message, require_choice, require_finite, require_kind, require_range, require_shape
from scipy import sparse

from suwr.cells import LOSSES, Cells, atoms, codes
from suwr.solution import Solution

LP_CELLS = 10_000
"""Up to how many cells `solver="auto"` takes the linear program."""
MOST_PAIRS = 20_000_000
"""Distinct rows times sets of columns; 12 bits have 17 million."""


class DiscreteProblem:
    """Features of finite support with weights p(x), and the least loss of every cell (S, x_S).

    Args of `from_arrays` say what goes in. The objective is E[l(S, x_S) + lam cost(S)], cost(S) = |S| or the sum of
    `costs`. l is Var(y | x_S) ("squared"), the entropy H(y | x_S) in nats ("log"), or 1 - max p(c | x_S) ("zero_one").

    Attributes:
        support: (m, d) the distinct rows.
        weights: (m,) their probabilities.
        masks: (M, d) bool: the subsets that are allowed, small ones first.
        n_cells: number of cells, at most the product of (values of a feature + 1).
        classes_: the sorted labels of y, or None ("squared", or y given as probabilities).
    """

    def __init__(
        self, support: np.ndarray, weights: np.ndarray, target: np.ndarray, loss: str, masks: np.ndarray,
        costs: np.ndarray, forced: np.ndarray, classes: np.ndarray | None, offset: float,
    ) -> None:  # fmt: skip
        self.support, self.weights, self.masks, self.classes_ = support, weights, masks, classes
        self._offset = offset
        self._costs: np.ndarray = masks @ costs
        self._forced = [bool(row.all()) for row in masks[:, forced]]
        coded = codes(support)
        self._cells = [Cells.of(coded, weights, target, mask, loss) for mask in masks]
        self.n_cells = sum(len(cells.mass) for cells in self._cells)

    @classmethod
    def from_arrays(
        cls, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None, loss: str = "squared", *,
        costs: Sequence[float] | None = None, max_features: int | None = None,
        forbidden: Sequence[int] = (), forced: Sequence[int] = (),
    ) -> Self:  # fmt: skip
        """A problem from rows and labels; equal rows are joined, so that a data set gives its empirical distribution.

        Args:
            X: (n, d) discrete values.
            y: (n,) numbers ("squared") or labels; or (n, K) class probabilities ("log", "zero_one").
            weights: (n,) non-negative; None: equal.
            loss: "squared", "log" or "zero_one".
            costs: (d,) non-negative price of each feature; None: 1 each.
            max_features: largest |S|.
            forbidden: columns that may never be selected.
            forced: columns that every final selection must hold.

        Raises:
            TypeError, ValueError: for shapes, NaN, negative weights or costs, forced columns that are forbidden or more
                than `max_features`, or too many sets of columns.
        """
        require_choice("loss", loss, LOSSES)
        support, p, target, classes, offset = atoms(X, y, weights, loss)
        d = support.shape[1]
        price = np.ones(d) if costs is None else np.asarray(costs, dtype=float)
        require_shape("costs", price, (d,))
        require_finite("costs", price)
        if (price < 0).any():
            raise ValueError(message("costs", "non-negative", float(price.min())))
        most = d if max_features is None else require_range("max_features", max_features, low=0, integer=True)
        banned, held = _columns("forbidden", forbidden, d), _columns("forced", forced, d)
        if both := sorted(set(banned) & set(held)):
            raise ValueError(f"forced and forbidden must be disjoint, both hold column {both[0]}.")
        if len(held) > most:
            raise ValueError(message("max_features", f"at least {len(held)} (the forced columns)", most))
        free = [j for j in range(d) if j not in banned]
        most = min(most, len(free))
        pairs = len(p) * sum(comb(len(free), size) for size in range(most + 1))
        if pairs > MOST_PAIRS:
            hint = "Give max_features, forbid columns, or use SUWRClassifier, which learns from data."
            raise ValueError(message("X", f"of at most {MOST_PAIRS} pairs of a row and a set of columns", pairs, hint))
        masks = np.array([_mask(d, s) for size in range(most + 1) for s in combinations(free, size)])
        return cls(support, p, target, loss, masks, price, np.array(held, dtype=int), classes, offset)

    def solve(self, lam: float, solver: str = "auto") -> Solution:
        """The optimum at a price `lam` of a feature.

        Args:
            lam: non-negative, in units of the loss.
            solver: "lp" (no leakage), "sequential", or "auto": the program up to 10 000 cells, else sequential. The
                solution says in `.solver` which one it was.

        Raises:
            TypeError, ValueError: for other values.
        """
        require_choice("solver", solver, ("auto", "lp", "sequential"))
        if solver == "auto":
            solver = "lp" if self.n_cells <= LP_CELLS else "sequential"
        return self.solve_lp(lam) if solver == "lp" else self.solve_sequential(lam)

    def solve_lp(self, lam: float) -> Solution:
        """The best policy without leakage: min sum p(x) pi(S|x_S)[l + lam cost(S)], pi(.|x) a distribution at every x.

        One variable a cell, one row an atom, HiGHS. Its tolerances are absolute, so prices are divided by the largest:
        the objective is right to about 1e-9 of the largest l + lam cost.

        Raises:
            TypeError, ValueError: for a negative or infinite `lam`.
            RuntimeError: if HiGHS stops without an optimum.
        """
        from scipy.optimize import linprog

        require_range("lam", lam, low=0, high=np.inf, high_open=True)
        m = len(self.weights)
        keep = np.flatnonzero(self._forced)
        offsets = np.concatenate([[0], np.cumsum([len(self._cells[k].mass) for k in keep])])
        price = np.concatenate([self._cells[k].mass * (self._cells[k].loss + lam * self._costs[k]) for k in keep])
        columns = np.concatenate([self._cells[k].of_atom + offset for k, offset in zip(keep, offsets, strict=False)])
        rows = np.tile(np.arange(m), len(keep))
        equal = sparse.csc_matrix((np.ones(len(rows)), (rows, columns)), shape=(m, offsets[-1]))
        tight = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
        scaled = price / (price.max() or 1.0)
        found = linprog(scaled, A_eq=equal, b_eq=np.ones(m), bounds=(0, None), method="highs", options=tight)
        if found.status != 0:
            raise RuntimeError(f"the linear program of {offsets[-1]} cells has no optimum: {found.message}")
        proba = np.zeros((m, len(self.masks)))
        for k, offset in zip(keep, offsets, strict=False):
            proba[:, k] = found.x[self._cells[k].of_atom + offset]
        proba = np.clip(proba, 0.0, None)
        return self._solution("lp", lam, proba / proba.sum(axis=1, keepdims=True), None)

    def solve_sequential(self, lam: float) -> Solution:
        """The best policy that reveals one feature at a time, by dynamic programming over cells.

        V(S, x_S) = min{l(S, x_S) + lam cost(S), min over i of E[V(S + i, x_{S + i}) | x_S]}; the answer is V at S = {}.
        Ties are broken in favour of stopping, then of the first column.

        Raises:
            TypeError, ValueError: for a negative or infinite `lam`.
        """
        require_range("lam", lam, low=0, high=np.inf, high_open=True)
        m, index = len(self.weights), {mask.tobytes(): k for k, mask in enumerate(self.masks)}
        value = np.empty((len(self.masks), m))
        action = np.full((len(self.masks), m), -1, dtype=np.int64)
        for k in range(len(self.masks) - 1, -1, -1):
            cells, mask = self._cells[k], self.masks[k]
            best = cells.loss + lam * self._costs[k] if self._forced[k] else np.full(len(cells.mass), np.inf)
            choice = np.full(len(cells.mass), -1)
            for j in np.flatnonzero(~mask):
                larger = mask.copy()
                larger[j] = True
                after = index.get(larger.tobytes())
                if after is None:
                    continue
                expected = np.bincount(cells.of_atom, self.weights * value[int(after)], len(cells.mass)) / cells.mass
                better = expected < best * (1 - 1e-12)  # not by rounding alone
                best, choice = np.where(better, expected, best), np.where(better, j, choice)
            value[k], action[k] = best[cells.of_atom], choice[cells.of_atom]
        proba = np.zeros((m, len(self.masks)))
        for atom in range(m):
            k = 0
            while action[k, atom] >= 0:
                larger = np.array(self.masks[k])
                larger[int(action[k, atom])] = True
                k = index[larger.tobytes()]
            proba[atom, k] = 1.0
        return self._solution("sequential", lam, proba, action)

    def pareto(self, lams: Sequence[float], solver: str = "auto") -> list[Solution]:
        """The optimum at each price, in order of rising price: the best trade of loss against features.

        Raises:
            TypeError, ValueError: as `solve`.
        """
        return [self.solve(lam, solver) for lam in sorted(lams)]

    def _solution(self, solver: str, lam: float, proba: np.ndarray, action: np.ndarray | None) -> Solution:
        joint = self.weights[:, None] * proba
        loss = sum(float(joint[:, k] @ cells.loss[cells.of_atom]) for k, cells in enumerate(self._cells))
        cost = float((joint * self._costs).sum())
        count = float((joint * self.masks.sum(axis=1)).sum())
        outputs = np.stack([cells.output[cells.of_atom] for cells in self._cells], axis=1) + self._offset
        return Solution(
            solver=solver, lam=float(lam), objective=loss + lam * cost, loss=loss, cost=cost, n_features=count,
            masks=self.masks, support=self.support, weights=self.weights, policy=proba, outputs=outputs, actions=action,
            classes_=self.classes_,
        )  # fmt: skip


def _mask(d: int, columns: Sequence[int]) -> np.ndarray:
    mask = np.zeros(d, dtype=bool)
    mask[list(columns)] = True
    return mask


def _columns(name: str, columns: Sequence[int], d: int) -> list[int]:
    require_kind(name, columns, (list, tuple, range, np.ndarray))
    return sorted({int(require_range(name, j, low=0, high=d - 1, integer=True)) for j in columns})
