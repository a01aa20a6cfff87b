# ruff: noqa: E501 (a row is a line)
"""Bad input: what, got, expected, hint; nothing silently wrong."""

import duplex_embed as dx
import networkx as nx
import numpy as np
import pytest
import torch
from duplex_embed import datasets
from duplex_embed.decoder import duplex_loss

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 0]])
FEATURES = torch.ones(4, 3)
NAN = torch.tensor([[float("nan"), 0, 0]]).repeat(4, 1)
EMPTY = dx.as_graph(torch.empty(2, 0, dtype=torch.int64), num_nodes=4)


def model(**options):
    return dx.DUPLEX(**{"dim": 4, "device": "cpu", **options})


def labelled(**parts):
    return dx.as_graph(EDGES, num_nodes=4, **{"x": FEATURES, "y": torch.tensor([0, 1, 0, 1]), **parts})


@pytest.fixture(scope="module")
def fitted():
    return model().fit(EDGES, epochs=2)


ROWS = {
    "edges of floats": (lambda: dx.as_graph(EDGES.float()), TypeError, "edge_index must hold integers"),
    "edges upright": (lambda: dx.as_graph(EDGES.t()), ValueError, r"edge_index must be of shape \(2, any\)"),
    "negative node": (lambda: dx.as_graph(EDGES - 1), ValueError, r"must lie in \[0, 3\), got -1"),
    "more nodes than told": (lambda: dx.as_graph(EDGES, num_nodes=3), ValueError, r"must lie in \[0, 3\), got 0 to 3"),
    "no graph": (lambda: dx.as_graph(7), TypeError, "data must be of type Sequence"),
    "no pairs": (lambda: dx.as_graph([(0, 1), (0, 1, 2)]), ValueError, r"edges must be pairs .* \(0, 1, 2\)"),
    "names as strings": (lambda: dx.as_graph(["ab"]), ValueError, "edges must be pairs"),
    "adjacency not square": (lambda: dx.as_graph(__import__("scipy.sparse").sparse.csr_array((2, 3))), ValueError, "adjacency"),
    "weights besides the graph": (lambda: dx.as_graph(nx.DiGraph([(0, 1)]), weight=torch.ones(1)), ValueError, "weight must stand in the graph itself"),
    "a weight None": (lambda: dx.as_graph(nx.DiGraph([("a", "b", {"weight": None})])), TypeError, "weight must be a number on every edge, got None from 'a' to 'b'"),
    "weights besides the matrix": (lambda: dx.as_graph(__import__("scipy.sparse").sparse.eye_array(2), weight=torch.ones(2)), ValueError, "weight must stand"),
    "too few names": (lambda: dx.as_graph(EDGES, names=["a", "b"]), ValueError, "names must be 4 different ones"),
    "names and more nodes": (lambda: dx.as_graph([("a", "b")], num_nodes=5), ValueError, "names must be 5 different ones"),
    "labels of floats": (lambda: dx.DUPLEXClassifier(dim=4).fit(labelled(y=torch.tensor([0.0, 1, 0.5, 1]))), ValueError, "labels y must be whole numbers"),
    "fan-out of one number": (lambda: model().fit(EDGES, epochs=1, batch_size=2, fanout=3), TypeError, "fanout must be of type"),
    "as many others": (lambda: model(init="normal").fit([("a", "b")], epochs=1).embed([("c", "d")]), dx.NotInductiveError, "in their order"),
    "features NaN": (lambda: dx.as_graph(EDGES, x=NAN), ValueError, "x must be finite"),
    "features of other nodes": (lambda: dx.as_graph(EDGES, x=FEATURES[:3]), ValueError, r"x must be of shape \(4, any\)"),
    "weights NaN": (lambda: dx.as_graph(EDGES, weight=torch.full((4,), float("inf"))), ValueError, "weight must be finite"),
    "weights of other edges": (lambda: dx.as_graph(EDGES, weight=torch.ones(3)), ValueError, "weight must be of shape"),
    "labels of other nodes": (lambda: dx.as_graph(EDGES, y=torch.ones(3)), ValueError, "y must be of shape"),
    "train empty": (lambda: model().fit(EMPTY), ValueError, "train must have edges"),
    "split of nothing": (lambda: dx.split_edges(EMPTY), ValueError, "must have an edge to split"),
    "shares above one": (lambda: dx.split_edges(EDGES, val=0.6, test=0.6), ValueError, r"val \+ test must be"),
    "node shares": (lambda: dx.split_nodes(EDGES, train=0.9, val=0.2), ValueError, r"train \+ val"),
    "features missing": (lambda: model(init="features").fit(EDGES), ValueError, "must have features"),
    "several problems": (
        lambda: model(dropout=1.0, init="zero", norm="l3").fit(EDGES, epochs=0), ValueError, "cannot fit DUPLEX: 4 problems",
    ),
    "layers a float": (lambda: dx.NeighborSampler(EDGES, 1.5), TypeError, "layers must be an integer"),
    "fan-out alone": (lambda: model().fit(EDGES, fanout=(2, 2)), ValueError, "fanout must come with a batch_size"),
    "learning rate": (lambda: model(lr=0.0).fit(EDGES), ValueError, "lr must be greater than 0"),
    "dim of 0": (lambda: model(dim=0).fit(EDGES), ValueError, "dim must be an integer at least 1"),
    "epochs of 0": (lambda: model().fit(EDGES, epochs=0), ValueError, "epochs must be an integer at least 1"),
    "a batch of 0": (lambda: model().fit(EDGES, batch_size=0), ValueError, "batch_size must be an integer at least 1"),
    "patience of 0": (lambda: model().fit(EDGES, patience=0), ValueError, "patience must be an integer at least 1"),
    "dim a float": (lambda: model(dim=4.0).fit(EDGES), ValueError, "dim must be an integer"),
    "hidden and heads": (lambda: model(heads=3).fit(EDGES), ValueError, r"multiple of heads \(3\)"),
    "fuse_at": (lambda: model(fuse_at=3).fit(EDGES), ValueError, "fuse_at"),
    "encoder shapes": (
        lambda: dx.DualGATEncoder(3, 2)(FEATURES, FEATURES[:, :2], EDGES, torch.ones(4), torch.ones(4)), ValueError, "x_ph",
    ),
    "encoder NaN": (
        lambda: dx.DualGATEncoder(3, 2)(FEATURES, NAN, EDGES, torch.ones(4), torch.ones(4)), ValueError, "x_ph must be finite",
    ),
    "encoder weights": (
        lambda: dx.DualGATEncoder(3, 2)(FEATURES, FEATURES, EDGES, torch.ones(4), torch.ones(3)), ValueError, "w_ph",
    ),
    "layer weights": (lambda: dx.WeightedGATConv(3, 2)(FEATURES, EDGES, torch.ones(3)), ValueError, "edge_weight"),
    "layer sizes": (lambda: dx.WeightedGATConv(3, 0), ValueError, "out_channels"),
    "norm": (lambda: dx.type_logits(torch.ones(1), torch.ones(1), "l0"), ValueError, "'l2', 'l1'"),
    "loss without negatives": (
        lambda: duplex_loss(FEATURES, FEATURES, EDGES.t(), torch.ones(4).long(), neg_ratio=0.0), ValueError, "neg_ratio",
    ),
    "loss types": (lambda: duplex_loss(FEATURES, FEATURES, EDGES.t(), torch.ones(3).long()), ValueError, "types"),
    "spectral dim": (lambda: dx.spectral_ham(EDGES, 0), ValueError, "dim"),
    "package not installed": (lambda: datasets.import_graph("no_such_package"), ValueError, "installed package"),
    "single module": (lambda: datasets.import_graph("this"), ValueError, "installed package"),
    "flow": (lambda: datasets.directed_sbm(flow="up"), ValueError, "'cyclic'"),
    "citation share": (lambda: datasets.citation_graph(reciprocal=2.0), ValueError, "reciprocal"),
    "labels missing": (lambda: dx.DUPLEXClassifier().fit(dx.as_graph(EDGES, x=FEATURES)), ValueError, "labels y"),
    "labels all unknown": (lambda: dx.DUPLEXClassifier().fit(labelled(y=-torch.ones(4))), ValueError, "labelled nodes"),
    "more labels than classes": (lambda: dx.DUPLEXClassifier(1).fit(labelled()), ValueError, "num_classes = 1, got 1"),
    "mask of indices": (lambda: dx.DUPLEXClassifier().fit(labelled(), torch.arange(4)), TypeError, "mask must be booleans"),
    "mask of other nodes": (lambda: dx.DUPLEXClassifier().fit(labelled(), torch.ones(3).bool()), ValueError, "mask must be"),
    "classifier without features": (
        lambda: dx.DUPLEXClassifier().fit(dx.as_graph(EDGES, y=torch.ones(4))), ValueError, "must have features",
    ),
    "embedding labels": (
        lambda: dx.EmbeddingClassifier().fit(dx.spectral_ham(EDGES), torch.zeros(4), torch.zeros(4).bool()), ValueError, "mask must hold",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "kind", "text"), ROWS.values(), ids=ROWS)
def test_bad_input(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


PAIRS = {
    "a node twice": ([(0, 1), (2, 2)], "task", ValueError, r"two different nodes, got \(2, 2\) at row 1"),
    "out of range": ([(0, 4)], "task", ValueError, r"pairs must lie in \[0, 4\), got 0 to 4"),
    "negative": ([(0, -1)], "task", ValueError, "pairs must lie in"),
    "triples": ([(0, 1, 2)], "task", ValueError, "pairs must be of shape"),
    "floats": ([(0.0, 1.5)], "task", TypeError, "node indices"),
}


@pytest.mark.parametrize(("pairs", "task", "kind", "text"), PAIRS.values(), ids=PAIRS)
def test_bad_pairs(fitted, pairs, task, kind, text):
    with pytest.raises(kind, match=text):
        fitted.predict_edges(pairs)


def test_unknown_tasks_and_names(fitted):
    with pytest.raises(ValueError, match="'existence', 'direction'"):
        fitted.predict_edges([(0, 1)], "links")
    named = model().fit([("a", "b"), ("b", "c")], epochs=1)
    with pytest.raises(ValueError, match="'z', which is none of them"):
        named.predict_edges([("a", "z")])
    assert named.predict_edges([("a", "b")]).shape == (1, 4)


def test_no_pairs_give_no_predictions(fitted):
    assert fitted.predict_edges([]).shape == (0, 4)


def test_unseen_nodes_of_a_random_start():
    found = model(init="normal").fit(EDGES, epochs=1)
    assert found.embed(torch.tensor([[0, 3], [3, 1]])).amplitude.shape == (4, 4)
    with pytest.raises(dx.NotInductiveError, match="init is 'normal', got 5"):
        found.embed(torch.tensor([[0], [4]]))
    clf = dx.DUPLEXClassifier(init="normal").fit(labelled(), epochs=1)
    with pytest.raises(dx.NotInductiveError, match="got 5"):
        clf.predict(torch.tensor([[0], [4]]))


def test_features_are_never_taken_for_zeros():
    found = model(init="features").fit(labelled(), epochs=1)
    with pytest.raises(ValueError, match="as in training, got none"):
        found.embed(EDGES)
    with pytest.raises(ValueError, match="x must be of shape"):
        found.embed(labelled(x=torch.ones(4, 2)))
    clf = dx.DUPLEXClassifier(dim=4).fit(labelled(), epochs=1)
    with pytest.raises(ValueError, match="as in training, got none"):
        clf.predict(EDGES)


def test_names_that_json_cannot_keep(tmp_path):
    graph = nx.DiGraph([((0, 1), (1, 1)), ((1, 1), (2, 1))])
    with pytest.raises(ValueError, match="text or integers"):
        model().fit(graph, epochs=1).save(tmp_path / "model")


def test_a_graph_too_dense_for_negatives_still_trains():
    found = model().fit(datasets.tournament(8), epochs=3)
    assert np.isfinite(found.history_.ce).all()


def test_a_device_that_is_not_here():
    with pytest.raises(ValueError, match="device must be"):
        model(device="nowhere").fit(EDGES)
