"""The figures of the claims; matplotlib is imported when one is drawn."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from offprints.claims import Runs

from adaptive_decoding.experiments import BALANCE, EPSILONS, EVERY, SAMPLINGS, label
from adaptive_decoding.increments import confidence_increments

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER = {  # Table 8: mean k at ε = 0.001, 0.005, 0.01, 0.02
    "GPT2-XL, uniform": (30.34, 8.13, 4.31, 1.80),
    "Llama-2, multinomial": (21.73, 6.47, 3.39, 1.67),
}


def candidate_sets(runs: Mapping[str, Runs]) -> "Figure":
    """Mean ± standard deviation of k against ε, with the means of Table 8."""
    from offprints import plot

    drawn, (ax,) = plot.figure(1, 1, width=6.0, height=3.8)
    here = runs["candidate-sets"]
    for place, sampling in enumerate(SAMPLINGS):
        mean = np.array([here.metric(f"k_{sampling}_{epsilon:g}").mean() for epsilon in EPSILONS])
        share = np.array([here.metric(f"spread_{sampling}_{epsilon:g}").mean() for epsilon in EPSILONS])
        shifted = np.array(EPSILONS) * (1 + 0.06 * place)
        ax.errorbar(
            shifted, mean, yerr=[np.minimum(share * mean, mean - 0.9), share * mean], capsize=3,
            marker="o", color=plot.COLOURS[place], linestyle=plot.DASHES[place], label=f"SmolLM2-135M, {sampling}",
        )  # fmt: skip
    for place, (name, values) in enumerate(PAPER.items()):
        plot.points(
            ax, np.array(EPSILONS[1:]) * (0.92 - 0.06 * place), np.array(values), f"{name} (Table 8)", 2 + place
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("ε")
    ax.set_ylabel("kept tokens k, mean ± std over steps")
    ax.legend(fontsize=8)
    return drawn


def trade_off(runs: Mapping[str, Runs]) -> "Figure":
    """Diversity against perplexity, a point a decoder with 95 % intervals over seeds."""
    from offprints import plot
    from offprints.stats import mean_interval

    drawn, (ax,) = plot.figure(1, 1, width=6.5, height=3.8)
    here = runs["balance"]
    for place, decoder in enumerate(BALANCE):
        x, y = (here.metric(f"{kind}_{label(decoder)}") for kind in ("perplexity", "diversity"))
        reach = [(np.array(mean_interval(v)) - v.mean())[:, None] * [[-1], [1]] if v.size > 1 else None for v in (x, y)]
        ax.errorbar(
            x.mean(), y.mean(), xerr=reach[0], yerr=reach[1], capsize=2, fmt="osD^v<>pP"[place],
            color=plot.COLOURS[place % len(plot.COLOURS)], label=decoder,
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_xlabel("perplexity under the model itself")
    ax.set_ylabel("diversity")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return drawn


def one_step(runs: Mapping[str, Runs]) -> "Figure":
    """Sorted probabilities of one step of a power law, ΔConf_k on a second axis, and where ε cuts."""
    from offprints import plot

    n, shown, epsilon = 50257, 60, 1e-3
    ranks = torch.arange(1, n + 1, dtype=torch.float64)
    p = (ranks**-1.2) / (ranks**-1.2).sum()
    delta = confidence_increments(p, k_max=shown, probs=True).delta.numpy()
    drawn, (ax,) = plot.figure(1, 1, width=6.0, height=3.4)
    k = np.arange(1, shown + 1)
    kept = int((np.cumprod(delta > epsilon)).sum())
    colours = [plot.COLOURS[0] if i <= kept else "#bbbbbb" for i in k]
    ax.bar(k, p[:shown].numpy(), color=colours)
    ax.set_yscale("log")
    ax.set_xlabel(f"rank k; the {kept} blue ones are kept (p ∝ rank^−1.2, n = {n})")
    ax.set_ylabel("p_k")
    other = ax.twinx()
    other.plot(k, delta, color=plot.COLOURS[1], label="ΔConf_k")
    other.axhline(epsilon, color=plot.COLOURS[6], linestyle="--", label=f"ε = {epsilon:g}")
    other.set_yscale("log")
    other.grid(False)
    other.set_ylabel("ΔConf_k")
    other.legend(loc="upper right")
    return drawn


def mauve(runs: Mapping[str, Runs]) -> "Figure":
    """MAUVE of every decoder, with 95 % intervals over seeds."""
    from offprints import plot

    drawn, (ax,) = plot.figure(1, 1, width=7.0, height=3.6)
    plot.bars(ax, {decoder: runs["mauve"].metric(label(decoder)) for decoder in EVERY})
    ax.tick_params(axis="x", rotation=60)
    for text in ax.get_xticklabels():
        text.set_horizontalalignment("right")
        text.set_rotation_mode("anchor")
    ax.set_ylabel("MAUVE (MiniLM features)")
    return drawn
