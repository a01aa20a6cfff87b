"""Labels of nodes, seen and unseen."""

import pickle  # noqa: TID251 -- users pickle models into worker processes

import duplex_embed as dx
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

GRAPH = dx.datasets.import_graph("networkx")
NODES = dx.split_nodes(GRAPH, seed=0)


@pytest.fixture(scope="module")
def model():
    inside = NODES.train | NODES.val
    part = GRAPH.subgraph(inside)
    masks = (NODES.train[inside], NODES.val[inside])
    return dx.DUPLEXClassifier(dim=8, random_state=0, device="cpu").fit(part, *masks, epochs=40)


def test_unseen_nodes_get_labels(model):
    """Of five sub-packages the largest holds less than two thirds; macro-F1 of always saying it is 0.16."""
    score = model.score(GRAPH, NODES.test)
    assert score > 0.3
    p = model.predict_proba(GRAPH)
    assert p.shape == (GRAPH.num_nodes, 5)
    np.testing.assert_allclose(p.sum(1), 1, rtol=1e-5)
    assert (model.predict(GRAPH) == p.argmax(1)).all()
    assert max(model.history_) > 0.4
    assert len(model.history_) == 8


def test_unlabelled_nodes_do_not_count():
    y = GRAPH.y.clone()
    y[NODES.test] = -1
    hidden = dx.as_graph(GRAPH.edge_index, num_nodes=GRAPH.num_nodes, x=GRAPH.x, y=y)
    first = dx.DUPLEXClassifier(dim=4, random_state=0).fit(hidden, epochs=3)
    second = dx.DUPLEXClassifier(dim=4, random_state=0).fit(GRAPH, NODES.train | NODES.val, epochs=3)
    assert first.history_ == second.history_
    np.testing.assert_array_equal(first.predict(GRAPH), second.predict(GRAPH))


def test_clone_refit_pickle_save(model, tmp_path):
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    other = dx.DUPLEXClassifier(dim=4, init="degree", random_state=1)
    other.fit(GRAPH, epochs=1)
    again = other.fit(GRAPH, NODES.train, epochs=2).predict_proba(GRAPH)
    np.testing.assert_array_equal(again, clone(other).fit(GRAPH, NODES.train, epochs=2).predict_proba(GRAPH))
    assert other.get_params()["init"] == "degree"
    wanted = model.predict_proba(GRAPH)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(GRAPH), wanted)
    model.save(tmp_path / "model")
    loaded = dx.DUPLEXClassifier.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.predict_proba(GRAPH), wanted)
    assert loaded.history_ == model.history_
    with pytest.raises(ValueError, match="must hold a model"):
        dx.DUPLEX.load(tmp_path / "model")
    fitted = dx.DUPLEX(dim=4).fit(GRAPH, epochs=1).save(tmp_path / "links")
    with pytest.raises(ValueError, match="must hold a classifier"):
        dx.DUPLEXClassifier.load(fitted)


def test_an_embedding_of_links_tells_labels():
    embedding = dx.DUPLEX(dim=16, random_state=0).fit(GRAPH, epochs=60).embed()
    clf = dx.EmbeddingClassifier(lr=1e-2, random_state=0)
    clf.fit(embedding, GRAPH.y, NODES.train, NODES.val, epochs=150)
    test = NODES.test & (GRAPH.y >= 0)
    predicted = clf.predict(embedding)
    from duplex_embed.readout import macro_f1

    assert macro_f1(GRAPH.y[test], predicted[test.numpy()]) > 0.35
    np.testing.assert_allclose(clf.predict_proba(embedding).sum(1), 1, rtol=1e-5)
    assert clone(clf).get_params() == clf.get_params()
    without = dx.EmbeddingClassifier(random_state=0).fit(embedding, GRAPH.y, NODES.train, epochs=2)
    assert without.predict(embedding).shape == (GRAPH.num_nodes,)


def test_macro_f1_by_hand():
    from duplex_embed.readout import macro_f1

    assert macro_f1(torch.tensor([0, 0, 1, 1]), np.array([0, 1, 1, 1])) == pytest.approx((2 / 3 + 0.8) / 2)
    assert macro_f1(torch.tensor([0, 0]), np.array([0, 5])) == pytest.approx(2 / 3)


def test_before_fitting(tmp_path):
    for call in (
        lambda: dx.DUPLEXClassifier().predict(GRAPH),
        lambda: dx.DUPLEXClassifier().save(tmp_path / "x"),
        lambda: dx.EmbeddingClassifier().predict(dx.spectral_ham([(0, 1)])),
    ):
        with pytest.raises(NotFittedError, match="Call fit first"):
            call()
