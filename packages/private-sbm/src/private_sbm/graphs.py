"""What callers hand over, as one symmetric sparse matrix: networkx, scipy, numpy, edge_index.

Edges are the secret (edge privacy: Section 1 of the paper): no message here tells anything of one.
"""

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
from offprints.checks import require_kind, require_range
from scipy import sparse
from scipy.sparse.linalg import LinearOperator

Matrix: TypeAlias = Any
"""A numpy array or scipy matrix (n, n); scipy's matrices carry no types."""


def dense(a: Matrix) -> np.ndarray:
    """The matrix as a numpy array of floats."""
    convert = getattr(a, "toarray", None)
    return np.asarray(a, dtype=float) if convert is None else np.asarray(convert(), dtype=float)


def greatest_degree(a: Matrix) -> float:
    """The greatest row sum of |A|, a bound on its norm."""
    return float(np.max(np.asarray(abs(a).sum(axis=1)), initial=0.0))


def operator(n: int, apply: Callable[[np.ndarray], np.ndarray]) -> LinearOperator:
    """A symmetric operator on vectors (n,)."""
    return LinearOperator((n, n), matvec=lambda x: apply(np.ravel(x)), dtype=float)  # type: ignore[call-arg]


def adjacency(
    graph: object, signed: bool = False, label: str = "label", num_nodes: int | None = None
) -> tuple[Matrix, list[Hashable]]:
    """The adjacency (n, n) of an undirected graph without loops, entries 0 / 1 (signed: -1, 0, 1), and its node names.

    Args:
        graph: a networkx graph (order of `graph.nodes`), a symmetric scipy matrix or numpy array, or edges as
            `edge_index` (2, E), array or tensor, or an object with `edge_index` and `num_nodes`.
        signed: whether edges carry a sign: the attribute `label` in networkx, the entries of a matrix; edges of an
            `edge_index` cannot.
        label: name of that attribute.
        num_nodes: number of vertices of an `edge_index`; where given, `graph` is read as one.

    Raises:
        TypeError: if it is no graph.
        ValueError: if it is directed or asymmetric, or has weights other than 0 and 1 (signed: -1, 0, 1), NaN
            included, or two signs for one pair. What the weights are, and where, is not told.
    """
    if isinstance(graph, nx.Graph):
        if num_nodes is not None:
            raise ValueError(f"num_nodes is for an edge_index, got {num_nodes!r} with a networkx graph. Leave it out.")
        return _from_networkx(graph, signed, label)
    edges = getattr(graph, "edge_index", None)
    if edges is not None:
        num_nodes = num_nodes if num_nodes is not None else getattr(graph, "num_nodes", None)
        return _from_edges(edges, num_nodes, signed)
    if num_nodes is not None or _looks_like_edges(graph):
        return _from_edges(graph, num_nodes, signed)
    return _from_matrix(graph, signed)


def _from_networkx(graph: nx.Graph, signed: bool, label: str) -> tuple[Matrix, list[Hashable]]:
    if graph.is_directed():
        raise ValueError("graph must be undirected, got a directed one. Convert it with graph.to_undirected().")
    nodes = list(graph.nodes)
    place = {node: i for i, node in enumerate(nodes)}
    ends = np.array([(place[u], place[v]) for u, v in graph.edges()], dtype=np.int64).reshape(-1, 2)
    if not signed:
        given = [weight for _, _, weight in graph.edges(data="weight", default=1)]
    else:
        given = [sign for _, _, sign in graph.edges(data=label, default=np.nan)]
    try:
        values = np.array(given, dtype=float)
    except (TypeError, ValueError):
        values = np.full(len(given), np.nan)
    return _assemble(ends[:, 0], ends[:, 1], values, len(nodes), signed), nodes


def _looks_like_edges(graph: object) -> bool:
    shape = tuple(getattr(graph, "shape", ()))
    return not sparse.issparse(graph) and len(shape) == 2 and shape[0] == 2 and shape[1] != 2


def _from_edges(edges: object, num_nodes: int | None, signed: bool) -> tuple[Matrix, list[Hashable]]:
    """Each column is an unordered pair; both orders of a pair are one edge."""
    if signed:
        raise ValueError("graph must carry signs in the censored model, got an edge_index. Pass a signed matrix.")
    detached = edges.detach().cpu() if hasattr(edges, "detach") else edges
    array = np.asarray(detached)
    if array.ndim != 2 or array.shape[0] != 2 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"edge_index must be integers of shape (2, E), got {array.dtype} of shape {array.shape}.")
    if num_nodes is None:
        raise ValueError("num_nodes must be given with an edge_index, got None: isolated vertices count too.")
    require_range("num_nodes", num_nodes, low=0, integer=True)
    array = array.astype(np.int64)
    if array.size and (array.min() < 0 or array.max() >= num_nodes):
        raise ValueError(f"edge_index must be between 0 and {num_nodes - 1} (num_nodes - 1), got entries outside.")
    return _assemble(array[0], array[1], np.ones(array.shape[1]), int(num_nodes), False), list(range(int(num_nodes)))


def _from_matrix(graph: Matrix, signed: bool) -> tuple[Matrix, list[Hashable]]:
    if not sparse.issparse(graph):
        require_kind("graph", graph, (np.ndarray, Sequence), hint="Pass a networkx graph, a matrix or an edge_index.")
        if isinstance(graph, np.ma.MaskedArray):
            raise TypeError("graph must be without a mask, got a masked array. Fill it.")
        try:
            real = np.asarray(graph)
            graph = real if real.dtype.kind == "c" else real.astype(float)
        except (TypeError, ValueError):
            raise ValueError("graph must be a matrix of numbers, got other entries.") from None
    if graph.dtype.kind == "c":
        raise TypeError("graph must be a matrix of real numbers, got complex ones.")
    if len(graph.shape) != 2 or graph.shape[0] != graph.shape[1]:
        raise ValueError(f"graph must be of shape (n, n), got {tuple(graph.shape)}.")
    matrix = sparse.coo_array(graph)
    matrix.sum_duplicates()
    rows, columns, values = (np.asarray(x) for x in (matrix.coords[0], matrix.coords[1], matrix.data))
    _require_weights(values, signed)
    if (abs(matrix - matrix.T)).sum() != 0:
        raise ValueError("graph must be undirected, got a matrix that is not symmetric.")
    upper = rows <= columns
    n = graph.shape[0]
    return _assemble(rows[upper], columns[upper], values[upper].astype(float), n, signed), list(range(n))


def _require_weights(values: np.ndarray, signed: bool) -> None:
    allowed = (-1, 0, 1) if signed else (0, 1)
    if not np.isin(values, allowed).all():
        names = ", ".join(map(str, allowed))
        kind = "NaN" if np.isnan(np.asarray(values, dtype=float)).any() else "others"
        hint = "Mark each edge with its label." if signed else "Drop the weights, or set a threshold that is public."
        raise ValueError(f"weights must be {names}, got {kind}. {hint}")


def _assemble(rows: np.ndarray, columns: np.ndarray, values: np.ndarray, n: int, signed: bool) -> Matrix:
    """Loops dropped with a warning, repeated edges made one, both triangles filled."""
    _require_weights(values, signed)
    proper = rows != columns
    if not proper.all():
        warnings.warn("graph has self-loops; they carry no community and are dropped.", UserWarning, stacklevel=4)
    keep = proper & (values != 0)
    low, high, values = np.minimum(rows, columns)[keep], np.maximum(rows, columns)[keep], values[keep]
    key, first = np.unique(low * max(n, 1) + high, return_index=True)
    if signed and len(key) < len(values):
        same = values[first][np.searchsorted(key, low * n + high)] == values
        if not same.all():
            raise ValueError("graph must have one label for each pair, got parallel edges with different labels.")
    low, high, values = low[first], high[first], values[first]
    ends = (np.concatenate([low, high]), np.concatenate([high, low]))
    return sparse.csr_array((np.concatenate([values, values]), ends), shape=(n, n))
