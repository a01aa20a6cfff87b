"""The amino-acid knowledge graph: who is how near to whom, and which residues a walk may turn to (Section 3)."""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import cast

import numpy as np
from offprints.checks import message, require_choice, require_finite, require_range, require_shape

from knowrlm.properties import Substitution, grantham_distances, substitution
from knowrlm.scales import Scales, load_scales
from knowrlm.space import RESIDUES

METRICS = ("l1", "euclidean")


class AminoAcidGraph:
    """Distances d(a, b) between amino acids and the ranks R[b | a] that follow from them (Section 3).

    R[b | a] ∈ {1 … 19} is the rank of b among the other 19 by d(a, ·), nearest first; R[a | a] = 20. R is not
    symmetric. A walk at residue a turns to {b ≠ a : lo ≤ R[b | a] ≤ hi} for a window [lo, hi].

    Args:
        distances: (20, 20), rows and columns in the order of `RESIDUES`; symmetric, zero on the diagonal.
        name: what it was made from.

    Raises:
        TypeError: if `distances` is no array.
        ValueError: if it is not finite, not of that shape, not symmetric, negative, or not 0 on the diagonal.
    """

    def __init__(self, distances: np.ndarray, name: str = "custom") -> None:
        require_shape("distances", distances, (20, 20))
        require_finite("distances", distances)
        distances = np.asarray(distances, dtype=float)
        off = ~np.eye(20, dtype=bool)
        if not np.allclose(distances, distances.T) or np.diagonal(distances).any() or (distances[off] < 0).any():
            raise ValueError(message("distances", "symmetric, at least 0, and 0 on the diagonal", "others"))
        self.distances = distances
        self.name = name
        self.ranks = _ranks(distances)
        self.order = np.argsort(self.ranks, axis=1)[:, :19]

    @classmethod
    def default(cls) -> "AminoAcidGraph":
        """d(a, b) = Σ_s |x_{a,s} − x_{b,s}| over the 586 min–max scaled scales of AAontology (Section 3).

        The 190 distances ship with the package (facts, rounded to 0.001); `from_scales()` makes them again.
        """
        data = json.loads(files("knowrlm").joinpath("aakg.json").read_text(encoding="utf-8"))
        distances = np.zeros((20, 20))
        for row, values in enumerate(data["lower_triangle"], 1):
            distances[row, :row] = distances[:row, row] = values
        return cls(distances, "AAontology")

    @classmethod
    def from_scales(
        cls,
        categories: Sequence[str] | Mapping[str, float] | None = None,
        metric: str = "l1",
        scales: Scales | None = None,
    ) -> "AminoAcidGraph":
        """d(a, b) = Σ_s w_s |x_{a,s} − x_{b,s}|, or √(Σ_s w_s (x_{a,s} − x_{b,s})²) for "euclidean" (Section 3).

        Args:
            categories: categories of AAontology to keep, or their weights w; all with weight 1 by default.
            metric: "l1" (the paper's ranks) or "euclidean".
            scales: the scales; by default those in aaanalysis.

        Raises:
            FileNotFoundError: if the scales are not here.
            ValueError: if a category or the metric is unknown.
        """
        require_choice("metric", metric, METRICS)
        scales = scales if scales is not None else load_scales()
        weights = scales.weights(categories)
        distances = np.zeros((20, 20))
        for row, values in enumerate(scales.values):
            gap = np.abs(values - scales.values)
            distances[row] = gap @ weights if metric == "l1" else np.sqrt(gap**2 @ weights)
        return cls((distances + distances.T) / 2, f"AAontology, {metric}")

    @classmethod
    def from_matrix(cls, matrix: str) -> "AminoAcidGraph":
        """d(a, b) = max S − S_ab of a substitution matrix S that Biopython names: the higher the score, the nearer.

        An alternative to the scales of Section 3; `"BLOSUM62"`, `"PAM250"` and the like.

        Raises:
            ValueError: if Biopython has no such matrix, or it does not cover the 20 amino acids.
        """
        from Bio.Align import substitution_matrices

        require_choice("matrix", matrix, list(substitution_matrices.load()))
        table = cast(substitution_matrices.Array, substitution_matrices.load(matrix))
        if not set(RESIDUES) <= set(table.alphabet):
            raise ValueError(message("matrix", "over the 20 amino acids", f"{matrix} over {table.alphabet}"))
        scores = np.array([[float(table[a, b]) for b in RESIDUES] for a in RESIDUES])
        scores = (scores + scores.T) / 2
        distances = scores.max() - scores
        np.fill_diagonal(distances, 0.0)
        return cls(distances, matrix)

    @classmethod
    def grantham(cls) -> "AminoAcidGraph":
        """Grantham's distances, an alternative to the scales of Section 3."""
        return cls(grantham_distances(), "Grantham")

    def rank(self, new: str, given: str) -> int:
        """R[new | given]: 1 … 19, or 20 for the residue itself."""
        return int(self.ranks[_code("given", given), _code("new", new)])

    def neighbors(self, residue: str, window: tuple[int, int] = (0, 6)) -> list[str]:
        """The residues b ≠ a with lo ≤ R[b | a] ≤ hi, nearest first (Section 3).

        >>> AminoAcidGraph.default().neighbors("A", window=(0, 6))
        ['T', 'S', 'L', 'V', 'M', 'G']

        Raises:
            ValueError: if the residue is none of the twenty or lo > hi.
        """
        low, high = window
        require_range("window", low, low=0, high=high, integer=True, because="its upper end")
        place = _code("residue", residue)
        return [RESIDUES[b] for b in self.order[place] if low <= self.ranks[place, b] <= high]

    def candidates(self, residues: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
        """(n, 20) whether each b may follow each of (n,) residues in the windows [low, high]; never itself."""
        ranks = self.ranks[np.asarray(residues, dtype=np.int64)]
        return (ranks >= np.asarray(low)[:, None]) & (ranks <= np.asarray(high)[:, None]) & (ranks < 20)

    def explain(self, old: str, new: str) -> Substitution:
        """The step old → new: its rank on the graph, and what it changes."""
        return substitution(old, new, self.rank(new, old))

    def coordinates(self, dimensions: int = 19) -> np.ndarray:
        """(20, dimensions) principal coordinates: classical scaling of the distances, scaled to unit variance.

        Their Euclidean distances come as near to d (of Section 3) as `dimensions` allow; columns fall in variance.

        Raises:
            ValueError: unless `dimensions` is between 1 and 19.
        """
        require_range("dimensions", dimensions, low=1, high=19, integer=True)
        centred = np.eye(20) - 1 / 20
        values, vectors = np.linalg.eigh(-0.5 * centred @ self.distances**2 @ centred)
        values, vectors = values[::-1][:dimensions], vectors[:, ::-1][:, :dimensions]
        signs = np.sign(vectors[np.abs(vectors).argmax(axis=0), np.arange(vectors.shape[1])])
        points = vectors * signs * np.sqrt(np.maximum(values, 0.0))
        return points / points[:, 0].std()

    def __repr__(self) -> str:
        return f"AminoAcidGraph({self.name})"


def _ranks(distances: np.ndarray) -> np.ndarray:
    """(20, 20) int: row a holds R[· | a]; ties go in the order of `RESIDUES`."""
    away = distances + np.diag(np.full(20, np.inf))
    return np.argsort(np.argsort(away, axis=1, kind="stable"), axis=1, kind="stable") + 1


def _code(name: str, letter: str) -> int:
    require_choice(name, letter, list(RESIDUES))
    return RESIDUES.index(letter)
