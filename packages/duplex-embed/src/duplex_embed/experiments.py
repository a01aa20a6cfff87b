"""What several claims measure together: graphs, and all methods on one split with equal grids of learning rates."""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from offprints.seeding import isolated, spawn

from duplex_embed.baselines import SourceTarget, adjacency, hope, nerd, spectral_radius, svd, with_readout
from duplex_embed.datasets import citation_graph, import_graph
from duplex_embed.evaluation import LinkModel, degree_buckets, evaluate, validation_auc
from duplex_embed.graph import Graph
from duplex_embed.model import DUPLEX
from duplex_embed.peers import fit_peer, matching_width, parameter_count
from duplex_embed.readout import macro_f1
from duplex_embed.splits import LinkSplit, split_edges
from duplex_embed.training import CollapseWarning

GRAPHS = ("sympy", "networkx", "cited")
RATES = (1e-2, 3e-2)
BUCKETS = (0, 1, 2, 4, 8)
METHODS = ("duplex", "magnet", "svd", "hope", "nerd", "svd_readout", "hope_readout", "nerd_readout")


class Sizes(NamedTuple):
    """How large a comparison is: dimensions, epochs, and the most nodes that are kept."""

    dim: int
    epochs: int
    nodes: int


@functools.cache
def graph_of(name: str, seed: int, nodes: int) -> Graph:
    """A graph by name; the citations are drawn anew for each seed. Cut to its first nodes where it has more."""
    graph = citation_graph(min(3300, nodes), seed=seed) if name == "cited" else import_graph(name)
    return graph.subgraph(torch.arange(nodes)) if graph.num_nodes > nodes else graph


@functools.cache
def split_of(name: str, seed: int, nodes: int, leak: bool = False) -> LinkSplit:
    """The links of a graph, 16 : 1 : 3."""
    return split_edges(graph_of(name, seed, nodes), seed=seed, official_leak=leak)


def fitted(split: LinkSplit, seed: int, sizes: Sizes, device: str, **options: object) -> DUPLEX:
    """DUPLEX at the sizes of a claim."""
    model = DUPLEX(**{"dim": sizes.dim, "random_state": seed, "device": device, **options})  # type: ignore[bad-argument-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollapseWarning)  # it shows in the numbers
        return model.fit(split.train, split.val, epochs=sizes.epochs)


@functools.cache
def tuned_duplex(name: str, seed: int, sizes: Sizes, device: str) -> DUPLEX:
    """The best learning rate of the grid, by the validation pairs."""
    split = split_of(name, seed, sizes.nodes)
    return max((fitted(split, seed, sizes, device, lr=lr) for lr in RATES), key=lambda model: max(model.history_.val))


def methods(name: str, seed: int, sizes: Sizes, device: str) -> dict[str, Callable[[], LinkModel]]:
    """Every method on the same split; all choose among two settings (SVD has none) by the same pairs."""
    split = split_of(name, seed, sizes.nodes)
    dual: dict[str, list[Callable[[Graph, int], SourceTarget]]] = {
        "svd": [svd],  # has nothing to choose
        "hope": [functools.partial(hope, beta=beta) for beta in hope_betas(split.train)],
        "nerd": [functools.partial(nerd, lr=lr, seed=seed) for lr in RATES],
    }
    found: dict[str, Callable[[], LinkModel]] = {"duplex": lambda: tuned_duplex(name, seed, sizes, device)}
    for peer in ("magnet", "digcn") if name == "networkx" else ("magnet",):
        found[peer] = functools.partial(_tuned_peer, peer, split, seed, sizes, device)
    for kind, makes in dual.items():
        base = functools.cache(functools.partial(_tuned_dual, makes, split, sizes.dim))
        found[kind] = base
        found[f"{kind}_readout"] = lambda base=base: with_readout(base(), seed)
    return found


def hope_betas(graph: Graph) -> tuple[float, float]:
    """Two decays of the Katz series, as the trained methods have two rates: the default, and a slow one."""
    radius = spectral_radius(adjacency(graph))
    limit = np.inf if radius == 0 else 1 / radius
    return min(0.1, limit / 2), min(0.5, 0.9 * limit)


def _tuned_dual(makes: Sequence[Callable[[Graph, int], SourceTarget]], split: LinkSplit, dim: int) -> SourceTarget:
    """The best of some settings, by the validation pairs."""
    rivals = [make(split.train, dim) for make in makes]
    return max(rivals, key=lambda rival: validation_auc(rival, split.val)) if len(rivals) > 1 else rivals[0]


def _tuned_peer(kind: str, split: LinkSplit, seed: int, sizes: Sizes, device: str) -> LinkModel:
    ours = DUPLEX(dim=sizes.dim, device=device).fit(split.train, epochs=1)
    # pyrefly: ignore[bad-argument-type]
    width = matching_width(kind, ours.encoder_.layers[0].in_dim, parameter_count(ours.encoder_))
    rivals = [
        fit_peer(kind, split.train, split.val, width=width, dim=sizes.dim, epochs=sizes.epochs, lr=lr, seed=seed)
        for lr in RATES
    ]
    return max(rivals, key=lambda rival: rival.score)


@functools.cache
def compared(name: str, seed: int, sizes: Sizes, device: str) -> dict[str, float | list[float]]:
    """All scores of all methods on one graph: `{method}_{ep, low, dp, type3, type4, natural}` and series of buckets."""
    split = split_of(name, seed, sizes.nodes)
    short = {
        "ep_auc": "ep", "ep_auc_low": "low", "dp_auc": "dp", "type3_accuracy": "type3", "type4_accuracy": "type4",
        "natural_accuracy": "natural",
    }  # fmt: skip
    found: dict[str, float | list[float]] = {}
    for method, fit in methods(name, seed, sizes, device).items():
        model = fit()
        scores = evaluate(model, split.test, slices=("low",)).scores
        found |= {f"{method}_{short[key]}": value for key, value in scores.items() if key in short}
        buckets = degree_buckets(model, split.test, BUCKETS)
        names = ["0", "1", "2-3", "4-7", "8+"]
        found[f"{method}_buckets"] = [buckets[b][0] if b in buckets else -1.0 for b in names]
    return found


def prefixed(name: str, found: dict[str, float | list[float]], wanted: Sequence[str]) -> dict[str, float | list[float]]:
    """The scores of some kinds, with the name of the graph in front."""
    return {f"{name}_{key}": value for key, value in found.items() if key.rpartition("_")[2] in wanted}


# ---- labels of nodes


class PlainNet(torch.nn.Module):
    """Two layers on features: an MLP, or with `edges` an undirected GCN."""

    def __init__(self, inputs: int, hidden: int, outputs: int, dropout: float, graph_layers: bool) -> None:
        super().__init__()
        if graph_layers:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                from torch_geometric.nn import GCNConv
            kind: Callable[[int, int], torch.nn.Module] = GCNConv
        else:
            kind = torch.nn.Linear
        self.first, self.second = kind(inputs, hidden), kind(hidden, outputs)
        self.dropout, self.graph_layers = dropout, graph_layers

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        """(n, C) logits."""
        more = (edges,) if self.graph_layers else ()
        x = torch.nn.functional.dropout(torch.relu(self.first(x, *more)), self.dropout, self.training)
        return self.second(x, *more)


def plain_labels(
    kind: str,
    part: Graph,
    masks: Sequence[torch.Tensor],
    whole: Graph,
    hidden: int,
    settings: Sequence[tuple[float, float]],
    epochs: int,
    seed: int,
) -> np.ndarray:
    """(n,) labels of the whole graph by an MLP ("mlp") or an undirected GCN ("gcn") trained on a part of it.

    The best of the settings (learning rate, weight decay) and epochs by macro-F1 of the validation nodes is kept.
    """
    edges = [torch.cat((g.edge_index, g.edge_index.flip(0)), 1).unique(dim=1) for g in (part, whole)]
    y, inputs, everything = part.labels(), part.features(), whole.features()
    train, val = (mask & (y >= 0) for mask in masks)
    best, answer = -1.0, np.zeros(whole.num_nodes)
    for lr, decay in settings:
        with isolated(spawn(seed, 1)[0]):
            net = PlainNet(inputs.shape[1], hidden, int(whole.labels().max()) + 1, 0.5, kind == "gcn")
            optimizer = torch.optim.Adam(net.parameters(), lr=lr, weight_decay=decay)
            for epoch in range(1, epochs + 1):
                net.train()
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(net(inputs, edges[0])[train], y[train]).backward()
                optimizer.step()
                if epoch % 5 == 0 or epoch == epochs:
                    net.eval()
                    with torch.no_grad():
                        score = macro_f1(y[val], net(inputs, edges[0])[val].argmax(1))
                        if score > best:
                            best, answer = score, net(everything, edges[1]).argmax(1).numpy()
    return answer
