"""The reward model in use: features and ensemble together, over a whole space or variant by variant (Section 3)."""

import numpy as np
from offprints.checks import message
from sklearn.base import clone

from knowrlm.encode import FeatureMap
from knowrlm.predictor import EnsemblePredictor, predict_space

FEWEST = 5


class Surrogate:
    """f̂ over variants: fitted on the library every round, asked by the walk and for the last plate (Algorithm 1).

    For an enumerable space the first question predicts everything, as the reward table of Section 3; larger spaces are
    predicted variant by variant, and remembered.

    Args:
        features: of the variants.
        predictor: cloned at every fit.
    """

    def __init__(self, features: FeatureMap, predictor: EnsemblePredictor) -> None:
        self.features, self.space = features, features.space
        self._template = predictor
        self.model: EnsemblePredictor | None = None
        self._table: np.ndarray | None = None
        self._memory: dict[bytes, np.ndarray] = {}

    def fit(self, codes: np.ndarray, fitness: np.ndarray) -> "Surrogate":
        """Fit anew on (n, k) variants and (n,) fitness."""
        self.model = clone(self._template).fit(self.features(codes), fitness)
        self._table = None
        self._memory = {}
        return self

    @property
    def constant(self) -> bool:
        """Whether the model knows nothing but a mean: all labels were equal."""
        return self.model is None or self.model.constant_

    @property
    def table(self) -> np.ndarray:
        """(t, size) predictions of each model for every variant.

        Raises:
            ValueError: if the space is not enumerable or nothing was fitted.
        """
        if self._table is None:
            self._table = predict_space(self._fitted(), self.features)
        return self._table

    def each(self, codes: np.ndarray) -> np.ndarray:
        """(t, n) predictions of each model for (n, k) variants."""
        if self.space.enumerable:
            return self.table[:, self.space.index(codes)]
        keys = [row.tobytes() for row in np.ascontiguousarray(codes, dtype=np.int8)]
        fresh = {key: place for place, key in enumerate(keys) if key not in self._memory}
        if fresh:
            found = self._fitted().predict_each(self.features(np.asarray(codes)[list(fresh.values())])).T
            self._memory.update(zip(fresh, found, strict=True))
        return np.stack([self._memory[key] for key in keys], axis=1) if keys else np.zeros((1, 0))

    def _fitted(self) -> EnsemblePredictor:
        if self.model is None:
            raise ValueError(message("surrogate", "fitted", "not", "Call fit first."))
        return self.model

    def predict(self, codes: np.ndarray) -> np.ndarray:
        """(n,) mean predictions."""
        return self.each(codes).mean(axis=0)

    def acquire(self, codes: np.ndarray, beta: float = 0.0) -> np.ndarray:
        """(n,) mean + β · standard deviation over the chosen models: an upper confidence bound for β > 0."""
        each = self.each(codes)
        return each.mean(axis=0) + beta * each.std(axis=0)

    def best(self, n: int, beta: float = 0.0) -> np.ndarray:
        """(n, k) variants of the highest prediction in an enumerable space, best first."""
        score = self.table.mean(axis=0)
        if beta:
            score = score + beta * self.table.std(axis=0)
        n = min(n, self.space.size)
        top = np.argpartition(-score, n - 1)[:n]
        return self.space.codes(top[np.lexsort((top, -score[top]))])
