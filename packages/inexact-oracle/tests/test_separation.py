"""The separation wrapper: its claims are properties, proved for exact and noisy oracles before anything uses them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inexact_oracle import ConsistencyWarning, InconsistentOracleError, LipschitzOracle, SeparationOracle
from inexact_oracle import _reference as ref
from inexact_oracle.algorithms import ellipsoid
from inexact_oracle.data import NoisySeparation, Polytope, tilted

seeds = st.integers(0, 10_000)


def polytope(seed: int, dim: int, rows: int = 10) -> Polytope:
    gen = np.random.default_rng(seed)
    a = gen.standard_normal((rows, dim))
    return Polytope(a / np.linalg.norm(a, axis=1, keepdims=True), gen.uniform(0.3, 0.8, rows))


def queries(seed: int, count: int, dim: int) -> np.ndarray:
    """Points of the unit ball, some of them close to others."""
    gen = np.random.default_rng(seed + 1)
    x = gen.standard_normal((count, dim))
    x *= gen.random((count, 1)) / np.linalg.norm(x, axis=1, keepdims=True)
    near = gen.integers(0, count // 2, count - count // 2)
    x[count // 2 :] = 0.7 * x[near] + 0.05 * x[count // 2 :]
    return x


@settings(max_examples=60, deadline=None)
@given(seed=seeds, dim=st.integers(2, 4), eta=st.sampled_from([0.0, 0.05, 0.3, 0.8]))
def test_consistent_close_and_deep_points_kept(seed, dim, eta):
    """rho = 0: no declared-feasible point is ever cut; |s - g| <= 2 eta_s; points at depth e_s D satisfy all cuts."""
    body = polytope(seed, dim)
    truth = {}

    noisy = NoisySeparation(body, eta, 0.0, seed + 99)

    def oracle(x):
        truth[x.tobytes()] = body.a[int((body.a @ x - body.b).argmax())]
        return noisy(x)

    wrapper = SeparationOracle(oracle, dim, eta)
    for x in queries(seed, 50, dim):
        s = wrapper(x)
        again = wrapper(x)
        assert (s is None) == (again is None)
        if s is None:
            continue
        assert np.array_equal(s, again)
        assert np.linalg.norm(s) == pytest.approx(1.0, abs=1e-12)
        if (body.a @ x - body.b).max() > 0:  # not an old cut given to a point of C
            g = truth[x.tobytes()]
            assert np.linalg.norm(s - g) <= 2 * eta + 1e-6
    assert wrapper.check_consistency() <= 0.0
    assert wrapper.n_inconsistent == wrapper.n_failures == 0
    assert wrapper.slope_error <= 2 * eta + 1e-6
    normals, at = wrapper.cuts
    deep = queries(seed + 7, 300, dim)
    depth = (body.b - deep @ body.a.T).min(axis=1)
    kept = deep[depth >= wrapper.slope_error * 2.0]
    if len(normals):
        assert ((kept @ normals.T - np.einsum("ij,ij->i", normals, at)) <= 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(seed=seeds, dim=st.integers(2, 3), eta=st.sampled_from([0.0, 0.1, 0.3]), margin=st.sampled_from([0.02, 0.2]))
def test_false_positives_stay_consistent(seed, dim, eta, margin):
    """rho > 0: consistency holds, declared points are within rho of C, and deep points are kept at the recorded e_s."""
    body = polytope(seed, dim)
    oracle = NoisySeparation(body, eta, margin, seed + 99)
    rho = oracle.rho(1.0)
    wrapper = SeparationOracle(oracle, dim, eta, rho=rho)
    for x in queries(seed, 50, dim):
        wrapper(x)
    assert wrapper.check_consistency() <= 0.0
    assert max((body.distance(z) for z in wrapper.feasible_points), default=0.0) <= rho + 1e-9
    normals, at = wrapper.cuts
    deep = queries(seed + 7, 300, dim)
    depth = (body.b - deep @ body.a.T).min(axis=1)
    kept = deep[depth >= wrapper.slope_error * 2.0]
    if len(normals):
        assert ((kept @ normals.T - np.einsum("ij,ij->i", normals, at)) <= 1e-9).all()


def test_earlier_cuts_bind_points_called_feasible_later():
    """A tilted cut takes a corner of C off; a later query there is answered by that cut."""
    tilt = np.array([np.cos(0.4), np.sin(0.4)])
    answers = iter([tilt, None, None])
    wrapper = SeparationOracle(lambda x: next(answers), 2, 0.4)
    first = wrapper(np.array([1.0, 0.0]))
    assert np.array_equal(first, tilt)
    corner = wrapper(np.array([0.9, 0.9]))  # <tilt, (0.9, 0.9) - (1, 0)> > 0
    assert np.array_equal(corner, tilt)
    assert wrapper(np.array([0.0, 0.0])) is None
    assert wrapper.check_consistency() < 0.0


def test_normal_by_hand_and_by_reference():
    """With z = (0, 1) feasible, a normal at x = 0 must have s_2 <= 0: (0.6, 0.8) turns into (1, 0)."""
    answers = iter([None, np.array([0.6, 0.8])])
    wrapper = SeparationOracle(lambda x: next(answers), 2, 0.95)
    assert wrapper(np.array([0.0, 1.0])) is None
    s = wrapper(np.array([0.0, 0.0]))
    assert s == pytest.approx([1.0, 0.0], abs=1e-8)
    assert s[1] <= 0.0
    assert wrapper.n_solves == 1
    gen = np.random.default_rng(0)
    feasible = gen.standard_normal((6, 3)) + np.array([3.0, 0.0, 0.0])
    raw = tilted(np.array([-1.0, 0.0, 0.0]), 0.7, gen)
    answers = iter([None] * 6 + [raw])
    wrapper = SeparationOracle(lambda x: next(answers), 3, 0.7)
    for z in feasible:
        wrapper(z)
    x = np.array([-0.1, 0.2, 0.1])
    assert wrapper(x) == pytest.approx(ref.consistent_normal(raw, x, feasible), abs=1e-6)


def test_point_in_the_hull_of_feasible_points_is_feasible():
    answers = iter([None, None, np.array([1.0, 0.0])])
    wrapper = SeparationOracle(lambda x: next(answers), 2, 0.1, rho=0.5)
    wrapper(np.array([-1.0, 0.0]))
    wrapper(np.array([1.0, 0.0]))
    assert wrapper(np.array([0.0, 0.0])) is None
    assert len(wrapper.feasible_points) == 3


def test_contradiction_is_reported():
    def answers():
        return iter([None, None, np.array([1.0, 0.0])])

    for strict in (False, True):
        stream = answers()
        wrapper = SeparationOracle(lambda x, s=stream: next(s), 2, 0.1, strict=strict)
        wrapper(np.array([-1.0, 0.0]))
        wrapper(np.array([1.0, 0.0]))
        x = np.array([0.0, 0.0])
        if strict:
            with pytest.raises(InconsistentOracleError, match="no separating normal"):
                wrapper(x)
            assert wrapper.n_queries == 2
        else:
            with pytest.warns(ConsistencyWarning, match="too small"):
                wrapper(x)
            assert wrapper.n_inconsistent == 1


def test_solver_failure_still_gives_a_consistent_normal(monkeypatch):
    answers = iter([None, np.array([0.6, 0.8])])
    wrapper = SeparationOracle(lambda x: next(answers), 2, 0.95)
    wrapper(np.array([0.0, 1.0]))
    monkeypatch.setattr("inexact_oracle.conic.nearest_in_cone", lambda *a: None)
    with pytest.warns(ConsistencyWarning):
        s = wrapper(np.array([0.0, 0.0]))
    assert s[1] < 0
    assert wrapper.n_failures == 1
    assert wrapper.check_consistency() <= 0.0


def test_value_loss_formula_and_its_condition():
    wrapper = SeparationOracle(lambda x: np.array([1.0, 0.0]), 2, 0.05)
    assert wrapper.value_loss(3.0, 2.0, 0.5) == pytest.approx(3.0 * 0.05 * 2.0 * 2.0 / 0.5)
    assert wrapper.value_loss(3.0, 2.0, 0.09) == np.inf
    assert wrapper.check_consistency() == 0.0


def test_ellipsoid_over_a_noisy_polytope_loses_no_more_than_the_bound():
    body, eta = polytope(1, 3), 0.02
    goal = np.array([1.0, 0.5, -0.5])
    f = lambda x: (float(goal @ x), goal.copy())  # noqa: E731
    wrapper = SeparationOracle(NoisySeparation(body, eta, 0.0, 2), 3, eta)
    result = ellipsoid(f, np.zeros(3), 1.5, 400, separation=wrapper)
    exact = ellipsoid(f, np.zeros(3), 1.5, 400, separation=NoisySeparation(body, 0.0, 0.0, 2))
    loss = wrapper.value_loss(float(np.linalg.norm(goal)), 3.0, float(body.b.min()))
    assert result.value - exact.value <= loss
    assert body.distance(result.x) <= 1e-12
    assert wrapper.check_consistency() <= 0.0


def test_load_continues_identically(tmp_path):
    body = polytope(3, 3)
    points = queries(3, 60, 3)

    def oracle(x):  # deterministic, so that its stream needs no restoring
        return NoisySeparation(body, 0.1, 0.0, int(1e6 * abs(x[0])))(x)

    first = SeparationOracle(oracle, 3, 0.1)
    for x in points[:30]:
        first(x)
    second = SeparationOracle.load(first.save(tmp_path / "cuts"), oracle)
    for x in points:
        a, b = first(x), second(x)
        assert (a is None and b is None) or np.array_equal(a, b)
    assert first.n_queries == second.n_queries
    assert first.slope_error == second.slope_error
    first.reset()
    assert first.n_queries == 0
    assert len(first.cuts[0]) == 0
    with pytest.raises(ValueError, match="must hold a LipschitzOracle"):
        LipschitzOracle.load(tmp_path / "cuts", lambda x: (0.0, x))
