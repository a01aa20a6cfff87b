"""The data: splits, targets, tables, files."""

import grokking_theory as gt
import numpy as np
import pytest
import torch
from grokking_theory import _reference as reference


def test_paper_sample_sizes():
    assert gt.sample_size(23, "classification") == 372
    assert gt.sample_size(13, "regression") == 641
    assert gt.sample_size(3, "classification") == 9  # the formula asks for 12 of 9 points
    assert gt.ModularAddition(23).n_train == 372


@pytest.mark.parametrize(
    ("kind", "m", "columns"),
    [("classification", 3, 2), ("regression", 3, 3), ("regression", 4, 4), ("classification", 4, 3)],
)
def test_train_and_test_are_a_partition(kind, m, columns):
    task = gt.ModularAddition(5, kind, 0.4, m=m, seed=3)
    assert task.size == 5**columns
    assert task.n_train == len(task.train[0]) == round(0.4 * task.size)
    both = torch.cat([task.train[0], task.test[0]])
    assert torch.equal(both.unique(dim=0), task.all_inputs())
    assert len(both) == task.size


def test_targets_are_the_definition():
    for m in (2, 3, 4):
        inputs, targets = gt.ModularAddition(4, "regression", m=m, n_train=1).population()
        np.testing.assert_array_equal(targets.numpy().reshape((4,) * m), reference.target(4, m))
    inputs, labels = gt.ModularAddition(7).population()
    assert torch.equal(labels, inputs.sum(1) % 7)
    assert inputs[8].tolist() == [1, 1]


def test_split_depends_on_the_seed_alone():
    first, second = gt.ModularAddition(11, seed=4), gt.ModularAddition(11, seed=4)
    assert torch.equal(first.train[0], second.train[0])
    assert not torch.equal(first.train[0], gt.ModularAddition(11, seed=5).train[0])


def test_with_replacement_points_repeat():
    task = gt.ModularAddition(3, n_train=50, replace=True)
    assert len(task.train[0]) == 50
    assert len(task.train[0].unique(dim=0)) <= 9
    assert len(task.train[0].unique(dim=0)) + len(task.test[0]) == 9


def test_rho_c_counts_the_most_frequent_c():
    task = gt.ModularAddition(5, "regression", 60, seed=1)
    assert task.rho_c == max((task.train[0][:, 2] == c).sum().item() for c in range(5))
    classes = gt.ModularAddition(5, n_train=12)
    assert classes.rho_c == max((classes.train[1] == c).sum().item() for c in range(5))


def test_operations():
    assert gt.table("subtract", 5)[1, 3] == 3
    assert gt.table("multiply", 5)[3, 4] == 2
    assert gt.table("quadratic", 7)[2, 3] == 19 % 7
    op = gt.table(lambda a, b: a**2 - b, 5)
    task = gt.ModularAddition(5, n_train=1.0, op=op)
    inputs, labels = task.train
    assert torch.equal(labels, op[inputs[:, 0], inputs[:, 1]])
    values = gt.ModularAddition(5, "regression", 3, op=op)
    _, targets = values.population()
    assert torch.equal(targets.reshape(5, 5, 5), gt.operation_target(op))
    assert "table" in repr(task)
    assert "addition" in repr(gt.ModularAddition(5))


def test_train_inputs_are_the_first_ones():
    task = gt.ModularAddition(5, n_train=10)
    assert torch.equal(task.train_inputs(4), task.train[0][:4])
    assert len(task.train_inputs()) == 10


def test_tables_are_read_from_files(tmp_path):
    op = gt.table("quadratic", 6)
    np.save(tmp_path / "op.npy", op.numpy())
    np.savetxt(tmp_path / "op.csv", op.numpy(), fmt="%d", delimiter=",")
    assert torch.equal(gt.load_table(tmp_path / "op.npy"), op)
    assert torch.equal(gt.load_table(tmp_path / "op.csv"), op)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1\n1,x\n", r"line 2, field 2: must be an integer, got 'x'"),
        ("0,1\n1\n", r"line 2: must have 2 fields like line 1, got 1"),
        ("0,1\n1,2\n", r"line 2, field 2: must be an integer in \[0, 2\), got 2"),
        ("0,1\n", r"square table"),
        ("", r"square table"),
    ],
)
def test_a_bad_file_is_refused_with_its_place(tmp_path, text, message):
    (tmp_path / "op.csv").write_text(text)
    with pytest.raises(ValueError, match=r"op\.csv.*" + message):
        gt.load_table(tmp_path / "op.csv")


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"\.csv or \.npy"):
        gt.load_table(tmp_path / "op.txt")
    np.save(tmp_path / "op.npy", np.eye(3))
    with pytest.raises(ValueError, match="must hold integers, got float64"):
        gt.load_table(tmp_path / "op.npy")


def test_tables_as_spreadsheets_write_them(tmp_path):
    (tmp_path / "op.CSV").write_bytes("\ufeff0,1\r\n1, 0\r\n\r\n\n".encode())
    assert gt.load_table(tmp_path / "op.CSV").tolist() == [[0, 1], [1, 0]]


FILES = {
    "bytes.csv": (b"\xff\xfe\x00", "must be text in UTF-8"),
    "large.csv": (b"99999999999999999999,1\n1,0\n", "line 1, field 1: must be an integer in"),
    "empty.csv": (b"\n\n", "square table"),
    "gap.csv": (b"0,1\n\n1,0\n", "line 2: must have 2 fields"),
    "junk.npy": (b"hello", "must be a whole .npy file"),
    "empty.npy": (b"", "must be a whole .npy file"),
}


@pytest.mark.parametrize("name", FILES)
def test_broken_files_are_named(name, tmp_path):
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        gt.load_table(tmp_path / name)
    assert name in str(caught.value)


def test_a_large_modulus_is_no_trouble_for_few_points():
    task = gt.ModularAddition(10**5, "regression", n_train=7)
    inputs, targets = task.train
    assert inputs.shape == (7, 3)
    assert targets.shape == (7,)
    assert int(inputs.max()) > 10**3


@pytest.mark.parametrize(("kind", "last"), [("classification", 8), ("regression", 2)])
def test_where_the_papers_sample_size_is_everything(kind, last):
    everything = [p for p in range(2, 30) if gt.sample_size(p, kind) == p ** (2 if kind == "classification" else 3)]
    assert everything == list(range(2, last + 1))
