"""Bounded memory by an aggregate cut, and errors that shrink by averaging."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inexact_oracle import LipschitzOracle, hoeffding_radius
from inexact_oracle.data import max_affine
from inexact_oracle.noise import Adversarial, Sign

DIM = 3


def in_ball(seed: int, count: int, dim: int) -> np.ndarray:
    gen = np.random.default_rng(seed)
    x = gen.standard_normal((count, dim))
    return x * gen.random((count, 1)) ** (1 / dim) / np.linalg.norm(x, axis=1, keepdims=True)


def drive(oracle, points: np.ndarray) -> None:
    for x in points:
        oracle(x)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    window=st.integers(1, 9),
    mode=st.sampled_from(["alternate", "up", "rotate", "lookahead"]),
)
def test_window_keeps_bounds_and_consistency_of_what_is_kept(seed, window, mode):
    f, eta = max_affine(DIM, 8, seed), 0.1
    noisy = Adversarial(f, eta, eta / 2, mode, seed + 1)
    oracle = LipschitzOracle(noisy, DIM, eta, eta / 2, 2.0, max_cuts=window)
    drive(oracle, in_ball(seed, 50, DIM))
    seen = oracle.replies
    assert len(seen.V) == window
    assert oracle.check_consistency() <= 1e-12 * (1 + np.abs(seen.V).max())
    assert max(f(x)[0] - v for x, v in zip(seen.x, seen.V, strict=True)) <= eta + 1e-9
    others = in_ball(seed + 1, 200, DIM)
    assert (oracle.model(others) - [f(y)[0] for y in others]).max() <= 3 * eta + 1e-9
    certificate = oracle.certificate(seen.x[-1], algorithm_error=0.0)
    assert certificate.bound == pytest.approx(certificate.value_upper - certificate.lower)
    assert certificate.lower <= f.minimum_on_ball(1.0) + 1e-9
    assert (seen.x == in_ball(seed, 50, DIM)[-window:]).all()


def test_aggregate_keeps_the_lower_bound_of_what_it_replaces():
    """The window's model has the same minimum over the ball around the query as both cuts had."""
    answers = iter([(0.0, [1.0, 0.0]), (0.0, [-0.5, 0.5]), (1.0, [0.0, 1.0])])
    oracle = LipschitzOracle(lambda x: next(answers), 2, 5.0, 0.0, 2.0, max_cuts=1)
    points = np.array([[0.0, 0.0], [-0.5, 0.0], [0.0, 1.0]])
    drive(oracle, points)
    ball = points[2] + 2.0 * in_ball(1, 40_000, 2)
    pair = np.maximum((ball - points[0]) @ [1.0, 0.0], (ball - points[1]) @ [-0.5, 0.5])
    aggregate = oracle._aggregate
    combined = aggregate[0] + (ball - points[0]) @ aggregate[1]
    assert combined.min() == pytest.approx(pair.min(), abs=0.02)
    assert (combined <= pair + 1e-12).all()


def test_averaging_shrinks_the_errors_and_the_bounds_hold():
    f = max_affine(3, 8, 0)
    repeats = 400
    oracle = LipschitzOracle(Sign(f, 0.2, 0.1, 3), 3, 0.2, 0.1, 2.0, average=repeats, confidence=0.99)
    calls = in_ball(1, 30, 3)
    drive(oracle, calls)
    seen = oracle.replies
    assert oracle.n_queries == 30
    assert oracle.eta_f < 0.2 * 0.3
    assert oracle.eta_f == pytest.approx(0.2 * hoeffding_radius(repeats, 0.99, 30))
    assert max(abs(f(x)[0] - v) for x, v in zip(seen.x, seen.raw_f, strict=True)) <= oracle.eta_f
    assert max(f(x)[0] - v for x, v in zip(seen.x, seen.V, strict=True)) <= oracle.eta_f
    assert oracle.certificate(seen.x[0]).confidence == 0.99


def test_hoeffding_radius_by_hand():
    # share = 3 * 0.01 / pi^2; radius = sqrt(2 log(2 / share) / 100)
    assert hoeffding_radius(100, 0.99, 0) == pytest.approx(np.sqrt(2 * np.log(2 * np.pi**2 / 0.03) / 100))
    assert hoeffding_radius(1, 0.99, 0) == 1.0
    assert hoeffding_radius(100, 0.99, 5) > hoeffding_radius(100, 0.99, 4)
    shares = 2 * sum(3 * 0.01 / (np.pi * t) ** 2 for t in range(1, 200_000))
    assert shares <= 0.01
