"""What a user brings: scikit-learn's data, tables in files, the digits, the command line."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import suwr
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from suwr import cli

QUICK = {"hidden": 16, "lr": 0.02, "batch_size": 64, "max_epochs": 40, "random_state": 0, "device": "cpu"}


def test_breast_cancer_as_a_frame():
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    X_fit, X_held, y_fit, y_held = train_test_split(X, y, random_state=0, stratify=y)
    model = suwr.SUWRClassifier(**QUICK, max_features=4, sparsity=0.1).fit(X_fit, y_fit)
    assert model.score(X_held, y_held) > 0.88
    assert model.local_support(X_held).sum(axis=1).max() <= 4
    found = suwr.leakage_report(model, X_held, n_probes=500)
    assert found.is_leak_free is True
    shown = model.set_output(transform="pandas").transform(X_held)
    assert list(shown.columns) == list(X.columns)
    assert (shown.notna().to_numpy() == model.local_support(X_held)).all()


def test_wine_in_a_pipeline_with_words_as_labels():
    X, y = load_wine(return_X_y=True)
    names = np.array(["barolo", "grignolino", "barbera"])[y]
    model = make_pipeline(StandardScaler(), suwr.SUWRClassifier(**QUICK, max_features=3))
    assert cross_val_score(model, X, names, cv=2).mean() > 0.75


def test_digits_with_patches():
    X, y, patches = suwr.load_digits_grouped()
    assert X.shape == (1797, 64)
    assert (X.min(), X.max()) == (0, 1)
    assert len(patches) == 64
    assert sorted(patches[9].tolist()) == [0, 1, 2, 8, 9, 10, 16, 17, 18]
    model = suwr.SUWRClassifier(**(QUICK | {"max_epochs": 4}), groups=patches, max_features=3).fit(X[:300], y[:300])
    masks, order = model.local_support(X[:20]), model.selection_order(X[:20])
    for row in range(20):
        wanted = sorted({p for u in order[row] if u >= 0 for p in patches[u].tolist()})
        assert np.flatnonzero(masks[row]).tolist() == wanted


# ---- the synthetic sets


def test_synthetic_sets_follow_their_formulas():
    for name, used in (("syn1", [0, 1]), ("syn2", [2, 3, 4, 5]), ("syn3", [6, 7, 8, 9])):
        data = suwr.make_syn(name, 4000, seed=3)
        x = data.X
        logit = {
            "syn1": x[:, 0] * x[:, 1],
            "syn2": (x[:, 2:6] ** 2).sum(1) - 4,
            "syn3": -10 * np.sin(0.2 * x[:, 6]) + abs(x[:, 7]) + x[:, 8] + np.exp(-x[:, 9]) - 2.4,
        }[name]
        assert data.p_y[:, 1] == pytest.approx(1 / (1 + np.exp(logit)))
        assert data.y.mean() == pytest.approx(data.p_y[:, 1].mean(), abs=0.03)
        assert (np.flatnonzero(data.ground_truth[0]) == used).all()
        assert data.ground_truth.all(axis=0).sum() == len(used)
    for name, low, high in (("syn4", "syn1", "syn2"), ("syn5", "syn1", "syn3"), ("syn6", "syn2", "syn3")):
        data = suwr.make_syn(name, 500, d=20, seed=3)
        below = data.X[:, 10] < 0
        for part, rows in ((low, below), (high, ~below)):
            plain = suwr.make_syn(part, 500, d=20, seed=3)  # the same draw of X
            assert (plain.X == data.X).all()
            assert (data.p_y[rows] == plain.p_y[rows]).all()
            assert (data.ground_truth[rows, :10] == plain.ground_truth[rows, :10]).all()
        assert data.ground_truth[:, 10].all()
        assert not data.ground_truth[:, 11:].any()
    other = suwr.make_syn("syn3", 500, seed=3, variant="l2x")
    x = other.X
    logit = -10 * np.sin(2 * x[:, 6]) + 2 * abs(x[:, 7]) + x[:, 8] + np.exp(-x[:, 9]) - 2.4
    assert other.p_y[:, 1] == pytest.approx(1 / (1 + np.exp(logit)))


def test_and_toy():
    X, y = suwr.make_and_toy(4)
    assert X.shape == (16, 4)
    assert y.tolist() == [(a * b + c * d) ** 2 for a, b, c, d in X.tolist()]


# ---- files


@pytest.fixture
def table(tmp_path):
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    frame = X[["mean radius", "mean texture", "worst area"]].iloc[:200].assign(label=y[:200])
    frame.to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv", frame


def test_tables_are_read(table, tmp_path):
    path, frame = table
    X, y = suwr.load_table(path, "label")
    assert list(X.columns) == ["mean radius", "mean texture", "worst area"]
    assert (y == frame["label"]).all()
    text = path.read_text(encoding="utf-8")
    (tmp_path / "bom.csv").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode() + b"\r\n\r\n")
    again, _ = suwr.load_table(tmp_path / "bom.csv", "label")
    pd.testing.assert_frame_equal(again, X)
    (tmp_path / "t.tsv").write_text(text.replace(",", "\t"), encoding="utf-8")
    pd.testing.assert_frame_equal(suwr.load_table(tmp_path / "t.tsv", "label")[0], X)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b,a\n1,2,3\n", "'a' twice"),
        ("a,b\n1,2\n", "target in .* must be one of 'a', 'b'"),
        ("a,label\nx,1\n", "other values in a"),
        ("a,label\n1,\n2,1\n", r"nothing \(or NA\) in row 2"),
    ],
)
def test_tables_that_cannot_be_used(text, words, tmp_path):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=words):
        suwr.load_table(tmp_path / "t.csv", "label")


def test_files_of_other_kinds(tmp_path):
    with pytest.raises(ValueError, match="suffix"):
        suwr.load_table(tmp_path / "t.xlsx", "label")
    (tmp_path / "x").write_bytes(b"\0\0\x08\x01\0\0\0\x05abc")
    with pytest.raises(ValueError, match="3 bytes"):
        suwr.load_idx(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match="IDX"):
        suwr.load_idx(tmp_path / "x")
    (tmp_path / "x").write_bytes(b"\0\0\x08\x01\0\0\0\x03abc")
    assert suwr.load_idx(tmp_path / "x").tolist() == [97, 98, 99]


# ---- the command line


def test_command_line(table, tmp_path, capsys, monkeypatch):
    path, _ = table
    common = [str(path), "--target", "label"]
    assert cli.main(["fit", *common, "--save", str(tmp_path / "m"), "--max-features", "2", "--max-epochs", "20"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["training_score"] > 0.6
    assert cli.main(["explain", *common, "--model", str(tmp_path / "m"), "--rows", "2"]) == 0
    assert "nothing else was looked at" in capsys.readouterr().out
    assert cli.main(["explain", *common, "--model", str(tmp_path / "m"), "--rows", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"] == ["0", "1"]
    assert cli.main(["audit", *common, "--model", str(tmp_path / "m"), "--probes", "100"]) == 0
    assert "no violation" in capsys.readouterr().out
    (tmp_path / "rule.py").write_text(
        "import numpy as np\ndef pick(X):\n    a = np.asarray(X)\n    m = np.zeros(a.shape, bool)\n"
        "    m[np.arange(len(a)), (a[:, 0] > 14).astype(int) + 1] = True\n    return m\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.main(["audit", *common, "--selector", "rule:pick", "--probes", "100", "--knn"]) == 1
    assert "leaks" in capsys.readouterr().out
    fit = ["fit", *common, "--save", str(tmp_path / "r"), "--regression", "--max-epochs", "2"]
    assert cli.main(fit) == 0
    assert cli.main(["explain", *common, "--model", str(tmp_path / "r"), "--rows", "1"]) == 0
    assert "predicts" in capsys.readouterr().out
    assert cli.main(["audit", *common, "--selector", "rule"]) == 2
    assert cli.main(["explain", *common, "--model", str(tmp_path / "none")]) == 2
    assert "suwr: " in capsys.readouterr().err


def test_import_is_light_and_torch_comes_late():
    code = "import sys, suwr; print([m for m in ('torch', 'sklearn', 'pandas', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
    assert set(suwr.__all__) <= set(dir(suwr))
    with pytest.raises(AttributeError, match="nothing_here"):
        _ = suwr.nothing_here
