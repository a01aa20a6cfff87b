"""What the estimators do: selection, narratives, sessions, trees, saving, groups, costs, soft labels."""

import copy
import itertools
import json

import numpy as np
import pandas as pd
import pytest
import suwr
import torch
from offprints.seeding import isolated
from scipy.stats import beta
from sklearn.linear_model import LogisticRegression
from suwr import SparsityPath, SUWRClassifier, SUWRRegressor, image_patches
from suwr.path import PathPoint

QUICK = {"hidden": 16, "lr": 0.02, "batch_size": 64, "max_epochs": 60, "random_state": 0, "device": "cpu"}
GEN = np.random.default_rng(0)
X = GEN.normal(size=(300, 4))
Y = np.where(X[:, 0] > 0, X[:, 1] > 0, X[:, 2] > 0).astype(int)  # a switch
FRAME = pd.DataFrame(X, columns=["switch", "left", "right", "noise"])


@pytest.fixture(scope="module")
def model():
    return SUWRClassifier(**(QUICK | {"max_epochs": 200, "lr": 0.01}), max_features=3, sparsity=0.3).fit(FRAME, Y)


@pytest.fixture(scope="module")
def regressor():
    return SUWRRegressor(**QUICK, max_features=2).fit(X, 100 + 50 * X[:, 1])


def test_it_learns_a_switch(model):
    assert model.score(FRAME, Y) > 0.9
    order, masks = model.selection_order(FRAME), model.local_support(FRAME)
    assert (order[:, 0] == order[0, 0]).all()  # the first choice knows nothing
    assert masks.sum(axis=1).max() <= 3
    assert 1 < masks.sum(axis=1).mean() <= 3
    assert len(np.unique(masks, axis=0)) > 1
    for row in range(300):
        assert set(order[row][order[row] >= 0]) == set(np.flatnonzero(masks[row]))


def test_it_learns_a_line(regressor):
    assert regressor.score(X, 100 + 50 * X[:, 1]) > 0.9
    assert regressor.local_support(X)[:, 1].all()
    assert regressor.predict(X).mean() == pytest.approx(100 + 50 * X[:, 1].mean(), abs=5)


def test_prediction_reads_nothing_else(model):
    masks = model.local_support(FRAME)
    other = FRAME.where(masks, GEN.normal(size=FRAME.shape) * 100)
    assert (model.local_support(other) == masks).all()
    assert (model.predict_proba(other) == model.predict_proba(FRAME)).all()
    shown = model.transform(FRAME)
    assert (np.isnan(shown) == ~masks).all()
    assert (shown[masks] == X[masks]).all()


def test_stop_probabilities(model):
    stop, masks = model.stop_probabilities(FRAME), model.local_support(FRAME)
    taken = masks.sum(axis=1)
    for row in range(300):
        seen = stop[row, : taken[row] + 1]
        assert (seen[:-1] < 0.5).all()
        assert seen[-1] >= 0.5
        assert np.isnan(stop[row, taken[row] + 1 :]).all()
    assert (stop[taken == 3, 3] == 1).all()


def test_narrative(model):
    told = model.explain(FRAME.iloc[:5])
    order, proba = model.selection_order(FRAME.iloc[:5]), model.predict_proba(FRAME.iloc[:5])
    for row, narrative in enumerate(told):
        names = [FRAME.columns[j] for j in order[row] if j >= 0]
        assert narrative.features == names
        assert narrative.steps[-1].prediction == pytest.approx(proba[row])
        seen = model._unmask(FRAME.iloc[[row]], record=True)
        assert [step.p_select for step in narrative.steps[1:]] == seen.select_prob[0, : len(names)].tolist()
        assert 0 < min(step.p_select for step in narrative.steps[1:]) < 1
        assert [step.value for step in narrative.steps[1:]] == [FRAME.iloc[row][name] for name in names]
        text = str(narrative)
        assert all(name in text for name in names)
        assert "nothing else was looked at" in text
        assert json.loads(json.dumps(narrative.to_dict()))["classes"] == ["0", "1"]
        frame = narrative.to_frame()
        assert list(frame["feature"].dropna()) == names
        assert frame["P(1)"].iloc[-1] == pytest.approx(proba[row, 1])
    assert told[0].steps[0].prediction == pytest.approx(tuple(np.bincount(Y) / 300), abs=1e-5)
    assert "predicts" in str(SUWRRegressor(**(QUICK | {"max_epochs": 2})).fit(X, X[:, 0]).explain(X[:1])[0])


def test_session_is_exact(model):
    for row in range(20):
        session, asked = model.session(), []
        while (question := session.ask()) is not None:
            asked.append(question.columns[0])
            session.tell(X[row, question.columns[0]])
        order = model.selection_order(FRAME.iloc[[row]])[0]
        assert asked == [j for j in order if j >= 0]
        assert session.prediction.tolist() == model.predict_proba(FRAME.iloc[[row]])[0].tolist()
        assert session.told == {FRAME.columns[j]: X[row, j] for j in asked}
    with pytest.raises(RuntimeError, match="stopped"):
        session.tell(1.0)
    session = model.session()
    for wrong, error in (((), ValueError), ((1.0, 2.0), ValueError), ((np.nan,), ValueError), (("a",), TypeError)):
        with pytest.raises(error, match="values"):
            session.tell(*wrong)
    assert str(session.ask()) in FRAME.columns
    assert session.ask().to_dict()["columns"] == session.ask().columns


def test_same_seed_same_masks_and_no_row_knows_another(model):
    again = SUWRClassifier(**model.get_params()).fit(FRAME, Y)
    assert (again.predict_proba(FRAME) == model.predict_proba(FRAME)).all()
    order = GEN.permutation(300)
    for index in (order, order[:1], order[:77]):
        assert (model.predict_proba(FRAME.iloc[index]) == model.predict_proba(FRAME)[index]).all()
        assert (model.local_support(FRAME.iloc[index]) == model.local_support(FRAME)[index]).all()


@pytest.mark.parametrize("kind", ["classifier", "labels", "regressor", "patches"])
def test_saving(kind, model, regressor, tmp_path):
    short = QUICK | {"max_epochs": 3}
    saved = {
        "classifier": lambda: model,
        "regressor": lambda: regressor,
        "labels": lambda: SUWRClassifier(**short, trunk="separate", baseline="value", step_input=True).fit(
            X, np.array(["no", "yes"])[Y]
        ),
        "patches": lambda: SUWRClassifier(**short, groups=image_patches((2, 2), 3), feature_costs=[1, 2, 3, 4]).fit(
            X, Y
        ),
    }[kind]()
    rows = FRAME if kind == "classifier" else X
    folder = saved.save_pretrained(tmp_path / kind)
    assert sorted(path.name for path in folder.iterdir()) == ["model.json", "model.safetensors"]
    loaded = type(saved).from_pretrained(folder, device="cpu")
    assert (loaded.predict(rows) == saved.predict(rows)).all()
    assert (loaded.local_support(rows) == saved.local_support(rows)).all()
    assert loaded.history_ == saved.history_
    assert str(loaded.explain(rows[:2])[0]) == str(saved.explain(rows[:2])[0])
    assert list(getattr(loaded, "feature_names_in_", [])) == list(getattr(saved, "feature_names_in_", []))


def test_sampling_and_its_probabilities():
    model = SUWRClassifier(**(QUICK | {"max_epochs": 10}), stop="sample", max_features=3).fit(X, Y)
    assert (model.local_support(X) == model.local_support(X)).all()
    masks, proba = model.masks_proba(X[:1])
    assert proba.sum() == pytest.approx(1.0, abs=1e-5)
    drawn = model.local_support(np.repeat(X[:1], 4000, axis=0))
    for mask, p in zip(masks, proba[0], strict=True):
        assert (drawn == mask).all(axis=1).mean() == pytest.approx(p, abs=0.04)
        assert model.mask_probability(X[:1], mask[None])[0] == pytest.approx(p, abs=1e-6)
    bits = np.array(list(itertools.product((0.0, 1.0), repeat=4)))
    masks, proba = model.masks_proba(bits)
    proba /= proba.sum(axis=1, keepdims=True)
    found = suwr.exact_leakage(bits, np.ones(16), np.eye(2)[bits[:, 0].astype(int)], proba, masks)
    assert found.feature <= 1e-6


def test_threshold_probabilities(model):
    masks, proba = model.masks_proba(FRAME)
    assert (proba.sum(axis=1) == 1).all()
    assert (masks[proba.argmax(axis=1)] == model.local_support(FRAME)).all()
    assert (model.mask_probability(FRAME, model.local_support(FRAME)) == 1).all()
    assert (model.mask_probability(FRAME, ~model.local_support(FRAME)) == 0).all()


def test_the_most_probable_time_leaks_and_the_threshold_does_not():
    bits = np.array(list(itertools.product((0.0, 1.0), repeat=5)))
    y = (bits[:, 0] * bits[:, 1] + bits[:, 2] > 0).astype(int)
    many = np.repeat(bits, 12, axis=0)
    model = SUWRClassifier(**(QUICK | {"max_epochs": 1})).fit(many, np.repeat(y, 12))

    def measured(masks):
        kinds, index = np.unique(masks, axis=0, return_inverse=True)
        table = np.eye(len(kinds))[index.ravel()]
        return suwr.exact_leakage(bits, np.ones(32), np.eye(2)[y], table, kinds).feature

    leaking = 0
    for seed in range(12):  # any weights do: what is proved does not hang on training
        with isolated(seed), torch.no_grad():
            for weight in model.policy_.parameters():
                torch.nn.init.normal_(weight, std=0.7)
            model.policy_.stop.bias.fill_(-1.0)
        assert measured(model.local_support(bits)) == pytest.approx(0, abs=1e-12)
        leaking += measured(suwr.argmax_time_support(model, bits)) > 0.01
    assert leaking > 2


def test_groups_costs_and_steps():
    grouped = SUWRClassifier(**QUICK, groups=[[0, 1], [2], [3]], sparsity=0.01).fit(X, Y)
    masks = grouped.local_support(X)
    assert (masks[:, 0] == masks[:, 1]).all()
    assert masks[:, 0].any()
    told = grouped.explain(X[masks[:, 0]][:1])[0]
    assert any(step.feature == ("x0", "x1") for step in told.steps[1:])
    assert "x0 = " in str(told)
    session = grouped.session()
    assert isinstance(session.ask().columns, tuple)
    dear = SUWRClassifier(**QUICK, feature_costs=[1, 1, 1, 500], sparsity=0.05).fit(X, Y)
    assert not dear.local_support(X)[:, 3].any()
    pairs = SUWRClassifier(**QUICK, step_size=2, sparsity=0.01).fit(X, Y)
    assert set(pairs.local_support(X).sum(axis=1)) <= {0, 2, 4}
    told = pairs.explain(X[:1])[0]
    assert told.steps[-1].prediction == pytest.approx(pairs.predict_proba(X[:1])[0])
    session = pairs.session()
    while (question := session.ask()) is not None:
        session.tell(*X[0, list(question.columns)])
    assert session.prediction.tolist() == pairs.predict_proba(X[:1])[0].tolist()
    with pytest.raises(ValueError, match="step_size"):
        SUWRClassifier(**(QUICK | {"max_epochs": 2}), step_size=2, stop="sample").fit(X, Y).masks_proba(X)


def test_a_high_price_shows_nothing_and_predicts_the_prior():
    model = SUWRClassifier(**QUICK, sparsity=1e4).fit(X, Y)
    assert not model.local_support(X).any()
    assert model.predict_proba(X[:1])[0] == pytest.approx(np.bincount(Y) / 300, abs=1e-6)
    assert model.explain(X[:1])[0].features == []


def test_the_budget_is_kept_where_it_would_go_on(model):
    eager = copy.deepcopy(model)
    eager.policy_.stop.bias.fill_(-50.0)
    assert (eager.local_support(FRAME).sum(axis=1) == 3).all()
    assert np.isfinite(eager.predict_proba(FRAME)).all()


def test_tree_of_discrete_data():
    bits = np.array(list(itertools.product((0, 1), repeat=4)) * 10)
    y = np.where(bits[:, 0] == 1, bits[:, 1], bits[:, 2])
    for options in ({}, {"step_size": 2}, {"groups": [[0, 1], [2, 3]]}):
        model = SUWRClassifier(**QUICK, **options).fit(bits, y)
        tree = model.to_tree(bits)
        assert tree.predict(bits) == pytest.approx(model.predict_proba(bits))
        assert "predict 0" in tree.to_text()
        assert json.loads(json.dumps(tree.to_dict()))["share"] == 1.0
        assert tree.n_leaves >= 1
    model = SUWRClassifier(**QUICK).fit(bits, y)
    tree = model.to_tree(bits)
    assert tree.children
    assert sum(child.share for child in tree.children.values()) == pytest.approx(1.0)
    for values, child in tree.children.items():
        assert child.share == pytest.approx((bits[:, tree.columns[0]] == values[0]).mean())
    assert tree.depth == model.local_support(bits).sum(axis=1).max()
    if tree.depth:
        with pytest.raises(ValueError, match="knows"):
            tree.predict(np.full((1, 4), 7))


def test_sparsity_path():
    path = SUWRClassifier(**(QUICK | {"max_epochs": 20})).sparsity_path(X, Y, [1.0, 0.001, 1e4])
    assert [point.sparsity for point in path.points] == [0.001, 1.0, 1e4]
    assert path.points[-1].n_features == 0
    assert path.points[0].n_features > 0
    front = path.pareto()
    assert front[0].n_features == 0
    assert all(a.n_features < b.n_features and a.loss > b.loss for a, b in itertools.pairwise(front))
    assert list(path.to_frame().columns) == ["sparsity", "loss", "n_features", "pareto"]
    line = SUWRRegressor(**(QUICK | {"max_epochs": 5})).sparsity_path(FRAME, X[:, 0], [0.01])
    assert line.points[0].model.feature_names_in_.tolist() == list(FRAME.columns)


def test_the_front_holds_what_no_other_point_beats():
    point = lambda loss, count: PathPoint(0.1, loss, count, None)  # noqa: E731
    path = SparsityPath((point(0.5, 3.0), point(0.7, 1.0), point(0.8, 2.0), point(0.4, 4.0), point(0.4, 5.0)))
    assert [(p.loss, p.n_features) for p in path.pareto()] == [(0.7, 1.0), (0.5, 3.0), (0.4, 4.0)]
    assert path.to_frame()["pareto"].tolist() == [True, True, False, True, False]


def test_distillation():
    box = LogisticRegression().fit(X, (X[:, 1] > 0).astype(int) + 3)
    model = suwr.distill(box, X, SUWRClassifier(**QUICK, sparsity=0.1))
    assert set(model.classes_) == {3, 4}
    assert (model.predict(X) == box.predict(X)).mean() > 0.9
    line = suwr.distill(lambda rows: 3 * rows[:, 0], X, SUWRRegressor(**QUICK))
    assert np.corrcoef(line.predict(X), X[:, 0])[0, 1] > 0.9


def test_abstention(model):
    fresh = GEN.normal(size=(2000, 4))
    truth = np.where(fresh[:, 0] > 0, fresh[:, 1] > 0, fresh[:, 2] > 0).astype(int)
    frame = pd.DataFrame(fresh, columns=FRAME.columns)
    found = suwr.calibrate(model, frame[:1000], truth[:1000], max_error=0.03, confidence=0.95)
    labels = found.predict(frame[1000:])
    answered = ~np.ma.getmaskarray(labels)
    assert 0.1 < answered.mean() < 1
    assert (found.answers(frame[1000:]) == answered).all()
    assert found.bound <= 0.03
    answered_there = found.answers(frame[:1000])
    errors = int((model.predict(frame[:1000]) != truth[:1000])[answered_there].sum())
    count = int(answered_there.sum())
    assert found.bound == pytest.approx(beta.ppf(0.95, errors + 1, count - errors))
    assert found.coverage == count / 1000
    assert (labels.data[answered] != truth[1000:][answered]).mean() < 0.05
    never = suwr.calibrate(model, frame[:40], 1 - truth[:40], max_error=0.1)
    assert never.coverage == 0
    assert not never.answers(frame).any()
    for given in ({"max_error": 0}, {"confidence": 1}):
        with pytest.raises(ValueError, match=next(iter(given))):
            suwr.calibrate(model, frame[:10], truth[:10], **given)
    with pytest.raises(ValueError, match="row"):
        suwr.calibrate(model, frame[:0], truth[:0])


@pytest.mark.parametrize("options", [{"trunk": "separate"}, {"baseline": "value"}, {"baseline": "leave-one-out"},
                                     {"baseline": "none"}, {"step_input": True}, {"dtype": "float64"},
                                     {"dtype": "bfloat16"}, {"validation_fraction": 0.0}, {"patience": 0}])  # fmt: skip
def test_options_train(options):
    model = SUWRClassifier(**(QUICK | {"max_epochs": 12} | options)).fit(X, Y)
    proba = model.predict_proba(X)
    assert np.isfinite(proba).all()
    assert proba.sum(axis=1) == pytest.approx(np.ones(300))
    assert model.history_.updates > 0


def test_the_price_of_features_begins_when_exploration_has_faded():
    from suwr.fitting import Plan

    plan = Plan("log", 5, 0.4, max_epochs=1000, explore_epochs=50)
    assert plan.schedule(0) == plan.schedule(50) == (1.0, 1.0, 0.0)
    assert plan.schedule(375) == pytest.approx((0.05**0.5, 1.0, 0.0))  # while features are learned, stops are anywhere
    assert plan.schedule(700) == pytest.approx((0.05, 1.0, 0.0))  # stopping and the price begin when that has faded
    assert plan.schedule(750) == pytest.approx((0.05, 0.1**0.5, 0.2))
    for epoch in (800, 999):
        assert plan.schedule(epoch) == pytest.approx((0.05, 0.1, 0.4))
    late = Plan("log", 5, 0.4, max_epochs=100, explore_epochs=80)
    assert late.schedule(79)[2] == late.schedule(80)[2] == 0.0
    assert late.schedule(85)[2] == pytest.approx(0.2)


def test_inputs_are_left_alone_and_their_form_does_not_matter(model):
    rows = np.asfortranarray(X)
    rows.setflags(write=False)
    plain = SUWRClassifier(**(QUICK | {"max_epochs": 2}))
    a = plain.fit(rows, Y).predict_proba(rows)
    b = plain.fit(X.tolist(), Y.tolist()).predict_proba(X.tolist())
    wide = np.zeros((300, 9))
    wide[:, ::2][:, :4] = X
    c = plain.fit(wide[:, ::2][:, :4], Y).predict_proba(wide[:, ::2][:, :4])
    assert (a == b).all()
    assert (a == c).all()
