"""The figures, drawn from the runs of the claims."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from offprints import plot
from offprints.claims import Runs

from knowrlm._method import METHOD
from knowrlm.graph import AminoAcidGraph
from knowrlm.space import RESIDUES


def _curves(ax: Axes, runs: Runs, title: str) -> None:
    measured = runs.series("measured")[0]
    names = sorted(name.removeprefix("top_") for name in runs.metrics if name.startswith("top_"))
    names.sort(key=lambda name: -runs.metric(f"top_{name}").mean())
    for place, name in enumerate(names):
        values = runs.series(f"curve_{name}")
        middle, error = values.mean(axis=0), values.std(axis=0) / len(values) ** 0.5
        colour, dash = plot.COLOURS[place % 7], plot.DASHES[place // 7]
        ax.errorbar(measured, middle, error, label=name, color=colour, linestyle=dash, capsize=2)
    ax.set(title=title, xlabel="measured variants", ylabel="mean of the best plate / maximum")
    ax.legend(fontsize=7)


@METHOD.figure(
    "methods",
    needs=["efficiency", "measured-table", "efficiency-ehrlich"],
    caption="Mean of the best plate so far against what was measured, mean ± standard error over seeds.",
)
def methods(runs: Mapping[str, Runs]) -> Figure:
    """All methods at equal measurements on the three landscapes."""
    drawn, axes = plot.figure(1, 3, width=4.0, height=3.4)
    titles = {"efficiency": "AAV2, four sites", "measured-table": "CR6261", "efficiency-ehrlich": "Ehrlich, 20¹²"}
    with plot.style():
        for ax, (claim, title) in zip(axes, titles.items(), strict=True):
            _curves(ax, runs[claim], title)
    return drawn


@METHOD.figure(
    "graph",
    needs=["graph", "neighbours-best", "neighbours-measured"],
    caption="Ranks R[b | a] with a walk V → I → L → M → F; fitness kept by rank window, combined and measured.",
)
def graph(runs: Mapping[str, Runs]) -> Figure:
    """The rank matrix, an example walk, and what the walk's neighbours keep."""
    known = AminoAcidGraph.default()
    drawn, axes = plot.figure(1, 3, width=4.2, height=3.6)
    with plot.style():
        plot.heat(axes[0], known.ranks, list(RESIDUES), list(RESIDUES), label="rank of b given a")
        walk = [RESIDUES.index(letter) for letter in "VILMF"]
        axes[0].plot(walk[1:], walk[:-1], "o-", color="white", markersize=4, linewidth=1)
        axes[0].set(xlabel="b", ylabel="a")
        for ax, claim in zip(axes[1:], ("neighbours-best", "neighbours-measured"), strict=True):
            plot.bars(ax, {name: runs[claim].metric(name) for name in ("near", "mid", "far", "overall")})
            ax.set(title=claim, ylabel="f(mutant) / f(parent)")
    return drawn


@METHOD.figure(
    "walks",
    needs=["rl-learns", "knowledge", "window"],
    caption="Predicted fitness and lower end of the window along the walks; ablations of graph and window.",
)
def walks(runs: Mapping[str, Runs]) -> Figure:
    """Training curves, window position, and ablations."""
    found = runs["rl-learns"]
    drawn, axes = plot.figure(1, 3, width=4.0, height=3.2)
    with plot.style():
        for colour, (prefix, label) in enumerate((("", "trained"), ("untrained_", "untrained"))):
            for ax, kind in ((axes[0], "reward"), (axes[1], "window")):
                values = found.series(f"{prefix}{kind}")
                width = max(1, values.shape[1] // 20)
                steps = values.shape[1] // width
                smooth = values[:, : steps * width].reshape(len(values), steps, width).mean(axis=2)
                plot.bands(ax, width * np.arange(steps), smooth, label, colour=colour, dash=colour)
        axes[0].set(xlabel="step of every walk", ylabel="predicted fitness / s.d.")
        axes[1].set(xlabel="step of every walk", ylabel="lower end of the window")
        axes[0].legend()
        bars = {"KnowRLM": runs["window"].metric("top_knowrlm"), "no graph": runs["knowledge"].metric("top_no_graph")}
        bars |= {"[0, 20]": runs["window"].metric("top_no_window"), "[0, 6]": runs["window"].metric("top_near_window")}
        plot.bars(axes[2], bars)
        axes[2].set(ylabel="mean of the best plate / maximum")
    return drawn
