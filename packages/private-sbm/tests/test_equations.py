"""The exact checks: literal numbers, the literal reference, and the two facts that privacy rests on."""

from itertools import combinations, pairwise
from math import exp, inf, log, sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from private_sbm import _reference as ref
from private_sbm import (
    certificate,
    exact,
    general_certificate,
    margin,
    models,
    rate,
    release_probability,
    spectral_recover,
    threshold_T,
)
from private_sbm.certificates import FLOOR, ROUNDING, dual_diagonal, hopeless
from private_sbm.exact import elliptope_matrix, feasible, general_matrix, least_excess
from private_sbm.exact import general as scs_general
from private_sbm.general import GENERAL_FLOOR, canonical_clusters, certified, proposals, solve_general
from private_sbm.margins import sweep
from private_sbm.mechanism import discrete_tail, laplace_tail, usable_margin
from private_sbm.models import asymmetric_sbm, censored_sbm, general_sbm
from private_sbm.penalty import tau_penalty
from private_sbm.solvers import canonical, solve
from private_sbm.thresholds import (
    asymmetric_exponent,
    censored_exponent,
    general_exponent,
    private_threshold,
    tau,
    upper_rate,
)
from scipy import sparse, stats
from scipy.sparse.linalg import ArpackNoConvergence

quick = settings(max_examples=30, deadline=None)
seeds = st.integers(0, 10_000)


def symmetric(upper):
    a = np.triu(np.asarray(upper, dtype=float), 1)
    return a + a.T


def block(sizes):
    labels = np.repeat(range(len(sizes)), sizes)
    return symmetric(labels[:, None] == labels)


def signs(sizes):
    return np.repeat([1.0, -1.0], sizes)


def graph(gen, n, signed=False):
    """A random graph with or without two planted sides, of any density; some with isolated vertices."""
    s = gen.choice([-1, 1], n)
    inside, across = gen.uniform(0.3, 1.0), gen.uniform(0.0, 0.5)
    a = gen.random((n, n)) < np.where(np.outer(s, s) > 0, inside, across)
    if gen.random() < 0.2:
        a[:, gen.integers(n)] = False
    if signed:
        a = a * np.where(gen.random((n, n)) < gen.uniform(0, 0.3), -1, 1) * np.outer(s, s)
    a = symmetric(a)
    return a


# ---- 1, 2, 3: cliques


@pytest.mark.parametrize("m", [2, 3, 5, 9])
@pytest.mark.parametrize("lam", [0.05, 0.3, 0.5, 0.9])
def test_two_cliques(m, lam):
    a, s = block([m, m]), signs([m, m])
    assert certificate(a, lam, s).lam2 == pytest.approx(min(m, 2 * m * lam))
    for i in range(m):
        a[i, m + i] = a[m + i, i] = 1.0
    assert certificate(a, lam, s).lam2 == pytest.approx(min(m - 2, 2 * m * lam - 2))


@pytest.mark.parametrize(("k", "m", "lam"), [(3, 5, 0.2), (2, 7, 0.1), (6, 4, 0.5), (5, 9, 0.3)])
def test_two_cliques_of_different_sizes(k, m, lam):
    found = certificate(block([k, m]), lam, signs([k, m]))
    first, second = (k - 1) - lam * (k - m), (m - 1) - lam * (m - k)
    assert found.d == pytest.approx(np.repeat([first, second], [k, m]))
    assert found.lam2 == pytest.approx(min(first + 1, second + 1, lam * (k + m)))
    assert margin(block([k, m]), lam)[0] == pytest.approx((found.lam2 - FLOOR) / 2)


# ---- 4: censored complete graphs


@pytest.mark.parametrize("n", [4, 6, 11])
def test_censored_complete_graph(n):
    s = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    a = symmetric(np.outer(s, s))
    assert certificate(a, 0.0, s).lam2 == pytest.approx(n)
    a[0, 1] = a[1, 0] = -a[0, 1]
    assert certificate(a, 0.0, s).lam2 == pytest.approx(n - 4)
    for neighbor, step in (("edge", 2), ("relabel", 4)):
        value, labels = margin(a, 0.0, model="censored", neighbor=neighbor)
        assert value == pytest.approx(max(0.0, (n - 4 - FLOOR) / step))
        assert (labels is None) == (n == 4)


# ---- 5, 6: rates and exponents


@given(st.floats(0.1, 30), st.floats(0.1, 30))
@quick
def test_rate(x, y):
    assert rate(x, y, x - y) == 0
    assert rate(x, y, x - y + 1) == 0
    if x > y:
        assert rate(x, y, 0) == pytest.approx((sqrt(x) - sqrt(y)) ** 2)
    values = [rate(x, y, c) for c in np.linspace(x - y, x - y - 10, 20)]
    assert all(b > a for a, b in pairwise(values))


def test_rate_is_the_exponent_of_the_probability():
    x, y, c = 6.0, 2.0, 1.0
    probabilities = []
    for n in (1e3, 1e6):
        scale = log(n)
        probabilities.append(stats.skellam.cdf(c * scale, x * scale, y * scale))
    slope = -log(probabilities[1] / probabilities[0]) / log(1e3)
    assert slope == pytest.approx(rate(x, y, c), abs=0.25)


def test_rate_without_a_second_variable():
    assert rate(4.0, 0.0, -1.0) == inf
    assert rate(4.0, 0.0, 0.0) == 4.0
    assert rate(4.0, 0.0, 1.0) == pytest.approx(3 - log(4))
    assert rate(4.0, 1e-9, 1.0) == pytest.approx(3 - log(4), abs=1e-6)
    assert upper_rate(2.0, 5.0) == pytest.approx(-3 + 5 * log(2.5))
    assert upper_rate(2.0, 1.0) == 0.0


def test_exponent_is_the_ch_divergence():
    gen = np.random.default_rng(0)
    for _ in range(50):
        rho, b = gen.uniform(0.05, 0.95), gen.uniform(0.2, 5)
        a = b + gen.uniform(0.1, 20)
        value = asymmetric_exponent(rho, a, b)
        assert value == pytest.approx(ref.ch_divergence(rho, a, b), abs=1e-8)
        assert value == pytest.approx(asymmetric_exponent(1 - rho, a, b))
        assert asymmetric_exponent(0.5, a, b) == pytest.approx((sqrt(a) - sqrt(b)) ** 2 / 2)
        assert censored_exponent(a, 0.1) == pytest.approx(a * (sqrt(0.9) - sqrt(0.1)) ** 2)
        t = tau(a, b)
        assert general_exponent(rho, a, b) == pytest.approx(rho * (a - t * log(np.e * a / t)))
        assert general_exponent(rho, a, b) == pytest.approx(rho * (b - t * log(np.e * b / t)))
    assert tau(3.0, 3.0) == 3.0


@pytest.mark.parametrize(
    ("a", "b", "eta"), [(14, 3, 2.02), (10, 2, 1.53), (9, 2, 1.26), (8, 2, 1.0), (7, 2, 0.76), (8, 3, 0.6)]
)
def test_exponents_of_the_phase_claim(a, b, eta):
    assert asymmetric_exponent(0.3, a, b) == pytest.approx(eta, abs=0.006)


def test_private_thresholds():
    eps = private_threshold("asymmetric", a=30, b=2, gamma=2)
    assert asymmetric_exponent(0.5, 30, 2, 4 / eps) == pytest.approx(1) or eps == pytest.approx(4 / (tau(30, 2) - 2))
    assert private_threshold("asymmetric", a=30, b=2, gamma=4) == pytest.approx(2 * eps)
    assert private_threshold("asymmetric", a=7, b=2, rho=0.3) == inf
    unequal = private_threshold("asymmetric", a=9, b=2, rho=0.3, gamma=1.5)
    assert asymmetric_exponent(0.3, 9, 2, 3 / unequal) == pytest.approx(1)
    marked = private_threshold("censored", a=10, xi=0.1)
    assert censored_exponent(10, 0.1, 4 / marked) == pytest.approx(1)
    exact = private_threshold("general", a=40, b=2, rho=1 / 3)
    assert general_exponent(1 / 3, 40, 2, 6 / exact, 2 / exact) == pytest.approx(1)
    assert private_threshold("general", a=40, b=2, rho=1 / 3, outliers=False) < exact


def test_threshold_meets_the_delocalised_direction():
    """Dense and almost separated: c* exceeds tau - b, which then decides."""
    a, b = 60.0, 20.0
    limit = tau(a, b) - b
    eps = private_threshold("asymmetric", a=a, b=b, gamma=2)
    assert eps == pytest.approx(4 / min(limit, 4 / eps))
    if asymmetric_exponent(0.5, a, b, limit) >= 1:
        assert eps == pytest.approx(4 / limit)


# ---- 8: the update of S


@given(seeds)
@quick
def test_one_edge_is_a_rank_one_update(seed):
    gen = np.random.default_rng(seed)
    n = int(gen.integers(3, 9))
    a, s, lam = graph(gen, n), gen.choice([-1, 1], n), gen.uniform(0, 1)
    before = ref.dual_matrix(a, lam, s)
    for i, j in combinations(range(n), 2):
        other = a.copy()
        other[i, j] = other[j, i] = 1 - a[i, j]
        v = np.zeros(n)
        v[i], v[j] = 1.0, -s[i] * s[j]
        change = (other[i, j] - a[i, j]) * s[i] * s[j] * np.outer(v, v)
        assert ref.dual_matrix(other, lam, s) - before == pytest.approx(change)


# ---- certificates and solvers against the literal reference


@given(seeds)
@quick
def test_certificate_equals_the_reference(seed):
    gen = np.random.default_rng(seed)
    n = int(gen.integers(3, 12))
    a, s, lam = graph(gen, n), gen.choice([-1, 1], n), gen.uniform(0, 1)
    found = certificate(sparse.csr_array(a), lam, s)
    assert found.lam2 == pytest.approx(ref.lam2(a, lam, s), abs=1e-9)
    assert np.diag(ref.dual_matrix(a, lam, s)) == pytest.approx(found.d + lam)
    if found.lam2 < float(np.diag(ref.dual_matrix(a, lam, s)).min()):
        assert abs(found.vec @ s) < 1e-6
        assert found.vec @ ref.dual_matrix(a, lam, s) @ found.vec == pytest.approx(found.lam2)
    if hopeless(a, lam, s.astype(float)):
        assert found.lam2 <= FLOOR + 1e-12


def test_lanczos_equals_the_dense_certificate():
    a, truth = asymmetric_sbm(450, 0.4, 20, 2, 1, as_sparse=True)
    s, lam = 1.0 - 2 * truth, tau_penalty(450, 20, 2)
    dense = np.diag(dual_diagonal(a, lam, s)) - a.toarray() + lam
    q = np.linalg.qr(np.column_stack([s, np.eye(450)[:, 1:]]))[0][:, 1:]
    assert certificate(a, lam, s).lam2 == pytest.approx(np.linalg.eigvalsh(q.T @ dense @ q)[0], abs=ROUNDING)


@pytest.mark.parametrize("solver", ["staircase", "enumerate", "scs"])
@pytest.mark.parametrize("signed", [False, True])
def test_solvers_find_what_enumeration_of_all_sign_vectors_finds(solver, signed):
    gen = np.random.default_rng(7)
    found = 0
    for _ in range(12 if solver == "scs" else 80):
        n = int(gen.integers(3, 9))
        a, lam = graph(gen, n, signed), 0.0 if signed else gen.uniform(0.02, 0.9)
        value, best = ref.margin(a, lam)
        solution = solve(a, lam, solver)
        assert solution.decided
        if value > FLOOR / 2 + 1e-9:
            found += 1
            assert np.array_equal(canonical(solution.s), canonical(best))
            assert solution.certificate.lam2 == pytest.approx(2 * value, abs=1e-8)
        else:
            assert solution.s is None
    assert found >= 4


def test_power_only_proposes():
    a = np.zeros((6, 6))
    assert not solve(a, 0.3, "power").decided
    assert solve(a, 0.3, "staircase").decided


def test_staircase_proves_absence_at_size():
    """Far below the threshold, 300 vertices: no partition is optimal, and the factor proves it."""
    a, _ = asymmetric_sbm(300, 0.5, 4, 3, 0, as_sparse=True)
    found = solve(a, tau_penalty(300, 4, 3))
    assert found.s is None
    assert found.decided


def test_staircase_climbs_out_of_a_factor_of_too_few_columns():
    a, _ = asymmetric_sbm(60, 0.5, 4, 3, 0, as_sparse=True)
    narrow = np.ones((60, 2)) / sqrt(2)
    found = solve(a, tau_penalty(60, 4, 3), v0=narrow)
    assert found.decided
    assert found.v.shape[1] > 2


def test_warm_start_changes_nothing():
    a, _ = asymmetric_sbm(120, 0.5, 12, 2, 0, as_sparse=True)
    lams = np.linspace(0.1, 0.3, 5)
    assert sweep(a, lams) == pytest.approx([margin(a, lam)[0] for lam in lams], abs=1e-6)
    assert max(sweep(a, lams)) > 1


# ---- 7: exhaustive audit


@pytest.mark.parametrize("signed", [False, True])
def test_every_flip_of_small_graphs(signed):
    """All 28 neighbours: |dL| <= 1, different outputs only where both L <= 1, L equal to brute force."""
    gen = np.random.default_rng(3)
    neighbours = changed = 0
    for _ in range(12):
        a, lam = graph(gen, 8, signed), 0.0 if signed else gen.uniform(0.1, 0.6)
        if gen.random() < 0.6:
            a = block([4, 4]) * (np.outer(signs([4, 4]), signs([4, 4])) if signed else 1)
            i, j = gen.choice(8, 2, replace=False)
            a[i, j] = a[j, i] = 1 - a[i, j]
        base = solve(a, lam)
        own = 0.0 if base.s is None else (base.certificate.lam2 - FLOOR) / 2
        assert own == pytest.approx(max(0.0, ref.margin(a, lam)[0] - FLOOR / 2), abs=1e-8)
        for i, j in combinations(range(8), 2):
            other = a.copy()
            other[i, j] = other[j, i] = (0.0 if a[i, j] else gen.choice([-1.0, 1.0])) if signed else 1 - a[i, j]
            second = solve(other, lam, "enumerate" if (i + j) % 2 else "staircase")
            theirs = 0.0 if second.s is None else (second.certificate.lam2 - FLOOR) / 2
            assert abs(own - theirs) <= 1 + 1e-9
            same = (base.s is None) == (second.s is None) and (
                base.s is None or np.array_equal(canonical(base.s), canonical(second.s))
            )
            changed += not same
            assert same or max(own, theirs) <= 1 + 1e-9
            neighbours += 1
    assert neighbours == 336
    assert changed > 10


def test_flips_on_the_way_to_where_certificates_break():
    """3 000 random and adversarial neighbours of larger graphs, at a fixed partition: lam_2 moves by at most 2."""
    gen = np.random.default_rng(0)
    steps = []
    for start in range(6):
        a, truth = asymmetric_sbm(40, 0.4, 9, 1, start, as_sparse=True)
        a, s, lam = a.toarray(), 1.0 - 2 * truth, 0.35
        for step in range(500):
            found = certificate(a, lam, s)
            if step % 2:
                i, j = gen.choice(40, 2, replace=False)
            else:  # along the eigenvector: the pair with the greatest (v u)^2
                gain = (found.vec[:, None] - np.outer(s, s) * found.vec) ** 2
                gain = np.where((a > 0) == (np.outer(s, s) > 0), np.triu(gain, 1), -1.0)
                i, j = np.unravel_index(int(gain.argmax()), gain.shape)
            a[i, j] = a[j, i] = 1 - a[i, j]
            steps.append(certificate(a, lam, s).lam2 - found.lam2)
    assert len(steps) == 3000
    assert np.abs(steps).max() <= 2 + 1e-9
    assert min(steps) < -0.5


# ---- the general model


def general_graph(gen, n, outliers):
    labels = gen.integers(-1 if outliers else 0, 2, n)
    same = (labels[:, None] == labels) & (labels[:, None] >= 0)
    chance = np.where(same, gen.uniform(0.8, 1.0), gen.uniform(0.0, 0.2))
    return symmetric(gen.random((n, n)) < (chance if gen.random() < 0.7 else 0.5)), labels


@given(seeds)
@quick
def test_general_certificate_equals_the_reference(seed):
    gen = np.random.default_rng(seed)
    n, outliers = int(gen.integers(4, 14)), bool(gen.random() < 0.5)
    a, _ = general_graph(gen, n, outliers)
    labels = canonical_clusters(gen.integers(-1 if outliers else 0, 3, n))
    if labels.max() < 0:
        return
    lam, eta = gen.uniform(0.1, 0.9), gen.uniform(0.1, 2.0) if outliers else None
    found = general_certificate(sparse.csr_array(a), lam, labels, eta)
    want = ref.general_terms(a, lam, labels, eta)
    assert found.inner == pytest.approx(want["h"])
    assert found.slack == pytest.approx(want["slack"])
    if min(found.inner, found.slack) > GENERAL_FLOOR:
        assert found.size == pytest.approx(want["g"])
    if min(found.inner, found.slack, found.size) > GENERAL_FLOOR:
        assert found.spectral == pytest.approx(want["mu"], abs=1e-9)
    assert (found.margin > 0) == (min(want.values()) > GENERAL_FLOOR)


def test_general_terms_of_three_clusters():
    """Unequal blocks with noise: beta couples blocks of one cluster, and the whole matrix has its norm."""
    a, labels = general_sbm(60, [25, 20, 15], 13, 0.5, 3, as_sparse=True)
    found = general_certificate(a, 0.4, labels, None)
    want = ref.general_terms(a.toarray(), 0.4, labels, None)
    assert tuple(found) == pytest.approx((want["h"], want["slack"], want["mu"], want["g"]))
    assert found.margin > 0


def small_general_graphs(outliers):
    """Graph, lam, eta: two cliques of four with and without a flip; one cluster and outliers; random graphs."""
    gen = np.random.default_rng(5)
    found = [] if outliers else [(block([4, 4]), 0.66, None)]
    for trial in range(4 if outliers else 1):
        a = block([4, 4]) if not outliers else symmetric(np.pad(np.ones((4, 4)), (0, 2)))
        i, j = gen.choice(len(a), 2, replace=False)
        if trial:
            a[i, j] = a[j, i] = 1 - a[i, j]
        found.append((a, 0.3 if outliers else 0.64, 0.6 if outliers else None))
    for _ in range(5):
        a, _ = general_graph(gen, int(gen.integers(5, 7)), outliers)
        found.append((a, gen.uniform(0.2, 0.7), gen.uniform(0.2, 1.2) if outliers else None))
    return found


def test_general_terms_of_many_clusters():
    """More than 20 clusters take another way to the norm of B."""
    gen = np.random.default_rng(0)
    labels = np.repeat(range(22), 7)
    a = symmetric((labels[:, None] == labels) ^ (gen.random((154, 154)) < 0.004))
    found, want = general_certificate(a, 0.5, labels, None), ref.general_terms(a, 0.5, labels, None)
    assert want["g"] > GENERAL_FLOOR
    assert min(found.inner, found.slack) > GENERAL_FLOOR
    assert tuple(found) == pytest.approx((want["h"], want["slack"], want["mu"], want["g"]), abs=1e-7)


@pytest.mark.parametrize("outliers", [False, True])
def test_general_solver_finds_what_all_partitions_have(outliers):
    found = absent = 0
    for a, lam, eta in small_general_graphs(outliers):
        value, best = ref.general_margin(a, lam, eta)
        ours, program = solve_general(a, lam, eta), scs_general(a, lam, eta)
        assert ours.decided
        assert program.decided
        if value > GENERAL_FLOOR:
            found += 1
            assert np.array_equal(ours.labels, canonical_clusters(best))
            assert np.array_equal(program.labels, canonical_clusters(best))
            assert ours.certificate.margin == pytest.approx(value - GENERAL_FLOOR, abs=1e-8)
        else:
            absent += 1
            assert ours.labels is None
            assert program.labels is None
    assert found >= 2
    assert absent >= 2


@pytest.mark.parametrize("outliers", [False, True])
def test_excess_that_disproves_a_partition_is_below_the_gap_of_a_certified_one(outliers):
    """f times the excess never passes opt - value(Z), for feasible Z of many kinds and f the least certified term."""
    gen = np.random.default_rng(0)
    tight = []
    for _ in range(6):
        labels = np.repeat([0, 1, -1], [9, 8, 3 if outliers else 0])
        same = (labels[:, None] == labels) & (labels[:, None] >= 0)
        a = symmetric(same ^ (gen.random(same.shape) < 0.02))
        lam, eta = 0.45, 1.0 if outliers else None
        f = min(general_certificate(a, lam, labels, eta))
        assert f > GENERAL_FLOOR
        cost = a - lam - (eta or 0.0) * np.eye(len(a))
        for _ in range(60):
            other = canonical_clusters(gen.integers(-1 if outliers else 0, 3, len(a)))
            mixed = (other[:, None] == other) & (other[:, None] >= 0)
            share = gen.uniform(0, 0.3)
            z = (1 - share) * same + share * mixed
            if not outliers:
                np.fill_diagonal(z, 1.0)
            gap = float(np.vdot(cost, same - z))
            assert f * least_excess(z) <= gap + 1e-9
            tight.append(f * least_excess(z) / gap)
        assert least_excess(same.astype(float)) == 0
    assert max(tight) > 0.05


@pytest.mark.parametrize("eta", [None, 1.0])
def test_a_feasible_point_stays_and_others_are_moved_inside(eta):
    gen = np.random.default_rng(0)
    factor = gen.random((6, 3))
    z = factor @ factor.T
    root = np.sqrt(np.diag(z))
    inside = z / np.outer(root, root) * (1.0 if eta is None else 0.7)
    assert feasible(inside, eta) == pytest.approx(inside, abs=1e-9)
    moved = feasible(inside + 0.2 * gen.standard_normal((6, 6)), eta)
    assert np.linalg.eigvalsh(moved)[0] >= -1e-9
    assert moved.min() >= 0
    assert np.diag(moved) == pytest.approx(1) if eta is None else np.diag(moved).max() <= 1 + 1e-12


def test_absence_near_the_threshold_needs_no_fine_solution(monkeypatch):
    """A few vertices are torn between two clusters: entries of 1/2, and a gap too wide for the entry-wise disproof."""
    a, _ = general_sbm(50, [25, 25], 7, 3, 2, as_sparse=True)
    asked, run = [], exact._run
    monkeypatch.setattr(exact, "_run", lambda problem, accuracy: asked.append(accuracy) or run(problem, accuracy))
    found = scs_general(a, tau_penalty(50, 7, 3), None)
    assert found == (None, None, True)
    assert asked == list(exact.STAGES[:1])
    monkeypatch.setattr(exact, "least_excess", lambda z: 0.0)
    assert scs_general(a, tau_penalty(50, 7, 3), None).decided
    entries, asked[:] = asked[1:], []
    assert entries in (list(exact.STAGES[:2]), list(exact.STAGES[:3]))  # how much finer depends on the version of SCS
    monkeypatch.setattr(exact, "general_gap", lambda *args: 10.0)
    assert not scs_general(a, tau_penalty(50, 7, 3), None).decided
    assert asked == list(exact.STAGES)


def test_margin_of_every_model():
    a, truth = general_sbm(60, [30, 30], 12, 0.5, 0, as_sparse=True)
    value, labels = margin(a, 0.4, model="general")
    assert value == pytest.approx(general_certificate(a, 0.4, truth, None).margin)
    assert np.array_equal(labels, truth)
    assert margin(np.zeros((8, 8)), 0.4, model="general", eta=1.0, exact_limit=0) == (0.0, None)
    assert margin(np.zeros((2, 2)), 0.4) == (0.0, None)
    both, marks = margin(a, 0.4)
    assert both == pytest.approx((certificate(a, 0.4, 1.0 - 2 * truth).lam2 - FLOOR) / 2)
    assert np.array_equal(marks, truth)


def test_large_general_graphs_go_by_lanczos():
    a, truth = general_sbm(450, [200, 150], 30, 1, 0, as_sparse=True)
    want = ref_terms_by_projection(a.toarray(), 0.15, truth, 8.0)
    found = general_certificate(a, 0.15, truth, 8.0)
    assert found.spectral == pytest.approx(want, abs=1e-5)
    assert np.array_equal(solve_general(a, 0.15, 8.0).labels, truth)


def ref_terms_by_projection(a, lam, labels, eta):
    """(mu - beta) / 2 with the projection written out."""
    n, members = len(a), [labels == 0, labels == 1]
    to = np.column_stack([a[:, m].sum(axis=1) for m in members])
    own = np.where(labels >= 0, to[np.arange(n), labels] - lam * np.array([m.sum() for m in members])[labels], eta)
    project = np.eye(n) - sum(np.outer(m, m) / m.sum() for m in members)
    whole = project @ (np.diag(own) - a + lam) @ project
    mu = np.linalg.eigvalsh(whole + 1e3 * (np.eye(n) - project))[0]
    r, c = (lam * m.sum() - to[o, k] for k, (m, o) in ((1, (members[1], members[0])), (0, (members[0], members[1]))))
    return (mu - np.linalg.norm(r - r.mean()) * np.linalg.norm(c - c.mean()) / r.sum()) / 2


def test_iterations_that_do_not_converge_certify_nothing_and_tell_nothing(monkeypatch):
    def failing(*args, **options):
        raise ArpackNoConvergence("0/1 converged", np.zeros(0), np.zeros((450, 0)))

    a, truth = asymmetric_sbm(450, 0.4, 20, 2, 1, as_sparse=True)
    monkeypatch.setattr("private_sbm.certificates.eigsh", failing)
    assert certificate(a, 0.1, 1.0 - 2 * truth).lam2 < 0
    monkeypatch.setattr("private_sbm.baselines.eigsh", failing)
    with pytest.raises(RuntimeError, match="did not converge") as error:
        spectral_recover(a, 0.1)
    assert error.value.__suppress_context__
    monkeypatch.setattr("private_sbm.general.eigsh", failing)
    assert solve_general(a, 0.1, 1.0).labels is None


def test_a_large_graph_without_certificate():
    a, _ = asymmetric_sbm(420, 0.5, 4, 3, 0, as_sparse=True)
    found = solve(a, tau_penalty(420, 4, 3))
    assert found.s is None
    assert found.decided


def test_above_the_limit_absence_is_not_proved():
    a, _ = general_sbm(30, [15, 15], 5, 4, 0, as_sparse=True)
    assert not solve_general(a, 0.5, None, exact_limit=20).decided


@pytest.mark.parametrize("outliers", [False, True])
def test_general_margin_moves_by_at_most_one(outliers):
    """Every flip of a graph with clusters, and of its successors downhill, at the certified partition."""
    gen = np.random.default_rng(1)
    jumps = []
    for _ in range(3):
        labels = np.repeat([0, 1, -1], [7, 6, 2 if outliers else 0])
        a = symmetric((labels[:, None] == labels) & (labels[:, None] >= 0))
        lam, eta = 0.42, 1.5 if outliers else None
        for _ in range(8):
            before = max(0.0, general_certificate(a, lam, labels, eta).margin)
            after = []
            for i, j in combinations(range(len(a)), 2):
                other = a.copy()
                other[i, j] = other[j, i] = 1 - a[i, j]
                after.append((max(0.0, general_certificate(other, lam, labels, eta).margin), i, j))
            jumps += [abs(value - before) for value, _, _ in after]
            _, i, j = min(after) if gen.random() < 0.5 else after[int(gen.integers(len(after)))]
            a[i, j] = a[j, i] = 1 - a[i, j]
    assert len(jumps) > 1500
    assert max(jumps) <= 1 + 1e-9
    assert max(jumps) > 0.5


def test_why_eta_is_public():
    """One graph, two partitions that are both certified with margins above 1, at two values of eta."""
    clique, ring = 34, 41
    a = np.zeros((clique + ring, clique + ring))
    a[:clique, :clique] = 1 - np.eye(clique)
    for i in range(ring):
        for step in range(1, 15):
            j = (i + step) % ring
            a[clique + i, clique + j] = a[clique + j, clique + i] = 1.0
    both = np.repeat([0, 1], [clique, ring])
    one = np.where(both == 0, 0, -1)
    lam = 0.3
    low, high = (general_certificate(a, lam, labels, eta) for labels, eta in ((both, 5.0), (one, 19.0)))
    assert low.margin > 1
    assert high.margin > 1
    assert general_certificate(a, lam, both, 19.0).margin < 0
    assert general_certificate(a, lam, one, 5.0).margin < 0


# ---- 9: SCS agrees


def test_scs_agrees_on_the_elliptope():
    a, truth = asymmetric_sbm(40, 0.4, 8, 1, 2, as_sparse=True)
    lam = 0.3
    value, labels = margin(a, lam)
    assert value > 0
    assert np.array_equal(labels, truth)
    s = 1.0 - 2 * labels
    assert elliptope_matrix(a, lam) == pytest.approx(np.outer(s, s), abs=1e-3)


def test_scs_agrees_on_the_general_program():
    a, truth = general_sbm(30, [13, 11], 8.0, 0.3, 1, as_sparse=True)
    lam, eta = 0.4, 2.0
    found = certified(a, lam, eta, proposals(a, lam, eta))
    assert np.array_equal(found.labels, truth)
    z, _ = general_matrix(a, lam, eta)
    same = (truth[:, None] == truth) & (truth[:, None] >= 0)
    assert z == pytest.approx(same.astype(float), abs=1e-3)


# ---- 10: the noisy test


@given(st.floats(0.01, 20), st.floats(1e-12, 0.9), st.floats(0, 1))
@settings(max_examples=200, deadline=None)
def test_release_at_margin_one_has_probability_at_most_delta(eps, delta, margin):
    for noise in ("laplace", "discrete"):
        assert release_probability(margin, eps, delta, noise) <= delta * (1 + 1e-9)


@given(st.floats(0.02, 5), st.floats(1e-9, 0.4), st.integers(0, 60))
@settings(max_examples=100, deadline=None)
def test_one_step_of_margin_changes_the_odds_by_at_most_eps(eps, delta, level):
    for noise in ("laplace", "discrete"):
        p, q = (release_probability(level + extra, eps, delta, noise) for extra in (0.0, 1.0))
        assert p <= q <= exp(eps) * p * (1 + 1e-9)
        assert (1 - p) <= exp(eps) * (1 - q) * (1 + 1e-9) + 1e-12


def test_thresholds_literally():
    assert threshold_T(1.0, 0.5, "laplace") == pytest.approx(1.0)
    assert threshold_T(2.0, 1e-6, "laplace") == pytest.approx(1 + log(5e5) / 2)
    assert threshold_T(1.0, 1e-6) == 14
    r = exp(-1.0)
    assert r**14 / (1 + r) <= 1e-6 < r**13 / (1 + r)
    assert threshold_T(1e300, 1e-6) == 1
    assert release_probability(2.5, 1e300, 1e-6) == 1.0
    assert release_probability(0.9, 1e300, 1e-6) == 0.0


@pytest.mark.parametrize("eps", [0.1, 0.7, 2.0])
def test_tails(eps):
    for m in range(-6, 12):
        assert discrete_tail(m, eps) == pytest.approx(ref.discrete_laplace_tail(eps, m))
    for x in (-2.0, 0.0, 0.3, 5.0):
        assert laplace_tail(x, eps) == pytest.approx(stats.laplace.sf(x, scale=1 / eps))
    level = 3.7
    whole = int(usable_margin(level))
    want = ref.discrete_laplace_tail(eps, threshold_T(eps, 0.01) - whole + 1)
    assert release_probability(level, eps, 0.01) == pytest.approx(want)


def test_usable_margin_absorbs_numerical_error():
    """Margins off by the allowed error never have floors two apart."""
    assert usable_margin(3.0) < 3.0
    for level in (1.0, 2.0, 17.0):
        low, high = level + ROUNDING, level + 1 - ROUNDING + 2 * ROUNDING
        assert int(usable_margin(high)) - int(usable_margin(low)) <= 1
        assert usable_margin(high) - usable_margin(low) <= 1


# ---- samplers


def test_samplers_have_the_stated_densities():
    a, labels = asymmetric_sbm(600, 0.3, 10, 2, 0, as_sparse=True)
    same = labels[:, None] == labels
    p, q = (x * log(600) / 600 for x in (10, 2))
    dense = a.toarray()
    assert labels.sum() == 420
    assert (dense == dense.T).all()
    assert np.diag(dense).sum() == 0
    off = ~np.eye(600, dtype=bool)
    assert dense[same & off].mean() == pytest.approx(p, rel=0.03)
    assert dense[~same].mean() == pytest.approx(q, rel=0.06)
    g, again = asymmetric_sbm(600, 0.3, 10, 2, 0)
    assert g.number_of_edges() == a.nnz // 2
    assert np.array_equal(labels, again)
    b, marks = general_sbm(500, [200, 100], 12, 3, 1, as_sparse=True)
    dense, out = b.toarray(), marks < 0
    assert np.bincount(marks + 1).tolist() == [200, 200, 100]
    assert dense[np.ix_(out, out)].sum() / (200 * 199) == pytest.approx(3 * log(500) / 500, rel=0.1)
    assert dense[np.ix_(marks == 1, marks == 1)].sum() / (100 * 99) == pytest.approx(12 * log(500) / 500, rel=0.1)
    assert dense[np.ix_(out, marks == 0)].mean() == pytest.approx(3 * log(500) / 500, rel=0.1)
    c, truth = censored_sbm(500, 15, 0.2, 2, as_sparse=True)
    dense, s = c.toarray(), 1 - 2 * truth
    right = dense * np.outer(s, s)
    assert (right > 0).sum() / (right != 0).sum() == pytest.approx(0.8, abs=0.02)
    assert (right != 0).sum() / (500 * 499) == pytest.approx(15 * log(500) / 500, rel=0.05)


def test_pairs_far_down_the_triangle_are_numbered_right(monkeypatch):
    """The root of 8 k + 1 is rounded for k above 2^50: the pair is corrected on both sides."""
    j = np.array([2, 3, 10, 67_108_865, 94_906_267, 2**29 + 1, 2**30 + 3])
    numbers = np.concatenate([j * (j - 1) // 2 + shift for shift in (-1, 0, 1)])
    monkeypatch.setattr(models, "_distinct", lambda total, p, gen: numbers)
    first, second = models._triangle(2**31, 0.5, np.random.default_rng(0))
    assert np.array_equal(second * (second - 1) // 2 + first, numbers)
    assert ((first >= 0) & (first < second)).all()
