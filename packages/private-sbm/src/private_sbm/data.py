"""Readers of graph files: edge lists, SNAP, signed lists, GraphML, Matrix Market; and networkx's own graphs.

Networks whose edges are private: Section 1 of the paper. An error names file, line and field, not the content.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree.ElementTree import ParseError

import networkx as nx
import numpy as np
from offprints.checks import require_choice
from scipy.io import mmread
from scipy.sparse import coo_array

from private_sbm.graphs import Matrix

FORMATS = {
    ".txt": "snap", ".snap": "snap", ".edges": "edges", ".edgelist": "edges", ".csv": "edges", ".tsv": "edges",
    ".graphml": "graphml", ".xml": "graphml", ".mtx": "mtx", ".signed": "signed",
}  # fmt: skip


def load_graph(path: str | Path, kind: str | None = None, nodes: int | None = None) -> nx.Graph:
    """An undirected simple graph from a file.

    Args:
        path: the file.
        kind: "edges" (two names a line, further fields are ignored), "snap" (integers, `#` comments), "signed" (two
            names and a sign: edge attribute `label`), "graphml" or "mtx"; by default from the suffix.
        nodes: "snap": number of vertices 0..nodes-1, so that isolated ones count too.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: for an unknown format or suffix, and for a line or file that is not in the format.
    """
    path = Path(path)
    if kind is None:
        known = ", ".join(sorted(FORMATS))
        if path.suffix not in FORMATS:
            raise ValueError(f"kind must be given for a suffix other than {known}, got {path.suffix!r}.")
        kind = FORMATS[path.suffix]
    readers: dict[str, Callable[[], nx.Graph]] = {
        "edges": lambda: read_edges(path), "snap": lambda: read_snap(path, nodes), "signed": lambda: read_signed(path),
        "graphml": lambda: read_graphml(path), "mtx": lambda: read_matrix_market(path),
    }  # fmt: skip
    return readers[require_choice("kind", kind, readers)]()


def _fields(path: Path, least: int) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of every line that is neither empty nor a comment (#, %)."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if not text or text[0] in "#%":
                continue
            fields = text.replace(",", " ").split()
            if len(fields) < least:
                raise ValueError(f"{path}, line {number}: must have {least} fields or more, got {len(fields)}.")
            yield number, fields


def read_edges(path: str | Path) -> nx.Graph:
    """Two node names a line, separated by blanks, tabs or a comma; names stay text.

    Raises:
        ValueError: naming the line with a single field.
    """
    graph = nx.Graph()
    graph.add_edges_from((fields[0], fields[1]) for _, fields in _fields(Path(path), 2))
    return graph


def read_snap(path: str | Path, nodes: int | None = None) -> nx.Graph:
    """SNAP's lists: `#` comments, two integers a line; both directions of a pair are one edge.

    Raises:
        ValueError: naming line and field that is no integer, or a node beyond `nodes`.
    """
    graph = nx.Graph() if nodes is None else nx.empty_graph(nodes)
    for number, fields in _fields(Path(path), 2):
        ends = [_integer(path, number, place, text) for place, text in enumerate(fields[:2], 1)]
        if nodes is not None and not all(0 <= end < nodes for end in ends):
            raise ValueError(f"{path}, line {number}: nodes must be between 0 and {nodes - 1}, got one outside.")
        graph.add_edge(*ends)
    return graph


def read_signed(path: str | Path) -> nx.Graph:
    """Two node names and a sign a line (positive or negative number, or + and -): edge attribute `label` of 1 or -1.

    Raises:
        ValueError: naming the line whose third field is no sign, or that contradicts an earlier one.
    """
    graph = nx.Graph()
    for number, (u, v, text, *_) in _fields(Path(path), 3):
        try:
            value = {"+": 1.0, "-": -1.0}.get(text) or float(text)
        except ValueError:
            value = np.nan
        if not abs(value) > 0:
            raise ValueError(f"{path}, line {number}, field 3: must be a sign (+, - or a number but 0).")
        label = 1 if value > 0 else -1
        if graph.has_edge(u, v) and graph[u][v]["label"] != label:
            raise ValueError(f"{path}, line {number}, field 3: contradicts an earlier line of the same pair.")
        graph.add_edge(u, v, label=label)
    return graph


def read_graphml(path: str | Path) -> nx.Graph:
    """GraphML with undirected edges; weights are dropped, an attribute `label` is kept.

    Raises:
        ValueError: if it is no GraphML (with the line), or directed.
    """
    try:
        found = nx.read_graphml(path)
    except (ParseError, nx.NetworkXError) as error:
        line = getattr(error, "position", (1, 0))[0]
        raise ValueError(f"{path}, line {line}: must be GraphML ({type(error).__name__}).") from None
    if found.is_directed():
        raise ValueError(f"{path}: edgedefault must be undirected, got directed.")
    return _simple(found)


def read_matrix_market(path: str | Path) -> nx.Graph:
    """A square symmetric Matrix Market file; every entry but 0 is an edge, with its sign as `label`.

    Raises:
        ValueError: if it is no such file, or not square or symmetric.
    """
    try:
        matrix: Matrix = coo_array(mmread(path, spmatrix=False))
    except (ValueError, TypeError, StopIteration, IndexError) as error:
        raise ValueError(f"{path}: must be a Matrix Market file ({type(error).__name__}).") from None
    if matrix.shape[0] != matrix.shape[1] or abs(matrix - matrix.T).sum() != 0:
        raise ValueError(f"{path}: must be a square symmetric matrix, got shape {matrix.shape}.")
    graph = nx.empty_graph(matrix.shape[0])
    for i, j, value in zip(*matrix.coords, matrix.data, strict=True):
        if i <= j and value != 0:
            graph.add_edge(int(i), int(j), label=1 if value > 0 else -1)
    return graph


def unweighted(graph: nx.Graph) -> nx.Graph:
    """The simple undirected graph without weights (such as networkx's karate club): what the mechanism takes."""
    return _simple(graph)


def _simple(graph: nx.Graph) -> nx.Graph:
    plain = nx.Graph()
    plain.add_nodes_from(graph.nodes)
    for u, v, marks in graph.edges(data=True):
        plain.add_edge(u, v, **({"label": marks["label"]} if "label" in marks else {}))
    return plain


def _integer(path: str | Path, number: int, place: int, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{path}, line {number}, field {place}: must be an integer.") from None
