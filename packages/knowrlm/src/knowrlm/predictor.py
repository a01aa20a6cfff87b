"""The reward model: an average of the regressors that predict best in cross-validation (Section 3)."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import numpy as np
from offprints.checks import Problems, require_choice, require_range
from offprints.seeding import isolated, spawn
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import ExtraTreesRegressor, GradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import BayesianRidge, LinearRegression, Ridge
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore[missing-module-attribute]

from knowrlm.encode import FeatureMap, additive_prediction
from knowrlm.measurements import checked_fitness


class Regressor(Protocol):
    """What the ensemble averages: an estimator of scikit-learn (Section 3)."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> object:
        """Fit on (n, d) features and (n,) targets."""
        ...

    def predict(self, X: np.ndarray) -> np.ndarray:
        """(n,) predictions."""
        ...


MODELS: dict[str, Callable[[int, int], Any]] = {  # (number of samples, seed) -> estimator
    "ridge": lambda n, seed: Ridge(alpha=1.0),
    "bayesian_ridge": lambda n, seed: BayesianRidge(),
    "svr": lambda n, seed: make_pipeline(StandardScaler(), SVR(kernel="rbf", C=1.0, epsilon=0.05)),
    "extra_trees": lambda n, seed: ExtraTreesRegressor(n_estimators=100, min_samples_leaf=2, random_state=seed),
    "random_forest": lambda n, seed: RandomForestRegressor(n_estimators=100, min_samples_leaf=2, random_state=seed),
    "gradient_boosting": lambda n, seed: GradientBoostingRegressor(random_state=seed),
    "knn": lambda n, seed: KNeighborsRegressor(min(5, n), weights="distance"),
    "mlp": lambda n, seed: MLPRegressor(hidden_layer_sizes=(64,), alpha=1e-2, max_iter=300, random_state=seed),
}
DEFAULT = ("ridge", "bayesian_ridge", "svr", "extra_trees", "gradient_boosting", "knn", "mlp")


class EnsemblePredictor(RegressorMixin, BaseEstimator):
    """The mean of the `top` models with the least K-fold cross-validated squared error (Section 3, after MLDE).

    f̂(x) = (1/t) Σ_{m ∈ best t} f̂_m(x), each refitted on all data. Targets are standardised inside; constant targets
    give the constant. With fewer than `folds` samples there are as many folds as samples, with fewer than 3 no
    selection.

    Args:
        models: names out of `MODELS`, or one of them; `DEFAULT` by default.
        top: t, how many are averaged; all if there are fewer.
        folds: K.
        random_state: seed of folds and models.

    Attributes:
        chosen_: names of the best t models, best first.
        errors_: cross-validated mean squared error of every model, in units of the target's variance; empty where
            there was nothing to choose (no more models than `top`).
        estimators_: the fitted models.

    Raises:
        ValueError: at `fit`, listing unknown models and sizes out of range.
    """

    def __init__(
        self,
        models: Sequence[str] | str | None = None,
        top: int = 3,
        folds: int = 5,
        random_state: int = 0,
    ) -> None:
        self.models = models
        self.top = top
        self.folds = folds
        self.random_state = random_state

    def fit(self, X: np.ndarray, y: np.ndarray) -> "EnsemblePredictor":
        """Fit on (n, d) features and (n,) fitness.

        Raises:
            ValueError: if sizes differ, something is not finite, or a parameter is out of range.
        """
        X, y = validate_data(self, X, y, y_numeric=True, dtype=[np.float64, np.float32])
        names = self.names
        with Problems("cannot fit the ensemble") as problems:
            for name in names:
                problems.check(require_choice, "model", name, MODELS)
            problems.check(require_range, "number of models", len(names), low=1, integer=True)
            problems.check(require_range, "top", self.top, low=1, integer=True)
            problems.check(require_range, "folds", self.folds, low=2, integer=True)
            problems.check(checked_fitness, "y", y)
        y = y.astype(np.float64)
        self.mean_, self.scale_ = float(y.mean()), float(y.std())
        self.constant_ = not self.scale_ > 1e-12 * float(np.abs(y).max())
        self.chosen_: list[str] = []
        self.errors_: dict[str, float] = {}
        self.estimators_: list[Regressor] = []
        if self.constant_:
            return self
        target = (y - self.mean_) / self.scale_
        seeds = dict(zip(names, spawn(int(self.random_state), len(names)), strict=True))
        models = {name: MODELS[name](max(1, len(y) - len(y) // 2 - 1), seeds[name] % 2**32) for name in names}
        # SVR draws a number from numpy's global generator, whatever its arguments
        with isolated(int(self.random_state)), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # a model that does not converge is ranked by its error
            if len(y) >= 3 and self.top < len(names):
                folds = KFold(min(self.folds, len(y)), shuffle=True, random_state=int(self.random_state) % 2**32)
                for name, model in models.items():
                    held = cross_val_predict(model, X, target, cv=folds)
                    self.errors_[name] = float(np.mean((held - target) ** 2))
                self.chosen_ = sorted(names, key=lambda name: self.errors_[name])[: self.top]
            else:
                self.chosen_ = names[: self.top]
            for name in self.chosen_:
                model = MODELS[name](len(y), seeds[name] % 2**32)
                model.fit(X, target)
                self.estimators_.append(model)
        return self

    @property
    def names(self) -> list[str]:
        """The names of the models, a list whatever `models` is."""
        models = DEFAULT if self.models is None else self.models
        return [models] if isinstance(models, str) else list(models)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """(n,) mean prediction of the chosen models."""
        return self.predict_each(X).mean(axis=0)

    def predict_each(self, X: np.ndarray) -> np.ndarray:
        """(t, n) prediction of each chosen model; their spread is the ensemble's uncertainty."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=[np.float64, np.float32])
        if self.constant_:
            return np.full((1, len(X)), self.mean_)
        return np.stack([self.mean_ + self.scale_ * model.predict(X) for model in self.estimators_])


def linear_weights(model: object, features: FeatureMap) -> tuple[np.ndarray, float] | None:
    """(k, 20) weights w_j[a] and intercept of a fitted linear model on look-up features; None for any other model."""
    if not features.additive or not isinstance(model, Ridge | BayesianRidge | LinearRegression):
        return None
    coefficients = np.asarray(model.coef_, dtype=float).reshape(features.space.k, -1)
    return np.einsum("jad,jd->ja", cast(np.ndarray, features.table), coefficients), float(np.ravel(model.intercept_)[0])


def predict_space(predictor: EnsemblePredictor, features: FeatureMap, chunk: int = 16384) -> np.ndarray:
    """(t, size) predictions of each chosen model for every variant of an enumerable space, float32.

    Linear models look their weights up (`additive_prediction`), the others see `chunk` variants at a time: memory is
    O(chunk · d + t · size), and the reward table of Section 3 is made without the (size, d) feature matrix.

    Raises:
        ValueError: if the space is not enumerable.
    """
    check_is_fitted(predictor)
    space = features.space
    space.require_enumerable()
    if predictor.constant_:
        return np.full((1, space.size), predictor.mean_, dtype=np.float32)
    found = np.empty((len(predictor.estimators_), space.size), dtype=np.float32)
    rest = []
    for row, model in enumerate(predictor.estimators_):
        linear = linear_weights(model, features)
        if linear is None:
            rest.append(row)
        else:
            additive_prediction(space, *linear, out=found[row])
    start = 0
    for codes in space.chunks(chunk) if rest else ():
        inputs = features(codes)
        for row in rest:
            found[row, start : start + len(codes)] = predictor.estimators_[row].predict(inputs)
        start += len(codes)
    return predictor.mean_ + predictor.scale_ * found
