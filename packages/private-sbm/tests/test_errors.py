"""Bad input: each row of what must be refused, warned of, or survived; and nothing told of an edge."""

import warnings

import networkx as nx
import numpy as np
import pytest
from private_sbm import (
    BudgetExceededError,
    ConcentrationSBM,
    MissingExtraError,
    MLEStability,
    PrivacyLedger,
    PrivateSBM,
    RandomizedResponseSBM,
    SpectralLaplaceSBM,
    asymmetric_exponent,
    asymmetric_sbm,
    audit,
    censored_exponent,
    censored_sbm,
    certificate,
    explain_refusal,
    general_certificate,
    general_exponent,
    general_sbm,
    margin,
    mle_recover,
    private_threshold,
    rate,
    release_probability,
    sdp_recover,
    spectral_recover,
    threshold_T,
    utility_report,
)
from private_sbm import exact as exact_module
from private_sbm.graphs import adjacency
from private_sbm.solvers import solve
from scipy import sparse
from sklearn.exceptions import NotFittedError

RING = nx.cycle_graph(6)
LABELS = (np.array([[0, 1], [1, 0]]), np.array([[0, -1], [-1, 0]]))


def private(**options):
    return PrivateSBM(**({"lam": 0.3, "delta": 0.01} | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": 0}, "eps must be greater than 0"),
        ({"eps": -1.0}, "eps must be greater than 0"),
        ({"eps": np.nan}, "eps must be greater than 0"),
        ({"eps": np.inf}, "eps must be greater than 0 and less than inf"),
        ({"delta": 0.0}, "delta = 0.*RandomizedResponseSBM"),
        ({"delta": 1.0}, "delta must be greater than 0 and less than 1"),
        ({"delta": -0.1}, "delta must be"),
        ({"model": "symmetric"}, "model must be one of"),
        ({"neighbor": "node"}, "neighbor must be one of"),
        ({"neighbor": "relabel"}, "neighbor must be 'edge' in the asymmetric model"),
        ({"noise": "gauss"}, "noise must be one of"),
        ({"solver": "magic"}, "solver must be one of"),
        ({"lam": "tau"}, "a and b must be given"),
        ({"lam": "median"}, "lam must be one of"),
        ({"lam": 1.5}, "lam must be greater than 0 and less than 1"),
        ({"lam": 0.0}, "lam must be greater than 0"),
        ({"lam": "tau", "a": 2, "b": 3}, "a must be greater than 3"),
        ({"lam": "tau", "a": 3, "b": 3}, "a must be greater than 3"),
        ({"lam": "tau", "a": 3, "b": 0}, "b must be greater than 0"),
        ({"rho": 1.0}, "rho must be greater than 0 and less than 1"),
        ({"eps_density": 0}, "eps_density must be greater than 0"),
        ({"model": "general", "eta": "best"}, "eta must be one of"),
        ({"model": "general", "eta": -1.0}, "eta must be greater than 0"),
        ({"model": "general", "lam": 0.3}, "a and b must be given"),
        ({"model": "general", "lam": "balanced", "a": 9, "b": 1}, "rho must be given with lam='balanced'"),
        ({"partial": True}, "partial must be False.*not private"),
        ({"exact_limit": -1}, "exact_limit must be an integer at least 0"),
        ({"eps_density": np.inf}, "eps_density must be greater than 0 and less than inf"),
        ({"model": "general", "eta": np.inf}, "eta must be greater than 0 and less than inf"),
        ({"lam": "tau", "a": 4, "b": 1}, r"a must be at most n / ln n = 3.349 at n = 6 \(p = a ln n / n is a prob"),
        ({"model": "general", "a": 4, "b": 1}, "a must be at most n / ln n"),
        ({"random_state": -1}, "random_state must be an integer at least 0"),
        ({"random_state": "seed"}, "random_state must be an integer at least 0"),
        ({"random_state": np.random.RandomState(0)}, "random_state must be an integer at least 0"),
        ({"strict": "no"}, "strict must be of type bool"),
        ({"outliers": None}, "outliers must be of type bool"),
    ],
)
def test_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        private(**options).fit(RING)


def test_all_problems_at_once():
    with pytest.raises(ValueError, match="3 problems") as error:
        private(eps=-1, delta=2.0, noise="none").fit(RING)
    assert "eps" in str(error.value)
    assert "noise" in str(error.value)


@pytest.mark.parametrize("lam", [None, [0.3]])
def test_kinds(lam):
    with pytest.raises(TypeError, match="lam must be of type"):
        private(lam=lam).fit(RING)
    with pytest.raises(ValueError, match="eps must be"):
        private(eps="1").fit(RING)
    with pytest.raises(TypeError, match="ledger must be of type PrivacyLedger, got int"):
        private().fit(RING, ledger=3)
    complex_ring = nx.to_numpy_array(RING).astype(complex)
    for graph in (complex_ring, sparse.csr_array(complex_ring)):
        with pytest.raises(TypeError, match="real numbers, got complex"):
            private().fit(graph)
    with pytest.raises(TypeError, match="without a mask"):
        private().fit(np.ma.masked_array(nx.to_numpy_array(RING), mask=True))


@pytest.mark.parametrize("kind", [bool, np.uint8, np.int8, np.float16, object])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.dia_array])
def test_every_kind_of_number_is_read_alike(kind, form):
    if kind in (np.float16, object) and form is not np.asarray:
        return  # scipy has no sparse arrays of these
    given = nx.to_numpy_array(RING).astype(kind)
    kept = given.copy()
    assert (adjacency(form(given))[0] != adjacency(RING)[0]).nnz == 0
    assert np.array_equal(given, kept)


def test_a_that_is_not_used_may_be_anything():
    """lam is given, or counted: then p = a ln n / n is never formed."""
    for options in ({"lam": 0.3}, {"lam": "noisy-density"}, {"model": "general", "eta": 1.0}):
        assert private(a=40, b=2, **options).fit(RING).labels_ is None
    assert private(lam="tau", a=40, b=2).fit(nx.empty_graph(2)).labels_ is None


def test_before_fit():
    with pytest.raises(NotFittedError):
        _ = private().released
    with pytest.raises(NotFittedError):
        private().save("nowhere")


@pytest.mark.parametrize("n", [0, 1, 2])
def test_evidence_of_tiny_graphs(n):
    for estimator in (private(), private(lam="noisy-density"), PrivateSBM("general", a=2, b=1), MLEStability(a=2, b=1)):
        assert estimator.evidence(nx.empty_graph(n))[:3] == (0.0, None, True)


SECRET = np.array([[0, 0.37], [0.37, 0]])
ASYMMETRIC = np.triu(np.ones((3, 3)), 1)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (nx.path_graph(4, create_using=nx.DiGraph), "graph must be undirected"),
        (ASYMMETRIC, "must be undirected, got a matrix that is not symmetric"),
        (sparse.csr_array(ASYMMETRIC), "must be undirected"),
        (SECRET, "weights must be 0, 1, got others"),
        (np.array([[0, np.nan], [np.nan, 0]]), "weights must be 0, 1, got NaN"),
        (np.array([[0, -1.0], [-1.0, 0]]), "weights must be 0, 1"),
        (nx.Graph([(0, 1, {"weight": 0.37})]), "weights must be 0, 1, got others"),
        (nx.Graph([(0, 1, {"weight": np.nan})]), "weights must be 0, 1, got NaN"),
        (nx.Graph([(0, 1, {"weight": "0.37"}), (1, 2, {"weight": "much"})]), "weights must be 0, 1"),
        (np.zeros((3, 4)), r"shape \(n, n\), got \(3, 4\)"),
        (np.zeros(3), r"shape \(n, n\), got \(3,\)"),
        ([["a", "b"], ["b", "a"]], "matrix of numbers"),
        (np.zeros((2, 5), dtype=int), "num_nodes must be given"),
    ],
)
def test_graphs(graph, message):
    with pytest.raises(ValueError, match=message) as error:
        private().fit(graph)
    assert "0.37" not in str(error.value)
    assert error.value.__cause__ is None


def test_no_graph_at_all():
    for thing in (None, 3, "edges", {1: 2}):
        with pytest.raises((TypeError, ValueError), match="graph must be"):
            private().fit(thing)


@pytest.mark.parametrize(
    ("edges", "nodes", "message"),
    [
        (np.array([[0, 1], [1, 7]]), 5, "edge_index must be between 0 and 4"),
        (np.array([[0, -1], [1, 2]]), 5, "edge_index must be between 0 and 4"),
        (np.zeros((2, 3)), 5, "integers of shape"),
        (np.zeros((3, 3), dtype=int), 5, "integers of shape"),
        (np.zeros((2, 3), dtype=int), -1, "num_nodes must be an integer at least 0"),
    ],
)
def test_edge_index(edges, nodes, message):
    with pytest.raises(ValueError, match=message):
        private().fit(edges, num_nodes=nodes)
    with pytest.raises(ValueError, match="must carry signs"):
        PrivateSBM("censored", delta=0.01).fit(edges, num_nodes=nodes)


def test_signed_graphs():
    graph = nx.Graph([(0, 1, {"label": 1}), (1, 2, {})])
    with pytest.raises(ValueError, match="weights must be -1, 0, 1, got NaN. Mark each edge"):
        PrivateSBM("censored", delta=0.01).fit(graph)
    graph = nx.MultiGraph([(0, 1, {"label": 1}), (0, 1, {"label": -1}), (1, 2, {"label": 1})])
    with pytest.raises(ValueError, match="one label for each pair"):
        PrivateSBM("censored", delta=0.01).fit(graph)


def test_self_loops_and_repeated_edges():
    loops = RING.copy()
    loops.add_edge(2, 2)
    with pytest.warns(UserWarning, match="self-loops") as caught:
        a, _ = adjacency(loops)
    assert "2" not in str(caught[0].message)
    assert (a != adjacency(RING)[0]).nnz == 0
    with pytest.warns(UserWarning, match="self-loops"):
        assert adjacency(np.eye(3))[0].nnz == 0
    double = nx.MultiGraph(RING)
    double.add_edges_from([(0, 1), (1, 0)])
    assert (adjacency(double)[0] != adjacency(RING)[0]).nnz == 0
    signed = nx.MultiGraph([(0, 1, {"label": -1}), (1, 0, {"label": -1}), (2, 1, {"label": 1})])
    assert adjacency(signed, signed=True)[0].toarray().tolist() == [[0, -1, 0], [-1, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize("model", ["asymmetric", "general", "censored"])
@pytest.mark.parametrize("n", [0, 1, 2])
def test_tiny_graphs_are_refused_without_an_error(model, n):
    found = PrivateSBM(model, lam=0.3, eta=1.0, delta=0.01).fit(nx.empty_graph(n))
    assert found.labels_ is None
    assert not found.result_.released


@pytest.mark.parametrize("model", ["asymmetric", "general", "censored"])
def test_graphs_that_cannot_be_certified_are_refused(model):
    """No edges; isolated vertices beside balanced cliques; a ring."""
    cliques = nx.disjoint_union(nx.complete_graph(6), nx.complete_graph(6))
    nx.set_edge_attributes(cliques, 1, "label")
    cliques.add_node("alone")
    cliques.add_node("alone too")
    ring = nx.cycle_graph(9)
    nx.set_edge_attributes(ring, {e: 1 - 2 * (i == 0) for i, e in enumerate(ring.edges)}, "label")
    for graph in (nx.empty_graph(8), cliques, ring):
        found = PrivateSBM(model, lam=0.3, eta=0.01, outliers=False, eps=50.0, delta=0.05).fit(graph)
        assert found.labels_ is None


def test_disconnected_graphs_are_fine():
    cliques = nx.disjoint_union(nx.complete_graph(20), nx.complete_graph(20))
    found = private(lam=0.5, eps=5.0, random_state=0).fit(cliques)
    assert found.labels_.tolist() == [0] * 20 + [1] * 20


def test_huge_eps_does_not_overflow():
    cliques = nx.disjoint_union(nx.complete_graph(8), nx.complete_graph(8))
    for noise in ("laplace", "discrete"):
        assert private(lam=0.5, eps=1e6, noise=noise, random_state=0).fit(cliques).result_.released
        assert release_probability(7.0, 1e300, 1e-6, noise) == 1.0
        assert release_probability(0.5, 1e300, 1e-6, noise) == 0.0
        assert 0 <= release_probability(0.5, 1e-300, 1e-6, noise) <= 1e-6
    assert RandomizedResponseSBM(eps=1e6, random_state=0).fit(cliques).labels_.sum() == 8


def test_node_names_of_any_kind_keep_their_order():
    names = [(1, 2), "x", 3, None.__class__, frozenset({4}), 2.5, "y", 0, b"z", ("a",)]
    graph = nx.Graph()
    graph.add_nodes_from(names)
    graph.add_edges_from((names[i], names[j]) for i in range(0, 10, 2) for j in range(0, i, 2))
    graph.add_edges_from((names[i], names[j]) for i in range(1, 10, 2) for j in range(1, i, 2))
    found = private(lam=0.6, eps=20.0, random_state=0).fit(graph)
    assert found.labels_.tolist() == [0, 1] * 5


def test_large_delta_warns_from_the_number_of_vertices_alone():
    for graph in (RING, nx.empty_graph(6)):
        with pytest.warns(UserWarning, match="delta = 0.4 is at least 1 / n") as caught:
            private(delta=0.4).fit(graph)
        assert len(caught) == 1


def test_strict_refuses_before_it_looks():
    general = {"model": "general", "a": 9, "b": 1, "eta": 1.0, "delta": 0.01, "exact_limit": 5}
    for graph in (RING, nx.empty_graph(6)):
        with pytest.warns(UserWarning, match="no complete solver.*n = 6"):
            found = private(**general).fit(graph)
        assert found.result_ == (False, None, 1.0, 0.01, "heuristic")
        assert not hasattr(found, "unsafe_diagnostics_")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert private(**general, strict=False).fit(graph).result_.guarantee == "heuristic"
    with pytest.warns(UserWarning, match="solver='power'"):
        assert private(solver="power").fit(RING).result_.guarantee == "heuristic"


def test_without_the_extra(monkeypatch):
    monkeypatch.setattr(exact_module, "find_spec", lambda name: None)
    assert private(model="general", eta=1.0).guarantee(10) == "heuristic"
    monkeypatch.setitem(__import__("sys").modules, "cvxpy", None)
    with pytest.raises(MissingExtraError, match=r"pip install \"private-sbm\[exact\]\""):
        sdp_recover(RING, 0.3, solver="scs")


def test_ledger():
    ledger = PrivacyLedger(eps=3.0, delta=0.03)
    private(random_state=0).fit(RING, ledger=ledger)
    private(random_state=0, lam="noisy-density", eps_density=0.5).fit(RING, ledger=ledger)
    assert ledger.total == pytest.approx((2.5, 0.02))


def test_a_ledger_forgives_rounding_and_nothing_else():
    """0.1 + 0.1 + 0.1 is above 0.3 in binary."""
    for spent in ((0.1, 0.0), (0.0, 0.1), (0.1, 0.1)):
        ledger = PrivacyLedger(eps=0.3, delta=0.3)
        for _ in range(3):
            ledger.spend(*spent)
        for more in ((1e-9, 0.0), (0.0, 1e-9)):
            if spent[more.index(1e-9)]:
                with pytest.raises(BudgetExceededError, match="would bring the total"):
                    ledger.spend(*more)


@pytest.mark.parametrize("name", ["eps", "delta", "slack"])
def test_ledger_budgets(name):
    with pytest.raises(ValueError, match=f"{name} must be greater than 0"):
        PrivacyLedger(**{name: 0.0})
    with pytest.raises(ValueError, match="must be at least 0"):
        PrivacyLedger().spend(-1.0, 0.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: asymmetric_sbm(1, 0.5, 1, 1), "n must be an integer at least 2"),
        (lambda: asymmetric_sbm(10, 0.0, 1, 1), "rho must be greater than 0"),
        (lambda: asymmetric_sbm(10, 0.5, 9, 1), "a must be between 0 and"),
        (lambda: asymmetric_sbm(10, 0.5, 1, -1), "b must be between 0 and"),
        (lambda: general_sbm(10, [5, 6], 1, 1), "Sizes must not exceed n"),
        (lambda: general_sbm(10, [5, 0], 1, 1), "sizes must be an integer at least 1"),
        (lambda: censored_sbm(10, 1, 0.6), "xi must be between 0 and 0.5"),
        (lambda: censored_sbm(10, 1, 0.1, rho=1), "rho must be"),
        (lambda: rate(0, 1, 0), "x must be greater than 0"),
        (lambda: rate(1, -1, 0), "y must be at least 0"),
        (lambda: asymmetric_exponent(0.5, 1, 2), "a must be greater than 2"),
        (lambda: asymmetric_exponent(0, 2, 1), "rho must be greater than 0"),
        (lambda: censored_exponent(1, 0.5), "xi must be at least 0 and less than 0.5"),
        (lambda: general_exponent(1.5, 2, 1), "rho_min must be"),
        (lambda: private_threshold("planted", a=2, b=1), "model must be one of"),
        (lambda: private_threshold("asymmetric", a=2), "b must be given"),
        (lambda: private_threshold("censored", a=2), "xi must be given"),
        (lambda: private_threshold("asymmetric", a=2, b=1, gamma=0), "gamma must be greater than 0"),
        (lambda: threshold_T(1.0, 0.1, "none"), "noise must be one of"),
        (lambda: release_probability(-1.0, 1.0, 0.1), "margin must be at least 0"),
        (lambda: certificate(np.zeros((3, 3)), 0.1, np.array([1, -1])), "s must be 3 entries"),
        (lambda: certificate(np.zeros((2, 2)), 0.1, np.array([1, 0])), "s must be 2 entries"),
        (lambda: general_certificate(np.zeros((3, 3)), 0.1, np.array([-1, -1, -1]), 1.0), "labels must use every"),
        (lambda: general_certificate(np.zeros((3, 3)), 0.1, np.array([0, 2, 2]), 1.0), "labels must use every"),
        (lambda: general_certificate(np.zeros((3, 3)), 0.1, np.array([0, 0, -1]), None), "no outliers"),
        (lambda: margin(RING, -0.1), "lam must be at least 0"),
        (lambda: margin(RING, 0.1, model="none"), "model must be one of"),
        (lambda: margin(RING, 0.1, neighbor="relabel"), "neighbor must be one of 'edge'"),
        (lambda: solve(np.zeros((3, 3)), 0.1, "none"), "solver must be one of"),
        (lambda: solve(np.zeros((15, 15)), 0.1, "enumerate"), "n must be at most 14"),
        (lambda: mle_recover(nx.empty_graph(15), 0.1), "number of vertices must be between 2 and 14"),
        (lambda: spectral_recover(nx.empty_graph(1), 0.1), "number of vertices must be at least 2"),
        (lambda: sdp_recover(RING, -1.0), "lam must be at least 0"),
        (lambda: MLEStability(lam=0.3, delta=0.01).fit(nx.empty_graph(15)), "number of vertices must be between"),
        (lambda: MLEStability("general", lam=0.3, eta=1.0, delta=0.01).fit(RING), "model must be one of"),
        (lambda: ConcentrationSBM(lam=0.3, delta=0.01).fit(RING), "a and b must be given"),
        (lambda: ConcentrationSBM("censored", delta=0.01).fit(RING), "weights must be|model must be"),
        (lambda: RandomizedResponseSBM(eps=0).fit(RING), "eps must be greater than 0"),
        (lambda: RandomizedResponseSBM(model="general").fit(RING), "model must be one of"),
        (lambda: RandomizedResponseSBM(solver="none").fit(RING), "solver must be one of"),
        (lambda: SpectralLaplaceSBM(eps=-1).fit(RING), "eps must be greater than 0"),
        (lambda: audit(private(), -1), "pairs must be an integer at least 1"),
        (lambda: audit(private(), 1, samples=-1), "samples must be an integer at least 0"),
        (lambda: audit(lambda: None, 3), "Pass pairs"),
        (lambda: audit(private(), []), "pairs must be one or more, got none"),
        (lambda: audit(private(), [(RING, nx.empty_graph(5))]), "same vertices, got different numbers in pair 0"),
        (lambda: audit(private(), [(RING, nx.path_graph(6)), (RING, RING)]), "no neighbours in pair 1"),
        (lambda: audit(private(), [(RING, nx.empty_graph(6))]), "must differ in one edge"),
        (lambda: audit(PrivateSBM("censored", delta=0.01), [LABELS]), "must differ in one edge"),
        (lambda: audit(private(lam="noisy-density"), 3), "lam must be the same for both graphs"),
        (lambda: adjacency(RING, num_nodes=6), "num_nodes is for an edge_index, got 6 with a networkx graph"),
        (lambda: RandomizedResponseSBM(a=3).fit(RING), "a and b must be given together"),
        (lambda: RandomizedResponseSBM(a=3, b=-1).fit(RING), "b must be greater than 0"),
        (lambda: RandomizedResponseSBM(a=1, b=2).fit(RING), "a must be greater than 2"),
        (lambda: RandomizedResponseSBM(a=3, b=3).fit(RING), "a must be greater than 3"),
        (lambda: SpectralLaplaceSBM(lam=np.nan).fit(RING), "lam must be at least 0"),
        (lambda: ConcentrationSBM(a=2, b=1, lam=0.3).fit(RING), r"lam must be left alone: it is \(p \+ q\) / 2"),
        (lambda: margin(RING, 0.3, model="general", eta=-1.0), "eta must be greater than 0"),
        (lambda: margin(RING, 0.3, model="general", exact_limit=1.5), "exact_limit must be an integer"),
        (lambda: utility_report(100, (60, 5)), r"degrees\[0\] must be greater than 0 and at most 50.0"),
        (lambda: utility_report(100, (30, 60)), r"degrees\[1\] must be greater than 0 and at most 50.0"),
        (lambda: utility_report(100, (30, 6), rho=1.0), "rho must be greater than 0 and less than 1"),
        (lambda: utility_report(100, (30, 6), model="none"), "model must be one of"),
        (lambda: explain_refusal(PrivateSBM(a=60, b=1), 100), "a must be at most n / ln n"),
        (lambda: utility_report(2, (1, 1)), "n must be an integer at least 3"),
        (lambda: utility_report(100, (0, 1)), r"degrees\[0\] must be greater than 0"),
        (lambda: utility_report(100, (5, 0)), r"degrees\[1\] must be greater than 0"),
        (lambda: explain_refusal(private(), 100), "a and b must be given to predict"),
        (lambda: explain_refusal(PrivateSBM("censored", a=9), 100), "a and xi must be given"),
    ],
)
def test_functions(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_pairs_that_differ_in_a_label_are_neighbours_under_relabel():
    assert audit(PrivateSBM("censored", delta=0.01, neighbor="relabel"), [LABELS]).pairs == 1
    assert audit(private(), np.int64(2)).pairs == 2


def test_budget_exceeded_spends_nothing_and_looks_at_nothing():
    ledger = PrivacyLedger(eps=1.5)
    private().fit(RING, ledger=ledger)
    estimator = private()
    with pytest.raises(BudgetExceededError, match="total to eps 2, delta 0.02; the budget is eps 1.5"):
        estimator.fit(RING, ledger=ledger)
    assert not hasattr(estimator, "labels_")
    assert ledger.total[0] == 1.0
