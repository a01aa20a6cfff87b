"""Plates that cover the space: cluster sampling after CLADE, and farthest-first diversity (Algorithm 1)."""

import numpy as np
from offprints.checks import require_range
from sklearn.cluster import KMeans

from knowrlm.graph import AminoAcidGraph
from knowrlm.space import VariantSpace

POOL = 20_000


class ClusterSampler:
    """Samples by clusters of the encoded space (Section 4, initial library; after CLADE of Qiu et al. 2021).

    K-means on the graph coordinates of a pool of variants. The first plate is uniform over clusters. With measurements,
    clusters are split once more, those of higher mean fitness into more parts, and drawn with probability proportional
    to the mean fitness of their measured members (shifted to be positive).

    Args:
        space: the variants.
        graph: its coordinates encode them.
        clusters: how many at first.
        splits: how many further ones in the second level.
        pool: at most so many variants are clustered; all of a smaller space.
        seed: of pool and clusters.

    Raises:
        ValueError: if a number is out of range.
    """

    def __init__(
        self,
        space: VariantSpace,
        graph: AminoAcidGraph | None = None,
        *,
        clusters: int = 10,
        splits: int = 10,
        pool: int = POOL,
        seed: int = 0,
    ) -> None:
        require_range("clusters", clusters, low=1, integer=True)
        require_range("splits", splits, low=0, integer=True)
        require_range("pool", pool, low=1, integer=True)
        self.space, self.splits, self.seed = space, splits, seed
        coordinates = (graph if graph is not None else AminoAcidGraph.default()).coordinates(4)
        gen = np.random.default_rng(seed)
        self.pool = variant_pool(space, pool, gen)
        self._points = coordinates[self.pool.astype(np.int64)].reshape(len(self.pool), -1)
        self.labels = self._split(np.arange(len(self.pool)), clusters)

    def propose(
        self, n: int, gen: np.random.Generator, known: np.ndarray | None = None, fitness: np.ndarray | None = None
    ) -> np.ndarray:
        """At most n distinct variants of the pool that are not among the (m, k) known ones, whose fitness is (m,)."""
        free = ~rows_in(self.pool, known) if known is not None and len(known) else np.ones(len(self.pool), bool)
        labels = self.labels
        weight = np.ones(labels.max() + 1)
        if known is not None and fitness is not None and len(known):
            labels, weight = self._weighted(known, fitness)
        chosen: list[int] = []
        members = [gen.permutation(np.flatnonzero((labels == c) & free)).tolist() for c in range(len(weight))]
        while len(chosen) < n and any(members):
            share = weight * [bool(rows) for rows in members]
            share = share / share.sum() if share.sum() > 0 else np.array([bool(rows) for rows in members], dtype=float)
            cluster = int(gen.choice(len(share), p=share / share.sum()))
            chosen.append(members[cluster].pop())
        return self.pool[chosen]

    def _weighted(self, known: np.ndarray, fitness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Second-level clusters and their weights, from the fitness measured in each."""
        inside = _nearest(self._points, self.labels, self._encode(known))
        means = _means(inside, fitness, self.labels.max() + 1)
        labels, following = self.labels.copy(), self.labels.max() + 1
        for cluster, parts in enumerate(np.floor(self.splits * means / means.sum()).astype(int)):
            rows = np.flatnonzero(self.labels == cluster)
            if parts > 0 and len(rows) > parts:
                below = self._split(rows, parts + 1)
                labels[rows] = np.where(below == 0, cluster, following + below - 1)
                following += parts
        inside = _nearest(self._points, labels, self._encode(known))
        return labels, _means(inside, fitness, following)

    def _encode(self, codes: np.ndarray) -> np.ndarray:
        lookup = {row.tobytes(): place for place, row in enumerate(self.pool)}
        places = [lookup.get(np.ascontiguousarray(row, dtype=np.int8).tobytes(), -1) for row in codes]
        return np.array(places, dtype=np.int64)

    def _split(self, rows: np.ndarray, clusters: int) -> np.ndarray:
        clusters = min(clusters, len(np.unique(self._points[rows], axis=0)))
        if clusters < 2:
            return np.zeros(len(rows), dtype=np.int64)
        model = KMeans(clusters, n_init=1, max_iter=20, random_state=self.seed % 2**32)
        return model.fit_predict(self._points[rows]).astype(np.int64)


def variant_pool(space: VariantSpace, n: int, gen: np.random.Generator) -> np.ndarray:
    """All variants of a space of at most n; n distinct ones of a larger enumerable one; else mutants of the parent.

    A space that cannot be listed is mostly dead far from its parent: its pool holds one to three mutations.
    """
    if space.size <= n:
        return space.codes(np.arange(space.size))
    if space.enumerable:
        return space.codes(np.sort(gen.choice(space.size, size=n, replace=False)))
    found = np.repeat(space.wild_type[None], n, axis=0)
    for _ in range(3):
        site = gen.integers(space.k, size=n)
        other = space.sample(n, gen)[np.arange(n), site]
        keep = gen.random(n) < 0.6
        found[np.arange(n)[keep], site[keep]] = other[keep]
    return np.unique(found, axis=0)


def rows_in(rows: np.ndarray, known: np.ndarray) -> np.ndarray:
    """(n,) whether each row of `rows` is among those of `known`."""
    there = {row.tobytes() for row in np.ascontiguousarray(known, dtype=np.int8)}
    return np.array([row.tobytes() in there for row in np.ascontiguousarray(rows, dtype=np.int8)], dtype=bool)


def farthest_first(codes: np.ndarray, n: int, graph: AminoAcidGraph, kept: np.ndarray | None = None) -> np.ndarray:
    """Places of n variants out of (m, k) `codes`, each the farthest from those before (the first one is the first row).

    The distance of two variants is Σ_j d(a_j, b_j) on the graph of Section 3. `kept` are variants to keep away from.

    Raises:
        ValueError: unless 0 ≤ n ≤ m.
    """
    require_range("n", n, low=0, high=len(codes), integer=True)
    codes = np.asarray(codes, dtype=np.int64)

    def away(variant: np.ndarray) -> np.ndarray:
        return graph.distances[codes, variant].sum(axis=1)

    nearest = np.full(len(codes), np.inf)
    for variant in kept if kept is not None else ():
        nearest = np.minimum(nearest, away(np.asarray(variant, dtype=np.int64)))
    chosen: list[int] = []
    while len(chosen) < n:
        place = 0 if not chosen and not np.isfinite(nearest).any() else int(np.argmax(nearest))
        chosen.append(place)
        nearest = np.minimum(nearest, away(codes[place]))
        nearest[chosen] = -1.0
    return np.array(chosen, dtype=np.int64)


def _nearest(points: np.ndarray, labels: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Cluster of each known variant; −1 where it is not in the pool."""
    return np.where(places >= 0, labels[places], -1)


def _means(cluster: np.ndarray, fitness: np.ndarray, clusters: int) -> np.ndarray:
    """Positive weight of each cluster: the mean fitness measured there; that of all where nothing is known."""
    raised = np.asarray(fitness, dtype=float) - min(0.0, float(np.min(fitness)))
    raised = raised / (float(raised.max()) or 1.0)
    means = np.full(clusters, max(float(raised.mean()), 1e-12))
    for c in np.unique(cluster[cluster >= 0]):
        means[c] = raised[cluster == c].mean()
    return np.maximum(means, 1e-3 * max(means.max(), 1e-12))
