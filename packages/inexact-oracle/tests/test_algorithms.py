"""Every algorithm against its own guarantee on exact data, and against solutions that are known."""

import numpy as np
import pytest
from inexact_oracle.algorithms import (
    Box,
    L1Ball,
    NuclearBall,
    Simplex,
    accelerated_gradient,
    center_of_gravity,
    ellipsoid,
    frank_wolfe,
    kelley,
    level_bundle,
    localization,
    outer_approximation,
    projected_subgradient,
    scipy_minimize,
)
from inexact_oracle.algorithms.cuts import cut_pool
from inexact_oracle.data import (
    LeastAbsolute,
    breast_cancer,
    max_affine,
    quadratic,
    unit_commitment,
)
from scipy import optimize


def first(x):
    return float(x[0]), np.eye(len(x))[0]


@pytest.mark.parametrize("lipschitz", [None, "known"])
def test_projected_subgradient_guarantee(lipschitz):
    f = max_affine(4, 10, 0)
    best = f.minimum_on_ball(1.0)
    for steps in (10, 100, 400):
        given = f.lipschitz if lipschitz else None
        result = projected_subgradient(f, np.zeros(4), 1.0, steps, lipschitz=given)
        assert 0 <= result.value - best + 1e-9 <= f.lipschitz / np.sqrt(steps) + 1e-9
        assert np.linalg.norm(result.x) <= 1 + 1e-12
        assert result.nquery == len(result.history.values) == steps
        assert result.value == result.history.values.min() == result.history.upper[-1]


def test_projected_subgradient_step_is_literal():
    """x_1 = P(x_0 - R / (M sqrt(T)) s), with |s| in place of an unknown M."""
    seen = []

    def f(x):
        seen.append(x.copy())
        return float(3 * x[0]), np.array([3.0, 0.0])

    projected_subgradient(f, np.zeros(2), 2.0, 4, lipschitz=6.0)
    assert seen[1] == pytest.approx([-2.0 / (6 * 2) * 3, 0.0])
    seen.clear()
    projected_subgradient(f, np.zeros(2), 2.0, 4)
    assert [x[0] for x in seen] == pytest.approx([0.0, -1.0, -2.0, -2.0])
    seen.clear()
    projected_subgradient(f, np.zeros(2), 2.0, 3, project=lambda x: np.maximum(x, -0.1))
    assert [x[0] for x in seen] == pytest.approx([0.0, -0.1, -0.1])


def test_a_zero_subgradient_proves_the_minimum():
    flat = lambda x: (1.0, np.zeros(2))  # noqa: E731
    for result in (projected_subgradient(flat, np.zeros(2), 1.0, 9), center_of_gravity(flat, (-1, 1), 9, dim=2)):
        assert (result.status, result.lower, result.nquery) == ("converged", 1.0, 1)
    assert ellipsoid(flat, np.zeros(2), 1.0, 9, tol=1e-9).status == "converged"
    assert ellipsoid(flat, np.zeros(2), 1.0, 9, tol=-1.0).nquery == 1


def test_accelerated_gradient_guarantee():
    f = quadratic(6, 1000.0, 1)
    start = np.full(6, 2.0)
    distance = float((start - f.centre) @ (start - f.centre))
    for steps in (1, 10, 60, 200):
        result = accelerated_gradient(f, start, steps, smoothness=1.0)
        assert result.value <= 2 * distance / (steps + 1) ** 2
        assert result.nquery == steps + 1
    inside = accelerated_gradient(f, start, 2000, smoothness=1.0, project=lambda x: np.maximum(x, 0.4))
    truth = scipy_minimize(f, start, bounds=(0.4, 5.0), options={"ftol": 1e-14, "gtol": 1e-10})
    assert inside.value == pytest.approx(truth.value, abs=1e-6)


def test_frank_wolfe_first_steps_are_literal():
    """x_1 is the first vertex (step 1), x_2 = x_1 + 2/3 (v - x_1)."""
    seen = []

    def f(x):
        seen.append(x.copy())
        return 5.0 * len(seen), np.array([1.0, 2.0]) if len(seen) == 1 else np.array([2.0, 1.0])

    frank_wolfe(f, Simplex(2), 3)
    assert np.array(seen) == pytest.approx(np.array([[0.5, 0.5], [1.0, 0.0], [1 / 3, 2 / 3]]))
    assert frank_wolfe(first, Box([-1.0, -1.0], [1.0, 1.0]), 50, tol=1e-9).status == "converged"
    assert frank_wolfe(first, Box([-1.0, -1.0], [1.0, 1.0]), 5, x0=[-1.0, 0.0], tol=1e-9).nquery == 1


@pytest.mark.parametrize(
    "lmo", [Simplex(6, 2.0), L1Ball(6, 2.0), Box(-np.ones(6), np.arange(6)), NuclearBall((2, 3), 2.0)]
)
def test_linear_minimisers_beat_every_point_of_their_set(lmo):
    gen = np.random.default_rng(0)
    for _ in range(20):
        grad = gen.standard_normal(6)
        v = lmo(grad)
        if isinstance(lmo, NuclearBall):
            others = gen.standard_normal((50, 2, 3))
            others *= 2.0 / np.linalg.svd(others, compute_uv=False).sum(1)[:, None, None]
            others = others.reshape(50, 6)
            assert np.linalg.svd(v.reshape(2, 3), compute_uv=False).sum() == pytest.approx(2.0)
        elif isinstance(lmo, Box):
            others = gen.uniform(lmo.lower, lmo.upper, (50, 6))
        else:
            others = gen.exponential(size=(50, 6))
            others *= 2.0 / others.sum(1, keepdims=True)
            if isinstance(lmo, L1Ball):
                others *= gen.choice([-1, 1], (50, 6))
            assert np.abs(v).sum() == pytest.approx(2.0)
        assert (grad @ v <= others @ grad + 1e-12).all()
        apart = np.linalg.norm(others[:, None] - others[None], axis=-1).max()
        assert apart <= lmo.diameter + 1e-12
        assert grad @ v <= grad @ lmo.start() + 1e-12
    assert lmo(np.arange(1, 7)).dtype == np.float64


def test_frank_wolfe_recovers_a_low_rank_matrix():
    gen = np.random.default_rng(0)
    target = np.outer(gen.standard_normal(4), gen.standard_normal(5))
    radius = float(np.linalg.svd(target, compute_uv=False).sum())
    f = lambda x: (0.5 * float((x - target.ravel()) @ (x - target.ravel())), x - target.ravel())  # noqa: E731
    result = frank_wolfe(f, NuclearBall((4, 5), radius), 400)
    assert result.value <= 2 * (2 * radius) ** 2 / 401
    assert result.value < 1e-3 * float(target.ravel() @ target.ravel())


@pytest.mark.parametrize("method", [kelley, level_bundle])
@pytest.mark.parametrize("dim", [1, 2, 5])
@pytest.mark.parametrize("solver", ["scipy", "highspy"])
def test_cutting_planes_close_the_gap(method, dim, solver):
    f = max_affine(dim, 10, dim)
    best = f.minimum_on_box(-1.0, 1.0)
    result = method(f, (-1.0, 1.0), 200, dim=dim, solver=solver)
    assert result.status == "converged"
    assert result.value == pytest.approx(best, abs=2e-6)
    assert result.lower == pytest.approx(best, abs=2e-6)
    assert (np.diff(result.history.lower) >= 0).all()
    assert (np.diff(result.history.upper) <= 0).all()
    early = method(f, (-np.ones(dim), np.ones(dim)), 2)
    assert early.status in ("budget", "converged")
    assert early.lower <= best + 1e-9
    assert early.value >= best - 1e-9
    assert method(f, (-1.0, 1.0), 1, x0=np.full(dim, 7.0), dim=dim).x == pytest.approx(np.ones(dim))


def test_a_warm_master_finds_what_a_cold_one_finds(capfd):
    """Cuts one by one and in bunches, boxes that move, entries that are fixed; and not a line on standard output."""
    gen, dim = np.random.default_rng(0), 4
    warm, cold = cut_pool(dim, "highspy"), cut_pool(dim, "scipy")
    low, high = -np.ones(dim), np.full(dim, 2.0)
    for step in range(30):
        for _ in range(1 + step % 3):
            x, slope = gen.uniform(-1, 2, dim), gen.standard_normal(dim)
            warm.add(x, float(slope @ slope), slope)
            cold.add(x, float(slope @ slope), slope)
        fixed = gen.integers(0, 2, dim).astype(bool) & (step % 2 == 1)
        point = gen.uniform(-1, 2, dim)
        box = np.where(fixed, point, low), np.where(fixed, point, high)
        (ours, where), (theirs, _) = warm.minimum(*box), cold.minimum(*box)
        assert ours == pytest.approx(theirs, abs=1e-7)
        slopes, offsets = np.array(cold.slopes), np.array(cold.offsets)
        assert np.max(slopes @ where + offsets) == pytest.approx(theirs, abs=1e-6)
        assert np.array_equal(np.clip(where, *box), where)
    assert type(warm) is not type(cold)
    assert capfd.readouterr() == ("", "")


def test_a_warm_master_that_cannot_be_solved_says_so():
    pool = cut_pool(1, "highspy")
    pool.add(np.zeros(1), 0.0, np.ones(1))
    with pytest.raises(RuntimeError, match=r"was not solved: \w"):
        pool.minimum(np.array([-np.inf]), np.array([np.inf]))


def test_level_bundle_projects_onto_the_level_set():
    """f = |x| on [-1, 2] from 2: lower bound -1.. by one cut is -1, level (2 - 1)/2 = 0.5, reached at x = 0.5."""
    seen = []

    def f(x):
        seen.append(float(x[0]))
        return abs(float(x[0])), np.sign(x)

    level_bundle(f, (-1.0, 2.0), 2, x0=[2.0], dim=1)
    assert seen == pytest.approx([2.0, 0.5])


def test_ellipsoid_guarantee_and_lower_bound():
    for dim in (1, 2, 4):
        f = max_affine(dim, 10, 3)
        best = f.minimum_on_ball(1.0)
        for steps in (20, 200):
            result = ellipsoid(f, np.zeros(dim), 1.0, steps)
            assert result.value - best <= 2 * f.lipschitz * np.exp(-steps / (2 * dim * (dim + 1))) + 1e-9
            assert result.lower <= best + 1e-9
            assert np.linalg.norm(result.x) <= 1.0 + 1e-12
    assert ellipsoid(max_affine(2, 6, 0), np.zeros(2), 1.0, 5000, tol=1e-6).status == "converged"


def test_ellipsoid_step_is_literal():
    """d = 2, unit ball, cut (1, 0): centre (-1/3, 0), axes 2/3 and sqrt(4/3)."""
    seen = []

    def f(x):
        seen.append(x.copy())
        return float(x[0]), np.array([1.0, 0.0])

    result = ellipsoid(f, np.zeros(2), 1.0, 2)
    assert seen[1] == pytest.approx([-1 / 3, 0.0])
    assert result.lower == pytest.approx(-1.0)


@pytest.mark.parametrize("dim", [1, 2, 3, 4])
def test_center_of_gravity_guarantee(dim):
    f = max_affine(dim, 10, 1)
    best = f.minimum_on_box(-1.0, 1.0)
    spread = max(f(x)[0] for x in np.random.default_rng(0).uniform(-1, 1, (2000, dim))) - best
    for steps in (4, 12):
        result = center_of_gravity(f, (-1.0, 1.0), steps, dim=dim, samples=1000)
        assert result.value - best <= (1 - 1 / np.e) ** (steps / dim) * spread * (1.1 if dim > 3 else 1.0)


def test_center_of_gravity_centroid_is_exact():
    """Half of a square, then a quarter: (0, 0), (-1/2, 0), (-1/2, -1/2); a simplex has the mean of its corners."""
    seen = []

    def f(x):
        seen.append(x.copy())
        return 0.0, np.eye(2)[len(seen) - 1] if len(seen) < 3 else np.array([1.0, 1.0])

    center_of_gravity(f, (-1.0, 1.0), 4, dim=2)
    assert np.array(seen[:3]) == pytest.approx(np.array([[0, 0], [-0.5, 0], [-0.5, -0.5]]))
    assert seen[3] == pytest.approx([-1 + 1 / 3, -1 + 1 / 3])  # triangle (-1,-1), (0,-1), (-1,0)


def test_center_of_gravity_samples_the_centroid_in_higher_dimensions():
    """Two cuts leave [-1, 0] x [0, 1] x [-1, 1]^2; the third query is its centroid, by hit-and-run samples."""
    seen = []

    def f(x):
        seen.append(x.copy())
        return 0.0, (1 if len(seen) == 1 else -1) * np.eye(4)[len(seen) - 1]

    center_of_gravity(f, (-1.0, 1.0), 3, dim=4, samples=4000, seed=1)
    assert np.array(seen) == pytest.approx(np.array([[0, 0, 0, 0], [-0.5, 0, 0, 0], [-0.5, 0.5, 0, 0]]), abs=0.15)


@pytest.mark.parametrize("seed", [0, 1])
def test_hit_and_run_stays_inside_and_means_the_centroid(seed):
    """The simplex {y >= 0, sum y <= 1} in four dimensions has its centroid at 1/5 in every entry."""
    rows, sides = np.vstack([-np.eye(4), np.ones((1, 4)) / 2]), np.array([0.0, 0.0, 0.0, 0.0, 0.5])
    inside = localization._deepest(rows, sides)
    assert inside == pytest.approx(np.full(4, 1.0 / 6.0), abs=1e-8)  # the ball's centre: r = 1/6 = (1 - 4 r) / 2
    mean = localization._sampled_centroid(rows, sides, inside, 5000, np.random.default_rng(seed))
    assert mean == pytest.approx(np.full(4, 0.2), abs=0.02)


def test_center_of_gravity_stops_at_rounding():
    result = center_of_gravity(lambda x: (abs(float(x[0]) - 0.3), np.sign(x - 0.3)), (-1.0, 1.0), 200, dim=1)
    assert result.nquery < 60
    assert result.value < 1e-8


def test_outer_approximation_against_enumeration():
    for seed in range(4):
        f = max_affine(4, 10, seed)
        kinds = np.array([1, 1, 0, 0])
        best = f.minimum_on_box(-2.3, 2.7, kinds)
        result = outer_approximation(f, kinds, (-2.3, 2.7))
        assert result.status == "converged"
        assert result.value == pytest.approx(best, abs=1e-5)
        assert result.lower <= best + 1e-6
        assert np.array_equal(result.x[:2], np.rint(result.x[:2]))
        spent = outer_approximation(f, kinds, (-2.3, 2.7), 3)
        assert (spent.status, spent.nquery) == ("budget", 3) or spent.status == "converged"
        assert spent.lower <= best + 1e-6 <= spent.value + 2e-6


def test_outer_approximation_unit_commitment():
    """Against all 2^n on/off patterns, the power by scipy's SLSQP on the smooth part."""
    f, n = unit_commitment(3, 1), 3
    result = outer_approximation(f, [1] * n + [0] * n, (np.zeros(2 * n), np.ones(2 * n)), 400, tol=1e-4)
    best = np.inf
    for pattern in np.ndindex(*(2,) * n):
        on = np.array(pattern, dtype=float)
        short = max(f.demand - float(f.cap @ on), 0.0)
        solve = optimize.minimize(
            lambda p: float(f.rate @ p**2),
            f.cap * on / 2,
            bounds=[(0, c) for c in f.cap * on],
            constraints={"type": "ineq", "fun": lambda p, short=short: p.sum() - (f.demand - short)},
        )
        best = min(best, float(f.start @ on + f.rate @ solve.x**2) + f.penalty * short)
    assert result.status == "converged"
    assert result.value == pytest.approx(best, abs=1e-3)


def test_scipy_adapter_reports_what_scipy_says():
    f = quadratic(3, 10.0, 0)
    good = scipy_minimize(f, np.ones(3), method="SLSQP", options={"ftol": 1e-12})
    assert good.status.startswith("success: ")
    assert good.value == pytest.approx(0.0, abs=1e-8)
    assert good.lower == -np.inf
    poor = scipy_minimize(f, np.ones(3), method="BFGS", options={"maxiter": 1})
    assert poor.status.startswith("failure: ")
    assert scipy_minimize(f, np.ones(3), bounds=(0.9, [2.0, 3.0, 4.0])).x.min() >= 0.9


@pytest.mark.parametrize("method", ["BFGS", "SLSQP", "L-BFGS-B"])
def test_scipy_adapter_returns_scipys_own_point(method):
    """The solver's last point, also where an earlier query had a lower value by its noise."""
    f = quadratic(3, 10.0, 0)
    lucky = iter([-100.0])
    oracle = lambda x: (next(lucky, f(x)[0]), f(x)[1])  # noqa: E731
    start = np.ones(3)
    ours = scipy_minimize(oracle, start, method=method)
    lucky = iter([-100.0])
    theirs = optimize.minimize(oracle, start, jac=True, method=method)
    assert np.array_equal(ours.x, theirs.x)
    assert ours.value == theirs.fun
    assert ours.status.endswith(theirs.message)
    oracle = lambda x: (f(x)[0] - 100.0 * (np.abs(x - start).max() < 0.5 and not np.array_equal(x, start)), f(x)[1])  # noqa: E731
    ours = scipy_minimize(oracle, start, method=method, options={"maxiter": 3})
    theirs = optimize.minimize(oracle, start, jac=True, method=method, options={"maxiter": 3})
    assert np.array_equal(ours.x, theirs.x)


def test_real_convex_losses_agree_across_algorithms():
    logistic = breast_cancer()
    assert logistic.smoothness == pytest.approx(1.0)
    small = scipy_minimize(logistic, np.zeros(30), bounds=(-1, 1), options={"maxiter": 2000, "ftol": 1e-13})
    fast = accelerated_gradient(logistic, np.zeros(30), 800, smoothness=1.0, project=lambda x: np.clip(x, -1, 1))
    assert fast.value == pytest.approx(small.value, abs=1e-3)
    gen = np.random.default_rng(0)
    a = gen.standard_normal((40, 3))
    absolute = LeastAbsolute(a, a @ [0.5, -0.2, 0.1])
    assert kelley(absolute, (-1, 1), 200, dim=3).x == pytest.approx([0.5, -0.2, 0.1], abs=1e-4)


def test_boxes_are_entered_at_their_centre():
    bounds = (np.array([0.0, 1.0]), np.array([3.0, 5.0]))
    for method in (kelley, level_bundle, center_of_gravity):
        assert method(first, bounds, 1).x == pytest.approx([1.5, 3.0])
    assert outer_approximation(first, [1, 0], bounds, 1).x == pytest.approx([1.0, 3.0])
    assert Box(*bounds).start() == pytest.approx([1.5, 3.0])
