"""Thin names over scipy.stats for the few tests that verdicts rest on. Constant and tiny data are handled."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats as scipy_stats

from offprints.checks import require_finite, require_range

EXACT_LIMIT = 16
"""Up to this many runs all 2^n sign patterns are enumerated; beyond, 99 999 random ones."""

Interval = tuple[float, float]


def _values(name: str, values: Sequence[float] | np.ndarray) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    require_finite(name, array)
    require_range(f"len({name})", array.size, low=1, integer=True)
    return array


def sign_flip(gaps: Sequence[float] | np.ndarray) -> float:
    """One-sided paired sign-flip test: p of a mean gap this large if each sign were a coin toss.

    p = #{s in {-1, 1}^n : mean(s * gaps) >= mean(gaps)} / 2^n: five gaps of one sign give 1/32, zeros give 1.
    """
    gaps = _values("gaps", gaps)
    if gaps.size == 1:  # two patterns: the gap and its mirror
        return 0.5 if gaps[0] > 0 else 1.0
    result = scipy_stats.permutation_test(
        (gaps,),
        np.mean,
        permutation_type="samples",
        alternative="greater",
        vectorized=True,
        rng=np.random.default_rng(0),
        n_resamples=np.inf if gaps.size <= EXACT_LIMIT else 99_999,
    )
    return float(result.pvalue)


def mean_interval(values: Sequence[float] | np.ndarray, level: float = 0.95) -> Interval:
    """Student's interval of the mean; one value says nothing (infinite), equal values are a point."""
    values = _values("values", values)
    if values.size == 1:
        return -math.inf, math.inf
    half = scipy_stats.t.ppf((1 + level) / 2, values.size - 1) * values.std(ddof=1) / math.sqrt(values.size)
    return float(values.mean() - half), float(values.mean() + half)


def equivalence(gaps: Sequence[float] | np.ndarray, margin: float) -> tuple[str, Interval]:
    """Two one-sided tests at 5 %: ("inside" | "outside" | "straddles", the 90 % interval of the mean gap)."""
    low, high = mean_interval(gaps, level=0.90)
    if -margin <= low and high <= margin:
        return "inside", (low, high)
    return ("outside" if low > margin or high < -margin else "straddles"), (low, high)


def proportion(hits: int, trials: int, threshold: float) -> tuple[float, float, Interval]:
    """Exact binomial: (p that the rate is above `threshold`, p that it is below, the 95 % Clopper-Pearson interval)."""
    require_range("hits", hits, low=0, high=trials, integer=True)
    test = scipy_stats.binomtest
    above, below = (test(hits, trials, threshold, alternative=side).pvalue for side in ("greater", "less"))
    interval = test(hits, trials).proportion_ci(0.95, method="exact")
    return float(above), float(below), (float(interval.low), float(interval.high))


def slope(x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> tuple[float, Interval]:
    """Least-squares slope of log y on log x and its 95 % interval (infinite with two points).

    Raises:
        ValueError: if a value is not positive, or there are fewer than two different x.
    """
    x, y = _values("x", x), _values("y", y)
    require_range("min(x, y)", float(min(x.min(), y.min())), low=0, low_open=True, because="logarithms are taken")
    require_range("different x", len(set(x.tolist())), low=2, integer=True)
    fit = scipy_stats.linregress(np.log(x), np.log(y))
    half = scipy_stats.t.ppf(0.975, x.size - 2) * fit.stderr if x.size > 2 else math.inf
    return float(fit.slope), (float(fit.slope - half), float(fit.slope + half))


def trend(table: Sequence[Sequence[float]] | np.ndarray) -> tuple[float, float]:
    """Page's test on (runs, conditions): (p that the columns rise, p that they fall). Two columns: the sign-flip test.

    A run whose values are all equal ranks its columns equally; all runs so give p = 1.
    """
    table = np.asarray(table, dtype=float)
    require_finite("table", table)
    if table.shape[1] == 2:
        return sign_flip(table[:, 1] - table[:, 0]), sign_flip(table[:, 0] - table[:, 1])
    if np.ptp(table, axis=1).max() == 0:
        return 1.0, 1.0
    rises, falls = (scipy_stats.page_trend_test(columns).pvalue for columns in (table, table[:, ::-1]))
    return float(rises), float(falls)
