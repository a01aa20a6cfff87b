"""A greedy sequential policy on discrete data as a decision tree that people can read (policies of Section 3)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from offprints.checks import message, require_shape

Decide = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""(revealed (d,) bool, rows that share the revealed values (k,)) -> output (K,), columns to reveal (empty: stop)."""


@dataclass
class PolicyTree:
    """One state of a policy; the children are the states after the next columns are seen.

    Attributes:
        columns: indices of what is revealed next; empty where the policy stops.
        names: their names.
        output: (K,) prediction from what is revealed so far.
        children: values of the columns -> the next state.
        labels: names of the K outputs, or None.
        share: share of the rows that reach this state.
    """

    columns: tuple[int, ...]
    names: tuple[str, ...]
    output: tuple[float, ...]
    share: float
    labels: tuple[str, ...] | None = None
    children: dict[tuple, "PolicyTree"] = field(default_factory=dict)

    @property
    def n_leaves(self) -> int:
        """Number of states in which it stops."""
        return sum(child.n_leaves for child in self.children.values()) if self.children else 1

    @property
    def depth(self) -> int:
        """Most steps before it stops."""
        return 1 + max(child.depth for child in self.children.values()) if self.children else 0

    def predict(self, X: np.ndarray) -> np.ndarray:
        """(n, K) outputs of rows whose values the tree knows.

        Raises:
            TypeError, ValueError: for a value that the tree has not seen in that state.
        """
        X = np.asarray(X)
        require_shape("X", X, ("n", "d"))
        return np.array([self._follow(row, i) for i, row in enumerate(X)]).reshape(len(X), len(self.output))

    def _follow(self, row: np.ndarray, index: int) -> tuple[float, ...]:
        node = self
        while node.children:
            seen = tuple(row[list(node.columns)].tolist())
            if seen not in node.children:
                expected = f"values of {', '.join(node.names)} that the tree knows"
                raise ValueError(message("X", expected, f"{seen} in row {index}"))
            node = node.children[seen]
        return node.output

    def to_text(self) -> str:
        """The tree in indented lines."""
        return "\n".join(self._lines(""))

    def _lines(self, indent: str) -> list[str]:
        shown = ", ".join(f"{value:.3g}" for value in self.output)
        if self.labels and len(self.labels) == len(self.output):
            shown = ", ".join(f"{name} {value:.3g}" for name, value in zip(self.labels, self.output, strict=True))
        if not self.children:
            return [f"{indent}predict {shown}  ({self.share:.1%} of rows)"]
        lines = []
        for values, child in self.children.items():
            seen = ", ".join(f"{name} = {value}" for name, value in zip(self.names, values, strict=True))
            lines += [f"{indent}{seen}:", *child._lines(indent + "  ")]
        return lines

    def to_dict(self) -> dict[str, object]:
        """JSON values: reveal, output, share, children."""
        branches = [{"values": list(values), **child.to_dict()} for values, child in self.children.items()]
        return {"reveal": list(self.names), "output": list(self.output), "share": self.share, "children": branches}


def grow(
    X: np.ndarray,
    decide: Decide,
    labels: Sequence[object] | None = None,
    names: Sequence[str] | None = None,
    max_nodes: int = 10_000,
) -> PolicyTree:
    """The tree of the states that the rows of X reach.

    Raises:
        ValueError: if there are more than `max_nodes` states, as with continuous columns.
    """
    names = names or [f"x{j}" for j in range(X.shape[1])]
    count = 0

    def node(mask: np.ndarray, rows: np.ndarray) -> PolicyTree:
        nonlocal count
        count += 1
        if count > max_nodes:
            raise ValueError(message("X", f"discrete: at most {max_nodes} states", "more", "Bin the columns first."))
        output, columns = decide(mask, rows)
        titles = None if labels is None else tuple(str(label) for label in labels)
        shown = tuple(str(names[j]) for j in columns)
        made = PolicyTree(tuple(map(int, columns)), shown, tuple(map(float, output)), len(rows) / len(X), titles)
        if not len(columns):
            return made
        after = mask.copy()
        after[columns] = True
        values = [tuple(row) for row in X[np.ix_(rows, columns)].tolist()]
        for value in sorted(set(values)):
            made.children[value] = node(after, rows[[seen == value for seen in values]])
        return made

    return node(np.zeros(X.shape[1], dtype=bool), np.arange(len(X)))
