"""Figures of a scan (after Figures 1 and 2 of the paper), drawn without pyplot."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from attention_lipschitz.report import LipschitzReport


def growth(report: "LipschitzReport") -> Figure:
    """One panel a layer: constants against the number of tokens."""
    layers = sorted({row.layer for row in report.rows})
    drawn = Figure(figsize=(4.6 * len(layers), 3.8), layout="constrained")
    for ax, layer in zip(drawn.subplots(1, len(layers), squeeze=False)[0], layers, strict=True):
        real = report.select(layer=layer)
        exact = [row for row in real if row.lipschitz]
        if exact:
            n, values, radii = (
                np.array([getattr(row, name) for row in exact]) for name in ("n", "lipschitz", "radius")
            )
            shown = ax.scatter(n, values, c=radii, cmap="cividis", s=16, label="local constant", zorder=3)
            drawn.colorbar(shown, ax=ax, label="radius √(mean ‖x‖²)")
            _guides(ax, n, float(np.median(values[n == n.min()])))
        published = [row for row in real if row.paper_code]
        if published:
            at = [row.n for row in published]
            ax.plot(at, [row.paper_code for row in published], "x", color="#D55E00", ms=5, label="√‖Jᵀf‖ (no constant)")
        bounded = [row for row in real if row.bound_local]
        if bounded:
            ax.plot(
                [r.n for r in bounded],
                [r.bound_local for r in bounded],
                "_",
                color="#009E73",
                ms=7,
                label="local bound",
            )
        worst = [row for row in report.select(layer=layer, data="adversarial") if row.lipschitz]
        if worst:
            ax.plot(
                [r.n for r in worst], [r.lipschitz for r in worst], "^-", color="#CC79A7", ms=5, label="adversarial"
            )
        ax.set(xscale="log", yscale="log", xlabel="tokens n", ylabel="amplification", title=f"layer {layer}")
        ax.legend(fontsize=7, frameon=False)
    return drawn


def _guides(ax: object, n: np.ndarray, start: float) -> None:
    at = np.array([n.min(), n.max()], dtype=float)
    for power, name, dash in ((0.5, "√n", "--"), (0.25, "n^(1/4)", ":")):
        ax.plot(at, start * (at / at[0]) ** power, dash, color="grey", lw=1, label=name)  # type: ignore[attr-defined]


def heads(report: "LipschitzReport") -> Figure:
    """The median constant of each head of each layer as a heat map."""
    rows = [row for row in report.rows if row.head is not None and row.data == "real" and row.lipschitz is not None]
    layers, places = sorted({row.layer for row in rows}), sorted({row.head for row in rows if row.head is not None})
    table = np.full((len(layers), len(places)), np.nan)
    for i, layer in enumerate(layers):
        for j, head in enumerate(places):
            found = [
                row.lipschitz for row in rows if row.layer == layer and row.head == head and row.lipschitz is not None
            ]
            table[i, j] = np.median(found) if found else np.nan
    drawn = Figure(figsize=(1.8 + 0.45 * len(places), 1.4 + 0.45 * len(layers)), layout="constrained")
    ax = drawn.subplots()
    image = ax.imshow(table, cmap="cividis", aspect="auto")
    drawn.colorbar(image, ax=ax, label="local constant (median)")
    ax.set(xlabel="head", ylabel="layer", xticks=range(len(places)), yticks=range(len(layers)))
    ax.set_xticklabels([str(head) for head in places])
    ax.set_yticklabels([str(layer) for layer in layers])
    return drawn


def pairs(shares: np.ndarray) -> Figure:
    """The shares of `responsible_pairs` as a heat map: outputs down, perturbed tokens across."""
    drawn = Figure(figsize=(4.6, 3.8), layout="constrained")
    ax = drawn.subplots()
    most = float(np.abs(shares).max()) or 1.0
    image = ax.imshow(shares, cmap="PuOr", vmin=-most, vmax=most)
    drawn.colorbar(image, ax=ax, label="share of the constant")
    ax.set(xlabel="perturbed token j", ylabel="output i")
    return drawn
