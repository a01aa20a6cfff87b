"""Labels of nodes end to end, for nodes that training never saw too (paper, § experiments)."""

import copy
from pathlib import Path

import numpy as np
import torch
from offprints import checkpoint
from offprints.checks import require_choice, require_range
from offprints.device import pick_device
from offprints.seeding import rng, spawn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from duplex_embed._version import DIST, VERSION
from duplex_embed.encoder import DualGATEncoder
from duplex_embed.graph import Graph, as_graph
from duplex_embed.inputs import node_inputs, require_features
from duplex_embed.messages import message_graph
from duplex_embed.model import NotInductiveError
from duplex_embed.readout import labelled, macro_f1


class DUPLEXClassifier(ClassifierMixin, BaseEstimator):
    """Dual encoder and a linear layer on [a, th], trained on labels by cross entropy (paper, § experiments).

    It takes graphs, not arrays: `fit(graph)` with labels in the graph, `predict(other_graph)` for graphs with unseen
    nodes. scikit-learn's clone, get_params and set_params work; its checks of array estimators do not apply.

    Args:
        num_classes: C; by default one more than the largest label.
        dim: d; also the hidden width.
        layers: L.
        heads: attention heads.
        dropout: between layers.
        fusion: "add" or "none".
        fuse_at: the fusion layer, L - 2 by default; the official inductive setting takes L - 1.
        init: inputs, "features" by default; see `node_inputs`.
        lr: of Adam (the paper: 1e-3).
        weight_decay: of Adam.
        random_state: seed; None stands for 0.
        device: "auto", "cpu", "cuda", ...

    Attributes:
        classes_: (C,) the labels.
        history_: validation macro-F1 by epoch looked at, or the loss without validation nodes.
    """

    classes_: np.ndarray
    history_: list[float]
    encoder_: DualGATEncoder
    linear_: torch.nn.Linear

    def __init__(
        self,
        num_classes: int | None = None,
        *,
        dim: int = 64,
        layers: int = 2,
        heads: int = 1,
        dropout: float = 0.5,
        fusion: str = "add",
        fuse_at: int | None = None,
        init: str = "features",
        lr: float = 1e-2,
        weight_decay: float = 1e-2,
        random_state: int | None = None,
        device: str = "auto",
    ) -> None:
        self.num_classes = num_classes
        self.dim = dim
        self.layers = layers
        self.heads = heads
        self.dropout = dropout
        self.fusion = fusion
        self.fuse_at = fuse_at
        self.init = init
        self.lr = lr
        self.weight_decay = weight_decay
        self.random_state = random_state
        self.device = device

    def fit(
        self,
        data: object,
        mask: torch.Tensor | None = None,
        val_mask: torch.Tensor | None = None,
        *,
        epochs: int = 200,
        every: int = 5,
    ) -> "DUPLEXClassifier":
        """Train on the labelled nodes of a graph.

        Args:
            data: a graph of any kind, with labels y; -1 is unlabelled.
            mask: (n,) booleans: nodes to learn from; all by default.
            val_mask: (n,) booleans: nodes by whose macro-F1 the best epoch is kept.
            epochs: steps.
            every: epochs between looks at the validation nodes.

        Raises:
            ValueError: if there are no labels to learn from, a label is out of range, or features are missing.
        """
        for name, value in {"epochs": epochs, "every": every}.items():
            require_range(name, value, low=1, integer=True)
        graph, device = as_graph(data), pick_device(self.device)
        nodes = labelled(graph, mask, "mask")
        if not len(nodes):
            raise ValueError("data must have labelled nodes to learn from, got none.")
        watched = None if val_mask is None else labelled(graph, val_mask, "val_mask")
        y = graph.labels().long()
        top = int(y.max()) + 1
        classes = (
            top
            if self.num_classes is None
            else int(require_range("num_classes", self.num_classes, low=1, integer=True))
        )
        if top > classes:
            raise ValueError(f"labels must lie below num_classes = {classes}, got {top - 1}.")
        seeds = spawn(0 if self.random_state is None else self.random_state, 3)
        self._seed, self.classes_ = seeds[0], np.arange(classes)
        x = node_inputs(graph, self.init, self.dim, seeds[0]).to(device)
        self._build(x.shape[2], graph.num_nodes, rng(seeds[1], "cpu"))
        self._move(device)
        self._train(graph, x, y.to(device), nodes, watched, epochs, every, rng(seeds[2], device))
        return self

    def _build(self, width: int, num_nodes: int, generator: torch.Generator) -> None:
        require_choice("fusion", self.fusion, ("add", "none"))
        self._width, self._num_nodes = width, num_nodes
        self.encoder_ = DualGATEncoder(
            width,
            self.dim,
            layers=self.layers,
            heads=self.heads,
            dropout=self.dropout,
            fusion=self.fusion,
            fuse_at=self.fuse_at,
            generator=generator,
        )
        # pyrefly: ignore[bad-assignment]
        self.linear_ = torch.nn.utils.skip_init(torch.nn.Linear, 2 * self.dim, len(self.classes_))
        bound = (2 * self.dim) ** -0.5
        with torch.no_grad():
            self.linear_.weight.uniform_(-bound, bound, generator=generator)
            self.linear_.bias.zero_()

    def _move(self, device: torch.device) -> None:
        self.encoder_.to(device)
        self.linear_.to(device)

    def _train(
        self,
        graph: Graph,
        x: torch.Tensor,
        y: torch.Tensor,
        nodes: torch.Tensor,
        watched: torch.Tensor | None,
        epochs: int,
        every: int,
        dropper: torch.Generator,
    ) -> None:
        messages = message_graph(graph).to(x.device, x.dtype)
        modules = torch.nn.ModuleList([self.encoder_, self.linear_])
        optimizer = torch.optim.Adam(modules.parameters(), lr=self.lr, weight_decay=self.weight_decay)
        best, kept, self.history_ = -1.0, None, []
        for epoch in range(1, epochs + 1):
            modules.train()
            optimizer.zero_grad()
            a, th = self.encoder_.run(x, [messages], dropper).unbind(0)
            logits = self.linear_(torch.cat((a, th), 1)[nodes])
            loss = torch.nn.functional.cross_entropy(logits, y[nodes])
            loss.backward()
            optimizer.step()
            if watched is None:
                self.history_.append(float(loss.detach()))
            elif epoch % every == 0 or epoch == epochs:
                score = macro_f1(y[watched].cpu(), self._logits(x, messages)[watched].argmax(1).cpu())
                self.history_.append(score)
                if score > best:
                    best, kept = score, copy.deepcopy(modules.state_dict())
        if kept is not None:
            modules.load_state_dict(kept)
        modules.eval()

    @torch.no_grad()
    def _logits(self, x: torch.Tensor, messages: "object") -> torch.Tensor:
        self.encoder_.eval()
        a, th = self.encoder_.infer(x, messages).unbind(0)  # type: ignore[bad-argument-type]
        return self.linear_(torch.cat((a, th), 1))

    def predict_proba(self, data: object) -> np.ndarray:
        """(n, C) probabilities of the labels, for the training graph or one with unseen nodes.

        Raises:
            NotFittedError: before `fit`.
            NotInductiveError: if there are other nodes and the inputs were random (init="normal").
            ValueError: if features are missing.
        """
        if not hasattr(self, "encoder_"):
            raise NotFittedError("this DUPLEXClassifier has not been fitted. Call fit first.")
        graph = as_graph(data)
        if self.init == "normal" and graph.num_nodes != self._num_nodes:
            raise NotInductiveError(
                f"graph must have the {self._num_nodes} training nodes when init is 'normal', got {graph.num_nodes}."
            )
        if self.init == "features":
            require_features(graph, self._width)
        device = self.linear_.weight.device
        x = node_inputs(graph, self.init, self.dim, self._seed).to(device)
        return torch.softmax(self._logits(x, message_graph(graph).to(device, x.dtype)), 1).cpu().numpy()

    def predict(self, data: object) -> np.ndarray:
        """(n,) labels."""
        found = self.predict_proba(data).argmax(1)
        return self.classes_[found]

    def score(self, data: object, mask: torch.Tensor | None = None) -> float:  # type: ignore[bad-override]
        """Macro-F1 on the labelled nodes of a graph (of `mask`)."""
        graph = as_graph(data)
        nodes = labelled(graph, mask, "mask")
        return macro_f1(graph.labels()[nodes], self.predict(graph)[nodes.numpy()])

    def save(self, path: str | Path) -> Path:
        """Write weights and arguments to `<path>.safetensors` and `<path>.json`."""
        if not hasattr(self, "encoder_"):
            raise NotFittedError("this DUPLEXClassifier has not been fitted. Call fit first.")
        tensors = {f"encoder.{name}": value for name, value in self.encoder_.state_dict().items()}
        tensors |= {f"linear.{name}": value for name, value in self.linear_.state_dict().items()}
        config = {
            "kind": "classifier", "params": self.get_params(), "width": self._width, "seed": self._seed,
            "num_nodes": self._num_nodes, "classes": len(self.classes_), "history": self.history_,
        }  # fmt: skip
        return checkpoint.save(path, tensors, method=DIST, version=VERSION, config=config)

    @classmethod
    def load(cls, path: str | Path, device: str = "auto") -> "DUPLEXClassifier":
        """Read what `save` wrote.

        Raises:
            ValueError: if it is another file.
        """
        found = checkpoint.load(path, method=DIST, framework="torch")
        config = dict(found.config)
        if config.get("kind") != "classifier":
            raise ValueError(f"{path} must hold a classifier, got another file of {DIST}.")
        model = cls(**{**config["params"], "device": device})  # type: ignore[bad-argument-type]
        model.classes_, model._seed = np.arange(config["classes"]), config["seed"]  # type: ignore[no-matching-overload]
        model._build(config["width"], config["num_nodes"], rng(0, "cpu"))  # type: ignore[bad-argument-type]
        model.history_ = config["history"]  # type: ignore[bad-assignment]
        for part, module in {"encoder": model.encoder_, "linear": model.linear_}.items():
            kept = {k.removeprefix(f"{part}."): v for k, v in found.tensors.items() if k.startswith(f"{part}.")}
            module.load_state_dict(kept)  # type: ignore[bad-argument-type]
            module.eval()
        model._move(pick_device(device))
        return model
