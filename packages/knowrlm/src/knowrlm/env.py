"""The environment of Section 3 for any reinforcement-learning library: a gymnasium.Env."""

from collections.abc import Mapping

import gymnasium
import numpy as np
from offprints.seeding import rng

from knowrlm.graph import AminoAcidGraph
from knowrlm.space import RESIDUES, VariantSpace
from knowrlm.walk import Library, Reward, Walks, path_words

INVALID = -1.0


class MutationEnv(gymnasium.Env):
    """One walk: observe the whole sequence, act with (site, residue), get the predicted fitness (Section 3).

    Observations are the L residue codes (MultiDiscrete), actions MultiDiscrete([k, 20]). A substitution that is not
    allowed at its site, or changes nothing, leaves the variant as it is and gives −1. An episode ends when the reward
    reaches the measured fitness of its start, and is cut off after `max_steps`. `info` holds `variant`, `window`,
    `candidates` (k, 20) bool (the residues inside the window at every site), `valid`, and at the end `path` in words.

    Args:
        space: the variants.
        library: the measured variants that episodes start from.
        reward: predicted fitness of (n, k) variants.
        graph: the default graph if None.
        max_steps: of an episode.
        window: "dynamic" or fixed ends.

    Raises:
        ValueError: as `Walks`.
    """

    def __init__(
        self,
        space: VariantSpace,
        library: Library,
        reward: Reward,
        graph: AminoAcidGraph | None = None,
        *,
        max_steps: int = 20,
        window: str | tuple[int, int] = "dynamic",
    ) -> None:
        self.graph = graph if graph is not None else AminoAcidGraph.default()
        self.space, self.max_steps = space, max_steps
        self._reward = reward
        self.walk = Walks(space, library, reward, self.graph, rng(0), n=1, max_steps=max_steps, window=window)
        self.observation_space = gymnasium.spaces.MultiDiscrete(np.full(len(space.parent), 20))
        self.action_space = gymnasium.spaces.MultiDiscrete(np.array([space.k, 20]))

    def reset(self, *, seed: int | None = None, options: Mapping[str, object] | None = None) -> tuple[np.ndarray, dict]:
        """Start at a random member of the library, or at `options["variant"]` with fitness `options["fitness"]`."""
        super().reset(seed=seed)
        self.walk.gen = self.np_random
        self.walk.reset(np.ones(1, dtype=bool))
        if options and "variant" in options:
            self.walk.codes[:] = self.space.encode([str(options["variant"])])
            self.walk.goal[:] = float(str(options.get("fitness", "inf")))
            self.walk.visits[0].start = tuple(int(a) for a in self.walk.codes[0])
        return self._observation(), self._info(valid=True)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        """Substitute the residue of code action[1] at the site of index action[0]."""
        site, residue = int(action[0]), int(action[1])
        walk = self.walk
        if not self.space.mask[site, residue] or walk.codes[0, site] == residue:
            walk.taken += 1
            return self._observation(), INVALID, False, bool(walk.taken[0] >= self.max_steps), self._info(valid=False)
        visit = walk.visits[0]
        outcome = walk.step(np.array([site]), np.array([residue]))
        info = self._info(valid=True)
        info["variant"] = self.space.decode(outcome.codes)[0]
        ended = bool(outcome.terminated[0] or outcome.truncated[0])
        if ended:
            info["path"] = path_words(self.space, self.graph, visit)
        observation = self.space.tokens(outcome.codes)[0].astype(np.int64)
        return observation, float(outcome.reward[0]), bool(outcome.terminated[0]), bool(outcome.truncated[0]), info

    def _observation(self) -> np.ndarray:
        return self.space.tokens(self.walk.codes)[0].astype(np.int64)

    def _info(self, valid: bool) -> dict:
        walk = self.walk
        rows = np.repeat(walk.codes, self.space.k, axis=0)
        here = rows[np.arange(self.space.k), np.arange(self.space.k)]
        low, high = (np.full(self.space.k, end[0]) for end in (walk.window.low, walk.window.high))
        return {
            "variant": self.space.decode(walk.codes)[0],
            "window": (int(walk.window.low[0]), int(walk.window.high[0])),
            "candidates": self.graph.candidates(here, low, high) & self.space.mask,
            "valid": valid,
            "path": path_words(self.space, self.graph, walk.visits[0]),
        }

    @staticmethod
    def action(space: VariantSpace, site: int, residue: str) -> np.ndarray:
        """The action that puts a residue at a 1-based site."""
        return np.array([space.sites.index(site), RESIDUES.index(residue)])
