"""The numbers that can be worked out by hand; the fast exact solvers against the literal equations."""

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from suwr import DiscreteProblem, _reference, exact_leakage, make_and_toy
from suwr.cells import groups

LN2 = math.log(2)
CUBE = np.array(list(itertools.product((0, 1), repeat=3)))
UNIFORM = np.full(8, 1 / 8)
SETS = _reference.subsets(3)
MASKS = np.array([[j in s for j in range(3)] for s in SETS])


def leakage(choose, y):
    """Of a selector x -> {S: probability}, and labels x -> 0 or 1; against the literal definitions too."""
    p_y = np.eye(2)[[y(x) for x in CUBE]]
    p_mask = np.array([[choose(x).get(s, 0.0) for s in SETS] for x in CUBE])
    found = exact_leakage(CUBE, UNIFORM, p_y, p_mask, MASKS)
    proba = lambda s, x: choose(x).get(s, 0.0)  # noqa: E731
    assert found.feature == pytest.approx(_reference.feature_leakage(CUBE, UNIFORM, proba), abs=1e-12)
    assert found.label == pytest.approx(_reference.label_leakage(CUBE, UNIFORM, p_y, proba), abs=1e-12)
    return found


def xor(x):
    return int(x[0] ^ x[1])


# ---- leakage of selectors whose leakage is known


def test_label_coded_selector():
    found = leakage(lambda x: {(0,): 1.0} if xor(x) == 0 else {(1,): 1.0}, xor)
    assert found == pytest.approx((LN2, LN2, 0.5, 0.5))
    assert found.feature == pytest.approx(0.693147, abs=1e-6)


def test_constant_selector():
    assert leakage(lambda x: {(0, 1): 1.0}, xor) == pytest.approx((0, 0, 0, 0))


def test_feature_leakage_without_label_leakage():
    found = leakage(lambda x: {(0,): 1.0} if x[2] else {(0, 1): 1.0}, lambda x: int(x[0]))
    assert found.feature == pytest.approx(LN2)
    assert found.label == pytest.approx(0, abs=1e-12)
    assert found.worst_label_gap == pytest.approx(0, abs=1e-12)
    assert found.worst_gap == pytest.approx(0.5)


def test_tree_selector():
    assert leakage(lambda x: {(0, 2): 1.0} if x[2] else {(1, 2): 1.0}, xor) == pytest.approx((0, 0, 0, 0))


def test_random_masks_leak_nothing():
    weights = np.random.default_rng(0).dirichlet(np.ones(8))
    assert leakage(lambda x: dict(zip(SETS, weights, strict=True)), xor) == pytest.approx((0, 0, 0, 0), abs=1e-12)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_label_leakage_is_at_most_feature_leakage(seed):
    gen = np.random.default_rng(seed)
    table = gen.dirichlet(np.full(8, 0.3), 8)
    p, p_y = gen.dirichlet(np.ones(8)), gen.dirichlet(np.ones(3), 8)
    found = exact_leakage(CUBE, p, p_y, table, MASKS)
    assert 0 <= found.label <= found.feature + 1e-12
    proba = lambda s, x: table[int(x @ [4, 2, 1]), SETS.index(s)]  # noqa: E731
    assert found.feature == pytest.approx(_reference.feature_leakage(CUBE, p, proba), abs=1e-10)
    assert found.label == pytest.approx(_reference.label_leakage(CUBE, p, p_y, proba), abs=1e-10)


def test_points_without_weight_do_not_count():
    p = np.array([0.5, 0.5, 0, 0, 0, 0, 0, 0])
    table = np.eye(8)[[1] * 8]
    table[5] = np.eye(8)[2]  # a point of weight zero does as it likes
    assert exact_leakage(CUBE, p, np.eye(2)[CUBE[:, 0]], table, MASKS) == pytest.approx((0, 0, 0, 0))


# ---- optima

AND4 = {0.05: 0.15, 0.1: 0.30, 0.2: 0.515625, 0.5: 0.984375}
AND6 = {0.2: 0.836719, 0.5: 1.863281, 1.0: 2.671875}


def toy(d):
    X, y = make_and_toy(d)
    return DiscreteProblem.from_arrays(X, y)


@pytest.mark.parametrize("lam", AND4)
def test_and_toy_4(lam):
    problem = toy(4)
    assert problem.solve_lp(lam).objective == pytest.approx(AND4[lam], abs=1e-9)
    assert problem.solve_sequential(lam).objective == pytest.approx(AND4[lam], abs=1e-9)
    X, y = make_and_toy(4)
    assert _reference.best_sequential(X, np.full(16, 1 / 16), y, lam) == pytest.approx(AND4[lam], abs=1e-9)
    assert _reference.best_without_leakage(X, np.full(16, 1 / 16), y, lam) == pytest.approx(AND4[lam], abs=1e-9)


def test_and_toy_4_in_detail():
    found = toy(4).solve_sequential(0.2)
    assert (found.loss, found.n_features) == pytest.approx((0.140625, 1.875))
    found = toy(4).solve_lp(0.2)
    assert (found.loss, found.n_features) == pytest.approx((0.140625, 1.875))
    nothing = toy(4).solve(0.5)
    assert nothing.n_features == 0
    assert nothing.objective == pytest.approx(np.var(make_and_toy(4)[1]))


@pytest.mark.parametrize("lam", AND6)
def test_and_toy_6(lam):
    problem = toy(6)
    assert problem.n_cells == 3**6
    assert problem.solve_lp(lam).objective == pytest.approx(AND6[lam], abs=1e-6)
    assert problem.solve_sequential(lam).objective == pytest.approx(AND6[lam], abs=1e-6)


def cyclic():
    """y is constant on the cells (x0, x1) = (0, 1), (x1, x2) = (0, 1), (x2, x0) = (0, 1), distinct elsewhere."""
    y = [
        0 if (x[0], x[1]) == (0, 1) else 1 if (x[1], x[2]) == (0, 1) else 2 if (x[2], x[0]) == (0, 1) else 3 + x[0]
        for x in CUBE
    ]
    return DiscreteProblem.from_arrays(CUBE, np.array(y), loss="log")


@pytest.mark.parametrize("lam", [0.1, 0.01])
def test_the_cyclic_partition_is_beyond_every_sequential_policy(lam):
    problem = cyclic()
    lp, dp = problem.solve_lp(lam), problem.solve_sequential(lam)
    assert lp.objective == pytest.approx(2.25 * lam)
    assert dp.objective == pytest.approx(2.5 * lam)
    table = problem.solve_lp(lam).masks_proba(CUBE)
    found = exact_leakage(CUBE, UNIFORM, np.full((8, 1), 1.0), table, lp.masks)
    assert found.feature == pytest.approx(0, abs=1e-9)


def test_a_label_coded_selector_beats_the_honest_front():
    """XOR: one feature and no error, where the optimum without leakage at one feature still has H(y) = ln 2."""
    y = np.array([xor(x) for x in CUBE])
    honest = DiscreteProblem.from_arrays(CUBE, y, loss="log", max_features=1)
    assert honest.solve_lp(0.0).loss == pytest.approx(LN2)
    assert honest.solve_sequential(0.0).loss == pytest.approx(LN2)
    assert DiscreteProblem.from_arrays(CUBE, y, loss="log").solve_lp(0.01).loss == pytest.approx(0)


def random_problem(seed, d=3, values=3, n=40):
    gen = np.random.default_rng(seed)
    X = gen.integers(0, values, (n, d))
    return X, gen.integers(0, 3, n), gen.random(n), gen


@pytest.mark.parametrize("loss", ["squared", "log", "zero_one"])
@pytest.mark.parametrize("seed", range(3))
def test_solvers_equal_the_literal_equations(seed, loss):
    X, y, w, gen = random_problem(seed)
    lam = float(gen.choice([0.02, 0.1, 0.3]))
    problem = DiscreteProblem.from_arrays(X, y, w, loss=loss)
    target = problem._cells[0]
    assert target.mass == pytest.approx([1.0])
    rows, p = problem.support, problem.weights
    expected = y if loss == "squared" else np.eye(3)[y]
    literal = expected.astype(float)
    # the literal solvers take every row as an atom of its own: equal rows share their cell
    lp = _reference.best_without_leakage(X, w / w.sum(), literal, lam, loss)
    dp = _reference.best_sequential(X, w / w.sum(), literal, lam, loss)
    ours_lp, ours_dp = problem.solve_lp(lam), problem.solve_sequential(lam)
    assert ours_lp.objective == pytest.approx(lp, abs=1e-9)
    assert ours_dp.objective == pytest.approx(dp, abs=1e-9)
    assert ours_lp.objective <= ours_dp.objective + 1e-9
    for found in (ours_lp, ours_dp):
        assert found.objective == pytest.approx(found.loss + lam * found.n_features)
        table = found.masks_proba(rows)
        assert table.sum(axis=1) == pytest.approx(np.ones(len(rows)))
        leaked = exact_leakage(rows, p, np.ones((len(rows), 1)), table, found.masks)
        assert leaked.feature == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize("solver", ["lp", "sequential"])
def test_equivariance_and_limits(solver):
    X, y, w, _ = random_problem(7)
    base = DiscreteProblem.from_arrays(X, y, w)
    order = np.array([2, 0, 1])
    turned = DiscreteProblem.from_arrays(X[:, order], y, w)
    longer = DiscreteProblem.from_arrays(np.column_stack([X, np.zeros(len(X), int)]), y, w)
    for lam in (0.0, 0.03, 0.2):
        wanted = base.solve(lam, solver)
        for other in (turned, longer):
            assert other.solve(lam, solver).objective == pytest.approx(wanted.objective, abs=1e-9)
    free = base.solve(0.0, solver)
    inside = sum(
        w[rows].sum() / w.sum() * _reference.cell_loss(w[rows], y[rows].astype(float), "squared")
        for rows in ([i for i in range(len(X)) if (X[i] == x).all()] for x in base.support)
    )
    assert free.objective == pytest.approx(inside)
    costly = base.solve(1e6, solver)
    mean = np.average(y, weights=w)
    assert costly.objective == pytest.approx(np.average((y - mean) ** 2, weights=w))
    assert costly.n_features == 0


def test_costs_forced_forbidden_and_budget():
    X, y = make_and_toy(4)
    plain = DiscreteProblem.from_arrays(X, y)
    for solver in ("lp", "sequential"):
        doubled = DiscreteProblem.from_arrays(X, y, costs=[2.0] * 4).solve(0.05, solver)
        assert doubled.objective == pytest.approx(plain.solve(0.1, solver).objective)
        assert doubled.cost == pytest.approx(2 * doubled.n_features)
        banned = DiscreteProblem.from_arrays(X, y, forbidden=[0]).solve(0.05, solver)
        assert not banned.local_support(X)[:, 0].any()
        held = DiscreteProblem.from_arrays(X, y, forced=[0]).solve(10.0, solver)
        assert held.n_features == pytest.approx(1)
        assert held.local_support(X)[:, 0].all()
        few = DiscreteProblem.from_arrays(X, y, max_features=2).solve(0.0, solver)
        assert few.local_support(X).sum(axis=1).max() <= 2
        # paying for one column only makes the others come first
        dear = DiscreteProblem.from_arrays(X, y, costs=[1, 0, 0, 0]).solve(100.0, solver)
        assert not dear.local_support(X)[:, 0].any()
        assert dear.cost == pytest.approx(0, abs=1e-9)


def test_auto_says_which_solver():
    assert toy(4).solve(0.1).solver == "lp"
    big = DiscreteProblem.from_arrays(*make_and_toy(10), max_features=6)
    assert big.n_cells > 10_000
    assert big.solve(0.1).solver == "sequential"


def test_pareto_is_convex_and_falls():
    front = toy(4).pareto([0.5, 0.05, 0.2, 0.1])
    assert [point.lam for point in front] == [0.05, 0.1, 0.2, 0.5]
    features, losses = [p.n_features for p in front], [p.loss for p in front]
    assert features == sorted(features, reverse=True)
    assert losses == sorted(losses)


def test_solution_predicts_and_becomes_a_tree():
    X, y = make_and_toy(4)
    for loss in ("squared", "log"):
        problem = DiscreteProblem.from_arrays(X, y, loss=loss)
        found = problem.solve_sequential(0.05)
        tree = found.to_tree()
        assert tree.predict(X) == pytest.approx(found.predict(X))
        mass = tree.depth
        assert mass <= 4
        if loss == "squared":
            assert np.mean((tree.predict(X)[:, 0] - y) ** 2) == pytest.approx(found.loss)
        else:
            assert list(problem.classes_) == [0, 1, 4]
            assert "1 " in tree.to_text()
    with pytest.raises(ValueError, match="sequential"):
        toy(4).solve_lp(0.1).to_tree()


def test_sizes_that_are_promised():
    """The program at d = 8 (6561 cells) in 2 s, the recursion at d = 10 (59 049 cells) in 3 s."""
    begun = time.process_time()
    found = toy(8).solve(0.2)
    assert found.solver == "lp"
    assert time.process_time() - begun < 2
    begun = time.process_time()
    large = toy(10)
    assert large.n_cells == 59_049
    assert large.solve(0.2).solver == "sequential"
    assert time.process_time() - begun < 3


def test_many_values_in_many_columns_do_not_overflow():
    gen = np.random.default_rng(0)
    X = np.column_stack([gen.permutation(60) for _ in range(9)])
    problem = DiscreteProblem.from_arrays(X, gen.normal(size=60), max_features=2, forced=[0])
    assert problem.solve_sequential(0.0).loss == pytest.approx(0, abs=1e-12)
    coded = np.tile(gen.integers(0, 2**20, (50, 1)), (1, 4))
    assert len(np.unique(groups(coded))) == len(np.unique(coded[:, 0]))


def test_ties_are_broken_in_favour_of_stopping():
    same = DiscreteProblem.from_arrays(CUBE, np.ones(8))
    assert same.solve_sequential(0.0).n_features == 0
    assert same.solve_sequential(0.0).to_tree().n_leaves == 1
