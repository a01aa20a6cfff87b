"""The figures of the claims; matplotlib is imported when one is drawn."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from offprints.claims import Runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {"suwr": "SUWR", "l2x": "L2X", "invase": "INVASE", "realx": "REAL-X"}


def front(runs: Mapping[str, Runs]) -> "Figure":
    """Loss against mean number of features on the AND toy."""
    from offprints import plot

    found = runs["optimum"]
    drawn, (ax,) = plot.figure(1, 1, width=5.2, height=3.4)
    for colour, (name, label) in enumerate((("lp", "best without leakage"), ("dp", "best sequential"))):
        x, y = found.series(f"{name}_features")[0], found.series(f"{name}_loss")[0]
        order = np.argsort(x, kind="stable")
        ax.plot(
            x[order], y[order], label=label, color=plot.COLOURS[colour], linestyle=plot.DASHES[colour],
            marker="o" if colour == 0 else None, markersize=4, linewidth=2 - colour * 0.5,
        )  # fmt: skip
    trained = found.series("trained").reshape(-1, 2)
    plot.points(ax, trained[:, 0], trained[:, 1], "SUWR, trained", 2)
    count, loss = found.series("coded")[0].reshape(2, 1)
    plot.points(ax, count, loss, "codes y in its choice (leaks)", 3)
    ax.set_xlabel("mean number of features")
    ax.set_ylabel("mean squared error")
    with plot.style():
        ax.legend()
    return drawn


def leaks(runs: Mapping[str, Runs]) -> "Figure":
    """Leak rates on syn4 and syn5, and label leakage on syn4 where it was estimated."""
    from offprints import plot

    found = runs["others-leak"]
    labels = {NAMES[m]: f"{m}_label_nats" for m in NAMES if f"{m}_label_nats" in found.metrics}
    drawn, axes = plot.figure(1, 3 if labels else 2, width=3.0)
    for ax, name in zip(axes, ("syn4", "syn5"), strict=False):
        plot.bars(ax, {NAMES[m]: found.metric(f"{m}_{name}") for m in NAMES})
        ax.set_title(name)
        ax.set_ylabel("leak rate of probes")
    if labels:
        plot.bars(axes[2], {name: found.metric(metric) for name, metric in labels.items()})
        axes[2].set_title("syn4")
        axes[2].set_ylabel("estimated label leakage (nats)")
    return drawn


def digits(runs: Mapping[str, Runs]) -> "Figure":
    """Images above, what is shown below, with the order of the patches and the predictions."""
    from offprints import plot

    found = runs["images"]
    image = found.series("image")[0].reshape(6, 8, 8)
    order, guess = found.series("order")[0].reshape(6, -1).astype(int), found.series("guess")[0].reshape(6, -1)
    label = found.series("label")[0].astype(int)
    drawn, axes = plot.figure(2, 6, width=1.3, height=1.5)
    for i in range(6):
        axes[i].imshow(image[i], cmap="gray_r", vmin=0, vmax=1)
        axes[i].set_title(f"a {label[i]}")
        shown = np.full((8, 8), np.nan)
        for number, middle in enumerate((u for u in order[i] if u >= 0), 1):
            r, c = divmod(int(middle), 8)
            window = np.s_[max(0, r - 1) : r + 2, max(0, c - 1) : c + 2]
            shown[window] = image[i][window]
            axes[6 + i].text(
                c, r, str(number), color=plot.COLOURS[1], ha="center", va="center", fontsize=9, weight="bold"
            )
        below = axes[6 + i]
        below.set_facecolor("#b8c8dc")
        below.imshow(np.ma.masked_invalid(shown), cmap="gray_r", vmin=0, vmax=1)
        told = [f"{g:.0f}" for g in guess[i] if g >= 0]
        below.set_xlabel("→".join(told), fontsize=7)
    for ax in axes:
        ax.grid(False)
        ax.set_xticks([])
        ax.set_yticks([])
    return drawn
