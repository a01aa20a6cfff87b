"""The figures of the claims; matplotlib is imported when one is drawn."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offprints.claims import Runs

from dfa_rag.data import USER
from dfa_rag.dfa import DialogueDFA
from dfa_rag.experiments import LEVELS, NOISES, simulated
from dfa_rag.export import layout

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = {
    "hybrid": "DFA + text (hybrid)", "dfa": "DFA, belief", "greedy": "DFA, one path", "paper": "DFA, φ_sim, one path",
    "tfidf_both": "TF-IDF, both", "bm25_both": "BM25, both", "random": "random",
}  # fmt: skip


def noise(runs: Mapping[str, Runs]) -> "Figure":
    """Precision@5 against tag noise, for all retrievers."""
    from offprints import plot

    drawn, (ax,) = plot.figure(1, 1, width=6.5, height=4.0)
    for k, (name, label) in enumerate(SHOWN.items()):
        plot.bands(ax, NOISES, runs["noise"].series(name), label, k, dash=k % 4)
    ax.set_xlabel("tag noise")
    ax.set_ylabel("precision@5")
    ax.set_ylim(0, 1.03)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return drawn


def threshold(runs: Mapping[str, Runs]) -> "Figure":
    """Precision and number of states against λ for both similarities."""
    from offprints import plot

    drawn, axes = plot.figure(1, 2)
    for ax, kind, label in zip(axes, ("precision", "states"), ("precision@5", "states"), strict=True):
        for k, name in enumerate(("lookahead", "paper")):
            plot.bands(ax, LEVELS, runs["threshold"].series(f"{name}_{kind}"), f"{name} similarity", k, dash=k)
        ax.set_xscale("log")
        ax.set_xlabel("λ")
        ax.set_ylabel(label)
        ax.legend()
    return drawn


def automaton() -> "Figure":
    """Entry states of the noise-free support flow: user blue, system green, edge width = dialogues."""
    from offprints import plot

    dfa = DialogueDFA().fit(simulated("support", 0, 200, 0.0))
    drawn, (ax,) = plot.figure(1, 1, width=11.0, height=5.5)
    kept, places = layout(dfa.automaton)
    for q in kept:
        for path in dfa.automaton.turn_paths(q):
            if path.to in places:
                label = " ".join(dfa.automaton.word(path.codes))
                _arrow(ax, places[q], places[path.to], label, path.passes / len(dfa.dialogue_ids))
    for q in kept:
        colour = plot.COLOURS[0] if dfa.role(q) == USER else plot.COLOURS[2]
        edge = "black" if q in dfa.accepting else colour
        ax.scatter(*places[q], s=420, color=colour, edgecolor=edge, linewidth=1.5, zorder=3)
        ax.annotate(dfa.name(q), places[q], color="white", ha="center", va="center", fontsize=7, zorder=4)
    for colour, label in ((plot.COLOURS[0], "the user speaks"), (plot.COLOURS[2], "the system speaks")):
        ax.scatter([], [], color=colour, s=60, label=label)
    ax.legend(loc="lower left")
    ax.set_axis_off()
    ax.margins(0.06)
    return drawn


def _arrow(ax: "Axes", start: tuple[float, float], end: tuple[float, float], label: str, share: float) -> None:
    style = {"arrowstyle": "-|>", "color": "0.55", "linewidth": 0.6 + 5 * share, "shrinkA": 11, "shrinkB": 11}
    bend = 0.0 if end[0] > start[0] else 0.25
    style["connectionstyle"] = f"arc3,rad={bend}"
    ax.annotate("", end, start, arrowprops=style, zorder=1)
    middle = (0.55 * start[0] + 0.45 * end[0], 0.55 * start[1] + 0.45 * end[1])
    ax.annotate(label, middle, fontsize=6, ha="center", va="center", zorder=2, backgroundcolor=(1, 1, 1, 0.6))
