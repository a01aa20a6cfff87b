"""A method, its claims and its figures: what a package's `claims.py` declares, and how it is found again."""

import importlib.metadata
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from offprints.checks import require_choice, require_range
from offprints.claims.expectations import Expectation
from offprints.claims.record import Json

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

GROUP = "offprints.methods"
Output = Mapping[str, float | Sequence[float]]
"""What one run of a claim returns: numbers are metrics; sequences are series, kept for figures."""


class MissingResource(RuntimeError):
    """A model, file or extra that is not here; its claim is *not run*, and the message says how to get it."""


class ClaimError(ValueError):
    """A claim returned something it must not: no metric that it promised, NaN, the wrong kind."""


class Scale:
    """How large one run is: the number of seeds and any sizes, read as attributes.

    >>> Scale(seeds=6, steps=1500).steps
    1500
    """

    def __init__(self, seeds: int, needs: str = "", **sizes: object) -> None:
        self.seeds = require_range("seeds", seeds, low=1, integer=True)
        self.needs = needs
        self.sizes = sizes

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self.sizes:
            raise AttributeError(f"this scale has no size {name!r}; it has {', '.join(self.sizes) or 'none'}.")
        return self.sizes[name]

    def __reduce__(self) -> tuple[object, ...]:
        return _scale, (self.seeds, self.needs, self.sizes)

    def __repr__(self) -> str:
        return f"Scale({', '.join(f'{k}={v!r}' for k, v in {'seeds': self.seeds, **self.sizes}.items())})"


def _scale(seeds: int, needs: str, sizes: dict[str, object]) -> Scale:
    return Scale(seeds, needs, **sizes)


@dataclass(frozen=True)
class Claim:
    """One claim of a paper and how it is measured."""

    id: str
    where: str
    says: str
    paper: Mapping[str, float]
    expect: tuple[Expectation, ...]
    smoke: Scale
    cpu: Scale
    full: Scale | None
    function: Callable[[int, Scale, str], Output]
    tolerance: float
    note: str

    def scale(self, name: str) -> Scale:
        """The scale of that name.

        Raises:
            ValueError: if there is none of that name.
        """
        scales = {"smoke": self.smoke, "cpu": self.cpu} | ({"full": self.full} if self.full else {})
        return scales[require_choice(f"scale of {self.id}", name, scales)]

    def measure(self, seed: int, scale: Scale, device: str) -> tuple[dict[str, float], dict[str, list[float]]]:
        """Run the claim for one seed and sort the output into metrics and series.

        Raises:
            ClaimError: if a metric is missing or not finite, naming claim, seed and metric.
        """
        metrics: dict[str, float] = {}
        series: dict[str, list[float]] = {}
        for name, value in self.function(seed, scale, device).items():
            values = np.asarray(value, dtype=float)
            if values.ndim == 0:
                metrics[name] = float(values)
            else:
                series[name] = values.ravel().tolist()
        promised = set().union(*(expectation.names() for expectation in self.expect))
        missing = sorted(promised - set(metrics))
        if missing:
            raise ClaimError(
                f"{self.id}, seed {seed}: no metric {', '.join(missing)}; got {', '.join(sorted(metrics))}."
            )
        bad = [f"{name} = {value}" for name, value in metrics.items() if not math.isfinite(value)]
        if bad:
            raise ClaimError(f"{self.id}, seed {seed}: metrics must be finite, got {', '.join(bad)}.")
        return metrics, series


@dataclass(frozen=True)
class Runs:
    """All runs of one claim, seed by seed."""

    seeds: tuple[int, ...]
    outputs: tuple[Json, ...]

    @property
    def metrics(self) -> list[str]:
        """The names of the metrics."""
        return sorted(self.outputs[0]["metrics"])

    def metric(self, name: str) -> np.ndarray:
        """(seeds,) values of a metric."""
        return np.array([output["metrics"][name] for output in self.outputs])

    def series(self, name: str) -> np.ndarray:
        """(seeds, length) values of a series; shorter ones (a run that stopped early) are filled up with NaN."""
        rows = [output["series"][name] for output in self.outputs]
        table = np.full((len(rows), max(map(len, rows))), np.nan)
        for row, values in zip(table, rows, strict=True):
            row[: len(values)] = values
        return table


@dataclass(frozen=True)
class Figure:
    """A figure drawn from the runs of some claims."""

    id: str
    needs: tuple[str, ...]
    caption: str
    draw: "Callable[[Mapping[str, Runs]], Drawing]"


@dataclass
class Method:
    """One method of one paper, with its claims in the order of declaration (the cheap ones first)."""

    dist: str
    title: str
    authors: str
    field: str
    summary: str
    bibtex: str
    venue: str = "ICML 2024"
    arxiv: str | None = None
    code: str | None = None
    dtype: str = "float64"
    deviations: Sequence[str] = ()
    claims: dict[str, Claim] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)

    @property
    def version(self) -> str:
        """The installed version of the distribution."""
        return importlib.metadata.version(self.dist)

    def claim(
        self,
        id: str,
        *,
        where: str,
        says: str,
        expect: Sequence[Expectation],
        smoke: Scale,
        cpu: Scale,
        paper: Mapping[str, float] | None = None,
        full: Scale | None = None,
        tolerance: float = 1e-6,
        note: str = "",
    ) -> Callable[[Callable[[int, Scale, str], Output]], Callable[[int, Scale, str], Output]]:
        """Declare a claim: a decorator for its function `(seed, scale, device) -> metrics and series`.

        Args:
            id: a short name, unique in the method.
            where: theorem, table or section of the paper.
            says: the claim in one sentence.
            expect: expectations that must all hold.
            smoke: seconds; proves the path.
            cpu: the committed results.
            paper: numbers reported there, at its scale.
            full: the paper's own scale.
            tolerance: relative difference that a recomputation may show on another machine.
            note: what a reader must know, such as the cause of a failure.

        Raises:
            ValueError: if the id is taken or nothing is expected.
        """
        if id in self.claims or not expect:
            raise ValueError(f"claim {id!r} of {self.dist} must have an id of its own and at least one expectation.")

        def declare(function: Callable[[int, Scale, str], Output]) -> Callable[[int, Scale, str], Output]:
            self.claims[id] = Claim(
                id, where, says, paper or {}, tuple(expect), smoke, cpu, full, function, tolerance, note
            )
            return function

        return declare

    def figure(
        self, id: str, *, needs: Sequence[str], caption: str
    ) -> "Callable[[Callable[[Mapping[str, Runs]], Drawing]], Callable[[Mapping[str, Runs]], Drawing]]":
        """Declare a figure: a decorator for a function from runs, by claim id, to a matplotlib figure."""

        def declare(draw: "Callable[[Mapping[str, Runs]], Drawing]") -> "Callable[[Mapping[str, Runs]], Drawing]":
            self.figures[id] = Figure(id, tuple(needs), caption, draw)
            return draw

        return declare

    def pick(self, ids: Sequence[str] | None) -> Iterator[Claim]:
        """The claims of these ids, or all, in the order of declaration.

        Raises:
            ValueError: if an id is unknown.
        """
        for name in ids or ():
            require_choice(f"claim of {self.dist}", name, self.claims)
        return (claim for claim in self.claims.values() if not ids or claim.id in ids)


def methods() -> dict[str, importlib.metadata.EntryPoint]:
    """The methods installed here, by distribution name, none of them imported.

    Raises:
        ValueError: if two distributions register one name.
    """
    found: dict[str, importlib.metadata.EntryPoint] = {}
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda entry: entry.name):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise ValueError(
                f"two distributions register the method {entry.name!r}: {other.value} and {entry.value}. Remove one."
            )
    return found


def load_method(dist: str) -> Method:
    """Import the claims of one method.

    Raises:
        ValueError: if no such method is installed, or its claims file is missing or declares none of that name.
        MissingResource: if its `repro` extra is not installed.
    """
    known = methods()
    if dist not in known:
        raise ValueError(
            f"method must be one of {', '.join(known) or 'none installed'}, got {dist!r}. Try pip install {dist}."
        )
    try:
        method = known[dist].load()
    except ModuleNotFoundError as error:
        module = known[dist].module
        if error.name and (error.name == module or module.startswith(f"{error.name}.")):
            raise ValueError(f"{dist} has no claims file: its entry point names {known[dist].value}.") from error
        raise MissingResource(f'{dist} needs {error.name} here: pip install "{dist}[repro]"') from error
    except AttributeError as error:
        raise ValueError(f"{dist} has no claims: nothing called {known[dist].value}.") from error
    if not isinstance(method, Method) or method.dist != dist:
        raise ValueError(f"{known[dist].value} must be the Method of {dist}, got {method!r:.80}.")
    return method
