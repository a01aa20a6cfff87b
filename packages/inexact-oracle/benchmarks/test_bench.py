"""Duels: the wrapper against what a user would write or call instead, on equal replies."""

import clarabel
import cvxpy as cp
import numpy as np
from inexact_oracle import LipschitzOracle, SmoothOracle
from inexact_oracle.algorithms.cuts import cut_pool
from inexact_oracle.data import max_affine, quadratic
from inexact_oracle.noise import Sign
from scipy import optimize, sparse

# ---- a whole run without a solve: what a query costs


def trajectory(queries):
    """Points near each other and their exact answers, d = 50."""
    f, gen = max_affine(50, 200, 0), np.random.default_rng(1)
    points = np.cumsum(gen.standard_normal((queries, 50)), axis=0) / 50
    return points, [f(x) for x in points]


def wrapped_run(data):
    points, answers = data
    stream = iter(answers)
    oracle = LipschitzOracle(lambda x: next(stream), 50, 0.0, 0.0, np.inf)
    return np.array([oracle(x)[0] for x in points])


def stacking_run(data):
    """The wrapper as one would write it first: arrays stacked anew at every query."""
    points, answers = data
    x, v, s = np.empty((0, 50)), np.empty(0), np.empty((0, 50))
    values = []
    for point, (value, grad) in zip(points, answers, strict=True):
        if len(v):
            heights = v + np.sum(s * (point - x), axis=1)
            top = int(np.argmax(heights))
            if heights[top] >= value:
                value, grad = float(heights[top]), s[top]
            else:
                value = min(value, float(np.min(v + (point - x) @ grad)))
        x, v, s = np.vstack([x, point]), np.append(v, value), np.vstack([s, grad])
        values.append(value)
    return np.array(values)


def numpy_run(data):
    """The same arithmetic in preallocated arrays, without checks, cache, lock or log: the floor in numpy."""
    points, answers = data
    n = len(points)
    x, v, s, c = np.empty((n, 50)), np.empty(n), np.empty((n, 50)), np.empty(n)
    for t, (point, (value, grad)) in enumerate(zip(points, answers, strict=True)):
        if t:
            heights = s[:t] @ point + c[:t]
            top = int(heights.argmax())
            if heights[top] >= value:
                value, grad = float(heights[top]), s[top]
            else:
                value = min(value, float((v[:t] - x[:t] @ grad).min() + grad @ point))
        x[t], v[t], s[t], c[t] = point, value, grad, value - grad @ point
    return v


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_queries_without_a_solve(duel):
    duel(
        sizes=[500, 2000],
        make=trajectory,
        ours=wrapped_run,
        peers={"arrays stacked anew": stacking_run, "bare numpy": numpy_run},
        same=close,
        target={"arrays stacked anew": 5.0, "bare numpy": 0.5},
        growth="n^2",
    )


# ---- corrections of the piecewise-linear wrapper


def corrections(queries, dim=10, eta=0.1):
    """A wrapper with that many replies, and ten raw answers that it must correct."""
    f, gen = max_affine(dim, 20, 0), np.random.default_rng(1)
    noisy = Sign(f, eta, eta / 2, 2)
    oracle = LipschitzOracle(noisy, dim, eta, eta / 2, 10.0)
    points = 0.3 * gen.standard_normal((queries, dim))
    for x in points:
        oracle(x)
    tasks = []
    while len(tasks) < 10:
        x = 0.3 * gen.standard_normal(dim)
        raw = noisy(x)
        before = oracle.n_solves
        oracle._choose(x, *raw)
        if oracle.n_solves > before:
            tasks.append((x, *raw))
    return oracle, oracle.replies, tasks, eta / 2


def corrected(data):
    oracle, _, tasks, _ = data
    return np.array([oracle._choose(*task).value for task in tasks])


def floor(seen, x, value):
    """A value below the model is answered by the model, as the wrapper does."""
    return max(value, float(np.max(seen.V + np.sum(seen.s * (x - seen.x), axis=1))))


def cvxpy_rebuilt(data):
    _, seen, tasks, radius = data
    values = []
    for x, raw_f, raw_g in tasks:
        v, u = cp.Variable(), cp.Variable(len(x))
        rules = [v <= raw_f, cp.norm(u) <= radius, v <= seen.V + (x - seen.x) @ raw_g + (x - seen.x) @ u]
        cp.Problem(cp.Maximize(v), rules).solve(solver=cp.CLARABEL)
        values.append(floor(seen, x, float(v.value)))
    return np.array(values)


def cvxpy_parametrised(data):
    """Stated once for the size at hand; only numbers change from query to query."""
    _, seen, tasks, radius = data
    v, u = cp.Variable(), cp.Variable(seen.x.shape[1])
    heights, steps, target = cp.Parameter(len(seen.V)), cp.Parameter(seen.x.shape), cp.Parameter()
    problem = cp.Problem(cp.Maximize(v), [v <= target, cp.norm(u) <= radius, v <= heights + steps @ u])
    values = []
    for x, raw_f, raw_g in tasks:
        steps.value, heights.value, target.value = x - seen.x, seen.V + (x - seen.x) @ raw_g, raw_f
        problem.solve(solver=cp.CLARABEL)
        values.append(floor(seen, x, float(v.value)))
    return np.array(values)


def clarabel_all_rows(data):
    """The conic solver itself, with every row."""
    _, seen, tasks, radius = data
    values, (n, d) = [], seen.x.shape
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    ball = np.hstack([np.zeros((d + 1, 1)), np.vstack([np.zeros((1, d)), -np.eye(d)])])
    cones = [clarabel.NonnegativeConeT(n + 1), clarabel.SecondOrderConeT(d + 1)]
    for x, raw_f, raw_g in tasks:
        steps = x - seen.x
        rows = np.vstack([np.hstack([np.ones((n, 1)), -steps]), np.eye(1, d + 1), ball])
        sides = np.concatenate([seen.V + steps @ raw_g, [raw_f, radius], np.zeros(d)])
        nothing = sparse.csc_matrix((d + 1, d + 1))
        found = clarabel.DefaultSolver(
            nothing, -np.eye(1, d + 1)[0], sparse.csc_matrix(rows), sides, cones, settings
        ).solve()
        values.append(floor(seen, x, found.x[0]))
    return np.array(values)


def close_values(a, b):
    np.testing.assert_allclose(a, b, atol=1e-5)


def test_corrections(duel):
    duel(
        sizes=[100, 1000],
        make=corrections,
        ours=corrected,
        peers={
            "cvxpy, rebuilt": cvxpy_rebuilt,
            "cvxpy, parametrised": cvxpy_parametrised,
            "Clarabel, all rows": clarabel_all_rows,
        },
        same=close_values,
        target={"cvxpy, rebuilt": 20.0, "cvxpy, parametrised": 5.0, "Clarabel, all rows": 2.0},
        growth="n",
    )


# ---- corrections of the smooth wrapper


def smooth_corrections(queries, dim=8, eta=0.01):
    f, gen = quadratic(dim, 100.0, 0), np.random.default_rng(1)
    noisy = Sign(f, eta, eta, 2)
    oracle = SmoothOracle(noisy, dim, eta, eta, 1.0)
    for x in 0.5 * gen.standard_normal((queries, dim)):
        oracle(x)
    tasks = []
    while len(tasks) < 4:
        x = 0.3 * gen.standard_normal(dim)
        raw = noisy(x)
        before = oracle.n_solves
        oracle._choose(x, *raw)
        if oracle.n_solves > before:
            tasks.append((x, *raw))
    return oracle, oracle.replies, tasks, eta


def cost(value, grad, raw_f, raw_g, eta):
    return abs(value - raw_f) / eta + np.linalg.norm(grad - raw_g) / eta


def smooth_corrected(data):
    oracle, _, tasks, eta = data
    return np.array([cost(*oracle._choose(*task)[:2], *task[1:], eta) for task in tasks])


def smooth_cvxpy(data):
    """The 2(t - 1) inequalities as they stand, in units of eta."""
    _, seen, tasks, eta = data
    costs = []
    for x, raw_f, raw_g in tasks:
        v, w, p, q = cp.Variable(), cp.Variable(len(x)), cp.Variable(), cp.Variable()
        rules = [cp.abs(v) <= p, cp.norm(w) <= q]
        for xi, vi, si in zip(seen.x, seen.V, seen.s, strict=True):
            bend = cp.sum_squares((raw_g - si + eta * w) / np.sqrt(4.0 * eta))
            rules.append((raw_f - vi - si @ (x - xi)) / eta + v >= bend)
            rules.append((vi - raw_f + raw_g @ (x - xi)) / eta + (x - xi) @ w - v >= bend)
        problem = cp.Problem(cp.Minimize(p + q), rules)
        costs.append(float(problem.solve(solver=cp.CLARABEL)))
    return np.array(costs)


def smooth_clarabel(data):
    """The conic solver itself, one cone of size d + 2 for every inequality."""
    _, seen, tasks, eta = data
    costs, (n, d) = [], seen.x.shape
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    scale = eta / np.sqrt(4.0 * eta)
    for x, raw_f, raw_g in tasks:
        steps = x - seen.x
        blocks, sides = [], []
        for i in range(n):
            bend = np.hstack([np.zeros((d, 1)), -2.0 * scale * np.eye(d), np.zeros((d, 2))])
            shift = 2.0 * (raw_g - seen.s[i]) / np.sqrt(4.0 * eta)
            below = (raw_f - seen.V[i] - seen.s[i] @ steps[i]) / eta
            above = (seen.V[i] - raw_f + raw_g @ steps[i]) / eta
            for sign, slope, room in ((1.0, np.zeros(d), below), (-1.0, steps[i], above)):
                row = np.concatenate([[-sign], -slope, [0.0, 0.0]])
                blocks.append(np.vstack([row, row, bend]))
                sides.append(np.concatenate([[room + 1.0, room - 1.0], shift]))
        ends = np.zeros((2, d + 3))
        ends[0, [0, d + 1]], ends[1, [0, d + 1]] = (1.0, -1.0), (-1.0, -1.0)
        norm = np.zeros((d + 1, d + 3))
        norm[0, d + 2], norm[1:, 1 : d + 1] = -1.0, -np.eye(d)
        cones = [clarabel.SecondOrderConeT(d + 2)] * (2 * n)
        cones += [clarabel.NonnegativeConeT(2), clarabel.SecondOrderConeT(d + 1)]
        rows = sparse.csc_matrix(np.vstack([*blocks, ends, norm]))
        goal = np.concatenate([np.zeros(d + 1), [1.0, 1.0]])
        b = np.concatenate([*sides, np.zeros(d + 3)])
        nothing = sparse.csc_matrix((d + 3, d + 3))
        costs.append(clarabel.DefaultSolver(nothing, goal, rows, b, cones, settings).solve().obj_val)
    return np.array(costs)


def close_costs(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-3)


def test_smooth_corrections(duel):
    duel(
        sizes=[15, 60],
        make=smooth_corrections,
        ours=smooth_corrected,
        peers={"cvxpy, rebuilt": smooth_cvxpy, "Clarabel, 2(t-1) cones": smooth_clarabel},
        same=close_costs,
        target={"cvxpy, rebuilt": 20.0, "Clarabel, 2(t-1) cones": 3.0},
        growth="n^2",
    )


# ---- linear masters of a run of cutting planes


def cuts(count, dim=20):
    f, gen = quadratic(dim, 100.0, 0), np.random.default_rng(1)
    return [(x, *f(x)) for x in gen.uniform(-1, 1, (count, dim))]


def masters(data, solver):
    """The lower bound after each cut."""
    dim = len(data[0][0])
    pool, values = cut_pool(dim, solver), []
    for cut in data:
        pool.add(*cut)
        values.append(pool.minimum(-np.ones(dim), np.ones(dim))[0])
    return np.array(values)


def close_bounds(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


def test_warm_masters(duel):
    duel(
        sizes=[150, 500],
        make=cuts,
        ours=lambda data: masters(data, "highspy"),
        peers={"scipy from scratch": lambda data: masters(data, "scipy")},
        same=close_bounds,
        target={"scipy from scratch": 3.0},
    )


# ---- what the wrapper costs a solver that needs none


def test_overhead_on_exact_data(duel):
    """The same answers, so the same iterates; the ratio below one is the price, for a function that costs nothing."""
    duel(
        sizes=[20],
        make=lambda dim: (quadratic(dim, 100.0, 0), -np.ones(dim)),
        ours=lambda data: minimise(SmoothOracle(data[0], len(data[1]), 0.0, 0.0, 1.0), data[1]),
        peers={"scipy without wrapper": lambda data: minimise(data[0], data[1])},
        same=lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-9),
    )


def minimise(oracle, start):
    return optimize.minimize(oracle, start, jac=True, method="L-BFGS-B").x
