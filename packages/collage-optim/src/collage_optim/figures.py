"""The figures, drawn from the runs of the claims."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from offprints import plot
from offprints.claims import Runs

from collage_optim._method import METHOD

LABELS = {
    "plain": "plain bf16", "fp32_states": "fp32 states", "light": "light", "plus": "plus", "fp32_master": "fp32 master",
}  # fmt: skip


@METHOD.figure(
    "training", needs=["master-weights"], caption="Training loss by mode (mean and spread over seeds, smoothed)."
)
def training(runs: Mapping[str, Runs]) -> Figure:
    """Loss against steps, above that of float32 master weights."""
    found = runs["master-weights"]
    drawn, (left, right) = plot.figure(1, 2)
    control = _smooth(found.series("curve_fp32_master"))
    for colour, (mode, label) in enumerate(LABELS.items()):
        curve = _smooth(found.series(f"curve_{mode}"))
        steps = np.arange(1, curve.shape[1] + 1)
        plot.bands(left, steps, curve, label, colour=colour, dash=colour)
        plot.bands(right, steps, curve - control, label, colour=colour, dash=colour)
    left.set(xlabel="step", ylabel="training loss, nats per character")
    right.set(xlabel="step", ylabel="above fp32 master")
    left.legend(fontsize=8)
    return drawn


@METHOD.figure(
    "descent", needs=["effective-descent"], caption="Share of each update that arrives in the weights (EDQ ratio)."
)
def descent(runs: Mapping[str, Runs]) -> Figure:
    """EDQ ratio against measurements, log axis as in the paper."""
    found = runs["effective-descent"]
    drawn, (ax,) = plot.figure(width=5.2, height=3.2)
    for colour, mode in enumerate(("plain", "light", "plus", "fp32_master")):
        curve = found.series(f"curve_{mode}")
        plot.bands(ax, 10 * np.arange(1, curve.shape[1] + 1), curve, LABELS[mode], colour=colour, dash=colour)
    ax.set(xlabel="step", ylabel="EDQ ratio", xscale="log")
    ax.legend(fontsize=8)
    return drawn


@METHOD.figure("bytes", needs=["memory"], caption="Bytes per parameter: weight, gradient and measured optimizer state.")
def stacked(runs: Mapping[str, Runs]) -> Figure:
    """Bytes per parameter by mode."""
    found = runs["memory"]
    drawn, (ax,) = plot.figure(width=5.2, height=3.0)
    names = ["plain", "stochastic", "light", "kahan", "plus", "fp32_states", "fp32_master"]
    total = np.array([found.metric(f"measured_{name}")[0] for name in names])
    parts = (("weight", np.full(len(names), 2.0)), ("gradient", np.full(len(names), 2.0)), ("state", total - 4.0))
    bottom = np.zeros(len(names))
    for colour, (label, height) in enumerate(parts):
        ax.bar(names, height, bottom=bottom, label=label, color=plot.COLOURS[colour])
        bottom = bottom + height
    ax.set(ylabel="bytes per parameter")
    ax.tick_params(axis="x", rotation=25)
    ax.legend(fontsize=8)
    return drawn


def _smooth(curves: np.ndarray, over: int = 15) -> np.ndarray:
    """Running mean along the steps, of the length of the curve."""
    over = min(over, curves.shape[1])
    kernel = np.ones(over)
    weight = np.convolve(np.ones(curves.shape[1]), kernel, mode="same")
    return np.stack([np.convolve(curve, kernel, mode="same") / weight for curve in curves])
