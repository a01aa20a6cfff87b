"""The figures of the claims; matplotlib is imported when one is drawn."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from offprints.claims import Runs

from lococo.experiments_language import RIVALS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {
    "lococo": "LoCoCo", "alpha0": "LoCoCo, α = 0", "h2o": "H2O, no local half", "h2o_local": "H2O",
    "streaming": "StreamingLLM", "random": "random", "snapkv": "SnapKV-style", "full": "full cache",
}  # fmt: skip


def sizes(runs: Mapping[str, Runs]) -> "Figure":
    """Accuracy (recall) and NLL (text) of each cache against M, means over seeds, with the full cache as a line."""
    from offprints import plot

    drawn, axes = plot.figure(1, 2, width=4.6, height=3.6)
    for ax, claim, mems, label in (
        (axes[0], "recall", (8, 12, 16), "recall: accuracy"),
        (axes[1], "text", (16, 32), "text: NLL, nats per token"),
    ):
        here = runs[claim]
        for place, name in enumerate(RIVALS):
            means = [here.metric(f"{name}_{mem}").mean() for mem in mems]
            ax.plot(mems, means, marker="osD^v<>"[place], linestyle=plot.DASHES[place % 4], color=plot.COLOURS[place],
                    label=TITLES[name], linewidth=2.2 if name == "lococo" else 1.2, markersize=5)  # fmt: skip
        ax.axhline(here.metric("full").mean(), color="black", linewidth=1, linestyle=":", label=TITLES["full"])
        ax.set_xticks(mems)
        ax.set_xlabel("slots M")
        ax.set_ylabel(label)
    axes[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return drawn


def positions(runs: Mapping[str, Runs]) -> "Figure":
    """Rise of the NLL over the full cache's, token by token, mean over seeds."""
    from offprints import plot

    drawn, (ax,) = plot.figure(1, 1, width=6.4, height=3.6)
    here, mem = runs["text"], 32
    full = np.atleast_2d(here.series("positions_full")).mean(0)
    wide = min(16, len(full))
    window = np.ones(wide) / wide
    for place, name in enumerate(RIVALS):
        rise = np.atleast_2d(here.series(f"positions_{name}_{mem}")).mean(0) - full
        smooth = np.convolve(rise, window, "valid")
        ax.plot(np.arange(len(smooth)) + wide, smooth, color=plot.COLOURS[place % 7], label=TITLES[name],
                linestyle=plot.DASHES[place % 4])  # fmt: skip
    ax.axhline(0.0, color="black", linewidth=1, linestyle=":")
    ax.set_xlabel("scored tokens read")
    ax.set_ylabel("NLL above the full cache's")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return drawn


def growth(runs: Mapping[str, Runs]) -> "Figure":
    """KV bytes and milliseconds per token against the context."""
    from offprints import plot

    drawn, axes = plot.figure(1, 2, width=4.2, height=3.2)
    here = runs["fixed-size"]
    lengths = sorted(int(name.rpartition("_")[2]) for name in here.metrics if name.startswith("ms_full_"))
    for ax, unit, label, factor in ((axes[0], "bytes", "cache, MB", 1e-6), (axes[1], "ms", "ms per token", 1.0)):
        for place, kind in enumerate(("lococo", "full")):
            values = factor * np.stack([here.metric(f"{unit}_{kind}_{length}") for length in lengths], 1)
            plot.bands(ax, lengths, values, TITLES[kind], place, place)
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xlabel("tokens seen")
        ax.set_ylabel(label)
    axes[0].legend()
    return drawn


def provenance(runs: Mapping[str, Runs]) -> "Figure":
    """Share of each token of the prefix in each slot, seed 0; keys and values are marked on the axis."""
    from offprints import plot

    drawn, (ax,) = plot.figure(1, 1, width=7.2, height=2.8)
    here = runs["recall"]
    tokens = here.series("map_tokens")[0].astype(int)
    shares = here.series("map")[0].reshape(-1, len(tokens))
    plot.heat(ax, shares, label="share of the slot")
    keys = [place for place, token in enumerate(tokens) if 8 < token <= 16]
    ax.set_xticks([place + 0.5 for place in keys], [f"k{tokens[p] - 8} v{tokens[p + 1] - 16}" for p in keys])
    ax.set_xlabel("tokens of the prefix (keys k and values v; the others are filler)")
    ax.set_ylabel("slot")
    return drawn
