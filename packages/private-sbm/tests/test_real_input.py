"""Files and graphs that users really have, and the command line on them."""

import gzip
import json
import subprocess
import sys

import networkx as nx
import numpy as np
import pytest
from private_sbm import PrivateSBM, asymmetric_sbm, load_graph, sdp_recover, unweighted, utility_report
from private_sbm.cli import main
from scipy.io import mmwrite

DELTA = 1e-3


@pytest.fixture(scope="module", autouse=True)
def drawn():
    """Drawn here and not at import: a fault of the sampler fails tests, not their collection."""
    global GRAPH, TRUTH
    GRAPH, TRUTH = asymmetric_sbm(120, 0.5, 15, 1, 0)


def labels_of(graph):
    found = PrivateSBM(a=15, b=1, eps=9.0, delta=DELTA, random_state=0).fit(graph).labels_
    return dict(zip(map(str, graph.nodes), found.tolist(), strict=True))


def same_partition(labels):
    values = np.array([labels[str(i)] for i in range(120)])
    return np.array_equal(values, TRUTH) or np.array_equal(1 - values, TRUTH)


def write(path, lines):
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("kind", ["edges", "csv", "tsv", "snap", "graphml", "mtx"])
def test_formats(tmp_path, kind):
    if kind == "graphml":
        path = tmp_path / "g.graphml"
        nx.write_graphml(GRAPH, path)
    elif kind == "mtx":
        path = tmp_path / "g.mtx"
        mmwrite(path, nx.to_scipy_sparse_array(GRAPH, format="coo", dtype=np.int64), symmetry="symmetric")
    else:
        blank = {"csv": ",", "tsv": "\t"}.get(kind, " ")
        head = ["# Undirected graph", "# FromNodeId\tToNodeId", ""]
        both = [f"{v}{blank}{u}" for u, v in GRAPH.edges] if kind == "snap" else []
        suffix = {"edges": "edgelist", "snap": "txt"}.get(kind, kind)
        path = write(tmp_path / f"g.{suffix}", head + [f"{u}{blank}{v}" for u, v in GRAPH.edges] + both)
    graph = load_graph(path)
    assert graph.number_of_edges() == GRAPH.number_of_edges()
    assert same_partition(labels_of(graph))


def test_snap_with_isolated_vertices(tmp_path):
    path = write(tmp_path / "g.txt", ["0 1", "1 2"])
    assert load_graph(path).number_of_nodes() == 3
    assert list(load_graph(path, nodes=5).nodes) == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="line 2: nodes must be between 0 and 1"):
        load_graph(path, nodes=2)


def test_vertices_of_a_list_are_given(tmp_path):
    """Which vertices have an edge is secret: with `nodes` one edge less changes neither names nor their order."""
    both = write(tmp_path / "a.edges", ["b c", "d a"])
    less = write(tmp_path / "b.edges", ["b c"])
    names = ["a", "b", "c", "d", "e"]
    assert list(load_graph(both, nodes=names).nodes) == list(load_graph(less, nodes=names).nodes) == names
    assert list(load_graph(both).nodes) != list(load_graph(less).nodes)
    signed = write(tmp_path / "a.signed", ["b c +"])
    assert list(load_graph(signed, nodes=names).nodes) == names
    for path in (both, signed):
        with pytest.raises(ValueError, match="line 1: vertices must be among the given nodes, got another"):
            load_graph(path, nodes=["a", "b"])
        for nodes in (5, "abcde"):
            with pytest.raises(TypeError, match="nodes must be"):
                load_graph(path, nodes=nodes)
    with pytest.raises(TypeError, match="nodes must be an integer"):
        load_graph(write(tmp_path / "g.txt", ["0 1"]), nodes=["0", "1"])
    with pytest.raises(ValueError, match="nodes must be an integer at least 0"):
        load_graph(write(tmp_path / "g.txt", ["# none"]), nodes=-1)
    assert load_graph(tmp_path / "g.txt", nodes=0).number_of_nodes() == 0
    with pytest.raises(ValueError, match="nodes must be left out for mtx"):
        load_graph(tmp_path / "g.mtx", nodes=5)


def test_signed_lists(tmp_path):
    path = write(tmp_path / "g.signed", ["% a comment", "a b +", "b c -", "c,a,-2.5", "b a 1 1289241912"])
    graph = load_graph(path)
    assert {frozenset(e): m for *e, m in graph.edges(data="label")} == {
        frozenset("ab"): 1, frozenset("bc"): -1, frozenset("ca"): -1,
    }  # fmt: skip
    team = [f"{i} {j} {'+' if (i < 9) == (j < 9) else '-'}" for i in range(18) for j in range(i)]
    found = PrivateSBM("censored", eps=3.0, delta=DELTA, random_state=0).fit(load_graph(write(path, team)))
    assert len(set(found.labels_)) == 2


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("g.edges", ["a b", "secret"], "g.edges, line 2: must have 2 fields or more, got 1"),
        ("g.txt", ["# x", "1 2", "1 secret"], "g.txt, line 3, field 2: must be an integer"),
        ("g.signed", ["a b 1", "a c secret"], "g.signed, line 2, field 3: must be a sign"),
        ("g.signed", ["a b 0"], "line 1, field 3: must be a sign"),
        ("g.signed", ["a b nan"], "line 1, field 3: must be a sign"),
        ("g.signed", ["a secret 1", "secret a -1"], "line 2, field 3: contradicts an earlier line"),
        ("g.graphml", ["<graphml>", "<secret"], "g.graphml, line 2: must be GraphML"),
        ("g.graphml", ["<graphml/>"], "must be GraphML"),
        ("g.mtx", ["secret"], "g.mtx: must be a Matrix Market file"),
        ("g.mtx", ["%%MatrixMarket matrix coordinate real general", "2 2 1", "1 2 1"], "square symmetric"),
        ("g.mtx", ["%%MatrixMarket matrix coordinate real general", "2 3 1", "1 2 1"], "square symmetric"),
        ("g.parquet", ["x"], "kind must be given for a suffix other than"),
    ],
)
def test_bad_files_are_named_with_line_and_field_but_not_quoted(tmp_path, name, lines, message):
    with pytest.raises(ValueError, match=message) as error:
        load_graph(write(tmp_path / name, lines))
    assert "secret" not in str(error.value)
    assert error.value.__suppress_context__ or error.value.__context__ is None


def test_other_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_graph(tmp_path / "none.edges")
    with pytest.raises(ValueError, match="kind must be one of"):
        load_graph(tmp_path / "none.edges", kind="gexf")
    directed = tmp_path / "d.graphml"
    nx.write_graphml(nx.DiGraph([(0, 1)]), directed)
    with pytest.raises(ValueError, match="edgedefault must be undirected"):
        load_graph(directed)
    packed = tmp_path / "g.edges"
    packed.write_bytes(gzip.compress(b"a b\n"))
    with pytest.raises(ValueError, match="codec|fields"):
        load_graph(packed)


def test_graphml_keeps_labels_and_drops_weights(tmp_path):
    path = tmp_path / "g.graphml"
    graph = nx.Graph([("a", "b", {"weight": 0.3, "label": -1}), ("b", "c", {"weight": 2.0, "label": 1})])
    nx.write_graphml(graph, path)
    loaded = load_graph(path)
    assert [marks for *_, marks in loaded.edges(data=True)] == [{"label": -1}, {"label": 1}]


# ---- graphs that come with networkx


@pytest.mark.parametrize("name", ["karate_club_graph", "les_miserables_graph"])
def test_small_social_networks_are_refused_and_the_report_says_so_before(name):
    """The honest answer at small eps; the public guess of degrees alone foresees it."""
    weighted = getattr(nx, name)()
    with pytest.raises(ValueError, match="weights must be 0, 1"):
        PrivateSBM(lam="noisy-density", delta=DELTA).fit(weighted)
    graph = unweighted(weighted)
    n = graph.number_of_nodes()
    assert list(graph.nodes) == list(weighted.nodes)
    assert not utility_report(n, (4.0, 1.0), delta=DELTA).likely
    estimator = PrivateSBM(lam="noisy-density", eps=1.0, delta=DELTA, random_state=0)
    assert estimator.fit(graph).labels_ is None
    assert estimator.release_probability(graph) < 1e-2


def test_planted_graphs_of_networkx():
    two = nx.planted_partition_graph(2, 100, 0.5, 0.02, seed=1)
    found = PrivateSBM(lam=0.15, eps=2.0, delta=DELTA, random_state=0).fit(two)
    assert found.labels_.tolist() == [0] * 100 + [1] * 100
    three = nx.random_partition_graph([50, 60, 40], 0.8, 0.05, seed=3)
    options = {"lam": 0.35, "outliers": False, "eps": 2.0, "delta": DELTA}
    found = PrivateSBM("general", **options, random_state=0).fit(three)
    assert found.labels_.tolist() == [0] * 50 + [1] * 60 + [2] * 40
    gaussian = nx.gaussian_random_partition_graph(120, 40, 2, 0.8, 0.05, seed=0)
    parts = gaussian.graph["partition"]
    labels = PrivateSBM("general", **options).evidence(gaussian).labels
    assert labels is None or len(set(labels)) == len(parts)


def test_recovery_of_the_karate_club_without_privacy():
    """Both factions are the program's optimum at some penalty, or it says that there is none."""
    graph = unweighted(nx.karate_club_graph())
    found = [sdp_recover(graph, lam) for lam in (0.05, 0.1, 0.2)]
    assert all(labels is None or len(labels) == 34 for labels in found)


# ---- the command line


def run(capsys, *arguments):
    status = main([*map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out, err


def test_release_and_save(tmp_path, capsys):
    path = write(tmp_path / "g.edges", [f"v{u} v{v}" for u, v in GRAPH.edges])
    nodes = ("--nodes", write(tmp_path / "names.txt", [f"v{u}" for u in GRAPH.nodes]))
    options = ("--a", 15, "--b", 1, *nodes, "--eps", 50, "--delta", DELTA)
    status, out, _ = run(capsys, "release", path, *options, "--save", tmp_path / "out")
    found = json.loads(out)
    assert status == 0
    assert found["released"]
    assert found["guarantee"] == "proved"
    assert same_partition({name[1:]: label for name, label in found["labels"].items()})
    assert PrivateSBM.load(tmp_path / "out").labels_.tolist() == list(found["labels"].values())
    status, out, _ = run(capsys, "release", path, *options[:6], "--eps", 1e-6, "--delta", DELTA, "--no-strict")
    assert json.loads(out)["labels"] is None
    rest = ("--lam", 0.3, "--delta", DELTA, "--noise", "laplace", "--eps", 50)
    status, out, _ = run(capsys, "release", path, *nodes, *rest)
    assert status == 0
    snap = write(tmp_path / "g.txt", [f"{u} {v}" for u, v in GRAPH.edges])
    status, out, _ = run(capsys, "release", snap, "--nodes", 120, *options[:4], *options[6:])
    assert len(json.loads(out)["labels"]) == 120
    matrix = tmp_path / "g.mtx"
    mmwrite(matrix, nx.to_scipy_sparse_array(GRAPH, format="coo", dtype=np.int64), symmetry="symmetric")
    general = ("--model", "general", "--no-outliers", "--lam", 0.2, "--eps", 50, "--delta", DELTA)
    assert set(json.loads(run(capsys, "release", matrix, *general)[1])["labels"].values()) == {0, 1}
    with_eta = run(capsys, "release", matrix, "--model", "general", "--eta", 4.0, "--lam", 0.2, *general[5:])
    assert set(json.loads(with_eta[1])["labels"].values()) == {0, 1}


def test_a_list_without_its_vertices_is_not_released(tmp_path, capsys):
    for name in ("g.edges", "g.txt", "g.signed"):
        status, out, err = run(capsys, "release", write(tmp_path / name, ["1 2 +"]), "--lam", 0.3)
        assert (status, out) == (2, "")
        assert "--nodes must be given" in err
        assert "secret" in err


def test_wrong_usage(tmp_path, capsys):
    path = write(tmp_path / "g.edges", ["a b"])
    nodes = ("--nodes", write(tmp_path / "names.txt", ["a", "b", "c"]))
    status, out, err = run(capsys, "release", path, *nodes)
    assert (status, out) == (2, "")
    assert "a and b must be given" in err
    for wrong in (
        ("release", tmp_path / "none.edges", *nodes, "--lam", 0.3),
        ("release", path, "--nodes", tmp_path / "none.txt", "--lam", 0.3),
        ("release", path, *nodes, "--lam", "median"),
        ("release", path, *nodes, "--lam", 0.3, "--neighbor", "relabel"),
        ("release", write(tmp_path / "g.txt", ["0 1"]), "--nodes", "many", "--lam", 0.3),
        ("threshold", "--b", 2),
    ):
        status, out, err = run(capsys, *wrong)
        assert (status, out) == (2, "")
        assert err.startswith("private-sbm: ")
    with pytest.raises(SystemExit):
        main(["reproduce"])


def test_threshold_outlook_audit_scale(capsys):
    assert float(run(capsys, "threshold", "--a", 20, "--b", 2)[1]) == pytest.approx(0.874280, abs=1e-6)
    censored = ("--model", "censored", "--a", 10, "--xi", 0.1)
    assert float(run(capsys, "threshold", *censored, "--gamma", 4)[1]) == pytest.approx(
        2 * float(run(capsys, "threshold", *censored)[1]), rel=1e-5
    )
    assert float(run(capsys, "threshold", *censored, "--neighbor", "relabel")[1]) == pytest.approx(
        2 * float(run(capsys, "threshold", *censored)[1]), rel=1e-5
    )
    shared = ("--model", "general", "--a", 40, "--b", 2, "--rho", 0.3)
    assert float(run(capsys, "threshold", *shared, "--no-outliers")[1]) < float(run(capsys, "threshold", *shared)[1])
    status, out, _ = run(capsys, "outlook", "--n", 1500, "--degrees", 73, 7.3)
    assert status == 0
    assert "expected margin" in out
    status, out, _ = run(capsys, "audit", "--lam", 0.3, "--pairs", 20, "--delta", 0.01)
    assert status == 0
    assert "20 pairs" in out
    status, out, _ = run(capsys, "scale", "--n", 300, "--a", 15)
    assert json.loads(out)["exact"]


def test_a_failed_audit_has_its_status(monkeypatch, capsys):
    monkeypatch.setattr(PrivateSBM, "tail", lambda self, margin: 1.0)
    assert run(capsys, "audit", "--lam", 0.3, "--pairs", 5, "--delta", 0.01)[0] == 3


@pytest.mark.slow
def test_the_package_loads_its_libraries_when_first_used():
    code = (
        "import sys, private_sbm\n"
        "assert not {'sklearn', 'networkx', 'scipy', 'torch', 'cvxpy'} & set(sys.modules)\n"
        "assert 'audit' in dir(private_sbm) and callable(private_sbm.audit)\n"
        "import private_sbm.auditing\n"
        "assert callable(private_sbm.audit) and callable(private_sbm.margin)\n"
        "missing = [name for name in private_sbm.__all__ if not hasattr(private_sbm, name)]\n"
        "assert not missing and 'torch' not in sys.modules and 'cvxpy' not in sys.modules, missing\n"
        "try:\n    private_sbm.nothing\nexcept AttributeError as error:\n    assert 'nothing' in str(error)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
