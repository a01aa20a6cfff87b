"""Black-box tests of feature leakage: change what a selector hides, and see whether its choice changes (Section 2)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from offprints.checks import message, require_choice, require_range
from offprints.seeding import rng

from suwr.selectors import Selector, Table, ask

Sampler = Callable[[np.ndarray, np.ndarray, np.random.Generator], np.ndarray]
"""(rows (m, d), masks (m, d), generator) -> (m, d) rows whose hidden entries are drawn given the shown ones."""
KINDS = ("auto", "deterministic", "probability", "sampled")
TOLERANCE = 1e-6
"""Gaps of probabilities up to this are rounding of float32."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """Two rows that agree, bit for bit, on what is shown in the first, and are treated differently: a proof.

    Attributes:
        x: (d,) the row.
        x_prime: (d,) the same on the mask, other values elsewhere.
        mask: (d,) bool, selected at x.
        mask_prime: (d,) bool, selected at x_prime; None where probabilities or samples were compared.
        gap: |pi(S|x') - pi(S|x)|, exact or estimated.
        names: of the columns.
    """

    x: np.ndarray
    x_prime: np.ndarray
    mask: np.ndarray
    mask_prime: np.ndarray | None
    gap: float
    names: tuple[str, ...]

    def __str__(self) -> str:
        shown = [self.names[j] for j in np.flatnonzero(self.mask)]
        lines = [f"shown: {', '.join(shown) or 'nothing'}; equal in both rows"]
        changed = [j for j in np.flatnonzero(~self.mask) if self.x[j] != self.x_prime[j]][:5]
        lines += [f"hidden {self.names[j]}: {self.x[j]} in one, {self.x_prime[j]} in the other" for j in changed]
        if self.mask_prime is None:
            return "\n".join([*lines, f"the probability of this selection differs by {self.gap:.3g}"])
        other = [self.names[j] for j in np.flatnonzero(self.mask_prime)]
        return "\n".join([*lines, f"shown in the other row: {', '.join(other) or 'nothing'}"])


@dataclass(frozen=True, eq=False)
class ProbeReport:
    """What the probes found.

    Attributes:
        kind: "deterministic", "probability" or "sampled".
        n_probes: pairs of rows.
        leak_rate: share of pairs that are treated differently ("sampled": that the corrected test rejects).
        interval: Clopper-Pearson, 95 %, of the rate over probes like these.
        mean_gap: mean |pi(S|x') - pi(S|x)|; for deterministic selectors the leak rate.
        max_gap: the largest.
        p_value: smallest after Holm's correction ("sampled"), else None.
        certificate: the pair with the largest gap, or None; a proof except for "sampled", where it has that p-value.
        conditional: where hidden values came from.
    """

    kind: str
    n_probes: int
    leak_rate: float
    interval: tuple[float, float]
    mean_gap: float
    max_gap: float
    p_value: float | None
    certificate: Certificate | None
    conditional: str

    @property
    def leaks(self) -> bool:
        """Whether a leak was found."""
        return self.certificate is not None

    @property
    def verdict(self) -> str:
        """In words; a selector that can only be sampled is never called leak-free."""
        if self.certificate is not None:
            return f"leaks: {self.leak_rate:.1%} of {self.n_probes} probes"
        if self.kind == "sampled":
            return f"no leak found in {self.n_probes} probes (p = {self.p_value:.2g})"
        return f"no violation in {self.n_probes} probes: leak rate below {self.interval[1]:.2g} (95 %)"


def probe_selector(
    selector: Selector, X: object, *, n_probes: int | None = None, conditional: str | Sampler | None = None,
    kind: str = "auto", n_draws: int = 200, n_neighbors: int = 10, alpha: float = 0.05, random_state: int = 0,
) -> ProbeReport:  # fmt: skip
    """Does the choice depend on what it hides? Corollary 2.5: no leak iff pi(S|x) = pi(S|x') wherever x_S = x'_S.

    For a row x with selection S, a row x' equals x on S bit for bit and has other values elsewhere. One pair that is
    treated differently proves that the selector reads what it hides. By default the hidden values are those of another
    row: such an x' can lie off the support of the data, and then the proof is of dependence there. `conditional="knn"`
    takes them from a row that is near on S, and so stays near the support.

    Args:
        selector: a function (n, d) -> (n, d) bool, or an object with `local_support`; with `mask_probability(X, masks)`
            its probabilities are compared.
        X: (n, d) rows, an array or a frame.
        n_probes: pairs; None: 5000, or 50 for a selector that can only be sampled.
        conditional: None (another row), "knn", or a sampler.
        kind: "auto" finds out; a selector that answers otherwise when the order of rows changes is not deterministic.
        n_draws: masks drawn at each row of a pair ("sampled"): Fisher's exact (permutation) test on 1[mask = S].
        n_neighbors: of "knn".
        alpha: level of that test, after Holm's correction.
        random_state: of rows, donors and order.

    Raises:
        TypeError, ValueError: for other values, masks that are no masks, or a selector that changes its rows.
    """
    table, gen = Table(X), rng(random_state)
    require_choice("kind", kind, KINDS)
    for name, value in (("n_draws", n_draws), ("n_neighbors", n_neighbors)):
        require_range(name, value, low=1, integer=True)
    require_range("alpha", alpha, low=0, high=1, low_open=True, high_open=True)
    if kind == "auto":
        kind = find_kind(selector, table, gen)
    if kind == "probability" and not hasattr(selector, "mask_probability"):
        raise TypeError(message("selector", "an object with mask_probability(X, masks)", type(selector).__name__))
    count = (50 if kind == "sampled" else 5000) if n_probes is None else n_probes
    require_range("n_probes", count, low=1, integer=True)
    index = gen.permutation(np.arange(count) % len(table.values))
    x = table.values[index]
    masks = ask(selector, table, x)
    other = partners(table, x, masks, index, conditional, n_neighbors, gen)
    if kind == "deterministic":
        found = ask(selector, table, other)
        gaps, p = (found != masks).any(axis=1).astype(float), None
        hits = gaps > 0
    elif kind == "probability":
        exposed: Any = selector
        own, theirs = (np.array(exposed.mask_probability(table.rows(rows), masks), float) for rows in (x, other))
        if own.shape != (count,) or theirs.shape != (count,) or not np.isfinite([own, theirs]).all():
            raise ValueError(message("mask_probability", f"finite numbers of shape ({count},)", own.shape))
        gaps, found, p = np.abs(own - theirs), None, None
        hits = gaps > TOLERANCE
    else:
        gaps, p = _sampled(selector, table, x, other, masks, n_draws)
        found, hits = None, p < alpha
    worst = int(np.argmax(np.where(hits, gaps, -1.0)))
    proof = None
    if hits.any():
        after = None if found is None else found[worst]
        proof = Certificate(x[worst], other[worst], masks[worst], after, float(gaps[worst]), tuple(table.names))
    source = "another row" if conditional is None else conditional if isinstance(conditional, str) else "sampler"
    return ProbeReport(
        kind, count, float(hits.mean()), _interval(int(hits.sum()), count), float(gaps.mean()), float(gaps.max()),
        None if p is None else float(p.min()), proof, source,
    )  # fmt: skip


def find_kind(selector: Selector, table: Table, gen: np.random.Generator) -> str:
    """Deterministic, if 200 rows get equal masks when they are asked again, and in another order."""
    rows = table.values[gen.permutation(len(table.values))[:200]]
    masks, order = ask(selector, table, rows), gen.permutation(len(rows))
    if (ask(selector, table, rows) == masks).all() and (ask(selector, table, rows[order]) == masks[order]).all():
        return "deterministic"
    return "probability" if hasattr(selector, "mask_probability") else "sampled"


def partners(
    table: Table, x: np.ndarray, masks: np.ndarray, index: np.ndarray, conditional: str | Sampler | None,
    n_neighbors: int, gen: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """(m, d) rows x' with x'_S = x_S bitwise and the hidden values of a donor.

    Raises:
        ValueError: for another `conditional`, or a sampler that gives another shape.
    """
    n = len(table.values)
    if conditional is None:
        donors = table.values[(index + gen.integers(1, n, len(index))) % n]
    elif isinstance(conditional, str):
        require_choice("conditional", conditional, ("knn",), hint="Or None, or a function.")
        donors = table.values[_neighbors(table.values, x, masks, index, min(n_neighbors, n - 1), gen)]
    else:
        donors = np.asarray(conditional(x.copy(), masks.copy(), gen))
        if donors.shape != x.shape:
            raise ValueError(message("the rows of conditional", f"of shape {x.shape}", donors.shape))
    return np.where(masks, x, donors.astype(x.dtype))


def _neighbors(
    values: np.ndarray, x: np.ndarray, masks: np.ndarray, index: np.ndarray, k: int, gen: np.random.Generator
) -> np.ndarray:
    """(m,) index of one of the k rows that are nearest on the mask (in standard deviations), itself left out."""
    if values.dtype.kind not in "fiub":
        raise TypeError(message("X", "numeric for conditional='knn'", values.dtype))
    center, spread = np.nanmean(values.astype(float), axis=0), np.nanstd(values.astype(float), axis=0)
    scale = np.where(spread > 0, spread, 1.0)
    reference = np.nan_to_num((values - center) / scale)
    chosen = np.empty(len(x), dtype=int)
    for start in range(0, len(x), 256):
        part = slice(start, start + 256)
        shown, rows = masks[part].astype(float), np.nan_to_num((x[part] - center) / scale)
        distance = shown @ (reference**2).T - 2 * (shown * rows) @ reference.T  # + a constant of the row
        distance += 1e-9 * gen.random(distance.shape)  # equal ones in random order
        distance[np.arange(len(rows)), index[part]] = np.inf
        near = np.argpartition(distance, k - 1, axis=1)[:, :k]
        chosen[part] = near[np.arange(len(rows)), gen.integers(0, k, len(rows))]
    return chosen


def _sampled(
    selector: Selector, table: Table, x: np.ndarray, other: np.ndarray, masks: np.ndarray, n_draws: int
) -> tuple[np.ndarray, np.ndarray]:
    """Estimated gaps and Holm-corrected p-values; the masks whose frequency is compared were drawn before."""
    from scipy.stats import hypergeom

    gaps, p = np.empty(len(x)), np.empty(len(x))
    for i in range(len(x)):
        drawn = ask(selector, table, np.repeat(np.stack([x[i], other[i]]), n_draws, axis=0))
        hits = (drawn == masks[i]).all(axis=1)
        a, b = int(hits[:n_draws].sum()), int(hits[n_draws:].sum())
        law: Any = hypergeom(2 * n_draws, a + b, n_draws)
        outcomes = np.arange(max(0, a + b - n_draws), min(a + b, n_draws) + 1)
        weights = law.pmf(outcomes)
        p[i] = min(1.0, weights[weights <= law.pmf(a) * (1 + 1e-7)].sum())
        gaps[i] = abs(a - b) / n_draws
    order = np.argsort(p)
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(stepped, 1.0)
    return gaps, corrected


def _interval(hits: int, n: int) -> tuple[float, float]:
    from scipy.stats import binomtest

    found = binomtest(hits, n).proportion_ci(0.95, "exact")
    return float(found.low), float(found.high)
