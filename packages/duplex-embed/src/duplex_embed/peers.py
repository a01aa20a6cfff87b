"""Trained peers from torch-geometric-signed-directed (extra `baselines`): MagNet and DiGCN with a head of four types.

They see the inputs that DUPLEX sees, train on the same pairs with the same loss weights, and keep their best epoch by
the same validation pairs.
"""

import copy
import warnings
from dataclasses import dataclass

import numpy as np
import torch
from offprints.checks import require_choice, require_range
from offprints.seeding import isolated, rng, spawn

from duplex_embed.baselines import from_types
from duplex_embed.evaluation import TASKS, validation_auc
from duplex_embed.graph import Graph, as_graph
from duplex_embed.inputs import node_inputs
from duplex_embed.pairs import require_pairs
from duplex_embed.splits import PairSet
from duplex_embed.training import training_pairs

PEERS = ("magnet", "digcn")


@dataclass(frozen=True)
class TrainedPeer:
    """A fitted peer.

    Attributes:
        graph: the training graph.
        module: the network of the library.
        inputs: what it takes before the pairs.
        edge_weight: of DiGCN's normalised adjacency; None for MagNet.
        score: of its best epoch on the validation pairs.
    """

    graph: Graph
    module: torch.nn.Module
    inputs: tuple[torch.Tensor, ...]
    edge_weight: torch.Tensor | None
    score: float = float("nan")

    def log_probabilities(self, pairs: torch.Tensor) -> torch.Tensor:
        """(m, 4) log-probabilities of the types."""
        return self.module(*self.inputs, pairs, self.edge_weight)

    @torch.no_grad()
    def predict_edges(self, pairs: torch.Tensor, task: str = "type") -> np.ndarray:
        """Probabilities, as `Embedding.predict_edges` gives them."""
        require_choice("task", task, TASKS)
        pairs = require_pairs(pairs, self.graph.num_nodes)
        return from_types(self.log_probabilities(pairs).exp().double().numpy(), task)


def parameter_count(module: torch.nn.Module) -> int:
    """The number of trained numbers."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)


def matching_width(kind: str, in_dim: int, parameters: int) -> int:
    """The hidden width at which a peer has as many parameters as asked for, as nearly as it can."""

    def gap(width: int) -> int:
        with isolated(0):  # the library draws weights from torch's global generator
            return parameter_count(_network(kind, in_dim, width, 0.0)) - parameters

    low, high = 1, 4096
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if gap(middle) > 0 else (middle, high)
    return min((low, high), key=lambda width: abs(gap(width)))


def _network(kind: str, in_dim: int, width: int, dropout: float, q: float = 0.25, k: int = 1) -> torch.nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric_signed_directed.nn.directed import DiGCN_link_prediction, MagNet_link_prediction
    if kind == "magnet":
        sizes = {"hidden": width, "q": q, "K": k, "label_dim": 4, "layer": 2, "dropout": dropout, "cached": True}
        return MagNet_link_prediction(in_dim, **sizes)
    return DiGCN_link_prediction(in_dim, width, 4, dropout)


def fit_peer(
    kind: str,
    train: object,
    val: PairSet | None,
    *,
    width: int,
    dim: int = 32,
    init: str = "degree",
    epochs: int = 150,
    lr: float = 1e-2,
    dropout: float = 0.1,
    q: float = 0.25,
    k: int = 1,
    every: int = 10,
    seed: int = 0,
) -> TrainedPeer:
    """Fit MagNet or DiGCN on the links of a graph.

    Args:
        kind: "magnet" or "digcn".
        train: a graph of any kind.
        val: pairs by which the best epoch is kept.
        width: hidden width.
        dim: of the inputs, as in `DUPLEX`.
        init: of the inputs, as in `DUPLEX`.
        epochs: steps, each on all pairs.
        lr: of Adam.
        dropout: of the network.
        q: MagNet's charge.
        k: order of MagNet's Chebyshev filter.
        every: epochs between looks at `val`.
        seed: of weights, inputs and pairs.

    Raises:
        ValueError: if the kind is unknown or the graph has no edges.
    """
    require_choice("kind", kind, PEERS)
    require_range("epochs", epochs, low=1, integer=True)
    graph, seeds = as_graph(train), spawn(seed, 3)
    if graph.num_edges == 0:
        raise ValueError("train must have edges to learn from, got a graph without any.")
    x = node_inputs(graph, init, dim, seeds[0])[0].contiguous()
    with isolated(seeds[1]):
        module = _network(kind, x.shape[1], width, dropout, q, k)
        peer = _assembled(kind, graph, module, x)
        optimizer = torch.optim.Adam(module.parameters(), lr=lr)
        generator, best, kept = rng(seeds[2]), -np.inf, None
        for epoch in range(1, epochs + 1):
            module.train()
            pairs, types = training_pairs(graph, 1.0, generator)
            optimizer.zero_grad()
            torch.nn.functional.nll_loss(peer.log_probabilities(pairs), types).backward()
            optimizer.step()
            if val is not None and (epoch % every == 0 or epoch == epochs):
                module.eval()
                score = validation_auc(peer, val)
                if score > best:
                    best, kept = score, copy.deepcopy(module.state_dict())
        if kept is not None:
            module.load_state_dict(kept)
    module.eval()
    return TrainedPeer(graph, module, peer.inputs, peer.edge_weight, best)


def _assembled(kind: str, graph: Graph, module: torch.nn.Module, x: torch.Tensor) -> TrainedPeer:
    edges = graph.carriers.edge_index
    if kind == "magnet":
        return TrainedPeer(graph, module, (x, x, edges), None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric_signed_directed.utils import get_appr_directed_adj

        index, weight = get_appr_directed_adj(0.1, edges, graph.num_nodes, x.dtype)  # type: ignore[bad-argument-type]
    return TrainedPeer(graph, module, (x, index), weight)
