"""Any selector as a function from rows to masks, with its answers checked; and masks from attributions (Section 2)."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
from offprints.checks import message, require_range
from sklearn.base import BaseEstimator


@runtime_checkable
class HasSupport(Protocol):
    """What has a mask for every row."""

    def local_support(self, X: np.ndarray) -> np.ndarray:
        """(n, d) bool."""
        ...


Selector = Callable[[np.ndarray], np.ndarray] | HasSupport
"""A function (n, d) -> (n, d) bool, or an object with `local_support`."""


class Table:
    """Rows as an array that can be recombined, and handed on in the form in which they came.

    Raises:
        TypeError, ValueError: unless they have two dimensions, two rows or more, and a column.
    """

    def __init__(self, X: object) -> None:
        self._frame: Any = X if hasattr(X, "iloc") and hasattr(X, "columns") else None
        values = np.asarray(X)
        if values.dtype == object and any(type(value).__name__ == "NAType" for value in values.ravel()):
            raise TypeError(message("X", "of plain numbers", "pandas' NA", "Convert with X.astype(float)."))
        if values.ndim != 2 or values.shape[0] < 2 or values.shape[1] < 1:
            raise ValueError(message("X", "of two dimensions, at least two rows and one column", values.shape))
        if values.dtype.kind in "fc" and np.isinf(values).any():
            raise ValueError(message("X", "without inf", f"{int(np.isinf(values).sum())} of them"))
        self.values = np.ascontiguousarray(values)

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        if self._frame is not None:
            return [str(name) for name in self._frame.columns]
        return [f"x{j}" for j in range(self.values.shape[1])]

    def rows(self, values: np.ndarray) -> object:
        """A fresh copy of recombined rows: an array, or a frame of the same columns and types."""
        if self._frame is None:
            return values.copy()
        return type(self._frame)(values.copy(), columns=self._frame.columns).astype(self._frame.dtypes)


def ask(selector: Selector, table: Table, values: np.ndarray) -> np.ndarray:
    """(n, d) bool masks of rows, if the selector answers as it must.

    Raises:
        TypeError: if it is no selector, or its masks are not bool (integers 0 and 1 pass).
        ValueError: if they are of another shape, or it changed the rows that it was given.
    """
    given: Any = table.rows(values)
    select: Any = selector.local_support if isinstance(selector, HasSupport) else selector
    if not callable(select):
        raise TypeError(
            message("selector", "a function of rows, or an object with local_support", type(selector).__name__)
        )
    masks = np.array(select(given))  # a copy: the selector may fill the same array again
    if masks.shape != values.shape:
        raise ValueError(message("the selector's masks", f"of shape {values.shape}", masks.shape))
    if masks.dtype != bool:
        hint = "Compare scores with a threshold, or take the k largest."
        if masks.dtype.kind not in "iu":
            raise TypeError(message("the selector's masks", "of dtype bool", masks.dtype, hint))
        if not np.isin(masks, (0, 1)).all():
            raise TypeError(message("the selector's masks", "of 0 and 1", "other integers", hint))
        masks = masks.astype(bool)
    if not _same(np.asarray(given), values):
        raise ValueError("the selector must leave its rows as they are, got them changed. Copy X inside.")
    return masks


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind == "f" and b.dtype.kind == "f":
        return bool(np.array_equal(a, b, equal_nan=True))
    return bool(((a == b) | ((a != a) & (b != b))).all())


class TopK(BaseEstimator):
    """The k features of largest absolute attribution in each row: how explanations are often shown.

    Args:
        attribute: rows -> (n, d) attributions, or (n, d, K) for K classes, whose absolute values are added up.
        k: features shown.
    """

    def __init__(self, attribute: Callable[[np.ndarray], np.ndarray], k: int = 4) -> None:
        self.attribute = attribute
        self.k = k

    def local_support(self, X: object) -> np.ndarray:
        """(n, d) bool; ties go to the first column.

        Raises:
            TypeError, ValueError: for attributions of another shape, or NaN, or k outside 1 to d.
        """
        shape = np.asarray(X).shape
        attribute: Any = self.attribute
        scores = np.abs(np.asarray(attribute(X), dtype=float))
        if scores.ndim == 3:
            scores = scores.sum(axis=2)
        if scores.shape != shape:
            raise ValueError(message("the attributions", f"of shape {shape} or {(*shape, 'K')}", scores.shape))
        if np.isnan(scores).any():
            raise ValueError(message("the attributions", "without NaN", f"{int(np.isnan(scores).sum())} of them"))
        k = require_range("k", self.k, low=1, high=shape[1], integer=True)
        first = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        masks = np.zeros(shape, dtype=bool)
        np.put_along_axis(masks, first, True, axis=1)
        return masks


class MissingExtraError(ImportError):
    """An optional dependency is not installed; the message names the extra."""


def shap_top_k(model: object, background: np.ndarray, k: int = 4) -> TopK:
    """SHAP values of `predict_proba`, `predict`, or a tree model itself, as a selector. Needs the extra `shap`.

    Args:
        model: a fitted scikit-learn model.
        background: (m, d) rows that hidden features are averaged over.
        k: features shown.

    Raises:
        MissingExtraError: without shap.
    """
    try:
        import shap  # pyrefly: ignore[missing-import]
    except ImportError as error:
        raise MissingExtraError('shap_top_k needs shap: pip install "suwr[shap]"') from error
    predict = getattr(model, "predict_proba", None) or getattr(model, "predict", model)
    try:
        explainer = shap.TreeExplainer(model)
        return TopK(lambda X: explainer.shap_values(np.asarray(X)), k)
    except Exception:  # shap names no type for "not a tree"
        explainer = shap.Explainer(predict, np.asarray(background))
        return TopK(lambda X: explainer(np.asarray(X)).values, k)  # pyrefly: ignore[missing-attribute] -- shap returns an Explanation here
