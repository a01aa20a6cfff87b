"""Self-supervised training of the encoder on the links themselves (paper, § decoders)."""

import copy
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from offprints.progress import track
from offprints.seeding import rng, spawn

from duplex_embed.decoder import duplex_loss, hermitian_decode, type_logits
from duplex_embed.embedding import Embedding
from duplex_embed.encoder import DualGATEncoder
from duplex_embed.evaluation import validation_auc
from duplex_embed.graph import Graph, unordered
from duplex_embed.messages import Messages
from duplex_embed.pairs import BOTH, FORWARD, NEGATIVE, NONE, TYPE_NAMES
from duplex_embed.sampling import NeighborSampler
from duplex_embed.splits import PairSet, non_edges, oriented

COLLAPSE_AFTER = 50
"""Epochs after which one and the same prediction for all pairs is called a collapse."""


class CollapseWarning(UserWarning):
    """All training pairs are predicted to be of one type: the distance decoder is stuck."""


@dataclass
class History:
    """Curves of a training run.

    Attributes:
        ce: direction-aware loss by epoch.
        bce: connection-aware loss by epoch, times lambda.
        checked: epochs at which the validation pairs were looked at.
        val: the mean of existence and direction AUC there.
        best: the epoch that was kept.
    """

    ce: list[float] = field(default_factory=list)
    bce: list[float] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    val: list[float] = field(default_factory=list)
    best: int = 0


@dataclass(frozen=True)
class Recipe:
    """How `train` works; the fields are arguments of `DUPLEX` and its `fit`."""

    epochs: int
    lr: float
    lam: float
    lam_decay: float
    neg_ratio: float
    norm: str
    seed: int
    every: int = 10
    patience: int | None = None
    batch_size: int | None = None
    fanout: tuple[int, int] | None = None


@dataclass(frozen=True)
class Material:
    """What `train` works on: graph, inputs (2, n, f), messages and encoder on one device."""

    graph: Graph
    x: torch.Tensor
    messages: Messages
    encoder: DualGATEncoder

    @property
    def classes(self) -> int:
        """5 in signed graphs, else 4."""
        return 5 if self.graph.signed else 4

    def embed(self) -> torch.Tensor:
        """(2, n, d) in evaluation mode."""
        training = self.encoder.training
        self.encoder.eval()
        found = self.encoder.infer(self.x, self.messages)
        self.encoder.train(training)
        return found


def training_pairs(graph: Graph, neg_ratio: float, generator: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Pairs and types of one epoch: every pair once, half of the one-way ones turned around, and fresh non-edges."""
    u, v, one_way, weight = unordered(graph)
    types = np.where(weight < 0, NEGATIVE, np.where(one_way, FORWARD, BOTH))
    pairs, kinds = oriented(torch.from_numpy(np.stack((u, v), 1)), torch.from_numpy(types), generator)
    none = non_edges(graph, round(neg_ratio * len(u)), generator, unique=False)
    return torch.cat((pairs, none)), torch.cat((kinds, torch.full((len(none),), NONE)))


def train(material: Material, recipe: Recipe, val: PairSet | None) -> History:
    """Train the encoder in place with Adam and leave it at its best epoch by validation (the last one without).

    One step an epoch on the whole graph, or mini-batches of pairs with (sampled) neighbourhoods when the recipe names a
    batch size. lambda becomes lambda (1 - q) after every epoch.
    """
    encoder, device = material.encoder, material.x.device
    optimizer = torch.optim.Adam(encoder.parameters(), lr=recipe.lr)
    seeds = spawn(recipe.seed, 2)
    generator, dropper = rng(seeds[0]), rng(seeds[1], device)
    sampler = None
    if recipe.batch_size is not None:
        sampler = NeighborSampler(material.graph, len(encoder.layers), recipe.fanout)
    history, best, kept, lam = History(), -np.inf, None, recipe.lam
    for epoch in track(range(1, recipe.epochs + 1), desc="duplex-embed", total=recipe.epochs):
        encoder.train()
        pairs, types = training_pairs(material.graph, recipe.neg_ratio, generator)
        losses = []
        for batch in _batches(len(pairs), recipe.batch_size, generator):
            optimizer.zero_grad()
            found, local = _embedded(material, pairs[batch], sampler, generator, dropper)
            settings = {"lam": lam, "neg_ratio": recipe.neg_ratio, "norm": recipe.norm, "classes": material.classes}
            parts = duplex_loss(found[0], found[1], local, types[batch].to(device), **settings)
            (parts[0] + parts[1]).backward()
            optimizer.step()
            losses.append([float(part.detach()) for part in parts])
        ce, bce = np.mean(losses, 0)
        history.ce.append(float(ce))
        history.bce.append(float(bce))
        lam *= 1 - recipe.lam_decay
        if epoch == COLLAPSE_AFTER:
            _warn_of_collapse(material, pairs, recipe, epoch)
        if val is not None and (epoch % recipe.every == 0 or epoch == recipe.epochs):
            score = validation_score(material, val, recipe.norm)
            history.checked.append(epoch)
            history.val.append(score)
            if score > best:
                best, kept, history.best = score, copy.deepcopy(encoder.state_dict()), epoch
            elif recipe.patience is not None and epoch - history.best >= recipe.patience:
                break
    if kept is None:
        history.best = len(history.ce)
    else:
        encoder.load_state_dict(kept)
    encoder.eval()
    return history


def _batches(n: int, size: int | None, generator: np.random.Generator) -> Iterator[torch.Tensor | slice]:
    if size is None:
        yield slice(None)
        return
    order = torch.from_numpy(generator.permutation(n))
    for start in range(0, n, size):
        yield order[start : start + size]


def _embedded(
    material: Material,
    pairs: torch.Tensor,
    sampler: NeighborSampler | None,
    generator: np.random.Generator,
    dropper: torch.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(2, k, d) of the nodes that a batch needs, and its pairs as places among them."""
    device = material.x.device
    if sampler is None:
        return material.encoder.run(material.x, [material.messages], dropper), pairs.to(device)
    seeds, local = pairs.unique(return_inverse=True)
    near = sampler.sample(seeds, generator)
    messages = [m.to(device, material.x.dtype) for m in near.messages]
    return material.encoder.run(material.x[:, near.nodes.to(device)], messages, dropper), local.to(device)


def validation_score(material: Material, val: PairSet, norm: str) -> float:
    """`validation_auc` of the encoder as it stands."""
    a, th = material.embed().cpu().unbind(0)
    return validation_auc(Embedding(a, th, classes=material.classes, norm=norm), val)


def _warn_of_collapse(material: Material, pairs: torch.Tensor, recipe: Recipe, epoch: int) -> None:
    a, th = material.embed().unbind(0)
    u, v = pairs.to(a.device).t()
    re, im, _ = hermitian_decode(a, th, u, v)
    predicted = type_logits(re, im, recipe.norm, material.classes).argmax(1).unique()
    if len(predicted) == 1:
        warnings.warn(
            f"after {epoch} epochs all training pairs are predicted to be of type {TYPE_NAMES[int(predicted)]!r}: the "
            "decoder has collapsed. Try init='spectral', another lr, a smaller dim, or another random_state.",
            CollapseWarning,
            stacklevel=4,
        )
