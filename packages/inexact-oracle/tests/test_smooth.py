"""The exact checks of the smooth wrapper: interpolation, extensions, corrections, certificates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inexact_oracle import ConsistencyWarning, SmoothOracle
from inexact_oracle import _reference as ref
from inexact_oracle.algorithms import Box, L1Ball, Simplex, accelerated_gradient, frank_wolfe, scipy_minimize
from inexact_oracle.data import quadratic
from inexact_oracle.noise import Adversarial, Sign

seeds = st.integers(0, 10_000)
quick = settings(max_examples=25, deadline=None)


def in_ball(seed: int, count: int, dim: int) -> np.ndarray:
    gen = np.random.default_rng(seed)
    x = gen.standard_normal((count, dim))
    return x * gen.random((count, 1)) ** (1 / dim) / np.linalg.norm(x, axis=1, keepdims=True)


def drive(oracle, points: np.ndarray) -> None:
    for x in points:
        oracle(x)


# ---- 7 smooth


@pytest.mark.parametrize("noise", ["sign", "alternate"])
def test_7_interpolation_and_extensions(noise):
    f = quadratic(3, 20.0, 1)
    eta = 0.01
    noisy = Sign(f, eta, eta, 0) if noise == "sign" else Adversarial(f, eta, eta, "alternate", 0)
    oracle = SmoothOracle(noisy, 3, eta, eta, 1.0, diameter=2.0)
    drive(oracle, in_ball(0, 30, 3))
    seen = oracle.replies
    assert oracle.n_solves > 5
    assert ref.smooth_violation(seen.x, seen.V, seen.s, 2.0) <= 1e-6 * np.abs(seen.V).max()
    assert oracle.check_consistency(1e-8) <= oracle.violation + 1e-12
    others = in_ball(9, 12, 3)
    low = [oracle.extension(y, "smallest") for y in others]
    high = [oracle.extension(y, "largest") for y in others]
    for y, (below, _), (above, _) in zip(others, low, high, strict=True):
        assert below <= above + 1e-9
        assert below == pytest.approx(ref.smallest_extension(y, seen.x, seen.V, seen.s, 2.0), abs=1e-6)
        assert above == pytest.approx(ref.largest_extension(y, seen.x, seen.V, seen.s, 2.0), abs=1e-6)
    for i in (0, 7, 29):  # both interpolate values and gradients
        for kind in ("smallest", "largest"):
            value, grad = oracle.extension(seen.x[i], kind)
            assert value == pytest.approx(seen.V[i], abs=1e-7)
            assert grad == pytest.approx(seen.s[i], abs=2e-4)
            h = 1e-4 * np.eye(3)
            slope = [(oracle.extension(seen.x[i] + e, kind)[0] - oracle.extension(seen.x[i] - e, kind)[0]) for e in h]
            assert np.array(slope) / 2e-4 == pytest.approx(seen.s[i], abs=1e-3)
    for values in (low, high):  # both are 2L-smooth and convex
        data = np.array([v for v, _ in values]), np.array([g for _, g in values])
        assert ref.smooth_violation(others, *data, 2.0) <= 1e-5
    assert oracle.model(others) == pytest.approx([v for v, _ in low], abs=1e-12)


def test_7_correction_equals_cvxpy():
    f, eta = quadratic(3, 20.0, 1), 0.01
    compared = 0
    for seed in range(6):
        oracle = SmoothOracle(Sign(f, eta, eta, seed), 3, eta, eta, 1.0)
        points = 0.5 * in_ball(seed, 15, 3)
        drive(oracle, points[:-1])
        seen, solves = oracle.replies, oracle.n_solves
        value, slope = oracle(points[-1])
        if oracle.n_solves == solves:
            continue
        now = oracle.replies
        cost, best, _ = ref.smooth_reply(
            points[-1], now.raw_f[-1], now.raw_g[-1], seen.x, seen.V, seen.s, eta, eta, 2.0
        )
        ours = abs(value - now.raw_f[-1]) / eta + np.linalg.norm(slope - now.raw_g[-1]) / eta
        assert ours == pytest.approx(cost, abs=1e-5)
        assert value == pytest.approx(best, abs=1e-5)
        compared += 1
    assert compared >= 3


def test_7_rows_enter_where_a_correction_is_far_larger_than_the_errors():
    """Exact answers, then one off by 100 eta: the rows that were left out at first come in, and the optimum stands."""
    f, eta, gen = quadratic(1, 10.0, 1), 1e-4, np.random.default_rng(0)
    off = 0.01 * gen.standard_normal(1)
    points = gen.uniform(-1, 1, (20, 1))
    oracle = SmoothOracle(f, 1, eta, eta, 1.0)
    drive(oracle, points[:-1])
    assert oracle.n_conic == 0
    seen = oracle.replies
    oracle.oracle = lambda x: (f(x)[0] - 0.01, f(x)[1] + off)
    with pytest.warns(ConsistencyWarning):
        value, slope = oracle(points[-1])
    assert (oracle.n_solves, oracle.n_conic, oracle.n_failures) == (1, 2, 0)
    raw_f, raw_g = oracle.replies.raw_f[-1], oracle.replies.raw_g[-1]
    cost, _, _ = ref.smooth_reply(points[-1], raw_f, raw_g, seen.x, seen.V, seen.s, 1.0, 1.0, 2.0)
    assert abs(value - raw_f) + np.linalg.norm(slope - raw_g) == pytest.approx(cost, rel=1e-3)
    assert oracle.check_consistency() <= 1e-9


@pytest.mark.parametrize(("eta_f", "eta_g"), [(0.01, 0.0), (0.0, 0.05)])
def test_7_one_error_only(eta_f, eta_g):
    """A zero error is a zero error of the oracle, not of the replies: past corrections may force V or s to move."""
    f = quadratic(3, 20.0, 1)
    oracle = SmoothOracle(Sign(f, eta_f, eta_g, 5), 3, eta_f, eta_g, 1.0, diameter=2.0)
    drive(oracle, 0.5 * in_ball(0, 30, 3))
    seen = oracle.replies
    assert oracle.n_solves > 5
    assert oracle.n_failures == oracle.n_inconsistent == 0
    assert ref.smooth_violation(seen.x, seen.V, seen.s, 2.0) <= 1e-8
    assert np.abs(seen.V - seen.raw_f).max() < 0.05
    certificate = oracle.certificate(seen.x[-1])
    assert certificate.bound >= f(seen.x[-1])[0]


def test_7_wrongly_declared_exact():
    """Both errors declared zero, data noisy: warned, consistent all the same, and nothing certified."""
    f = quadratic(3, 20.0, 1)
    oracle = SmoothOracle(Sign(f, 0.01, 0.01, 5), 3, 0.0, 0.0, 1.0, diameter=2.0)
    with pytest.warns(ConsistencyWarning, match="no convex function with smoothness 1"):
        drive(oracle, 0.5 * in_ball(0, 30, 3))
    seen = oracle.replies
    assert ref.smooth_violation(seen.x, seen.V, seen.s, 2.0) <= 1e-8
    assert np.abs(seen.V - seen.raw_f).max() < 0.1
    assert not oracle.certificate(seen.x[-1]).valid


@quick
@given(seed=seeds, factor=st.sampled_from([1.5, 2.0, 4.0]))
def test_7_smallest_extension_is_below_the_stated_bound(seed, factor):
    """F <= f + e_V + e_g D + e_g^2 / (2 L (factor - 1)), the step that the smooth certificate rests on."""
    f, eta = quadratic(2, 10.0, seed), 0.05
    oracle = SmoothOracle(Sign(f, eta, eta / 2, seed), 2, eta, eta / 2, 1.0, factor, diameter=2.0)
    drive(oracle, in_ball(seed, 12, 2))
    others = in_ball(seed + 1, 10, 2)
    c = oracle.certificate(others[0])
    limit = c.e_V + c.e_g * 2.0 + c.e_g**2 / (2 * (factor - 1))
    assert max(oracle.extension(y)[0] - f(y)[0] for y in others) <= limit + 1e-7


# ---- 12 certificates of the smooth algorithms


@pytest.mark.parametrize("name", ["frank_wolfe", "accelerated_gradient", "L-BFGS-B", "SLSQP"])
@pytest.mark.parametrize("mode", ["alternate", "rotate"])
def test_12_smooth_certificates(name, mode):
    f, eta = quadratic(4, 30.0, 5), 0.01
    oracle = SmoothOracle(Adversarial(f, eta, eta / 4, mode, 1), 4, eta, eta / 4, 1.0, diameter=4.0)
    start, error = np.full(4, -1.0), np.inf
    if name == "frank_wolfe":
        result = frank_wolfe(oracle, Box(-np.ones(4), np.ones(4)), 40)
        error = 2 * 2.0 * 16 / 41
    elif name == "accelerated_gradient":
        result = accelerated_gradient(oracle, start, 30, project=lambda x: np.clip(x, -1, 1))
        error = 2 * 2.0 * float((start - f.centre) @ (start - f.centre)) / 31**2
    else:
        result = scipy_minimize(oracle, start, method=name, bounds=(-1, 1))
        error = float(
            oracle.extension(result.x)[0] - min(oracle.model(in_ball(0, 30, 4)).min(), oracle.replies.V.min())
        )
    truth = f(result.x)[0]
    for given_error in (np.inf, max(error, 0.05)):
        certificate = oracle.certificate(result.x, given_error, bounds=(-1.0, 1.0))
        assert certificate.valid
        assert certificate.bound >= truth - 1e-9
        assert certificate.lower <= 1e-9
        assert certificate.value_upper >= truth
    assert oracle.check_consistency() <= 1e-6


@pytest.mark.parametrize("lmo", [Simplex(3), L1Ball(3, 0.7)])
def test_12_frank_wolfe_theorem(lmo):
    """Value - minimum <= 2 L' D^2 / (T + 1) on exact data, and the linear lower bound is one."""
    f = quadratic(3, 5.0, 2)
    exact = frank_wolfe(f, lmo, 4000).value
    for steps in (5, 20, 80):
        result = frank_wolfe(f, lmo, steps)
        assert result.value - exact <= 2 * 1.0 * lmo.diameter**2 / (steps + 1)
        assert result.lower <= exact + 1e-12
        assert result.nquery == steps
