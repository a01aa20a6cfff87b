"""Fitting, embedding, predicting, keeping: DUPLEX on small graphs."""

import copy
import pickle  # noqa: TID251 -- users pickle models into worker processes

import duplex_embed as dx
import numpy as np
import pytest
import torch
from duplex_embed.inputs import node_inputs
from duplex_embed.pairs import FORWARD, NEGATIVE
from duplex_embed.training import training_pairs
from offprints.seeding import rng
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

GRAPH = dx.datasets.directed_sbm(n=60, blocks=3, p=0.2, q=0.08, seed=1)
SPLIT = dx.split_edges(GRAPH, val=0.1, test=0.2, seed=0)
PAIRS = SPLIT.test.pairs[:10]
REAL = dx.split_edges(dx.datasets.import_graph("networkx"), val=0.1, test=0.2, seed=0)


def fitted(graph=SPLIT.train, val=None, epochs=3, **options):
    fit = {name: options.pop(name) for name in ("batch_size", "fanout", "every", "patience") if name in options}
    return dx.DUPLEX(**{"dim": 8, "random_state": 0, "device": "cpu", **options}).fit(graph, val, epochs=epochs, **fit)


@pytest.fixture(scope="module")
def model():
    return fitted(REAL.train, REAL.val, epochs=30, every=5, dim=16)


def test_training_learns_the_links(model):
    assert model.history_.ce[-1] < model.history_.ce[0] - 0.3
    report = dx.evaluate(model, REAL.test)
    assert report["ep_auc"] > 0.75
    assert report["dp_auc"] > 0.8


def test_the_best_epoch_by_validation_is_kept(model):
    history = model.history_
    assert history.checked == [5, 10, 15, 20, 25, 30]
    assert history.best == history.checked[int(np.argmax(history.val))]
    tasks = dx.link_tasks(REAL.val)
    from duplex_embed.evaluation import auc

    mean = np.mean([auc(tasks[t].labels, model.predict_edges(tasks[t].pairs, t)) for t in ("existence", "direction")])
    assert mean == pytest.approx(max(history.val))


def test_patience_ends_a_run_early():
    assert len(fitted(val=SPLIT.val, epochs=200, lr=0.1, every=1, patience=3).history_.ce) < 200


def test_predictions_of_the_tasks_agree(model):
    p = model.predict_edges(PAIRS)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    np.testing.assert_allclose(model.predict_edges(PAIRS, "existence"), p[:, 1] + p[:, 2], rtol=1e-5)
    np.testing.assert_allclose(model.score(PAIRS), p[:, 1] + p[:, 2], rtol=1e-5)
    np.testing.assert_allclose(model.predict_edges(PAIRS, "direction"), p[:, 1] / (p[:, 0] + p[:, 1]), rtol=1e-4)
    three = p[:, [0, 1, 3]]
    np.testing.assert_allclose(model.predict_edges(PAIRS, "three"), three / three.sum(1, keepdims=True), rtol=1e-4)


def test_equal_seeds_give_equal_models_and_others_do_not():
    first, second, other = fitted(), fitted(), fitted(random_state=1)
    assert torch.equal(first.embed().phase, second.embed().phase)
    assert not torch.equal(first.embed().phase, other.embed().phase)


def test_no_global_state_moves():
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    fitted()
    assert torch.equal(torch.get_rng_state(), before[0])
    np.testing.assert_array_equal(np.random.get_state()[1], before[1])


def test_clone_get_params_and_refit():
    model = dx.DUPLEX(dim=8, fusion="none", random_state=3, device="cpu")
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    model.fit(dx.datasets.random_dag(20, seed=0), epochs=2)
    again = model.fit(SPLIT.train, epochs=2).embed()
    assert torch.equal(again.amplitude, twin.fit(SPLIT.train, epochs=2).embed().amplitude)
    assert twin.set_params(dim=4).fit(SPLIT.train, epochs=1).embed().amplitude.shape == (60, 4)


@pytest.mark.parametrize("keep", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy], ids=["pickle", "copy"])
def test_pickles_and_copies_predict_the_same(model, keep):
    np.testing.assert_array_equal(keep(model).predict_edges(PAIRS), model.predict_edges(PAIRS))


@pytest.mark.parametrize("init", ["degree", "spectral", "features", "normal"])
def test_saved_and_loaded_to_the_bit(tmp_path, init):
    graph = dx.as_graph(SPLIT.train.edge_index, num_nodes=60, x=torch.randn(60, 5, generator=rng(0, "cpu")))
    model = fitted(graph, init=init, epochs=2).calibrate(SPLIT.val)
    model.save(tmp_path / "model")
    again = dx.DUPLEX.load(tmp_path / "model", device="cpu")
    assert again.get_params() == model.get_params()
    assert again.history_ == model.history_
    np.testing.assert_array_equal(again.predict_edges(PAIRS), model.predict_edges(PAIRS))
    for ours, theirs in zip(again.embed(graph).to_source_target(), model.embed(graph).to_source_target(), strict=True):
        assert torch.equal(ours, theirs)
    assert torch.equal(again.graph.edge_index, graph.edge_index)
    model.embed().save(tmp_path / "embedding")
    found = dx.Embedding.load(tmp_path / "embedding")
    np.testing.assert_array_equal(found.predict_edges(PAIRS), model.predict_edges(PAIRS))
    for wrong in (lambda: dx.Embedding.load(tmp_path / "model"), lambda: dx.DUPLEX.load(tmp_path / "embedding")):
        with pytest.raises(ValueError, match="must hold"):
            wrong()


def test_unseen_nodes_are_embedded_without_training():
    """On the training graph with three nodes more: the old ones far from them stay as they are."""
    model = fitted(layers=2)
    extra = torch.tensor([[60, 61, 60], [61, 62, 62]])
    bigger = dx.as_graph(torch.cat((SPLIT.train.edge_index, extra), 1), num_nodes=63)
    found = model.embed(bigger)
    assert found.amplitude.shape == (63, 8)
    torch.testing.assert_close(found.amplitude[:60], model.embed().amplitude)
    assert torch.isfinite(found.phase).all()
    p = model.predict_edges([(60, 61), (0, 62)], data=bigger)
    np.testing.assert_array_equal(p, found.predict_edges(torch.tensor([[60, 61], [0, 62]])))


def test_the_whole_graph_is_the_same_as_neighbourhoods_without_sampling():
    """One batch of all pairs with full neighbourhoods takes the step of the full graph."""
    whole = fitted(epochs=1, dropout=0.0)
    count = len(training_pairs(SPLIT.train, 1.0, rng(0))[0])
    batched = fitted(epochs=1, dropout=0.0, batch_size=count)
    torch.testing.assert_close(batched.embed().amplitude, whole.embed().amplitude, atol=1e-5, rtol=1e-4)
    wide = fitted(epochs=1, dropout=0.0, batch_size=count, fanout=(99, 99))
    torch.testing.assert_close(wide.embed().amplitude, whole.embed().amplitude, atol=1e-5, rtol=1e-4)


def test_mini_batches_with_few_neighbours_learn_too():
    model = fitted(REAL.train, epochs=12, batch_size=256, fanout=(4, 4), dim=16)
    assert model.history_.ce[-1] < model.history_.ce[0] - 0.1
    assert dx.evaluate(model, REAL.test)["dp_auc"] > 0.62


def test_lambda_decays_and_weighs_the_second_loss():
    steady, gone = fitted(epochs=3), fitted(epochs=3, lam_decay=1.0)
    assert steady.history_.bce[0] == gone.history_.bce[0] > 0
    assert gone.history_.bce[1:] == [0, 0]
    assert steady.history_.bce[1] > 0


def test_inputs_hold_what_they_say():
    graph = dx.as_graph([(0, 1), (2, 1), (1, 3)])
    x = node_inputs(graph, "degree", 16, seed=0)
    assert x.shape == (2, 4, 16)
    torch.testing.assert_close(x[0, :, -4], torch.tensor([0.0, 2.0, 0.0, 1.0]).log1p())
    torch.testing.assert_close(x[1, :, -3], torch.tensor([1.0, 1.0, 1.0, 0.0]).log1p())
    assert x[0, :, -2].tolist() == [0, 1, 0, 1]
    assert x[0, :, -1].tolist() == [1, 1, 1, 0]
    assert not torch.equal(x[0, :, :12], x[1, :, :12])
    larger = node_inputs(dx.as_graph([(0, 1), (2, 1), (1, 3), (4, 5)]), "degree", 16, seed=0)
    assert torch.equal(larger[:, :4, :12], x[..., :12])
    assert 0.05 < float(node_inputs(graph, "degree", 400, seed=0)[..., :396].std()) < 0.15
    assert 0.8 < float(node_inputs(graph, "normal", 400, seed=0).std()) < 1.2
    found = dx.spectral_ham(graph, 6)
    x = node_inputs(graph, "spectral", 6, seed=0)
    torch.testing.assert_close(x[0], found.amplitude.float())
    torch.testing.assert_close(x[1], found.phase.float())


def test_the_temperature_makes_probabilities_fit(model):
    plain = copy.deepcopy(model)
    types = REAL.val.types.numpy()

    def loss(m):
        return -np.log(m.predict_edges(REAL.val.pairs)[np.arange(len(types)), types]).mean()

    before = loss(plain)
    plain.calibrate(REAL.val)
    assert loss(plain) < before - 0.01
    assert plain.temperature_ < 1  # distances of at most about 1 make soft probabilities
    assert (plain.predict_edges(PAIRS).argmax(1) == model.predict_edges(PAIRS).argmax(1)).all()
    with pytest.raises(ValueError, match="val must hold pairs"):
        plain.calibrate(dx.PairSet(torch.empty(0, 2, dtype=torch.int64), torch.empty(0, dtype=torch.int64)))


def test_a_collapse_is_told():
    with pytest.warns(dx.CollapseWarning, match="of type 'none'"):
        fitted(dx.as_graph(SPLIT.train.edge_index, num_nodes=60, x=torch.zeros(60, 2)), init="features", epochs=50)


def test_signed_and_weighted_graphs():
    """Imports of much imported modules count as negative."""
    graph = REAL.train
    edges, n = graph.edge_index, graph.num_nodes
    popular = graph.degrees()[0][edges[1]] > 10
    weight = torch.where(popular, -1.0, 2.0)
    graph = dx.as_graph(edges, num_nodes=n, weight=weight)
    assert graph.signed
    assert not dx.as_graph(edges, num_nodes=n, weight=weight.abs()).signed
    index, weights, _ = dx.message_edges(graph)
    sign = {tuple(e): float(w) for e, w in zip(edges.t().tolist(), weight, strict=True)}
    for column, (u, v) in enumerate(index.t().tolist()):
        w = sign.get((u, v), sign.get((v, u), 1.0))
        if (u, v) in sign and (v, u) in sign:
            continue
        assert weights[0, column] == abs(w)
        assert weights[1, column] == (1 if u == v else 0 if w < 0 else 1 if (u, v) in sign else -1)
    assert dx.hermitian_adjacency(graph).toarray()[tuple(edges[:, popular][:, 0])] == -1
    pairs, types = training_pairs(graph, 1.0, rng(0))
    assert abs(int((types == NEGATIVE).sum()) - int(popular.sum())) <= 24  # pairs both ways count once, by their mean
    model = fitted(graph, epochs=200, dim=16)  # after 60 the margin hung on the seed
    p = model.predict_edges(pairs)
    assert p.shape[1] == 5
    assert p[types == NEGATIVE, NEGATIVE].mean() > p[types == FORWARD, NEGATIVE].mean() + 0.02
    split = dx.split_edges(graph, test=0.2)
    assert (split.test.types == NEGATIVE).any()
    assert "type3_accuracy" in dx.evaluate(model, split.test).scores


def test_top_targets_are_the_most_probable_ones(model):
    found = model.embed()
    n, nodes = found.num_nodes, torch.tensor([3, 7])
    targets, p = found.top_targets(nodes, k=5, shortlist=n)
    for row, u in enumerate(nodes.tolist()):
        rivals = torch.tensor([v for v in range(n) if v != u])
        every = found.predict_edges(torch.stack((torch.full_like(rivals, u), rivals), 1), "existence")
        best = np.argsort(-every)[:5]
        np.testing.assert_allclose(p[row], every[best], rtol=1e-5)
        assert targets[row].tolist() == rivals[best].tolist()
    few = dx.spectral_ham([(0, 1), (1, 2)]).top_targets(torch.tensor([0]), k=4, shortlist=4)
    assert few[0][0, 2:].tolist() == [-1, -1]
    assert few[1][0, 2:].tolist() == [0, 0]


def test_a_model_that_was_not_fitted_says_so():
    for call in (
        lambda m: m.embed(),
        lambda m: m.embed(GRAPH),
        lambda m: m.score(PAIRS),
        lambda m: m.graph,
        lambda m: m.save("x"),
    ):
        with pytest.raises(NotFittedError, match="Call fit first"):
            call(dx.DUPLEX())


def test_a_graph_of_pairs_both_ways_has_no_directions():
    edges = GRAPH.edge_index
    model = fitted(torch.cat((edges, edges.flip(0)), 1), epochs=2)
    assert model.predict_edges(PAIRS, "existence").shape == (10,)
    assert model.predict_edges(PAIRS).shape == (10, 4)
    for task in ("direction", "three"):
        with pytest.raises(ValueError, match="no one-way edges"):
            model.predict_edges(PAIRS, task)


def test_isolated_nodes_hear_themselves_alone():
    model = fitted(dx.as_graph(SPLIT.train.edge_index, num_nodes=64))
    assert torch.isfinite(model.embed().amplitude).all()
    assert np.isfinite(model.predict_edges([(62, 63), (0, 63)])).all()
