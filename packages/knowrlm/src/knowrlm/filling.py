"""What fills a plate up when the walks visited too little (Algorithm 1)."""

import numpy as np

from knowrlm.constraints import PlateConstraints
from knowrlm.sampling import variant_pool
from knowrlm.surrogate import Surrogate

POOL = 5000


def filling(
    surrogate: Surrogate, constraints: PlateConstraints, n: int, chosen: np.ndarray, gen: np.random.Generator
) -> np.ndarray:
    """(m, k) candidates beside the walked ones: the n best predictions of a space, all of it under narrow constraints.

    For a space that cannot be listed, mutants of the parent; with a budget of residues also new mixtures of those that
    the plate holds already, which cost no further primer.

    Args:
        surrogate: predicts.
        constraints: of the plate.
        n: how many predictions to list.
        chosen: (c, k) variants that are on the plate.
        gen: draws the mutants and mixtures.
    """
    space = surrogate.space
    if space.enumerable:
        return space.codes(np.arange(space.size)) if constraints.narrow else surrogate.best(n)
    pool = variant_pool(space, POOL, gen)
    if constraints.residues_per_site is None:
        return pool
    used = np.concatenate([space.wild_type[None], chosen])
    mixed = np.stack([gen.choice(column, size=POOL) for column in used.T], axis=1)
    most = space.k if constraints.max_mutations is None else min(constraints.max_mutations, space.k)
    kept = gen.random(mixed.shape).argsort(axis=1) < most
    mixed = np.where(kept, mixed, space.wild_type).astype(np.int8)
    return np.unique(np.concatenate([pool, mixed]), axis=0)
