"""The private estimator: labels when margin plus noise passes the test, None otherwise (Section 1 of the paper).

Only `labels_` (or None) and what follows from public parameters may be shown. Margins, certificates and whether a
graph was certified are as secret as the edges; they are kept out of repr, pickles, files, warnings and errors.
"""

import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from offprints import checkpoint
from offprints.checks import require_kind
from scipy import sparse
from sklearn.base import ClusterMixin
from sklearn.utils.validation import check_is_fitted

from private_sbm import exact, parameters, solvers
from private_sbm.certificates import to_margin
from private_sbm.general import solve_general
from private_sbm.graphs import Matrix, adjacency
from private_sbm.ledger import PrivacyLedger
from private_sbm.mechanism import integers, release_probability, released
from private_sbm.penalty import balanced_penalty, noise_level, noisy_density, tau_penalty, trace_penalty
from private_sbm.shown import SECRET, Discreet

METHOD = "private-sbm"


class Release(NamedTuple):
    """What may be published.

    Attributes:
        released: whether there are labels.
        labels: (n,) in the order of the graph's nodes, or None. Vertex 0 has label 0; -1 is an outlier.
        eps: what was spent, a noisy density included.
        delta: likewise.
        guarantee: "proved" or "heuristic": whether the solver behind is complete, so that the privacy proof applies.
            It follows from model, solver and number of vertices alone, never from the edges.
    """

    released: bool
    labels: np.ndarray | None
    eps: float
    delta: float
    guarantee: str


class Evidence(NamedTuple):
    """Of one graph: everything before the noise. Not differentially private.

    Attributes:
        margin: L, a lower bound on the number of edge changes to another output; 0 without a certificate.
        labels: (n,) certified labels, or None.
        decided: whether the absence of a certificate is proved.
        lam: penalty.
        eta: trace penalty (general model with outliers), else None.
    """

    margin: float
    labels: np.ndarray | None
    decided: bool
    lam: float
    eta: float | None


class PrivateSBM(ClusterMixin, Discreet):
    """Exact communities under (eps, delta)-edge privacy, for every graph, or a refusal.

    Releases when L + X > T: L the certificate margin (1-Lipschitz in edge changes), X Laplace noise of 1 / eps,
    P(X > T - 1) = delta.

    Args:
        model: "asymmetric" (two communities), "general" (clusters and outliers) or "censored" (signed edges).
        a: n p / ln n inside communities: public, or never used (censored, a given lam, "noisy-density").
        b: n q / ln n across communities.
        lam: "tau", "balanced", "noisy-density", or a number between q and p; 0 in the censored model.
        eps: of the noisy test.
        delta: probability that anything goes.
        neighbor: "edge" (add or remove an edge), or "relabel" (censored: also flip a label, as one step).
        noise: "discrete" (exact, for real releases), "opendp" (the same law, drawn by OpenDP) or "laplace".
        solver: "staircase" (complete), "power" (heuristic), "scs" (extra `exact`), "enumerate" (n <= 14).
        strict: whether to refuse, before looking at the edges, where the guarantee would be heuristic.
        random_state: None draws from the operating system. A seed is for experiments: who knows it sees the margin.
        rho: public size of the smallest community over n, for "balanced" and eta; None: 1/2 (asymmetric), unknown.
        outliers: general model: whether there may be vertices outside all clusters.
        eta: general model with outliers: "auto" or a number.
        eps_density: what "noisy-density" spends on top of eps.
        exact_limit: general model: up to how many vertices SCS decides that there is no certificate.
        partial: must be False: releasing only the certified part of the communities is not private.

    Attributes:
        labels_: (n,) labels in the order of the graph's nodes, or None when refused.
        result_: a `Release`.
        n_features_in_: number of vertices.

    Raises:
        TypeError, ValueError: from `fit`, for parameters or graphs outside what is said here; all problems at once.
    """

    def __init__(
        self, model: str = "asymmetric", a: float | None = None, b: float | None = None, lam: str | float = "tau",
        eps: float = 1.0, delta: float = 1e-6, neighbor: str = "edge", noise: str = "discrete",
        solver: str = "staircase", strict: bool = True, random_state: int | None = None, rho: float | None = None,
        outliers: bool = True, eta: str | float = "auto", eps_density: float = 0.1, exact_limit: int = 300,
        partial: bool = False,
    ) -> None:  # fmt: skip
        self.model = model
        self.a = a
        self.b = b
        self.lam = lam
        self.eps = eps
        self.delta = delta
        self.neighbor = neighbor
        self.noise = noise
        self.solver = solver
        self.strict = strict
        self.random_state = random_state
        self.rho = rho
        self.outliers = outliers
        self.eta = eta
        self.eps_density = eps_density
        self.exact_limit = exact_limit
        self.partial = partial

    def fit(
        self, X: object, y: object = None, *, num_nodes: int | None = None, ledger: PrivacyLedger | None = None
    ) -> Self:
        """Solve, certify, and release by the noisy test.

        Args:
            X: a networkx graph, a symmetric scipy matrix or numpy array, or an `edge_index` (2, E).
            y: ignored.
            num_nodes: number of vertices of an `edge_index`.
            ledger: is charged before the edges are looked at; refuses when its budget does not suffice.

        Raises:
            TypeError, ValueError: see the class.
            BudgetExceededError: from the ledger.
        """
        self._validate()
        if ledger is not None:
            require_kind("ledger", ledger, PrivacyLedger)
        a, _ = adjacency(X, signed=self.model == "censored", num_nodes=num_nodes)
        n = a.shape[0]
        self._validate_size(n)
        if n > 1 and self.delta >= 1 / n:
            warnings.warn(f"delta = {self.delta:g} is at least 1 / n: one vertex may be exposed.", stacklevel=2)
        guarantee, below = self.guarantee(n), integers(self.random_state)
        total = float(self.eps) + (float(self.eps_density) if self._counts_edges() else 0.0)
        if ledger is not None:
            ledger.spend(total, self.delta, f"PrivateSBM, {self.model}, n = {n}")
        self.n_features_in_ = n
        labels, self._unsafe = None, None
        if self.strict and guarantee == "heuristic":
            warnings.warn(
                f"refused: no complete solver for model={self.model!r}, solver={self.solver!r} and n = {n}, so privacy "
                "would not be proved. Lower n, raise exact_limit, install the extra `exact`, or pass strict=False.",
                stacklevel=2,
            )
        elif n >= 3:
            found = self.evidence(a, below)
            self._unsafe = found
            if found.labels is not None and self.noisy_test(found.margin, below):
                labels = found.labels
        self.labels_ = labels
        self.result_ = Release(labels is not None, labels, total, float(self.delta), guarantee)
        return self

    def evidence(self, X: object, below: Callable[[int], int] | None = None) -> Evidence:
        """Margin, labels and penalties of one graph, before any noise. NOT differentially private: never publish it.

        Raises:
            TypeError, ValueError: see the class.
        """
        self._validate()
        a: Matrix = X if isinstance(X, sparse.csr_array) else adjacency(X, signed=self.model == "censored")[0]
        self._validate_size(a.shape[0])
        if a.shape[0] < 3:
            return Evidence(0.0, None, True, 0.0, None)
        return self._solved(a, *self._penalties(a, below or integers(self.random_state)))

    def _solved(self, a: Matrix, lam: float, eta: float | None) -> Evidence:
        """The certified partition at these penalties."""
        if self.model == "general":
            found = solve_general(a, lam, eta, int(self.exact_limit))
            margin = found.certificate.margin if found.certificate is not None else 0.0
            return Evidence(margin, found.labels, found.decided, lam, eta)
        solved = solvers.solve(a, lam, self.solver)
        if solved.s is None or solved.certificate is None:
            return Evidence(0.0, None, solved.decided, lam, None)
        step = 4.0 if self.neighbor == "relabel" else 2.0
        return Evidence(to_margin(solved.certificate.lam2, step), solvers.canonical(solved.s), True, lam, None)

    def release_probability(self, X: object) -> float:
        """Probability that `fit` would release. NOT differentially private: never publish it."""
        found = self.evidence(X)
        return 0.0 if found.labels is None else self.tail(found.margin)

    def tail(self, margin: float) -> float:
        """P(L + X > T) for a certified margin L, in closed form."""
        return release_probability(margin, self.eps, self.delta, self.noise)

    def guarantee(self, n: int) -> str:
        """Give "proved" if the solver decides every graph of n vertices, "heuristic" if it may miss one."""
        if self.model == "general":
            return "proved" if n <= self.exact_limit and exact.available() else "heuristic"
        return "heuristic" if self.solver == "power" else "proved"

    @property
    def released(self) -> bool:
        """Whether labels were released: `result_.released`.

        Raises:
            NotFittedError: before `fit`.
        """
        check_is_fitted(self)
        return self.result_.released

    @property
    def unsafe_diagnostics_(self) -> dict[str, object]:
        """NOT differentially private. Margin, certified labels, penalties and release probability of the last graph.

        One look by anyone but the holder of the graph voids the guarantee. Not part of repr, pickles or saved files.

        Raises:
            AttributeError: before `fit`, after loading, and where the graph was refused unseen.
        """
        found = getattr(self, "_unsafe", None)
        if found is None:
            raise AttributeError("unsafe_diagnostics_ exists only after fit, in the process that saw the graph.")
        chance = 0.0 if found.labels is None else self.tail(found.margin)
        return {**found._asdict(), "certified": found.labels is not None, "release_probability": chance}

    def save(self, path: str | Path) -> Path:
        """Write parameters (without the seed) and the released labels, as safetensors with a JSON sidecar.

        Raises:
            NotFittedError: before `fit`.
        """
        check_is_fitted(self)
        result = self.result_
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in self._public()}
        config: dict[str, object] = dict(plain)
        config["result"] = {"released": result.released, "eps": result.eps, "guarantee": result.guarantee}
        tensors = {} if result.labels is None else {"labels": result.labels}
        config["n"] = self.n_features_in_
        return checkpoint.save(path, tensors, method=METHOD, version=version(METHOD), config=config)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """What `save` wrote: the parameters and the release.

        Raises:
            FileNotFoundError, ValueError: if there is no such file, or it is damaged or another method's.
        """
        found = checkpoint.load(path, method=METHOD)
        config: dict[str, Any] = dict(found.config)
        result, n = config.pop("result"), config.pop("n")
        loaded = cls(**config)
        labels = found.tensors.get("labels")
        loaded.labels_ = None if labels is None else np.asarray(labels)
        loaded.result_ = Release(result["released"], loaded.labels_, result["eps"], loaded.delta, result["guarantee"])
        loaded.n_features_in_ = n
        return loaded

    def _public(self) -> list[tuple[str, Any]]:
        return [(name, value) for name, value in self.get_params().items() if name != SECRET]

    def _counts_edges(self) -> bool:
        return self.model != "censored" and isinstance(self.lam, str) and self.lam == "noisy-density"

    def noisy_test(self, margin: float, below: Callable[[int], int]) -> bool:
        """One draw of L + X > T for a certified margin; `below(k)` draws a uniform integer of 0..k-1."""
        return released(margin, self.eps, self.delta, self.noise, below)

    def _penalties(self, graph: Matrix, below: Callable[[int], int]) -> tuple[float, float | None]:
        """Penalties lam and eta, from public parameters, or from a noisy count."""
        n = graph.shape[0]
        if self.model == "censored":
            return 0.0, None
        a, b = self.a or 0.0, self.b or 0.0  # checked: given where they are used
        if self._counts_edges():
            lam = noisy_density(graph.nnz // 2, n, self.eps_density, below)
        elif isinstance(self.lam, str):
            rho = self.rho if self.rho is not None else 0.5
            balanced = self.lam == "balanced"
            lam = balanced_penalty(self.model, n, rho, a, b, self.outliers) if balanced else tau_penalty(n, a, b)
        else:
            lam = float(self.lam)
        if self.model != "general" or not self.outliers:
            return lam, None
        if not isinstance(self.eta, str):
            return lam, float(self.eta)
        if a and b:
            return lam, trace_penalty(n, lam * n / np.log(n), self.rho, a, b)
        return lam, 1.5 * noise_level(n, lam * n / np.log(n))

    def _validate(self) -> None:
        parameters.check(self)

    def _validate_size(self, n: int) -> None:
        parameters.check_size(self, n)
