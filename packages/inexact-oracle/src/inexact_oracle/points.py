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
    """Whether no entry is NaN or infinite, and |x|^2 neither (entries below 1e154): all that follows squares them.

    One product instead of isfinite().all(), for this runs at every query; vdot overflows without a warning.
    """
    return math.isfinite(np.vdot(x, x))


def require_real(name: str, array: NDArray[np.generic]) -> None:
    """Refuse what numpy would turn into floats by leaving something out: complex parts, masks, texts, truth values.

    Raises:
        TypeError: the array does not hold real numbers.
    """
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name} must hold real numbers, got a masked array. Fill it first.")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}.")


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
        require_real("x", x)
        if x.dtype.kind == "f" and x.dtype != np.float64:
            restore = _in_dtype(x.dtype)
        point: Vector = x.astype(np.float64)
    elif isinstance(x, TensorLike):
        if not x.is_floating_point():
            raise TypeError("x must be a floating-point tensor, got an integer or boolean one.")
        point, restore = _to_numpy(x), _as_tensor(x)
    else:
        listed = np.asarray(x)
        require_real("x", listed)
        point = listed.astype(np.float64)
    if point.shape != (dim,):
        raise ValueError(f"x must have shape ({dim},), got {point.shape}.")
    if not all_finite(point):
        raise ValueError("x must be finite, and |x|^2 as well, got NaN, infinity or an entry beyond 1e154.")
    point += 0.0  # -0.0 and 0.0 are one point
    return point, restore


def _to_numpy(tensor: TensorLike) -> Vector:
    return np.array(tensor.detach().cpu().double().numpy())  # type: ignore


def checked_reply(answer: object, dim: int, query: int, what: str = "gradient") -> tuple[float, Vector]:
    """Value and gradient of a user's oracle as float and float64 (dim,), or a ValueError that names the query."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise ValueError(f"oracle returned {type(answer).__name__} at query {query}, expected (value, gradient).")
    value, grad = answer
    try:
        if isinstance(value, (str, bytes, np.complexfloating)):  # float() would read the one and cut the other
            raise TypeError
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise ValueError(f"oracle returned a value that is no number at query {query}: {value!r}.") from error
    if not isinstance(grad, np.ndarray) and isinstance(grad, TensorLike):
        grad = _to_numpy(grad)
    try:
        listed = np.asanyarray(grad)  # of a masked array the mask is kept, so that it is seen
        require_real(what, listed)
        slope = np.array(listed, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"oracle returned a {what} that is no array of real numbers at query {query}: {grad!r}."
        ) from error
    if slope.shape != (dim,):
        raise ValueError(f"oracle returned a {what} of shape {slope.shape} at query {query}, expected ({dim},).")
    if not math.isfinite(number):
        raise ValueError(f"oracle returned the value {value!r} at query {query}, expected a finite number.")
    if not all_finite(slope):
        raise ValueError(f"oracle returned a {what} with NaN or infinity at query {query}, or an entry beyond 1e154.")
    return number, slope
