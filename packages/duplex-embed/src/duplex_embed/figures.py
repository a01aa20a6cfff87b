"""The figures: existence by degree, decoded pairs, training curves."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from offprints import plot
from offprints.claims import Runs

from duplex_embed._method import METHOD
from duplex_embed.experiments import GRAPHS
from duplex_embed.pairs import TYPE_NAMES

LINES = {
    "duplex": "DUPLEX",
    "magnet": "MagNet",
    "hope": "HOPE",
    "svd": "SVD",
    "nerd": "NERD",
    "hope_readout": "HOPE, read-out",
}
POINTS = ((0, -1), (0, 1), (1, 0), (0, 0))
PLACES = ("0", "1", "2-3", "4-7", "8+")


@METHOD.figure(
    "degrees",
    needs=["low-degree"],
    caption="Existence AUC by the smaller of the source's out-degree and the target's in-degree in training.",
)
def degrees(runs: Mapping[str, Runs]) -> Figure:
    """A line for each method on three graphs."""
    found = runs["low-degree"]
    drawn, axes = plot.figure(1, 3, width=3.4)
    with plot.style():
        for ax, graph in zip(axes, GRAPHS, strict=True):
            for at, (method, label) in enumerate(LINES.items()):
                values = found.series(f"{graph}_{method}_buckets")
                values = np.where(values < 0, np.nan, values)
                known = ~np.isnan(values).all(0)
                plot.bands(ax, np.arange(5)[known], values[:, known], label, colour=at, dash=at % 4)
            ax.axhline(0.5, color="grey", linewidth=0.8)
            ax.set(xlabel="degree", title=graph, ylim=(0.2, 1.02))
            ax.set_xticks(range(5), PLACES)
        axes[0].set_ylabel("existence AUC")
        axes[2].legend(fontsize=7, loc="lower right")
    return drawn


@METHOD.figure(
    "pairs",
    needs=["one-embedding"],
    caption="Left: modelled entries of H for test pairs of each type, with their targets. Right: training curves.",
)
def pairs(runs: Mapping[str, Runs]) -> Figure:
    """(re, im) of the first seed's test pairs, and losses over all seeds."""
    found = runs["one-embedding"]
    drawn, (left, right) = plot.figure(1, 2)
    with plot.style():
        re, im, kind = (found.series(f"pair_{name}")[0] for name in ("re", "im", "type"))
        for at, point in enumerate(POINTS):
            plot.points(left, re[kind == at], im[kind == at], TYPE_NAMES[at], colour=at)
            left.scatter(*point, s=90, marker="X", color=plot.COLOURS[at], edgecolors="black", zorder=3)
        left.set(xlabel="re", ylabel="im", xlim=(-2.5, 2.5), ylim=(-2.5, 2.5))
        left.legend(fontsize=8)
        epochs = np.arange(1, found.series("curve_ce").shape[1] + 1)
        plot.bands(right, epochs, found.series("curve_ce"), "direction-aware loss")
        plot.bands(right, epochs, found.series("curve_bce"), "connection-aware loss, times λ", colour=1, dash=1)
        checked = found.series("curve_checked")[0]
        plot.bands(right, checked, found.series("curve_val"), "validation: mean of both AUC", colour=2, dash=2)
        right.set(xlabel="epoch", ylim=(0, 2))
        right.legend(fontsize=8)
    return drawn
