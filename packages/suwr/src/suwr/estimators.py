"""The estimators of Section 3: a classifier and a regressor that show a few features of every row and use no others."""

from collections.abc import Sequence
from typing import Self

import numpy as np
import torch
from offprints.checks import message, require_range
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore[missing-module-attribute]

from suwr.base import SUWREstimator
from suwr.inputs import check_parameters, columns_of, numbers


class SUWRClassifier(ClassifierMixin, SUWREstimator):
    """Selects features one at a time in every row, may stop at any time, and predicts from what it has seen.

    State t: the revealed features x_S. It stops with sigma(z(x_S)), else reveals argmax (training: a draw from the
    softmax) of the selection logits among the hidden ones, and never hides one again. Every factor of
    P(S | x) = sum over orders of sigma(z(x_S)) prod (1 - sigma(z(x_St))) q(i_{t+1} | x_St) reads x_S only: the
    selection tells nothing about hidden features or the label (Section 3).
    Trained on sum p_t [loss_scale * cross-entropy + sparsity * cost_t] (equations 11 and 12).

    Args:
        max_features: budget T, in features or groups; None: all.
        sparsity: price of a feature; sparsity / loss_scale nats of log-loss.
        groups: lists of columns that are revealed together, a partition; or `image_patches(...)`.
        feature_costs: price of each feature (group) relative to others; None: 1.
        step_size: how many are revealed between two decisions to stop.
        hidden: width h.
        layers: depth L of the trunk, at least 2; the paper: 3 for tables (h = 100), 8 for images (h = 200).
        trunk: "shared" or "separate".
        stop: "threshold" (deterministic: stop where sigma(z) >= 1/2) or "sample" (draws that depend on a row's place
            among the rows asked for, never on its values).
        loss_scale: kappa.
        lr: of Adam.
        weight_decay: of Adam.
        batch_size: rows of an update; small tables want fewer, so that there are 2000 updates or more.
        max_epochs: passes over the data.
        explore_epochs: epochs of features at random; None: half of all. Exploration fades until 7/10 of them; over the
            tenth after that stopping is learned, and the price of features rises from 0 to `sparsity`.
        patience: epochs without improvement on the validation rows at the full price; None: never stop early.
        validation_fraction: share of the rows for that; 0 keeps the last weights.
        baseline: of the policy gradient: "mean", "leave-one-out", "value", "none".
        step_input: whether the share of revealed features is an input.
        allow_missing: take NaN as a value that cannot be revealed: the selection then depends on what is missing.
        device: "auto" or a device.
        dtype: "float32", "float64" or "bfloat16", of the network.
        random_state: seed; equal seeds give equal masks on the CPU.
        verbose: 1 shows a progress bar.

    Attributes:
        classes_: (K,) labels.
        policy_: the trained `SequentialPolicy`.
        history_: what training looked like.
        budget_: T.
        n_features_in_, feature_names_in_: as in scikit-learn.

    Raises:
        TypeError, ValueError: from `fit`, for parameters, rows or labels outside what is said here.
    """

    def fit(self, X: object, y: object) -> Self:
        """Train on (n, d) rows and (n,) labels.

        Raises:
            TypeError, ValueError: see the class; NaN or inf is reported by column.
        """
        check_parameters(self)
        X, y = validate_data(
            self, X, y, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1, reset=True
        )  # fmt: skip
        X = numbers(X, columns_of(self), self.allow_missing, warn=True)
        check_classification_targets(y)
        classes, index = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(message("y", "of at least two classes", f"one class, {classes.tolist()[0]!r}"))
        _enough(X)
        self.classes_ = classes
        counts = np.bincount(index) / len(index)
        return self._fit(X, index.astype(np.int64), np.log(counts))

    def fit_soft(self, X: object, proba: np.ndarray, classes: Sequence[object] | None = None) -> Self:
        """Train on (n, K) class probabilities: distil a black box into a selector that leaks nothing.

        Args:
            X: (n, d).
            proba: (n, K), rows that sum to 1.
            classes: (K,) labels; 0 to K - 1 by default.

        Raises:
            TypeError, ValueError: see the class, or rows that are no probabilities.
        """
        check_parameters(self)
        X = self._checked(X, fit=True)
        rows = np.asarray(proba, dtype=float)
        if rows.ndim != 2 or len(rows) != len(X) or rows.shape[1] < 2:
            raise ValueError(message("proba", f"of shape ({len(X)}, K) with K >= 2", rows.shape))
        if not np.isfinite(rows).all() or (rows < 0).any() or not np.allclose(rows.sum(axis=1), 1, atol=1e-4):
            raise ValueError(message("proba", "probabilities that sum to 1 in every row", "other numbers"))
        _enough(X)
        self.classes_ = np.arange(rows.shape[1]) if classes is None else np.asarray(classes)
        if self.classes_.shape != (rows.shape[1],) or len(np.unique(self.classes_)) < len(self.classes_):
            raise ValueError(message("classes", f"{rows.shape[1]} different labels", self.classes_.tolist()))
        rows = rows / rows.sum(axis=1, keepdims=True)
        return self._fit(X, rows, np.log(np.maximum(rows.mean(axis=0), 1e-12)))

    def predict_proba(self, X: object) -> np.ndarray:
        """(n, K) class probabilities, from the shown features only; the class frequencies where none is shown.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        return self._readable(self._unmask(X).output)

    def predict(self, X: object) -> np.ndarray:
        """(n,) labels.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _readable(self, outputs: torch.Tensor | None) -> np.ndarray:
        return torch.softmax(_given(outputs), dim=-1).cpu().numpy()


class SUWRRegressor(RegressorMixin, SUWREstimator):
    """The same for numbers: squared error, of y in units of its standard deviation, in place of cross-entropy.

    A feature is worth its price if it lowers the error by sparsity / loss_scale variances of y. Arguments, attributes
    and errors are those of `SUWRClassifier`, without classes.
    """

    _kind = "squared"

    def fit(self, X: object, y: object) -> Self:
        """Train on (n, d) rows and (n,) numbers.

        Raises:
            TypeError, ValueError: see `SUWRClassifier`; NaN or inf is reported by column.
        """
        check_parameters(self)
        X, y = validate_data(
            self, X, y, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1, y_numeric=True, reset=True
        )  # fmt: skip
        X = numbers(X, columns_of(self), self.allow_missing, warn=True)
        y = np.asarray(y, dtype=float)
        if not np.isfinite(y).all():
            raise ValueError(message("y", "finite", "NaN or inf"))
        _enough(X)
        with np.errstate(over="ignore"):
            self.mean_, spread = float(y.mean()), float(y.std())
        if not np.isfinite([self.mean_, spread]).all() or (spread == 0 and y.max() > y.min()):
            raise ValueError(message("y", "of a variance that float64 holds", "too large or too small numbers"))
        self.scale_ = spread if spread > 0 else 1.0
        return self._fit(X, (y - self.mean_) / self.scale_, np.zeros(1))

    def predict(self, X: object) -> np.ndarray:
        """(n,) numbers, from the shown features only; the mean of y where none is shown.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        return self._readable(self._unmask(X).output)[:, 0]

    def _readable(self, outputs: torch.Tensor | None) -> np.ndarray:
        return _given(outputs).cpu().numpy() * self.scale_ + self.mean_


def _given(outputs: torch.Tensor | None) -> torch.Tensor:
    if outputs is None:
        raise ValueError("outputs must be recorded, got None.")
    return outputs.double()


def _enough(X: np.ndarray) -> None:
    require_range("n_samples", len(X), low=10, hint=f"X has n_samples={len(X)}; too few to learn from.")
