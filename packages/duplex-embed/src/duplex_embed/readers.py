"""Files of directed graphs: those of paper, § experiments (SNAP, KONECT, sparse npz), and edge lists.

Errors name file, line and field.
"""

import csv
import warnings
from collections.abc import Hashable
from pathlib import Path

import numpy as np
import torch
from offprints.checks import require_choice
from scipy import sparse

from duplex_embed.graph import Graph, as_graph

FORMATS = ("snap", "konect", "npz", "csv")


def read_graph(path: str | Path, format: str) -> Graph:
    """Read a file of one of the formats "snap", "konect", "npz", "csv"."""
    require_choice("format", format, FORMATS)
    return {"snap": read_snap, "konect": read_konect, "npz": read_npz, "csv": read_edges}[format](path)


def read_snap(path: str | Path, signed: bool = False) -> Graph:
    """A SNAP edge list: `#` lines are comments, then source and target, as integers, a line.

    Args:
        path: the file.
        signed: take the third column as the sign (or weight) of the edge.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: naming file, line and field of what is no integer.
    """
    return _edge_list(Path(path), "#", 2 if signed else None, both_ways=False)


def read_konect(path: str | Path) -> Graph:
    """A KONECT `out.*` file: `%` lines are comments, then source, target and perhaps weight and time.

    The first comment says how to read it: "sym" graphs get every edge both ways; weights are kept where it says
    "posweighted", "weighted" or "signed".

    Raises:
        FileNotFoundError: if there is none.
        ValueError: naming file, line and field of what is no number.
    """
    file = Path(path)
    with open(file, encoding="utf-8") as lines:
        words = next(lines, "").lstrip("%").split()
    weighted = len(words) > 1 and words[1] in ("posweighted", "weighted", "signed")
    return _edge_list(file, "%", 2 if weighted else None, both_ways=words[:1] == ["sym"])


def _edge_list(file: Path, comment: str, weight_column: int | None, both_ways: bool) -> Graph:
    columns = 2 if weight_column is None else 3
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of empty files, which are refused below
            table = np.loadtxt(file, comments=comment, usecols=range(columns), ndmin=2, encoding="utf-8")
    except (ValueError, IndexError) as error:
        raise ValueError(_where(file, comment, columns)) from error
    if not len(table):
        raise ValueError(f"{file} must hold edges, got a file without any.")
    if not (abs(table[:, :2]) < 2**53).all():  # NaN too
        raise ValueError(f"{file}: node ids must lie below 2^53, got larger ones or NaN. Try read_edges, by name.")
    if not np.array_equal(table[:, :2], table[:, :2].astype(np.int64)):
        raise ValueError(f"{file}: node ids must be integers, got numbers with decimals. Try read_edges.")
    ids, places = np.unique(table[:, :2].astype(np.int64), return_inverse=True)
    edges = torch.from_numpy(places.reshape(-1, 2).T.copy())
    weight = torch.from_numpy(table[:, 2]).float() if columns == 3 else None
    if both_ways:
        edges = torch.cat((edges, edges.flip(0)), 1)
        weight = None if weight is None else torch.cat((weight, weight))
    names = None if np.array_equal(ids, np.arange(len(ids))) else [int(i) for i in ids]
    return as_graph(edges, num_nodes=len(ids), weight=weight, names=names)


def _where(file: Path, comment: str, columns: int) -> str:
    """The first line that cannot be read, in words."""
    with open(file, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.partition(comment)[0].split()
            if not fields:
                continue
            if len(fields) < columns:
                return f"{file}, line {number}: must hold {columns} fields, got {len(fields)}: {line.strip()!r}."
            for place, field in enumerate(fields[:columns], 1):
                try:
                    float(field)
                except ValueError:
                    return f"{file}, line {number}, field {place}: must be a number, got {field!r}."
    return f"{file} must be a list of edges, one a line."


def read_edges(path: str | Path, delimiter: str = ",", header: bool = False) -> Graph:
    """A text file with source and target a line, by any names (CSV); they become the names of the nodes.

    Args:
        path: the file.
        delimiter: between fields.
        header: whether the first line is one.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: naming file and line with fewer than two fields.
    """
    pairs: list[tuple[Hashable, Hashable]] = []
    with open(path, encoding="utf-8", newline="") as file:
        for number, row in enumerate(csv.reader(file, delimiter=delimiter), 1):
            if (header and number == 1) or not row:
                continue
            if len(row) < 2:
                raise ValueError(f"{path}, line {number}: must hold source and target, got {row!r}.")
            pairs.append((row[0].strip(), row[1].strip()))
    if not pairs:
        raise ValueError(f"{path} must hold edges, got a file without any.")
    return as_graph(pairs)


def read_npz(path: str | Path) -> Graph:
    """A sparse npz: adj_data, adj_indices, adj_indptr, adj_shape; attr_* (or attr_matrix) and labels where they are.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: naming file and array that is missing.
    """
    with np.load(path, allow_pickle=False) as found:
        matrix = _csr(found, "adj", path)
        x = None
        if "attr_data" in found:
            x = _csr(found, "attr", path).toarray().astype(np.float32)
        elif "attr_matrix" in found:
            x = found["attr_matrix"].astype(np.float32)
        y = found["labels"].astype(np.int64) if "labels" in found else None
    edges = np.stack(sparse.coo_array(matrix).coords).astype(np.int64)
    return as_graph(edges, num_nodes=matrix.shape[0], x=x, y=y)  # type: ignore[unsupported-operation]


def _csr(found: np.lib.npyio.NpzFile, prefix: str, path: str | Path) -> sparse.csr_array:
    names = [f"{prefix}_{part}" for part in ("data", "indices", "indptr", "shape")]
    missing = [name for name in names if name not in found]
    if missing:
        raise ValueError(f"{path} must hold the array {missing[0]}, got {', '.join(found.files)}.")
    data, indices, indptr, shape = (found[name] for name in names)
    return sparse.csr_array((data, indices, indptr), shape=tuple(int(s) for s in shape))
