"""The audit catches mechanisms that are broken in subtle ways, and leaves the right one alone."""

import hashlib
from math import log

import networkx as nx
import numpy as np
import pytest
from private_sbm import MLEStability, PrivateSBM, audit, certificate
from private_sbm.auditing import AuditReport, setting_of
from private_sbm.certificates import FLOOR
from private_sbm.mechanism import laplace_tail, threshold_T, usable_margin
from private_sbm.neighbours import (
    EXHAUSTIVE,
    Setting,
    changed,
    make_pairs,
    planted,
    planted_margin,
    planted_margins,
    suspects,
    walk,
    weakened,
    worst_flip,
)

MODELS = {
    "asymmetric": {"lam": 0.3},
    "censored": {"model": "censored"},
    "relabel": {"model": "censored", "neighbor": "relabel"},
    "general": {"model": "general", "lam": 0.45, "eta": 2.5},
    "no outliers": {"model": "general", "lam": 0.4, "outliers": False},
}
PRIVACY = {"eps": 1.0, "delta": 0.01, "noise": "laplace"}


class Stretched(PrivateSBM):
    """The margin multiplied by 1.5."""

    def evidence(self, X, below=None):
        found = super().evidence(X, below)
        return found._replace(margin=1.5 * found.margin)


class Forgetful(PrivateSBM):
    """The solver misses 2 % of the certified graphs, always the same ones."""

    def evidence(self, X, below=None):
        found = super().evidence(X, below)
        digest = hashlib.sha256(np.asarray(X.toarray(), dtype=np.int8).tobytes()).digest()
        missed = found.labels is not None and int.from_bytes(digest[:4], "big") % 50 == 0
        return found._replace(margin=0.0, labels=None, decided=False) if missed else found


class Lowered(PrivateSBM):
    """The threshold lowered by ln 2 / eps, in the test and in what it says of itself."""

    def tail(self, margin):
        limit = threshold_T(self.eps, self.delta, "laplace") - log(2) / self.eps
        return laplace_tail(limit - usable_margin(margin), self.eps)

    def noisy_test(self, margin, below):
        uniform = (below(2**53) + 0.5) / 2**53
        size = -log(uniform) / self.eps * (1 if below(2) else -1)
        return usable_margin(margin) + size > threshold_T(self.eps, self.delta, "laplace") - log(2) / self.eps


def pairs_of(name):
    return 20 if "model" in MODELS[name] and MODELS[name]["model"] == "general" else 120


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name == "general" else ()) for name in MODELS]
)
def test_the_right_mechanism_raises_no_alarm(name):
    report = audit(PrivateSBM(**MODELS[name], **PRIVACY), pairs_of(name), seed=11)
    assert report.passed
    assert report.violations == {}
    assert report.positive >= report.pairs / 2
    assert report.near >= 0.4 * report.pairs
    assert 0.4 < report.max_jump <= 1 + 1e-6
    assert report.exact_loss <= 0.01
    assert report.eps_lower_bound <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "pairs"),
    [("asymmetric", 260), ("censored", 200), ("relabel", 200), ("general", 10), ("no outliers", 15)],
)
def test_no_false_alarm_in_20_seeds(name, pairs):
    for seed in range(20):
        noise = ("laplace", "discrete")[seed % 2]
        report = audit(PrivateSBM(**MODELS[name], **(PRIVACY | {"noise": noise})), pairs, samples=100, seed=seed)
        assert report.passed, report.summary()
        assert report.positive >= report.pairs / 2
        assert report.near >= 0.4 * report.pairs


@pytest.mark.slow
def test_pairs_lie_where_they_should():
    """At least half have a positive margin, and 200 lie near 1."""
    report = audit(PrivateSBM(**MODELS["asymmetric"], **PRIVACY), 500, seed=0)
    assert report.pairs == 500
    assert report.positive >= 250
    assert report.near >= 200
    assert "500 pairs" in report.summary()
    assert "violations: none" in report.summary()


@pytest.mark.parametrize("name", ["asymmetric", "censored", "relabel"])
def test_a_margin_times_one_and_a_half_is_caught(name):
    options = MODELS[name] if name != "asymmetric" else {"lam": 0.5}
    report = audit(Stretched(**options, **PRIVACY), 300, seed=1)
    assert {"jump"} <= set(report.violations)
    assert report.max_jump > 1.05
    if name != "relabel":
        assert "loss" in report.violations
        assert report.exact_loss > 0.01


@pytest.mark.parametrize("name", ["asymmetric", "censored"])
def test_a_solver_that_misses_two_percent_is_caught(name):
    options = MODELS[name] if name != "asymmetric" else {"lam": 0.5}
    report = audit(Forgetful(**options, **PRIVACY), 400, seed=2)
    assert {"miss", "jump", "output", "loss"} <= set(report.violations)
    assert 1 <= report.violations["miss"] < 40
    assert "miss" in report.summary()


@pytest.mark.parametrize("name", ["asymmetric", "censored"])
def test_a_threshold_lowered_by_half_of_delta_is_caught(name):
    """By its loss on pairs, not only by the probability it states at margin 1."""
    report = audit(Lowered(**MODELS[name], **PRIVACY), 400, seed=3)
    assert {"loss", "tail"} == set(report.violations)
    assert 0.01 < report.exact_loss <= 0.02 * (1 + 1e-9)
    assert report.eps_lower_bound == np.inf


@pytest.mark.slow
@pytest.mark.parametrize("broken", [Stretched, Forgetful, Lowered])
def test_every_broken_mechanism_is_caught_for_every_seed(broken):
    for seed in range(5):
        assert "loss" in audit(broken(**MODELS["censored"], **PRIVACY), 500, seed=seed).violations


@pytest.mark.parametrize(
    ("broken", "kinds"),
    [(PrivateSBM, set()), (Stretched, {"jump", "loss"}), (Forgetful, {"jump", "output", "loss"}), (Lowered, {"tail"})],
)
def test_an_estimator_as_users_have_it_is_audited_at_its_own_penalty(broken, kinds):
    """a and b are given, so the graphs have many vertices: weak pairs are found along the eigenvector."""
    estimator = broken(a=10, b=1, **PRIVACY)
    assert setting_of(estimator, None).n > EXHAUSTIVE
    report = audit(estimator, 150, seed=2)
    assert kinds <= set(report.violations) <= kinds | ({"output", "loss"} if kinds else kinds)
    assert report.near >= 0.35 * report.pairs
    assert report.max_jump > 0.9


@pytest.mark.parametrize("name", ["asymmetric", "censored", "relabel"])
def test_margins_of_many_graphs_are_those_of_their_certificates(name):
    setting, gen = setting_of(PrivateSBM(**MODELS[name], **PRIVACY), 12), np.random.default_rng(0)
    graphs, labels = zip(*(planted(setting, gen, 0.9, equal=True) for _ in range(20)), strict=True)
    s = 1.0 - 2.0 * labels[0]
    want = [max(0.0, (certificate(a, setting.lam, s).lam2 - FLOOR) / setting.step) for a in graphs]
    assert planted_margins(setting, np.stack(graphs), labels[0]) == pytest.approx(want, abs=1e-9)
    assert np.count_nonzero(want) > 0


@pytest.mark.parametrize("model", ["asymmetric", "censored"])
def test_suspects_are_the_worst_pairs(model):
    """Of all neighbours, the one with the least margin is among the suspects, or as good as one."""
    gen, found = np.random.default_rng(0), 0
    for _ in range(6):
        setting = Setting(model, 26, 0.3 if model == "asymmetric" else 0.0, None, 2.0, False)
        a, labels = planted(setting, gen, 0.97, equal=True)
        a = weakened(setting, a, labels, gen)
        margin = planted_margin(setting, a, labels)
        every = [other for i in range(26) for j in range(i) for other in changed(setting, a, i, j)]
        least = min(planted_margin(setting, other, labels) for other in every)
        worst = worst_flip(setting, a, labels, margin, gen)
        found += margin > least
        assert planted_margin(setting, worst, labels) <= least + 0.25 * (margin - least)
    assert found >= 4


def test_suspects_of_the_general_model_lose_an_inner_edge():
    setting = Setting("general", 30, 0.3, 2.0, 2.0, True)
    gen = np.random.default_rng(0)
    a, labels = planted(setting, gen, 0.9)
    sizes = np.bincount(labels + 1)
    assert abs(sizes[1] - sizes[2]) <= 1
    assert 1 <= sizes[0] < 5
    for i, j in suspects(setting, a, labels):
        assert a[i, j] == 1
        assert labels[i] == labels[j] >= 0
    before = min(a[i, labels == labels[i]].sum() for i in range(30) if labels[i] >= 0)
    worst = worst_flip(setting, a, labels, 1.0, gen)
    assert min(worst[i, labels == labels[i]].sum() for i in range(30) if labels[i] >= 0) == before - 1


class Honest(Lowered):
    """Draws with the lowered threshold, but states the right probability."""

    tail = PrivateSBM.tail


def test_draws_that_contradict_the_stated_probability_are_caught():
    options = MODELS["censored"] | {"eps": 2.0, "delta": 0.2, "noise": "laplace"}
    assert "noise" in audit(Honest(**options), 40, samples=3000).violations
    whole = np.ones((6, 6)) - np.eye(6)
    less = whole.copy()
    less[0, 1] = less[1, 0] = 0.0
    right = audit(PrivateSBM(**options | {"delta": 0.05}), [(whole, less)], samples=3000)
    assert right.passed
    assert 0 < right.eps_lower_bound <= 2.0


def test_sampled_bound_proves_that_no_smaller_eps_is_true():
    """With the noise of eps = 3 under a claim of eps = 1, draws alone prove more than 1."""

    class Noiseless(PrivateSBM):
        def tail(self, margin):
            return laplace_tail(threshold_T(1.0, self.delta, "laplace") - usable_margin(margin), 3.0)

        def noisy_test(self, margin, below):
            uniform = (below(2**53) + 0.5) / 2**53
            size = -log(uniform) / 3.0 * (1 if below(2) else -1)
            return usable_margin(margin) + size > threshold_T(1.0, self.delta, "laplace")

    whole = np.ones((8, 8)) - np.eye(8)
    less = whole.copy()
    less[0, 1] = less[1, 0] = 0.0
    report = audit(Noiseless("censored", eps=1.0, delta=0.05, noise="laplace"), [(whole, less)], samples=2000)
    assert "loss" in report.violations
    assert 1.0 < report.eps_lower_bound < 2.0


def test_given_pairs_and_other_mechanisms():
    """Two K_2 with lam = 1/2: lam_2 = 2, and without one of the edges 0."""
    graph = nx.Graph([(0, 1), (2, 3)])
    other = nx.empty_graph(4)
    other.add_edge(2, 3)
    report = audit(PrivateSBM(lam=0.5, eps=1.0, delta=0.01, noise="laplace"), [(graph, other)])
    assert report == AuditReport(
        pairs=1, positive=1, near=1, max_jump=report.max_jump, exact_loss=report.exact_loss, eps_lower_bound=0.0
    )
    assert report.max_jump == pytest.approx(1, abs=1e-3)
    assert report.exact_loss == pytest.approx(0.01, rel=2e-3)
    drawn = audit(PrivateSBM(lam=0.5, eps=1.0, delta=0.01, noise="laplace"), [(graph, other)], samples=200)
    assert drawn.eps_lower_bound == 0.0  # 200 draws prove nothing of a mechanism that is within its delta

    class Always:
        eps, delta = 1.0, 0.01

        def evidence(self, X):
            return PrivateSBM(lam=0.5).evidence(X)

        def tail(self, margin):
            return 1.0

        def noisy_test(self, margin, below):
            return True

    found = audit(Always(), [(graph, other)], samples=50)
    assert set(found.violations) == {"loss", "tail"}
    assert found.exact_loss == 1.0
    assert found.eps_lower_bound == np.inf


def test_the_likelihood_mechanism_passes_too():
    report = audit(MLEStability(lam=0.3, **PRIVACY), 40, n=8, seed=0)
    assert report.passed
    assert report.max_jump > 0.5


@pytest.mark.parametrize("name", MODELS)
def test_pairs_are_neighbours(name):
    mechanism = PrivateSBM(**MODELS[name], **PRIVACY)
    setting = setting_of(mechanism, 12)
    gen = np.random.default_rng(0)
    for first, second, margin in [*make_pairs(setting, 20, gen), *walk(setting, gen)]:
        difference = (first - second).toarray()
        assert (difference == difference.T).all()
        assert np.count_nonzero(np.triu(difference)) == 1
        sizes = set(np.abs(difference[difference != 0]))
        assert sizes <= ({1.0, 2.0} if name == "relabel" else {1.0})
        assert set(np.unique(second.toarray())) <= ({-1.0, 0.0, 1.0} if "model" in MODELS[name] else {0.0, 1.0})
        assert margin >= 0


def test_graphs_of_an_audit_follow_the_public_parameters():
    setting = setting_of(PrivateSBM(a=6, b=1, delta=0.01), None)
    assert 6 * log(setting.n) / setting.n <= 0.9
    assert setting.lam == pytest.approx((5 / log(6)) * log(setting.n) / setting.n)
    assert setting_of(PrivateSBM("censored", neighbor="relabel"), None).step == 4.0
    labels = np.repeat([0, 1], 6)
    cliques = (labels[:, None] == labels) & ~np.eye(12, dtype=bool)
    assert planted_margin(setting_of(PrivateSBM(lam=0.3), 12), cliques.astype(float), labels) == pytest.approx(
        (min(6, 3.6) - 1e-3) / 2
    )
