"""The general model: r clusters of any sizes and outliers (Section 1 of the paper), its certificate and proposals.

The program is max <A - lam J, Z> - eta tr Z, Z psd, Z_ii <= 1, Z_ij >= 0; its target is Z* = sum_k 1_k 1_k^T. Without
outliers Z_ii = 1, and eta drops out. With e(i, C) the neighbours of i in C, the certificate's terms are

    m_i = e(i, C_k) - lam K_k           for i in C_k,     h = min m_i - eta (min m_i without outliers)
    r_i = lam K_l - e(i, C_l)           for i outside C_l: r and c of a pair of clusters, o of an outlier
    S   = D + eta I - A + lam J - B,    B_kl = r c^T / Sig, Sig = sum r = sum c,   S 1_k = 0,

and Z* is the only optimum when h > 0, every r_i > 0 and S is positive on the complement of the indicators. There
mu = lambda_min(diag(m_i or eta) - A + lam J), beta = max ||P r|| ||P c|| / Sig blockwise (P removes the mean), and

    L = min{ h, min r_i, (mu - beta) / 2, g },   g = min (Sig - 4 (||P r|| + ||P c||) - 8) / 9.

One edge moves h, r and g by at most 1; inside a cluster it moves mu by 2 and leaves beta, elsewhere it moves mu by 1
and, while g > 0, beta by at most 0.27: so max(L, 0) moves by at most 1. `eta` is public: with the best eta of each
graph two partitions of one graph may both have large margins, and which one is released would then hang on one edge.
"""

import warnings
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.cluster import KMeans

from private_sbm.certificates import DENSE, least
from private_sbm.graphs import Matrix, dense, greatest_degree, operator

GENERAL_FLOOR = 0.1
"""A certificate counts when every term exceeds this: what SCS's accuracy can tell from nothing."""
MOST_CLUSTERS = 12


class GeneralCertificate(NamedTuple):
    """The terms of L of one partition. Not differentially private.

    Attributes:
        inner: h, least inner surplus (less eta with outliers).
        slack: least r_i over vertices outside a cluster.
        spectral: (mu - beta) / 2; -inf where an earlier term is below the floor.
        size: g, which keeps beta steady; likewise.
    """

    inner: float
    slack: float
    spectral: float
    size: float

    @property
    def margin(self) -> float:
        """L, less the floor below which a certificate does not count."""
        return min(self) - GENERAL_FLOOR


def counts(a: Matrix, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e(i, C_k) as (n, r), and the sizes K (r,)."""
    r = int(labels.max(initial=-1)) + 1
    inside = np.flatnonzero(labels >= 0)
    indicators = np.zeros((len(labels), r))
    indicators[inside, labels[inside]] = 1.0
    return np.asarray(a @ indicators), np.bincount(labels[inside], minlength=r).astype(float)


def general_certificate(a: Matrix, lam: float, labels: np.ndarray, eta: float | None) -> GeneralCertificate:
    """The terms of the margin of a partition (equations above; not differentially private).

    Args:
        a: (n, n) symmetric adjacency, entries 0 and 1, zero diagonal.
        lam: penalty between q and p.
        labels: (n,) cluster numbers 0..r-1, each used, -1 for an outlier.
        eta: public penalty of the trace; None for the model without outliers.

    Raises:
        ValueError: if no vertex is in a cluster, a number is skipped, or there are outliers without an eta.
    """
    labels = np.asarray(labels)
    to, sizes = counts(a, labels)
    if not len(sizes) or not sizes.all():
        raise ValueError("labels must use every number from 0 to r - 1, r >= 1.")
    if eta is None and (labels < 0).any():
        raise ValueError("labels must have no outliers (-1) when eta is None, got some. Pass eta.")
    n, r = to.shape
    member = labels >= 0
    surplus = np.zeros(n)
    surplus[member] = to[member, labels[member]] - lam * sizes[labels[member]]
    inner = float(surplus[member].min()) - (eta or 0.0)
    outside = lam * sizes - to
    foreign = labels[:, None] != np.arange(r)
    slack = float(outside[foreign].min()) if foreign.any() else np.inf
    if min(inner, slack) <= GENERAL_FLOOR:  # no need for the dearer terms
        return GeneralCertificate(inner, slack, -np.inf, -np.inf)
    beta, size = _pairs(outside, labels, r)
    if size <= GENERAL_FLOOR:
        return GeneralCertificate(inner, slack, -np.inf, size)
    diagonal = np.where(member, surplus, 0.0 if eta is None else eta)
    return GeneralCertificate(inner, slack, (_complement_least(a, lam, labels, sizes, diagonal) - beta) / 2, size)


def _pairs(outside: np.ndarray, labels: np.ndarray, r: int) -> tuple[float, float]:
    """The norm beta of all centred blocks together, and g.

    B = U M U^T for the columns P r_kl of U, which are not orthogonal within a cluster, has the eigenvalues of U^T U M.
    """
    if r < 2:
        return 0.0, np.inf
    centred, totals = np.zeros_like(outside), np.zeros((r, r))
    for k in range(r):
        towards = outside[labels == k]
        totals[k] = towards.sum(axis=0)
        centred[labels == k] = towards - towards.mean(axis=0)
        centred[labels == k, k] = 0.0
    norms = np.array([np.linalg.norm(centred[labels == k], axis=0) for k in range(r)])
    pairs = ~np.eye(r, dtype=bool)
    size = float(((totals - 4 * (norms + norms.T) - 8) / 9)[pairs].min())
    if size <= GENERAL_FLOOR:
        return np.inf, size
    inverse = np.where(pairs, 1.0 / np.where(pairs, totals, 1.0), 0.0)
    return _coupling(centred, inverse, labels, r), size


def _coupling(centred: np.ndarray, inverse: np.ndarray, labels: np.ndarray, r: int) -> float:
    """||B||: from the small matrix U^T U M, or by Lanczos where that has more than 20^2 rows."""
    if r <= 20:
        gram, coupling = np.zeros((r * r, r * r)), np.zeros((r * r, r * r))
        for k in range(r):
            block = centred[labels == k]
            gram[k * r : (k + 1) * r, k * r : (k + 1) * r] = block.T @ block
            for far in range(r):
                coupling[k * r + far, far * r + k] = inverse[k, far]
        return float(np.abs(np.linalg.eigvals(gram @ coupling)).max())
    inside = np.flatnonzero(labels >= 0)
    own, rows = labels[inside], centred[inside]
    indicators = sparse.csr_array((np.ones(len(own)), (own, np.arange(len(own)))), shape=(r, len(own)))

    def apply(x: np.ndarray) -> np.ndarray:
        sums = (indicators @ (rows * x[:, None])).T * inverse  # [k, l]: (P c_lk)^T x_l / Sig
        return np.einsum("il,il->i", rows, sums[own])

    bound = float((rows**2).sum() * inverse.max())
    return max(-least(operator(len(own), lambda x, sign=sign: sign * apply(x)), bound)[0] for sign in (1.0, -1.0))


def _complement_least(a: Matrix, lam: float, labels: np.ndarray, sizes: np.ndarray, diagonal: np.ndarray) -> float:
    """mu: least eigenvalue of diag - A + lam J where the sums over every cluster vanish (inf if nothing is left)."""
    n, r = len(labels), len(sizes)
    if n == r:
        return np.inf
    q = np.zeros((n, r))
    inside = np.flatnonzero(labels >= 0)
    q[inside, labels[inside]] = 1 / np.sqrt(sizes[labels[inside]])
    lift = float(np.abs(diagonal).max()) + greatest_degree(a) + lam * n + 1.0
    if n <= DENSE:
        whole = np.diag(diagonal) - dense(a) + lam
        half = whole - q @ (q.T @ whole)
        return least(half - (half @ q) @ q.T + lift * (q @ q.T), lift)[0]

    def apply(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        along = q.T @ x
        x = x - q @ along
        y = diagonal * x - a @ x + lam * x.sum()
        return y - q @ (q.T @ y) + lift * (q @ along)

    return least(operator(n, apply), lift)[0]


# ---- proposals


def canonical_clusters(labels: np.ndarray) -> np.ndarray:
    """Clusters numbered by their first vertex; outliers stay -1."""
    names: dict[int, int] = {}
    return np.array([-1 if c < 0 else names.setdefault(int(c), len(names)) for c in labels], dtype=np.int64)


def greedy(a: Matrix, lam: float, labels: np.ndarray, eta: float | None, rounds: int = 30) -> np.ndarray:
    """Likelihood moves: each vertex goes where e(i, C) - lam |C less i| is greatest, or out where none exceeds eta."""
    labels = canonical_clusters(labels)
    for _ in range(rounds):
        if labels.max(initial=-1) < 0:
            break
        to, sizes = counts(a, labels)
        own = labels[:, None] == np.arange(len(sizes))
        gain = to - lam * (sizes - own)
        new = gain.argmax(axis=1)
        if eta is not None:
            new = np.where(gain.max(axis=1) > eta / 2, new, -1)
        new = canonical_clusters(new)
        if np.array_equal(new, labels):
            break
        labels = new
    return labels


def proposals(a: Matrix, lam: float, eta: float | None) -> Iterator[np.ndarray]:
    """Partitions worth a certificate, likely ones first, none twice: spectral embeddings rounded, each also improved.

    For every number r of eigenvectors, in the order of the gaps below them: by pivoted QR (Damle, Minden, Ying 2019);
    then components; then by k-means.
    """
    seen: set[bytes] = set()
    for labels in _spectral(a, lam, eta):
        for better in (greedy(a, lam, labels, eta), canonical_clusters(labels)):
            key = better.tobytes()
            if better.max(initial=-1) >= 0 and key not in seen:
                seen.add(key)
                yield better


def _spectral(a: Matrix, lam: float, eta: float | None) -> Iterator[np.ndarray]:
    n = a.shape[0]
    values, vectors = _leading(a, lam, min(MOST_CLUSTERS + 1, n))
    positive = int((values[: min(MOST_CLUSTERS, n - 1)] > 0).sum())
    gaps = values[:positive] - np.append(values[1:], 0.0)[:positive]
    order = (np.argsort(-gaps, kind="stable") + 1).tolist()
    for r in order:
        yield _pivoted(vectors[:, :r])
    yield np.zeros(n, dtype=np.int64)
    if sparse.issparse(a):
        yield sparse.csgraph.connected_components(a, directed=False)[1].astype(np.int64)
    for r in order:
        points = vectors[:, :r] * np.sqrt(values[:r])
        for groups in sorted({r, r + 1, r + 2 if eta is not None else r + 1}):
            if groups <= n and len(np.unique(points.round(9), axis=0)) >= groups:
                yield _grouped(points, groups)


def _pivoted(vectors: np.ndarray) -> np.ndarray:
    """Clusters from r eigenvectors (n, r): r rows chosen by pivoted QR span axes, each row goes to its largest one."""
    r = vectors.shape[1]
    pivots = linalg.qr(vectors.T, pivoting=True, mode="economic")[2][:r]
    left, _, right = np.linalg.svd(vectors[pivots].T)
    return np.abs(vectors @ left @ right).argmax(axis=1).astype(np.int64)


def _grouped(points: np.ndarray, groups: int) -> np.ndarray:
    """k-means; that points coincide is nobody's business, so its warnings are dropped."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return KMeans(groups, n_init=3, random_state=0).fit_predict(points).astype(np.int64)


def _leading(a: Matrix, lam: float, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k greatest eigenvalues of A - lam J in falling order, and their vectors."""
    n = a.shape[0]
    if n <= DENSE:
        values, vectors = np.linalg.eigh(dense(a) - lam)
    else:
        moved = operator(n, lambda x: a @ x.ravel() - lam * x.sum())
        try:
            values, vectors = eigsh(moved, k=k, which="LA", v0=np.cos(np.arange(n, dtype=float) ** 2), tol=1e-4)
        except ArpackNoConvergence as error:  # proposals make do with what converged
            values, vectors = error.eigenvalues, error.eigenvectors
    order = np.argsort(values)[::-1][:k]
    return values[order], vectors[:, order]


class GeneralSolution(NamedTuple):
    """Of the general program. Not differentially private.

    Attributes:
        labels: (n,) the certified partition, -1 for outliers, or None.
        certificate: its terms, or None.
        decided: whether absence is proved (True wherever a partition is certified).
    """

    labels: np.ndarray | None
    certificate: GeneralCertificate | None
    decided: bool


def certified(a: Matrix, lam: float, eta: float | None, candidates: Iterable[np.ndarray]) -> GeneralSolution | None:
    """The first candidate with a positive margin: being unique, it is the only one."""
    for labels in candidates:
        if eta is None and (labels < 0).any():
            continue
        found = general_certificate(a, lam, labels, eta)
        if found.margin > 0:
            return GeneralSolution(canonical_clusters(labels), found, True)
    return None


def solve_general(a: Matrix, lam: float, eta: float | None, exact_limit: int = 300) -> GeneralSolution:
    """The certified optimum of the general program; up to `exact_limit` vertices the program itself decides absence.

    Above, or without the extra `exact`, absence is not proved (`decided` is False).
    """
    n = a.shape[0]
    found = certified(a, lam, eta, proposals(a, lam, eta))
    if found is not None:
        return found
    if n > exact_limit:
        return GeneralSolution(None, None, False)
    from private_sbm import exact

    if not exact.available():
        return GeneralSolution(None, None, False)
    return exact.general(a, lam, eta)
