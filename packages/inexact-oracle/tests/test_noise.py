"""Noisy oracles keep the errors they declare; estimation finds no more than what is there."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inexact_oracle import LipschitzOracle, estimate_errors, smallest_errors
from inexact_oracle.data import max_affine, quadratic
from inexact_oracle.noise import Adversarial, FiniteDifference, Quantized, Sign, Truncated, Uniform

MODES = ("alternate", "up", "rotate", "lookahead")


def errors(noisy, f, points):
    values, grads = [], []
    for x in points:
        value, grad = noisy(x)
        values.append(value - f(x)[0])
        grads.append(grad - f(x)[1])
    return np.array(values), np.linalg.norm(grads, axis=1), np.array(grads)


def points(dim=4, count=200, seed=0):
    return np.random.default_rng(seed).uniform(-1, 1, (count, dim))


@pytest.mark.parametrize("mode", MODES)
def test_adversaries_use_their_whole_budget(mode):
    f = quadratic(4, 10.0, 0)
    value, grad, _ = errors(Adversarial(f, 0.1, 0.05, mode, 3), f, points())
    assert np.abs(value).max() <= 0.1 + 1e-12
    assert np.abs(value).max() == pytest.approx(0.1, rel=1e-3)
    assert grad == pytest.approx(np.full(200, 0.05))


def test_adversaries_do_what_they_say():
    f, x = quadratic(3, 5.0, 0), points(3)
    value, _, grads = errors(Adversarial(f, 0.1, 0.05, "alternate", 1), f, x)
    assert value == pytest.approx(0.1 * (-1.0) ** np.arange(200))
    assert grads[::2] == pytest.approx(np.tile(grads[0], (100, 1)))
    assert grads[1::2] == pytest.approx(np.tile(-grads[0], (100, 1)))
    value, _, grads = errors(Adversarial(f, 0.1, 0.05, "up", 1), f, x)
    assert value == pytest.approx(np.full(200, 0.1))
    slopes = np.array([f(p)[1] for p in x])
    assert np.einsum("ij,ij->i", grads, slopes) == pytest.approx(-0.05 * np.linalg.norm(slopes, axis=1))
    value, _, grads = errors(Adversarial(f, 0.1, 0.05, "rotate", 1), f, x)
    assert value == pytest.approx(0.1 * np.cos(np.arange(200)))
    assert np.einsum("ij,ij->i", grads, slopes) == pytest.approx(np.zeros(200), abs=1e-12)
    value, _, grads = errors(Adversarial(f, 0.1, 0.05, "lookahead", 1), f, x)
    best = np.minimum.accumulate([f(p)[0] for p in x])
    fresh = np.array([f(p)[0] for p in x]) == best
    assert value == pytest.approx(np.where(fresh, -0.1, 0.1))
    target = x[int(np.argmin([f(p)[0] for p in x]))]
    late = ~fresh & (np.arange(200) > int(np.argmin([f(p)[0] for p in x])))
    assert np.einsum("ij,ij->i", grads[late], target - x[late]) == pytest.approx(
        0.05 * np.linalg.norm(target - x[late], axis=1)
    )


def test_adversaries_at_flat_points_and_along_gradients():
    flat = lambda x: (0.0, np.zeros(len(x)))  # noqa: E731
    for mode in MODES:
        assert np.linalg.norm(Adversarial(flat, 0.1, 0.05, mode, 0)(np.zeros(2))[1]) == pytest.approx(0.05)
        assert abs(Adversarial(flat, 0.1, 0.05, mode, 0)(np.zeros(1))[1][0]) == pytest.approx(0.05)
        line = Adversarial(lambda x: (float(x[0]), np.ones(1)), 0.1, 0.05, mode, 0)
        assert abs(line(np.zeros(1))[1][0] - 1.0) == pytest.approx(0.05)


@pytest.mark.parametrize("kind", [Uniform, Sign])
def test_random_errors_are_bounded_zero_mean_and_seeded(kind):
    f = quadratic(3, 5.0, 0)
    value, grad, vectors = errors(kind(f, 0.1, 0.05, 1), f, points(3, 4000))
    assert np.abs(value).max() <= 0.1 + 1e-12
    assert grad.max() <= 0.05 + 1e-12
    assert abs(value.mean()) < 0.01
    assert np.abs(vectors.mean(axis=0)).max() < 0.003
    if kind is Sign:
        assert np.abs(value) == pytest.approx(np.full(4000, 0.1))
        assert grad == pytest.approx(np.full(4000, 0.05))
    else:
        assert np.mean(grad**3) == pytest.approx(0.05**3 / 2, rel=0.1)  # uniform in the ball: |e|^d is uniform
        assert value.std() == pytest.approx(0.1 / np.sqrt(3), rel=0.05)
    again, _, _ = errors(kind(f, 0.1, 0.05, 1), f, points(3, 5))
    assert np.array_equal(again, value[:5])


def test_quantised_oracle():
    f = quadratic(4, 10.0, 0)
    noisy = Quantized(f, 4, 6, 8.0, 4.0)
    assert noisy.eta_f == pytest.approx(8.0 / 63)
    assert noisy.eta_g == pytest.approx(2.0 * 4.0 / 63)
    value, grad, _ = errors(noisy, f, points())
    assert 0.9 * noisy.eta_f < np.abs(value).max() <= noisy.eta_f + 1e-12
    assert 0.4 * noisy.eta_g < grad.max() <= noisy.eta_g + 1e-12
    assert abs(Quantized(f, 4, 1, 8.0, 4.0)(np.ones(4))[0]) == 8.0  # one bit: the ends of the range
    levels = {round(noisy(x)[0] / (16.0 / 63) + 31.5, 6) % 1 for x in points()}
    assert levels == {0.0}


def test_truncated_inner_solve():
    """phi(x, y) = |y - Bx|^2_H / 2 + |x|^2 / 2 has f(x) = |x|^2 / 2 and grad_x phi = x - B'H(y - Bx)."""
    gen = np.random.default_rng(0)
    b, h = gen.standard_normal((3, 2)), np.diag([1.0, 2.0, 4.0])

    def partial(x, y):
        gap = y - b @ x
        return float(gap @ h @ gap) / 2 + float(x @ x) / 2, x - b.T @ h @ gap, h @ gap

    f = lambda x: (float(x @ x) / 2, x)  # noqa: E731
    coupling, radius = float(np.linalg.norm(b.T @ h, 2)), float(np.linalg.norm(b, 2) * np.sqrt(2))
    previous = np.inf
    for steps in (0, 3, 12):
        noisy = Truncated(partial, np.zeros(3), steps, mu=1.0, smoothness=4.0, coupling=coupling, radius=radius)
        assert noisy.eta_g == pytest.approx(coupling * 0.75**steps * radius)
        assert noisy.eta_f == pytest.approx(2.0 * (0.75**steps * radius) ** 2)
        value, grad, _ = errors(noisy, f, points(2))
        assert value.min() >= -1e-12
        assert value.max() <= noisy.eta_f
        assert grad.max() <= noisy.eta_g
        assert grad.max() < previous
        previous = grad.max()


def test_finite_differences():
    f = quadratic(3, 5.0, 0)
    noisy = FiniteDifference(lambda x: f(x)[0] + 1e-4 * np.sin(1e3 * x.sum()), 3, 0.02, 1.0, 1e-4)
    assert noisy.eta_g == pytest.approx(np.sqrt(3) * (0.01 + 0.005))
    value, grad, _ = errors(noisy, f, points(3))
    assert np.abs(value).max() <= noisy.eta_f
    assert grad.max() <= noisy.eta_g
    oracle = LipschitzOracle(noisy, 3, noisy.eta_f, noisy.eta_g, 4.0)
    for x in points(3, 40):
        oracle(x)
    assert oracle.n_inconsistent == 0


# ---- estimation


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), mode=st.sampled_from(MODES), smooth=st.booleans())
def test_estimates_are_lower_bounds_that_explain_the_data(seed, mode, smooth):
    f = quadratic(2, 5.0, seed) if smooth else max_affine(2, 6, seed)
    x = points(2, 12, seed)
    spread = float(np.linalg.norm(x[:, None] - x[None], axis=-1).max())
    noisy = Adversarial(f, 0.1, 0.1 / spread, mode, seed + 1)
    data = [noisy(p) for p in x]
    values, grads = np.array([v for v, _ in data]), np.array([g for _, g in data])
    fit = smallest_errors(x, values, grads, ratio=1 / spread, smoothness=1.0 if smooth else None)
    assert fit.eta_f <= 0.1 + 1e-6
    assert fit.eta_g == pytest.approx(fit.eta_f / spread)
    recorded = iter(data)
    oracle = LipschitzOracle(lambda p: next(recorded), 2, fit.eta_f + 1e-7, fit.eta_g + 1e-7, spread, strict=True)
    for p in x:
        oracle(p)  # strict: raises if the estimate did not explain the data
    if smooth:
        assert fit.eta_f >= smallest_errors(x, values, grads, ratio=1 / spread).eta_f - 1e-6


def test_estimate_by_hand():
    """Values 0, 1, 0 at -1, 0, 1 with slope 0: the chord forces the middle down by eta and the ends up by eta."""
    x, values, grads = np.array([[-1.0], [0.0], [1.0]]), np.array([0.0, 1.0, 0.0]), np.zeros((3, 1))
    assert smallest_errors(x, values, grads, ratio=0.0).eta_f == pytest.approx(0.5, abs=1e-6)
    # with ratio r the slopes at the middle may tilt, but one tilt cannot serve both sides: still 1/2 by the chord
    assert smallest_errors(x, values, grads, ratio=1.0).eta_f == pytest.approx(0.5, abs=1e-6)
    assert smallest_errors(x[:1], values[:1], grads[:1], ratio=1.0).eta_f == 0.0
    # slopes 0 at 0 and 2 at 1: convexity wants F_1 - F_0 in [0, 2], 2-smoothness F_1 - F_0 = 1
    x, values, grads = np.array([[0.0], [1.0]]), np.array([0.0, 2.0]), np.array([[0.0], [2.0]])
    assert smallest_errors(x, values, grads, ratio=0.0).eta_f == pytest.approx(0.0, abs=1e-6)
    assert smallest_errors(x, values, grads, ratio=0.0, smoothness=2.0).eta_f == pytest.approx(0.5, abs=1e-6)
    with pytest.raises(ValueError, match="no errors with eta_g = 0 eta_f explain"):
        smallest_errors(x, values, grads, ratio=0.0, smoothness=1.0)


def test_estimate_from_repeats():
    f = quadratic(2, 5.0, 0)
    x = points(2, 8)
    fit = estimate_errors(Sign(f, 0.1, 0.05, 0), x, reps=6)
    assert fit.repeats_f == pytest.approx(0.1)
    assert 0.03 < fit.repeats_g <= 0.05
    assert 0.1 - 1e-6 <= fit.eta_f <= 0.1 + 1e-6
    exact = estimate_errors(f, x, reps=2, smoothness=1.0)
    assert max(exact.eta_f, exact.eta_g, exact.repeats_f, exact.repeats_g) <= 1e-6
    single = estimate_errors(Sign(f, 0.1, 0.05, 0), x[:1], reps=4, ratio=0.5)
    assert single.repeats_f in (0.0, pytest.approx(0.1))
    with pytest.raises(ValueError, match="x must have shape"):
        estimate_errors(f, x[0])
    with pytest.raises(ValueError, match="at query 2"):
        estimate_errors(lambda p: (np.nan, p) if p[0] == x[0, 0] and next(turn) else f(p), x, reps=2)


turn = iter([0, 1] * 9)
