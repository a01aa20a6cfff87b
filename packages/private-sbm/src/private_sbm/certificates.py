"""Dual certificates: a partition that passes is the only optimum, and its least eigenvalue bounds the way to another.

Two communities (asymmetric and censored model: Section 1 of the paper). For s in {-1, 1}^n,

    d_i = s_i (A s)_i - lam s_i (1^T s),   S(A, s) = diag(d) - A + lam J,   S s = 0.

If lam_2(S), the least eigenvalue on the complement of s, is positive, then s s^T is the only optimum of
max <A - lam J, Y>, Y psd, Y_ii = 1. Changing one entry {i, j} of A by h changes S by h s_i s_j v v^T with
v = e_i - s_i s_j e_j, so lam_2 by at most 2 |h|.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import ArpackNoConvergence, eigsh

from private_sbm.graphs import Matrix, dense, greatest_degree, operator

FLOOR = 1e-3
"""A certificate counts when lam_2 exceeds this: what makes the solvers' proofs of absence finite."""
ROUNDING = 1e-6
"""Bound on the numerical error of a margin that the mechanism allows for."""
DENSE = 400
"""Up to this many vertices eigenvalues come from dense matrices."""


class Certificate(NamedTuple):
    """Of one partition in two parts. Not differentially private.

    Attributes:
        lam2: least eigenvalue of S on the complement of s; positive: s is the only optimum.
        d: (n,) the diagonal of the dual matrix.
        vec: (n,) the eigenvector: flips along its large entries destroy the certificate soonest.
    """

    lam2: float
    d: np.ndarray
    vec: np.ndarray


def dual_diagonal(a: Matrix, lam: float, s: np.ndarray) -> np.ndarray:
    """The diagonal d (n,): s_i (A s)_i - lam s_i (1^T s)."""
    return s * (a @ s) - lam * s * s.sum()


def least(operator: Matrix, scale: float, tol: float = 1e-9) -> tuple[float, np.ndarray]:
    """Least eigenvalue of a symmetric matrix, lowered by its residual, and its eigenvector; `scale` bounds the norm.

    Where Lanczos iterations do not converge, -scale: a lower bound, so nothing is certified.
    """
    if isinstance(operator, np.ndarray):
        small = len(operator) <= 64  # where LAPACK's overhead counts
        found = np.linalg.eigh(operator) if small else linalg.eigh(operator, subset_by_index=[0, 0])
        return float(found[0][0]), np.asarray(found[1])[:, 0]
    n = max(operator.shape)
    start = np.cos(np.arange(n, dtype=float) ** 2)  # deterministic: equal graphs have equal margins
    for lanczos in (40, 120):
        try:
            values, vectors = eigsh(operator, k=1, which="SA", v0=start, tol=tol, ncv=min(n - 1, lanczos))
        except ArpackNoConvergence:  # its message would hold eigenvalues of a secret graph
            continue
        break
    else:
        return -scale, start / np.linalg.norm(start)
    vector = vectors[:, 0]
    residual = float(np.linalg.norm(operator @ vector - values[0] * vector))
    return float(values[0]) - min(residual, scale), vector


def certificate(a: Matrix, lam: float, s: np.ndarray) -> Certificate:
    """The certificate of a partition (equations above; not differentially private).

    Args:
        a: (n, n) symmetric adjacency, sparse or dense, entries 0 / 1 (or -1, 0, 1), zero diagonal.
        lam: penalty, 0 in the censored model.
        s: (n,) entries -1 and 1.

    Raises:
        ValueError: if s has another length or other entries.
    """
    s = np.asarray(s, dtype=float)
    n = a.shape[0]
    if s.shape != (n,) or not np.all(np.abs(s) == 1):
        raise ValueError(f"s must be {n} entries of -1 or 1, one for each vertex, got shape {s.shape}.")
    d = dual_diagonal(a, lam, s)
    lift = float(np.abs(d).max(initial=0.0)) + greatest_degree(a) + lam * n + 1.0
    if n <= DENSE:
        entries = dense(a)
        value, vector = least(np.diag(d) - entries + lam + (lift / n) * np.outer(s, s), lift)
        return Certificate(value, d, vector)

    def apply(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        along = (s @ x) / n
        x = x - along * s
        y = d * x - a @ x + lam * x.sum()
        return y - ((s @ y) / n) * s + lift * along * s

    value, vector = least(operator(n, apply), lift)
    return Certificate(value, d, vector)


def hopeless(a: Matrix, lam: float, s: np.ndarray) -> bool:
    """Whether lam_2 cannot exceed the floor: e_i off s has Rayleigh quotient (d_i + lam) n / (n - 1)."""
    n = len(s)
    return (float(dual_diagonal(a, lam, s).min()) + lam) * n / (n - 1) <= FLOOR


def to_margin(lam2: float, step: float) -> float:
    """L = (lam_2 - floor) / step, at least 0; `step` is how much one neighbouring step may move lam_2 (2, or 4)."""
    return max(0.0, (lam2 - FLOOR) / step)
