"""The estimator in use: models, penalties, inputs, ledger, outlook."""

from math import exp, inf, log
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pytest
from private_sbm import (
    ConcentrationSBM,
    MLEStability,
    PrivacyLedger,
    PrivateSBM,
    RandomizedResponseSBM,
    SpectralLaplaceSBM,
    asymmetric_sbm,
    censored_sbm,
    certificate,
    explain_refusal,
    general_sbm,
    louvain_recover,
    margin,
    mle_recover,
    sdp_recover,
    spectral_recover,
    utility_report,
)
from private_sbm.baselines import concentration_margin
from private_sbm.mechanism import integers
from private_sbm.penalty import (
    balanced_penalty,
    noisy_density,
    predicted_asymmetric,
    predicted_general,
    predicted_margin,
    tau_penalty,
    trace_penalty,
)
from private_sbm.scale import measure
from private_sbm.thresholds import asymmetric_exponent, rate, tau, upper_rate
from scipy import sparse


@pytest.fixture(scope="module", autouse=True)
def drawn():
    """Drawn here and not at import: a fault of the sampler fails tests, not their collection."""
    global GRAPH, TRUTH
    GRAPH, TRUTH = asymmetric_sbm(200, 0.4, 20, 1, 0)


def fitted(graph, model="asymmetric", **options):
    return PrivateSBM(model, **({"delta": 1e-3, "eps": 4.0, "random_state": 0} | options)).fit(graph)


def test_asymmetric():
    found = fitted(GRAPH, a=20, b=1)
    assert np.array_equal(found.labels_, TRUTH)
    assert found.result_ == (True, found.labels_, 4.0, 1e-3, "proved")
    assert found.released
    assert np.array_equal(found.fit_predict(GRAPH), TRUTH)
    diagnostics = found.unsafe_diagnostics_
    lam = tau(20, 1) * log(200) / 200
    assert diagnostics["lam"] == pytest.approx(lam)
    assert diagnostics["margin"] == pytest.approx(margin(GRAPH, lam)[0])
    assert diagnostics["release_probability"] == pytest.approx(
        PrivateSBM(a=20, b=1, delta=1e-3, eps=4.0).release_probability(GRAPH)
    )


def test_labels_are_canonical():
    order = np.random.default_rng(0).permutation(200)
    shuffled = nx.Graph()
    shuffled.add_nodes_from(order.tolist())
    shuffled.add_edges_from(GRAPH.edges)
    labels = fitted(shuffled, a=20, b=1).labels_
    assert labels[0] == 0
    assert np.array_equal(labels, TRUTH[order] != TRUTH[order[0]])


def test_censored():
    graph, truth = censored_sbm(200, 15, 0.05, 1, rho=0.3)
    for neighbor, step in (("edge", 2), ("relabel", 4)):
        found = fitted(graph, "censored", neighbor=neighbor)
        assert np.array_equal(found.labels_, truth)
        lam2 = certificate(censored_sbm(200, 15, 0.05, 1, rho=0.3, as_sparse=True)[0], 0.0, 1.0 - 2 * truth).lam2
        assert found.unsafe_diagnostics_["margin"] == pytest.approx((lam2 - 1e-3) / step)
        assert found.unsafe_diagnostics_["lam"] == 0.0


def test_general_with_and_without_outliers():
    graph, truth = general_sbm(150, [70, 50], 25, 1, 0)
    found = fitted(graph, "general", a=25, b=1, rho=1 / 3)
    assert np.array_equal(found.labels_, truth)
    assert (found.labels_ == -1).sum() == 30
    assert found.unsafe_diagnostics_["eta"] == pytest.approx(trace_penalty(150, tau(25, 1), 1 / 3, 25, 1))
    graph, truth = general_sbm(150, [60, 50, 40], 25, 1, 0)
    found = fitted(graph, "general", a=25, b=1, outliers=False)
    assert np.array_equal(found.labels_, truth)
    assert found.unsafe_diagnostics_["eta"] is None
    unknown = PrivateSBM("general", lam="noisy-density", delta=1e-3, random_state=0).evidence(graph)
    assert unknown.eta == pytest.approx(3 * np.sqrt(unknown.lam * 150))
    fixed = PrivateSBM("general", lam=0.2, eta=7.0, delta=1e-3).evidence(graph)
    assert (fixed.lam, fixed.eta) == (0.2, 7.0)
    assert fixed.decided is True
    ring = nx.cycle_graph(12)
    assert PrivateSBM("general", lam=0.2, eta=3.0).evidence(ring)[:3] == (0.0, None, True)
    assert PrivateSBM("general", lam=0.2, eta=3.0, exact_limit=11).evidence(ring)[:3] == (0.0, None, False)


@pytest.mark.parametrize("kind", ["sparse", "dense", "list", "matrix", "edges", "one way", "data", "tensor"])
def test_inputs(kind):
    a = nx.to_scipy_sparse_array(GRAPH, dtype=np.int64)
    both = np.array([*GRAPH.edges, *((v, u) for u, v in GRAPH.edges)]).T
    tensor = SimpleNamespace(detach=lambda: SimpleNamespace(cpu=lambda: both), shape=both.shape)
    graph = {
        "sparse": a,
        "dense": a.toarray(),
        "list": a.toarray().tolist(),
        "matrix": sparse.coo_matrix(a),
        "edges": both,
        "one way": both[:, : both.shape[1] // 2],
        "data": SimpleNamespace(edge_index=both, num_nodes=200),
        "tensor": tensor,
    }[kind]
    nodes = {"num_nodes": 200} if kind in ("edges", "one way", "tensor") else {}
    found = PrivateSBM(a=20, b=1, delta=1e-3, eps=4.0, random_state=0).fit(graph, **nodes)
    assert np.array_equal(found.labels_, TRUTH)


def test_balanced_lam_maximises_the_predicted_margin():
    n, a, b = 500, 20.0, 2.0
    for model, rho, outliers in (("asymmetric", 0.3, False), ("general", 0.3, True), ("general", 0.3, False)):
        lam = balanced_penalty(model, n, rho, a, b, outliers)
        best = predicted_margin(model, n, lam * n / log(n), rho, a, b, outliers)
        grid = [predicted_margin(model, n, t, rho, a, b, outliers) for t in np.linspace(b + 0.1, a - 0.1, 60)]
        assert best >= max(grid) - 0.05
        assert best >= predicted_margin(model, n, tau(a, b), rho, a, b, outliers) - 1e-9
    assert b < balanced_penalty("asymmetric", n, 0.5, a, b, False) * n / log(n) < a
    found = fitted(GRAPH, a=20, b=1, lam="balanced", rho=0.4)
    assert np.array_equal(found.labels_, TRUTH)


def test_predictions_solve_their_equations():
    t = 9.0
    c = predicted_asymmetric(t, 0.4, 20, 2)
    assert asymmetric_exponent(0.4, 20, 2, c, lam=t) == pytest.approx(1) or c == pytest.approx(t - 2)
    inner, outer = predicted_general(t, 0.3, 40, 2)
    assert rate(12, 0, 0.3 * t + inner) == pytest.approx(1)
    assert upper_rate(0.6, 0.3 * t - outer) == pytest.approx(1)
    assert predicted_general(t, 0.01, 40, 2) == (0.0, 0.0)


def test_predicted_margin_is_near_the_measured_one():
    n, margins = 800, []
    for seed in range(5):
        a, _ = asymmetric_sbm(n, 0.5, 15, 2, seed, as_sparse=True)
        margins.append(margin(a, tau_penalty(n, 15, 2))[0])
    assert predicted_margin("asymmetric", n, tau(15, 2), 0.5, 15, 2, False) == pytest.approx(np.mean(margins), rel=0.25)


def test_noisy_density_spends_its_own_eps():
    found = fitted(GRAPH, lam="noisy-density", eps_density=0.5)
    assert found.result_.eps == 4.5
    mean = 2 * GRAPH.number_of_edges() / (200 * 199)
    assert found.unsafe_diagnostics_["lam"] == pytest.approx(mean, rel=0.01)
    assert found.unsafe_diagnostics_["lam"] != mean
    assert np.array_equal(found.labels_, TRUTH)
    draws = np.array([noisy_density(100, 30, 1.0, integers(seed)) * 435 - 100 for seed in range(400)])
    assert np.abs(draws).mean() == pytest.approx(2 * exp(-1) / (1 - exp(-2)), rel=0.15)
    assert noisy_density(0, 30, 0.01, integers(4)) >= 1 / 435
    assert all(1 / 6 <= noisy_density(6, 4, 0.1, integers(seed)) <= 5 / 6 for seed in range(30))


def test_ledger_composition():
    ledger = PrivacyLedger(eps=1.0, delta=1e-3, slack=1e-6)
    for _ in range(30):
        ledger.spend(0.02, 1e-6, "a look")
    eps, delta = ledger.total
    drift = 30 * 0.02 * (exp(0.02) - 1) / (exp(0.02) + 1)
    assert eps == pytest.approx(drift + np.sqrt(2 * log(1e6) * 30 * 0.02**2))
    assert eps < 0.6
    assert delta == pytest.approx(3.1e-5)
    plain = PrivacyLedger()
    assert plain.total == (0, 0)
    plain.spend(3.0, 0.1)
    assert plain.total == (3.0, 0.1)
    one = PrivacyLedger(slack=1e-6)
    one.spend(1.0, 0.0)
    assert one.total == (1.0, 1e-6)
    loose = PrivacyLedger(slack=1.0)
    loose.spend(0.1, 0.0)
    assert loose.total[0] < 0.1


def test_outlook():
    good = explain_refusal(PrivateSBM(a=20, b=2, eps=1.0, delta=1e-6), 1500)
    assert good.likely
    assert good.reasons == ()
    assert good.exponent == pytest.approx(asymmetric_exponent(0.5, 20, 2))
    assert good.smallest_eps < 1.0
    assert good.smallest_n < 1500
    weak = explain_refusal(PrivateSBM(a=20, b=2, eps=0.3, delta=1e-6), 1500)
    assert not weak.likely
    assert "noise of eps is too large" in weak.reasons[0]
    assert "set by the vertex with the least surplus" in weak.reasons[0]
    dense = explain_refusal(PrivateSBM(a=200, b=20, eps=0.02, delta=1e-6), 1500)
    assert "set by the penalty's distance from the density across" in dense.reasons[0]
    assert dense.margin == pytest.approx((tau(200, 20) - 20) * log(1500) / 2)
    assert weak.smallest_eps == pytest.approx(good.smallest_eps)
    assert explain_refusal(PrivateSBM(a=20, b=2, eps=weak.smallest_eps * 1.001, delta=1e-6), 1500).likely
    assert explain_refusal(PrivateSBM(a=20, b=2, eps=0.3, delta=1e-6), int(weak.smallest_n)).likely
    below = explain_refusal(PrivateSBM(a=5, b=2, delta=1e-6), 1500)
    assert below.exponent < 1
    assert below.smallest_eps == below.smallest_n == below.asymptotic_eps == inf
    assert "exponent" in below.reasons[0]
    assert below.release_probability == 0.0
    assert "not above 1" in below.summary()
    unseen = explain_refusal(PrivateSBM("general", a=40, b=2, rho=1 / 3, delta=1e-3, eps=50.0), 1000)
    assert "strict=True refuses" in unseen.reasons[-1]
    assert unseen.release_probability == 0.0


@pytest.mark.parametrize("lam", ["balanced", "noisy-density", 0.04])
def test_outlook_of_other_penalties(lam):
    assert explain_refusal(PrivateSBM(a=20, b=2, lam=lam, eps=2.0), 1500).likely


def test_outlook_of_the_censored_model():
    edge, relabel = (
        explain_refusal(PrivateSBM("censored", a=10, neighbor=k), 1000, xi=0.1) for k in ("edge", "relabel")
    )
    assert edge.margin == pytest.approx(2 * relabel.margin)
    assert relabel.asymptotic_eps == pytest.approx(2 * edge.asymptotic_eps)


def test_utility_report():
    n = 1500
    report = utility_report(n, (10 * log(n), log(n)), eps=1.0, delta=1e-6)
    assert report == explain_refusal(PrivateSBM(a=20.0, b=2.0, rho=0.5, outliers=False), n)
    assert not utility_report(34, (3.5, 1.0)).likely
    signed = utility_report(1000, (9 * log(1000), log(1000)), model="censored", eps=2.0)
    assert signed.exponent == pytest.approx(4.0)
    general = utility_report(200, (15 * log(200), 1.5 * log(200)), model="general", rho=0.4, eps=20.0)
    assert general.margin > 0


# ---- baselines


def test_nonprivate_recovery():
    lam = tau_penalty(200, 20, 1)
    for labels in (sdp_recover(GRAPH, lam), spectral_recover(GRAPH, lam), louvain_recover(GRAPH)):
        assert np.array_equal(labels[: len(TRUTH)] > 0, TRUTH > 0) or len(set(labels)) > 2
    assert np.mean(spectral_recover(GRAPH, lam, refine=False) == TRUTH) > 0.95
    assert sdp_recover(nx.cycle_graph(8), 0.3) is None
    assert sdp_recover(nx.empty_graph(2), 0.3) is None
    large, truth = asymmetric_sbm(600, 0.5, 15, 1, 0, as_sparse=True)
    assert np.array_equal(spectral_recover(large, tau_penalty(600, 15, 1)), truth)


def test_likelihood_by_enumeration():
    gen = np.random.default_rng(0)
    for _ in range(10):
        upper = np.triu(gen.random((8, 8)) < 0.5, 1)
        a = (upper | upper.T).astype(float)
        labels = mle_recover(a, 0.4)
        scores = {}
        for code in range(128):
            s = np.array([1] + [1 - 2 * (code >> k & 1) for k in range(7)])
            scores[code] = s @ a @ s - 0.4 * s.sum() ** 2
        s = 1 - 2 * labels
        assert s @ a @ s - 0.4 * s.sum() ** 2 == pytest.approx(max(scores.values()))
        ordered = sorted(scores.values())
        found = MLEStability(lam=0.4, delta=0.01).evidence(a)
        if ordered[-1] - ordered[-2] > 1e-9:
            assert found.margin == pytest.approx((ordered[-1] - ordered[-2]) / 4)
            assert np.array_equal(found.labels, labels)
        else:
            assert found.labels is None
        certified = PrivateSBM(lam=0.4, delta=0.01).evidence(a)
        if certified.labels is not None:
            assert np.array_equal(certified.labels, labels)
            assert certified.margin <= found.margin + 1e-9
    tied = MLEStability(lam=0.9, delta=0.01).evidence(nx.cycle_graph(4))
    assert tied.margin == 0
    assert MLEStability(lam=0.3, delta=0.01).guarantee(9) == "proved"


def test_concentration_never_beats_the_certificate():
    """And is 1-Lipschitz: it moves by at most 1 over 60 flips of one graph."""
    graph, truth = asymmetric_sbm(100, 0.5, 15, 1, 3, as_sparse=True)
    p, q = 15 * log(100) / 100, log(100) / 100
    s = 1.0 - 2 * truth
    a, gen = graph.toarray(), np.random.default_rng(0)
    before = concentration_margin(a, s, p, q)
    for _ in range(60):
        i, j = gen.choice(100, 2, replace=False)
        a[i, j] = a[j, i] = 1 - a[i, j]
        after = concentration_margin(a, s, p, q)
        assert abs(after - before) <= 1 + 1e-9
        assert after <= certificate(a, (p + q) / 2, s).lam2 / 2 + 1e-9
        before = after
    found = ConcentrationSBM(a=15, b=1, delta=1e-3).evidence(graph)
    assert np.array_equal(found.labels, truth)
    assert 0 < found.margin < PrivateSBM(lam=(p + q) / 2, delta=1e-3).evidence(graph).margin
    assert ConcentrationSBM(a=8, b=1, delta=1e-3).evidence(nx.cycle_graph(30)).labels is None
    large, truth = asymmetric_sbm(450, 0.5, 30, 1, 0, as_sparse=True)
    s, dense = 1.0 - 2 * truth, large.toarray()
    p, q = 30 * log(450) / 450, log(450) / 450
    expected = (p + q) / 2 + (p - q) / 2 * np.outer(s, s) - p * np.eye(450)
    least = (s * (dense @ s) - (p + q) / 2 * s * s.sum()).min()
    want = (least - np.abs(np.linalg.eigvalsh(dense - expected)).max() + p) / 2
    assert concentration_margin(large, s, p, q) == pytest.approx(want, abs=1e-6)


def test_randomized_response_flips_with_its_probability():
    eps = 1.5
    flips = RandomizedResponseSBM(eps=eps, random_state=0)._flipped(np.zeros((300, 300)))
    assert (flips == flips.T).all()
    assert flips[np.triu_indices(300, 1)].mean() == pytest.approx(1 / (1 + exp(eps)), abs=0.01)
    full = RandomizedResponseSBM(eps=eps, random_state=1)._flipped(np.ones((300, 300)))
    assert full[np.triu_indices(300, 1)].mean() == pytest.approx(1 - 1 / (1 + exp(eps)), abs=0.01)
    for value in (-1.0, 0.0, 1.0):
        signed = RandomizedResponseSBM(eps, "censored", random_state=2)._flipped(np.full((300, 300), value))
        entries = signed[np.triu_indices(300, 1)]
        for other in (-1.0, 0.0, 1.0):
            want = exp(eps) / (2 + exp(eps)) if other == value else 1 / (2 + exp(eps))
            assert np.mean(entries == other) == pytest.approx(want, abs=0.012)


def test_randomized_response_penalty_is_tau_of_the_flipped_densities():
    f, p, q = 1 / (1 + exp(2.0)), 20 * log(200) / 200, log(200) / 200
    want = tau(p * (1 - f) + (1 - p) * f, q * (1 - f) + (1 - q) * f)
    assert RandomizedResponseSBM(2.0, a=20, b=1)._penalty(np.zeros((200, 200))) == pytest.approx(want)
    assert RandomizedResponseSBM(2.0, "censored")._penalty(np.zeros((200, 200))) == 0.0
    assert RandomizedResponseSBM(2.0)._penalty(np.ones((4, 4)) - np.eye(4)) == 1.0


@pytest.mark.parametrize("solver", ["sdp", "spectral"])
def test_noisy_graphs_are_solved_at_large_eps(solver):
    found = RandomizedResponseSBM(9.0, a=20, b=1, solver=solver, random_state=0).fit(GRAPH)
    assert np.array_equal(found.labels_, TRUTH)
    assert found.result_ == (True, found.labels_, 9.0, 0.0, "proved")
    assert found.released
    signed, truth = censored_sbm(150, 15, 0.05, 0)
    assert np.array_equal(
        RandomizedResponseSBM(12.0, "censored", solver=solver, random_state=0).fit(signed).labels_, truth
    )
    assert RandomizedResponseSBM(9.0).fit(nx.empty_graph(2)).labels_ is None


def test_laplace_noise_on_entries():
    assert np.array_equal(SpectralLaplaceSBM(20.0, random_state=0).fit(GRAPH).labels_, TRUTH)
    assert np.array_equal(SpectralLaplaceSBM(20.0, lam=0.2, random_state=0).fit(GRAPH).labels_, TRUTH)
    assert np.mean(SpectralLaplaceSBM(0.1, random_state=0).fit(GRAPH).labels_ == TRUTH) < 0.8
    assert SpectralLaplaceSBM().fit(nx.empty_graph(1)).labels_ is None


def test_scale():
    found = measure(400, 15, 2, seed=1)
    assert found.exact
    assert found.margin == pytest.approx(margin(asymmetric_sbm(400, 0.5, 15, 2, 1)[0], tau_penalty(400, 15, 2))[0])
    assert found.edges == asymmetric_sbm(400, 0.5, 15, 2, 1)[0].number_of_edges()
    assert 0 < found.seconds < 30
