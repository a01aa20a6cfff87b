"""Walks on the graph: from a member of the library, one substitution after another, inside the window (Section 3)."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from offprints.checks import message, require_range

from knowrlm.graph import AminoAcidGraph
from knowrlm.space import RESIDUES, VariantSpace
from knowrlm.window import SlidingWindow

Reward = Callable[[np.ndarray], np.ndarray]
"""(n, k) variants -> (n,) predicted fitness."""


@dataclass
class Library:
    """The measured variants that walks start from (Algorithm 1): (n, k) codes and (n,) fitness."""

    codes: np.ndarray
    fitness: np.ndarray

    def __post_init__(self) -> None:
        if not len(self.codes) or len(self.codes) != len(self.fitness):
            raise ValueError(message("library", "of as many variants as fitness values, at least one", len(self.codes)))


@dataclass
class Outcome:
    """What one step of n walks gave (Section 3).

    Attributes:
        reward: (n,) predicted fitness of the new variants.
        terminated: (n,) whether it reached the start's measured fitness.
        truncated: (n,) whether the walk has made its last step.
        codes: (n, k) the new variants, before walks that ended start again.
    """

    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    codes: np.ndarray


@dataclass
class Visit:
    """A variant that a walk came to: its start, and the (site index, old, new) steps from there."""

    start: tuple[int, ...]
    steps: list[tuple[int, int, int]] = field(default_factory=list)


class Walks:
    """n walks side by side (Section 3): the state of the environment, without gymnasium.

    A walk starts at a random member of the library, substitutes one residue a step, gets the predicted fitness of the
    new variant, and ends when that is at least the measured fitness of its start, or after `max_steps`; then it starts
    anew. The window of each slides by its rewards.

    Args:
        space: the variants.
        library: where walks start.
        reward: predicted fitness of (n, k) variants.
        graph: ranks for the window.
        n: how many walks.
        max_steps: of one walk.
        window: "dynamic" or fixed ends; see `SlidingWindow`.
        gen: draws the starts.

    Raises:
        ValueError: if a number is out of range, or no site allows a second residue.
    """

    def __init__(
        self,
        space: VariantSpace,
        library: Library,
        reward: Reward,
        graph: AminoAcidGraph,
        gen: np.random.Generator,
        *,
        n: int = 10,
        max_steps: int = 20,
        window: str | tuple[int, int] = "dynamic",
    ) -> None:
        require_range("n", n, low=1, integer=True)
        require_range("max_steps", max_steps, low=1, integer=True)
        self.space, self.library, self.reward, self.graph, self.gen = space, library, reward, graph, gen
        self.max_steps = max_steps
        self.window = SlidingWindow(n, window)
        self.movable = space.mask.sum(axis=1) > 1
        if not self.movable.any():
            raise ValueError(message("space", "of a site with two residues allowed", "none"))
        self.codes = np.empty((n, space.k), dtype=np.int8)
        self.goal = np.empty(n)
        self.taken = np.zeros(n, dtype=np.int64)
        self.visits: list[Visit] = [Visit(())] * n
        self.reset(np.ones(n, dtype=bool))

    def reset(self, which: np.ndarray) -> None:
        """Start the walks of an (n,) mask anew."""
        rows = self.gen.integers(len(self.library.codes), size=int(which.sum()))
        self.codes[which] = self.library.codes[rows]
        self.goal[which] = self.library.fitness[rows]
        self.taken[which] = 0
        self.window.reset(which)
        for walk in np.flatnonzero(which):
            self.visits[walk] = Visit(tuple(int(a) for a in self.codes[walk]))

    def allowed(self, site: np.ndarray) -> np.ndarray:
        """(n, 20) residues that each walk may turn to at its site: the window, within the residues allowed there.

        Where the window holds none of them, the one nearest to it by rank.
        """
        here = self.codes[np.arange(len(site)), site]
        inside = self.space.mask[site]
        found = self.graph.candidates(here, self.window.low, self.window.high) & inside
        empty = ~found.any(axis=1)
        if empty.any():
            ranks = self.graph.ranks[here[empty].astype(np.int64)].astype(float)
            low, high = self.window.low[empty, None], self.window.high[empty, None]
            away = np.maximum(np.maximum(low - ranks, ranks - high), 0)
            away[~inside[empty] | (ranks == 20)] = np.inf
            found[empty] = np.arange(20) == away.argmin(axis=1)[:, None]
        return found

    def step(self, site: np.ndarray, residue: np.ndarray) -> Outcome:
        """Substitute (n,) residues at (n,) sites; walks that end start again."""
        every = np.arange(len(site))
        old = self.codes[every, site].copy()
        self.codes[every, site] = residue
        reward = np.asarray(self.reward(self.codes), dtype=float)
        self.window.update(reward)
        self.taken += 1
        for walk, visit in enumerate(self.visits):
            visit.steps.append((int(site[walk]), int(old[walk]), int(residue[walk])))
        terminated = reward >= self.goal
        truncated = ~terminated & (self.taken >= self.max_steps)
        outcome = Outcome(reward, terminated, truncated, self.codes.copy())
        if (ended := terminated | truncated).any():
            self.reset(ended)
        return outcome


def path_words(space: VariantSpace, graph: AminoAcidGraph, visit: Visit) -> str:
    """A path on the graph in words (Section 3): its start, and every step with its rank and what it changes."""
    start = "".join(RESIDUES[a] for a in visit.start)
    steps = [f"{space.sites[j]} {graph.explain(RESIDUES[old], RESIDUES[new])}" for j, old, new in visit.steps]
    return f"from {start:.60}: " + "; ".join(steps)
