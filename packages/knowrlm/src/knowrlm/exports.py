"""The graph of Section 3 as networkx and GraphML, and weights of its categories that are learned from measurements."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from offprints.checks import message, require_range, require_shape
from scipy.optimize import nnls

from knowrlm.graph import AminoAcidGraph
from knowrlm.scales import Scales, load_scales
from knowrlm.space import RESIDUES

if TYPE_CHECKING:
    import networkx as nx  # in the functions: it is slow to import


def rank_graph(graph: AminoAcidGraph, nearest: int = 19) -> "nx.DiGraph":
    """Edges a → b with `rank` R[b | a] and `distance` d(a, b), for the `nearest` residues of each a (Section 3).

    Raises:
        ValueError: unless `nearest` is between 1 and 19.
    """
    import networkx as nx

    require_range("nearest", nearest, low=1, high=19, integer=True)
    made = nx.DiGraph(name=graph.name)
    made.add_nodes_from(RESIDUES, kind="amino_acid")
    for a, row in enumerate(graph.order):
        for place, b in enumerate(row[:nearest], 1):
            made.add_edge(RESIDUES[a], RESIDUES[b], rank=place, distance=float(graph.distances[a, b]))
    return made


def distance_graph(graph: AminoAcidGraph) -> "nx.Graph":
    """The complete graph over the 20 amino acids with `distance` d(a, b) on its 190 edges (Section 3)."""
    import networkx as nx

    made = nx.Graph(name=graph.name)
    made.add_nodes_from(RESIDUES, kind="amino_acid")
    for a in range(20):
        for b in range(a):
            made.add_edge(RESIDUES[b], RESIDUES[a], distance=float(graph.distances[a, b]))
    return made


def ontology_graph(scales: Scales | None = None) -> "nx.DiGraph":
    """The typed graph: amino acid −has_property→ scale −in→ subcategory −in→ category (Section 3).

    Nodes carry `kind`; an edge has_property carries the scaled `value`.

    Raises:
        FileNotFoundError: if the scales are not here.
    """
    import networkx as nx

    scales = scales if scales is not None else load_scales()
    made: nx.DiGraph = nx.DiGraph(name="AAontology")
    for letter in RESIDUES:
        made.add_node(str(letter), kind="amino_acid")
    for column, row in enumerate(scales.table.itertuples(index=False)):
        category, subcategory = f"category:{row.category}", f"subcategory:{row.category}/{row.subcategory}"
        made.add_node(category, kind="category")
        made.add_node(subcategory, kind="subcategory")
        made.add_node(row.scale_id, kind="scale", title=str(row.scale_name))
        made.add_edge(row.scale_id, subcategory, relation="in")
        made.add_edge(subcategory, category, relation="in")
        for a, letter in enumerate(RESIDUES):
            made.add_edge(letter, row.scale_id, relation="has_property", value=float(scales.values[a, column]))
    return made


def write_graphml(graph: AminoAcidGraph, path: str | Path, nearest: int = 19) -> Path:
    """Write `rank_graph` (Section 3) as GraphML, which Cytoscape and Gephi read."""
    import networkx as nx

    path = Path(path)
    nx.write_graphml(rank_graph(graph, nearest), path)
    return path


def learn_weights(codes: np.ndarray, fitness: np.ndarray, scales: Scales | None = None) -> dict[str, float]:
    """Weights w ≥ 0 of the categories such that Σ_c w_c d_c(a, b) predicts |Δ fitness| of single substitutions.

    Non-negative least squares over all pairs of measured variants that differ in one residue, d_c the mean L1 distance
    within category c; for `AminoAcidGraph.from_scales(weights)`, beyond the one graph of Section 3.

    Args:
        codes: (n, k) measured variants.
        fitness: (n,) their fitness.
        scales: by default those in aaanalysis.

    Raises:
        ValueError: if fewer pairs than categories differ in one residue, or none of them in fitness.
    """
    require_shape("codes", codes, ("n", "k"))
    require_shape("fitness", fitness, (len(codes),))
    scales = scales if scales is not None else load_scales()
    pairs = _single_steps(codes)
    if len(pairs) < len(scales.categories):
        hint = "Measure more variants that differ in one residue."
        raise ValueError(message("codes", f"of {len(scales.categories)} pairs one residue apart", len(pairs), hint))
    first, second, site = pairs.T
    old, new = codes[first, site], codes[second, site]
    design = []
    for name in scales.categories:
        values = scales.values[:, (scales.table["category"] == name).to_numpy()]
        design.append(np.abs(values[old] - values[new]).mean(axis=1))
    gap = np.abs(fitness[first] - fitness[second])
    weights, _ = nnls(np.stack(design, axis=1), gap)
    if not weights.any():
        raise ValueError(message("fitness", "different between variants one residue apart", "the same"))
    return dict(zip(scales.categories, (weights / weights.max()).tolist(), strict=True))


def _single_steps(codes: np.ndarray) -> np.ndarray:
    """(pairs, 3): two rows of `codes` that differ at one site, and that site."""
    found = []
    for site in range(codes.shape[1]):
        rest = np.delete(codes, site, axis=1)
        _, group = np.unique(rest, axis=0, return_inverse=True)
        order = np.argsort(group.ravel(), kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(group.ravel()[order])) + 1):
            left, right = np.triu_indices(len(rows), 1)
            found += [(rows[i], rows[j], site) for i, j in zip(left, right, strict=True)]
    kept = [(i, j, site) for i, j, site in found if codes[i, site] != codes[j, site]]
    return np.array(kept, dtype=np.int64).reshape(-1, 3)
