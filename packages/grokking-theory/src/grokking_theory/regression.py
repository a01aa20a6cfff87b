"""Kernel regression as a scikit-learn estimator: the peer that no permutation-equivariant kernel surpasses."""

from collections.abc import Callable
from typing import no_type_check

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from offprints.checks import require_choice, require_finite, require_range, require_shape
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore[missing-module-attribute]
from torch import Tensor

from grokking_theory.kernels import expected_ntk, onehot_rbf
from grokking_theory.tasks import require_consistent

ArrayKernel = Callable[[NDArray[np.generic], NDArray[np.generic]], ArrayLike]

RESIDUAL = 1e-9
"""A Cholesky solution is kept if its residual is this small against the targets; else eigenvalues are cut."""


class KernelRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Ψ(x) = Σ_i K(x, x_i) λ_i with (K + ridge · I) λ = y (definition 2.3): a kernel method for any number of outputs.

    With ridge = 0 it interpolates: λ is the solution of least norm, eigenvalues below rcond times the largest cut.

    Args:
        kernel: "rbf" exp(-‖x - x'‖² / features) of the raw features; "onehot_rbf" and "expected_ntk", which take
            integer tuples; or a function of (n, m) and (n2, m) arrays that returns an (n, n2) array or tensor.
        ridge: added to the diagonal.
        rcond: the cut, for ridge = 0 and a singular kernel.

    Attributes:
        X_fit_: training inputs (n, m).
        dual_coef_: λ, (n,) or (n, outputs).

    Raises:
        TypeError: at fit, if a kernel of integer tuples gets something else.
        ValueError: at fit, if ridge < 0, or ridge = 0 and equal inputs have different targets.
    """

    @no_type_check  # here and below: scikit-learn passes anything, and looks for its own errors at fit
    def __init__(self, kernel: str | ArrayKernel = "rbf", ridge: float = 0.0, rcond: float = 1e-10) -> None:
        self.kernel = kernel
        self.ridge = ridge
        self.rcond = rcond

    @no_type_check
    def fit(self, X: ArrayLike, y: ArrayLike) -> "KernelRegressor":
        """Solve for the coefficients, in O(n³)."""
        require_range("ridge", self.ridge, low=0)
        require_range("rcond", self.rcond, low=0, high=1, high_open=True)
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True)
        y = np.asarray(y, dtype=np.float64)
        if self.ridge == 0:
            require_consistent("training data", torch.tensor(X, dtype=torch.float64), torch.tensor(y))
        self.X_fit_ = X
        self.dual_coef_ = _solve(self._kernel(X, X), y, self.ridge, self.rcond)
        return self

    @no_type_check
    def predict(self, X: ArrayLike) -> NDArray[np.float64]:
        """Ψ(X), (n,) or (n, outputs)."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False)
        return self._kernel(X, self.X_fit_) @ self.dual_coef_

    def _kernel(self, left: NDArray[np.generic], right: NDArray[np.generic]) -> NDArray[np.float64]:
        if callable(self.kernel):
            values = np.asarray(self.kernel(left, right), dtype=np.float64)
        elif require_choice("kernel", self.kernel, ("rbf", "onehot_rbf", "expected_ntk")) == "rbf":
            values = rbf_kernel(left.astype(np.float64), right.astype(np.float64))
        else:
            kernel = onehot_rbf if self.kernel == "onehot_rbf" else expected_ntk
            values = kernel(_tuples(left, self.kernel), _tuples(right, self.kernel)).numpy()
        require_shape("kernel(X, X')", values, (len(left), len(right)))
        require_finite("kernel(X, X')", values)
        return values


def _tuples(X: NDArray[np.generic], kernel: str) -> Tensor:
    whole = np.issubdtype(X.dtype, np.integer) or bool((np.floor(X) == X).all())
    if not whole:
        raise TypeError(f"X must hold integer tuples for kernel={kernel!r}, got fractions in {X.dtype}.")
    return torch.from_numpy(X.astype(np.int64))


def _solve(kernel: NDArray[np.float64], y: NDArray[np.float64], ridge: float, rcond: float) -> NDArray[np.float64]:
    """Cholesky where it is accurate, else the pseudo-inverse with small eigenvalues cut."""
    regular = kernel + ridge * np.eye(len(kernel))
    try:
        solution = np.asarray(cho_solve(cho_factor(regular, lower=True), y))
        if np.linalg.norm(regular @ solution - y) <= RESIDUAL * np.linalg.norm(y):
            return solution
    except LinAlgError:
        pass
    values, vectors = np.linalg.eigh(regular)
    inverse = np.zeros_like(values)
    kept = values > rcond * max(values[-1], 0.0)
    inverse[kept] = 1 / values[kept]
    return vectors @ (inverse * (vectors.T @ y).T).T
