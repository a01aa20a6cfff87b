"""The figures, drawn from the runs of the claims."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from offprints import plot
from offprints.claims import Runs

from direct_spectral._method import METHOD


def _clock(found: Runs, name: str) -> np.ndarray:
    """Seconds of training at which errors were taken: the median over runs."""
    return np.nanmedian(found.series(f"{name}_seconds"), axis=0)


@METHOD.figure(
    "training",
    needs=["elasticity", "variants"],
    caption="Elasticity: error on the test set against time on one shared core, each at its best learning rate.",
)
def training(runs: Mapping[str, Runs]) -> Figure:
    """Error against median seconds; left the models of claim elasticity, right of claim variants, which are smaller."""
    drawn, axes = plot.figure(1, 2, width=4.2, height=3.2)
    panels = (
        ("elasticity", {"fnodse": "FNO-DSE", "geofno": "Geo-FNO", "interpfno": "interpolation + FNO"}),
        ("variants", {"ufnodse": "U-FNO-DSE", "ffnodse": "F-FNO-DSE", "pointmlp": "point MLP"}),
    )
    for ax, (claim, names) in zip(axes, panels, strict=True):
        found = runs[claim]
        for place, (name, label) in enumerate(names.items()):
            plot.bands(ax, _clock(found, name), found.series(f"{name}_errors"), label, colour=place, dash=place)
        ax.set(xscale="log", yscale="log", xlabel="seconds of training", ylabel="relative L1 error, %")
        ax.xaxis.set_minor_formatter("")  # a decade is short: labels between would overlap
        ax.legend(fontsize=8)
    return drawn


def _burgers(found: Runs) -> Figure:
    """One sample of the first seed; errors of all models."""
    drawn, (left, right) = plot.figure(1, 2, width=4.4, height=3.2)
    x = found.series("ce_points")[0]
    for place, (name, label) in enumerate(
        (("ce_start", "u(0)"), ("ce_truth", "u(1)"), ("ce_prediction", "u(1), FNO-DSE"))
    ):
        plot.bands(left, x, found.series(name)[:1], label, colour=place, dash=place)
    low, high = left.get_ylim()
    left.plot(x, np.full(x.size, low), "|", color="black", markersize=6)
    left.set(xlabel="x", ylabel="u", ylim=(low - 0.05 * (high - low), high))
    left.legend(fontsize=8)
    names = {
        "fno_uniform": "FNO\nuniform", "dse_ce": "DSE\nce", "interp_ce": "interp.\nce", "ignoring_ce": "blind\nce",
        "dse_random": "DSE\nrandom", "interp_random": "interp.\nrandom", "ignoring_random": "blind\nrandom",
    }  # fmt: skip
    plot.bars(right, {label: found.metric(name) for name, label in names.items()})
    right.set(yscale="log", ylabel="relative L1 error, %")
    right.tick_params(axis="x", labelsize=7)
    return drawn


@METHOD.figure(
    "burgers",
    needs=["burgers"],
    caption="ν = 0.1. Left: a prediction on contracting-expanding points (ticks). Right: errors.",
)
def burgers(runs: Mapping[str, Runs]) -> Figure:
    """The problem of the paper."""
    return _burgers(runs["burgers"])


@METHOD.figure(
    "burgers-sharp",
    needs=["burgers-sharp"],
    caption="ν = 0.01, no constant part. Left: a prediction on contracting-expanding points. Right: errors.",
)
def burgers_sharp(runs: Mapping[str, Runs]) -> Figure:
    """The sharper one."""
    return _burgers(runs["burgers-sharp"])


@METHOD.figure(
    "elasticity", needs=["elasticity"], caption="Von Mises stress around a hole: truth, FNO-DSE, and their difference."
)
def elasticity(runs: Mapping[str, Runs]) -> Figure:
    """The first test sample of the first seed, on its own mesh."""
    found = runs["elasticity"]
    points = found.series("mesh")[0].reshape(-1, 2)
    truth, guess = found.series("truth")[0], found.series("prediction")[0]
    drawn, axes = plot.figure(1, 3, width=3.2, height=2.8)
    gap = np.abs(guess - truth)
    for ax, values, title in zip(axes, (truth, guess, gap), ("truth", "FNO-DSE", "|difference|"), strict=True):
        top = gap.max() if title == "|difference|" else truth.max()
        shown = ax.scatter(*points.T, c=values, s=12, cmap="cividis", vmin=0, vmax=top)
        drawn.colorbar(shown, ax=ax)
        ax.set(title=title, aspect="equal", xticks=[], yticks=[])
    return drawn


@METHOD.figure(
    "sphere",
    needs=["shallow-water", "shallow-water-complex", "winds", "transfer", "transfer-areas"],
    caption="Left: errors on the sphere. Right: error on sets of other size than the 256 points of training.",
)
def sphere(runs: Mapping[str, Runs]) -> Figure:
    """Harmonics against plane waves; 1/N against cell areas."""
    drawn, (left, right) = plot.figure(1, 2, width=4.2, height=3.0)
    water, winds = runs["shallow-water"], runs["winds"]
    groups = {
        "water\nsphere": water.metric("sphere"),
        "water\ncomplex": runs["shallow-water-complex"].metric("sphere"),
        "water\nplane": water.metric("plane"),
        "winds\nsphere": winds.metric("sphere"),
        "winds\nplane": winds.metric("plane"),
    }
    plot.bars(left, groups)
    left.set(ylabel="relative L1 error, %")
    left.tick_params(axis="x", labelsize=8)
    sizes = [128, 256, 512, 1024]
    for place, (claim, label) in enumerate((("transfer", "1/N"), ("transfer-areas", "cell areas"))):
        errors = np.stack([runs[claim].metric(f"error_{n}") for n in sizes], axis=1)
        plot.bands(right, sizes, errors, label, colour=place, dash=place)
    right.set(xscale="log", yscale="log", xlabel="points", ylabel="relative L1 error, %")
    right.set_xticks(sizes, [str(n) for n in sizes])
    right.set_xticks([], minor=True)
    right.legend()
    return drawn
