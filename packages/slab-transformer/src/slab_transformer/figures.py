"""The figures of the claims; matplotlib is imported when one is drawn."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from offprints.claims import Runs

from slab_transformer.published import PUBLISHED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NORMS = {
    "ln": "LayerNorm kept", "bn": "BatchNorm at once", "repbn": "RepBN at once (α = 1)",
    "prepbn": "PRepBN (α = 0)", "prepbn_paper": "PRepBN (α = 1)",
}  # fmt: skip
MODELS = {
    "softmax": "softmax, LayerNorm", "sla": "linear, LayerNorm", "softmax_bn": "softmax, BatchNorm (fused)",
    "slab": "linear, PRepBN (fused)",
}  # fmt: skip


def swap(runs: Mapping[str, Runs]) -> "Figure":
    """Loss (log) of each variant, and lambda, against the steps after the swap."""
    from offprints import plot

    drawn, axes = plot.figure(2, 1, width=6.4, height=2.6)
    here = runs["swap"]
    for place, (name, label) in enumerate(NORMS.items()):
        losses = np.atleast_2d(here.series(f"losses_{name}"))
        plot.bands(axes[0], np.arange(losses.shape[1]), losses, label, colour=place, dash=place)
    axes[0].set_yscale("log")
    axes[0].set_ylabel("loss of the batch, nats")
    axes[0].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    lam = np.atleast_2d(here.series("lambda"))
    axes[1].plot(np.arange(lam.shape[1]), lam[0], color="black")
    axes[1].set_ylabel("λ of PRepBN")
    axes[1].set_xlabel("optimiser steps after the swap")
    return drawn


def cost(runs: Mapping[str, Runs]) -> "Figure":
    """Milliseconds of both attentions against tokens, both axes logarithmic."""
    from offprints import plot

    drawn, (ax,) = plot.figure(1, 1, width=4.8, height=3.4)
    here = runs["linear-cost"]
    tokens = sorted(int(name.rpartition("_")[2]) for name in here.metrics if name.startswith("sla_"))
    for place, (name, label) in enumerate((("softmax", "softmax (SDPA)"), ("sla", "simplified linear"))):
        times = np.stack([here.metric(f"{name}_{count}") for count in tokens], axis=1)
        plot.bands(ax, tokens, times, label, colour=place, dash=place)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(tokens, [str(count) for count in tokens])
    ax.minorticks_off()
    ax.set_xlabel("tokens N (3 heads of 32)")
    ax.set_ylabel("ms on one thread")
    ax.legend(fontsize=8)
    return drawn


def tradeoff(runs: Mapping[str, Runs]) -> "Figure":
    """Accuracy against milliseconds: measured on digits (left), the published pair (right)."""
    from offprints import plot

    drawn, axes = plot.figure(1, 2, width=4.4, height=3.2)
    here = runs["linear"]
    for place, (name, label) in enumerate(MODELS.items()):
        plot.points(axes[0], here.metric(f"ms_{name}"), 100 * here.metric(f"accuracy_{name}"), label, colour=place)
    axes[0].set_title("digits, measured here")
    axes[0].set_xlabel("ms for 64 images, one CPU thread")
    for place, (name, value) in enumerate(PUBLISHED["latency_ms"].items()):
        plot.points(axes[1], [value], [PUBLISHED["latency_top1"][name]], f"{name} (published)", colour=place + 4)
    axes[1].set_title("ImageNet, published")
    axes[1].set_xlabel("ms")
    for ax in axes:
        ax.set_ylabel("accuracy, %")
        ax.legend(fontsize=7)
    return drawn
