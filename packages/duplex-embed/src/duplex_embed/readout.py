"""Labels of nodes from an embedding, by a small network (paper, § experiments)."""

import numpy as np
import torch
from offprints.checks import require_shape
from offprints.seeding import rng, spawn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.metrics import f1_score

from duplex_embed.embedding import Embedding
from duplex_embed.graph import Graph


def macro_f1(y: torch.Tensor | np.ndarray, predicted: torch.Tensor | np.ndarray) -> float:
    """Mean over the classes present of the F1 score."""
    y, predicted = np.asarray(y), np.asarray(predicted)
    # pyrefly: ignore[bad-argument-type]
    return float(f1_score(y, predicted, labels=np.unique(y), average="macro", zero_division=0))


def labelled(graph: Graph, mask: torch.Tensor | None, name: str) -> torch.Tensor:
    """Indices of the nodes of a mask that have a label (0 or more)."""
    y = graph.labels()
    chosen = torch.ones(graph.num_nodes, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
    require_shape(name, chosen, (graph.num_nodes,))
    if chosen.dtype != torch.bool:
        raise TypeError(f"{name} must be booleans (n,), got {chosen.dtype}.")
    return (chosen & (y >= 0)).nonzero().squeeze(1)


class EmbeddingClassifier(ClassifierMixin, BaseEstimator):
    """Labels from [a, th] by a network 2d -> 4d -> C (paper, § experiments).

    Args:
        dropout: on the hidden layer.
        lr: of Adam.
        random_state: seed; None stands for 0.

    Attributes:
        classes_: (C,) the labels.
    """

    classes_: np.ndarray

    def __init__(self, *, dropout: float = 0.3, lr: float = 1e-3, random_state: int | None = None) -> None:
        self.dropout = dropout
        self.lr = lr
        self.random_state = random_state

    def fit(
        self,
        embedding: Embedding,
        y: torch.Tensor,
        mask: torch.Tensor,
        val_mask: torch.Tensor | None = None,
        *,
        epochs: int = 1000,
        every: int = 10,
    ) -> "EmbeddingClassifier":
        """Train on the labels of some nodes, keeping the best validation macro-F1.

        Args:
            embedding: n nodes.
            y: (n,) labels; -1 is unlabelled.
            mask: (n,) booleans: nodes to learn from.
            val_mask: (n,) booleans.
            epochs: steps.
            every: epochs between looks at the validation nodes.

        Raises:
            ValueError: if there are no labelled nodes to learn from.
        """
        require_shape("y", y, (embedding.num_nodes,))
        graph = Graph(torch.empty(2, 0, dtype=torch.int64), embedding.num_nodes, y=y)
        nodes = labelled(graph, mask, "mask")
        if not len(nodes):
            raise ValueError("mask must hold labelled nodes to learn from, got none.")
        watched = None if val_mask is None else labelled(graph, val_mask, "val_mask")
        x, seeds = embedding.concatenated().float().cpu(), spawn(self.random_state or 0, 2)
        self.classes_ = np.arange(int(y.max()) + 1)
        self._center, self._spread = x[nodes].mean(0), x[nodes].std(0, correction=0).clamp(min=1e-6)
        self._weights = _mlp(x.shape[1], 2 * x.shape[1], len(self.classes_), rng(seeds[0], "cpu"))
        optimizer, dropper = torch.optim.Adam(self._weights, lr=self.lr), rng(seeds[1], "cpu")
        best, kept = -1.0, None
        for epoch in range(1, epochs + 1):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self._logits(x[nodes], dropper), y[nodes].long())
            loss.backward()
            optimizer.step()
            if watched is not None and (epoch % every == 0 or epoch == epochs):
                with torch.no_grad():
                    score = macro_f1(y[watched], self._logits(x[watched]).argmax(1))
                if score > best:
                    best, kept = score, [w.detach().clone() for w in self._weights]
        self._weights = [w.detach() for w in (kept or self._weights)]
        return self

    def _logits(self, x: torch.Tensor, dropper: torch.Generator | None = None) -> torch.Tensor:
        first, bias, second, offset = self._weights
        hidden = torch.relu((x - self._center) / self._spread @ first + bias)
        if dropper is not None:
            hidden = hidden * (torch.rand(hidden.shape, generator=dropper) >= self.dropout) / (1 - self.dropout)
        return hidden @ second + offset

    @torch.no_grad()
    def predict_proba(self, embedding: Embedding) -> np.ndarray:
        """(n, C) probabilities.

        Raises:
            NotFittedError: before `fit`.
        """
        if not hasattr(self, "_weights"):
            raise NotFittedError("this EmbeddingClassifier has not been fitted. Call fit first.")
        return torch.softmax(self._logits(embedding.concatenated().float().cpu()), 1).numpy()

    def predict(self, embedding: Embedding) -> np.ndarray:
        """(n,) labels."""
        return self.predict_proba(embedding).argmax(1)


def _mlp(inputs: int, hidden: int, outputs: int, generator: torch.Generator) -> list[torch.Tensor]:
    shapes = [(inputs, hidden), (hidden,), (hidden, outputs), (outputs,)]
    weights = []
    for shape in shapes:
        value = torch.zeros(shape)
        if len(shape) == 2:
            value.normal_(0, (2 / shape[0]) ** 0.5, generator=generator)
        weights.append(value.requires_grad_())
    return weights
