"""Atoms and cells of a discrete distribution: the groups of rows that agree on a set of features."""

from typing import NamedTuple, Self

import numpy as np
from offprints.checks import message, require_finite, require_shape

LOSSES = ("squared", "log", "zero_one")
MOST = 2**40


def codes(X: np.ndarray) -> np.ndarray:
    """(n, d) array of any values -> integer codes, column by column."""
    return np.stack([np.unique(column, return_inverse=True)[1].ravel() for column in X.T], axis=1)


def groups(coded: np.ndarray) -> np.ndarray:
    """(n, k) integer codes -> (n,) index of the group of equal rows, 0 when k = 0."""
    group = np.zeros(len(coded), dtype=np.int64)
    size = 1
    for column in coded.T:
        width = int(column.max()) + 1
        if size * width > MOST:  # number the groups afresh before their product overflows
            group, size = _numbered(group)
        group, size = group * width + column, size * width
    return _numbered(group)[0]


def _numbered(group: np.ndarray) -> tuple[np.ndarray, int]:
    found, index = np.unique(group, return_inverse=True)
    return index.ravel(), len(found)


def atoms(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray | None, loss: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, float]:
    """Distinct rows (m, d), their probabilities (m,), targets, the labels where `y` holds labels, and E[y].

    Targets: (m, 2) mean and second moment of y - E[y] ("squared"), or (m, K) class probabilities (and 0 for E[y]).

    Raises:
        TypeError, ValueError: for other shapes, NaN, negative weights, or none that is positive.
    """
    X, y = np.asarray(X), np.asarray(y)
    require_shape("X", X, ("n", "d"))
    n = len(X)
    if n == 0 or X.shape[1] == 0:
        raise ValueError(message("X", "of at least one row and one column", X.shape))
    if X.dtype.kind == "f":
        require_finite("X", X)
    p = np.ones(n) if weights is None else np.asarray(weights, dtype=float)
    require_shape("weights", p, (n,))
    require_finite("weights", p)
    with np.errstate(over="ignore"):
        total = p.sum()
    if (p < 0).any() or not 0 < total < np.inf:
        raise ValueError(
            message("weights", "non-negative with a positive, finite sum", f"least {p.min():g}, sum {total:g}")
        )
    target, classes, offset = moments(y, p / total, loss)
    used = p > 0
    X, p, target = X[used], p[used] / p[used].sum(), target[used]
    group = groups(codes(X))
    _, first = np.unique(group, return_index=True)
    mass = np.bincount(group, p)
    joined = np.stack([np.bincount(group, p * column) for column in target.T], axis=1) / mass[:, None]
    return X[first], mass, joined, classes, offset


def moments(y: np.ndarray, p: np.ndarray, loss: str) -> tuple[np.ndarray, np.ndarray | None, float]:
    """Per row: (n, 2) y - E[y] and its square ("squared"), or (n, K) probabilities of classes; the labels in y; E[y].

    Without the shift E[y^2] - E[y]^2 would cancel where y lies far from 0.

    Raises:
        TypeError: for numbers that are not real.
        ValueError: for other shapes, NaN, numbers whose square overflows, or rows that are no probabilities.
    """
    n = len(p)
    if loss == "squared":
        require_shape("y", y, (n,))
        if y.dtype.kind not in "fiub":
            raise TypeError(message("y", "real numbers for the squared loss", y.dtype))
        values = y.astype(float)
        require_finite("y", values)
        offset = float(p @ values)
        with np.errstate(over="ignore"):
            both = np.stack([values - offset, (values - offset) ** 2], axis=1)
        require_finite("the squares of y", both)
        return both, None, offset
    if y.ndim == 2:
        require_shape("y", y, (n, None))
        rows = y.astype(float)
        require_finite("y", rows)
        if (rows < 0).any() or not np.allclose(rows.sum(axis=1), 1.0, atol=1e-8):
            raise ValueError(message("y", "class probabilities that sum to 1 in every row", "other numbers"))
        return rows, None, 0.0
    require_shape("y", y, (n,))
    if y.dtype.kind == "f":
        require_finite("y", y)
    classes, index = np.unique(y, return_inverse=True)
    return np.eye(len(classes))[index.ravel()], classes, 0.0


class Cells(NamedTuple):
    """The cells of one set S.

    Attributes:
        of_atom: (m,) index of the cell that an atom lies in.
        mass: (c,) probabilities.
        loss: (c,) least expected loss.
        output: (c, 1) mean of y - E[y], or (c, K) class probabilities.
    """

    of_atom: np.ndarray
    mass: np.ndarray
    loss: np.ndarray
    output: np.ndarray

    @classmethod
    def of(cls, coded: np.ndarray, weights: np.ndarray, target: np.ndarray, mask: np.ndarray, loss: str) -> Self:
        """Group the atoms, given by the codes of their values, by their values on `mask`."""
        cell = groups(coded[:, mask])
        mass = np.bincount(cell, weights)
        mean = np.stack([np.bincount(cell, weights * column) for column in target.T], axis=1) / mass[:, None]
        if loss == "squared":
            return cls(cell, mass, np.maximum(mean[:, 1] - mean[:, 0] ** 2, 0.0), mean[:, :1])
        if loss == "log":
            return cls(cell, mass, -(mean * np.log(np.where(mean > 0, mean, 1.0))).sum(axis=1), mean)
        return cls(cell, mass, 1.0 - mean.max(axis=1), mean)
