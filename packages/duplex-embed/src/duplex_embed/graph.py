"""Directed graphs: one form for all inputs, H and the types of node pairs (paper, § Hermitian adjacency matrix)."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from offprints.checks import require_finite, require_kind, require_range, require_shape
from scipy import sparse

from duplex_embed.pairs import places, require_pairs

if TYPE_CHECKING:
    import networkx as nx
    from torch_geometric.data import Data


@dataclass(frozen=True)
class Graph:
    """A directed graph: edges without duplicates and self loops, sorted.

    Attributes:
        edge_index: (2, E) int64, source above target.
        num_nodes: n.
        x: (n, f) features, or None.
        y: (n,) integer labels, or None.
        weight: (E,) edge weights, or None; negative ones make the graph signed.
        names: the user's name of each node, or None where they are 0 ... n-1.
        messages: (2, M) edges that carry messages where they differ from `edge_index` (the protocol with leakage).
    """

    edge_index: torch.Tensor
    num_nodes: int
    x: torch.Tensor | None = None
    y: torch.Tensor | None = None
    weight: torch.Tensor | None = None
    names: tuple[Hashable, ...] | None = None
    messages: torch.Tensor | None = None

    @property
    def num_edges(self) -> int:
        """The number of directed edges."""
        return self.edge_index.shape[1]

    @property
    def signed(self) -> bool:
        """Whether an edge has a negative weight."""
        return self.weight is not None and bool((self.weight < 0).any())

    @property
    def carriers(self) -> "Graph":
        """The graph whose edges carry messages: this one, but under the protocol with leakage."""
        return self if self.messages is None else replace(self, edge_index=self.messages, weight=None, messages=None)

    @cached_property
    def links(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """What `unordered` gives; kept, as every epoch of training asks for it."""
        return _links(self)

    @cached_property
    def joined(self) -> np.ndarray:
        """(P,) min(u, v) n + max(u, v) of the node pairs that have an edge, ascending; kept for the same reason."""
        u, v, *_ = self.links
        return np.sort(np.minimum(u, v) * max(self.num_nodes, 1) + np.maximum(u, v))

    def degrees(self) -> tuple[torch.Tensor, torch.Tensor]:
        """In-degree and out-degree, (n,) each."""
        out, into = (torch.bincount(row, minlength=self.num_nodes) for row in self.edge_index.cpu())
        return into, out

    def one_way(self) -> int:
        """How many node pairs have an edge in one direction only."""
        return int(unordered(self)[2].sum())

    def indices(self, pairs: "torch.Tensor | np.ndarray | Sequence[tuple[Hashable, Hashable]]") -> torch.Tensor:
        """(m, 2) node indices of pairs: arrays of numbers hold indices, all else names where nodes have them.

        Raises:
            ValueError: if a node is unknown, out of range, or paired with itself.
        """
        if isinstance(pairs, np.ndarray) and pairs.dtype.kind in "OSU":
            pairs = pairs.tolist()
        if self.names is not None and not isinstance(pairs, torch.Tensor | np.ndarray):
            place = {name: at for at, name in enumerate(self.names)}
            unknown = [name for pair in pairs for name in pair if name not in place]
            if unknown:
                raise ValueError(f"pairs must name nodes of the graph, got {unknown[0]!r}, which is none of them.")
            pairs = [(place[u], place[v]) for u, v in pairs]
        return require_pairs(pairs, self.num_nodes)

    def subgraph(self, nodes: torch.Tensor) -> "Graph":
        """The graph on some nodes, renumbered in the order given.

        Args:
            nodes: (k,) node indices, or (n,) booleans.
        """
        nodes = nodes.nonzero().squeeze(1) if nodes.dtype == torch.bool else nodes
        place = torch.full((self.num_nodes,), -1)
        place[nodes] = torch.arange(len(nodes))
        u, v = place[self.edge_index]
        kept = (u >= 0) & (v >= 0)
        weight = None if self.weight is None else self.weight[kept]
        part = [None if values is None else values[nodes] for values in (self.x, self.y)]
        names = None if self.names is None else tuple(self.names[i] for i in nodes.tolist())
        edges = torch.stack((u, v))[:, kept]
        return as_graph(edges, num_nodes=len(nodes), x=part[0], y=part[1], weight=weight, names=names)

    def labels(self) -> torch.Tensor:
        """(n,) y.

        Raises:
            ValueError: if the graph has none, or they are no whole numbers.
        """
        if self.y is None:
            raise ValueError("data must have labels y (n,), got none. Give -1 where a label is not known.")
        if self.y.is_floating_point() and not torch.equal(self.y, self.y.round()):  # NaN too
            raise ValueError("labels y must be whole numbers, got others. Number the classes from 0.")
        return self.y

    def features(self) -> torch.Tensor:
        """(n, f) x.

        Raises:
            ValueError: if the graph has none.
        """
        if self.x is None:
            raise ValueError("graph must have features x (n, f), got none. Without them take init='degree'.")
        return self.x

    def to_networkx(self) -> "nx.DiGraph":
        """The same as a networkx graph, its nodes by their names, with `weight` where edges have one."""
        import networkx as nx

        names, found = self.names or range(self.num_nodes), nx.DiGraph()
        found.add_nodes_from(names)
        weights = [{}] * self.num_edges if self.weight is None else [{"weight": w} for w in self.weight.tolist()]
        pairs = zip(self.edge_index.t().tolist(), weights, strict=True)
        found.add_edges_from((names[u], names[v], kept) for (u, v), kept in pairs)
        return found

    def to_pyg(self) -> "Data":
        """The same as `torch_geometric.data.Data`."""
        from torch_geometric.data import Data

        return Data(x=self.x, edge_index=self.edge_index, y=self.y, edge_attr=self.weight, num_nodes=self.num_nodes)


GraphLike = "Graph | Data | nx.Graph | sparse.sparray | sparse.spmatrix | torch.Tensor | np.ndarray | Sequence"


def as_graph(
    data: object,
    *,
    num_nodes: int | None = None,
    x: "torch.Tensor | np.ndarray | None" = None,
    y: "torch.Tensor | np.ndarray | None" = None,
    weight: "torch.Tensor | np.ndarray | None" = None,
    names: Sequence[Hashable] | None = None,
) -> Graph:
    """Bring a graph of any kind into one form; duplicated edges and self loops go (weights of duplicates add up).

    Args:
        data: a `Graph`, `torch_geometric.data.Data`, networkx graph (an undirected one has every edge both ways),
            scipy sparse adjacency matrix (row = source), (2, E) array of node indices, or a sequence of pairs of
            node names.
        num_nodes: n, where it is not that of the data (isolated nodes at the end).
        x: (n, f) features.
        y: (n,) integer labels.
        weight: (E,) edge weights, in the order of the edges given.
        names: the user's names of the nodes.

    Raises:
        TypeError: if it is no graph.
        ValueError: if indices are out of range, or features or weights are not finite or of another shape.
    """
    if isinstance(data, Graph):
        return _amended(data, num_nodes, x, y, weight, names)
    if hasattr(data, "edge_index"):
        return _amended(from_pyg(data), num_nodes, x, y, weight, names)
    if hasattr(data, "is_directed") and hasattr(data, "edges"):
        return _amended(from_networkx(data), num_nodes, x, y, weight, names)  # type: ignore[bad-argument-type]
    if sparse.issparse(data):
        _refuse_weight(weight)
        found = sparse.coo_array(data)
        found.eliminate_zeros()  # what is stored and 0 is no edge
        require_shape("adjacency", found, ("n", "n"))
        entries = found.data
        values = (
            None if np.array_equal(entries, np.ones_like(entries)) else torch.from_numpy(entries.astype(np.float32))
        )
        # pyrefly: ignore[unsupported-operation]
        edges, weight = torch.from_numpy(np.stack(found.coords).astype(np.int64)), values
        num_nodes = found.shape[0] if num_nodes is None else num_nodes  # type: ignore[unsupported-operation]
    elif isinstance(data, torch.Tensor | np.ndarray):
        edges = torch.as_tensor(data)
        require_shape("edge_index", edges, (2, None), hint="Give source above target, as torch_geometric does.")
        if edges.numel() and (edges.is_floating_point() or edges.dtype == torch.bool):
            raise TypeError(f"edge_index must hold integers, got {edges.dtype}.")
    else:
        require_kind("data", data, Sequence, hint="Give Data, a networkx graph, a (2, E) array or a list of pairs.")
        edges, names = _from_pairs(data, names)  # type: ignore[bad-argument-type]
        num_nodes = len(names) if names is not None and num_nodes is None else num_nodes
    return _clean(edges.long().cpu(), num_nodes, x, y, weight, names)


def _amended(
    graph: Graph,
    num_nodes: int | None,
    x: "torch.Tensor | np.ndarray | None",
    y: "torch.Tensor | np.ndarray | None",
    weight: "torch.Tensor | np.ndarray | None",
    names: Sequence[Hashable] | None,
) -> Graph:
    """The graph with what was given besides it."""
    _refuse_weight(weight)
    if all(part is None for part in (num_nodes, x, y, names)):
        return graph
    found = _clean(
        graph.edge_index,
        graph.num_nodes if num_nodes is None else num_nodes,
        graph.x if x is None else x,
        graph.y if y is None else y,
        graph.weight,
        graph.names if names is None else names,
    )
    return replace(found, messages=graph.messages)


def _refuse_weight(weight: object) -> None:
    if weight is not None:
        raise ValueError("weight must stand in the graph itself, got it besides. Give it with a (2, E) array of edges.")


def from_pyg(data: object) -> Graph:
    """A `torch_geometric.data.Data` (or anything with `edge_index`); `edge_attr` or `edge_weight` (E,) are weights."""
    weight = getattr(data, "edge_weight", None)
    weight = getattr(data, "edge_attr", None) if weight is None else weight
    if weight is not None:
        weight = weight.reshape(len(weight), -1)
        weight = weight[:, 0] if weight.shape[1] == 1 else None
    parts = [getattr(data, name, None) for name in ("x", "y")]
    nodes = getattr(data, "num_nodes", None)
    return as_graph(data.edge_index, num_nodes=nodes, x=parts[0], y=parts[1], weight=weight)  # type: ignore[missing-attribute]


def from_networkx(graph: "nx.Graph") -> Graph:
    """A networkx graph, its edge attribute `weight` (1 where missing) included; the names of its nodes are kept.

    Raises:
        TypeError: if a weight is no number.
    """
    nodes, numbers = list(graph.nodes), list(range(graph.number_of_nodes()))
    nodes = numbers if set(nodes) == set(numbers) else nodes
    place = {name: at for at, name in enumerate(nodes)}
    directed = graph if graph.is_directed() else graph.to_directed()
    found = [(place[u], place[v], w) for u, v, w in directed.edges(data="weight", default=1.0)]
    edges = torch.tensor([(u, v) for u, v, _ in found], dtype=torch.int64).reshape(-1, 2).t()
    weight = torch.tensor([_number(w, nodes[u], nodes[v]) for u, v, w in found])
    plain = bool((weight == 1).all())
    names = None if nodes == numbers else nodes
    return as_graph(edges, num_nodes=len(nodes), weight=None if plain else weight, names=names)


def _number(weight: object, source: Hashable, target: Hashable) -> float:
    try:
        return float(weight)  # type: ignore[bad-argument-type]
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"weight must be a number on every edge, got {weight!r} from {source!r} to {target!r}."
        ) from error


def _from_pairs(pairs: Sequence, names: Sequence[Hashable] | None) -> tuple[torch.Tensor, list[Hashable] | None]:
    bad = next((pair for pair in pairs if isinstance(pair, str) or len(pair) != 2), None)
    if bad is not None:
        raise ValueError(f"edges must be pairs (source, target), got {bad!r}.")
    if names is None:
        found = {name for pair in pairs for name in pair}
        try:
            names = sorted(found)  # type: ignore[bad-specialization]
        except TypeError:
            names = sorted(found, key=repr)
    place = {name: at for at, name in enumerate(names)}
    edges = torch.tensor([(place[u], place[v]) for u, v in pairs], dtype=torch.int64).reshape(-1, 2).t()
    return edges, None if list(names) == list(range(len(names))) else list(names)


def _clean(
    edges: torch.Tensor,
    num_nodes: int | None,
    x: "torch.Tensor | np.ndarray | None",
    y: "torch.Tensor | np.ndarray | None",
    weight: "torch.Tensor | np.ndarray | None",
    names: Sequence[Hashable] | None,
) -> Graph:
    least = int(edges.max()) + 1 if edges.numel() else 0
    n = least if num_nodes is None else int(require_range("num_nodes", num_nodes, low=0, integer=True))
    if edges.numel() and (int(edges.min()) < 0 or least > n):
        raise ValueError(f"edge_index must lie in [0, {n}), got {int(edges.min())} to {least - 1}. Raise num_nodes.")
    if weight is not None:
        weight = torch.as_tensor(weight).float().cpu()
        require_shape("weight", weight, (edges.shape[1],))
        require_finite("weight", weight)
    if x is not None:
        x = torch.as_tensor(x).cpu()
        x = x if x.is_floating_point() else x.float()
        require_shape("x", x, (n, None))
        require_finite("x", x, hint="Fill missing features before.")
    if y is not None:
        y = torch.as_tensor(y).cpu()
        require_shape("y", y, (n,))
    if names is not None and (len(names) != n or len(set(names)) != n):
        raise ValueError(f"names must be {n} different ones, one for each node, got {len(names)}.")
    u, v = edges.numpy()
    real = u != v
    keys, inverse = np.unique(u[real] * max(n, 1) + v[real], return_inverse=True)
    if weight is not None:
        total = np.zeros(len(keys), np.float32)
        np.add.at(total, inverse, weight.numpy()[real])
        weight = torch.from_numpy(total)
    index = torch.from_numpy(np.stack(np.divmod(keys, max(n, 1))))
    return Graph(index, n, x, y, weight, None if names is None else tuple(names))


def unordered(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """The node pairs that have an edge, each once.

    Returns:
        u, v: (P,) nodes; a one-way pair stands in the direction of its edge, a reciprocal one with u < v.
        one_way: (P,) booleans.
        weight: (P,) weight of the edge, for a reciprocal pair the mean of both (ones without weights).
    """
    return graph.links


def _links(graph: Graph) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    u, v = graph.edge_index.numpy()
    n = max(graph.num_nodes, 1)
    w = np.ones(len(u), np.float32) if graph.weight is None else graph.weight.numpy()
    keys, mirror = u * n + v, v * n + u  # keys are sorted
    at = places(keys, mirror)
    both = keys[at] == mirror if len(keys) else np.zeros(0, bool)
    kept = ~both | (u < v)
    mean = np.where(both, (w + w[at]) / 2, w) if len(keys) else w
    return u[kept], v[kept], ~both[kept], mean[kept]


def hermitian_adjacency(data: object) -> sparse.csr_array:
    """H (n, n) complex: H_uv = i for u->v alone, -i for v->u alone, 1 for both, 0 for none; H = H*.

    An edge of negative weight is -1 (an extension).
    """
    graph = as_graph(data)
    u, v, one_way, weight = unordered(graph)
    value = np.where(weight < 0, -1.0, np.where(one_way, 1j, 1.0))
    size = (graph.num_nodes, graph.num_nodes)
    rows, columns = np.concatenate((u, v)), np.concatenate((v, u))
    return sparse.csr_array((np.concatenate((value, value.conj())), (rows, columns)), shape=size)
