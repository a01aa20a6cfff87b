"""What the exact solvers give back: the optimum, and the policy that attains it (Section 2)."""

from dataclasses import dataclass

import numpy as np
from offprints.checks import message, require_shape

from suwr.tree import PolicyTree, grow


@dataclass(frozen=True, eq=False)
class Solution:
    """An optimal policy.

    Attributes:
        solver: "lp" (best without leakage) or "sequential" (best that reveals one feature at a time).
        lam: price of a feature.
        objective: loss + lam cost.
        loss: expected loss.
        cost: expected cost of the selection; the number of features unless costs were given.
        n_features: expected number of selected features.
        masks: (M, d) bool.
        support: (m, d) the distinct rows.
        weights: (m,) their probabilities.
        policy: (m, M) pi(S | x).
        outputs: (m, M, K) E[y | x_S] (K = 1) or p(c | x_S).
        actions: (M, m) column revealed next in state S, -1 to stop; None for the linear program.
        classes_: the labels, where y held labels.
    """

    solver: str
    lam: float
    objective: float
    loss: float
    cost: float
    n_features: float
    masks: np.ndarray
    support: np.ndarray
    weights: np.ndarray
    policy: np.ndarray
    outputs: np.ndarray
    actions: np.ndarray | None
    classes_: np.ndarray | None

    def masks_proba(self, X: np.ndarray) -> np.ndarray:
        """(n, M) pi(S | x) of rows of the support, in the order of `masks`.

        Raises:
            TypeError, ValueError: for rows that the problem does not hold.
        """
        return self.policy[self._atoms(X)]

    def predict(self, X: np.ndarray) -> np.ndarray:
        """(n, K) outputs of rows of the support, averaged over pi(S | x); a policy that draws shows more than one S.

        Raises:
            TypeError, ValueError: for rows that the problem does not hold.
        """
        index = self._atoms(X)
        return np.einsum("nm,nmk->nk", self.policy[index], self.outputs[index])

    def local_support(self, X: np.ndarray) -> np.ndarray:
        """(n, d) bool: the mask of each row of the support.

        Raises:
            TypeError, ValueError: for rows that the problem does not hold, or where the policy draws among masks: the
                likeliest of them is found by looking at all of x, and leaks.
        """
        proba = self.masks_proba(X)
        if (proba.max(axis=1) < 1 - 1e-9).any():
            hint = "Draw from masks_proba(X), or take the sequential policy."
            raise ValueError(message("the policy", "one mask for every row", "one that draws among masks", hint))
        return self.masks[proba.argmax(axis=1)]

    def to_tree(self) -> PolicyTree:
        """The sequential policy as a decision tree.

        Raises:
            ValueError: for the linear program, whose policy need not be sequential.
        """
        if self.actions is None:
            raise ValueError(message("solver", "'sequential' (a tree reveals one feature at a time)", "'lp'"))
        place = {mask.tobytes(): k for k, mask in enumerate(self.masks)}
        actions = self.actions

        def decide(mask: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            k = place[mask.tobytes()]
            atom = int(rows[0])
            column = actions[k, atom]
            return self.outputs[atom, k], np.array([], dtype=int) if column < 0 else np.array([column])

        return grow(self.support, decide, None if self.classes_ is None else self.classes_.tolist())

    def _atoms(self, X: np.ndarray) -> np.ndarray:
        X = np.asarray(X)
        require_shape("X", X, (None, self.support.shape[1]))
        known = {tuple(row): i for i, row in enumerate(self.support.tolist())}
        rows = [tuple(row) for row in X.tolist()]
        if unknown := [i for i, row in enumerate(rows) if row not in known]:
            raise ValueError(message("X", "rows of the problem's support", f"row {unknown[0]}: {rows[unknown[0]]}"))
        return np.array([known[row] for row in rows], dtype=int)
