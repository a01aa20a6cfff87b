"""Operation tables in files: comma-separated text, or a numpy array."""

import csv
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor


def load_table(path: str | Path) -> Int[Tensor, "p p"]:
    """Read the table of a binary operation: row a, column b holds op(a, b), an integer in [0, p).

    Args:
        path: a `.csv` file (p lines of p integers, no header; empty lines at the end are ignored), or a `.npy` file
            with a (p, p) integer array.

    Returns:
        (p, p) int64 tensor, ready for `ModularAddition(op=...)` and `operation_lower_bound`.

    Raises:
        ValueError: naming the file, and for text the line and the field, where something is wrong.
    """
    path = Path(path)
    if path.suffix.lower() == ".csv":
        values = _read_csv(path)
    elif path.suffix.lower() == ".npy":
        try:
            values = np.load(path, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise ValueError(f"{path} must be a whole .npy file of integers, got an unreadable one: {error}") from error
        if not np.issubdtype(values.dtype, np.integer):
            raise ValueError(f"{path} must hold integers, got {values.dtype}.")
    else:
        raise ValueError(f"path must end in .csv or .npy, got {str(path)!r}.")
    if values.ndim != 2 or values.shape[0] != values.shape[1] or values.shape[0] < 2:
        raise ValueError(f"{path} must hold a square table of at least 2 × 2 entries, got shape {values.shape}.")
    p = len(values)
    outside = np.argwhere((values < 0) | (values >= p))
    if len(outside):
        row, column = map(int, outside[0])
        got = values[row, column]
        raise ValueError(f"{path}, line {row + 1}, field {column + 1}: must be an integer in [0, {p}), got {got}.")
    return torch.from_numpy(values.astype(np.int64))  # an object array of a file's Python integers, too


def _read_csv(path: Path) -> np.ndarray:
    rows: list[list[int]] = []
    try:
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))  # spreadsheets write the mark
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8, got other bytes: {error}.") from error
    while lines and not lines[-1]:
        lines.pop()
    for line, fields in enumerate(lines, start=1):
        row = []
        for column, field in enumerate(fields, start=1):
            try:
                row.append(int(field))
            except ValueError as error:
                raise ValueError(f"{path}, line {line}, field {column}: must be an integer, got {field!r}.") from error
        if rows and len(row) != len(rows[0]):
            raise ValueError(f"{path}, line {line}: must have {len(rows[0])} fields like line 1, got {len(row)}.")
        rows.append(row)
    return np.array(rows, dtype=object)
