"""DUPLEX: fit on the links of a directed graph, embed its nodes and unseen ones, predict existence and direction."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from offprints import checkpoint
from offprints.checks import Problems, require_choice, require_range
from offprints.device import pick_device
from offprints.seeding import rng, spawn
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from duplex_embed._version import DIST, VERSION
from duplex_embed.decoder import NORMS
from duplex_embed.embedding import Embedding, require_saveable
from duplex_embed.encoder import FUSIONS, DualGATEncoder
from duplex_embed.graph import Graph, as_graph
from duplex_embed.inputs import INITS, node_inputs, require_features
from duplex_embed.messages import message_graph
from duplex_embed.splits import PairSet
from duplex_embed.training import History, Material, Recipe, train


class NotInductiveError(ValueError):
    """Unseen nodes cannot be embedded: their inputs were random numbers of the training graph (init="normal")."""


class DUPLEX(BaseEstimator):
    """Complex embeddings x_u = a_u exp(i th_u) of a directed graph (paper, § dual GAT encoder).

    Args:
        dim: d, numbers in a and in th; also the hidden width.
        layers: L; 3, or 2 for inductive use (paper, § experiments).
        heads: attention heads.
        dropout: between layers.
        fusion: "add", or "none" for channels that do not hear each other.
        fuse_at: the fusion layer, by default L - 2.
        init: inputs: "degree", "normal" (the paper's without features), "spectral", "features"; see `node_inputs`.
        lam: lambda, weight of the connection-aware loss.
        lam_decay: q, lambda becomes lambda (1 - q) after each epoch.
        neg_ratio: r, non-edges drawn for each training pair.
        lr: of Adam. The official setting, 1e-3, takes thousands of epochs.
        norm: "l2" or "l1", distance of (re, im) from the targets. The official code trains with l2, evaluates with l1.
        random_state: seed; None stands for 0.
        device: "auto", "cpu", "cuda", ...

    Attributes:
        encoder_: the trained `DualGATEncoder`.
        history_: losses and validation scores.
        graph: the training graph.
        temperature_: of the type probabilities, 1 until `calibrate`.
    """

    encoder_: DualGATEncoder
    history_: History
    temperature_: float

    def __init__(
        self,
        dim: int = 64,
        *,
        layers: int = 3,
        heads: int = 1,
        dropout: float = 0.1,
        fusion: str = "add",
        fuse_at: int | None = None,
        init: str = "degree",
        lam: float = 0.3,
        lam_decay: float = 0.0,
        neg_ratio: float = 1.0,
        lr: float = 1e-2,
        norm: str = "l2",
        random_state: int | None = None,
        device: str = "auto",
    ) -> None:
        self.dim = dim
        self.layers = layers
        self.heads = heads
        self.dropout = dropout
        self.fusion = fusion
        self.fuse_at = fuse_at
        self.init = init
        self.lam = lam
        self.lam_decay = lam_decay
        self.neg_ratio = neg_ratio
        self.lr = lr
        self.norm = norm
        self.random_state = random_state
        self.device = device

    def fit(
        self,
        train_data: object,
        val: PairSet | None = None,
        *,
        epochs: int = 300,
        batch_size: int | None = None,
        fanout: tuple[int, int] | None = None,
        every: int = 10,
        patience: int | None = None,
    ) -> "DUPLEX":
        """Train on the links of a graph.

        Args:
            train_data: a graph of any kind; of a `split_edges`, its `train`.
            val: pairs by which the best epoch is kept.
            epochs: passes over the pairs.
            batch_size: pairs in a step; all of them, on the whole graph, by default.
            fanout: (k_in, k_out) neighbours drawn per node and layer, with a batch size.
            every: epochs between looks at `val`.
            patience: stop after so many epochs without a better look.

        Raises:
            ValueError: if the graph has no edges or not the features asked for, or an argument is out of range (all
                such arguments are listed at once).
        """
        self._check(epochs, batch_size, fanout, every, patience)
        graph = as_graph(train_data)
        if graph.num_edges == 0:
            raise ValueError("train must have edges to learn from, got a graph without any.")
        seed = 0 if self.random_state is None else self.random_state
        seeds, device = spawn(seed, 3), pick_device(self.device)
        x = node_inputs(graph, self.init, self.dim, seeds[0]).to(device)
        self.encoder_ = self._encoder(x.shape[2], rng(seeds[1], "cpu")).to(device)
        self._graph, self._seed, self.temperature_ = graph, seeds[0], 1.0
        material = Material(graph, x, message_graph(graph).to(device, x.dtype), self.encoder_)
        recipe = Recipe(
            epochs,
            self.lr,
            self.lam,
            self.lam_decay,
            self.neg_ratio,
            self.norm,
            seeds[2],
            every,
            patience,
            batch_size,
            fanout,
        )
        self.history_ = train(material, recipe, val)
        self._embedding = self._embedded(material)
        return self

    def _check(
        self,
        epochs: int,
        batch_size: int | None,
        fanout: tuple[int, int] | None,
        every: int,
        patience: int | None,
    ) -> None:
        with Problems("cannot fit DUPLEX") as problems:
            check = problems.check
            for name, value in {"dim": self.dim, "layers": self.layers, "heads": self.heads}.items():
                check(require_range, name, value, low=1, integer=True)
            for name, value in {"epochs": epochs, "every": every}.items():
                check(require_range, name, value, low=1, integer=True)
            for name, value in {"batch_size": batch_size, "patience": patience}.items():
                if value is not None:
                    check(require_range, name, value, low=1, integer=True)
            check(require_range, "dropout", self.dropout, low=0, high=1, high_open=True)
            check(require_range, "lam", self.lam, low=0)
            check(require_range, "lam_decay", self.lam_decay, low=0, high=1)
            for name, value in {"neg_ratio": self.neg_ratio, "lr": self.lr}.items():
                check(require_range, name, value, low=0, low_open=True)
            check(require_choice, "fusion", self.fusion, FUSIONS)
            check(require_choice, "init", self.init, INITS)
            check(require_choice, "norm", self.norm, NORMS)
            if fanout is not None and batch_size is None:
                problems.add("fanout must come with a batch_size, got None. Without one the whole graph is used.")

    def _encoder(self, width: int, generator: torch.Generator | None = None) -> DualGATEncoder:
        return DualGATEncoder(
            width,
            self.dim,
            layers=self.layers,
            heads=self.heads,
            dropout=self.dropout,
            fusion=self.fusion,
            fuse_at=self.fuse_at,
            generator=generator,
        )

    def _embedded(self, material: Material) -> Embedding:
        a, th = material.embed().cpu().unbind(0)
        return Embedding(a, th, material.graph.names, material.classes, self.norm, self.temperature_)

    def _fitted(self) -> Embedding:
        if not hasattr(self, "_embedding"):
            raise NotFittedError("this DUPLEX has not been fitted. Call fit first.")
        return self._embedding

    @property
    def graph(self) -> Graph:
        """The training graph."""
        self._fitted()
        return self._graph

    def embed(self, data: object | None = None) -> Embedding:
        """Embed the training graph, or another one without training again.

        Args:
            data: a graph of any kind; it may hold unseen nodes. Its edges carry the messages.

        Raises:
            NotInductiveError: if it has other nodes and the inputs were random (init="normal").
            ValueError: if it lacks the features that the model was fitted on.
        """
        if data is None:
            return self._fitted()
        self._fitted()
        graph, device = as_graph(data), next(self.encoder_.parameters()).device
        known = (self._graph.num_nodes, self._graph.names)
        if self.init == "normal" and (graph.num_nodes, graph.names) != known:
            raise NotInductiveError(
                f"graph must have the {known[0]} training nodes, in their order, when init is 'normal', got "
                f"{graph.num_nodes} or others: unseen nodes have no input. Fit with init='degree', 'spectral' or "
                "'features'."
            )
        if self.init == "features":
            require_features(graph, self.encoder_.layers[0].in_dim)  # type: ignore[bad-argument-type]
        x = node_inputs(graph, self.init, self.dim, self._seed).to(device)
        material = Material(graph, x, message_graph(graph).to(device, x.dtype), self.encoder_)
        return replace(self._embedded(material), classes=self._embedding.classes)

    def predict_edges(
        self,
        pairs: "torch.Tensor | np.ndarray | Sequence[tuple[Hashable, Hashable]]",
        task: str = "type",
        data: object | None = None,
    ) -> np.ndarray:
        """Probabilities of pairs; see `Embedding.predict_edges`.

        Args:
            pairs: m pairs: an array of node indices, or a sequence of names.
            task: "existence", "direction", "three" or "type".
            data: the graph that the pairs are of, where it is not the training graph.

        Raises:
            ValueError: if directions are asked for and the graph that was trained on has no one-way edge.
        """
        found = self.embed(data)
        if task in ("direction", "three") and self._graph.one_way() == 0:
            raise ValueError(f"task {task!r} must have one-way edges to learn from, got a graph with no one-way edges.")
        return found.predict_edges(pairs, task)

    def score(self, pairs: "torch.Tensor | np.ndarray | Sequence[tuple[Hashable, Hashable]]") -> np.ndarray:
        """(m,) probabilities that there is an edge u->v."""
        return self.predict_edges(pairs, "existence")

    def calibrate(self, val: PairSet) -> "DUPLEX":
        """Choose the temperature T of softmax(logits / T) that gives the validation pairs the largest likelihood.

        Raises:
            ValueError: if there are no pairs.
        """
        if len(val) == 0:
            raise ValueError("val must hold pairs to calibrate on, got none.")
        logits = replace(self._fitted(), temperature=1.0).logits(val.pairs)

        def loss(log_t: float) -> float:
            return float(torch.nn.functional.cross_entropy(logits / math.exp(log_t), val.types))

        self.temperature_ = math.exp(minimize_scalar(loss, bounds=(-5, 5), method="bounded").x)
        self._embedding = replace(self._embedding, temperature=self.temperature_)
        return self

    def save(self, path: str | Path) -> Path:
        """Write weights, arguments and the training graph to `<path>.safetensors` and `<path>.json`.

        Raises:
            ValueError: if names of nodes are neither text nor integers.
        """
        embedding, graph = self._fitted(), self._graph
        tensors = {f"encoder.{name}": value for name, value in self.encoder_.state_dict().items()}
        for name in ("edge_index", "x", "y", "weight", "messages"):
            if (value := getattr(graph, name)) is not None:
                tensors[f"graph.{name}"] = value
        tensors |= {"amplitude": embedding.amplitude, "phase": embedding.phase}
        config = {
            "kind": "model", "params": self.get_params(), "num_nodes": graph.num_nodes, "seed": self._seed,
            "names": require_saveable(graph.names), "temperature": self.temperature_, "history": vars(self.history_),
            "width": self.encoder_.layers[0].in_dim,
        }  # fmt: skip
        return checkpoint.save(path, tensors, method=DIST, version=VERSION, config=config)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> "DUPLEX":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is another file.
        """
        found = checkpoint.load(path, method=DIST, framework="torch")
        config: Mapping = found.config
        if config.get("kind") != "model":
            raise ValueError(f"{path} must hold a model, got another file of {DIST}. Try Embedding.load.")
        model = cls(**{**config["params"], "device": device})  # type: ignore[bad-argument-type]
        tensors = dict(found.tensors)
        kept = {name: tensors.get(f"graph.{name}") for name in ("edge_index", "x", "y", "weight", "messages")}
        names = None if config["names"] is None else tuple(config["names"])
        model._graph = Graph(num_nodes=config["num_nodes"], names=names, **kept)  # type: ignore[bad-argument-type]
        model._seed, model.temperature_ = config["seed"], config["temperature"]
        model.history_ = History(**config["history"])
        model.encoder_ = model._encoder(config["width"]).to(pick_device(device))
        state = {name.removeprefix("encoder."): value for name, value in tensors.items() if name.startswith("encoder.")}
        model.encoder_.load_state_dict(state)  # type: ignore[bad-argument-type]
        model.encoder_.eval()
        classes = 5 if model._graph.signed else 4
        parts = (tensors["amplitude"], tensors["phase"], names, classes, model.norm, model.temperature_)
        model._embedding = Embedding(*parts)  # type: ignore[bad-argument-type]
        return model
