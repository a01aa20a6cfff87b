"""Readers of graph files: edge lists, SNAP, signed lists, GraphML, Matrix Market; and networkx's own graphs.

Networks whose edges are private: Section 1 of the paper. An error names file, line and field, not the content.
Lists of edges do not say which vertices there are: which ones have an edge is as secret as the edges, so for a private
release the vertices come from elsewhere (`nodes`).
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from xml.etree.ElementTree import ParseError

import networkx as nx
import numpy as np
from offprints.checks import require_choice, require_kind, require_range
from scipy.io import mmread
from scipy.sparse import coo_array

from private_sbm.graphs import Matrix

FORMATS = {
    ".txt": "snap", ".snap": "snap", ".edges": "edges", ".edgelist": "edges", ".csv": "edges", ".tsv": "edges",
    ".graphml": "graphml", ".xml": "graphml", ".mtx": "mtx", ".signed": "signed",
}  # fmt: skip


LISTS = ("edges", "signed", "snap")
"""Formats that hold no vertices but the ends of edges."""


def load_graph(path: str | Path, kind: str | None = None, nodes: int | Sequence[str] | None = None) -> nx.Graph:
    """An undirected simple graph from a file.

    Args:
        path: the file; lists have no line of headings.
        kind: "edges" (two names a line, further fields are ignored), "snap" (integers, `#` comments), "signed" (two
            names and a sign: edge attribute `label`), "graphml" or "mtx"; by default from the suffix.
        nodes: the public vertices of a list, in the order of the labels to come: "snap": their number, 0..nodes-1;
            "edges" and "signed": their names. None: the ends of the edges, which is private only if every vertex is
            known to have an edge.

    Raises:
        FileNotFoundError: if there is no such file.
        TypeError: if `nodes` is of another kind than the format takes.
        ValueError: for an unknown format or suffix, `nodes` with a format that has its own, and for a line or file that
            is not in the format or names another vertex.
    """
    path = Path(path)
    kind = format_of(path) if kind is None else require_choice("kind", kind, READERS)
    if nodes is not None and kind not in LISTS:
        raise ValueError(f"nodes must be left out for {kind}, which lists its vertices, got {type(nodes).__name__}.")
    return READERS[kind](path) if kind not in LISTS else READERS[kind](path, nodes)


def format_of(path: Path) -> str:
    """The format that the suffix stands for.

    Raises:
        ValueError: if it stands for none.
    """
    if path.suffix not in FORMATS:
        known = ", ".join(sorted(FORMATS))
        raise ValueError(f"kind must be given for a suffix other than {known}, got {path.suffix!r}.")
    return FORMATS[path.suffix]


def _named(nodes: Sequence[str] | None) -> nx.Graph:
    """The graph without edges of these vertices."""
    graph = nx.Graph()
    if nodes is not None:
        require_kind("nodes", nodes, Sequence, hint="Pass the names of the vertices.")
        if isinstance(nodes, str):
            raise TypeError("nodes must be a sequence of names, got one text.")
        graph.add_nodes_from(nodes)
    return graph


def _require_known(path: Path, number: int, graph: nx.Graph, ends: Sequence[str], nodes: Sequence[str] | None) -> None:
    if nodes is not None and not all(end in graph for end in ends):
        raise ValueError(f"{path}, line {number}: vertices must be among the given nodes, got another.")


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


def read_edges(path: str | Path, nodes: Sequence[str] | None = None) -> nx.Graph:
    """Two node names a line, separated by blanks, tabs or a comma; names stay text.

    Raises:
        ValueError: naming the line with a single field, or a name that is not among `nodes`.
    """
    graph, path = _named(nodes), Path(path)
    for number, (u, v, *_) in _fields(path, 2):
        _require_known(path, number, graph, (u, v), nodes)
        graph.add_edge(u, v)
    return graph


def read_snap(path: str | Path, nodes: int | None = None) -> nx.Graph:
    """SNAP's lists: `#` comments, two integers a line; both directions of a pair are one edge.

    Raises:
        ValueError: naming line and field that is no integer, or a node beyond `nodes`.
    """
    graph = nx.Graph()
    if nodes is not None:
        require_range("nodes", nodes, low=0, integer=True)
        graph = nx.empty_graph(nodes)
    for number, fields in _fields(Path(path), 2):
        ends = [_integer(path, number, place, text) for place, text in enumerate(fields[:2], 1)]
        if nodes is not None and not all(0 <= end < nodes for end in ends):
            raise ValueError(f"{path}, line {number}: nodes must be between 0 and {nodes - 1}, got one outside.")
        graph.add_edge(*ends)
    return graph


def read_signed(path: str | Path, nodes: Sequence[str] | None = None) -> nx.Graph:
    """Two node names and a sign a line (positive or negative number, or + and -): edge attribute `label` of 1 or -1.

    Raises:
        ValueError: naming the line whose third field is no sign, that contradicts an earlier one, or that has a name
            which is not among `nodes`.
    """
    graph, path = _named(nodes), Path(path)
    for number, (u, v, text, *_) in _fields(path, 3):
        _require_known(path, number, graph, (u, v), nodes)
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


READERS: dict[str, Callable[..., nx.Graph]] = {
    "edges": read_edges, "snap": read_snap, "signed": read_signed, "graphml": read_graphml, "mtx": read_matrix_market,
}  # fmt: skip
