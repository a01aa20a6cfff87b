"""The trade of loss against the number of features: one fit for each price lambda (equation 12)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from offprints.checks import message, require_kind, require_range
from sklearn.base import clone, is_classifier
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.model_selection import train_test_split
from sklearn.utils import indexable

if TYPE_CHECKING:
    import pandas as pd

    from suwr.base import SUWREstimator


@dataclass(frozen=True)
class PathPoint:
    """One price.

    Attributes:
        sparsity: the price.
        loss: log-loss in nats, or mean squared error, on the held-out rows.
        n_features: mean number of features shown there.
        model: the fitted estimator.
    """

    sparsity: float
    loss: float
    n_features: float
    model: "SUWREstimator"


@dataclass(frozen=True)
class SparsityPath:
    """Fits in the order of rising price.

    Attributes:
        points: one for each price.
    """

    points: tuple[PathPoint, ...]

    def pareto(self) -> list[PathPoint]:
        """The points that no other one beats in both loss and number of features, from few features to many."""
        front: list[PathPoint] = []
        for point in sorted(self.points, key=lambda p: (p.n_features, p.loss)):
            if not front or point.loss < front[-1].loss:
                front.append(point)
        return front

    def to_frame(self) -> "pd.DataFrame":
        """Columns sparsity, loss, n_features, pareto; needs pandas."""
        import pandas as pd

        front = {id(point) for point in self.pareto()}
        rows = [(p.sparsity, p.loss, p.n_features, id(p) in front) for p in self.points]
        return pd.DataFrame(rows, columns=["sparsity", "loss", "n_features", "pareto"])


def sweep(
    model: "SUWREstimator", X: object, y: object, sparsities: Sequence[float], test_fraction: float
) -> SparsityPath:
    """Fit clones of a model at several prices on the same rows, and measure them on the others.

    Raises:
        TypeError, ValueError: for prices that are negative, none at all, or a share outside (0, 1).
    """
    require_kind("sparsities", sparsities, (list, tuple, np.ndarray))
    if not len(sparsities):
        raise ValueError(message("sparsities", "at least one price", "none"))
    prices = sorted({float(require_range("sparsities", price, low=0)) for price in sparsities})
    require_range("test_fraction", test_fraction, low=0, high=1, low_open=True, high_open=True)
    X, y = indexable(X, y)  # pyrefly: ignore[not-iterable]
    seed = model.random_state if isinstance(model.random_state, int) else 0
    stratify = y if is_classifier(model) and np.unique(np.asarray(y), return_counts=True)[1].min() >= 2 else None
    X_fit, X_held, y_fit, y_held = train_test_split(X, y, test_size=test_fraction, random_state=seed, stratify=stratify)
    points = []
    for price in prices:
        fitted = clone(model).set_params(sparsity=price).fit(X_fit, y_fit)
        if is_classifier(model):
            loss = log_loss(y_held, fitted.predict_proba(X_held), labels=fitted.classes_)
        else:
            loss = mean_squared_error(y_held, fitted.predict(X_held))
        shown = fitted.local_support(X_held).sum(axis=1).mean()
        points.append(PathPoint(price, float(loss), float(shown), fitted))
    return SparsityPath(tuple(points))
