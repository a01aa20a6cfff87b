"""Directed evolution by asking for plates and telling what was measured (Algorithm 1)."""

import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
import pandas as pd
from offprints.checks import message, require_choice, require_kind, require_range, require_shape
from offprints.device import pick_device
from offprints.seeding import isolated, rng, spawn
from torch import nn

from knowrlm.constraints import PlateConstraints
from knowrlm.encode import KINDS, FeatureMap
from knowrlm.filling import filling
from knowrlm.graph import AminoAcidGraph
from knowrlm.measurements import MeasurementWarning, average, checked_fitness, read_measurements, warn_of_scale
from knowrlm.plates import plate_frame
from knowrlm.plm import EsmEncoder, adapt, load_plm
from knowrlm.policy import KnowledgePolicy
from knowrlm.ppo import PPO, TrainingLog
from knowrlm.predictor import EnsemblePredictor
from knowrlm.report import EvolutionReport
from knowrlm.sampling import ClusterSampler, farthest_first, rows_in, variant_pool
from knowrlm.settings import WalkSettings
from knowrlm.space import VariantSpace
from knowrlm.surrogate import FEWEST, Surrogate
from knowrlm.walk import Library, Visit, Walks, path_words


class DirectedEvolution:
    """Rounds of plates: cluster sampling first, then knowledge-aware walks rewarded by the predictor (Algorithm 1).

    `ask` proposes a plate, `tell` takes what was measured, and so on; `recommend` gives the last plate, the best
    predictions of the whole space. Nothing that was measured is proposed again. The same seed and the same measurements
    give the same plates, also after `save` and `load`.

    Args:
        parent: the sequence that is mutated.
        sites: 1-based, as integers or as `"V39"`.
        batch: variants a plate.
        initial: measured variants before the first walk; one plate by default.
        allowed: residues per site; see `VariantSpace`.
        graph: the default graph if None.
        features: of the predictor; see `FeatureMap`.
        predictor: the default ensemble if None.
        walk: settings of the policy.
        constraints: of the plates.
        beta: weight of the ensemble's spread in the acquisition (0: the mean, as in the paper).
        diverse: choose farthest-first among the best 3 · batch candidates.
        random_state: seed.
        device: of the policy; an accelerator if there is one.

    Raises:
        TypeError: for a wrong kind; ValueError: for a wrong value.
    """

    def __init__(
        self,
        parent: str,
        sites: Sequence[int | str],
        *,
        batch: int = 96,
        initial: int | None = None,
        allowed: str | Mapping[int, str] | None = None,
        graph: AminoAcidGraph | None = None,
        features: str = "onehot",
        predictor: EnsemblePredictor | None = None,
        walk: WalkSettings | None = None,
        constraints: PlateConstraints | None = None,
        beta: float = 0.0,
        diverse: bool = False,
        random_state: int = 0,
        device: str | None = None,
    ) -> None:
        self.batch = require_range("batch", batch, low=1, integer=True)
        self.initial = require_range("initial", batch if initial is None else initial, low=1, integer=True)
        self.beta = require_range("beta", beta, low=0)
        self.random_state = require_range("random_state", random_state, low=0, integer=True)
        self.graph = graph if graph is not None else AminoAcidGraph.default()
        require_kind("graph", self.graph, AminoAcidGraph)
        self.walk = walk if walk is not None else WalkSettings()
        require_kind("walk", self.walk, WalkSettings)
        self.constraints = constraints if constraints is not None else PlateConstraints()
        require_kind("constraints", self.constraints, PlateConstraints)
        require_kind("features", features, str, hint="Join several by '+'.")
        self.diverse, self.device = diverse, pick_device(device)
        self.space = self.constraints.restrict(VariantSpace(parent, sites, allowed=allowed))
        for kind in features.split("+"):
            require_choice("features", kind, KINDS)
        self.features = features
        self.predictor = predictor if predictor is not None else EnsemblePredictor(random_state=random_state)
        require_kind("predictor", self.predictor, EnsemblePredictor)
        self.codes = np.empty((0, self.space.k), dtype=np.int8)
        self.fitness = np.empty(0)
        self.plate_of = np.empty(0, dtype=np.int64)
        self.repeats = np.empty(0, dtype=np.int64)
        self.excluded = np.empty((0, self.space.k), dtype=np.int8)
        self.round = 0
        self.policy: KnowledgePolicy | None = None
        self.log: TrainingLog | None = None
        self._pending: pd.DataFrame | None = None
        self._sampler: ClusterSampler | None = None
        self._encoder: nn.Module | None = None
        self._surrogate: Surrogate | None = None

    def ask(self, n: int | None = None) -> pd.DataFrame:
        """The next plate: columns variant, sequence, mutations, predicted, spread, why.

        Exactly n variants (`batch` by default), all new and different, unless fewer are left, or the constraint
        `residues_per_site` leaves fewer next to the best ones. Asking again before telling gives the same plate.

        Raises:
            ValueError: if nothing is left to propose.
        """
        n = self.batch if n is None else require_range("n", n, low=1, integer=True)
        if self._pending is None or len(self._pending) != n:
            self._pending = plate_frame(self.space, self.graph, *self.propose(n))
        return self._pending.copy()

    def tell(
        self, table: str | Path | pd.DataFrame, *, variant: str | None = None, fitness: str | None = None
    ) -> "DirectedEvolution":
        """Add measurements: a frame or a .csv, .tsv or .xlsx file with a column of variants and one of fitness.

        Warns of rows without fitness, of repeated variants that disagree (the mean is taken, every table
        counting once), and of a plate that looks as if it were on another scale than those before.

        Raises:
            ValueError: as `read_measurements`.
        """
        codes, values = read_measurements(table, self.space, variant=variant, fitness=fitness)
        return self.add(codes, values)

    def add(self, codes: np.ndarray, fitness: np.ndarray) -> "DirectedEvolution":
        """`tell` for (n, k) codes and (n,) fitness.

        Raises:
            TypeError: if they are no numbers.
            ValueError: if there are none, their numbers differ, or one is outside the space or not finite.
        """
        codes, fitness = self.space.checked("codes", codes), checked_fitness("fitness", fitness)
        require_shape("fitness", fitness, (len(codes),))
        if len(codes) == 0:
            raise ValueError(message("measurements", "at least one", "none"))
        codes, fitness, _ = average(codes, fitness)
        warn_of_scale(self.codes, self.fitness, codes, fitness)
        seen = rows_in(codes, self.codes)
        known = {row.tobytes(): place for place, row in enumerate(self.codes)}
        self.round += 1
        plates = [
            self.plate_of[known[row.tobytes()]] if old else self.round for row, old in zip(codes, seen, strict=True)
        ]
        joined = np.concatenate([self.codes, codes]), np.concatenate([self.fitness, fitness])
        merged, values, self.repeats = average(*joined, np.concatenate([self.repeats, np.ones(len(codes), np.int64)]))
        plate = {row.tobytes(): number for row, number in zip(codes, plates, strict=True)}
        plate |= {row.tobytes(): number for row, number in zip(self.codes, self.plate_of, strict=True)}
        self.codes, self.fitness = merged, values
        self.plate_of = np.array([plate[row.tobytes()] for row in merged], dtype=np.int64)
        self._pending = self._surrogate = None
        if self.walk.plm == "scales":
            self._encoder = None  # it is adapted to the library
        return self

    def exclude(self, codes: np.ndarray) -> "DirectedEvolution":
        """Never propose these (n, k) variants: they could not be made or measured."""
        self.excluded = np.unique(np.concatenate([self.excluded, self.space.checked("codes", codes)]), axis=0)
        self._pending = None
        return self

    def propose(self, n: int) -> tuple[np.ndarray, list[str], Surrogate | None]:
        """(m, k) codes of a plate, the reason for each, and the predictor where there is one."""
        seeds = spawn(self.random_state, self.round + 1)
        gen = rng(seeds[-1])
        if len(self.fitness) < max(min(self.initial, self.space.size), 1) or len(self.fitness) < FEWEST:
            codes = self._sample(n, gen)
            return codes, ["cluster sampling"] * len(codes), None
        surrogate = self.surrogate()
        if surrogate.constant:
            warnings.warn(
                "All measured variants have the same fitness: the plate is chosen for diversity, not by predictions.",
                MeasurementWarning,
                stacklevel=3,
            )
            pool = self._free(variant_pool(self.space, 5000, gen))
            codes = pool[farthest_first(pool, min(n, len(pool)), self.graph, self.codes)]
            return self._required(codes), ["diversity sampling"] * len(codes), None
        visited = self._walked(surrogate, seeds[-1])
        codes, reasons = self._selected(n, visited, surrogate, gen)
        return codes, reasons, surrogate

    def recommend(self, n: int | None = None) -> pd.DataFrame:
        """The last plate: the n best predictions of the whole space that were not measured (Algorithm 1, last step).

        For a space that cannot be listed: of the variants that walks visited, the neighbours of the best measured ones,
        and the pool of the first plate.

        Raises:
            ValueError: if nothing was measured or nothing is left.
        """
        n = self.batch if n is None else require_range("n", n, low=1, integer=True)
        return plate_frame(self.space, self.graph, *self.final(n))

    def final(self, n: int) -> tuple[np.ndarray, list[str], Surrogate]:
        """`recommend` as (m, k) codes, reasons and the predictor."""
        require_range("measured variants", len(self.fitness), low=1, integer=True, hint="Call ask and tell first.")
        surrogate = self.surrogate()
        if self.space.enumerable:
            wanted = 50 * n + len(self.fitness) + len(self.excluded)
            every = surrogate.best(self.space.size if self.constraints.narrow else wanted, self.beta)
        else:
            best = self.codes[np.argsort(-self.fitness, kind="stable")[:20]]
            parts = [self.space.neighbours(row) for row in best]
            parts.append(variant_pool(self.space, 5000, rng(self.random_state)))
            if self.log is not None:
                parts.append(np.array([np.frombuffer(key, dtype=np.int8) for key in self.log.visited]))
            every = np.unique(np.concatenate(parts), axis=0)
            every = every[np.argsort(-surrogate.acquire(every, self.beta), kind="stable")]
        free = self._free(every)
        codes = self._required(free[self.constraints.affordable(self.space, free, n)])
        return codes, ["best predictions of the whole space"] * len(codes), surrogate

    def surrogate(self) -> Surrogate:
        """The predictor, fitted on everything measured.

        Raises:
            ValueError: if nothing was measured.
        """
        require_range("measured variants", len(self.fitness), low=1, integer=True, hint="Call ask and tell first.")
        if self._surrogate is None:
            self._surrogate = self.surrogate_of().fit(self.codes, self.fitness)
        return self._surrogate

    def surrogate_of(self) -> Surrogate:
        """A predictor of these variants and features that is not fitted."""
        embed = self._embed if "plm" in self.features.split("+") else None
        return Surrogate(FeatureMap(self.space, self.features, graph=self.graph, embed=embed), self.predictor)

    def save(self, path: str | Path) -> Path:
        """Write the campaign: see `knowrlm.storage.save_campaign`."""
        from knowrlm.storage import save_campaign

        return save_campaign(self, path)

    @classmethod
    def load(cls, path: str | Path, *, plm: nn.Module | None = None, device: str | None = None) -> "DirectedEvolution":
        """Read what `save` wrote: see `knowrlm.storage.load_campaign`."""
        from knowrlm.storage import load_campaign

        return load_campaign(path, plm=plm, device=device)

    def report(self) -> EvolutionReport:
        """What was measured so far, plate by plate."""
        return EvolutionReport.of(self.fitness, self.plate_of, self.batch, self.log)

    def _sample(self, n: int, gen: np.random.Generator) -> np.ndarray:
        if self._sampler is None:
            self._sampler = ClusterSampler(self.space, self.graph, seed=self.random_state)
        wanted = n if self.constraints.max_mutations is None else len(self._sampler.pool)
        fitness = self.fitness if len(self.fitness) else None
        found = self._free(self._sampler.propose(wanted, gen, self.codes, fitness))
        found = found[self.constraints.affordable(self.space, found, n)]
        if len(found) < n:  # the clustered pool is used up, or too narrow for the constraints
            size = self.space.size if self.constraints.narrow and self.space.enumerable else 200_000
            more = self._free(variant_pool(self.space, size, gen))
            more = gen.permutation(more[~rows_in(more, found)])
            joined = np.concatenate([found, more])
            found = joined[self.constraints.affordable(self.space, joined, n)]
        return self._required(found)

    def _walked(self, surrogate: Surrogate, seed: int) -> dict[bytes, tuple[float, Visit]]:
        settings = self.walk
        seeing = self.space if settings.context is None else self.space.cropped(settings.context)
        encoder = self._encoder_for(seeing)
        if settings.finetune:  # the features of the predictor and a module of the user stay as they are
            encoder = deepcopy(encoder)
        with isolated(seed):  # the heads draw their weights from torch's global state
            self.policy = KnowledgePolicy(
                seeing, encoder, reference=settings.reference, temperature=settings.temperature,
                knowledge=settings.knowledge, finetune=settings.finetune, device=self.device,
            )  # fmt: skip
        library = Library(self.codes, self.fitness)
        walks = Walks(
            seeing, library, surrogate.predict, self.graph, rng(seed), n=settings.walks,
            max_steps=settings.max_steps, window=settings.window,
        )  # fmt: skip
        scale = float(self.fitness.std())
        trainer = PPO(self.policy, walks, settings.ppo, scale=scale if scale > 0 else 1.0, seed=seed)
        self.log = trainer.train(settings.steps, learn=settings.learn)
        return self.log.visited

    def _encoder_for(self, seeing: VariantSpace) -> nn.Module:
        """The encoder of this library: the offline one is made anew for each, any other is loaded once."""
        if self._encoder is None:
            settings = self.walk
            with isolated(self.random_state):  # reading a model may draw weights that its file then replaces
                self._encoder = load_plm(
                    settings.plm,
                    length=len(seeing.parent),
                    graph=self.graph,
                    seed=self.random_state,
                    device=self.device,
                )
            if settings.plm == "scales" and isinstance(self._encoder, EsmEncoder):
                sites = [site - 1 for site in seeing.sites]
                tokens = seeing.tokens(self.codes)
                adapt(self._encoder, tokens, sites=sites, steps=settings.adapt, seed=self.random_state)
        return self._encoder

    def _embed(self, codes: np.ndarray) -> np.ndarray:
        import torch

        seeing = self.space if self.walk.context is None else self.space.cropped(self.walk.context)
        encoder = self._encoder_for(seeing)
        tokens = torch.from_numpy(seeing.tokens(codes).astype(np.int64)).to(self.device)
        places = [site - 1 for site in seeing.sites]
        with torch.no_grad():
            parts = [encoder(part)[:, places].flatten(1) for part in tokens.split(512)]
        return torch.cat(parts).cpu().numpy()

    def _selected(
        self, n: int, visited: Mapping[bytes, tuple[float, Visit]], surrogate: Surrogate, gen: np.random.Generator
    ) -> tuple[np.ndarray, list[str]]:
        walked = self._free(np.array([np.frombuffer(key, dtype=np.int8) for key in visited]))
        walked = self._ranked(walked, surrogate, n)
        if len(walked) < n:  # the walks did not come far enough: fill up with the best predictions elsewhere
            wanted = 20 * n + len(self.codes) + len(self.excluded)
            pool = self._free(filling(surrogate, self.constraints, wanted, walked, gen))
            pool = pool[~rows_in(pool, walked)]
            if not self.constraints.narrow:
                pool = self._ranked(pool, surrogate, n - len(walked))
            elif len(pool):
                pool = pool[np.argsort(-surrogate.acquire(pool, self.beta), kind="stable")]
            joined = np.concatenate([walked, pool])
            walked = joined[self.constraints.affordable(self.space, joined, n)]
        reasons = []
        for row in self._required(walked):
            found = visited.get(row.tobytes())
            reasons.append("walk " + path_words(self.space, self.graph, found[1]) if found else "best prediction")
        return walked, reasons

    def _ranked(self, codes: np.ndarray, surrogate: Surrogate, n: int) -> np.ndarray:
        if not len(codes):
            return codes
        score = surrogate.acquire(codes, self.beta)
        codes = codes[np.lexsort((*codes.T, -score))]
        if self.diverse and len(codes) > n:
            codes = codes[: 3 * n]
            codes = codes[farthest_first(codes, min(n, len(codes)), self.graph)]
        return codes[self.constraints.affordable(self.space, codes, n)]

    def _free(self, codes: np.ndarray) -> np.ndarray:
        """Those that may be proposed: not measured yet, and admitted by the constraints."""
        if not len(codes):
            return np.empty((0, self.space.k), dtype=np.int8)
        taken = np.concatenate([self.codes, self.excluded])
        codes = codes[self.constraints.admits(self.space, codes)]
        return codes[~rows_in(codes, taken)]

    def _required(self, codes: np.ndarray) -> np.ndarray:
        if not len(codes):
            left = f"{len(self.codes)} of {self.space.size} are measured"
            raise ValueError(message("variants to propose", "at least one", f"none ({left})", "Relax the constraints."))
        return codes
