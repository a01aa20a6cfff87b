"""What the paper compares with (Section 1 there): non-private recovery, and other private mechanisms.

Private ones keep the contract of `PrivateSBM`: `labels_` and `result_` are all that may be shown.
"""

from math import log
from typing import Self

import networkx as nx
import numpy as np
from offprints.checks import require_choice, require_range
from scipy.sparse.linalg import ArpackNoConvergence, eigsh
from sklearn.base import ClusterMixin

from private_sbm import solvers
from private_sbm.certificates import DENSE, FLOOR, least
from private_sbm.estimator import Evidence, PrivateSBM, Release
from private_sbm.graphs import Matrix, adjacency, dense, greatest_degree, operator
from private_sbm.mechanism import require_eps
from private_sbm.shown import Discreet
from private_sbm.thresholds import tau


def sdp_recover(X: object, lam: float, solver: str = "staircase", signed: bool = False) -> np.ndarray | None:
    """The certified optimum of max <A - lam J, Y>, Y psd, Y_ii = 1, without privacy; None if it is no partition.

    Args:
        X: graph, as in `PrivateSBM.fit`.
        lam: penalty; 0 for signed graphs.
        solver: see `solvers.solve`.
        signed: whether edges carry signs.

    Returns:
        (n,) labels in {0, 1}, vertex 0 in community 0.

    Raises:
        TypeError, ValueError: if X is no undirected graph, or lam is negative.
    """
    require_range("lam", lam, low=0)
    a, _ = adjacency(X, signed=signed)
    found = solvers.solve(a, lam, solver) if a.shape[0] >= 3 else None
    return None if found is None or found.s is None else solvers.canonical(found.s)


def spectral_recover(X: object, lam: float, refine: bool = True, signed: bool = False) -> np.ndarray:
    """Signs of the leading eigenvector of A - lam J, refined by majority moves; without privacy.

    Returns:
        (n,) labels in {0, 1}.

    Raises:
        TypeError, ValueError: as `sdp_recover`; fewer than 2 vertices.
    """
    require_range("lam", lam, low=0)
    a, _ = adjacency(X, signed=signed)
    require_range("number of vertices", a.shape[0], low=2)
    s = np.where(leading_vector(a, lam) >= 0, 1.0, -1.0)
    return solvers.canonical(solvers.improved(a, lam, s) if refine else s)


def mle_recover(X: object, lam: float, signed: bool = False) -> np.ndarray:
    """The maximiser of s^T (A - lam J) s by enumeration (n <= 14), without privacy: the likelihood at tau's lam.

    Raises:
        TypeError, ValueError: as `spectral_recover`; more than 14 vertices.
    """
    a, _ = adjacency(X, signed=signed)
    require_range("number of vertices", a.shape[0], low=2, high=solvers.ENUMERABLE)
    signs = _all_signs(a.shape[0])
    return solvers.canonical(signs[_objective(a.toarray(), lam, signs).argmax()])


def louvain_recover(X: object, seed: int = 0) -> np.ndarray:
    """Louvain communities by networkx, numbered by first vertex: a rough reference without privacy or model."""
    a, _ = adjacency(X)
    found = nx.community.louvain_communities(nx.from_scipy_sparse_array(a), seed=seed)
    labels = np.empty(a.shape[0], dtype=np.int64)
    for number, members in enumerate(sorted(found, key=min)):
        labels[list(members)] = number
    return labels


def leading_vector(a: Matrix, lam: float) -> np.ndarray:
    """Unit eigenvector of the greatest eigenvalue of A - lam J.

    Raises:
        RuntimeError: if the iteration does not converge.
    """
    n = a.shape[0]
    if n <= DENSE:
        return np.linalg.eigh(dense(a) - lam)[1][:, -1]
    moved = operator(n, lambda x: a @ x.ravel() - lam * x.sum())
    start = np.cos(np.arange(n, dtype=float) ** 2)
    try:
        return eigsh(moved, k=1, which="LA", v0=start, tol=1e-5)[1][:, 0]
    except ArpackNoConvergence:  # its message would hold eigenvalues of a secret graph
        raise RuntimeError("the leading eigenvector did not converge.") from None


def _all_signs(n: int) -> np.ndarray:
    bits = (np.arange(2 ** (n - 1))[:, None] >> np.arange(n - 1)) & 1
    return np.hstack([np.ones((len(bits), 1)), 1.0 - 2.0 * bits])


def _objective(a: np.ndarray, lam: float, signs: np.ndarray) -> np.ndarray:
    return np.einsum("si,ij,sj->s", signs, a, signs) - lam * signs.sum(axis=1) ** 2


class _Perturbed(ClusterMixin, Discreet):
    """Noise on every pair first, then anything: labels always come out, and may be wrong."""

    result_: Release

    def _solved(self, noisy: Matrix, lam: float, solver: str) -> np.ndarray:
        require_choice("solver", solver, ("sdp", "spectral"))
        if solver == "sdp":
            found = solvers.solve(noisy, lam, "power")
            if found.s is not None:
                return solvers.canonical(found.s)
        s = np.where(leading_vector(noisy, lam) >= 0, 1.0, -1.0)
        return solvers.canonical(solvers.improved(noisy, lam, s))

    @property
    def released(self) -> bool:
        """Whether there are labels: `result_.released`."""
        return self.result_.released


class RandomizedResponseSBM(_Perturbed):
    """Edge-local baseline: every pair is flipped with probability f = 1 / (1 + e^eps), then solved; (eps, 0)-private.

    The flipped graph is a block model with p' = p (1 - f) + (1 - p) f, and so q'; it is dense, so memory is O(n^2).

    Args:
        eps: of the release of the whole flipped graph; useful from about ln n.
        model: "asymmetric", or "censored": an entry keeps its value of -1, 0, 1 with probability e^eps / (2 + e^eps).
        a: n p / ln n, with b for lam = tau of the flipped densities; else lam is the flipped density.
        b: n q / ln n.
        solver: "sdp" or "spectral" (what the program falls back on when it is not certified).
        random_state: None draws from the operating system; a seed is for experiments.

    Attributes:
        labels_: (n,), never None for n >= 3.
        result_: a `Release`.

    Raises:
        TypeError, ValueError: from `fit`: eps <= 0, an unknown model or solver, not 0 < b < a, X no graph.
    """

    def __init__(
        self, eps: float = 1.0, model: str = "asymmetric", a: float | None = None, b: float | None = None,
        solver: str = "sdp", random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.eps = eps
        self.model = model
        self.a = a
        self.b = b
        self.solver = solver
        self.random_state = random_state

    def fit(self, X: object, y: object = None, *, num_nodes: int | None = None) -> Self:
        """Flip, then solve."""
        require_eps(self.eps)
        require_choice("model", self.model, ("asymmetric", "censored"))
        require_choice("solver", self.solver, ("sdp", "spectral"))
        if (self.a is None) != (self.b is None):
            raise ValueError("a and b must be given together, or neither, got one of them.")
        if self.a is not None and self.b is not None:
            require_range("b", self.b, low=0, low_open=True)
            require_range("a", self.a, low=self.b, low_open=True, because="b")
        a, _ = adjacency(X, signed=self.model == "censored", num_nodes=num_nodes)
        n, labels = a.shape[0], None
        if n >= 3:
            noisy = self._flipped(a.toarray())
            labels = self._solved(noisy, self._penalty(noisy), self.solver)
        self.labels_, self.n_features_in_ = labels, n
        self.result_ = Release(labels is not None, labels, self.eps, 0.0, "proved")
        return self

    def _flipped(self, a: np.ndarray) -> np.ndarray:
        gen = np.random.default_rng(self.random_state)
        n = len(a)
        upper = np.triu_indices(n, 1)
        values = a[upper]
        if self.model == "asymmetric":
            flip = gen.random(len(values)) < 1 / (1 + np.exp(min(self.eps, 700.0)))
            values = np.where(flip, 1.0 - values, values)
        else:
            keep = gen.random(len(values)) < 1 / (1 + 2 * np.exp(-self.eps))
            others = (values + 2 + gen.integers(0, 2, len(values))) % 3 - 1  # one of the two other entries
            values = np.where(keep, values, others)
        noisy = np.zeros((n, n))
        noisy[upper] = values
        return noisy + noisy.T

    def _penalty(self, noisy: np.ndarray) -> float:
        if self.model == "censored":
            return 0.0
        n = len(noisy)
        if self.a is None or self.b is None:
            return float(noisy.sum() / (n * (n - 1)))
        f = 1 / (1 + np.exp(min(self.eps, 700.0)))
        p, q = (x * log(n) / n * (1 - 2 * f) + f for x in (self.a, self.b))
        return tau(p, q)


class SpectralLaplaceSBM(_Perturbed):
    """Symmetric Laplace noise of 1 / eps on every entry of A, then the leading eigenvector; (eps, 0)-private.

    Args:
        eps: of the release.
        lam: public penalty; None: the mean of the noisy entries.
        random_state: None draws from the operating system; a seed is for experiments.

    Attributes:
        labels_: (n,), never None for n >= 3.
        result_: a `Release`.

    Raises:
        TypeError, ValueError: from `fit`: eps <= 0, lam < 0, X no graph.
    """

    def __init__(self, eps: float = 1.0, lam: float | None = None, random_state: int | None = None) -> None:
        self.eps = eps
        self.lam = lam
        self.random_state = random_state

    def fit(self, X: object, y: object = None, *, num_nodes: int | None = None) -> Self:
        """Add noise, take signs, refine on the noisy matrix."""
        require_eps(self.eps)
        if self.lam is not None:
            require_range("lam", self.lam, low=0)
        a, _ = adjacency(X, num_nodes=num_nodes)
        n, labels = a.shape[0], None
        if n >= 3:
            upper = np.triu_indices(n, 1)
            noisy = np.zeros((n, n))
            gen = np.random.default_rng(self.random_state)
            noisy[upper] = a.toarray()[upper] + gen.laplace(0.0, 1 / self.eps, len(upper[0]))
            noisy = noisy + noisy.T
            lam = float(noisy.sum() / (n * (n - 1))) if self.lam is None else self.lam
            labels = self._solved(noisy, lam, "spectral")
        self.labels_, self.n_features_in_ = labels, n
        self.result_ = Release(labels is not None, labels, self.eps, 0.0, "proved")
        return self


class MLEStability(PrivateSBM):
    """The stability mechanism around the likelihood (Section 1 of the paper: earlier work, not polynomial): n <= 14.

    value(s) = s^T (A - lam J) s; one edge changes the difference of two values by at most 4 (a label flip by 8). So
    L = (best - second best value) / 4 bounds the number of changes to another optimum; it moves by at most 1, and is at
    most 1 where a neighbour has another optimum.
    Takes the arguments of `PrivateSBM` (asymmetric and censored model).
    """

    def _validate(self) -> None:
        super()._validate()
        require_choice("model", self.model, ("asymmetric", "censored"))

    def _validate_size(self, n: int) -> None:
        super()._validate_size(n)
        require_range("number of vertices", n, low=0, high=solvers.ENUMERABLE)

    def _solved(self, a: Matrix, lam: float, eta: float | None) -> Evidence:
        """The optimum and its distance to another."""
        signs = _all_signs(a.shape[0])
        values = _objective(a.toarray(), lam, signs)
        order = np.argsort(-values)
        reach = 8.0 if self.neighbor == "relabel" else 4.0  # what one step changes of value(s) - value(t), at most
        gap = float(values[order[0]] - values[order[1]])
        if gap <= 1e-9:
            return Evidence(0.0, None, True, lam, None)
        return Evidence(gap / reach, solvers.canonical(signs[order[0]]), True, lam, None)

    def guarantee(self, n: int) -> str:
        """Enumeration is complete."""
        return "proved"


class ConcentrationSBM(PrivateSBM):
    """The distance bound by concentration (Section 1 of the paper): balanced communities, lam = (p + q) / 2.

    L_conc = max(0, (min_i d_i - ||A - E_s A|| + p) / 2), E_s A the expected adjacency of the partition s. It is at most
    the certificate's margin, and 1-Lipschitz: a flip moves d by 1 and the norm by 1. Takes the arguments of
    `PrivateSBM` (asymmetric model, a and b given).
    """

    def _validate(self) -> None:
        require_choice("model", self.model, ("asymmetric",))
        if self.a is None or self.b is None:
            raise ValueError("a and b must be given: the bound compares with the expected adjacency.")
        if self.lam != "tau":
            raise ValueError(f"lam must be left alone: it is (p + q) / 2 here, got {self.lam!r}.")
        super()._validate()

    def _penalties(self, graph: Matrix, below: object) -> tuple[float, float | None]:
        p, q = self._densities(graph.shape[0])
        return (p + q) / 2, None

    def _densities(self, n: int) -> tuple[float, float]:
        return float(self.a or 0.0) * log(n) / n, float(self.b or 0.0) * log(n) / n

    def _solved(self, a: Matrix, lam: float, eta: float | None) -> Evidence:
        """The certified partition with the bound by concentration."""
        found = super()._solved(a, lam, eta)
        if found.labels is None:
            return found
        bound = concentration_margin(a, 1.0 - 2.0 * found.labels, *self._densities(a.shape[0]))
        return found._replace(margin=max(0.0, bound - FLOOR / 2))


def concentration_margin(a: Matrix, s: np.ndarray, p: float, q: float) -> float:
    """(min_i d_i - ||A - E_s A|| + p) / 2 with lam = (p + q) / 2: at most lam_2 / 2, possibly negative."""
    n = len(s)
    lam, half = (p + q) / 2, (p - q) / 2
    d = s * (a @ s) - lam * s * s.sum()

    def apply(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        return a @ x - lam * x.sum() - half * s * (s @ x) + p * x  # E_s A has zero diagonal

    if n <= DENSE:
        norm = float(np.abs(np.linalg.eigvalsh(np.column_stack([apply(e) for e in np.eye(n)]))).max())
    else:
        bound = greatest_degree(a) + (lam + half) * n + p
        norm = max(-least(operator(n, lambda x, sign=sign: sign * apply(x)), bound)[0] for sign in (1.0, -1.0))
    return (float(d.min()) - norm + p) / 2
