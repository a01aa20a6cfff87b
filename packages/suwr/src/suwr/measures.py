"""How much a selector leaks, exactly, on a finite support (Section 2 of the paper)."""

from typing import NamedTuple

import numpy as np
from offprints.checks import message, require_finite, require_shape

from suwr.cells import codes, groups


class ExactLeakage(NamedTuple):
    """Leakage in nats.

    Attributes:
        feature: L_F = E[log pi(S|x) / pi(S|x_S)]; 0 iff x_S and S say nothing about the hidden features beyond x_S.
        label: L_Y = E KL(p(y|x_S, S) || p(y|x_S)), at most L_F.
        worst_gap: largest |pi(S|x) - pi(S|x_S)|; 0 iff L_F = 0.
        worst_label_gap: largest |p(y|x_S, S) - p(y|x_S)|.
    """

    feature: float
    label: float
    worst_gap: float
    worst_label_gap: float


def exact_leakage(
    X: np.ndarray, p: np.ndarray, p_y_given_x: np.ndarray, p_mask_given_x: np.ndarray, masks: np.ndarray
) -> ExactLeakage:
    """Feature and label leakage of a selector on a finite support.

    There is none, for every distribution of labels, iff pi(S|x) = pi(S|x') wherever x_S = x'_S (Corollary 2.5): then
    p(x_hidden | x_S, S) = pi(S|x) p(x_hidden | x_S) / pi(S|x_S) = p(x_hidden | x_S).

    Args:
        X: (n, d) distinct points.
        p: (n,) their weights, positive sum.
        p_y_given_x: (n, K) class probabilities.
        p_mask_given_x: (n, M) pi(S|x), rows that sum to 1.
        masks: (M, d) bool, distinct.

    Raises:
        TypeError, ValueError: for other shapes, NaN, rows that are no probabilities, or points that stand twice.
    """
    X, p = np.asarray(X), np.asarray(p, dtype=float)
    rows_y, rows_mask = np.asarray(p_y_given_x, dtype=float), np.asarray(p_mask_given_x, dtype=float)
    masks = _checked_masks(masks)
    require_shape("X", X, ("n", masks.shape[1]))
    n = len(X)
    require_shape("p", p, (n,))
    require_shape("p_y_given_x", rows_y, (n, None))
    require_shape("p_mask_given_x", rows_mask, (n, len(masks)))
    require_finite("p", p)
    with np.errstate(over="ignore"):
        total = p.sum()
    if n == 0 or (p < 0).any() or not 0 < total < np.inf:
        raise ValueError(message("p", "non-negative with a positive, finite sum", f"{n} weights, sum {total:g}"))
    for name, rows in (("p_y_given_x", rows_y), ("p_mask_given_x", rows_mask)):
        require_finite(name, rows)
        if (rows < -1e-9).any() or not np.allclose(rows.sum(axis=1), 1.0, atol=1e-5):
            raise ValueError(message(name, "probabilities that sum to 1 in every row", "other numbers"))
    coded = codes(X)
    if len(np.unique(groups(coded))) < n:
        raise ValueError(message("X", "distinct points", "one that stands twice", "Join equal rows and add their p."))
    p = p / total
    feature = label = gap = label_gap = 0.0
    for k, mask in enumerate(masks):
        cell = groups(coded[:, mask])
        mass = np.bincount(cell, p)
        seen = mass > 0
        joint = p * rows_mask[:, k]
        marginal = np.divide(np.bincount(cell, joint), mass, out=np.zeros(len(mass)), where=seen)
        used = joint > 0
        feature += float(joint[used] @ np.log(rows_mask[used, k] / marginal[cell[used]]))
        gap = max(gap, float(np.abs(rows_mask[p > 0, k] - marginal[cell[p > 0]]).max(initial=0.0)))
        weight = marginal * mass
        drawn = weight > 0
        prior = _average(cell, p[:, None] * rows_y, mass)[drawn]
        posterior = _average(cell, joint[:, None] * rows_y, weight)[drawn]
        ratio = np.where(posterior > 0, posterior / np.where(prior > 0, prior, 1.0), 1.0)
        label += float(weight[drawn] @ (posterior * np.log(ratio)).sum(axis=1))
        label_gap = max(label_gap, float(np.abs(posterior - prior).max(initial=0.0)))
    return ExactLeakage(max(feature, 0.0), max(label, 0.0), gap, label_gap)


def _average(cell: np.ndarray, rows: np.ndarray, mass: np.ndarray) -> np.ndarray:
    sums = np.stack([np.bincount(cell, column, len(mass)) for column in rows.T], axis=1)
    return sums / np.where(mass > 0, mass, 1.0)[:, None]


def _checked_masks(masks: np.ndarray) -> np.ndarray:
    masks = np.asarray(masks)
    require_shape("masks", masks, ("M", "d"))
    if masks.dtype != bool:
        raise TypeError(message("masks", "of dtype bool", masks.dtype))
    if len(np.unique(masks, axis=0)) < len(masks):
        raise ValueError(message("masks", "distinct", "one that stands twice"))
    return masks
