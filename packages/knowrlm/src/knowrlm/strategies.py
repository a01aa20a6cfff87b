"""What the paper compares with, and what a user would try first: strategies for plates (Section 4, Table 1)."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from knowrlm.graph import AminoAcidGraph
from knowrlm.sampling import ClusterSampler, rows_in, variant_pool
from knowrlm.space import VariantSpace
from knowrlm.surrogate import Surrogate


@dataclass
class Known:
    """What a strategy sees: the space, (n, k) measured codes and (n,) fitness in order, a generator.

    `zero_shot` scores variants without labels, for the filter of ftMLDE; nearness on the graph by default. A search on
    the model may ask it for `queries` predictions a plate.
    """

    space: VariantSpace
    graph: AminoAcidGraph
    surrogate: Surrogate
    gen: np.random.Generator
    codes: np.ndarray
    fitness: np.ndarray
    failed: np.ndarray
    memory: dict[str, object] = field(default_factory=dict)
    zero_shot: "Callable[[np.ndarray], np.ndarray] | None" = None
    queries: int = 2000

    @property
    def tried(self) -> np.ndarray:
        """Everything proposed so far, with or without a measurement."""
        return np.concatenate([self.codes, self.failed])

    def fresh(self, codes: np.ndarray, n: int) -> np.ndarray:
        """The first n distinct variants not tried yet, filled up at random."""
        codes = np.asarray(codes, dtype=np.int8).reshape(-1, self.space.k)
        codes = codes[~rows_in(codes, self.tried)]
        _, first = np.unique(codes, axis=0, return_index=True)
        codes = codes[np.sort(first)][:n]
        while len(codes) < n and len(self.tried) + len(codes) < self.space.size:
            more = random_variants(self, 4 * n)
            more = more[~rows_in(more, np.concatenate([self.tried, codes]))]
            codes = np.concatenate([codes, np.unique(more, axis=0)[: n - len(codes)]])
        return codes


Strategy = Callable[[Known, int], np.ndarray]


def random_variants(known: Known, n: int) -> np.ndarray:
    """N variants at random: uniform where the space can be listed, else mutants of the parent (Section 4)."""
    if known.space.enumerable:
        return known.space.sample(n, known.gen)
    return known.gen.permutation(variant_pool(known.space, n, known.gen))


def propose_random(known: Known, n: int) -> np.ndarray:
    """A random plate (Section 4)."""
    return known.fresh(random_variants(known, 2 * n), n)


def propose_single_mutants(known: Known, n: int) -> np.ndarray:
    """The greedy single-mutant walk: substitutions of the best variant so far, then of the next best (Section 4)."""
    order = np.argsort(-known.fitness, kind="stable")
    starts = known.codes[order] if len(order) else known.space.wild_type[None]
    found: list[np.ndarray] = []
    for start in starts:
        found.append(known.gen.permutation(known.space.neighbours(start)))
        if sum(map(len, found)) > 4 * n:
            break
    return known.fresh(np.concatenate(found), n)


def propose_recombination(known: Known, n: int) -> np.ndarray:
    """Single mutants of the parent first; then products of the residues that were best at each site (Section 4)."""
    space = known.space
    single = (known.codes != space.wild_type).sum(axis=1) <= 1
    if single.sum() < min(n, len(space.neighbours(space.wild_type))):
        return known.fresh(known.gen.permutation(space.neighbours(space.wild_type)), n)
    ranked = []
    for site in range(space.k):
        score = {int(space.wild_type[site]): -np.inf}
        for row, value in zip(known.codes, known.fitness, strict=True):
            score[int(row[site])] = max(score.get(int(row[site]), -np.inf), float(value))
        ranked.append(sorted(score, key=lambda a, score=score: -score[a]))
    wide = max(2, int(np.ceil((4 * n) ** (1 / space.k))))
    picks = [known.gen.choice(residues[:wide], size=8 * n) for residues in ranked]
    return known.fresh(np.stack(picks, axis=1), n)


def propose_best(known: Known, n: int) -> np.ndarray:
    """The best predictions of the space; if it cannot be listed, of neighbours of the best and a pool (Section 4)."""
    known.surrogate.fit(known.codes, known.fitness)
    if known.space.enumerable:
        return known.fresh(known.surrogate.best(n + len(known.tried)), n)
    best = known.codes[np.argsort(-known.fitness, kind="stable")[:20]]
    pool = [known.space.neighbours(row) for row in best] + [variant_pool(known.space, 5000, known.gen)]
    pool = np.unique(np.concatenate(pool), axis=0)
    return known.fresh(pool[np.argsort(-known.surrogate.predict(pool), kind="stable")], n)


def propose_clusters(known: Known, n: int) -> np.ndarray:
    """CLADE: clusters of the encoded space, drawn by their measured fitness, split once more (Section 4)."""
    sampler = known.memory.get("sampler")
    if not isinstance(sampler, ClusterSampler):
        sampler = ClusterSampler(known.space, known.graph, seed=int(known.gen.integers(2**31)))
        known.memory["sampler"] = sampler
    fitness = known.fitness if len(known.fitness) else None
    return known.fresh(sampler.propose(2 * n, known.gen, known.tried, _with_failures(known, fitness)), n)


def _with_failures(known: Known, fitness: np.ndarray | None) -> np.ndarray | None:
    if fitness is None:
        return None
    return np.concatenate([fitness, np.full(len(known.failed), float(fitness.mean()))])


def zero_shot_scores(known: Known, codes: np.ndarray) -> np.ndarray:
    """−Σ_j d(parent_j, a_j), near to the parent is likelier to work; or a score that was given (ftMLDE, Section 4)."""
    if known.zero_shot is not None:
        return np.asarray(known.zero_shot(codes), dtype=float)
    distance = known.graph.distances[known.space.wild_type.astype(np.int64), np.asarray(codes, dtype=np.int64)]
    return -distance.sum(axis=1)


def propose_filtered(known: Known, n: int) -> np.ndarray:
    """ftMLDE: a random plate out of the best eighth of the space by `zero_shot_scores` (Section 4)."""
    pool = random_variants(known, 16 * n)
    pool = pool[~rows_in(pool, known.tried)]
    kept = pool[np.argsort(-zero_shot_scores(known, pool), kind="stable")[: max(n, len(pool) // 8)]]
    return known.fresh(known.gen.permutation(kept), n)


def propose_upper_bound(known: Known, n: int) -> np.ndarray:
    """GP-UCB: mean + 2 standard deviations of a Gaussian process on one-hot residues (beyond Section 4)."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    features = known.surrogate.features
    kernel = ConstantKernel(1.0) * RBF(2.0, (0.5, 20.0)) + WhiteKernel(0.1, (1e-4, 1.0))
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a length at the end of its range is an answer too
        process.fit(features(known.codes), known.fitness)
    pool = np.concatenate([random_variants(known, 4000), *(known.space.neighbours(row) for row in _best(known, 10))])
    pool = np.unique(pool, axis=0)
    pool = pool[~rows_in(pool, known.tried)]
    mean, spread = process.predict(features(pool), return_std=True)[:2]
    return known.fresh(pool[np.argsort(-(mean + 2 * spread), kind="stable")], n)


def _best(known: Known, n: int) -> np.ndarray:
    return known.codes[np.argsort(-known.fitness, kind="stable")[:n]]
