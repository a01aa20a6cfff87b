"""The result of a comparison: a table with intervals, as Markdown, JSON and plots (the tables of Section 4)."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from offprints.checks import message, require_choice

from adaptive_decoding.distance import MauveScore

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Row:
    """One decoder's raw values: of each text by metric (seeds, prompts), of all texts, and the texts (Section 4)."""

    decoder: str
    values: dict[str, np.ndarray]
    pooled: dict[str, MauveScore]
    matched: str | None
    texts: list[str]


@dataclass(frozen=True)
class Estimate:
    """A mean with its 95 % bootstrap interval, and the paired difference to the first decoder (Section 4).

    Of perplexity the difference is a ratio. Metrics of all texts together have no paired difference.
    """

    value: float
    interval: tuple[float, float] | None
    difference: float | None
    difference_interval: tuple[float, float] | None


@dataclass(frozen=True)
class DecoderReport:
    """What `compare` found: by decoder and metric an `Estimate` (the tables of Section 4).

    Attributes:
        decoders: names, in the order given; differences are to the first.
        metrics: names.
        table: decoder -> metric -> estimate.
        matched_size: the mean candidate-set size at which parameters are reported too, or None.
        matched: decoder -> the same decoder at that size, or None where it cannot reach it or has no such parameter.
        texts: decoder -> its continuations, seed by seed, prompt by prompt.
        values: decoder -> metric -> (seeds, prompts) raw values (of perplexity: mean −ln p).
    """

    decoders: tuple[str, ...]
    metrics: tuple[str, ...]
    table: dict[str, dict[str, Estimate]]
    matched_size: float | None
    matched: dict[str, str | None]
    texts: dict[str, list[str]] = field(repr=False)
    values: dict[str, dict[str, np.ndarray]] = field(repr=False)

    def to_markdown(self, path: str | Path | None = None) -> str:
        """The table as Markdown, written to `path` where given."""
        at_equal = f"at {self.matched_size:.3g} candidates" if self.matched_size is not None else ""
        head = ["decoder", *self.metrics, *([at_equal] if at_equal else [])]
        lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
        for name in self.decoders:
            cells = [_cell(self.table[name][metric]) for metric in self.metrics]
            cells += [self.matched.get(name) or "–"] if at_equal else []
            lines.append("| " + " | ".join([name, *cells]) + " |")
        text = "\n".join(lines) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def to_json(self, path: str | Path | None = None) -> str:
        """All but the raw values as JSON (what is not finite as null), written to `path` where given."""
        content = {
            "matched_size": self.matched_size,
            "decoders": {
                name: {
                    "matched": self.matched.get(name),
                    "metrics": {metric: _plain(self.table[name][metric]) for metric in self.metrics},
                    "texts": self.texts[name],
                }
                for name in self.decoders
            },
        }
        text = json.dumps(content, ensure_ascii=False, indent=1)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def plot(self, x: str = "perplexity", y: str = "diversity", path: str | Path | None = None) -> "Figure":
        """A point with its intervals for each decoder, written to `path` where given.

        Raises:
            ImportError: naming the extra, without matplotlib.
            ValueError: if one of the metrics was not measured.
        """
        if not self.metrics:
            raise ValueError(message("metrics", "measured, one or more", "none"))
        for metric in (x, y):
            require_choice("metric", metric, self.metrics)
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError('a plot needs matplotlib: pip install "adaptive-decoding[plots]"') from error
        drawn = Figure(figsize=(7, 4.5), layout="constrained")
        ax = drawn.subplots()
        for place, name in enumerate(self.decoders):
            at = [self.table[name][metric] for metric in (x, y)]
            reach = [
                [[e.value - e.interval[0]], [e.interval[1] - e.value]] if e.interval else [[0.0], [0.0]] for e in at
            ]
            ax.errorbar(
                at[0].value, at[1].value, xerr=np.maximum(reach[0], 0), yerr=np.maximum(reach[1], 0),
                fmt="os^Dv<>pPX*h"[place % 12], capsize=2, label=name,
            )  # fmt: skip
        ax.set_xlabel(x)
        ax.set_ylabel(y)
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
        if path is not None:
            drawn.savefig(path)
        return drawn


def _cell(estimate: Estimate) -> str:
    text = f"{estimate.value:.3g}"
    return text + (f" [{estimate.interval[0]:.3g}, {estimate.interval[1]:.3g}]" if estimate.interval else "")


def _plain(estimate: Estimate) -> dict[str, object]:
    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    return {
        name: [finite(x) for x in value] if isinstance(value, tuple) else finite(value)
        for name, value in vars(estimate).items()
    }


def summarised(
    rows: Sequence[Row], metrics: Sequence[str], size: float | None, resamples: int, seed: int
) -> DecoderReport:
    """Means over seeds and prompts, bootstrap over prompts, differences paired by prompt."""
    table: dict[str, dict[str, Estimate]] = {}
    for row in rows:
        table[row.decoder] = {}
        for metric in metrics:
            if metric in row.pooled:
                score = row.pooled[metric]
                table[row.decoder][metric] = Estimate(score.score, score.interval, None, None)
            else:
                mine, first = (by.values[metric].mean(0) for by in (row, rows[0]))
                table[row.decoder][metric] = estimate(mine, first, metric == "perplexity", resamples, seed)
    return DecoderReport(
        tuple(row.decoder for row in rows),
        tuple(metrics),
        table,
        size,
        {row.decoder: row.matched for row in rows},
        {row.decoder: row.texts for row in rows},
        {row.decoder: row.values for row in rows},
    )


def estimate(mine: np.ndarray, first: np.ndarray, exponential: bool, resamples: int, seed: int) -> Estimate:
    """Mean of (prompts,) values and of their differences to `first`, with 95 % bootstrap intervals over prompts.

    A prompt without a value (NaN) is left out of both.
    """
    both = np.isfinite(mine) & np.isfinite(first)
    if not both.any():
        return Estimate(math.nan, None, None, None)
    mine, first = mine[both], first[both]
    shown = np.exp if exponential else np.asarray
    drawn = np.random.default_rng(seed).integers(0, len(mine), (resamples, len(mine)))

    def interval(values: np.ndarray) -> tuple[float, float] | None:
        if not resamples:
            return None
        low, high = np.quantile(shown(values[drawn].mean(1)), (0.025, 0.975))
        return float(low), float(high)

    gap = mine - first
    return Estimate(float(shown(mine.mean())), interval(mine), float(shown(gap.mean())), interval(gap))
