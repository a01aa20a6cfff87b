"""Figures of the claims (after Figures 1 and 2 of the paper)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from offprints import plot
from offprints.claims import Runs

from attention_lipschitz.experiments_theory import RADII

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def growth(runs: Mapping[str, Runs]) -> "Figure":
    """Constants against the number of tokens on random GPT-2 and BERT, with the published estimate and guides."""
    figure, axes = plot.figure(1, 2, width=4.8, height=3.6)
    curve, planted = runs["published-curve"], runs["adversarial-and-real"]
    n = curve.series("lengths")[0]
    plot.bands(axes[0], n, curve.series("published"), label="released estimate √‖Jᵀf‖", colour=1, dash=1)
    plot.bands(axes[0], n, curve.series("exact"), label="local constant")
    axes[0].plot(n, 0.445 * n**0.25, "k:", lw=1, label="0.445 n^(1/4), published")
    axes[0].set_title("random GPT-2, text")
    n = planted.series("lengths")[0]
    for colour, (family, name) in enumerate((("gpt2", "GPT-2 (masked)"), ("bert", "BERT"))):
        for dash, kind in enumerate(("adversarial", "real")):
            curve = planted.series(f"{kind}_{family}_curve")
            plot.bands(axes[1], n, curve, label=f"{name}, {kind}", colour=2 + colour, dash=dash)
    start = planted.series("adversarial_gpt2_curve")[:, 0].mean()
    axes[1].plot(n, start * np.sqrt(n / n[0]), "k:", lw=1, label="√n")
    axes[1].set_title("adversarial and real tokens")
    for ax in axes:
        ax.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="amplification")
        ax.legend(fontsize=7)
    axes[1].set_ylim(0.1, 400)
    return figure


def radius(runs: Mapping[str, Runs]) -> "Figure":
    """The constant at adversarial tokens between its bounds, against the radius, at n = 30."""
    figure, axes = plot.figure(1, 2, width=4.8, height=3.6)
    names = {
        "general": "Theorem 3.3",
        "mean_field": "mean field",
        "sharp": "sharpened",
        "exact": "measured",
        "lower": "lower bound",
    }
    for ax, claim, title in ((axes[0], "tight", "unmasked"), (axes[1], "masked", "masked")):
        for i, (name, label) in enumerate(names.items()):
            plot.bands(ax, np.array(RADII), runs[claim].series(f"by_radius_{name}"), label=label, colour=i, dash=i)
        ax.set(yscale="log", xlabel="radius R", ylabel="‖D f‖ at n = 30", title=title, ylim=(1e-1, 3e4))
        ax.legend(fontsize=7)
    return figure


def heads(runs: Mapping[str, Runs]) -> "Figure":
    """Median constants of the heads of the byte GPT, random and trained."""
    found = runs["trained"]
    figure, axes = plot.figure(1, 2, width=4.0, height=2.4)
    for ax, kind in zip(axes, ("random", "trained"), strict=True):
        table = found.series(f"{kind}_heads").mean(0)
        table = table.reshape(2, -1)
        plot.heat(
            ax, table, rows=["layer 0", "layer 1"], columns=[str(i) for i in range(table.shape[1])], label="constant"
        )
        ax.set(title=kind, xlabel="head")
    return figure
