"""Three plots, on axes of the caller's (nothing here imports matplotlib)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from duplex_embed.decoder import hermitian_decode
from duplex_embed.embedding import Embedding
from duplex_embed.pairs import TYPE_NAMES
from duplex_embed.splits import PairSet
from duplex_embed.training import History

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = ((0, -1), (0, 1), (1, 0), (0, 0), (-1, 0))
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#999999", "#CC79A7")


def pair_scatter(ax: "Axes", embedding: Embedding, pairs: PairSet, limit: int = 400) -> None:
    """(re, im) of the modelled entry for pairs of each type, with the points that they are drawn to.

    Args:
        ax: where to draw.
        embedding: of the nodes.
        pairs: with their types.
        limit: at most so many of each type.
    """
    for kind in pairs.types.unique().tolist():
        u, v = pairs.pairs[pairs.types == kind][:limit].t()
        re, im, _ = hermitian_decode(embedding.amplitude.cpu(), embedding.phase.cpu(), u, v)
        label, colour = TYPE_NAMES[kind], COLOURS[kind]
        ax.scatter(re.numpy(), im.numpy(), s=6, alpha=0.5, color=colour, label=label)
        ax.scatter(*POINTS[kind], s=90, marker="X", color=colour, edgecolors="black")
    ax.set(xlabel="re", ylabel="im")
    ax.legend()


def degree_curves(ax: "Axes", found: Mapping[str, Mapping[str, tuple[float, int]]]) -> None:
    """Existence AUC by degree bucket, a line for each method.

    Args:
        ax: where to draw.
        found: method -> what `degree_buckets` gave.
    """
    order: list[str] = list(dict.fromkeys(name for rows in found.values() for name in rows))
    for method, rows in found.items():
        ax.plot(order, [rows[name][0] if name in rows else np.nan for name in order], marker="o", label=method)
    ax.axhline(0.5, color="grey", linestyle=":")
    ax.set(xlabel="smaller of out-degree of source and in-degree of target", ylabel="existence AUC")
    ax.legend()


def training_curves(ax: "Axes", history: History) -> None:
    """Both losses by epoch, and the validation score where there is one."""
    epochs = torch.arange(1, len(history.ce) + 1).numpy()
    ax.plot(epochs, history.ce, label="direction-aware loss")
    ax.plot(epochs, history.bce, label="connection-aware loss, times λ")
    if history.val:
        ax.plot(history.checked, history.val, label="validation: mean of both AUC")
    ax.set(xlabel="epoch")
    ax.legend()
