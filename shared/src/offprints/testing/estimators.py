"""Checks of scikit-learn estimators: scikit-learn's own, and none of them expected to fail."""

import warnings
from collections.abc import Callable

import numpy as np

from offprints.seeding import rng
from offprints.testing.conformance import Conformance


def act(case: Conformance) -> Callable[[], object]:
    """Fit and predict (or transform) twenty points."""
    x = rng(0).normal(size=(20, 3))
    y = np.sign(x[:, 0]).astype(int)

    def fit() -> object:
        fitted = case.make().fit(x, y)
        return fitted.predict(x) if hasattr(fitted, "predict") else fitted.transform(x)

    return fit


def check_sklearn(case: Conformance) -> None:
    """`sklearn.utils.estimator_checks.check_estimator`, which includes clone, get_params, pickle and refit."""
    from sklearn.exceptions import ConvergenceWarning, SkipTestWarning
    from sklearn.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        for expected in (SkipTestWarning, ConvergenceWarning):  # no pandas or array API here; their data are tiny
            warnings.simplefilter("ignore", expected)
        check_estimator(case.make())
