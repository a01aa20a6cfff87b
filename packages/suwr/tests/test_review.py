"""What once went wrong without a word: small and shifted targets, reused buffers, changed parameters, odd files."""

import json

import numpy as np
import pandas as pd
import pytest
import suwr
from hypothesis import given, settings
from hypothesis import strategies as st
from offprints import checkpoint
from suwr import DiscreteProblem, SUWRClassifier, SUWRRegressor, exact_leakage, make_and_toy, probe_selector
from suwr.cli import main

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 4))
Y = (X[:, 0] > 0).astype(int)
QUICK = {"max_epochs": 6, "batch_size": 40, "random_state": 0, "sparsity": 0.0}


# ---- exact optima


@pytest.mark.parametrize("scale", [1.0, 1e-2, 1e-4, 1e-6, 1e6])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_optima_do_not_depend_on_the_unit_or_the_zero_of_y(scale, offset):
    bits, y = make_and_toy(4)
    problem = DiscreteProblem.from_arrays(bits, y * scale + (offset if scale == 1.0 else 0.0))
    lam = 0.2 * scale**2
    for found in (problem.solve_lp(lam), problem.solve_sequential(lam)):
        assert found.objective == pytest.approx(0.515625 * scale**2, rel=1e-6)
    whole = problem.solve_sequential(0.0).predict(bits)[:, 0]
    assert whole == pytest.approx(y * scale + (offset if scale == 1.0 else 0.0))


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from([1e-3, 1e-6]))
def test_the_program_is_never_worse_than_the_sequential_policy(seed, lam):
    gen = np.random.default_rng(seed)
    bits, y = make_and_toy(4)
    problem = DiscreteProblem.from_arrays(bits, y, weights=gen.exponential(size=16) ** 6)
    lp, dp = problem.solve_lp(lam).objective, problem.solve_sequential(lam).objective
    assert lp <= dp + 1e-9 * (4 + 4 * lam)  # y lies in [0, 4]: its variance is at most 4


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: DiscreteProblem.from_arrays(X[:3], np.array([1j, 2, 3])), TypeError, "y must be real numbers"),
        (lambda: DiscreteProblem.from_arrays(X[:3], np.array([1e160, 0, 0])), ValueError, "the squares of y"),
        (lambda: DiscreteProblem.from_arrays(X[:3], Y[:3], weights=[1e308] * 3), ValueError, "finite sum"),
        (lambda: DiscreteProblem.from_arrays(X[:3], Y[:3]).solve_lp(np.inf), ValueError, "lam must be"),
        (lambda: DiscreteProblem.from_arrays(X[:3], Y[:3]).solve_sequential(np.inf), ValueError, "lam must be"),
        (
            lambda: exact_leakage(np.eye(2), [1e308, 1e308], np.eye(2), np.eye(2), np.eye(2, dtype=bool)),
            ValueError,
            "finite sum",
        ),
        (lambda: suwr.argmax_time_support(SUWRClassifier(), X), Exception, "not fitted"),
        (lambda: SUWRClassifier(max_epochs=10, explore_epochs=10).fit(X, Y), ValueError, "explore_epochs must be"),
        (lambda: SUWRRegressor().fit(X, Y * 1e-200), ValueError, "a variance that float64 holds"),
        (lambda: SUWRClassifier().fit(X * [1, 1, 1, 1e-170], Y), ValueError, r"too large or small ones: 3 \('x3'\)"),
        (
            lambda: SUWRClassifier().fit_soft(X, np.full((80, 2), 0.5), classes=["a", "a"]),
            ValueError,
            "2 different labels",
        ),
        (
            lambda: probe_selector(
                lambda A: A > 0, pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64"), "b": 1.0})
            ),
            TypeError,
            "pandas' NA",
        ),
    ],
)
def test_bad_input(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_the_likeliest_mask_of_a_policy_that_draws_is_refused():
    bits, _ = make_and_toy(4)
    found = DiscreteProblem.from_arrays(bits, np.random.default_rng(106).integers(0, 2, 16)).solve_lp(0.02)
    assert exact_leakage(bits, found.weights, np.eye(2)[[0] * 16], found.policy, found.masks).feature < 1e-9
    with pytest.raises(ValueError, match="draws among masks"):
        found.local_support(found.support)


# ---- audits


class Buffer:
    """Fills one array again and again; shows x0 or x2, by the sign of x1, which it hides."""

    def __init__(self) -> None:
        self.masks, self.proba = np.zeros((20_000, 4), bool), np.zeros(20_000)

    def local_support(self, rows):
        out = self.masks[: len(rows)]
        out[:] = False
        out[:, 0], out[:, 2] = rows[:, 1] > 0, rows[:, 1] <= 0
        return out


class Exposed(Buffer):
    def mask_probability(self, rows, masks):
        out = self.proba[: len(rows)]
        out[:] = 0.25 + 0.5 * (rows[:, 1] > 0)
        return out


@pytest.mark.parametrize(
    ("selector", "kind"), [(Buffer(), "deterministic"), (Buffer(), "auto"), (Exposed(), "probability")]
)
def test_selectors_that_reuse_an_array_are_seen_through(selector, kind):
    found = probe_selector(selector, X, kind=kind, n_probes=500)
    assert found.leaks
    assert found.leak_rate > 0.3


def test_near_rows_are_near_whatever_the_offset():
    values = np.column_stack([X[:, 0], X[:, 0]])
    show = lambda A: np.tile([True, False], (len(A), 1))  # noqa: E731
    gaps = []
    for offset in (0.0, 1e9):
        moved = []

        def sampler(rows, masks, gen, moved=moved):
            return rows

        from suwr.probes import partners
        from suwr.selectors import Table

        table, index = Table(values + offset), np.arange(80)
        masks = show(values)
        other = partners(table, table.values, masks, index, "knn", 5, np.random.default_rng(0))
        gaps.append(np.abs(other[:, 1] - table.values[:, 1]).mean())
    assert gaps[1] == pytest.approx(gaps[0], rel=0.2)


def test_numbers_that_are_whole_are_no_classes():
    y = np.round(100 * X[:, 0] + RNG.normal(size=80))
    model = SUWRRegressor(**QUICK).fit(X, y)
    assert suwr.leakage_report(model, X, y, n_probes=50).labels is not None
    assert suwr.leakage_report(lambda A: np.ones(A.shape, bool), X, y, n_probes=50).labels is not None


# ---- parameters set after fit, saved models


def test_parameters_set_after_fit_change_nothing_that_was_fitted(tmp_path):
    model = SUWRClassifier(**QUICK, hidden=20).fit(X, Y)
    proba, told = model.predict_proba(X), model.explain(X[:3])
    model.set_params(step_size=3, hidden=5, layers=7, trunk="separate", baseline="value", dtype="float64")
    assert model.explain(X[:3]) == told
    loaded = SUWRClassifier.from_pretrained(model.save_pretrained(tmp_path / "model"))
    assert np.array_equal(loaded.predict_proba(X), proba)
    assert loaded.random_state == 0
    assert loaded.explain(X[:3]) == told


@pytest.mark.parametrize(
    "damage",
    [
        lambda config: config.pop("policy"),
        lambda config: config["policy"].update(hidden=3),
        lambda config: config["parameters"].update(colour=1),
        lambda config: config["classes"]["values"].append(7),
        lambda config: config.update(n_features_in=9),
    ],
)
def test_damaged_headers_are_refused(damage, tmp_path):
    folder = SUWRClassifier(**QUICK).fit(X, Y).save_pretrained(tmp_path / "model")
    held = checkpoint.load(folder / "model", method="suwr")
    damage(held.config)
    checkpoint.save(folder / "model", held.tensors, method="suwr", version=held.version, config=held.config)
    with pytest.raises(ValueError, match="what save_pretrained of a SUWRClassifier wrote"):
        SUWRClassifier.from_pretrained(folder)


def test_no_rows_and_no_threshold():
    model = SUWRClassifier(**QUICK, stop="sample").fit(X, Y)
    masks, proba = model.masks_proba(X[:0])
    assert (masks.shape, proba.shape) == ((0, 4), (0, 0))
    with pytest.raises(ValueError, match="stop must be one of 'threshold'"):
        model.session()
    with pytest.raises(ValueError, match="no row"):
        model.to_tree(X[:0])


def test_what_cannot_be_measured_is_told_as_nan():
    rows = X.copy()
    rows[::7, 0] = np.nan
    with pytest.warns(UserWarning, match="missing values"):
        model = SUWRClassifier(**QUICK, allow_missing=True).fit(rows, Y)
    for row in (rows[0], rows[1]):
        session = model.session()
        while (question := session.ask()) is not None:
            session.tell(*row[list(question.columns)])
        assert (session.prediction == model.predict_proba(row[None])[0]).all()
    with pytest.raises(ValueError, match="values must be finite"):
        SUWRClassifier(**QUICK).fit(X, Y).session().tell(np.nan)


def test_a_black_box_that_changes_its_rows_is_given_copies():
    def box(rows):
        rows[:] = 0.0
        return np.full((len(rows), 2), 0.5)

    kept = X.copy()
    suwr.distill(box, kept, SUWRClassifier(**QUICK))
    assert np.array_equal(kept, X)


# ---- files and the command line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"a,b,y\n1,2,3,0\n4,5,6,1\n", "a table in UTF-8"),
        (b",a,y\n0,1,0\n1,2,1\n", "a name for every column"),
        (b"a,y\n", "at least one row"),
        (b"a,y\n1,0\n\xe9,1\n", "a table in UTF-8"),
        (b"a,y\n1,0\n1,2,3\n1,2,3,4\n", "a table in UTF-8"),
    ],
)
def test_tables_that_would_shift_are_refused(text, message, tmp_path):
    file = tmp_path / "table.csv"
    file.write_bytes(text)
    with pytest.raises(ValueError, match=message) as error:
        suwr.load_table(file, "y")
    assert "table.csv" in str(error.value)


def test_the_command_line_groups_prices_explains_and_tells_failures_from_leaks(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.assign(y=Y).to_csv("fit.csv", index=False)
    frame.to_csv("new.csv", index=False)
    options = ["--max-epochs", "4", "--batch-size", "40", "--groups", "a,b", "--costs", "a,b=2", "c=0.5"]
    assert main(["fit", "fit.csv", "--target", "y", "--save", "model", *options]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"training_score", "mean_features", "updates", "saved"}
    loaded = SUWRClassifier.from_pretrained("model")
    assert loaded.groups == [[0, 1], [2], [3]]
    assert loaded.feature_costs == [2.0, 0.5, 1.0]
    assert main(["explain", "new.csv", "--model", "model"]) == 0
    (tmp_path / "chosen.py").write_text("def broken(rows):\n    return {}['x']\n")
    for selector, text in (("chosen:broken", "the selector failed: KeyError"), ("chosen:nope", "a name in chosen")):
        assert main(["audit", "fit.csv", "--target", "y", "--selector", selector]) == 2
        assert text in capsys.readouterr().err
    for wrong in (["--groups", "a,z"], ["--costs", "z=1"], ["--costs", "a=x"]):
        assert main(["fit", "fit.csv", "--target", "y", "--save", "model", *wrong]) == 2
