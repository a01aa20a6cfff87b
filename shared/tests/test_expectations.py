import math

import numpy as np
import pytest
from offprints.claims import Verdict, best, bound, exact, greater, less, monotone, rate, scaled, slope, within

ONES = np.ones(5)


def values(**metrics: object) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, dtype=float) for name, value in metrics.items()}


def verdict(expectation: object, **metrics: object) -> str:
    return expectation.judge(values(**metrics)).verdict.value  # type: ignore[attr-defined]


def test_verdicts_are_told_apart() -> None:
    worse, mixed = 3 * ONES, [0, 3, 0, 3, 0]
    assert verdict(less("a", than="b"), a=ONES, b=2 * ONES) == "holds"
    assert verdict(less("a", than="b"), a=worse, b=2 * ONES) == "fails"
    assert verdict(less("a", than="b"), a=mixed, b=2 * ONES) == "open"
    assert verdict(less("a", than="b"), a=ONES, b=ONES) == "open"
    assert verdict(less("a", than="b"), a=ONES[:4], b=2 * ONES[:4]) == "open"  # 1/16 > 0.05
    assert sorted(Verdict, key=lambda verdict: verdict.rank) == ["holds", "open", "not run", "fails"]


def test_margin_is_taken_off_the_gap() -> None:
    assert verdict(less("a", than="b", by=0.5), a=ONES, b=1.6 * ONES) == "holds"
    assert verdict(less("a", than="b", by=0.7), a=ONES, b=1.6 * ONES) == "fails"
    assert verdict(greater("a", than=0.5, by=0.4), a=ONES) == "holds"
    assert verdict(greater("a", than=0.5, by=0.6), a=ONES) == "fails"
    finding = greater("a", than=0.5, by=0.1).judge(values(a=[1, 1, 1, 1, 2]))
    assert finding.statistic == pytest.approx(0.6)
    assert finding.text == "a > 0.5 by 0.1"
    assert finding.p == pytest.approx(1 / 32)
    half = 2.776445 * 0.2  # s = 0.447, / sqrt(5)
    assert finding.interval == pytest.approx((0.6 - half, 0.6 + half), rel=1e-6)


def test_best_takes_the_strongest_peer_of_each_run() -> None:
    peers = {"x": [2, 2, 2, 2, 0.5], "y": [0.5, 2, 2, 2, 2]}
    finding = less("a", than=best("x", "y")).judge(values(a=ONES, **peers))
    assert finding.statistic == pytest.approx((-0.5 + 1 + 1 + 1 - 0.5) / 5)
    assert finding.text == "a < best of x, y"
    assert greater("a", than=best("x", "y")).judge(values(a=ONES, **peers)).statistic == pytest.approx(-1)
    assert less("a", than=best("x", "y")).names() == {"a", "x", "y"}


def test_scaled_and_numeric_thresholds() -> None:
    assert verdict(less("a", than=scaled("b", 0.5)), a=ONES, b=2.1 * ONES) == "holds"
    assert verdict(less("a", than=scaled("b", 0.5)), a=ONES, b=1.9 * ONES) == "fails"
    assert less("a", than=scaled("b", 0.5)).names() == {"a", "b"}
    assert str(scaled("b", 0.5)) == "0.5 × b"
    assert less("a", than=2.0).names() == {"a"}


def test_within() -> None:
    assert verdict(within("a", than="b", margin=0.2), a=ONES, b=1.1 * ONES) == "holds"
    assert verdict(within("a", than=2.0, margin=0.2), a=ONES) == "fails"
    straddling = within("a", than=1.0, margin=0.2).judge(values(a=[0.5, 1.5, 1.0, 0.8, 1.2]))
    assert straddling.verdict is Verdict.OPEN
    assert straddling.interval is not None
    assert straddling.interval[0] < -0.2 < 0.2 < straddling.interval[1]
    assert within("a", than="b", margin=1).names() == {"a", "b"}


def test_rate() -> None:
    assert verdict(rate("hit", at_least=0.4), hit=[1] * 5) == "holds"  # 0.4^5 = 0.01
    assert verdict(rate("hit", at_least=0.8), hit=[1] * 5) == "open"  # 0.8^5 = 0.33
    assert verdict(rate("hit", at_least=0.6), hit=[0] * 5) == "fails"  # 0.4^5 = 0.01
    assert verdict(rate("hit", at_most=0.6), hit=[0] * 5) == "holds"
    assert verdict(rate("hit", at_most=0.4), hit=[1] * 5) == "fails"
    counts = rate(("hits", "trials"), at_least=0.5)
    assert counts.names() == {"hits", "trials"}
    finding = counts.judge(values(hits=[9, 10], trials=[10, 10]))
    assert (finding.verdict, finding.statistic) == (Verdict.HOLDS, 0.95)
    assert rate("hit", at_most=1.0).names() == {"hit"}
    assert rate("hit", at_most=0.0).judge(values(hit=[0] * 5)).text == "rate of hit ≤ 0"
    for wrong in ({}, {"at_least": 0.1, "at_most": 0.9}):
        with pytest.raises(ValueError, match="exactly one"):
            rate("hit", **wrong)


def test_bound() -> None:
    upper = bound("limit", truth="error", ceiling=3)
    assert verdict(upper, limit=[2, 2, 3], error=[1, 2, 1]) == "holds"  # ratios 2, 1, 3
    assert verdict(upper, limit=[2, 2, 0.9], error=[1, 2, 1]) == "fails"
    assert verdict(upper, limit=[4, 4, 1], error=[1, 1, 1]) == "fails"  # the median 4 is above the ceiling
    infinite = bound("limit", truth="error", ceiling=100).judge(values(limit=[math.inf] * 3, error=ONES[:3]))
    assert infinite.verdict is Verdict.FAILS
    finding = upper.judge(values(limit=[2, 2, 3], error=[1, 2, 1]))
    assert finding.text == "error ≤ limit everywhere, median ratio ≤ 3"
    assert (finding.statistic, finding.interval) == (2.0, (1.0, 3.0))
    assert verdict(bound("limit", truth="error"), limit=[0.0, 1.0, 1.0], error=[0.0, 0.0, 0.0]) == "holds"
    lower = bound("floor", truth="loss", ceiling=2, kind="lower")
    assert verdict(lower, floor=[1, 1, 1], loss=[1, 2, 1.5]) == "holds"
    open_end = bound("floor", truth="loss", kind="lower").judge(values(floor=[1], loss=[1]))
    assert open_end.text == "loss ≥ floor everywhere, median ratio"
    assert verdict(lower, floor=[1.1, 1, 1], loss=[1, 2, 1.5]) == "fails"
    assert verdict(bound("limit", truth=1.0), limit=[1 - 1e-10]) == "holds"  # rounding is no violation
    assert upper.names() == {"limit", "error"}


def test_exact() -> None:
    assert verdict(exact("gap"), gap=[0, 1e-11]) == "holds"
    assert verdict(exact("gap"), gap=[0, 1e-9]) == "fails"
    assert verdict(exact("a", to="b", tol=0.1), a=[1, 2], b=[1.05, 2]) == "holds"
    assert verdict(exact("a", to=2.0, tol=0.1), a=[1, 2]) == "fails"
    assert exact("a", to="b").names() == {"a", "b"}


def test_slope() -> None:
    table = {f"n{x}": [c * x**1.5 for c in (1, 1.01, 0.99)] for x in (2, 4, 8, 16)}
    growth = slope({x: f"n{x}" for x in (2, 4, 8, 16)}, low=1.4, high=1.6)
    assert verdict(growth, **table) == "holds"
    assert growth.judge(values(**table)).statistic == pytest.approx(1.5, abs=0.01)
    assert verdict(slope(growth.metrics, low=1.7, high=2.0), **table) == "fails"
    assert verdict(slope(growth.metrics, low=1.0, high=1.2), **table) == "fails"
    assert verdict(slope(growth.metrics, low=1.4, high=1.5), **table) == "open"
    assert growth.names() == {"n2", "n4", "n8", "n16"}


def test_monotone() -> None:
    table = {"a": [1, 1, 1], "b": [2, 2, 2], "c": [3, 3, 3]}
    rising = monotone(["a", "b", "c"])
    assert verdict(rising, **table) == "holds"
    assert rising.judge(values(**table)).statistic == 2
    assert verdict(monotone(["a", "b", "c"], "decreasing"), **table) == "fails"
    assert verdict(rising, a=[1, 3], b=[2, 1], c=[3, 2]) == "open"
    assert rising.names() == {"a", "b", "c"}
    with pytest.raises(ValueError, match="direction must be"):
        monotone(["a"], "up")
