"""The noise: exact draws, their law, where they come from."""

from fractions import Fraction
from math import exp

import numpy as np
import pytest
from private_sbm import PrivateSBM, release_probability
from private_sbm.mechanism import (
    _exponential_coin,
    discrete_laplace,
    discrete_tail,
    integers,
    opendp_laplace,
    released,
)
from scipy import stats


def chance(hits, trials, probability):
    return stats.binomtest(int(hits), trials, probability).pvalue


@pytest.mark.parametrize("eps", [0.3, 1.0, 2.5, Fraction(2, 3)])
def test_discrete_laplace_has_its_law(eps):
    below, draws = integers(0), 4000
    values = np.array([discrete_laplace(eps, below) for _ in range(draws)])
    for m in (-2, -1, 0, 1, 2, 3):
        assert chance((values >= m).sum(), draws, discrete_tail(m, float(eps))) > 1e-4


def test_discrete_laplace_by_exhaustion_of_its_coins():
    """With coins that count instead of toss: 0 <= below(k) < k, and P(X = 0) = (1 - r) / (1 + r)."""
    seen = []

    def below(k):
        assert k >= 1
        seen.append(k)
        return int(generator.integers(0, k))

    generator = np.random.default_rng(1)
    values = [discrete_laplace(Fraction(1, 2), below) for _ in range(4000)]
    r = exp(-0.5)
    assert chance(values.count(0), 4000, (1 - r) / (1 + r)) > 1e-4
    assert 2 in seen


@pytest.mark.parametrize("x", [Fraction(0), Fraction(1, 3), Fraction(1)])
def test_exponential_coin(x):
    below = integers(3)
    heads = sum(_exponential_coin(x, below) for _ in range(4000))
    assert chance(heads, 4000, exp(-float(x))) > 1e-4 or (x == 0 and heads == 4000)


def test_huge_and_tiny_eps():
    below = integers(0)
    assert discrete_laplace(1e6, below) == 0
    assert abs(discrete_laplace(1e-9, below)) > 1000
    with pytest.raises(ValueError, match="eps must be greater than 0"):
        discrete_laplace(0, below)


def test_integers_are_uniform_seeded_or_from_the_system():
    below = integers(5)
    values = np.array([below(6) for _ in range(6000)])
    assert stats.chisquare(np.bincount(values, minlength=6)).pvalue > 1e-4
    assert [integers(5)(1000) for _ in range(3)] == [integers(5)(1000)] * 3
    big = [integers(None)(2**200) for _ in range(20)]
    assert len(set(big)) == 20
    assert max(big) > 2**190
    assert max(integers(1)(2**200) for _ in range(1)) < 2**200
    assert {integers(None)(1), integers(2)(1)} == {0}


@pytest.mark.parametrize("noise", ["laplace", "discrete"])
@pytest.mark.parametrize("margin", [2.0, 5.0, 8.0])
def test_releases_have_the_stated_probability(noise, margin):
    below = integers(9)
    hits = sum(released(margin, 0.7, 0.02, noise, below) for _ in range(3000))
    assert chance(hits, 3000, release_probability(margin, 0.7, 0.02, noise)) > 1e-4


def test_opendp_draws_the_same_law():
    pytest.importorskip("opendp")
    values = np.array([opendp_laplace(0.8) for _ in range(1500)])
    for m in (-1, 0, 1, 2):
        assert chance((values >= m).sum(), 1500, discrete_tail(m, 0.8)) > 1e-6
    hits = sum(released(4.0, 0.8, 0.05, "opendp", integers(0)) for _ in range(500))
    assert chance(hits, 500, release_probability(4.0, 0.8, 0.05, "opendp")) > 1e-6


def test_without_opendp(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "opendp.prelude", None)
    with pytest.raises(ImportError, match=r"private-sbm\[secure\]"):
        released(4.0, 0.8, 0.05, "opendp", integers(0))


def test_without_a_seed_releases_differ():
    cliques = np.kron(np.eye(2), np.ones((9, 9))) - np.eye(18)
    chance_of_one = PrivateSBM(lam=0.5, eps=1.0, delta=0.04).release_probability(cliques)
    assert 0.2 < chance_of_one < 0.9
    outcomes = [PrivateSBM(lam=0.5, eps=1.0, delta=0.04).fit(cliques).result_.released for _ in range(40)]
    assert set(outcomes) == {False, True}
