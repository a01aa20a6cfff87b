"""Source/target embeddings, their read-out, and the trained peers."""

import duplex_embed as dx
import numpy as np
import pytest
import torch
from duplex_embed import baselines, peers
from duplex_embed.baselines import SourceTarget, hope, nerd, spectral_radius, svd, with_readout
from duplex_embed.evaluation import validation_auc

GRAPH = dx.datasets.directed_sbm(n=60, blocks=3, p=0.3, q=0.15, seed=1)
SPLIT = dx.split_edges(GRAPH, val=0.1, test=0.2, seed=0)
REAL = dx.split_edges(dx.datasets.import_graph("networkx"), val=0.1, test=0.2, seed=0)
A = baselines.adjacency(GRAPH).toarray()


def test_adjacency_points_from_row_to_column():
    assert baselines.adjacency(dx.as_graph([(0, 1)])).toarray().tolist() == [[0, 1], [0, 0]]


def test_svd_is_the_nearest_of_its_rank():
    found = svd(GRAPH, 10)
    gap = np.linalg.norm(A - (found.source @ found.target.t()).numpy())
    assert gap == pytest.approx(np.linalg.norm(np.linalg.svd(A)[1][10:]), rel=1e-4)


def test_hope_factors_the_katz_matrix():
    found = hope(GRAPH, 59, beta=0.02)
    katz = np.linalg.solve(np.eye(60) - 0.02 * A, 0.02 * A)
    left, values, right = np.linalg.svd(katz)
    best = (left[:, :59] * values[:59]) @ right[:59]
    np.testing.assert_allclose((found.source @ found.target.t()).numpy(), best, atol=1e-5)


def test_the_spectral_radius():
    assert spectral_radius(baselines.adjacency(GRAPH)) == pytest.approx(abs(np.linalg.eigvals(A)).max(), rel=1e-3)
    assert spectral_radius(baselines.adjacency(dx.datasets.random_dag(20))) == 0
    ring = dx.as_graph([(0, 1), (1, 2), (2, 0), (3, 0)])
    assert spectral_radius(baselines.adjacency(ring)) == pytest.approx(1)
    with pytest.raises(ValueError, match="Katz series"):
        hope(ring, 2, beta=1.0)


def test_dual_vectors_are_zero_where_a_role_is_missing():
    graph = dx.as_graph([(0, 1), (0, 2), (3, 1), (3, 2)])
    for found in (svd(graph, 2), hope(graph, 2), nerd(graph, 2, walks=1, epochs=1)):
        np.testing.assert_allclose(found.source[[1, 2]], 0, atol=1e-6)
        np.testing.assert_allclose(found.target[[0, 3]], 0, atol=1e-6)
        assert found.source[0].abs().sum() > 0


def test_scores_and_directions():
    model = SourceTarget(GRAPH, torch.randn(60, 3), torch.randn(60, 3))
    pairs = torch.tensor([[0, 1], [5, 2]])
    s, t = model.source, model.target
    ahead = (s[pairs[:, 0]] * t[pairs[:, 1]]).sum(1)
    back = (s[pairs[:, 1]] * t[pairs[:, 0]]).sum(1)
    np.testing.assert_allclose(model.predict_edges(pairs, "existence"), ahead)
    np.testing.assert_allclose(model.predict_edges(pairs, "direction"), ahead - back)
    for task in ("type", "three"):
        with pytest.raises(NotImplementedError, match="with_readout"):
            model.predict_edges(pairs, task)
    assert any("no read-out" in note for note in dx.evaluate(model, SPLIT.test).notes)


def test_nerd_finds_the_roles():
    """Two groups of sources that point to two groups of targets."""
    edges = [(u, v) for u in range(8) for v in range(16, 24)] + [(u, v) for u in range(8, 16) for v in range(24, 32)]
    found = nerd(dx.as_graph(edges), 4, walks=20, epochs=10, batch_size=64, lr=0.05, seed=0)
    scores = found.source[:16] @ found.target[16:].t()
    assert scores[:8, :8].mean() > scores[:8, 8:].mean() + 1
    assert scores[8:, 8:].mean() > scores[8:, :8].mean() + 1


def test_the_read_out_tells_types():
    model = with_readout(svd(SPLIT.train, 8))
    p = model.predict_edges(SPLIT.test.pairs)
    assert p.shape == (len(SPLIT.test), 4)
    np.testing.assert_allclose(p.sum(1), 1)
    assert (p[:, 2] == 0).all()  # no reciprocal pair to learn from
    np.testing.assert_allclose(model.predict_edges(SPLIT.test.pairs, "existence"), p[:, 1] + p[:, 2])
    three = model.predict_edges(SPLIT.test.pairs, "three")
    np.testing.assert_allclose(three.sum(1), 1)
    assert dx.evaluate(model, SPLIT.test)["natural_accuracy"] > 0.4


@pytest.mark.parametrize("kind", peers.PEERS)
def test_trained_peers_learn_and_count_their_parameters(kind):
    before = torch.get_rng_state()
    width = peers.matching_width(kind, 16, 2000)
    found = peers.fit_peer(kind, REAL.train, REAL.val, width=width, dim=16, epochs=25, every=5)
    assert 1800 <= peers.parameter_count(found.module) <= 2200
    assert torch.equal(torch.get_rng_state(), before)
    report = dx.evaluate(found, REAL.test)
    assert report["dp_auc"] > 0.7
    assert found.score == pytest.approx(validation_auc(found, REAL.val))  # the best epoch is the one that was kept
    again = peers.fit_peer(kind, REAL.train, REAL.val, width=width, dim=16, epochs=25, every=5)
    np.testing.assert_array_equal(again.predict_edges(REAL.test.pairs), found.predict_edges(REAL.test.pairs))


def test_wrong_arguments():
    empty = dx.as_graph(torch.empty(2, 0, dtype=torch.int64), num_nodes=3)
    with pytest.raises(ValueError, match="'magnet'"):
        peers.fit_peer("gcn", GRAPH, None, width=4)
    with pytest.raises(ValueError, match="must have edges"):
        peers.fit_peer("magnet", empty, None, width=4)
    for make in (svd, hope, nerd):
        with pytest.raises(ValueError, match="dim"):
            make(GRAPH, 0)
        assert make(empty, 2).source.abs().sum() == 0
    assert hope(dx.as_graph(torch.empty(2, 0, dtype=torch.int64), num_nodes=1), 2).source.shape == (1, 2)


def test_dual_vectors_are_32_wide_by_default():
    graph = dx.datasets.random_dag(120, 4.0, seed=0)
    for make in (svd, hope, lambda *a: nerd(*a, walks=1, epochs=1)):
        assert make(graph).source.shape == make(graph, 32).source.shape
