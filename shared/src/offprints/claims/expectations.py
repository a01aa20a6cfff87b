"""The closed set of expectations. Each names its metrics and judges them: holds, fails, or open.

*holds*: p < 0.05, or true everywhere for a bound or an identity. *fails*: the opposite test has p < 0.05, or the bound
or identity is violated. *open*: neither.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import numpy as np

from offprints import stats

ALPHA = 0.05
Metrics = Mapping[str, np.ndarray]
"""Values by metric name, one per run (seed), all in the same order."""


class Verdict(StrEnum):
    """What came out; the order is from best to worst."""

    HOLDS = "holds"
    OPEN = "open"
    NOT_RUN = "not run"
    FAILS = "fails"

    @property
    def rank(self) -> int:
        """Its place in the order: the higher, the worse."""
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Finding:
    """One expectation judged: in words, the statistic it rests on, its interval, and p where there is one."""

    text: str
    verdict: Verdict
    statistic: float
    interval: stats.Interval | None = None
    p: float | None = None


class Expectation(Protocol):
    """What all expectations offer."""

    def names(self) -> set[str]:
        """The metrics it reads."""
        ...

    def judge(self, metrics: Metrics) -> Finding:
        """The finding on these values."""
        ...


def _tested(text: str, p: float, opposite: float, statistic: float, interval: stats.Interval) -> Finding:
    verdict = Verdict.HOLDS if p < ALPHA else Verdict.FAILS if opposite < ALPHA else Verdict.OPEN
    return Finding(text, verdict, statistic, interval, p)


@dataclass(frozen=True)
class scaled:
    """A metric times a factor, as a threshold."""

    metric: str
    factor: float

    def __str__(self) -> str:
        return f"{self.factor:g} × {self.metric}"


@dataclass(frozen=True, init=False)
class best:
    """The strongest of several peers, in each run by itself: the least for `less`, the greatest for `greater`."""

    metrics: tuple[str, ...]

    def __init__(self, *metrics: str) -> None:
        object.__setattr__(self, "metrics", metrics)

    def __str__(self) -> str:
        return f"best of {', '.join(self.metrics)}"


Threshold = str | float | scaled | best


def _named(than: Threshold) -> str:
    return f"{than:g}" if isinstance(than, float | int) else str(than)


def _threshold_names(than: Threshold) -> set[str]:
    if isinstance(than, best):
        return set(than.metrics)
    return {than.metric} if isinstance(than, scaled) else {than} if isinstance(than, str) else set()


def _threshold(than: Threshold, metrics: Metrics, runs: int, strongest: str) -> np.ndarray:
    if isinstance(than, best):
        return getattr(np, strongest)([metrics[name] for name in than.metrics], axis=0)
    if isinstance(than, scaled):
        return than.factor * metrics[than.metric]
    return metrics[than] if isinstance(than, str) else np.full(runs, float(than))


@dataclass(frozen=True)
class _Compare:
    metric: str
    than: Threshold
    by: float = 0.0

    def names(self) -> set[str]:
        return {self.metric} | _threshold_names(self.than)

    def _gap(self, metrics: Metrics, sign: int, strongest: str, word: str) -> Finding:
        values = metrics[self.metric]
        gap = sign * (values - _threshold(self.than, metrics, values.size, strongest)) - self.by
        text = f"{self.metric} {word} {_named(self.than)}" + (f" by {self.by:g}" if self.by else "")
        return _tested(text, stats.sign_flip(gap), stats.sign_flip(-gap), float(gap.mean()), stats.mean_interval(gap))


class less(_Compare):
    """`metric` is less than `than` by more than `by`: paired sign-flip test on `than - metric - by`."""

    def judge(self, metrics: Metrics) -> Finding:
        """Statistic: the mean of `than - metric - by`."""
        return self._gap(metrics, -1, "min", "<")


class greater(_Compare):
    """`metric` is greater than `than` by more than `by`: paired sign-flip test on `metric - than - by`."""

    def judge(self, metrics: Metrics) -> Finding:
        """Statistic: the mean of `metric - than - by`."""
        return self._gap(metrics, 1, "max", ">")


@dataclass(frozen=True)
class within:
    """`metric` equals `than` up to `margin`: the 90 % interval of the paired difference lies inside (TOST at 5 %)."""

    metric: str
    than: Threshold
    margin: float

    def names(self) -> set[str]:
        """The metrics it reads."""
        return {self.metric} | _threshold_names(self.than)

    def judge(self, metrics: Metrics) -> Finding:
        """Statistic: the mean difference."""
        values = metrics[self.metric]
        gap = values - _threshold(self.than, metrics, values.size, "min")
        where, interval = stats.equivalence(gap, self.margin)
        verdict = {"inside": Verdict.HOLDS, "outside": Verdict.FAILS, "straddles": Verdict.OPEN}[where]
        return Finding(f"{self.metric} = {_named(self.than)} ± {self.margin:g}", verdict, float(gap.mean()), interval)


@dataclass(frozen=True)
class rate:
    """A proportion over runs lies above `at_least`, or below `at_most`: exact binomial test.

    `metric` is 0 or 1 in each run, or a pair of names (hits, trials) of counts that are added up over runs.
    """

    metric: str | tuple[str, str]
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("rate must be given exactly one of at_least and at_most.")

    def names(self) -> set[str]:
        """The metrics it reads."""
        return {self.metric} if isinstance(self.metric, str) else set(self.metric)

    def judge(self, metrics: Metrics) -> Finding:
        """Statistic: the proportion; interval: Clopper-Pearson, 95 %."""
        if isinstance(self.metric, str):
            name, hits, trials = self.metric, metrics[self.metric].sum(), metrics[self.metric].size
        else:
            name, (hits, trials) = self.metric[0], (metrics[part].sum() for part in self.metric)
        threshold = self.at_least if self.at_least is not None else self.at_most
        above, below, interval = stats.proportion(round(hits), round(trials), float(threshold or 0.0))
        p, opposite = (above, below) if self.at_least is not None else (below, above)
        sign = "≥" if self.at_least is not None else "≤"
        return _tested(f"rate of {name} {sign} {threshold:g}", p, opposite, hits / trials, interval)


@dataclass(frozen=True)
class bound:
    """A theorem: `metric` bounds `truth` in every run, and is not vacuous (median ratio at most `ceiling`).

    The ratio is bound ÷ truth for an upper bound, truth ÷ bound for a lower one: 1 is tight, ∞ proves nothing.
    """

    metric: str
    truth: str | float
    ceiling: float = math.inf
    kind: str = "upper"
    tol: float = 1e-9

    def names(self) -> set[str]:
        """The metrics it reads."""
        return {self.metric} | _threshold_names(self.truth)

    def judge(self, metrics: Metrics) -> Finding:
        """Statistic: the median ratio; interval: its least and greatest."""
        limit = metrics[self.metric]
        truth = _threshold(self.truth, metrics, limit.size, "min")
        above, beneath = (limit, truth) if self.kind == "upper" else (truth, limit)
        slack = self.tol * np.maximum(np.abs(limit), np.abs(truth))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(above == beneath, 1.0, np.where(beneath > 0, above / beneath, np.inf))
        middle = float(np.median(ratio))
        true = bool((beneath <= above + slack).all()) and middle <= self.ceiling
        text = f"{_named(self.truth)} {'≤' if self.kind == 'upper' else '≥'} {self.metric} everywhere"
        text += ", median ratio" + (f" ≤ {self.ceiling:g}" if math.isfinite(self.ceiling) else "")
        return Finding(text, Verdict.HOLDS if true else Verdict.FAILS, middle, (float(ratio.min()), float(ratio.max())))


@dataclass(frozen=True)
class exact:
    """An identity: `metric` equals `to` within `tol` in every run."""

    metric: str
    to: str | float = 0.0
    tol: float = 1e-10

    def names(self) -> set[str]:
        """The metrics it reads."""
        return {self.metric} | _threshold_names(self.to)

    def judge(self, metrics: Metrics) -> Finding:
        """Statistic: the largest deviation."""
        values = metrics[self.metric]
        deviation = float(np.abs(values - _threshold(self.to, metrics, values.size, "min")).max())
        verdict = Verdict.HOLDS if deviation <= self.tol else Verdict.FAILS
        return Finding(f"{self.metric} = {_named(self.to)} (± {self.tol:g})", verdict, deviation)


@dataclass(frozen=True)
class slope:
    """A growth exponent: the 95 % interval of the log-log slope lies inside [`low`, `high`].

    `metrics` maps each x to the metric measured there; the points of all runs are fitted together.
    """

    metrics: Mapping[float, str]
    low: float
    high: float

    def names(self) -> set[str]:
        """The metrics it reads."""
        return set(self.metrics.values())

    def judge(self, metrics: Metrics) -> Finding:
        """Statistic: the slope. Fails when the whole interval lies outside."""
        points = [(x, y) for x, name in self.metrics.items() for y in metrics[name]]
        value, interval = stats.slope(*np.array(points, dtype=float).T)
        inside = self.low <= interval[0] and interval[1] <= self.high
        outside = interval[0] > self.high or interval[1] < self.low
        verdict = Verdict.HOLDS if inside else Verdict.FAILS if outside else Verdict.OPEN
        return Finding(f"exponent in [{self.low:g}, {self.high:g}]", verdict, value, interval)


@dataclass(frozen=True)
class monotone:
    """The metrics rise (or fall) in the order given: Page's trend test over runs (two metrics: the sign-flip test)."""

    metrics: Sequence[str]
    direction: str = "increasing"

    def __post_init__(self) -> None:
        if self.direction not in ("increasing", "decreasing"):
            raise ValueError(f"direction must be 'increasing' or 'decreasing', got {self.direction!r}.")

    def names(self) -> set[str]:
        """The metrics it reads."""
        return set(self.metrics)

    def judge(self, metrics: Metrics) -> Finding:
        """Statistic: the mean of last minus first, with its interval."""
        table = np.stack([metrics[name] for name in self.metrics], axis=1)
        rises, falls = stats.trend(table)
        p, opposite = (rises, falls) if self.direction == "increasing" else (falls, rises)
        gap = table[:, -1] - table[:, 0]
        text = f"{self.direction}: {' → '.join(self.metrics)}"
        return _tested(text, p, opposite, float(gap.mean()), stats.mean_interval(gap))
