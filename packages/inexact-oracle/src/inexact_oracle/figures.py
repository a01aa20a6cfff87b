"""The figures of the claims; matplotlib is imported when one is drawn."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from offprints.claims import Runs

from inexact_oracle.lipschitz import LipschitzOracle
from inexact_oracle.noise import Adversarial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS = (
    ("subgradient", "every-algorithm", "projected subgradient"),
    ("kelley", "every-algorithm", "Kelley"),
    ("level", "every-algorithm", "level bundle"),
    ("ellipsoid", "every-algorithm", "ellipsoid"),
    ("accelerated", "accelerated", "accelerated gradient"),
    ("simplex", "frank-wolfe", "Frank-Wolfe, simplex"),
)
KINDS = ("naive", "wrapped", "exact")


def errors(runs: Mapping[str, Runs]) -> "Figure":
    """Error of the held point in units of eta against queries; naive, wrapped and exact."""
    from offprints import plot

    drawn, axes = plot.figure(2, 3)
    for ax, (name, claim, title) in zip(axes, PANELS, strict=True):
        for colour, kind in enumerate(KINDS):
            curves = np.maximum(runs[claim].series(f"{name}_{kind}"), 1e-3)
            plot.bands(ax, np.arange(1, curves.shape[1] + 1), curves, kind, colour, dash=colour)
        ax.set_yscale("log")
        ax.axhline(4.0, color="0.4", linewidth=0.8)
        ax.set_title(title)
        ax.set_xlabel("queries")
        ax.set_ylabel("error / η")
    axes[0].legend()
    return drawn


def bounds(runs: Mapping[str, Runs]) -> "Figure":
    """Upper and lower bound of Kelley's method, run by run, the last ones marked."""
    from offprints import plot

    drawn, axes = plot.figure(1, 2, width=5.0)
    for ax, kind in zip(axes, ("naive", "wrapped"), strict=True):
        for colour, side in enumerate(("upper", "lower")):
            curves = runs["cutting-planes"].series(f"{kind}_{side}")
            for padded in curves:
                curve = padded[~np.isnan(padded)]  # runs end at their own time
                queries = np.arange(1, len(curve) + 1)
                ax.plot(queries, curve, color=plot.COLOURS[colour], linewidth=0.8, linestyle=plot.DASHES[colour])
                ax.plot(queries[-1:], curve[-1:], marker="^v"[colour], color=plot.COLOURS[colour], markersize=5)
            ax.plot([], [], color=plot.COLOURS[colour], linestyle=plot.DASHES[colour], label=f"{side} bound")
        ax.set_ylim(-3, 3)
        ax.set_xlim(1, 12)
        ax.axhline(0.0, color="0.4", linewidth=0.8)
        ax.set_title(f"Kelley, {kind} oracle")
        ax.set_xlabel("queries")
        ax.set_ylabel("(bound - min f) / η")
        ax.legend(loc="upper left")
    return drawn


def picture() -> "Figure":
    """f(x) = |x - 0.2| + x^2/2 on [-1, 1] with alternating errors: raw answers, replies, F and the band f +- eta."""
    from offprints import plot

    eta = 0.15
    f = lambda x: (abs(x[0] - 0.2) + x[0] ** 2 / 2, np.sign(x - 0.2) + x)  # noqa: E731
    oracle = LipschitzOracle(Adversarial(f, eta, eta / 2.0, "alternate", 3), 1, eta, eta / 2.0, 2.0)
    for t in (-0.9, 0.8, -0.4, 0.1, 0.5, -0.15, 0.3, -0.65):
        oracle(np.array([t]))
    drawn, (ax,) = plot.figure(1, 1, width=6.5, height=4.0)
    grid = np.linspace(-1, 1, 401)
    values = np.array([f(np.array([t]))[0] for t in grid])
    ax.fill_between(grid, values - eta, values + 3 * eta, color="0.9", label="f - η … f + 3η")
    ax.plot(grid, values, color=plot.COLOURS[6], label="f")
    ax.plot(grid, oracle.model(grid[:, None]), color=plot.COLOURS[0], label="F, exact for all replies")
    seen = oracle.replies
    for x, raw, slope in zip(seen.x[:, 0], seen.raw_f, seen.raw_g[:, 0], strict=True):
        ends = np.array([-0.08, 0.08])
        ax.plot(x + ends, raw + slope * ends, color=plot.COLOURS[1], linewidth=1.0)
    ax.scatter(seen.x[:, 0], seen.raw_f, color=plot.COLOURS[1], s=22, label="noisy answers (f~, g~)", zorder=3)
    ax.scatter(seen.x[:, 0], seen.V, color=plot.COLOURS[0], s=22, marker="s", label="replies (V, s)", zorder=3)
    ax.set_xlabel("x")
    ax.legend()
    return drawn
