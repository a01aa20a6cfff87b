"""Label leakage from data: does the mask say more about the label than the values it shows? (Section 2)"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from offprints.checks import message, require_choice, require_range
from offprints.seeding import rng, spawn
from sklearn.base import clone, is_classifier
from sklearn.utils.multiclass import type_of_target

from suwr.selectors import Selector, Table, ask

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

SURROGATES = ("permuted", "random")


class LabelLeakage(NamedTuple):
    """Log-loss in nats, or squared error in variances of y.

    Attributes:
        gap: surrogate - informed, an estimate of L_Y (for the log-loss).
        interval: its 95 % bootstrap interval over rows.
        informed: loss of q1(y | x_S, S), trained on the selector's own masks.
        surrogate: loss of q0(y | x_S), trained on masks that know nothing of their row, on the same masked rows.
    """

    gap: float
    interval: tuple[float, float]
    informed: float
    surrogate: float

    @property
    def leaks(self) -> bool:
        """Whether the gap is positive beyond its interval."""
        return self.interval[0] > 0


def label_leakage(
    selector: Selector, X: object, y: object, *, surrogate: str = "permuted", repeats: int = 4, folds: int = 5,
    model: "BaseEstimator | None" = None, n_bootstrap: int = 1000, random_state: int = 0,
) -> LabelLeakage:  # fmt: skip
    """Cross-fitted gap CE(q0) - CE(q1) on rows masked by the selector.

    q1 learns from (x_S, S) with the selector's masks; q0 from masks that are independent of their row, so that it
    estimates p(y | x_S), as the EVAL-X network does. Without leakage the two agree. Predicting y from the mask alone would
    prove nothing: the mask of an honest sequential selector may depend on what it shows.

    Args:
        selector: see `probe_selector`.
        X: (n, d).
        y: (n,) labels, or numbers.
        surrogate: where q0's masks come from: "permuted" (the selector's masks of other rows) or "random" (as many
            features, drawn uniformly).
        repeats: masks of each training row for q0; more make it the better learner and the test the more cautious.
        folds: of the cross-fitting.
        model: a scikit-learn model that takes NaN as hidden; None: histogram gradient boosting.
        n_bootstrap: resamples of rows.
        random_state: of folds, masks, models and resamples.

    Raises:
        TypeError, ValueError: for other values, or fewer than `folds` rows of a class.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    table = Table(X)
    require_choice("surrogate", surrogate, SURROGATES)
    require_range("repeats", repeats, low=1, integer=True)
    require_range("folds", folds, low=2, high=len(table.values), integer=True)
    require_range("n_bootstrap", n_bootstrap, low=100, integer=True)
    target = np.asarray(y)
    if target.shape != (len(table.values),):
        raise ValueError(message("y", f"of shape ({len(table.values)},)", target.shape))
    if target.dtype.kind == "f" and not np.isfinite(target).all():
        raise ValueError(message("y", "finite", "NaN or inf"))
    values, masks = table.values.astype(float), ask(selector, table, table.values)
    model, discrete = _model(model, target, spawn(random_state, 1)[0] % 2**31)
    gen, losses = rng(random_state), np.empty((2, len(values)))
    if discrete:
        least = np.unique(target, return_counts=True)[1].min()
        require_range("folds", folds, high=int(least), because="the rows of the rarest class")
    splitter = (StratifiedKFold if discrete else KFold)(folds, shuffle=True, random_state=random_state % 2**31)
    own = np.where(masks, values, np.nan)
    for train, test in splitter.split(values, target):
        blind = [np.where(_blind(masks[train], surrogate, gen), values[train], np.nan) for _ in range(repeats)]
        for place, (rows, labels) in enumerate(
            ((np.concatenate(blind), np.tile(target[train], repeats)), (own[train], target[train]))
        ):
            losses[place, test] = _losses(clone(model).fit(rows, labels), own[test], target[test], discrete)
    if not discrete:
        losses /= target.var() or 1.0
    gaps = losses[0] - losses[1]
    means = gaps[gen.integers(0, len(gaps), (n_bootstrap, len(gaps)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return LabelLeakage(float(gaps.mean()), (float(low), float(high)), float(losses[1].mean()), float(losses[0].mean()))


def _model(model: "BaseEstimator | None", target: np.ndarray, seed: int) -> tuple["BaseEstimator", bool]:
    if model is not None:
        return model, is_classifier(model)
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    discrete = type_of_target(target) in ("binary", "multiclass")
    chosen = HistGradientBoostingClassifier if discrete else HistGradientBoostingRegressor
    return chosen(learning_rate=0.05, max_iter=150, early_stopping=False, random_state=seed), discrete


def _blind(masks: np.ndarray, surrogate: str, gen: np.random.Generator) -> np.ndarray:
    if surrogate == "permuted":
        return masks[gen.permutation(len(masks))]
    return gen.random(masks.shape).argsort(axis=1).argsort(axis=1) < gen.permutation(masks.sum(axis=1))[:, None]


def _losses(fitted: "BaseEstimator", rows: np.ndarray, target: np.ndarray, discrete: bool) -> np.ndarray:
    if not discrete:
        return (fitted.predict(rows) - target) ** 2
    proba = fitted.predict_proba(rows)
    own = proba[np.arange(len(target)), np.searchsorted(fitted.classes_, target)]
    return -np.log(np.maximum(own, 1e-12))
