"""The figures of the claims; matplotlib is imported when one is drawn."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from offprints.claims import Runs

from private_sbm.experiments import CURVE, GRID_A, GRID_B, SCS_SIZES
from private_sbm.thresholds import asymmetric_exponent, private_threshold

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def phase(runs: Mapping[str, Runs]) -> "Figure":
    """Exact recovery over (a, b) at rho = 0.3, and the curve eta = 1."""
    from offprints import plot

    share = runs["exact-recovery"].series("grid").mean(axis=0).reshape(len(GRID_B), len(GRID_A))
    drawn, (ax,) = plot.figure(1, 1, width=5.0)
    plot.heat(ax, share, [str(b) for b in GRID_B], [str(a) for a in GRID_A], "exactly recovered")
    a, b = np.linspace(GRID_A[0], GRID_A[-1], 121), np.linspace(GRID_B[0], GRID_B[-1], 81)
    eta = np.array([[asymmetric_exponent(0.3, x, y) if x > y else 0.0 for x in a] for y in b])
    across = np.interp(a, GRID_A, range(len(GRID_A)))
    ax.contour(across, np.interp(b, GRID_B, range(len(GRID_B))), eta, levels=[1.0], colors="white")
    ax.set_xlabel("a")
    ax.set_ylabel("b")
    ax.set_title("white: η = 1")
    return drawn


def release(runs: Mapping[str, Runs]) -> "Figure":
    """Release probability against eps, a line for each n, and the asymptotic eps*."""
    from offprints import plot

    found = runs["private-recovery"]
    drawn, (ax,) = plot.figure(1, 1, width=5.0)
    sizes = sorted(int(name.removeprefix("curve_")) for name in found.outputs[0]["series"])
    for colour, n in enumerate(sizes):
        plot.bands(ax, CURVE, found.series(f"curve_{n}"), f"n = {n}", colour, dash=colour)
    star = private_threshold("asymmetric", gamma=2.0, a=30, b=2)
    ax.axvline(star, color="0.4", linewidth=0.8, linestyle=":")
    ax.annotate("ε*", (star, 0.02))
    ax.set_xscale("log")
    ax.set_xlabel("ε (δ = 1/n²)")
    ax.set_ylabel("release probability")
    ax.legend()
    return drawn


def runtime(runs: Mapping[str, Runs]) -> "Figure":
    """Processor seconds against n: ours, and SCS on the same program where it can."""
    from offprints import plot

    found = runs["polynomial-time"]
    drawn, (ax,) = plot.figure(1, 1, width=5.0)
    sizes = sorted(int(name.removeprefix("seconds_")) for name in found.metrics if name.startswith("seconds_"))
    small = SCS_SIZES[: found.series("scs_small").shape[1]]
    large = np.stack([found.metric(f"seconds_{n}") for n in sizes], axis=1)
    plot.bands(ax, [*small, *sizes], np.hstack([found.series("ours_small"), large]), "this package", 0)
    plot.bands(ax, small, found.series("scs_small"), "cvxpy + SCS", 1, dash=1)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("n")
    ax.set_ylabel("processor seconds")
    ax.legend()
    return drawn
