"""What must be refused, and with which words."""

import copy
import warnings

import numpy as np
import pandas as pd
import pytest
import suwr
import torch
from suwr import DiscreteProblem, SUWRClassifier, SUWRRegressor, exact_leakage, image_patches, make_syn, probe_selector

QUICK = {"hidden": 8, "max_epochs": 4, "batch_size": 64, "random_state": 0, "device": "cpu"}
GEN = np.random.default_rng(0)
X = GEN.normal(size=(60, 4))
Y = (X[:, 0] > 0).astype(int)


@pytest.fixture(scope="module")
def fitted():
    return SUWRClassifier(**QUICK).fit(X, Y)


def poisoned(value, column=2):
    rows = X.copy()
    rows[5, column] = value
    return rows


# ---- rows


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_name_the_column(value, fitted):
    with pytest.raises(ValueError, match=r"X must be finite, got NaN or inf in column 2 \('x2'\), first in row 5"):
        SUWRClassifier(**QUICK).fit(poisoned(value), Y)
    with pytest.raises(ValueError, match="column 2"):
        fitted.predict(poisoned(value))
    frame = pd.DataFrame(poisoned(value), columns=["a", "b", "age", "d"])
    with pytest.raises(ValueError, match="'age'"):
        SUWRRegressor(**QUICK).fit(frame, X[:, 0])
    for baseline in (suwr.L2X, suwr.INVASE, suwr.REALX):
        with pytest.raises(ValueError, match="column 2"):
            baseline(max_epochs=1).fit(poisoned(value), Y)
    with pytest.raises(ValueError, match="column 2"):
        suwr.GlobalSelector().fit(poisoned(value), Y)


def test_allow_missing_warns_and_never_shows_what_is_missing():
    rows = X.copy()
    rows[::3, 0] = np.nan
    rows[7] = np.nan
    model = SUWRClassifier(**QUICK, allow_missing=True)
    with pytest.warns(UserWarning, match="depends on which values are missing"):
        model.fit(rows, Y)
    assert not (model.local_support(rows) & np.isnan(rows)).any()
    assert not model.local_support(rows)[7].any()
    assert model.predict_proba(rows)[7] == pytest.approx(np.bincount(Y) / 60, abs=1e-6)
    with pytest.raises(ValueError, match="NaN or inf in column 1"):
        model.predict(poisoned(np.inf, 1))
    with pytest.raises(ValueError, match="missing"):
        model.to_tree(rows)


@pytest.mark.parametrize(
    ("rows", "error", "words"),
    [
        (X[0], ValueError, "1D|2D"),
        (X[None], ValueError, "dim"),
        (np.zeros((60, 0)), ValueError, "feature"),
        (np.full((60, 2), "a"), ValueError, "could not convert"),
        (X + 1j, ValueError, "[Cc]omplex"),
        (1e300 * X, ValueError, "variance float64 holds, got too large or small ones: 0"),
        (None, ValueError, "2D"),
    ],
)
def test_rows_that_cannot_be_fitted(rows, error, words):
    with pytest.raises(error, match=words):
        SUWRClassifier(**QUICK).fit(rows, Y)


def test_wrong_rows_at_prediction(fitted):
    with pytest.raises(ValueError, match="3 features"):
        fitted.predict(X[:, :3])
    with pytest.raises(ValueError, match="1D|2D"):
        fitted.predict(X[0])
    assert np.isfinite(fitted.predict_proba(1e300 * X)).all()  # clipped, not overflown
    for kind in (np.float16, np.int64, bool, np.float32):
        assert fitted.predict_proba(X.astype(kind)).shape == (60, 2)


def test_no_rows(fitted):
    none = np.zeros((0, 4))
    assert fitted.predict(none).shape == (0,)
    assert fitted.predict_proba(none).shape == (0, 2)
    assert fitted.local_support(none).shape == (0, 4)
    assert fitted.selection_order(none).shape == (0, 4)
    assert fitted.stop_probabilities(none).shape == (0, 5)
    assert fitted.transform(none).shape == (0, 4)
    assert fitted.explain(none) == []
    assert suwr.GlobalSelector(k=1).fit(X, Y).predict_proba(none).shape == (0, 2)


# ---- labels


def test_labels():
    with pytest.raises(ValueError, match="at least two classes, got one class, 1"):
        SUWRClassifier(**QUICK).fit(X, np.ones(60, int))
    with pytest.raises(ValueError, match="Unknown label type|continuous"):
        SUWRClassifier(**QUICK).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="inconsistent"):
        SUWRClassifier(**QUICK).fit(X, Y[:-1])
    for wrong in (np.nan, np.inf):
        target = X[:, 0].copy()
        target[3] = wrong
        with pytest.raises(ValueError, match="NaN|inf"):
            SUWRRegressor(**QUICK).fit(X, target)
    with pytest.raises(ValueError, match="variance"):
        SUWRRegressor(**QUICK).fit(X, 1e300 * X[:, 0])
    with pytest.raises(ValueError, match="n_samples must be at least 10, got 9"):
        SUWRClassifier(**QUICK).fit(X[:9], Y[:9])
    with pytest.raises(ValueError, match="unseen|unknown|labels"):
        suwr.calibrate(SUWRClassifier(**QUICK).fit(X, Y), X, Y + 5)


def test_constant_target_and_constant_columns():
    model = SUWRRegressor(**QUICK).fit(X, np.full(60, 3.0))
    assert model.predict(X) == pytest.approx(np.full(60, 3.0), abs=0.5)
    rows = X.copy()
    rows[:, 1] = 7.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = SUWRClassifier(**QUICK).fit(rows, Y)
    assert not model.local_support(rows)[:, 1].any()
    assert model.budget_ == 3
    flat = SUWRClassifier(**QUICK).fit(np.ones((60, 3)), Y)
    assert flat.budget_ == 0
    assert flat.predict_proba(np.ones((2, 3))) == pytest.approx(np.tile(np.bincount(Y) / 60, (2, 1)))


# ---- parameters


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"max_features": 0}, ValueError, "max_features must be an integer at least 1, got 0"),
        ({"max_features": -2}, ValueError, "max_features"),
        ({"max_features": 2.0}, TypeError, "max_features"),
        ({"max_features": True}, TypeError, "max_features"),
        ({"sparsity": -0.1}, ValueError, "sparsity must be at least 0"),
        ({"sparsity": np.nan}, ValueError, "sparsity"),
        ({"sparsity": np.inf}, ValueError, "sparsity"),
        ({"sparsity": "much"}, TypeError, "sparsity"),
        ({"loss_scale": 0}, ValueError, "loss_scale"),
        ({"lr": 0}, ValueError, "lr must be greater than 0"),
        ({"layers": 1}, ValueError, "layers"),
        ({"hidden": 0}, ValueError, "hidden"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"step_size": 0}, ValueError, "step_size"),
        ({"max_epochs": 0}, ValueError, "max_epochs"),
        ({"explore_epochs": -1}, ValueError, "explore_epochs"),
        ({"patience": -1}, ValueError, "patience"),
        ({"validation_fraction": 1.0}, ValueError, "validation_fraction"),
        ({"trunk": "both"}, ValueError, "trunk must be one of 'shared', 'separate'"),
        ({"stop": "argmax_time"}, ValueError, "stop must be one of 'threshold', 'sample'"),
        ({"baseline": "best"}, ValueError, "baseline"),
        ({"dtype": "float16"}, ValueError, "dtype"),
        ({"random_state": -1}, ValueError, "random_state"),
        ({"device": "nowhere"}, ValueError, "device"),
        ({"groups": [[0, 1], [1, 2, 3]]}, ValueError, r"columns in more than one group: \[1\]"),
        ({"groups": [[0], [2]]}, ValueError, r"columns in no group: \[1, 3\]"),
        ({"groups": [[0, 1, 2, 9]]}, ValueError, r"group 0 must be of columns between 0 and 3, got \[9\]"),
        ({"groups": [[0, 1, 2, 3], []]}, ValueError, "group 1 must be a non-empty list"),
        ({"groups": "0123"}, TypeError, "groups"),
        ({"feature_costs": [1, 2]}, ValueError, "feature_costs"),
        ({"feature_costs": [1, 2, -3, 1]}, ValueError, "non-negative"),
        ({"feature_costs": [1, 2, np.nan, 1]}, ValueError, "finite"),
        ({"feature_costs": ["a", "b", "c", "d"]}, TypeError, "numbers"),
        ({"feature_costs": {"x0": 1}}, TypeError, "feature_costs"),
    ],
)
def test_parameters(given, error, words):
    with pytest.raises(error, match=words):
        SUWRClassifier(**(QUICK | given)).fit(X, Y)


def test_all_wrong_parameters_at_once():
    with pytest.raises(ValueError, match="3 problems") as caught:
        SUWRClassifier(max_features=0, sparsity=-1, trunk="x").fit(X, Y)
    assert all(word in str(caught.value) for word in ("max_features", "sparsity", "trunk"))


def test_more_features_than_there_are_warns():
    with pytest.warns(UserWarning, match=r"max_features = 9 is more than there are \(4\)"):
        model = SUWRClassifier(**QUICK, max_features=9).fit(X, Y)
    assert model.budget_ == 4


def test_patches():
    for given in ((4,), (4, 4, 1)):
        with pytest.raises(ValueError, match="shape"):
            image_patches(given)
    with pytest.raises(ValueError, match="odd"):
        image_patches((4, 4), 2)
    with pytest.raises(ValueError, match="at least 1"):
        image_patches((0, 4))
    assert image_patches((2, 3), 3)[0].tolist() == [0, 1, 3, 4]
    assert image_patches((3, 3), 3)[4].tolist() == list(range(9))


# ---- selectors that do not answer as they must


def test_selectors():
    good = lambda A: np.ones(A.shape, dtype=bool)  # noqa: E731
    for selector, error, words in (
        (lambda A: good(A)[:, :2], ValueError, "of shape"),
        (lambda A: good(A).astype(float), TypeError, "of dtype bool, got float64"),
        (lambda A: 2 * good(A).astype(int), TypeError, "of 0 and 1"),
        (lambda A: good(A)[0], ValueError, "of shape"),
        (lambda A: A.fill(0) or good(A), ValueError, "leave its rows as they are"),
        ("kbest", TypeError, "a function of rows"),
        (lambda A: None, ValueError, "of shape"),
    ):
        with pytest.raises(error, match=words):
            probe_selector(selector, X, n_probes=10)
    assert not probe_selector(lambda A: good(A).astype(int), X, n_probes=10).leaks
    for given in ({"n_probes": 0}, {"kind": "x"}, {"conditional": "near"}, {"n_draws": 0}, {"alpha": 0}):
        with pytest.raises(ValueError, match=next(iter(given))):
            probe_selector(good, X, **given)
    with pytest.raises(TypeError, match="mask_probability"):
        probe_selector(good, X, kind="probability")
    for rows in (X[0], X[:1], X[:, :0], poisoned(np.inf)):
        with pytest.raises(ValueError, match="X must be"):
            probe_selector(good, rows)
    with pytest.raises(ValueError, match="conditional"):
        probe_selector(good, X, n_probes=10, conditional=lambda rows, masks, gen: rows[:, :2])
    with pytest.raises(ValueError, match="y must be"):
        suwr.label_leakage(good, X, Y[:-1])
    with pytest.raises(ValueError, match="folds"):
        suwr.label_leakage(good, X, Y, folds=50)
    with pytest.raises(ValueError, match="surrogate"):
        suwr.label_leakage(good, X, Y, surrogate="none")
    with pytest.raises(ValueError, match="attributions"):
        suwr.TopK(lambda A: A[:, :2]).local_support(X)
    with pytest.raises(ValueError, match="NaN"):
        suwr.TopK(lambda A: A * np.nan).local_support(X)
    with pytest.raises(ValueError, match="k must be"):
        suwr.TopK(lambda A: A, k=9).local_support(X)


# ---- exact problems


def test_exact_problems():
    bits, y = suwr.make_and_toy(4)
    problem = DiscreteProblem.from_arrays
    for given, error, words in (
        ({"loss": "hinge"}, ValueError, "loss must be one of"),
        ({"weights": -np.ones(16)}, ValueError, "weights"),
        ({"weights": np.zeros(16)}, ValueError, "weights"),
        ({"weights": np.ones(3)}, ValueError, "weights"),
        ({"costs": [1.0]}, ValueError, "costs"),
        ({"costs": [-1.0, 1, 1, 1]}, ValueError, "costs"),
        ({"max_features": -1}, ValueError, "max_features"),
        ({"forced": [0], "forbidden": [0]}, ValueError, "disjoint"),
        ({"forced": [0, 1], "max_features": 1}, ValueError, "max_features"),
        ({"forced": [7]}, ValueError, "forced"),
        ({"forced": "0"}, TypeError, "forced"),
    ):
        with pytest.raises(error, match=words):
            problem(bits, y, **given)
    with pytest.raises(ValueError, match="NaN"):
        problem(bits.astype(float) * np.nan, y)
    with pytest.raises(ValueError, match="y must be"):
        problem(bits, y[:3])
    with pytest.raises(ValueError, match="sum to 1"):
        problem(bits, np.ones((16, 2)), loss="log")
    with pytest.raises(ValueError, match="at least one row"):
        problem(bits[:0], y[:0])
    with pytest.raises(ValueError, match="at most 20000000 pairs of a row and a set of columns"):
        problem(GEN.normal(size=(100, 20)), GEN.normal(size=100))
    with pytest.raises(ValueError, match="pairs"):
        problem(GEN.normal(size=(100, 300)), GEN.normal(size=100), max_features=3)
    assert problem(GEN.normal(size=(100, 20)), GEN.normal(size=100), max_features=1).n_cells == 1 + 20 * 100
    whole = problem(bits, y)
    with pytest.raises(ValueError, match="lam"):
        whole.solve_lp(-1.0)
    with pytest.raises(ValueError, match="solver"):
        whole.solve(0.1, "simplex")
    found = whole.solve(0.1)
    with pytest.raises(ValueError, match="support, got row 0"):
        found.masks_proba(bits[:1] + 5)


def test_exact_leakage():
    bits = np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    p, p_y, table = np.full(4, 0.25), np.full((4, 2), 0.5), np.full((4, 2), 0.5)
    masks = np.array([[True, False], [False, True]])
    good = {"X": bits, "p": p, "p_y_given_x": p_y, "p_mask_given_x": table, "masks": masks}
    assert exact_leakage(**good).feature == 0
    for given, error, words in (
        ({"masks": masks.astype(int)}, TypeError, "bool"),
        ({"masks": masks[[0, 0]]}, ValueError, "distinct"),
        ({"X": bits[[0, 0, 1, 2]]}, ValueError, "distinct points"),
        ({"p": -p}, ValueError, "p must be"),
        ({"p": p * np.nan}, ValueError, "p must be finite"),
        ({"p_y_given_x": p_y * 2}, ValueError, "p_y_given_x"),
        ({"p_mask_given_x": table * 2}, ValueError, "p_mask_given_x"),
        ({"p_mask_given_x": table[:3]}, ValueError, "p_mask_given_x"),
    ):
        with pytest.raises(error, match=words):
            exact_leakage(**(good | given))


# ---- the torch path


def test_policy_and_rollout():
    net = suwr.SequentialPolicy(3, 2, hidden=4)
    for given, error in (
        ({"n_features": 0}, ValueError), ({"n_outputs": 0}, ValueError), ({"layers": 1}, ValueError),
        ({"trunk": "x"}, ValueError), ({"n_units": 0}, ValueError), ({"hidden": 1.5}, TypeError),
    ):  # fmt: skip
        with pytest.raises(error, match=next(iter(given))):
            suwr.SequentialPolicy(**({"n_features": 3, "n_outputs": 2} | given))
    with pytest.raises(ValueError, match="x must be of shape"):
        net(torch.zeros(2, 4), torch.zeros(2, 4, dtype=torch.bool))
    with pytest.raises(ValueError, match="mask must be of shape"):
        net(torch.zeros(2, 3), torch.zeros(1, 3, dtype=torch.bool))
    gen = torch.Generator()
    with pytest.raises(TypeError, match="generator"):
        suwr.rollout(net, torch.zeros(2, 3), 2)
    with pytest.raises(ValueError, match="budget must be an integer between 0 and 3, got 4"):
        suwr.rollout(net, torch.zeros(2, 3), 4, generator=gen)
    with pytest.raises(ValueError, match="explore"):
        suwr.rollout(net, torch.zeros(2, 3), 2, generator=gen, explore=1.5)
    rolled = suwr.rollout(net, torch.zeros(2, 3), 2, generator=gen)
    for given in ({"kind": "hinge"}, {"baseline": "x"}):
        with pytest.raises(ValueError, match=next(iter(given))):
            suwr.suwr_loss(rolled, torch.zeros(2, dtype=torch.long), **given)
    with pytest.raises(ValueError, match="stop"):
        suwr.unmask(net, torch.zeros(2, 3), 2, stop="argmax_time")


# ---- data


def test_synthetic_sets():
    for given, error in (
        ({"name": "syn7"}, ValueError), ({"n": -1}, ValueError), ({"d": 10}, ValueError),
        ({"variant": "x"}, ValueError), ({"n": 2.5}, TypeError), ({"seed": -1}, ValueError),
    ):  # fmt: skip
        with pytest.raises(error, match=next(iter(given))):
            make_syn(**({"name": "syn1", "n": 5} | given))
    for d in (3, 0, 18):
        with pytest.raises(ValueError, match="d must be"):
            suwr.make_and_toy(d)


def test_a_fitted_model_refuses_what_it_cannot_do(fitted, tmp_path):
    with pytest.raises(ValueError, match="12 to list|at most 12"):
        SUWRClassifier(**QUICK, stop="sample").fit(GEN.normal(size=(60, 13)), Y).masks_proba(np.zeros((1, 13)))
    with pytest.raises(ValueError, match="masks must be"):
        fitted.mask_probability(X, np.ones((60, 3), bool))
    eager = copy.deepcopy(fitted)
    eager.policy_.stop.bias.fill_(-9.0)
    with pytest.raises(ValueError, match="discrete"):
        eager.to_tree(X, max_nodes=20)
    for given, words in (([], "at least one"), ([-1.0], "sparsities"), ([0.1, np.nan], "sparsities")):
        with pytest.raises(ValueError, match=words):
            SUWRClassifier(**QUICK).sparsity_path(X, Y, given)
    with pytest.raises(TypeError, match="sparsities"):
        SUWRClassifier(**QUICK).sparsity_path(X, Y, 0.1)
    with pytest.raises(ValueError, match="test_fraction"):
        SUWRClassifier(**QUICK).sparsity_path(X, Y, [0.1], test_fraction=1.0)
    with pytest.raises(FileNotFoundError):
        SUWRClassifier.from_pretrained(tmp_path / "none")
    fitted.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="SUWRRegressor, got a SUWRClassifier"):
        SUWRRegressor.from_pretrained(tmp_path)
    from sklearn.exceptions import NotFittedError

    for call in ("predict", "local_support", "explain", "transform"):
        with pytest.raises(NotFittedError):
            getattr(SUWRClassifier(), call)(X)
    with pytest.raises(NotFittedError):
        SUWRClassifier().session()


def test_soft_labels():
    soft = np.tile([0.3, 0.7], (60, 1))
    model = SUWRClassifier(**QUICK)
    for wrong, words in (
        (soft[:3], "shape"),
        (soft[:, :1], "shape"),
        (soft * 2, "sum to 1"),
        (soft * np.nan, "sum to 1"),
    ):
        with pytest.raises(ValueError, match=words):
            model.fit_soft(X, wrong)
    with pytest.raises(ValueError, match="classes"):
        model.fit_soft(X, soft, classes=["a"])
    with pytest.raises(TypeError, match="black_box"):
        suwr.distill("model", X)
    with pytest.raises(TypeError, match="SUWRClassifier for probabilities"):
        suwr.distill(lambda A: soft, X, SUWRRegressor())
    with pytest.raises(TypeError, match="SUWRRegressor for numbers"):
        suwr.distill(lambda A: A[:, 0], X, SUWRClassifier())
