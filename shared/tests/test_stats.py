"""Every number here was worked out by hand (or from the binomial table), not copied from a run."""

import math

import numpy as np
import pytest
from offprints import stats


@pytest.mark.parametrize(("n", "p"), [(5, 1 / 32), (6, 1 / 64), (8, 1 / 256)])
def test_sign_flip_equal_signs(n: int, p: float) -> None:
    gaps = np.arange(1, n + 1) / 7
    assert stats.sign_flip(gaps) == pytest.approx(p)
    assert stats.sign_flip(-gaps) == 1.0


def test_sign_flip_one_wrong_sign() -> None:
    # of the 2^5 sign patterns of sizes 1, 2, 3, 4, 5 with sum at least 13: all plus (15) and minus one on the 1 (13)
    assert stats.sign_flip([-1, 2, 3, 4, 5]) == pytest.approx(2 / 32)
    # sizes 1..6, observed 21 - 2 * 3 = 15: the minus set sums to at most 3: {}, 1, 2, 3, 12
    assert stats.sign_flip([1, 2, -3, 4, 5, 6]) == pytest.approx(5 / 64)


def test_sign_flip_ties_and_constants() -> None:
    assert stats.sign_flip([0.0] * 5) == 1.0
    assert stats.sign_flip([0.3] * 5) == pytest.approx(1 / 32)
    # a zero counts in both signs: 4 equal gaps and a zero give 2 of 32
    assert stats.sign_flip([0.0, 1, 1, 1, 1]) == pytest.approx(2 / 32)
    # 1, 1, 1, 1, -1: observed 3; patterns with sum >= 3: all plus, and each single minus: 6 of 32
    assert stats.sign_flip([1, 1, 1, 1, -1]) == pytest.approx(6 / 32)


def test_sign_flip_one_and_many() -> None:
    assert stats.sign_flip([2.0]) == 0.5
    assert stats.sign_flip([-2.0]) == 1.0
    assert stats.sign_flip([0.0]) == 1.0
    assert stats.sign_flip(np.ones(20)) == pytest.approx(1e-5, rel=1.5)  # 2^-20, seen through 99 999 random patterns
    with pytest.raises(ValueError, match="gaps must be finite"):
        stats.sign_flip([1, math.nan])
    with pytest.raises(ValueError, match="len"):
        stats.sign_flip([])


def test_mean_interval() -> None:
    low, high = stats.mean_interval([1, 2, 3, 4, 5])  # mean 3, s = sqrt(2.5), t(4, .975) = 2.776445
    assert (low, high) == pytest.approx((3 - 2.776445 * math.sqrt(0.5), 3 + 2.776445 * math.sqrt(0.5)), rel=1e-6)
    assert stats.mean_interval([2, 2, 2]) == (2, 2)
    assert stats.mean_interval([2]) == (-math.inf, math.inf)


def test_equivalence() -> None:
    half = 2.131847 * math.sqrt(0.5)  # t(4, .95) s / sqrt(5) of 1..5
    gaps = [-2.0, -1, 0, 1, 2]
    assert stats.equivalence(gaps, half + 0.01)[0] == "inside"
    assert stats.equivalence(gaps, half - 0.01)[0] == "straddles"
    assert stats.equivalence([g + 10 for g in gaps], 1)[0] == "outside"
    assert stats.equivalence([g - 10 for g in gaps], 1)[0] == "outside"
    assert stats.equivalence([0, 0, 0], 0.0) == ("inside", (0, 0))


def test_proportion() -> None:
    above, below, interval = stats.proportion(5, 5, 0.4)
    assert above == pytest.approx(0.4**5)
    assert below == 1.0
    assert interval == pytest.approx((0.025 ** (1 / 5), 1.0))
    assert stats.proportion(1, 4, 0.5)[1] == pytest.approx(5 / 16)  # (1 + 4) / 16
    with pytest.raises(ValueError, match="hits"):
        stats.proportion(3, 2, 0.5)


def test_slope() -> None:
    x = np.array([1.0, 2, 4, 8])
    value, (low, high) = stats.slope(x, 3 * x**1.5)
    assert value == pytest.approx(1.5)
    assert (low, high) == pytest.approx((1.5, 1.5))
    assert stats.slope([1, math.e], [1, math.e**2]) == (pytest.approx(2), (-math.inf, math.inf))
    # log points (0, 0), (1, 2), (2, 1): slope 1/2, residuals -1/2, 1, -1/2, so s^2 = 1.5 and the standard error
    # is sqrt(s^2 / 2) = sqrt(.75); t(1, .975) = 12.7062
    value, (low, high) = stats.slope(np.exp([0, 1, 2]), np.exp([0, 2, 1]))
    assert (value, high - value, value - low) == pytest.approx(
        (0.5, 12.7062 * 0.75**0.5, 12.7062 * 0.75**0.5), rel=1e-4
    )
    with pytest.raises(ValueError, match=r"min\(x, y\) must be greater than 0"):
        stats.slope([1, 2], [0, 1])
    with pytest.raises(ValueError, match="different x"):
        stats.slope([1, 1], [1, 2])


def test_trend() -> None:
    rising = [[1, 2, 3]] * 3  # of 6^3 rankings one is as ordered
    assert stats.trend(rising) == (pytest.approx(1 / 216), 1.0)
    assert stats.trend([row[::-1] for row in rising])[1] == pytest.approx(1 / 216)
    assert stats.trend([[1, 2]] * 5) == (pytest.approx(1 / 32), 1.0)
    assert stats.trend([[1, 1, 1]] * 5) == (1.0, 1.0)
