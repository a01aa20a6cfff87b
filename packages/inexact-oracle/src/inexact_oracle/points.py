"""The caller's array type in, float64 inside, the caller's array type out."""

import math
from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Vector: TypeAlias = NDArray[np.float64]
Restore: TypeAlias = "Callable[[float, Vector], tuple[float, Vector]]"


@runtime_checkable
class TensorLike(Protocol):
    """What is used of a torch tensor, so that torch itself is never imported here."""

    def detach(self) -> "TensorLike": ...  # noqa: D102
    def is_floating_point(self) -> bool: ...  # noqa: D102
    def new_tensor(self, data: object) -> "TensorLike": ...  # noqa: D102


Point: TypeAlias = "NDArray[np.floating] | Sequence[float] | TensorLike"


def all_finite(x: Vector) -> bool:
    """Whether no entry is NaN or infinite; one product instead of isfinite().all(), for this runs at every query."""
    return math.isfinite(x @ x) or bool(np.isfinite(x).all())


def _same(value: float, grad: Vector) -> tuple[float, Vector]:
    return value, grad


def _in_dtype(kind: np.dtype) -> Restore:
    def restore(value: float, grad: Vector) -> tuple[float, Vector]:
        return kind.type(value), grad.astype(kind)

    return restore


def _as_tensor(like: TensorLike) -> Restore:
    """Tensors of the dtype and device of `like`; typed as the arrays that they stand for."""

    def restore(value: float, grad: Vector) -> tuple[float, Vector]:
        return like.new_tensor(value), like.new_tensor(grad)  # type: ignore

    return restore


def to_float64(x: Point, dim: int) -> tuple[Vector, Restore]:
    """A private float64 copy of the query and the map that takes a reply back to the caller's kind and dtype.

    Raises:
        TypeError: the query is not an array of real numbers.
        ValueError: its shape is not (dim,), or it holds NaN or infinity.
    """
    restore: Restore = _same
    if isinstance(x, np.ndarray):
        if x.dtype.kind not in "fiu":
            raise TypeError(f"x must hold real numbers, got dtype {x.dtype}.")
        if x.dtype.kind == "f" and x.dtype != np.float64:
            restore = _in_dtype(x.dtype)
        point: Vector = x.astype(np.float64)
    elif isinstance(x, TensorLike):
        if not x.is_floating_point():
            raise TypeError("x must be a floating-point tensor, got an integer or boolean one.")
        point, restore = _to_numpy(x), _as_tensor(x)
    else:
        point = np.array(x, dtype=np.float64)
    if point.shape != (dim,):
        raise ValueError(f"x must have shape ({dim},), got {point.shape}.")
    if not all_finite(point):
        raise ValueError("x must be finite, got NaN or infinity.")
    point += 0.0  # -0.0 and 0.0 are one point
    return point, restore


def _to_numpy(tensor: TensorLike) -> Vector:
    return np.array(tensor.detach().cpu().double().numpy())  # type: ignore


def checked_reply(answer: object, dim: int, query: int) -> tuple[float, Vector]:
    """Value and gradient of a user's oracle as float and float64 (dim,), or a ValueError that names the query."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise ValueError(f"oracle returned {type(answer).__name__} at query {query}, expected (value, gradient).")
    value, grad = answer
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ValueError(f"oracle returned a value that is no number at query {query}: {value!r}.") from error
    if not isinstance(grad, np.ndarray) and isinstance(grad, TensorLike):
        grad = _to_numpy(grad)
    try:
        slope = np.array(grad, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"oracle returned a gradient that is no array at query {query}: {grad!r}.") from error
    if slope.shape != (dim,):
        raise ValueError(f"oracle returned a gradient of shape {slope.shape} at query {query}, expected ({dim},).")
    if not math.isfinite(number):
        raise ValueError(f"oracle returned the value {number} at query {query}, expected a finite number.")
    if not all_finite(slope):
        raise ValueError(f"oracle returned a gradient with NaN or infinity at query {query}.")
    return number, slope
