"""Label leakage from data: does the mask say more about the label than the values it shows? (Section 2)."""

from typing import Any, NamedTuple

import numpy as np
from offprints.checks import message, require_choice, require_range
from offprints.seeding import rng, spawn
from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor
from sklearn.utils.multiclass import type_of_target

from suwr.selectors import Selector, Table, ask

SURROGATES = ("permuted", "random")


class LabelLeakage(NamedTuple):
    """Log-loss in nats, or squared error in variances of y.

    Attributes:
        gap: surrogate - informed, an estimate of L_Y (for the log-loss).
        interval: its 95 % bootstrap interval over rows.
        informed: loss of q1(y | x_S, S), from the masks that the selector chose.
        surrogate: loss of q0(y | x_S), from masks that know nothing of their row, on the same masked rows.
        least: gaps up to this are taken for noise of the fits, which the interval does not hold.
    """

    gap: float
    interval: tuple[float, float]
    informed: float
    surrogate: float
    least: float

    @property
    def leaks(self) -> bool:
        """Whether the whole interval of the gap lies above `least`."""
        return self.interval[0] > self.least


def label_leakage(
    selector: Selector, X: object, y: object, *, surrogate: str = "permuted", repeats: int = 2, folds: int = 5,
    model: BaseEstimator | None = None, n_bootstrap: int = 1000, least: float = 0.01,
    random_state: int = 0,
) -> LabelLeakage:  # fmt: skip
    """Cross-fitted gap CE(q0) - CE(q1) on rows masked by the selector.

    q1(y | x_S, S) is learnt from rows with the masks that the selector chose, q0(y | x_S) from rows with masks that are
    independent of their row, as the EVAL-X network is. Both are one model with an input that says whether the mask was
    chosen, so that they differ only where the choice itself tells something: two models fitted apart differ in how well
    they know the selector's usual masks, and accuse honest selectors. Predicting y from the mask alone would prove
    nothing: the mask of an honest sequential selector may depend on what it shows.

    Args:
        selector: see `probe_selector`.
        X: (n, d).
        y: (n,) labels, or numbers (what a regressor selects for; more than 20 values, some in fewer than `folds` rows).
        surrogate: where q0's masks come from: "permuted" (the selector's masks of other rows) or "random" (as many
            features, drawn uniformly).
        repeats: masks of each training row for q0.
        folds: of the cross-fitting.
        model: a scikit-learn model that takes NaN as hidden; None: histogram gradient boosting.
        n_bootstrap: resamples of rows.
        least: smallest gap that counts; fits to honest selectors differ by some thousandths.
        random_state: of folds, masks, models and resamples.

    Raises:
        TypeError, ValueError: for other values, or fewer than `folds` rows of a class.
    """
    from sklearn.model_selection import KFold, StratifiedKFold

    table = Table(X)
    require_choice("surrogate", surrogate, SURROGATES)
    require_range("repeats", repeats, low=1, integer=True)
    require_range("folds", folds, low=2, high=len(table.values), integer=True)
    require_range("least", least, low=0)
    require_range("n_bootstrap", n_bootstrap, low=100, integer=True)
    target = np.asarray(y)
    if target.shape != (len(table.values),):
        raise ValueError(message("y", f"of shape ({len(table.values)},)", target.shape))
    if target.dtype.kind == "f" and not np.isfinite(target).all():
        raise ValueError(message("y", "finite", "NaN or inf"))
    values, masks = table.values.astype(float), ask(selector, table, table.values)
    numbers = isinstance(selector, BaseEstimator) and is_regressor(selector)
    model, discrete = _model(model, target, numbers or _many(target, folds), spawn(random_state, 1)[0] % 2**31)
    gen, losses = rng(random_state), np.empty((2, len(values)))
    if discrete:
        rarest = np.unique(target, return_counts=True)[1].min()
        require_range("folds", folds, high=int(rarest), because="the rows of the rarest class")
    splitter = (StratifiedKFold if discrete else KFold)(folds, shuffle=True, random_state=random_state % 2**31)
    own = np.where(masks, values, np.nan)
    for train, test in splitter.split(values, target):
        rows = [np.where(_blind(masks[train], surrogate, gen), values[train], np.nan) for _ in range(repeats)]
        rows = np.concatenate([*rows, own[train]])
        chosen = np.repeat([0.0, 1.0], [repeats * len(train), len(train)])
        used = ~np.isnan(rows).all(axis=0)  # a column that is never shown says nothing
        fitted = clone(model).fit(np.column_stack([rows[:, used], chosen]), np.tile(target[train], repeats + 1))
        for flag in (0, 1):
            asked = np.column_stack([own[test][:, used], np.full(len(test), float(flag))])
            losses[flag, test] = _losses(fitted, asked, target[test], discrete)
    if not discrete:
        losses /= target.var() or 1.0
    gaps = losses[0] - losses[1]
    means = gaps[gen.integers(0, len(gaps), (n_bootstrap, len(gaps)))].mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    informed, blind = (float(losses[flag].mean()) for flag in (1, 0))
    return LabelLeakage(float(gaps.mean()), (float(low), float(high)), informed, blind, least)


def _many(target: np.ndarray, folds: int) -> bool:
    """Whether numbers are too many different ones to be labels of classes."""
    counts = np.unique(target, return_counts=True)[1]
    return target.dtype.kind in "iuf" and len(counts) > 20 and counts.min() < folds


def _model(model: BaseEstimator | None, target: np.ndarray, numbers: bool, seed: int) -> tuple[BaseEstimator, bool]:
    if model is not None:
        return model, is_classifier(model)
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    discrete = not numbers and type_of_target(target) in ("binary", "multiclass")
    chosen = HistGradientBoostingClassifier if discrete else HistGradientBoostingRegressor
    return chosen(learning_rate=0.05, max_iter=150, early_stopping=False, random_state=seed), discrete


def _blind(masks: np.ndarray, surrogate: str, gen: np.random.Generator) -> np.ndarray:
    if surrogate == "permuted":
        return masks[gen.permutation(len(masks))]
    return gen.random(masks.shape).argsort(axis=1).argsort(axis=1) < gen.permutation(masks.sum(axis=1))[:, None]


def _losses(fitted: Any, rows: np.ndarray, target: np.ndarray, discrete: bool) -> np.ndarray:
    if not discrete:
        return (fitted.predict(rows) - target) ** 2
    proba = fitted.predict_proba(rows)
    own = proba[np.arange(len(target)), np.searchsorted(fitted.classes_, target)]
    return -np.log(np.maximum(own, 1e-12))
