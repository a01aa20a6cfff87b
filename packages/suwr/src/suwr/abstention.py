"""Calibrated abstention: "stop, there is not enough information within the budget" (T of Section 3)."""

from dataclasses import dataclass

import numpy as np
from offprints.checks import message, require_kind, require_range, require_shape

from suwr.estimators import SUWRClassifier


@dataclass(frozen=True)
class Abstention:
    """A classifier that answers only where it is sure enough. Made by `calibrate`.

    Attributes:
        model: the fitted classifier.
        threshold: least probability of the predicted class; above 1 it never answers.
        bound: upper confidence bound of the error rate among answered rows, on the calibration rows; 1 if none.
        coverage: share of the calibration rows that are answered.
    """

    model: SUWRClassifier
    threshold: float
    bound: float
    coverage: float

    def answers(self, X: object) -> np.ndarray:
        """(n,) bool: whether there is enough information within the budget.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        return self.model.predict_proba(X).max(axis=1) >= self.threshold

    def predict(self, X: object) -> np.ma.MaskedArray:
        """(n,) labels, masked where it abstains; the decision reads nothing but the shown features.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        proba = self.model.predict_proba(X)
        labels = self.model.classes_[proba.argmax(axis=1)]
        return np.ma.MaskedArray(labels, mask=proba.max(axis=1) < self.threshold)


def calibrate(
    model: SUWRClassifier, X: object, y: object, *, max_error: float = 0.05, confidence: float = 0.9
) -> Abstention:
    """The lowest threshold that keeps the error among answered rows below `max_error`, with that confidence.

    Thresholds are tested from the strictest on, each by the exact (Clopper-Pearson) upper bound of its error rate at
    level 1 - confidence, until one fails: a fixed sequence, so that no correction for many tests is due.

    Args:
        model: a fitted classifier.
        X: (n, d) calibration rows that `fit` has not seen.
        y: (n,) their labels.
        max_error: in (0, 1).
        confidence: in (0, 1).

    Raises:
        TypeError, ValueError: for other values, no rows, or labels that the model does not know.
    """
    from scipy.stats import beta

    require_kind("model", model, SUWRClassifier)
    for name, value in (("max_error", max_error), ("confidence", confidence)):
        require_range(name, value, low=0, high=1, low_open=True, high_open=True)
    proba = model.predict_proba(X)
    labels = np.asarray(y)
    require_shape("y", labels, (len(proba),))
    if len(labels) == 0:
        raise ValueError(message("X", "of at least one calibration row", "none"))
    if unknown := sorted(set(labels.tolist()) - set(model.classes_.tolist()), key=str):
        raise ValueError(message("y", "of classes that the model knows", f"unseen {unknown[0]!r}"))
    sure, wrong = proba.max(axis=1), model.classes_[proba.argmax(axis=1)] != labels
    best = Abstention(model, float(np.nextafter(1.0, 2.0)), 1.0, 0.0)
    grid = np.unique(np.quantile(sure, np.linspace(0, 1, 101)))[::-1]  # tested in this order
    for threshold in grid:
        answered = sure >= threshold
        errors, count = int(wrong[answered].sum()), int(answered.sum())
        if (1 - confidence) ** (1 / count) < 1 - max_error:
            continue  # too few rows: not even without an error could it pass, whatever the labels
        bound = 1.0 if errors == count else float(beta.ppf(confidence, errors + 1, count - errors))
        if bound > max_error:
            break
        best = Abstention(model, float(threshold), bound, float(answered.mean()))
    return best
