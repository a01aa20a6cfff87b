"""Local Lipschitz constants ‖D_X f‖₂ (Section 2 and Section 5 of the paper) and the quantity its scripts print instead.

Lanczos on Jᵀ J through `scipy.sparse.linalg.svds`; power iteration, also for batches, and a dense decomposition as
alternatives.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from offprints.checks import require_choice, require_range
from offprints.seeding import rng
from torch import Tensor, nn

from attention_lipschitz.core import AttentionLayer
from attention_lipschitz.operators import Jacobian, Map, differentiable_attention
from attention_lipschitz.power import power_iteration

METHODS = ("lanczos", "power", "dense")


class ConvergenceWarning(UserWarning):
    """A constant is less accurate than was asked for; its `converged` is False."""


@dataclass(frozen=True)
class LipschitzResult:
    """A local Lipschitz constant; `float(result)` is its value.

    Attributes:
        value: ‖D_X f‖₂. A lower bound of it where `converged` is False.
        iterations: products with J or Jᵀ that it took.
        converged: whether the relative tolerance was reached.
        left: unit-norm change of the output that answers `right`, of the shape of f(X).
        right: unit-norm perturbation of the tokens that is amplified most, of the shape of X.
    """

    value: float
    iterations: int
    converged: bool
    left: Tensor = field(repr=False)
    right: Tensor = field(repr=False)

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class Spectrum:
    """The largest singular values of a Jacobian.

    Attributes:
        values: (k,) descending.
        left: (k, *shape of f(X)) unit-norm left singular vectors.
        right: (k, *shape of X) unit-norm right singular vectors.
        converged: whether all reached the tolerance.
        iterations: products with J or Jᵀ.
    """

    values: Tensor
    left: Tensor = field(repr=False)
    right: Tensor = field(repr=False)
    converged: bool
    iterations: int


def local_lipschitz(
    layer: Map,
    X: Tensor,
    *,
    method: str = "lanczos",
    rtol: float = 1e-5,
    max_iter: int = 500,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> LipschitzResult:
    """The local Lipschitz constant ‖D_X f‖₂ of a layer, a head or any differentiable callable at X (Section 2).

    It is the largest factor by which a small perturbation of the tokens can grow, both sides in the Frobenius norm.

    Args:
        layer: the map f.
        X: (n, d) tokens as they enter the layer.
        method: "lanczos" (ARPACK's, on Jᵀ J), "power" (iteration on Jᵀ J), "dense" (J column by column, then its SVD).
        rtol: relative tolerance. Power iteration stops when the value changes by less than that, relative to itself.
        max_iter: restarts of Lanczos, or steps of the power iteration.
        seed: of the start vector.
        dtype: float64 by default (float32 where the device has no float64); of X for a callable.

    Raises:
        TypeError: if X is no floating-point tensor, or `layer` cannot be called.
        ValueError: if X is empty or not finite, has another width than the layer, or an argument is out of range.
        FloatingPointError: if the attention is not finite.
    """
    require_choice("method", method, METHODS)
    _require_budget(rtol, max_iter)
    jacobian = Jacobian(layer, X, dtype)
    if method == "power":
        return _power(jacobian, rtol, max_iter, seed)
    values, left, right, converged = _decomposed(jacobian, 1, method, rtol, max_iter, seed)
    if not converged:
        _warn(f"Lanczos did not converge within {max_iter} restarts")
    return LipschitzResult(float(values[0]), jacobian.products, converged, left[0], right[0])


def jacobian_spectrum(
    layer: Map,
    X: Tensor,
    k: int = 6,
    *,
    rtol: float = 1e-8,
    max_iter: int = 500,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> Spectrum:
    """The k largest singular values of D_X f (Section 2), with their vectors.

    Args:
        layer: the map f.
        X: (n, d) tokens.
        k: how many, at most the smaller side of the Jacobian.
        rtol: relative tolerance.
        max_iter: restarts of Lanczos.
        seed: of the start vector.
        dtype: as in `local_lipschitz`.

    Raises:
        ValueError: as `local_lipschitz`, or if k is out of range.
    """
    _require_budget(rtol, max_iter)
    jacobian = Jacobian(layer, X, dtype)
    smaller = min(jacobian.X.numel(), jacobian.value.numel())
    require_range("k", k, low=1, high=smaller, integer=True, because="the smaller side of the Jacobian")
    values, left, right, converged = _decomposed(jacobian, k, "lanczos", rtol, max_iter, seed)
    if not converged:
        _warn(f"Lanczos did not converge within {max_iter} restarts")
    return Spectrum(values, left, right, converged, jacobian.products)


def module_lipschitz(
    module: Callable[..., object], X: Tensor, kwargs: dict[str, object] | None = None, **options: Any
) -> LipschitzResult:
    """The local constant of any module or callable at X, such as a whole block or model (Section 2's definition).

    A module in training mode is evaluated and put back, with a warning; one in half precision is copied to float32.
    Of several outputs the first counts.

    Args:
        module: called as `module(X, **kwargs)`.
        X: of the shape that the module takes, batch axis included.
        kwargs: further arguments of the call.
        options: of `local_lipschitz`.

    Raises:
        ValueError: as `local_lipschitz`.
    """
    from attention_lipschitz.models import evaluated, single_precision

    kwargs = kwargs or {}
    if not isinstance(module, nn.Module):
        return local_lipschitz(lambda Y: first(module(Y, **kwargs)), X, **options)
    module = single_precision(module)
    dtype = next((p.dtype for p in module.parameters() if p.dtype.is_floating_point), None)
    with evaluated(module):
        return local_lipschitz(lambda Y: first(module(Y, **kwargs)), X if dtype is None else X.to(dtype), **options)


def paper_code_estimate(fn: Map, X: Tensor, dtype: torch.dtype | None = None) -> float:
    """√‖Jᵀ f(X)‖, what the paper's released scripts return: no Lipschitz constant, and no bound of one.

    They iterate u ← Jᵀ w with w the first output of `torch.func.jvp`, which is the value f(X); the tangent J u is the
    second. The result therefore depends on the size of the values. Here to reproduce the curves of Section 5.

    Args:
        fn: the map f.
        X: (n, d) tokens.
        dtype: as in `local_lipschitz`.

    Raises:
        ValueError: as `local_lipschitz`.
    """
    jacobian = Jacobian(fn, X, dtype)
    return math.sqrt(float(torch.linalg.vector_norm(jacobian.vjp(jacobian.value))))


def local_lipschitz_batch(
    layer: AttentionLayer,
    X: Tensor,
    *,
    by_head: bool = False,
    rtol: float = 1e-5,
    max_iter: int = 500,
    seed: int = 0,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Local constants (Section 2) of many samples, and heads, at once by power iteration: for accelerators.

    Args:
        layer: the layer.
        X: (..., n, d) tokens.
        by_head: whether each head by itself (its O_h V_h) is measured.
        rtol: relative change at which a sample stops.
        max_iter: most steps.
        seed: of the start vectors.
        dtype: as in `local_lipschitz`.

    Returns:
        Values and whether each converged, (...,) or with `by_head` (..., H).

    Raises:
        ValueError: as `local_lipschitz`.
    """
    _require_budget(rtol, max_iter)
    layer = layer.measured(dtype)
    X = X.detach().to(layer.query.dtype)
    if by_head:
        X = X.unsqueeze(-3).expand(*X.shape[:-2], layer.query.shape[0], *X.shape[-2:])
        layer = layer.by_head()
    here = layer.linearize(X)
    with torch.no_grad():
        found = power_iteration(here.jvp, here.vjp, _start(X, seed), 2, rtol, max_iter)
    if not bool(found.converged.all()):
        _warn(f"power iteration did not converge within {max_iter} steps")
    return found.value, found.converged


def first(output: object) -> Tensor:
    """The tensor of an output: itself, or the first entry of a tuple or of a model's output."""
    while not isinstance(output, Tensor):
        output = next(iter(output.values())) if hasattr(output, "values") else output[0]  # type: ignore[index]
    return output


def _require_budget(rtol: float, max_iter: int) -> None:
    require_range("rtol", rtol, low=0.0, high=1.0, low_open=True, high_open=True)
    require_range("max_iter", max_iter, low=1, integer=True)


def _start(X: Tensor, seed: int) -> Tensor:
    drawn = torch.from_numpy(rng(seed).standard_normal(tuple(X.shape)))
    return drawn.to(device=X.device, dtype=X.dtype)


def _power(jacobian: Jacobian, rtol: float, max_iter: int, seed: int) -> LipschitzResult:
    start = _start(jacobian.X, seed)
    found = power_iteration(jacobian.jvp, jacobian.vjp, start, start.ndim, rtol, max_iter)
    converged = bool(found.converged)
    if not converged:
        _warn(f"power iteration did not converge within {max_iter} steps")
    return LipschitzResult(float(found.value), jacobian.products, converged, found.left, found.right)


def _decomposed(
    jacobian: Jacobian, k: int, method: str, rtol: float, max_iter: int, seed: int
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """Singular values (k,), left and right vectors, and whether they converged."""
    rows, columns = jacobian.value.numel(), jacobian.X.numel()
    converged = True
    if method == "dense" or k >= min(rows, columns) - 1 or min(rows, columns) <= 24:
        u, s, vt = torch.linalg.svd(jacobian.matrix(), full_matrices=False)
        left, values, right = u[:, :k].mT, s[:k], vt[:k]
    else:
        u, s, vt, converged = _lanczos(jacobian, rows, columns, k, rtol, max_iter, seed)
        left, values, right = (torch.from_numpy(x).to(jacobian.X) for x in (u.T.copy(), s, vt))
    shape = (-1, *jacobian.value.shape)
    return values, left.reshape(shape), right.reshape(-1, *jacobian.X.shape), converged


def _lanczos(
    jacobian: Jacobian, rows: int, columns: int, k: int, rtol: float, max_iter: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
    from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, LinearOperator, svds

    like, out = jacobian.X, jacobian.value

    def applied(product: Callable[[Tensor], Tensor], shape: torch.Size) -> Callable[[np.ndarray], np.ndarray]:
        def run(x: np.ndarray) -> np.ndarray:
            return product(torch.from_numpy(np.array(x)).to(like).reshape(shape)).double().cpu().numpy().ravel()

        return run

    forward, back = applied(jacobian.jvp, like.shape), applied(jacobian.vjp, out.shape)
    made: Any = LinearOperator  # its __new__ takes the shape first, its __init__ the dtype
    operator = made((rows, columns), matvec=forward, rmatvec=back, dtype=np.float64)
    start = rng(seed).standard_normal(columns)
    if not forward(start).any():  # J = 0 for all but a null set of starts; ARPACK would divide by it
        nothing = np.zeros((k, max(rows, columns)))
        nothing[:, 0] = 1.0
        return nothing[:, :rows].T, np.zeros(k), nothing[:, :columns], True
    try:
        v0 = start if columns <= rows else forward(start)
        u, s, vt = svds(operator, k=k, tol=rtol, v0=v0, maxiter=max_iter)
        order = np.argsort(s)[::-1]
        return u[:, order], s[order], vt[order], True
    except (ArpackNoConvergence, ArpackError):
        return *_best_found(jacobian, start, k), False


def _best_found(jacobian: Jacobian, start: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rayleigh values of a block power iteration: lower bounds, for when Lanczos gives up."""
    block = rng(0).standard_normal((len(start), k))
    block[:, 0] = start
    images = np.zeros((0, 0))
    for _ in range(30):
        block = np.linalg.qr(block)[0]
        columns = [torch.from_numpy(column.copy()).to(jacobian.X).reshape(jacobian.X.shape) for column in block.T]
        pushed = [jacobian.jvp(column) for column in columns]
        images = np.stack([image.double().cpu().numpy().ravel() for image in pushed], axis=1)
        block_next = np.stack([jacobian.vjp(image).double().cpu().numpy().ravel() for image in pushed], axis=1)
        last, block = block, block_next
    u, s, wt = np.linalg.svd(images, full_matrices=False)
    return u, s, wt @ last.T


def _warn(what: str) -> None:
    warnings.warn(f"{what}: the value is a lower bound. Raise max_iter or rtol.", ConvergenceWarning, stacklevel=3)


__all__ = [
    "METHODS", "ConvergenceWarning", "LipschitzResult", "Spectrum", "differentiable_attention", "first",
    "jacobian_spectrum", "local_lipschitz", "local_lipschitz_batch", "module_lipschitz", "paper_code_estimate",
]  # fmt: skip
