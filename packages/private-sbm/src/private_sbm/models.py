"""Samplers of the three block models (Section 1 of the paper): p = a ln n / n, q = b ln n / n.

Edges are drawn block by block (a binomial count, then distinct pairs), so that time and memory are linear in edges.
"""

from collections.abc import Sequence
from math import log
from typing import Literal, overload

import networkx as nx
import numpy as np
from offprints.checks import require_range
from offprints.seeding import rng
from scipy import sparse


@overload
def asymmetric_sbm(
    n: int, rho: float, a: float, b: float, seed: int = 0, *, as_sparse: Literal[False] = False
) -> tuple[nx.Graph, np.ndarray]: ...
@overload
def asymmetric_sbm(
    n: int, rho: float, a: float, b: float, seed: int = 0, *, as_sparse: Literal[True]
) -> tuple[sparse.csr_array, np.ndarray]: ...
def asymmetric_sbm(
    n: int, rho: float, a: float, b: float, seed: int = 0, *, as_sparse: bool = False
) -> tuple[nx.Graph | sparse.csr_array, np.ndarray]:
    """Two communities of round(rho n) and the rest: edges with probability p inside, q across.

    Args:
        n: vertices.
        rho: share of community 0.
        a: p n / ln n.
        b: q n / ln n.
        seed: of the generator.
        as_sparse: a scipy matrix (n, n) instead of a networkx graph, for many edges.

    Returns:
        The graph and its labels (n,) in {0, 1}.

    Raises:
        TypeError, ValueError: for n < 2, rho outside (0, 1), negative densities, or p or q above 1.
    """
    require_range("rho", rho, low=0, high=1, low_open=True, high_open=True)
    _require_size(n, a, b)
    first = round(rho * n)
    labels = np.repeat([0, 1], [first, n - first])
    ends = _block_edges([first, n - first], 0, a * log(n) / n, b * log(n) / n, rng(seed))
    return _packed(ends, n, as_sparse), labels


@overload
def general_sbm(
    n: int, sizes: Sequence[int], a: float, b: float, seed: int = 0, *, as_sparse: Literal[False] = False
) -> tuple[nx.Graph, np.ndarray]: ...
@overload
def general_sbm(
    n: int, sizes: Sequence[int], a: float, b: float, seed: int = 0, *, as_sparse: Literal[True]
) -> tuple[sparse.csr_array, np.ndarray]: ...
def general_sbm(
    n: int, sizes: Sequence[int], a: float, b: float, seed: int = 0, *, as_sparse: bool = False
) -> tuple[nx.Graph | sparse.csr_array, np.ndarray]:
    """Clusters of the given sizes, the other vertices outliers: edges with probability p in a cluster, else q.

    Args:
        n: vertices.
        sizes: of the clusters; what is left of n are outliers.
        a: p n / ln n.
        b: q n / ln n.
        seed: of the generator.
        as_sparse: a scipy matrix (n, n) instead of a networkx graph.

    Returns:
        The graph and its labels (n,): cluster numbers, -1 for an outlier.

    Raises:
        TypeError, ValueError: as `asymmetric_sbm`; sizes that are not positive or exceed n together.
    """
    _require_size(n, a, b)
    for size in sizes:
        require_range("sizes", size, low=1, integer=True)
    out = int(require_range("n - sum(sizes)", n - sum(sizes), low=0, hint="Sizes must not exceed n together."))
    labels = np.repeat([*range(len(sizes)), -1], [*sizes, out])
    ends = _block_edges(list(sizes), out, a * log(n) / n, b * log(n) / n, rng(seed))
    return _packed(ends, n, as_sparse), labels


@overload
def censored_sbm(
    n: int, a: float, xi: float, seed: int = 0, rho: float = 0.5, *, as_sparse: Literal[False] = False
) -> tuple[nx.Graph, np.ndarray]: ...
@overload
def censored_sbm(
    n: int, a: float, xi: float, seed: int = 0, rho: float = 0.5, *, as_sparse: Literal[True]
) -> tuple[sparse.csr_array, np.ndarray]: ...
def censored_sbm(
    n: int, a: float, xi: float, seed: int = 0, rho: float = 0.5, *, as_sparse: bool = False
) -> tuple[nx.Graph | sparse.csr_array, np.ndarray]:
    """Pairs observed with probability p = a ln n / n; each shows s_i s_j, flipped with probability xi.

    Args:
        n: vertices.
        a: p n / ln n.
        xi: probability of a flipped label, in [0, 1/2].
        seed: of the generator.
        rho: share of community 0.
        as_sparse: a scipy matrix (n, n) of -1, 0, 1 instead of a networkx graph with edge attribute `label`.

    Returns:
        The graph and its labels (n,) in {0, 1}.

    Raises:
        TypeError, ValueError: as `asymmetric_sbm`; xi outside [0, 1/2].
    """
    require_range("rho", rho, low=0, high=1, low_open=True, high_open=True)
    require_range("xi", xi, low=0, high=0.5)
    _require_size(n, a, a)
    gen = rng(seed)
    first = round(rho * n)
    labels = np.repeat([0, 1], [first, n - first])
    ends = _block_edges([n], 0, a * log(n) / n, 0.0, gen)
    truth = np.where(labels[ends[0]] == labels[ends[1]], 1, -1)
    signs = np.where(gen.random(ends.shape[1]) < xi, -truth, truth)
    return _packed(ends, n, as_sparse, signs), labels


def _require_size(n: int, a: float, b: float) -> None:
    require_range("n", n, low=2, integer=True)
    for name, value in (("a", a), ("b", b)):
        most = n / log(n)
        require_range(name, value, low=0, high=most, because=f"n / ln n = {most:.4g}: a probability is at most 1")


def _block_edges(sizes: list[int], outliers: int, p: float, q: float, gen: np.random.Generator) -> np.ndarray:
    """(2, E): pairs inside blocks with probability p, between blocks and among outliers with q."""
    bounds = np.cumsum([0, *sizes, outliers])
    blocks = len(sizes) + 1
    found = []
    for k in range(blocks):
        inside = q if k == blocks - 1 else p
        found.append(_triangle(int(bounds[k + 1] - bounds[k]), inside, gen) + bounds[k])
        for j in range(k + 1, blocks):
            rows, columns = int(bounds[k + 1] - bounds[k]), int(bounds[j + 1] - bounds[j])
            picked = _distinct(rows * columns, q, gen)
            if len(picked):
                found.append(np.stack([picked // columns + bounds[k], picked % columns + bounds[j]]))
    return np.hstack(found).astype(np.int64)


def _triangle(size: int, p: float, gen: np.random.Generator) -> np.ndarray:
    """Pairs i < j of 0..size-1, each with probability p: number k = j (j - 1) / 2 + i."""
    picked = _distinct(size * (size - 1) // 2, p, gen)
    j = np.floor((1 + np.sqrt(1 + 8 * picked.astype(float))) / 2).astype(np.int64)
    j -= j * (j - 1) // 2 > picked  # rounding of the root
    j += (j + 1) * j // 2 <= picked
    return np.stack([picked - j * (j - 1) // 2, j])


def _distinct(total: int, p: float, gen: np.random.Generator) -> np.ndarray:
    """Each of 0..total-1 with probability p."""
    count = int(gen.binomial(total, p)) if total else 0
    if count > total // 4:
        return np.sort(gen.permutation(total)[:count])
    picked = np.unique(gen.integers(0, max(total, 1), count))
    while len(picked) < count:
        picked = np.unique(np.concatenate([picked, gen.integers(0, total, count - len(picked))]))
    return picked


def _packed(ends: np.ndarray, n: int, as_sparse: bool, signs: np.ndarray | None = None) -> nx.Graph | sparse.csr_array:
    if as_sparse:
        values = np.ones(ends.shape[1]) if signs is None else signs.astype(float)
        both = (np.concatenate([ends[0], ends[1]]), np.concatenate([ends[1], ends[0]]))
        return sparse.csr_array((np.concatenate([values, values]), both), shape=(n, n))
    graph = nx.empty_graph(n)
    if signs is None:
        graph.add_edges_from(ends.T.tolist())
    else:
        graph.add_edges_from((u, v, {"label": s}) for (u, v), s in zip(ends.T.tolist(), signs.tolist(), strict=True))
    return graph
