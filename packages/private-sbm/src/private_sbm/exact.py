"""The semidefinite programs handed to SCS (the paper's estimators: Section 1), for graphs of a few hundred vertices.

What comes back is rounded and certified like any proposal. Absence counts as proved by the duality gap of the returned
matrix, after it was made feasible. Needs the extra `exact` (cvxpy and scs).
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from private_sbm.certificates import FLOOR, certificate
from private_sbm.graphs import Matrix, dense

if TYPE_CHECKING:
    import cvxpy as cp

    from private_sbm.general import GeneralSolution
    from private_sbm.solvers import Solution

ACCURACY = 1e-7
STAGES = (1e-3, 1e-5, 1e-6, ACCURACY)
"""Accuracies at which SCS is asked about the general program, each from where the one before ended."""


class MissingExtraError(ImportError):
    """cvxpy and scs are not installed."""


def available() -> bool:
    """Whether the extra `exact` is installed."""
    return find_spec("cvxpy") is not None and find_spec("scs") is not None


def elliptope_matrix(a: Matrix, lam: float, accuracy: float = ACCURACY) -> np.ndarray:
    """Y (n, n): SCS's solution of max <A - lam J, Y>, Y psd, Y_ii = 1.

    Raises:
        MissingExtraError: without cvxpy and scs.
    """
    cp = _cvxpy()
    c = dense(a) - lam
    y = cp.Variable(c.shape, PSD=True)
    _run(cp.Problem(cp.Maximize(cp.trace(c @ y)), [cp.diag(y) == 1]), accuracy)
    return np.eye(len(c)) if y.value is None else np.asarray(y.value)


def general_matrix(
    a: Matrix, lam: float, eta: float | None, accuracy: float = ACCURACY
) -> tuple[np.ndarray, np.ndarray]:
    """Z (n, n): SCS's solution of max <A - lam J, Z> - eta tr Z, Z psd, 0 <= Z, Z_ii <= 1 (= 1 when eta is None).

    Returns:
        Z and the multipliers B >= 0 of Z >= 0.

    Raises:
        MissingExtraError: without cvxpy and scs.
    """
    return next(general_matrices(a, lam, eta, (accuracy,)))


def general_matrices(
    a: Matrix, lam: float, eta: float | None, stages: Sequence[float] = STAGES
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """As `general_matrix`, at one accuracy after the other; a finer solve starts from the coarser solution.

    Raises:
        MissingExtraError: without cvxpy and scs.
    """
    cp = _cvxpy()
    c = dense(a) - lam
    z = cp.Variable(c.shape, PSD=True)
    nonnegative = z >= 0
    rules = [cp.diag(z) == 1 if eta is None else cp.diag(z) <= 1, nonnegative]
    problem = cp.Problem(cp.Maximize(cp.trace(c @ z) - (eta or 0.0) * cp.trace(z)), rules)
    for accuracy in stages:
        _run(problem, accuracy)
        if z.value is None:
            yield np.eye(len(c)), np.zeros_like(c)
        else:
            yield np.asarray(z.value), np.asarray(nonnegative.dual_value)


def _run(problem: "cp.Problem", accuracy: float) -> None:
    """SCS in silence: whether it struggled depends on the graph, so neither warning nor error may tell.

    Without a solution the variables stay empty, or as the solve before left them; the callers then hold a feasible
    point, whose gap decides nothing.
    """
    cp = _cvxpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(cp.error.SolverError):
            problem.solve(solver=cp.SCS, eps=accuracy, max_iters=100_000, ignore_dpp=True, warm_start=True)


def elliptope(a: Matrix, lam: float) -> "Solution":
    """The certified optimum by SCS, or a proof of absence as in `solvers` (for V the square root of Y)."""
    from private_sbm.solvers import Solution, improved

    y = elliptope_matrix(a, lam)
    values, vectors = np.linalg.eigh(y)
    s = np.where(vectors[:, -1] >= 0, 1.0, -1.0)
    for proposal in (s, improved(a, lam, s)):
        found = certificate(a, lam, proposal)
        if found.lam2 > FLOOR:
            return Solution(proposal, found, True, None)
    n, c = len(y), dense(a) - lam
    v = vectors * np.sqrt(np.maximum(values, 0.0))
    v = v / np.maximum(np.linalg.norm(v, axis=1, keepdims=True), 1e-300)
    feasible = v @ v.T
    dual = np.sum((c @ v) * v, axis=1)
    gap = n * max(0.0, -float(np.linalg.eigvalsh(np.diag(dual) - c)[0])) + 1e-12 * n
    spread = n - float(np.linalg.eigvalsh(feasible)[-1])
    return Solution(None, None, gap / FLOOR <= 0.25 or spread > gap / FLOOR, None)


def general(a: Matrix, lam: float, eta: float | None) -> "GeneralSolution":
    """The certified partition by SCS, or a proof of absence: coarse solutions first, for they decide most graphs.

    Let g be the distance of a feasible Z from the optimum and f the floor of a margin. A partition whose margin is
    above f has sum (m_i - eta) (1 - Z_ii) + <S, Z> + <B, Z> <= g, with S >= 2 f on the complement of its indicators.
    Either is a disproof, t = g / f:

    - Z_ii >= 1 - t on clusters, ||Z_i - Z_j||^2 <= t inside one, Z_ii <= t / 2 on outliers: every entry of Z lies
      within `reach` = 4 sqrt(t) + 1.5 t of 0 or 1, as the partition says. An entry further off disproves it, and when
      the reach is below 1/2, rounding at 1/2 would have found it.
    - An outlier adds 2 f Z_ii to the sum; a member, whose cluster has K >= 2 vertices, f (1 - Z_ii) and, of <S, Z>,
      (f / K) sum_j ||Z_i - Z_j||^2 >= (f / 2) min_j ||Z_i - Z_j||^2. If the lesser of both, summed over the vertices,
      exceeds g, no partition has it.
    """
    from private_sbm.general import GENERAL_FLOOR, GeneralSolution, certified

    for z, b in general_matrices(a, lam, eta):
        found = certified(a, lam, eta, roundings(z, a, lam, eta))
        if found is not None:
            return found
        z = feasible(z, eta)
        t = max(0.0, general_gap(a, lam, eta, z, b)) / GENERAL_FLOOR
        reach = 4 * np.sqrt(t) + 1.5 * t
        if reach < 0.5:
            missed = certified(a, lam, eta, roundings(z, a, lam, eta))
            return missed or GeneralSolution(None, None, True)
        if float(np.minimum(np.abs(z), np.abs(1 - z)).max()) > reach or least_excess(z) > t:
            return GeneralSolution(None, None, True)
    return GeneralSolution(None, None, False)


def least_excess(z: np.ndarray) -> float:
    """The sum over vertices of min(2 Z_ii, 1 - Z_ii + min_j ||Z_i - Z_j||^2 / 2), where Z_ij = <Z_i, Z_j>."""
    own = np.diag(z)
    apart = own[:, None] + own - 2 * z
    np.fill_diagonal(apart, np.inf)
    return float(np.minimum(2 * own, 1 - own + apart.min(axis=1, initial=np.inf) / 2).sum())


def roundings(z: np.ndarray, a: Matrix, lam: float, eta: float | None) -> list[np.ndarray]:
    """Partitions that Z suggests: components of {Z_ij > t}, vertices with Z_ii <= t left out; also improved."""
    from private_sbm.general import canonical_clusters, greedy

    found = []
    for threshold in (0.5, 0.25, 0.75):
        joined = sparse.csr_array(z > threshold)
        labels = sparse.csgraph.connected_components(joined, directed=False)[1].astype(np.int64)
        if eta is not None:
            labels = np.where(np.diag(z) > threshold, labels, -1)
        labels = canonical_clusters(labels)
        found += [labels, greedy(a, lam, labels, eta)]
    return [x for x in found if x.max(initial=-1) >= 0]


def feasible(z: np.ndarray, eta: float | None) -> np.ndarray:
    """A point of the program near Z: psd, nonnegative, diagonal at most 1 (all 1 without outliers)."""
    values, vectors = np.linalg.eigh((z + z.T) / 2)
    z = np.maximum((vectors * np.maximum(values, 0.0)) @ vectors.T, 0.0)
    z = z + max(0.0, -float(np.linalg.eigvalsh(z)[0])) * np.eye(len(z))
    if eta is None:
        root = np.sqrt(np.diag(z))
        return z / np.outer(root, root)
    return z / max(1.0, float(np.diag(z).max()))


def general_gap(a: Matrix, lam: float, eta: float | None, z: np.ndarray, b: np.ndarray) -> float:
    """An upper bound on the optimum (multipliers made feasible by a shift) less the value of a feasible Z."""
    c = dense(a) - lam - (eta or 0.0) * np.eye(len(z))
    b = np.maximum((b + b.T) / 2, 0.0)
    tight = np.diag(z)
    y = np.where(tight > 0.5, ((c + b) @ z).diagonal() / np.maximum(tight, 0.5), 0.0)
    if eta is not None:
        y = np.maximum(y, 0.0)
    lift = max(0.0, -float(np.linalg.eigvalsh(np.diag(y) - c - b)[0]))
    return float(y.sum()) + len(z) * lift - float(np.vdot(c, z)) + 1e-11 * len(z)


def _cvxpy() -> ModuleType:
    try:
        import cvxpy as cp
        import scs  # noqa: F401
    except ImportError as error:
        raise MissingExtraError('the exact solver needs cvxpy and scs: pip install "private-sbm[exact]".') from error
    return cp
