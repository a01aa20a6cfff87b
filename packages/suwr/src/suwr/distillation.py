"""Distil a black box: a selector that leaks nothing, fitted on its soft outputs (the policy of Section 3)."""

from collections.abc import Callable
from typing import Any

import numpy as np
from offprints.checks import message
from sklearn.base import BaseEstimator, is_regressor

from suwr.estimators import SUWRClassifier, SUWRRegressor


def distill(
    black_box: object, X: object, estimator: SUWRClassifier | SUWRRegressor | None = None
) -> SUWRClassifier | SUWRRegressor:
    """Fit a selector and predictor on what a fitted model says about X; no labels are needed.

    Args:
        black_box: a model with `predict_proba` (and `classes_`), a regressor with `predict`, or a function from rows to
            (n, K) probabilities or (n,) numbers.
        X: (n, d).
        estimator: unfitted, changed in place; None: the default one of the kind that the outputs ask for.

    Returns:
        The fitted estimator.

    Raises:
        TypeError: if the model has neither, or estimator and outputs are not of one kind.
    """
    model: Any = black_box
    says: Callable[[object], object] | None = getattr(model, "predict_proba", None)
    if says is None:
        regressor = isinstance(black_box, BaseEstimator) and is_regressor(black_box)
        says = model.predict if regressor else black_box if callable(black_box) else None
    if says is None:
        raise TypeError(
            message("black_box", "a classifier with predict_proba, a regressor or a function", type(black_box))
        )
    rows: Any = X
    outputs = np.asarray(
        says(rows.copy() if hasattr(rows, "copy") else rows), dtype=float
    )  # it may change what it gets
    if outputs.ndim == 2:
        estimator = SUWRClassifier() if estimator is None else estimator
        if not isinstance(estimator, SUWRClassifier):
            raise TypeError(message("estimator", "a SUWRClassifier for probabilities", type(estimator).__name__))
        return estimator.fit_soft(X, outputs, getattr(black_box, "classes_", None))
    estimator = SUWRRegressor() if estimator is None else estimator
    if not isinstance(estimator, SUWRRegressor):
        raise TypeError(message("estimator", "a SUWRRegressor for numbers", type(estimator).__name__))
    return estimator.fit(X, outputs)
