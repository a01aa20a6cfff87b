"""An audit of a mechanism: exact privacy loss over neighbouring graphs (edge privacy: Section 1 of the paper).

For each pair the two outputs (labels or None) have known probabilities, so the least delta at eps,
sum_o max(0, P(o) - e^eps Q(o)), is exact. Beside it the two facts behind the proof are checked: margins of neighbours
differ by at most 1, and neighbours with different outputs have margins of at most 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log
from typing import Protocol

import numpy as np
from offprints.checks import require_range
from offprints.seeding import rng
from scipy import sparse, stats

from private_sbm.certificates import ROUNDING
from private_sbm.estimator import Evidence, PrivateSBM
from private_sbm.graphs import Matrix, adjacency
from private_sbm.mechanism import integers
from private_sbm.neighbours import NEAR, Pair, Setting, make_pairs
from private_sbm.solvers import ENUMERABLE, enumerated

SLACK = 1e-9


class Mechanism(Protocol):
    """What is audited: `PrivateSBM`, a subclass, or anything alike."""

    @property
    def eps(self) -> float:
        """Privacy of the noisy test."""
        ...

    @property
    def delta(self) -> float:
        """Likewise."""
        ...

    def evidence(self, X: object) -> Evidence:
        """Margin and labels of a graph, before noise."""
        ...

    def tail(self, margin: float) -> float:
        """Probability of release at a margin."""
        ...

    def noisy_test(self, margin: float, below: Callable[[int], int]) -> bool:
        """One draw of the release."""
        ...


@dataclass
class AuditReport:
    """What an audit found. It describes the mechanism, on graphs that were made for the audit.

    Attributes:
        pairs: number of neighbouring pairs.
        positive: pairs with a positive margin on one side.
        near: pairs with a margin between 0.5 and 1.5 on one side.
        max_jump: greatest difference of margins of neighbours.
        exact_loss: greatest delta that a pair needs at the mechanism's eps.
        eps_lower_bound: greatest eps that a pair needs at the mechanism's delta: no smaller one is true. From exact
            probabilities, or with `samples` from draws (99.9 % Clopper-Pearson).
        violations: kind -> count. "jump": margins differ by more than 1; "output": different outputs with a margin
            above 1; "loss": exact loss above delta; "tail": release probability at margin 1 above delta; "miss": a
            certificate that enumeration finds (n <= 14) and the mechanism does not; "noise": draws that contradict
            the stated probability.
    """

    pairs: int = 0
    positive: int = 0
    near: int = 0
    max_jump: float = 0.0
    exact_loss: float = 0.0
    eps_lower_bound: float = 0.0
    violations: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        """Whether no violation was found."""
        return not self.violations

    def summary(self) -> str:
        """One line each for the pairs, the facts and the loss."""
        found = ", ".join(f"{kind} {count}" for kind, count in sorted(self.violations.items())) or "none"
        return (
            f"{self.pairs} pairs, {self.positive} with L > 0, {self.near} near L = 1\n"
            f"largest jump of L {self.max_jump:.6g}, exact loss (delta) {self.exact_loss:.6g}, "
            f"eps at least {self.eps_lower_bound:.6g}\nviolations: {found}"
        )

    def _add(self, kind: str) -> None:
        self.violations[kind] = self.violations.get(kind, 0) + 1


def audit(
    mechanism: Mechanism,
    pairs: int | Sequence[tuple[object, object]] = 500,
    *,
    samples: int = 0,
    n: int | None = None,
    seed: int = 0,
) -> AuditReport:
    """Look for violations of (eps, delta)-edge privacy.

    Args:
        mechanism: a `PrivateSBM`, or an object with its `evidence`, `tail`, `noisy_test`, `eps` and `delta`.
        pairs: how many neighbouring pairs to make (two fifths near margin 1, two fifths above), or pairs of graphs.
        samples: draws of the noise for the five pairs of the greatest loss and eps; 0: exact probabilities only.
        n: vertices of the graphs made; by default 12 (general: 20), or as few as keep p below 0.9 for
            a given a.
        seed: of graphs and draws.

    Returns:
        An `AuditReport`.

    Raises:
        TypeError, ValueError: for a negative or fractional number of pairs or samples; no pairs where pairs are to be
            made for something that is not a `PrivateSBM`; pairs that are no neighbours; graphs that are none; a
            penalty that is drawn anew for every graph ("noisy-density").
    """
    require_range("samples", samples, low=0, integer=True)
    if getattr(mechanism, "lam", None) == "noisy-density" and getattr(mechanism, "model", "") != "censored":
        raise ValueError(
            "lam must be the same for both graphs of a pair, got 'noisy-density'. Audit the test at a number for lam: "
            "the noisy count before it is a release of its own, with its own eps."
        )
    gen, report = rng(seed), AuditReport()
    if isinstance(pairs, (int, np.integer)):
        require_range("pairs", pairs, low=1, integer=True)
        given = make_pairs(setting_of(mechanism, n), int(pairs), gen)
    else:
        given = _given(mechanism, pairs)
    if mechanism.tail(1.0) > mechanism.delta * (1 + SLACK):
        report._add("tail")
    seen: list[tuple[float, float, Evidence, Evidence]] = []
    cache: dict[bytes, Evidence] = {}
    for pair in given:
        first, second = (_evidence(mechanism, graph, cache, report) for graph in (pair.first, pair.second))
        seen.append((*_compare(mechanism, first, second, report), first, second))
    if samples:
        worst = [*sorted(seen, key=lambda item: -item[0])[:3], *sorted(seen, key=lambda item: -item[1])[:2]]
        _sample(mechanism, [(first, second) for *_, first, second in worst], samples, seed, report)
    return report


def _given(mechanism: Mechanism, pairs: Sequence[tuple[object, object]]) -> list[Pair]:
    """Pairs of graphs as they were handed over, if each differs in one edge (under "relabel": or one label)."""
    signed = getattr(mechanism, "model", "") == "censored"
    most = 2 if getattr(mechanism, "neighbor", "edge") == "relabel" else 1
    found = [Pair(adjacency(first, signed)[0], adjacency(second, signed)[0], 0.0) for first, second in pairs]
    if not found:
        raise ValueError("pairs must be one or more, got none: nothing would be audited.")
    for place, pair in enumerate(found):
        if pair.first.shape != pair.second.shape:
            raise ValueError(f"pairs must be graphs of the same vertices, got different numbers in pair {place}.")
        change = np.abs((pair.first - pair.second).data)
        if np.count_nonzero(change) != 2 or change.max() > most:
            raise ValueError(f"pairs must differ in one edge, got no neighbours in pair {place}.")
    return found


def setting_of(mechanism: Mechanism, n: int | None) -> Setting:
    """The graphs to make for a `PrivateSBM`.

    Raises:
        ValueError: for another mechanism: give pairs.
    """
    if not isinstance(mechanism, PrivateSBM):
        raise ValueError("pairs must be graphs unless the mechanism is a PrivateSBM, got a number. Pass pairs.")
    if n is None:
        n = 20 if mechanism.model == "general" else 12
        if mechanism.model != "censored" and mechanism.a is not None and isinstance(mechanism.lam, str):
            while mechanism.a * log(n) / n > 0.9:
                n += 2
    empty = mechanism.evidence(sparse.csr_array((n, n)))
    step = 4.0 if mechanism.neighbor == "relabel" else 2.0
    outliers = mechanism.model == "general" and mechanism.outliers
    return Setting(mechanism.model, n, empty.lam, empty.eta, step, outliers)


def _evidence(mechanism: Mechanism, graph: Matrix, cache: dict[bytes, Evidence], report: AuditReport) -> Evidence:
    key = graph.toarray().tobytes()
    if key not in cache:
        found = cache[key] = mechanism.evidence(graph)
        if graph.shape[0] <= ENUMERABLE and getattr(mechanism, "model", "general") != "general":
            truth = enumerated(graph, found.lam)
            if truth.s is not None and found.labels is None:
                report._add("miss")
    return cache[key]


def _compare(mechanism: Mechanism, first: Evidence, second: Evidence, report: AuditReport) -> tuple[float, float]:
    """One pair: both facts, the exact loss both ways; returns the loss, and the eps that it needs at delta."""
    report.pairs += 1
    margins = first.margin, second.margin
    report.positive += max(margins) > 0
    report.near += any(NEAR[0] <= margin <= NEAR[1] for margin in margins)
    jump = abs(margins[0] - margins[1])
    report.max_jump = max(report.max_jump, jump)
    if jump > 1 + 2 * ROUNDING:
        report._add("jump")
    same = _same(first.labels, second.labels)
    if not same and max(margins) > 1 + ROUNDING:
        report._add("output")
    p, q = (0.0 if side.labels is None else mechanism.tail(side.margin) for side in (first, second))
    loss = max(_delta(p, q, same, mechanism.eps), _delta(q, p, same, mechanism.eps))
    report.exact_loss = max(report.exact_loss, loss)
    if loss > mechanism.delta * (1 + SLACK):
        report._add("loss")
    needed = max(_least_eps(p, q, same, mechanism.delta), _least_eps(q, p, same, mechanism.delta))
    report.eps_lower_bound = max(report.eps_lower_bound, needed)
    return loss, needed


def _same(first: np.ndarray | None, second: np.ndarray | None) -> bool:
    if first is None or second is None:
        return first is second
    return bool(np.array_equal(first, second))


def _delta(p: float, q: float, same: bool, eps: float) -> float:
    """The sum over outputs of max(0, P - e^eps Q), release probabilities p and q."""
    factor = exp(min(eps, 700.0))
    labels = max(0.0, p - factor * q) if same else p
    return labels + max(0.0, (1 - p) - factor * (1 - q))


def _least_eps(p: float, q: float, same: bool, delta: float) -> float:
    """The least eps of P <= e^eps Q + delta for each output by itself."""
    found = 0.0
    for chance, other in ((p, q if same else 0.0), (1 - p, 1 - q)):
        if chance > delta * (1 + SLACK):
            found = max(found, log((chance - delta) / other) if other > 0 else inf)
    return found


def _sample(
    mechanism: Mechanism, worst: list[tuple[Evidence, Evidence]], samples: int, seed: int, report: AuditReport
) -> None:
    """Draws of the release on the worst pairs: do they fit the stated probability, and what eps do they prove?"""
    below, bound = integers(seed), 0.0
    for first, second in worst:
        counts = []
        for side in (first, second):
            hits = 0 if side.labels is None else sum(mechanism.noisy_test(side.margin, below) for _ in range(samples))
            stated = 0.0 if side.labels is None else mechanism.tail(side.margin)
            if stats.binomtest(hits, samples, stated).pvalue < 1e-6:
                report._add("noise")
            counts.append(hits)
        same = _same(first.labels, second.labels)
        for p, q in (counts, counts[::-1]):
            low = stats.binomtest(p, samples).proportion_ci(0.998).low
            high = stats.binomtest(q, samples).proportion_ci(0.998).high if same else 0.0
            if low > mechanism.delta:
                bound = max(bound, log((low - mechanism.delta) / high) if high > 0 else inf)
    report.eps_lower_bound = bound
