"""Recorded answers as an inexact oracle (Section 1 of the paper): a table of (x, f, g) rows in a CSV file."""

import csv
from pathlib import Path

import numpy as np

from inexact_oracle.points import Point, Vector, to_float64
from inexact_oracle.replies import Replies


class Replay:
    """An oracle that answers at recorded points only, with what was recorded there; repeats come one after the other.

    `points` (n, d) are the distinct recorded points in the order of the file: feed them to a wrapper to certify a run
    that is already over.
    """

    def __init__(self, x: Vector, values: Vector, grads: Vector) -> None:
        x, grads = np.asarray(x, dtype=np.float64), np.asarray(grads, dtype=np.float64)
        if x.ndim != 2 or grads.shape != x.shape or np.shape(values) != (len(x),):
            raise ValueError(
                "x, values, grads must have shapes (n, d), (n,), (n, d), "
                f"got {x.shape}, {np.shape(values)}, {grads.shape}."
            )
        self.dim = x.shape[1]
        self._rows: dict[bytes, list[tuple[float, Vector]]] = {}
        self._turn: dict[bytes, int] = {}
        distinct = []
        for point, value, grad in zip(x + 0.0, values, grads, strict=True):
            key = point.tobytes()
            if key not in self._rows:
                distinct.append(point)
            self._rows.setdefault(key, []).append((float(value), grad))
        self.points = np.array(distinct).reshape(-1, self.dim)

    def __call__(self, x: Point) -> tuple[float, Vector]:
        """The recorded value and gradient at x (d,), in its dtype.

        Raises:
            ValueError: no row of the file has exactly this point.
        """
        point, restore = to_float64(x, self.dim)
        key = point.tobytes()
        rows = self._rows.get(key)
        if rows is None:
            raise ValueError(f"x must be one of the {len(self.points)} recorded points, got {point}.")
        turn = self._turn.get(key, 0)
        self._turn[key] = turn + 1
        return restore(*rows[turn % len(rows)])


def replay(path: str | Path) -> Replay:
    """Read a CSV file with the header x0,...,x{d-1},f,g0,...,g{d-1} and one row per answer.

    Raises:
        ValueError: the header differs, or a field is no finite number; the message names file, line and field.
    """
    path = Path(path)
    with path.open(newline="") as file:
        lines = csv.reader(file)
        header = next(lines, [])
        dim = (len(header) - 1) // 2
        names = [f"x{k}" for k in range(dim)] + ["f"] + [f"g{k}" for k in range(dim)]
        if dim < 1 or [name.strip() for name in header] != names:
            raise ValueError(f"{path}, line 1: header must be x0,...,f,g0,..., got {','.join(header)!r}.")
        rows = [_numbers(path, number, names, fields) for number, fields in enumerate(lines, start=2) if fields]
    table = np.array(rows, dtype=np.float64).reshape(-1, 2 * dim + 1)
    return Replay(table[:, :dim], table[:, dim], table[:, dim + 1 :])


def _numbers(path: Path, line: int, names: list[str], fields: list[str]) -> list[float]:
    if len(fields) != len(names):
        raise ValueError(f"{path}, line {line}: expected {len(names)} fields, got {len(fields)}.")
    numbers = []
    for name, field in zip(names, fields, strict=True):
        try:
            number = float(field)
        except ValueError:
            number = np.nan
        if not np.isfinite(number):
            raise ValueError(f"{path}, line {line}, field {name}: expected a finite number, got {field!r}.")
        numbers.append(number)
    return numbers


def write_replies(path: str | Path, replies: Replies) -> Path:
    """Write the raw answers of a run as a file that `replay` reads, with every digit; returns the path."""
    path, dim = Path(path), replies.x.shape[1]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{k}" for k in range(dim)), "f", *(f"g{k}" for k in range(dim))])
        for x, value, grad in zip(replies.x, replies.raw_f, replies.raw_g, strict=True):
            writer.writerow([*map(repr, x.tolist()), repr(float(value)), *map(repr, grad.tolist())])
    return path
