"""Splits, test sets, slices: what may leak, and what is measured."""

import duplex_embed as dx
import numpy as np
import pytest
import torch
from duplex_embed.evaluation import low_degree
from duplex_embed.graph import unordered
from duplex_embed.pairs import BOTH, FORWARD, NONE, REVERSE
from duplex_embed.splits import LEAKING, non_edges
from offprints.seeding import rng
from scipy.sparse.csgraph import connected_components

GRAPH = dx.datasets.directed_sbm(n=80, blocks=3, p=0.25, q=0.1, seed=2)
BACK = dx.as_graph(torch.cat((GRAPH.edge_index, GRAPH.edge_index[:, :40].flip(0)), 1), num_nodes=80)


def keys(pairs):
    return {frozenset(pair) for pair in pairs.tolist()}


def test_no_test_edge_carries_a_message():
    split = dx.split_edges(BACK, seed=1)
    messages, *_ = dx.message_edges(split.train)
    heard = keys(messages.t()[messages[0] != messages[1]])
    for part in (split.val, split.test):
        assert heard.isdisjoint(keys(part.pairs[part.types != NONE]))
    assert keys(split.val.pairs).isdisjoint(keys(split.test.pairs))
    everything = keys(BACK.edge_index.t())
    assert (
        heard | keys(split.val.pairs[split.val.types != NONE]) | keys(split.test.pairs[split.test.types != NONE])
        == everything
    )


def test_the_official_protocol_lets_all_edges_speak():
    split = dx.split_edges(BACK, seed=1, official_leak=True)
    messages, *_ = dx.message_edges(split.train)
    assert keys(messages.t()[messages[0] != messages[1]]) == keys(BACK.edge_index.t())
    honest = dx.split_edges(BACK, seed=1)
    assert torch.equal(split.train.edge_index, honest.train.edge_index)
    assert torch.equal(split.test.pairs, honest.test.pairs)
    assert split.protocol == split.test.protocol == LEAKING
    assert honest.protocol == "leak-free"
    assert split.train.carriers.degrees()[0].sum() == BACK.num_edges


def test_sizes_types_and_orientation():
    split = dx.split_edges(BACK, seed=0)
    total = len(unordered(BACK)[0])
    for part, share in ((split.val, 0.05), (split.test, 0.15)):
        count = round(share * total)
        assert len(part) == 2 * count
        assert (part.types == NONE).sum() == count
        assert torch.equal(part.types, dx.pair_types(BACK.edge_index, part.pairs, 80))
    assert {REVERSE, FORWARD, BOTH, NONE} <= set(split.test.types.tolist())
    reverse, forward = ((split.test.types == kind).sum() for kind in (REVERSE, FORWARD))
    assert 0.5 < reverse / forward < 2
    assert len(dx.split_edges(BACK, neg_ratio=2.0).test) == 3 * round(0.15 * total)
    assert not torch.equal(split.test.pairs, dx.split_edges(BACK, seed=1).test.pairs)


def test_a_spanning_forest_stays():
    sparse = dx.datasets.citation_graph(200, seed=0)
    whole, _ = connected_components(abs(dx.hermitian_adjacency(sparse)), directed=False)
    left, _ = connected_components(abs(dx.hermitian_adjacency(dx.split_edges(sparse).train)), directed=False)
    assert left == whole


def test_a_forest_that_eats_the_quota_is_told():
    path = dx.as_graph([(i, i + 1) for i in range(20)] + [(0, 20), (0, 19)])
    with pytest.warns(UserWarning, match="leaves 2 pairs .* fewer than the 4 asked"):
        split = dx.split_edges(path)
    assert (split.test.types != NONE).sum() == 1


def test_non_edges_are_none_and_uniform():
    tiny = dx.as_graph([(0, 1), (1, 2), (2, 3)])
    every = non_edges(tiny, 99, rng(0))
    assert keys(every) == {frozenset(p) for p in ((0, 2), (0, 3), (1, 3))}
    many = non_edges(tiny, 3000, rng(0), unique=False)
    counts = [sum(frozenset(p) == frozenset(q) for p in many.tolist()) for q in ((0, 2), (0, 3), (1, 3))]
    assert min(counts) > 900
    assert 0.45 < (many[:, 0] > many[:, 1]).float().mean() < 0.55
    drawn = non_edges(GRAPH, 500, rng(1))
    assert len(keys(drawn)) == 500
    assert (dx.pair_types(GRAPH.edge_index, drawn, 80) == NONE).all()
    full = dx.datasets.tournament(6)
    assert non_edges(full, 5, rng(0)).shape == (0, 2)
    assert non_edges(full, 5, rng(0), unique=False).shape == (0, 2)


def test_the_four_tasks():
    split = dx.split_edges(BACK, seed=0)
    tasks, types = dx.link_tasks(split.test), split.test.types
    positive = int((types != NONE).sum())
    m = positive // 3
    labels = tasks["existence"].labels
    assert labels.sum() == positive - m
    assert len(labels) == positive + m
    truth = dx.pair_types(BACK.edge_index, tasks["existence"].pairs, 80).numpy()
    np.testing.assert_array_equal(labels, np.isin(truth, (FORWARD, BOTH)))
    assert (truth == REVERSE).sum() == (truth == NONE).sum() == m
    truth = dx.pair_types(BACK.edge_index, tasks["direction"].pairs, 80).numpy()
    np.testing.assert_array_equal(tasks["direction"].labels, truth == FORWARD)
    assert tasks["direction"].labels.mean() == 0.5
    for name, kinds in (("three", 3), ("type", 4)):
        np.testing.assert_array_equal(tasks[name].labels, dx.pair_types(BACK.edge_index, tasks[name].pairs, 80).numpy())
        counts = np.bincount(tasks[name].labels)
        assert len(set(counts[counts > 0])) == 1
        assert (counts > 0).sum() == kinds


class Oracle:
    """Knows the graph."""

    def __init__(self, graph, train):
        self.whole, self.graph = graph, train

    def predict_edges(self, pairs, task="type"):
        types = dx.pair_types(self.whole.edge_index, pairs, self.whole.num_nodes)
        p = torch.nn.functional.one_hot(types, 4).numpy().astype(float)
        if task == "existence":
            return p[:, 1] + p[:, 2]
        return p[:, 1] if task == "direction" else p[:, [0, 1, 3]] if task == "three" else p


def test_the_report_of_one_who_knows_and_of_one_who_does_not():
    split = dx.split_edges(BACK, seed=0, test=0.3)
    report = dx.evaluate(Oracle(BACK, split.train), split.test)
    for name in ("ep_auc", "dp_auc", "type3_accuracy", "type4_accuracy", "type4_auc", "natural_accuracy"):
        assert report[name] == 1
    assert "protocol: leak-free" in str(report)
    empty = dx.as_graph(torch.empty(2, 0, dtype=torch.int64), num_nodes=80)
    report = dx.evaluate(Oracle(empty, split.train), split.test)
    assert report["ep_auc"] == report["dp_auc"] == 0.5
    assert report["type4_accuracy"] == 0.25
    assert report["natural_accuracy"] == 0.5


def test_notes_say_what_cannot_be_measured():
    one_way = dx.split_edges(dx.datasets.random_dag(60, seed=0), seed=0)
    report = dx.evaluate(Oracle(one_way.train, one_way.train), one_way.test)
    assert any("'both' is left out" in note for note in report.notes)
    assert report.counts["type4_accuracy"] == report.counts["type3_accuracy"]
    both = dx.split_edges(torch.cat((GRAPH.edge_index, GRAPH.edge_index.flip(0)), 1), seed=0)
    report = dx.evaluate(Oracle(both.train, both.train), both.test)
    assert {"ep_auc", "dp_auc"}.isdisjoint(report.scores)
    assert any("no one-way edges" in note for note in report.notes)
    with pytest.raises(ValueError, match="at least two types"):
        dx.evaluate(
            Oracle(GRAPH, GRAPH), dx.PairSet(torch.empty(0, 2, dtype=torch.int64), torch.empty(0, dtype=torch.int64))
        )
    with pytest.raises(ValueError, match="'low_in'"):
        dx.evaluate(Oracle(GRAPH, GRAPH), both.test, slices=("high",))


def test_slices_and_buckets_of_low_degree():
    graph = dx.as_graph(torch.tensor([[0, 1, 1], [1, 2, 3]]), num_nodes=5)
    pairs = torch.tensor([[0, 1], [2, 1], [0, 4], [3, 4]])
    found = low_degree(graph, pairs)
    assert found["low_in"].tolist() == [False, False, True, True]
    assert found["low_out"].tolist() == [False, True, False, True]
    assert found["low"].tolist() == [False, True, True, True]
    split = dx.split_edges(BACK, seed=0, test=0.3)
    buckets = dx.degree_buckets(Oracle(BACK, split.train), split.test, (0, 1, 2, 4))
    assert set(buckets) <= {"0", "1", "2-3", "4+"}
    assert sum(count for _, count in buckets.values()) <= len(dx.link_tasks(split.test)["existence"].labels)
    assert all(value == 1 for value, _ in buckets.values())


def test_nodes_are_split_three_to_one_to_one():
    split = dx.split_nodes(GRAPH, seed=0)
    assert [int(m.sum()) for m in (split.train, split.val, split.test)] == [48, 16, 16]
    assert (split.train.int() + split.val.int() + split.test.int() == 1).all()


def test_types_of_pairs_need_not_be_told_how_many_nodes_there_are():
    edges, pairs = torch.tensor([[0, 1, 2], [1, 2, 1]]), torch.tensor([[0, 1], [1, 0], [1, 2], [0, 9]])
    assert dx.pair_types(edges, pairs).tolist() == dx.pair_types(edges, pairs, 10).tolist() == [1, 0, 2, 3]
