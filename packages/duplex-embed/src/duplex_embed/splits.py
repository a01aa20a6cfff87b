"""Splits of links and nodes; by default no test edge carries a message (paper, § experiments)."""

import warnings
from dataclasses import dataclass, replace

import numpy as np
import torch
from offprints.checks import require_range
from offprints.seeding import rng
from scipy import sparse
from scipy.sparse import csgraph

from duplex_embed.graph import Graph, as_graph, unordered
from duplex_embed.pairs import BOTH, FORWARD, NEGATIVE, NONE, REVERSE, is_member

LEAK_FREE = "leak-free"
LEAKING = "official (test edges carry messages)"


@dataclass(frozen=True)
class PairSet:
    """Node pairs whose type is known: each edge or reciprocal pair once, and non-edges.

    Attributes:
        pairs: (m, 2) node indices; half of the one-way edges stand reversed, as type 0.
        types: (m,) 0 reverse, 1 forward, 2 both, 3 none, 4 negative.
        protocol: what the graph that goes with it was allowed to see.
    """

    pairs: torch.Tensor
    types: torch.Tensor
    protocol: str = LEAK_FREE

    def __len__(self) -> int:
        return len(self.pairs)


@dataclass(frozen=True)
class LinkSplit:
    """`train`: a graph with the training edges alone; `val` and `test`: pairs to predict."""

    train: Graph
    val: PairSet
    test: PairSet
    protocol: str = LEAK_FREE


@dataclass(frozen=True)
class NodeSplit:
    """(n,) booleans: 3 : 1 : 1 for training, validation, test (paper, § experiments)."""

    train: torch.Tensor
    val: torch.Tensor
    test: torch.Tensor


def split_edges(
    data: object,
    val: float = 0.05,
    test: float = 0.15,
    seed: int = 0,
    neg_ratio: float = 1.0,
    official_leak: bool = False,
) -> LinkSplit:
    """Split the node pairs that have an edge, 16 : 1 : 3 by default, and draw non-edges for the two test parts.

    A random spanning forest stays in training, so that no node is cut off. Reciprocal pairs are split as one.

    Args:
        data: a graph of any kind.
        val: share of pairs for validation.
        test: share of pairs for testing.
        seed: of the split.
        neg_ratio: non-edges for each pair.
        official_leak: let all edges carry messages, the test edges too, as the official code does (see the deviations).

    Raises:
        ValueError: if there is no edge, or a share is out of range.
    """
    for name, share in {"val": val, "test": test, "val + test": val + test}.items():
        require_range(name, share, low=0, high=1, high_open=True)
    require_range("neg_ratio", neg_ratio, low=0)
    graph, generator = as_graph(data), rng(seed)
    u, v, one_way, weight = unordered(graph)
    if not len(u):
        raise ValueError("data must have an edge to split, got a graph without any.")
    order = _outside_forest(u, v, graph.num_nodes, generator)
    sizes = {"val": round(val * len(u)), "test": round(test * len(u))}
    wanted = sum(sizes.values())
    if wanted > len(order):
        sizes = {name: int(size * len(order) / wanted) for name, size in sizes.items()}
        warnings.warn(
            f"the spanning forest leaves {len(order)} pairs for validation and testing, fewer than the {wanted} asked "
            f"for: {sizes['val']} and {sizes['test']} are held out.",
            stacklevel=2,
        )
    types = np.where(weight < 0, NEGATIVE, np.where(one_way, FORWARD, BOTH))
    counts = [round(neg_ratio * size) for size in sizes.values()]
    none = non_edges(graph, sum(counts), generator)
    parts, at, protocol = {}, 0, LEAKING if official_leak else LEAK_FREE
    for (name, size), count in zip(sizes.items(), counts, strict=True):
        held, at = order[at : at + size], at + size
        mine, none = none[:count], none[count:]
        known = torch.from_numpy(np.stack((u[held], v[held]), 1))
        pairs, kinds = oriented(known, torch.from_numpy(types[held]), generator)
        pairs, kinds = torch.cat((pairs, mine)), torch.cat((kinds, torch.full((len(mine),), NONE)))
        parts[name] = PairSet(pairs, kinds, protocol)
    held = order[: sum(sizes.values())]
    train = _without(graph, u[held], v[held])
    train = replace(train, messages=graph.edge_index) if official_leak else train
    return LinkSplit(train, parts["val"], parts["test"], protocol)


def oriented(
    pairs: torch.Tensor, types: torch.Tensor, generator: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Turn half of the one-way pairs around: (v, u) of type reverse."""
    turn = torch.from_numpy(generator.random(len(pairs)) < 0.5) & (types == FORWARD)
    pairs = torch.where(turn[:, None], pairs.flip(1), pairs)
    return pairs, torch.where(turn, REVERSE, types)


def non_edges(graph: Graph, count: int, generator: np.random.Generator, unique: bool = True) -> torch.Tensor:
    """(count, 2) uniform pairs of different nodes without an edge either way; fewer where there are not so many.

    With `unique` no two of them join the same nodes.
    """
    n = graph.num_nodes
    known = graph.joined
    free = n * (n - 1) // 2 - len(known)
    if free <= 4 * count or n < 3:  # dense: list them all
        if n > 20_000:
            raise ValueError(f"a graph of {n} nodes must have more non-edges than {free} to draw {count} of them.")
        i, j = np.triu_indices(n, 1)
        keys = np.setdiff1d(i * max(n, 1) + j, known)
        picked = generator.permutation(keys)[:count] if unique else generator.choice(keys, min(len(keys), 1) * count)
    else:
        picked = np.empty(0, np.int64)
        while len(picked) < count:
            i, j = generator.integers(0, n, (2, 2 * (count - len(picked)) + 16))
            keys = (np.minimum(i, j) * n + np.maximum(i, j))[i != j]
            keys = keys[~is_member(known, keys)]
            picked = np.concatenate((picked, keys))
            if unique:
                picked = picked[np.sort(np.unique(picked, return_index=True)[1])]
        picked = picked[:count]
    i, j = np.divmod(picked, max(n, 1))
    swap = generator.random(len(picked)) < 0.5
    return torch.from_numpy(np.stack((np.where(swap, j, i), np.where(swap, i, j)), 1))


def _outside_forest(u: np.ndarray, v: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
    """Indices of the pairs that are not in a random spanning forest, in random order."""
    cost = generator.permutation(len(u)) + 1.0
    places = (u.astype(np.int32), v.astype(np.int32))  # older csgraph takes no other
    forest = csgraph.minimum_spanning_tree(sparse.csr_array((cost, places), shape=(n, n)))
    return generator.permutation(np.nonzero(~np.isin(cost, forest.data))[0])


def _without(graph: Graph, u: np.ndarray, v: np.ndarray) -> Graph:
    """The graph without the edges between these pairs, either way."""
    n = graph.num_nodes
    gone = np.concatenate((u * n + v, v * n + u))
    kept = torch.from_numpy(~np.isin(graph.edge_index[0].numpy() * n + graph.edge_index[1].numpy(), gone))
    weight = None if graph.weight is None else graph.weight[kept]
    return replace(graph, edge_index=graph.edge_index[:, kept], weight=weight)


def split_nodes(data: object, train: float = 0.6, val: float = 0.2, seed: int = 0) -> NodeSplit:
    """Split the nodes at random, 3 : 1 : 1 by default; what is left of 1 is for testing.

    Raises:
        ValueError: if a share is out of range.
    """
    for name, share in {"train": train, "val": val, "train + val": train + val}.items():
        require_range(name, share, low=0, high=1)
    n = as_graph(data).num_nodes
    order = torch.from_numpy(rng(seed).permutation(n))
    ends = (round(train * n), round((train + val) * n))
    masks = [torch.zeros(n, dtype=torch.bool) for _ in range(3)]
    for mask, nodes in zip(masks, (order[: ends[0]], order[ends[0] : ends[1]], order[ends[1] :]), strict=True):
        mask[nodes] = True
    return NodeSplit(*masks)
