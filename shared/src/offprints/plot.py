"""Four kinds of plot in one style that colour-blind readers can tell apart.

Drawn without pyplot, so without global state.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette."""
DASHES = ("-", "--", "-.", ":")
STYLE = {
    "axes.grid": True,
    "axes.prop_cycle": mpl.rcsetup.cycler(color=COLOURS),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.facecolor": "white",
    "font.size": 9,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "savefig.bbox": "tight",
    "svg.fonttype": "path",
    "svg.hashsalt": "offprints",
}


def style() -> AbstractContextManager[None]:
    """The style, for what is drawn or added (legends, labels) inside the `with` block."""
    return mpl.rc_context(STYLE)


def figure(rows: int = 1, columns: int = 1, width: float = 4.2, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    """An empty figure of rows × columns panels, each `width` × `height` inches, and its axes in reading order."""
    with style():
        drawn = Figure(figsize=(width * columns, height * rows), layout="constrained")
        axes = drawn.subplots(rows, columns, squeeze=False)
    return drawn, list(axes.ravel())


def bands(
    ax: Axes, x: Sequence[float] | np.ndarray, runs: np.ndarray, label: str, colour: int = 0, dash: int = 0
) -> None:
    """The median of (runs, len(x)) values over runs as a line, least to greatest as a band; NaN is left out."""
    runs = np.atleast_2d(np.asarray(runs, dtype=float))
    shade = COLOURS[colour % len(COLOURS)]
    ax.plot(x, np.nanmedian(runs, axis=0), label=label, color=shade, linestyle=DASHES[dash % len(DASHES)])
    if len(runs) > 1:
        ax.fill_between(x, np.nanmin(runs, axis=0), np.nanmax(runs, axis=0), color=shade, alpha=0.18, linewidth=0)


def bars(ax: Axes, groups: Mapping[str, np.ndarray]) -> None:
    """One bar for each name: the mean over its runs, with Student's 95 % interval and the runs as dots."""
    from offprints.stats import mean_interval

    for place, (name, values) in enumerate(groups.items()):
        runs = np.asarray(values, dtype=float)
        half = mean_interval(runs)[1] - runs.mean() if runs.size > 1 else 0.0
        ax.bar(place, runs.mean(), yerr=half, capsize=3, color=COLOURS[place % len(COLOURS)], alpha=0.8, label=name)
        ax.plot(np.full(runs.size, place), runs, ".", color="black", markersize=3)
    ax.set_xticks(range(len(groups)), list(groups))


def heat(ax: Axes, matrix: np.ndarray, rows: Sequence[str] = (), columns: Sequence[str] = (), label: str = "") -> None:
    """A matrix in colours that also read in grey, with a colour bar."""
    image = ax.imshow(np.asarray(matrix, dtype=float), cmap="cividis", aspect="auto")
    ax.grid(False)
    if rows:
        ax.set_yticks(range(len(rows)), list(rows))
    if columns:
        ax.set_xticks(range(len(columns)), list(columns))
    ax.figure.colorbar(image, ax=ax, label=label)


def points(
    ax: Axes, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray, label: str, colour: int = 0
) -> None:
    """A scatter of y against x."""
    ax.scatter(x, y, label=label, s=14, color=COLOURS[colour % len(COLOURS)], alpha=0.8)


def save(drawn: Figure, path: Path) -> list[Path]:
    """Write `<path>.png` and `<path>.svg`; equal figures give equal bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with style():
        drawn.savefig(path.with_suffix(".png"), dpi=140, metadata={"Software": None})
        drawn.savefig(path.with_suffix(".svg"), metadata={"Date": None})
    return [path.with_suffix(".png"), path.with_suffix(".svg")]
