"""Methods compared at equal numbers of measurements, over seeds (Section 4, Tables 1 and 3)."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from offprints.checks import Problems, message, require_choice, require_kind, require_range
from offprints.progress import track
from offprints.seeding import rng, spawn

from knowrlm.evolve import DirectedEvolution
from knowrlm.graph import AminoAcidGraph
from knowrlm.landscape import Landscape, Oracle
from knowrlm.measurements import MeasurementWarning
from knowrlm.metrics import Scores, ndcg, scores
from knowrlm.predictor import EnsemblePredictor
from knowrlm.search import propose_adalead, propose_genetic, propose_tree
from knowrlm.settings import WalkSettings
from knowrlm.strategies import (
    Known,
    Strategy,
    propose_best,
    propose_clusters,
    propose_filtered,
    propose_random,
    propose_recombination,
    propose_single_mutants,
    propose_upper_bound,
)
from knowrlm.surrogate import Surrogate

STRATEGIES: dict[str, tuple[Strategy | None, Strategy, Strategy]] = {  # first plate (None: the shared one), next, last
    "random": (propose_random, propose_random, propose_random),
    "single_mutants": (propose_single_mutants, propose_single_mutants, propose_single_mutants),
    "recombination": (propose_recombination, propose_recombination, propose_recombination),
    "mlde": (propose_random, propose_random, propose_best),
    "ftmlde": (propose_filtered, propose_filtered, propose_best),
    "clade": (None, propose_clusters, propose_best),
    "active": (None, propose_best, propose_best),
    "genetic": (None, propose_genetic, propose_genetic),
    "adalead": (None, propose_adalead, propose_adalead),
    "mcts": (None, propose_tree, propose_tree),
    "gp_ucb": (None, propose_upper_bound, propose_upper_bound),
}
WALKS: dict[str, Callable[[WalkSettings], WalkSettings]] = {  # what differs from the method itself
    "knowrlm": lambda walk: walk,
    "no_graph": lambda walk: replace(walk, knowledge=False, window=(1, 19)),
    "no_window": lambda walk: replace(walk, window=(0, 20)),
    "near_window": lambda walk: replace(walk, window=(0, 6)),
    "no_plm": lambda walk: replace(walk, plm="none"),
    "no_rl": lambda walk: replace(walk, learn=False),
    "uniform": lambda walk: replace(walk, knowledge=False, window=(1, 19), learn=False),
}
METHODS = (*WALKS, *STRATEGIES)


@dataclass(frozen=True)
class Campaign:
    """One method on one landscape with one seed (Section 4).

    Attributes:
        scores: raw, in units of the landscape.
        measured: (plates,) variants measured after each plate.
        best: (plates,) best fitness so far.
        top: (plates,) mean of the best plate so far.
        reward: mean reward at every step of the last walk; empty without walks.
        window: its windows.
    """

    scores: Scores
    measured: np.ndarray
    best: np.ndarray
    top: np.ndarray
    reward: np.ndarray
    window: np.ndarray


@dataclass(frozen=True)
class Evaluation:
    """Campaigns of several methods and seeds (Section 4).

    Attributes:
        table: one row a campaign: method, seed, labels, maximum, top, final, ndcg, and the first three over the
            landscape's maximum as `*_rel`.
        curves: one row a campaign and plate: method, seed, measured, best, top (over the maximum).
    """

    table: pd.DataFrame
    curves: pd.DataFrame

    def summary(self) -> pd.DataFrame:
        """Mean and standard error over seeds of each method, the best `top_rel` first."""
        columns = ["maximum_rel", "top_rel", "final_rel", "ndcg"]
        grouped = self.table.groupby("method")[columns]
        both = grouped.agg(["mean", "sem"])
        return both.sort_values(("top_rel", "mean"), ascending=False)


def run_campaign(
    method: str,
    landscape: Oracle,
    *,
    rounds: int = 3,
    batch: int = 96,
    seed: int = 0,
    walk: WalkSettings | None = None,
    features: str = "onehot",
    predictor: EnsemblePredictor | None = None,
    graph: AminoAcidGraph | None = None,
    zero_shot: Callable[[np.ndarray], np.ndarray] | None = None,
) -> Campaign:
    """One first plate, `rounds` further ones, one last: batch · (rounds + 2) measurements in all (Algorithm 1).

    Every method gets the same predictor and features; those that start from clusters get the same first plate as the
    walks, and searches on the model as many predictions a plate as the walks take steps (20 · batch at least). Variants
    without a measurement in the landscape are left out and cost nothing; a warning says so where ten proposals do not
    fill a plate. `zero_shot` scores (n, k) variants for ftMLDE, such as `lambda codes: -model.nll(...)` of `UniRep`; by
    default they are near on the graph.

    Raises:
        TypeError: if the landscape is none.
        ValueError: if the method is unknown, a number is out of range, or nothing proposed was measured.
    """
    require_choice("method", method, METHODS)
    require_kind("landscape", landscape, Oracle)
    require_range("rounds", rounds, low=0, integer=True)
    space = landscape.space
    walk = walk if walk is not None else WalkSettings()
    evolution = DirectedEvolution(
        space.parent, list(space.sites), batch=batch, allowed=dict(zip(space.sites, space.allowed, strict=True)),
        graph=graph, features=features, predictor=predictor, walk=WALKS.get(method, WALKS["knowrlm"])(walk),
        random_state=seed, device="cpu",
    )  # fmt: skip
    run = _Run(landscape, batch)
    if method in WALKS:
        model = _walk(evolution, run, rounds)
    else:
        queries = max(20 * batch, walk.steps)
        model = _propose(evolution, run, rounds, STRATEGIES[method], seed, zero_shot, queries)
    found = ndcg(landscape.fitness, model.predict(landscape.codes)) if isinstance(landscape, Landscape) else np.nan
    log = evolution.log
    reward, window = (np.array(values) for values in ((log.reward, log.low) if log else ([], [])))
    return Campaign(
        scores(run.fitness[: run.sizes[-2]], run.fitness[run.sizes[-2] :], found, batch), *run.curves(), reward, window
    )


class _Run:
    """The measurements of a campaign as they come."""

    def __init__(self, landscape: Oracle, batch: int) -> None:
        self.landscape, self.batch = landscape, batch
        self.codes = np.empty((0, landscape.space.k), dtype=np.int8)
        self.failed = self.codes
        self.fitness = np.empty(0)
        self.sizes = [0]

    def plate(self, propose: Callable[[int], np.ndarray], n: int) -> tuple[np.ndarray, np.ndarray]:
        """Measure plates of what `propose(n)` gives until n measurements are there, or nothing more comes."""
        start, tries = len(self.codes), 0
        while len(self.codes) - start < n and tries < 10:
            codes = propose(n - (len(self.codes) - start))
            value = self.landscape.measure(codes)
            here = np.isfinite(value)
            self.codes = np.concatenate([self.codes, codes[here]])
            self.fitness = np.concatenate([self.fitness, value[here]])
            self.failed = np.concatenate([self.failed, codes[~here]])
            tries += 1
            if not len(codes):
                break
        got, tried = len(self.codes) - start, len(self.codes) + len(self.failed)
        if not len(self.codes):
            hint = "Pass allowed='observed' to the landscape."
            raise ValueError(message("proposed variants", "measured in the landscape", f"none of {tried}", hint))
        if got < n and tried < self.landscape.space.size:
            warnings.warn(
                f"{got} of {n} variants of a plate were found in {self.landscape.name}: too few of its space are "
                "measured for equal numbers. Pass allowed='observed' to the landscape.",
                MeasurementWarning,
                stacklevel=2,
            )
        self.sizes.append(len(self.codes))
        return self.codes[start:], self.fitness[start:]

    def curves(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ordered = [np.sort(self.fitness[:size])[::-1] for size in self.sizes[1:]]
        best, top = (
            np.array([f(values) for values in ordered]) for f in (lambda v: v[0], lambda v: v[: self.batch].mean())
        )
        return np.array(self.sizes[1:]), best, top


def _walk(evolution: DirectedEvolution, run: _Run, rounds: int) -> Surrogate:
    def measured(propose: Callable[[int], tuple[np.ndarray, list[str], Surrogate | None]]) -> None:
        def fresh(n: int) -> np.ndarray:
            evolution.exclude(run.failed)
            return propose(n)[0]

        codes, fitness = run.plate(fresh, run.batch)
        if len(codes):
            evolution.add(codes, fitness)

    for _ in range(rounds + 1):
        measured(evolution.propose)
    measured(evolution.final)
    return evolution.surrogate()


def _propose(
    evolution: DirectedEvolution,
    run: _Run,
    rounds: int,
    parts: tuple[Strategy | None, Strategy, Strategy],
    seed: int,
    zero_shot: Callable[[np.ndarray], np.ndarray] | None,
    queries: int,
) -> Surrogate:
    surrogate = evolution.surrogate_of()
    gen = rng(spawn(seed, 2)[1])
    known = Known(
        run.landscape.space, evolution.graph, surrogate, gen, run.codes, run.fitness, run.failed,
        zero_shot=zero_shot, queries=queries,
    )  # fmt: skip

    def through(strategy: Strategy) -> Callable[[int], np.ndarray]:
        def propose(n: int) -> np.ndarray:
            known.codes, known.fitness, known.failed = run.codes, run.fitness, run.failed
            return strategy(known, n)

        return propose

    first, following, last = parts
    run.plate(through(first) if first else lambda n: evolution.exclude(run.failed).propose(n)[0], run.batch)
    for _ in range(rounds):
        run.plate(through(following), run.batch)
    run.plate(through(last), run.batch)
    return surrogate.fit(run.codes, run.fitness)


def evaluate(
    methods: Sequence[str] | str,
    landscape: Oracle,
    *,
    rounds: int = 3,
    seeds: int | Sequence[int] = 10,
    batch: int = 96,
    walk: WalkSettings | None = None,
    features: str = "onehot",
    predictor: EnsemblePredictor | None = None,
) -> Evaluation:
    """Every method on one landscape with every seed, at equal numbers of measurements (Section 4, Tables 1 and 3).

    Args:
        methods: out of `METHODS`; or the name of one.
        landscape: a table, or a function such as `Ehrlich`.
        rounds: plates between the first and the last.
        seeds: how many (0, 1, …), or which.
        batch: variants a plate.
        walk: settings of the walks.
        features: of the predictor.
        predictor: the default ensemble if None.

    Raises:
        TypeError: if the landscape is none.
        ValueError: listing unknown methods and numbers out of range; if the landscape's maximum is not above 0, where
        nothing can be normalised by it.
    """
    require_kind("landscape", landscape, Oracle)
    methods = [methods] if isinstance(methods, str) else list(methods)
    with Problems("cannot evaluate") as problems:
        problems.check(require_range, "methods", len(methods), low=1, integer=True)
        hint = "Add a constant to the fitness."
        problems.check(require_range, "the landscape's maximum", landscape.maximum, low=0, low_open=True, hint=hint)
        for method in methods:
            problems.check(require_choice, "method", method, METHODS)
        if isinstance(seeds, Sequence):
            problems.check(require_range, "number of seeds", len(seeds), low=1, integer=True)
            for seed in seeds:
                problems.check(require_range, "seed", seed, low=0, integer=True)
        else:
            problems.check(require_range, "seeds", seeds, low=1, integer=True)
        problems.check(require_range, "batch", batch, low=1, integer=True)
        problems.check(require_range, "rounds", rounds, low=0, integer=True)
    chosen = list(seeds) if isinstance(seeds, Sequence) else list(range(seeds))
    rows, curves = [], []
    for method, seed in track([(method, seed) for method in methods for seed in chosen], "campaigns"):
        run = run_campaign(
            method, landscape, rounds=rounds, batch=batch, seed=seed, walk=walk, features=features, predictor=predictor
        )
        raw, relative = run.scores, run.scores.normalized(landscape.maximum)
        row = {"method": method, "seed": seed, "labels": int(run.measured[-1])}
        row |= {name: getattr(raw, name) for name in ("maximum", "top", "final", "ndcg")}
        rows.append(row | {f"{name}_rel": getattr(relative, name) for name in ("maximum", "top", "final")})
        for measured, best, top in zip(
            run.measured, run.best / landscape.maximum, run.top / landscape.maximum, strict=True
        ):
            curves.append({"method": method, "seed": seed, "measured": int(measured), "best": best, "top": top})
    return Evaluation(pd.DataFrame(rows), pd.DataFrame(curves))
