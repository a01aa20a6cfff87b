"""The selection that cannot leak, a peer in Section 5: the same features for all rows, then any model on them."""

from typing import Any, Self

import numpy as np
from offprints.checks import message, require_choice, require_range
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore[missing-module-attribute]

from suwr.inputs import Scaling, columns_of, numbers


class GlobalSelector(ClassifierMixin, BaseEstimator):
    """The same features for all rows, and a model refitted on them: leaks nothing, as no choice depends on x.

    Args:
        method: "kbest" (mutual information with y) or "l1" (largest coefficients of an L1 logistic regression).
        k: features.
        estimator: the model; None: logistic regression.
        random_state: of the mutual information and of the model.
    """

    def __init__(
        self, method: str = "kbest", k: int = 4, estimator: BaseEstimator | None = None, random_state: int | None = None
    ) -> None:
        self.method = method
        self.k = k
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: object, y: object) -> Self:
        """Choose on (n, d) rows and (n,) labels, then refit.

        Raises:
            TypeError, ValueError: for NaN or inf (by column), one class only, or parameters out of range.
        """
        from sklearn.feature_selection import SelectKBest, mutual_info_classif
        from sklearn.linear_model import LogisticRegression

        require_choice("method", self.method, ("kbest", "l1"))
        require_range("k", self.k, low=1, integer=True)
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        X = numbers(X, columns_of(self), False, warn=False)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(message("y", "of at least two classes", f"one class, {self.classes_.tolist()[0]!r}"))
        self._scaling, k = Scaling.of(X, columns_of(self)), min(self.k, X.shape[1])
        x = self._scaling.apply(X)
        if self.method == "kbest":
            scores = (
                SelectKBest(lambda a, b: mutual_info_classif(a, b, random_state=self.random_state), k=k)
                .fit(x, y)
                .scores_
            )
        else:
            old = LogisticRegression().get_params()["penalty"] == "l2"  # before scikit-learn 1.8 the penalty has a name
            one: dict[str, Any] = {"penalty": "l1"} if old else {"l1_ratio": 1.0}
            sparse = LogisticRegression(**one, solver="saga", C=0.1, max_iter=300, tol=1e-3, random_state=0)
            scores = np.abs(sparse.fit(x, y).coef_).sum(axis=0)
        self.support_ = np.zeros(X.shape[1], dtype=bool)
        self.support_[np.argsort(-scores, kind="stable")[:k]] = True
        model = LogisticRegression(max_iter=1000) if self.estimator is None else clone(self.estimator)
        self.model_ = model.fit(x[:, self.support_], y)
        return self

    def _rows(self, X: object) -> np.ndarray:
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)
        return self._scaling.apply(numbers(rows, columns_of(self), False, warn=False))

    def local_support(self, X: object) -> np.ndarray:
        """(n, d) bool: the same in every row.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        return np.tile(self.support_, (len(self._rows(X)), 1))

    def predict_proba(self, X: object) -> np.ndarray:
        """(n, K) class probabilities from the selected features.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        x = self._rows(X)[:, self.support_]
        return self.model_.predict_proba(x) if len(x) else np.zeros((0, len(self.classes_)))

    def predict(self, X: object) -> np.ndarray:
        """(n,) labels.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
