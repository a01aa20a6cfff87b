"""What users bring: torch_geometric Data, networkx, sparse matrices, files of the field; the command line; plots."""

import subprocess
import sys

import duplex_embed as dx
import networkx as nx
import numpy as np
import pytest
import torch
from duplex_embed import datasets, plots
from duplex_embed.cli import main
from duplex_embed.graph import unordered
from matplotlib.figure import Figure
from scipy import sparse
from torch_geometric.data import Data

HEAVY = ("sklearn", "torch_geometric", "matplotlib", "networkx")
KARATE = nx.DiGraph(list(nx.karate_club_graph().edges))


def same(graph, other):
    return torch.equal(graph.edge_index, other.edge_index) and graph.num_nodes == other.num_nodes


def test_every_form_of_a_graph_is_the_same_graph():
    edges = torch.tensor(list(KARATE.edges)).t()
    wanted = dx.as_graph(edges)
    matrix = sparse.csr_matrix((np.ones(edges.shape[1]), tuple(edges.numpy())), shape=(34, 34))
    shuffled = edges[:, torch.randperm(edges.shape[1], generator=torch.Generator().manual_seed(0))]
    doubled = torch.cat((edges, edges[:, :5], torch.tensor([[3], [3]])), 1)
    forms = (
        KARATE,
        edges.numpy(),
        [tuple(e) for e in edges.t().tolist()],
        matrix,
        sparse.coo_array(matrix),
        shuffled,
        doubled,
    )
    for form in (*forms, Data(edge_index=edges, num_nodes=34), wanted):
        assert same(dx.as_graph(form), wanted)


def test_data_with_features_and_labels_goes_both_ways():
    data = Data(
        x=torch.arange(8.0).reshape(4, 2), edge_index=torch.tensor([[0, 2], [1, 3]]), y=torch.tensor([0, 1, 1, 0])
    )
    data.edge_attr = torch.tensor([[2.0], [3.0]])
    graph = dx.as_graph(data)
    assert torch.equal(graph.x, data.x)
    assert graph.weight.tolist() == [2, 3]
    back = graph.to_pyg()
    assert torch.equal(back.edge_index, data.edge_index)
    assert torch.equal(back.y, data.y)
    data.edge_attr = torch.ones(2, 3)  # features of edges are no weights
    assert dx.from_pyg(data).weight is None


def test_networkx_keeps_names_weights_and_directions():
    graph = nx.DiGraph()
    graph.add_edge("b", "a", weight=2.5)
    graph.add_edge("a", "c", weight=-1.0)
    found = dx.from_networkx(graph)
    assert found.names == ("b", "a", "c")
    assert found.edge_index.t().tolist() == [[0, 1], [1, 2]]
    assert found.weight.tolist() == [2.5, -1]
    back = found.to_networkx()
    assert nx.utils.graphs_equal(back, graph)
    assert list(dx.as_graph([(0, 1)]).to_networkx().edges) == [(0, 1)]
    both = dx.from_networkx(nx.Graph([(0, 1)]))
    assert both.num_edges == 2
    assert both.one_way() == 0
    assert dx.from_networkx(nx.MultiDiGraph([(0, 1), (0, 1), (1, 1)])).num_edges == 1


def test_pairs_of_names_are_mapped_and_the_map_is_kept():
    graph = dx.as_graph([(10, 30), (30, 20)])
    assert graph.names == (10, 20, 30)
    assert graph.indices([(10, 20)]).tolist() == [[0, 1]]
    assert graph.indices(torch.tensor([[0, 1]])).tolist() == [[0, 1]]
    mixed = dx.as_graph([("a", 1), (1, "b")])
    assert mixed.num_edges == 2
    assert dx.as_graph([(0, 1), (1, 2)]).names is None
    part = graph.subgraph(torch.tensor([2, 0]))
    assert part.names == (30, 10)
    assert part.edge_index.tolist() == [[1], [0]]


def test_files_of_the_field(tmp_path):
    (tmp_path / "snap.txt").write_text("# Directed graph\n# FromNodeId\tToNodeId\n5\t7\n7\t9\n5\t9\n")
    snap = dx.read_snap(tmp_path / "snap.txt")
    assert snap.names == (5, 7, 9)
    assert snap.edge_index.tolist() == [[0, 0, 1], [1, 2, 2]]
    (tmp_path / "signed.txt").write_text("# signed\n0 1 1\n1 2 -1\n")
    assert dx.read_snap(tmp_path / "signed.txt", signed=True).weight.tolist() == [1, -1]
    (tmp_path / "out.x").write_text("% asym unweighted\n% 2 3 3\n1 2\n2 3\n")
    konect = dx.read_konect(tmp_path / "out.x")
    assert konect.names == (1, 2, 3)
    assert konect.weight is None
    (tmp_path / "out.w").write_text("% sym posweighted\n1 2 3.5 1000\n")
    konect = dx.read_konect(tmp_path / "out.w")
    assert konect.weight.tolist() == [3.5, 3.5]
    assert konect.num_edges == 2
    (tmp_path / "e.csv").write_text("source,target\nanna,bert\nbert, carl\n")
    assert dx.read_edges(tmp_path / "e.csv", header=True).names == ("anna", "bert", "carl")
    adjacency = sparse.csr_array(np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0]]))
    parts = {f"adj_{name}": getattr(adjacency, name) for name in ("data", "indices", "indptr", "shape")}
    attributes = sparse.csr_array(np.eye(3))
    parts |= {f"attr_{name}": getattr(attributes, name) for name in ("data", "indices", "indptr", "shape")}
    np.savez(tmp_path / "g.npz", labels=np.array([0, 1, 1]), **parts)
    found = dx.read_npz(tmp_path / "g.npz")
    assert found.edge_index.tolist() == [[0, 1], [1, 2]]
    assert torch.equal(found.x, torch.eye(3))
    assert found.y.tolist() == [0, 1, 1]
    np.savez(tmp_path / "m.npz", attr_matrix=np.eye(3), **{k: v for k, v in parts.items() if k.startswith("adj")})
    assert torch.equal(dx.read_graph(tmp_path / "m.npz", "npz").x, torch.eye(3))


BROKEN = {
    "word": ("snap", "0 1\n1 x\n", "bad.snap, line 2, field 2: must be a number, got 'x'"),
    "short": ("konect", "% asym unweighted\n1 2\n3\n", "line 3: must hold 2 fields, got 1"),
    "empty": ("snap", "# nothing\n", "must hold edges"),
    "decimals": ("snap", "0.5 1\n", "must be integers"),
    "csv": ("csv", "a,b\nc\n", "line 2: must hold source and target"),
    "empty csv": ("csv", "\n", "must hold edges"),
    "format": ("gml", "", "'snap', 'konect'"),
}


@pytest.mark.filterwarnings("ignore:loadtxt:UserWarning")
@pytest.mark.parametrize(("format", "text", "said"), BROKEN.values(), ids=BROKEN)
def test_broken_files_are_named_with_line_and_field(tmp_path, format, text, said):
    (tmp_path / f"bad.{format}").write_text(text)
    with pytest.raises(ValueError, match=said):
        dx.read_graph(tmp_path / f"bad.{format}", format)


def test_broken_npz(tmp_path):
    np.savez(tmp_path / "x.npz", adj_data=np.ones(1))
    with pytest.raises(ValueError, match="must hold the array adj_indices"):
        dx.read_npz(tmp_path / "x.npz")
    with pytest.raises(FileNotFoundError):
        dx.read_edges(tmp_path / "none.csv")


def test_the_shipped_import_graphs_are_those_of_their_versions():
    sympy, network = datasets.import_graph("sympy"), datasets.import_graph("networkx")
    assert (sympy.num_nodes, sympy.num_edges) == (1532, 13_600)
    assert int((~unordered(sympy)[2]).sum()) == 384
    assert int(sympy.y.max()) + 1 == 24
    assert sympy.x.shape == (1532, 512)
    assert (network.num_nodes, network.num_edges) == (580, 1263)


def test_a_package_is_parsed(tmp_path, monkeypatch):
    root = tmp_path / "toy_package"
    (root / "sub").mkdir(parents=True)
    sources = {
        "__init__.py": "from . import alpha", "alpha.py": "import toy_package.sub.beta as b\nb.go()",
        "sub/__init__.py": "", "sub/beta.py": "from ..alpha import thing\nfrom toy_package import sub",
        "broken.py": "def (",
    }  # fmt: skip
    for name, text in sources.items():
        (root / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    graph = datasets.import_graph("toy_package")
    found = {(graph.names[u], graph.names[v]) for u, v in graph.edge_index.t().tolist()}
    toy = "toy_package"
    assert found == {
        (toy, f"{toy}.alpha"), (f"{toy}.alpha", f"{toy}.sub.beta"), (f"{toy}.sub.beta", f"{toy}.alpha"),
        (f"{toy}.sub.beta", f"{toy}.sub"),
    }  # fmt: skip
    assert f"{toy}.broken" in graph.names
    assert (graph.y == -1).all()
    datasets.write_import_graph  # noqa: B018


def test_the_generators_have_the_shapes_they_promise():
    cited = datasets.citation_graph(seed=0)
    assert 1.3 < cited.num_edges / cited.num_nodes < 1.5
    u, v = cited.edge_index
    assert (u > v).float().mean() > 0.98
    assert (cited.y[u] == cited.y[v]).float().mean() > 0.85
    assert cited.degrees()[0].max() > 40
    assert 10 < int((~unordered(cited)[2]).sum()) < 100
    for flow, along in (("cyclic", lambda a, b: (b - a) % 4 == 1), ("hierarchical", lambda a, b: b > a)):
        sbm = datasets.directed_sbm(400, 4, 0.05, 0.05, 0.9, flow, seed=0)
        a, b = sbm.y[sbm.edge_index]
        against = along(b, a)
        assert 0.85 < along(a, b).sum() / (along(a, b) | against).sum() < 0.95
    assert nx.is_directed_acyclic_graph(nx.DiGraph(datasets.random_dag(seed=0).edge_index.t().tolist()))
    games = datasets.tournament(20, upset=0.2, seed=0)
    assert games.num_edges == 190
    assert 0.1 < (games.edge_index[0] > games.edge_index[1]).float().mean() < 0.3
    two = datasets.directed_sbm(100, 2, 0.1, 0.2, 1.0, seed=0)
    a, b = two.y[two.edge_index]
    assert (a[a != b] == 0).all()


def test_the_command_line(tmp_path, capsys):
    file = tmp_path / "edges.csv"
    file.write_text("\n".join(f"n{u},n{v}" for u, v in datasets.random_dag(60, seed=1).edge_index.t().tolist()))
    train = ["train", "--edges", str(file), "--epochs", "3", "--dim", "8", "--out", str(tmp_path / "m")]
    assert main([*train, "--device", "cpu", "--batch-size", "200", "--fanout", "3", "3"]) == 0
    assert "ep_auc" in capsys.readouterr().out
    (tmp_path / "pairs.csv").write_text("n1,n2\nn3,n4\n")
    predict = ["predict", "--model", str(tmp_path / "m"), "--pairs", str(tmp_path / "pairs.csv")]
    assert main(predict) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0] == "source,target,reverse,forward,both,none"
    assert sum(map(float, rows[1].split(",")[2:])) == pytest.approx(1, abs=1e-5)
    assert main([*predict, "--task", "existence"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "source,target,edge"
    assert main(["embed", "--model", str(tmp_path / "m"), "--edges", str(file), "--out", str(tmp_path / "e")]) == 0
    assert dx.Embedding.load(tmp_path / "e").num_nodes == 60
    assert main(["train", "--edges", str(tmp_path / "none"), "--out", str(tmp_path / "x")]) == 2
    assert "duplex-embed:" in capsys.readouterr().err
    (tmp_path / "snap.txt").write_text("1 2\n2 3\n3 1\n1 4\n")
    plain = ["train", "--edges", str(tmp_path / "snap.txt"), "--format", "snap", "--epochs", "1", "--dim", "4"]
    assert main([*plain, "--val", "0", "--test", "0", "--out", str(tmp_path / "s")]) == 0
    (tmp_path / "pairs.csv").write_text("1,2\nx,3\n")
    predict[2] = str(tmp_path / "s")
    assert main(predict) == 2
    assert "must hold node numbers, got 'x'" in capsys.readouterr().err


def test_the_command_line_stops_on_interrupt(monkeypatch, capsys, tmp_path):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("duplex_embed.cli.read_graph", interrupt)
    assert main(["train", "--edges", "x", "--out", str(tmp_path / "m")]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_plots():
    split = dx.split_edges(datasets.import_graph("networkx"), val=0.1, test=0.2, seed=0)
    model = dx.DUPLEX(dim=8, random_state=0).fit(split.train, split.val, epochs=10)
    axes = Figure().subplots(1, 3)
    plots.pair_scatter(axes[0], model.embed(), split.test)
    plots.degree_curves(axes[1], {"DUPLEX": dx.degree_buckets(model, split.test)})
    plots.training_curves(axes[2], model.history_)
    assert len(axes[0].collections) == 2 * len(split.test.types.unique())
    assert len(axes[1].lines) == 2
    assert len(axes[2].lines) == 3
    np.testing.assert_allclose(axes[2].lines[0].get_ydata(), model.history_.ce)


def test_importing_brings_no_heavy_library():
    code = f"import sys, duplex_embed; print([m for m in {HEAVY} if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )
    assert set(dx.__all__) <= set(dir(dx))
    for name in dx.__all__:
        assert getattr(dx, name) is not None
    assert callable(dx.evaluate)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        dx.nothing  # noqa: B018


def test_what_is_given_besides_a_graph_counts():
    plain = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=3)
    found = dx.as_graph(plain, num_nodes=4, x=torch.ones(4, 2), y=torch.tensor([0, 1, 0, -1]))
    assert found.num_nodes == 4
    assert found.features().shape == (4, 2)
    assert dx.as_graph(found) is found
    assert dx.as_graph(found, names="abcd").names == ("a", "b", "c", "d")
    assert dx.as_graph(nx.DiGraph([(0, 1)]), x=torch.ones(2, 1)).x is not None


def test_a_stored_zero_is_no_edge():
    matrix = sparse.coo_array(([1.0, 0.0], ([0, 1], [1, 2])), shape=(3, 3))
    found = dx.as_graph(matrix)
    assert found.edge_index.tolist() == [[0], [1]]
    assert found.weight is None


def test_names_in_an_array():
    model = dx.DUPLEX(dim=4, device="cpu").fit([("a", "b"), ("b", "c")], epochs=1)
    np.testing.assert_array_equal(
        model.predict_edges(np.array([["a", "c"]])), model.predict_edges(torch.tensor([[0, 2]]))
    )


@pytest.mark.parametrize("ids", ["9007199254740993 2", "1 nan"])
def test_numbers_of_nodes_that_floats_do_not_hold_are_refused(tmp_path, ids):
    file = tmp_path / "large.txt"
    file.write_text(f"1 2\n{ids}\n")
    with pytest.raises(ValueError, match="node ids must lie below 2\\^53"):
        dx.read_snap(file)


@pytest.mark.parametrize(("text", "got"), [("a\n", "['a']"), ("", "an empty file")])
def test_the_command_line_refuses_files_without_pairs(tmp_path, capsys, text, got):
    model = dx.DUPLEX(dim=4, device="cpu").fit([("a", "b"), ("b", "c")], epochs=1)
    model.save(tmp_path / "model")
    (tmp_path / "pairs.csv").write_text(text)
    assert main(["predict", "--model", str(tmp_path / "model"), "--pairs", str(tmp_path / "pairs.csv")]) == 2
    assert f"must hold source and target on each line, got {got}" in capsys.readouterr().err
