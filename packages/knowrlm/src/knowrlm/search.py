"""Evolutionary and tree searches on the predictor: genetic algorithm, AdaLead, Monte Carlo tree search (Section 4)."""

from dataclasses import dataclass, field

import numpy as np

from knowrlm.sampling import rows_in
from knowrlm.space import VariantSpace
from knowrlm.strategies import Known


def mutate(space: VariantSpace, codes: np.ndarray, rate: float, gen: np.random.Generator) -> np.ndarray:
    """Each residue replaced by a random allowed one with probability `rate` (for the searches of Section 4)."""
    change = gen.random(codes.shape) < rate
    return np.where(change, space.sample(len(codes), gen), codes).astype(np.int8)


def cross(codes: np.ndarray, gen: np.random.Generator, rate: float = 0.5) -> np.ndarray:
    """Uniform crossover of every row with a random other one (for the searches of Section 4)."""
    partner = codes[gen.permutation(len(codes))]
    return np.where(gen.random(codes.shape) < rate, partner, codes).astype(np.int8)


def propose_genetic(known: Known, n: int) -> np.ndarray:
    """A genetic algorithm on measurements: tournaments of 2, uniform crossover, one mutation a child (Section 4)."""
    size = 4 * n
    pairs = known.gen.integers(len(known.codes), size=(size, 2))
    winners = pairs[np.arange(size), known.fitness[pairs].argmax(axis=1)]
    children = mutate(known.space, cross(known.codes[winners], known.gen), 1 / known.space.k, known.gen)
    return known.fresh(children, n)


def propose_adalead(known: Known, n: int, *, kappa: float = 0.1, rho: float = 0.2) -> np.ndarray:
    """AdaLead (Sinai et al. 2020): greedy evolution on the model, from all parents near the best (Section 4).

    Parents are the measured variants within κ of the best. Children recombine with rate ρ and mutate once on average; a
    child is rolled out by further mutations as long as the prediction is at least its root's. About `known.queries`
    predictions; the n best of what was seen.
    """
    known.surrogate.fit(known.codes, known.fitness)
    space, gen, surrogate = known.space, known.gen, known.surrogate
    best = known.fitness.max()
    parents = known.codes[known.fitness >= best * (1 - np.sign(best) * kappa)]
    seen: list[np.ndarray] = []
    budget = known.queries
    while budget > 0:
        roots = parents[gen.integers(len(parents), size=n)]
        roots = cross(roots, gen, rho)
        floor = surrogate.predict(roots)
        children = mutate(space, roots, 1 / space.k, gen)
        alive = np.ones(len(children), dtype=bool)
        while alive.any() and budget > 0:
            value = surrogate.predict(children)
            budget -= int(alive.sum())
            seen.append(children[alive].copy())
            alive &= value >= floor
            children = np.where(alive[:, None], mutate(space, children, 1 / space.k, gen), children)
    pool = np.unique(np.concatenate(seen), axis=0)
    pool = pool[~rows_in(pool, known.tried)]
    return known.fresh(pool[np.argsort(-surrogate.predict(pool), kind="stable")], n)


@dataclass
class _Node:
    codes: np.ndarray
    visits: int = 0
    total: float = 0.0
    children: dict[int, "_Node"] = field(default_factory=dict)


def propose_tree(known: Known, n: int, *, depth: int = 4, explore: float = 1.0) -> np.ndarray:
    """A small EvoPlay (Wang et al. 2023): Monte Carlo tree search over substitutions, valued by the model (Section 4).

    From the best measured variants, UCB1 descends one substitution a level; a new leaf is valued by its prediction,
    standardised over the library. No network is trained. The n best of `known.queries` predictions.
    """
    known.surrogate.fit(known.codes, known.fitness)
    space, gen = known.space, known.gen
    roots = [_Node(row) for row in known.codes[np.argsort(-known.fitness, kind="stable")[:10]]]
    centre, scale = known.fitness.mean(), float(known.fitness.std()) or 1.0
    seen: list[np.ndarray] = []
    steps = 0
    while steps < known.queries:
        leaves: list[list[_Node]] = []
        for root in roots:
            leaves.append(_descend(root, space, gen, depth, explore))
        codes = np.stack([path[-1].codes for path in leaves])
        values = (known.surrogate.predict(codes) - centre) / scale
        for path, value in zip(leaves, values, strict=True):
            for node in path:
                node.visits += 1
                node.total += float(value)
        seen.append(codes)
        steps += len(roots)
    pool = np.unique(np.concatenate(seen), axis=0)
    return known.fresh(pool[np.argsort(-known.surrogate.predict(pool), kind="stable")], n)


def _descend(root: _Node, space: VariantSpace, gen: np.random.Generator, depth: int, explore: float) -> list[_Node]:
    path = [root]
    for _ in range(depth):
        node = path[-1]
        if len(node.children) < 4 + node.visits**0.5:  # progressive widening
            site = int(gen.integers(space.k))
            child = node.codes.copy()
            choice = np.flatnonzero(space.mask[site])
            child[site] = choice[gen.integers(len(choice))]
            key = site * 20 + int(child[site])
            if key not in node.children:
                node.children[key] = _Node(child)
                return [*path, node.children[key]]
        scores = {
            key: child.total / child.visits + explore * np.sqrt(np.log(node.visits + 1) / child.visits)
            for key, child in node.children.items()
        }
        path.append(node.children[max(scores, key=lambda key: scores[key])])
    return path
