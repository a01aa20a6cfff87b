"""Checks of the estimators' parameters and data; standardisation with training statistics."""

import numbers as kinds
import warnings
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from offprints.checks import Problems, message, require_choice, require_range

from suwr.policy import TRUNKS
from suwr.unrolling import BASELINES

if TYPE_CHECKING:
    from suwr.base import SUWREstimator

FARTHEST = 1e6
"""Standardised values are clipped to this many standard deviations, so that float32 holds them."""
DTYPES = ("float32", "float64", "bfloat16")


def check_parameters(model: "SUWREstimator") -> None:
    """Every parameter, all problems at once.

    Raises:
        TypeError: if just one is wrong, and of a wrong kind.
        ValueError: otherwise.
    """
    problems = Problems(f"{type(model).__name__} cannot be fitted")
    wrong: list[TypeError | ValueError] = []

    def check(rule, name, *args, **options):
        try:
            rule(name, getattr(model, name), *args, **options)
        except (TypeError, ValueError) as error:
            wrong.append(error)
            problems.add(str(error))

    if model.max_features is not None:
        check(require_range, "max_features", low=1, integer=True)
    for name in ("step_size", "hidden", "batch_size", "max_epochs"):
        check(require_range, name, low=1, integer=True)
    check(require_range, "layers", low=2, integer=True)
    for name in ("explore_epochs", "patience"):
        if getattr(model, name) is not None:
            check(require_range, name, low=0, integer=True)
    early, epochs = model.explore_epochs, model.max_epochs
    if isinstance(early, int) and isinstance(epochs, int) and early > 0.9 * epochs:
        limit = f"at most nine tenths of max_epochs ({epochs})"
        wrong.append(ValueError(message("explore_epochs", limit, early, "Features cost nothing before.")))
        problems.add(str(wrong[-1]))
    for name in ("sparsity", "weight_decay"):
        check(require_range, name, low=0, high=float("inf"), high_open=True)
    for name in ("loss_scale", "lr"):
        check(require_range, name, low=0, low_open=True, high=float("inf"), high_open=True)
    check(require_range, "validation_fraction", low=0, high=1, high_open=True)
    for name, allowed in (
        ("trunk", TRUNKS), ("baseline", BASELINES), ("stop", ("threshold", "sample")), ("dtype", DTYPES),
    ):  # fmt: skip
        check(require_choice, name, allowed)
    state = model.random_state
    whole = isinstance(state, kinds.Integral) and not isinstance(state, bool) and 0 <= state < 2**32
    if not (state is None or whole or isinstance(state, np.random.RandomState)):
        wrong.append(ValueError(message("random_state", "None, an integer below 2^32 or a RandomState", repr(state))))
        problems.add(str(wrong[-1]))
    if len(wrong) == 1:
        raise wrong[0]
    with problems:
        pass


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """A seed: drawn from the state (from the operating system for None)."""
    fresh = not isinstance(random_state, np.random.RandomState)
    state = np.random.RandomState(random_state) if fresh else random_state
    return int(state.randint(2**31))


def columns_of(model: object) -> list[str]:
    """Names of the columns: those of the frame that was fitted, else x0, x1, ..."""
    names = getattr(model, "feature_names_in_", None)
    return (
        [str(name) for name in names]
        if names is not None
        else [f"x{j}" for j in range(getattr(model, "n_features_in_", 0))]
    )


def numbers(X: np.ndarray, names: list[str], allow_missing: bool, warn: bool) -> np.ndarray:
    """X, if it is finite; NaN passes where missing values are allowed.

    Raises:
        ValueError: naming the columns that hold NaN or inf.
    """
    bad = np.isinf(X) if allow_missing else ~np.isfinite(X)
    if bad.any():
        columns = np.flatnonzero(bad.any(axis=0))
        listed = ", ".join(f"{j} ({names[j]!r})" for j in columns[:5]) + (" and more" if len(columns) > 5 else "")
        first = int(np.flatnonzero(bad[:, columns[0]])[0])
        hint = "Impute, or set allow_missing=True." if not allow_missing and np.isnan(X).any() else ""
        raise ValueError(message("X", "finite", f"NaN or inf in column {listed}, first in row {first}", hint))
    if warn and allow_missing and np.isnan(X).any():
        warnings.warn("X has missing values: what is selected depends on which values are missing.", stacklevel=4)
    return X


class Scaling(NamedTuple):
    """Standardisation: (x - mean) / scale, column by column.

    Attributes:
        mean: (d,).
        scale: (d,), 1 where constant.
        constant: (d,) bool: columns that hold one value (or none).
    """

    mean: np.ndarray
    scale: np.ndarray
    constant: np.ndarray

    @classmethod
    def of(cls, X: np.ndarray, names: list[str]) -> Self:
        """Of the training rows; missing values are passed over.

        Raises:
            ValueError: naming columns whose variance overflows.
        """
        from sklearn.preprocessing import StandardScaler

        with warnings.catch_warnings(), np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            warnings.simplefilter("ignore", RuntimeWarning)
            found = StandardScaler().fit(X)
        mean, scale, variance = (np.asarray(v, dtype=float) for v in (found.mean_, found.scale_, found.var_))
        empty = np.isnan(X).all(axis=0)
        mean, scale, variance = np.where(empty, 0.0, mean), np.where(empty, 1.0, scale), np.where(empty, 0.0, variance)
        least, most = (reduce(np.where(empty, 0.0, X), axis=0) for reduce in (np.nanmin, np.nanmax))
        lost = (least < most) & (variance == 0)
        if wrong := np.flatnonzero(~np.isfinite(mean) | ~np.isfinite(variance) | lost).tolist():
            listed = ", ".join(f"{j} ({names[j]!r})" for j in wrong[:5])
            raise ValueError(
                message(
                    "X", "of columns whose variance float64 holds", f"too large or small ones: {listed}", "Rescale."
                )
            )
        return cls(mean, np.where(scale > 0, scale, 1.0), least == most)

    def apply(self, X: np.ndarray) -> np.ndarray:
        """(n, d) standardised, clipped to 1e6, 0 where missing."""
        with np.errstate(over="ignore"):
            return np.nan_to_num(np.clip((X - self.mean) / self.scale, -FARTHEST, FARTHEST), nan=0.0)


def split_rows(n: int, labels: np.ndarray | None, fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and for early stopping; stratified by hard labels where every class allows it."""
    held = round(fraction * n)
    if held == 0:
        return np.arange(n), np.array([], dtype=int)
    from sklearn.model_selection import train_test_split

    stratify = None
    if labels is not None and labels.ndim == 1:
        counts = np.bincount(labels)
        stratify = labels if counts.min() >= 2 and min(held, n - held) >= len(counts) else None
    return tuple(train_test_split(np.arange(n), test_size=held, random_state=seed % 2**32, stratify=stratify))
