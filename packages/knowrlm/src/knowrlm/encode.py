"""Variants as numbers for the fitness predictor: one-hot, graph coordinates, language-model states (Section 3)."""

from collections.abc import Callable
from functools import reduce

import numpy as np
from offprints.checks import message, require_choice

from knowrlm.graph import AminoAcidGraph
from knowrlm.space import VariantSpace

KINDS = ("onehot", "graph", "plm")
Embed = Callable[[np.ndarray], np.ndarray]
"""(n, k) variants -> (n, d) states of a language model at the sites."""


class FeatureMap:
    """Features of variants: any of "onehot", "graph" and "plm", joined by "+" (Section 3, the reward model).

    "onehot": 20 a site; "graph": principal coordinates of the residue on the graph; "plm": states at the sites. The
    first two are tables indexed by site and residue, `table` (k, 20, d), so that linear models predict by look-up.

    Args:
        space: the variants.
        kinds: such as "onehot" or "onehot+graph".
        graph: for "graph".
        embed: for "plm".
        dimensions: coordinates per site for "graph".

    Raises:
        ValueError: if a kind is unknown, or "plm" comes without `embed`.
    """

    def __init__(
        self,
        space: VariantSpace,
        kinds: str = "onehot",
        *,
        graph: AminoAcidGraph | None = None,
        embed: Embed | None = None,
        dimensions: int = 8,
    ) -> None:
        self.space = space
        self.kinds = kinds.split("+")
        for kind in self.kinds:
            require_choice("features", kind, KINDS)
        if "plm" in self.kinds and embed is None:
            raise ValueError(message("embed", "given with the features 'plm'", "None"))
        self._embed = embed if "plm" in self.kinds else None
        parts = []
        if "onehot" in self.kinds:
            parts.append(np.eye(20, dtype=np.float32))
        if "graph" in self.kinds:
            graph = graph if graph is not None else AminoAcidGraph.default()
            parts.append(graph.coordinates(dimensions).astype(np.float32))
        self.table = np.repeat(np.concatenate(parts, axis=1)[None], space.k, axis=0) if parts else None

    @property
    def additive(self) -> bool:
        """Whether all features are looked up by site and residue."""
        return self._embed is None

    def __call__(self, codes: np.ndarray) -> np.ndarray:
        """(n, d) float32 features of (n, k) variants; those of the tables first, site by site."""
        parts = []
        if self.table is not None:
            looked = self.table[np.arange(self.space.k), np.asarray(codes, dtype=np.int64)]
            parts.append(looked.reshape(len(codes), -1))
        if self._embed is not None:
            parts.append(np.asarray(self._embed(codes), dtype=np.float32).reshape(len(codes), -1))
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def additive_prediction(
    space: VariantSpace, weights: np.ndarray, intercept: float = 0.0, out: np.ndarray | None = None
) -> np.ndarray:
    """f(a_1 … a_k) = w₀ + Σ_j w_j[a_j] for every variant of an enumerable space, in the order of `space.index`.

    One addition a variant (the sums over the first and the second half of the sites are tables) in place of a product
    with a (size, 20 k) matrix: the whole-space prediction of a linear reward model (Section 3).

    Args:
        space: the variants.
        weights: (k, 20) w_j[a].
        intercept: w₀.
        out: (size,) array to write to.

    Raises:
        ValueError: if the space is not enumerable or a shape differs.
    """
    space.require_enumerable()
    if np.shape(weights) != (space.k, 20):
        raise ValueError(message("weights", f"of shape ({space.k}, 20)", np.shape(weights)))
    if out is not None and out.shape != (space.size,):
        raise ValueError(message("out", f"of shape ({space.size},)", out.shape))
    rows = [row[allowed] for row, allowed in zip(weights, space.mask, strict=True)]
    middle = space.k // 2
    first, second = (reduce(_sums, part, np.zeros(1, dtype=weights.dtype)) for part in (rows[:middle], rows[middle:]))
    target = out.reshape(len(first), len(second)) if out is not None else None
    total = np.add.outer(first + first.dtype.type(intercept), second, out=target)
    return total.ravel() if out is None else out


def _sums(table: np.ndarray, row: np.ndarray) -> np.ndarray:
    return np.add.outer(table, row).ravel()
