"""The command line."""

import grokking_theory as gt
import numpy as np
import pytest
from grokking_theory.cli import main


def test_train_writes_network_and_history(tmp_path, capsys):
    out = tmp_path / "run"
    status = main(
        [
            "train",
            "--p",
            "5",
            "--steps",
            "40",
            "--every",
            "20",
            "--lr",
            "0.01",
            "--device",
            "cpu",
            "--n",
            "0.7",
            "--out",
            str(out),
        ]
    )
    printed = capsys.readouterr().out
    assert status == 0
    assert "fit step" in printed
    assert "n_train=18 of 25" in printed
    history = gt.History.load(out / "history")
    assert history.step.tolist() == [0, 20, 40]
    assert np.isfinite(history.ntk_distance).all()
    task = gt.ModularAddition(5, n_train=0.7)
    fitted = gt.fit(gt.QuadraticNetwork.load(out / "network"), task, steps=0)
    assert fitted.train_loss[0] == pytest.approx(history.train_loss[-1])


def test_train_on_a_table_by_descent(tmp_path, capsys):
    np.save(tmp_path / "op.npy", gt.table("quadratic", 5).numpy())
    arguments = [
        "--table",
        str(tmp_path / "op.npy"),
        "--optimizer",
        "gd",
        "--steps",
        "3",
        "--n",
        "20",
        "--kind",
        "regression",
    ]
    assert (
        main(
            [
                "train",
                *arguments,
                "--ntk-points",
                "0",
                "--width",
                "9",
                "--device",
                "cpu",
                "--out",
                str(tmp_path / "run"),
            ]
        )
        == 0
    )
    assert "op=table" in capsys.readouterr().out
    assert gt.QuadraticNetwork.load(tmp_path / "run" / "network").width == 9


def test_bounds_prints_what_the_functions_return(tmp_path, capsys):
    np.savetxt(tmp_path / "op.csv", gt.table("subtract", 11).numpy(), fmt="%d", delimiter=",")
    assert main(["bounds", "--p", "11", "--n", "200", "--table", str(tmp_path / "op.csv")]) == 0
    printed = capsys.readouterr().out
    for value in (
        gt.kernel_lower_bound(11, 200)["loss_lb"],
        gt.kernel_lower_bound(11, 200, "classification")["loss_lb"],
        gt.operation_lower_bound(gt.table("subtract", 11), 200),
        gt.min_samples_kernel(11, "regression", 5.0),
    ):
        assert f"{value:.6g}" in printed
    assert "(vacuous)" in printed
    assert main(["bounds", "--p", "11", "--n", "200", "--linf", "0.001"]) == 0
    assert "(vacuous)" not in capsys.readouterr().out


def test_wrong_usage_exits_with_2(capsys):
    assert main(["bounds", "--p", "1", "--n", "3"]) == 2
    assert "p must be" in capsys.readouterr().err
    assert main(["train", "--table", "none.csv", "--out", "x"]) == 2
    assert "none.csv" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--optimizer", "sgd", "--out", "x"])


ROWS = {
    "width of nothing": (["train", "--p", "5", "--width", "0"], "width must be an integer at least 1, got 0"),
    "points in the kernel": (["train", "--p", "5", "--ntk-points", "-1"], "--ntk-points"),
    "diverging": (
        ["train", "--p", "5", "--n", "0.6", "--lr", "1e6", "--optimizer", "gd", "--kind", "regression"], "finite",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("words", "message"), ROWS.values(), ids=ROWS)
def test_a_run_that_cannot_be_done_says_so_in_one_line(words, message, tmp_path, capsys):
    assert main([*words, "--device", "cpu", "--steps", "20", "--out", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_found_before_training(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setattr("grokking_theory.cli.fit", lambda *a, **k: pytest.fail("trained first"))
    assert main(["train", "--p", "5", "--steps", "1", "--out", str(tmp_path / "file" / "run")]) == 2
    assert "file" in capsys.readouterr().err


def test_without_held_out_points_there_is_no_report(tmp_path, capsys):
    assert main(["train", "--p", "5", "--steps", "2", "--device", "cpu", "--out", str(tmp_path)]) == 0
    assert "lower --n" in capsys.readouterr().out
    assert len(gt.History.load(tmp_path / "history"))


def test_an_interrupted_run_exits_with_130(tmp_path, capsys, monkeypatch):
    def stopped(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr("grokking_theory.cli.fit", stopped)
    assert main(["train", "--p", "5", "--device", "cpu", "--out", str(tmp_path)]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_a_table_of_another_size_is_refused(tmp_path, capsys):
    np.save(tmp_path / "t.npy", gt.table("add", 3).numpy())
    assert main(["bounds", "--p", "5", "--n", "3", "--table", str(tmp_path / "t.npy")]) == 2
    assert "--p must be 3" in capsys.readouterr().err


def test_a_number_of_points_that_is_none(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["train", "--n", "1e-1", "--out", str(tmp_path)])
    assert "a share with a decimal point, got '1e-1'" in capsys.readouterr().err
