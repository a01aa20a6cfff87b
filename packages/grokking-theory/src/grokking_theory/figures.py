"""The figures, drawn from the runs of the claims."""

from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure
from offprints import plot
from offprints.claims import Runs

from grokking_theory._method import METHOD
from grokking_theory.bounds import kernel_lower_bound


@METHOD.figure(
    "grokking",
    needs=["grokking", "transformer"],
    caption="Accuracy (dashed: training) and departure of the NTK from its start, by factor on the initial weights.",
)
def grokking(runs: Mapping[str, Runs]) -> Figure:
    """Figures 1, 2 and 5 of the paper: one column for each factor, and the transformer."""
    found = runs["grokking"]
    alphas = [name.removeprefix("fit_step_") for name in found.metrics if name.startswith("fit_step_")]
    panels = [(f"α = {a}", found, f"_{a}") for a in sorted(alphas, key=float, reverse=True)]
    panels.append(("transformer", runs["transformer"], ""))
    drawn, axes = plot.figure(2, len(panels), width=3.0, height=2.4)
    for i, (title, source, suffix) in enumerate(panels):
        steps = source.series("steps")[0] + 1
        upper, lower = axes[i], axes[len(panels) + i]
        plot.bands(upper, steps, source.series(f"train_acc_curve{suffix}"), "train", colour=0, dash=1)
        plot.bands(upper, steps, source.series(f"test_acc_curve{suffix}"), "test", colour=1)
        plot.bands(lower, steps, source.series(f"ntk_change_curve{suffix}"), "NTK", colour=2)
        upper.set(title=title, xscale="log", ylim=(-0.03, 1.03))
        lower.set(xscale="log", xlabel="step + 1")
    axes[0].set_ylabel("accuracy")
    axes[0].legend()
    axes[len(panels)].set_ylabel(r"$\|\Theta_t - \Theta_0\|_F$")
    return drawn


@METHOD.figure(
    "kernels",
    needs=["kernel-regression", "rich-regime"],
    caption="Population loss of kernel regression against its lower bound, and of the network, at p = 11.",
)
def kernels(runs: Mapping[str, Runs]) -> Figure:
    """The lower bound that no equivariant kernel passes under, and a network that does."""
    found, rich = runs["kernel-regression"], runs["rich-regime"]
    p = 11
    drawn, (ax,) = plot.figure(width=5.2, height=3.4)
    shares = np.linspace(0, 1, 101)
    ax.plot(
        shares, [kernel_lower_bound(p, round(s * p**3))["loss_lb"] for s in shares], "k-", label="kernel lower bound"
    )
    ax.axhline(p / 2, color="grey", linestyle=":", label="p/2")
    for colour, (kernel, label) in enumerate([("ntk", "expected NTK"), ("rbf", "RBF")]):
        x = np.array([20, 50, 80]) / 100
        losses = np.stack([found.metric(f"loss_{kernel}_{round(100 * s)}") for s in x], axis=1)
        plot.bands(ax, x, losses, label, colour=colour, dash=colour)
    plot.points(ax, np.full(len(rich.seeds), 0.6), rich.metric("linearised_loss"), "linearised network", colour=3)
    plot.points(ax, np.full(len(rich.seeds), 0.6), rich.metric("loss"), "network", colour=2)
    ax.set(xlabel="n / p³", ylabel="population square loss")
    ax.legend(fontsize=8)
    return drawn


@METHOD.figure(
    "scaling",
    needs=["rich-regime", "sample-complexity"],
    caption="Left: ‖θ‖_∞ after training on regression. Right: samples to 50 % test accuracy, with two guide lines.",
)
def scaling(runs: Mapping[str, Runs]) -> Figure:
    """‖θ‖_∞ and n_50 against p."""
    rich, samples = runs["rich-regime"], runs["sample-complexity"]
    drawn, (left, right) = plot.figure(1, 2)
    sizes = rich.series("ps")[0]
    largest = np.stack([rich.metric(f"linf_{size}") for size in ("small", "medium", "large")], axis=1)
    ps = sorted(int(name.removeprefix("n50_")) for name in samples.metrics if name.removeprefix("n50_").isdigit())
    needed = np.stack([samples.metric(f"n50_{p}") for p in ps], axis=1)
    right.set(xscale="log", yscale="log", ylabel="n for 50 % test accuracy")
    for ax, x, values in ((left, sizes, largest), (right, ps, needed)):
        plot.bands(ax, x, values, "measured")
        plot.points(ax, np.tile(x, len(values)), values.ravel(), "")
        ax.set(xlabel="$p$")
        ax.set_xticks(x, [f"{p:.0f}" for p in x])  # the moduli that were measured
        ax.set_xticks([], minor=True)
    for exponent, label, dash in ((5 / 3, "$p^{5/3}$", "--"), (2, "$p^2$", ":")):
        guide = np.median(needed[:, 0]) * (np.array(ps) / ps[0]) ** exponent
        right.plot(ps, guide, dash, color="grey", label=label)
    left.set(ylabel=r"$\|\theta\|_\infty$", ylim=(0, None))
    low, high = right.get_ylim()
    marks = [n for n in (1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 1000, 2000, 5000, 10000) if low <= n <= high]
    right.set_yticks(marks, [str(n) for n in marks])
    right.set_yticks([], minor=True)
    right.legend()
    return drawn
