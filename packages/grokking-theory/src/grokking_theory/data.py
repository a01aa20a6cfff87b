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
        path: a `.csv` file (p lines of p integers, no header), or a `.npy` file with a (p, p) integer array.

    Returns:
        (p, p) int64 tensor, ready for `ModularAddition(op=...)` and `table_lower_bound`.

    Raises:
        ValueError: naming the file, and for text the line and the field, where something is wrong.
    """
    path = Path(path)
    if path.suffix == ".csv":
        values = _read_csv(path)
    elif path.suffix == ".npy":
        values = np.load(path, allow_pickle=False)
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
    return torch.from_numpy(values.astype(np.int64))


def _read_csv(path: Path) -> np.ndarray:
    rows: list[list[int]] = []
    with open(path, newline="", encoding="utf-8") as file:
        for line, fields in enumerate(csv.reader(file), start=1):
            row = []
            for column, field in enumerate(fields, start=1):
                try:
                    row.append(int(field))
                except ValueError as error:
                    raise ValueError(
                        f"{path}, line {line}, field {column}: must be an integer, got {field!r}."
                    ) from error
            if rows and len(row) != len(rows[0]):
                raise ValueError(f"{path}, line {line}: must have {len(rows[0])} fields like line 1, got {len(row)}.")
            rows.append(row)
    return np.array(rows, dtype=np.int64)
