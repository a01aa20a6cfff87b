"""The certificates and margins written out literally, for small graphs: slow and obvious, every matrix dense.

The three models of the paper (Section 1 there), with the dual certificate as distance bound.
"""

from itertools import product
from math import exp, log

import numpy as np


def dual_matrix(a: np.ndarray, lam: float, s: np.ndarray) -> np.ndarray:
    """S = diag(d) - A + lam J with d_i = s_i (A s)_i - lam s_i (1^T s)."""
    n = len(s)
    d = np.array([s[i] * sum(a[i, j] * s[j] for j in range(n)) - lam * s[i] * s.sum() for i in range(n)])
    return np.diag(d) - a + lam * np.ones((n, n))


def complement(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the complement of the span of the columns (n, r)."""
    full, _ = np.linalg.qr(np.column_stack([columns, np.eye(len(columns))]))
    basis = full[:, np.linalg.matrix_rank(columns) :]
    return basis


def lam2(a: np.ndarray, lam: float, s: np.ndarray) -> float:
    """The least eigenvalue of S on the complement of s."""
    q = complement(s[:, None].astype(float))
    return float(np.linalg.eigvalsh(q.T @ dual_matrix(a, lam, s) @ q)[0])


def sign_vectors(n: int) -> list[np.ndarray]:
    """All partitions in two parts: s_0 = 1."""
    return [np.array([1, *rest]) for rest in product((1, -1), repeat=n - 1)]


def margin(a: np.ndarray, lam: float) -> tuple[float, np.ndarray | None]:
    """Over all s: at most one has lam_2 > 0; the margin is lam_2 / 2, or 0 where none has."""
    best = max(sign_vectors(len(a)), key=lambda s: lam2(a, lam, s))
    value = lam2(a, lam, best)
    return (value / 2, best) if value > 0 else (0.0, None)


def general_terms(a: np.ndarray, lam: float, labels: np.ndarray, eta: float | None) -> dict[str, float]:
    """Every term of the margin of the general model; `eta` is None where there are no outliers."""
    n, k = len(a), labels.max() + 1
    members = [np.flatnonzero(labels == c) for c in range(k)]
    to = np.array([[a[i, members[c]].sum() for c in range(k)] for i in range(n)])
    own = np.array([to[i, labels[i]] - lam * len(members[labels[i]]) if labels[i] >= 0 else 0.0 for i in range(n)])
    h = min(own[i] for i in range(n) if labels[i] >= 0)
    slacks = [lam * len(members[c]) - to[i, c] for i in range(n) for c in range(k) if labels[i] != c]
    b, gap = np.zeros((n, n)), np.inf
    for first in range(k):
        for second in range(first + 1, k):
            r = np.array([lam * len(members[second]) - to[i, second] for i in members[first]])
            c = np.array([lam * len(members[first]) - to[j, first] for j in members[second]])
            r0, c0, total = r - r.mean(), c - c.mean(), r.sum()
            gap = min(gap, (total - 4 * (np.linalg.norm(r0) + np.linalg.norm(c0)) - 8) / 9)
            if total > 0:
                block = np.outer(r0, c0) / total
                b[np.ix_(members[first], members[second])] = block
                b[np.ix_(members[second], members[first])] = block.T
    beta = float(np.abs(np.linalg.eigvalsh(b)).max())
    indicators = np.column_stack([(labels == c).astype(float) for c in range(k)])
    q = complement(indicators)
    diagonal = np.where(labels >= 0, own, 0.0 if eta is None else eta)
    whole = np.diag(diagonal) - a + lam * np.ones((n, n))
    mu = float(np.linalg.eigvalsh(q.T @ whole @ q)[0]) if q.shape[1] else np.inf
    return {
        "h": h if eta is None else h - eta, "mu": (mu - beta) / 2, "slack": min(slacks, default=np.inf), "g": gap,
    }  # fmt: skip


def partitions(n: int, outliers: bool) -> list[np.ndarray]:
    """All ways to put n vertices in clusters, -1 for an outlier; at least one cluster."""
    found = [[]]
    for _ in range(n):
        found = [[*p, c] for p in found for c in range(-1 if outliers else 0, max(p, default=-1) + 2)]
    return [np.array(p) for p in found if max(p) >= 0]


def general_margin(a: np.ndarray, lam: float, eta: float | None) -> tuple[float, np.ndarray | None]:
    """Over all partitions: the margin and its partition, or 0 and None."""
    best, chosen = 0.0, None
    for labels in partitions(len(a), eta is not None):
        value = min(general_terms(a, lam, labels, eta).values())
        if value > best:
            best, chosen = value, labels
    return best, chosen


def discrete_laplace_tail(eps: float, m: int) -> float:
    """P(X >= m) of the law P(X = x) proportional to e^{-eps |x|}, summed term by term."""
    weight = [exp(-eps * abs(x)) for x in range(-2000, 2001)]
    return sum(w for x, w in zip(range(-2000, 2001), weight, strict=True) if x >= m) / sum(weight)


def ch_divergence(rho: float, a: float, b: float) -> float:
    """Greatest of rho (t a + (1-t) b - a^t b^(1-t)) + (1 - rho) (t b + (1-t) a - b^t a^(1-t)) over a grid of t."""
    t = np.linspace(0, 1, 200_001)
    first = t * a + (1 - t) * b - np.exp(t * log(a) + (1 - t) * log(b))
    second = t * b + (1 - t) * a - np.exp(t * log(b) + (1 - t) * log(a))
    return float((rho * first + (1 - rho) * second).max())
