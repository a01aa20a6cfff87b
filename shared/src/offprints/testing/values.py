"""Results of either framework, taken apart: the arrays inside nested values, compared, copied and cast."""

import copy
import dataclasses
import math
import numbers
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

import numpy as np

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


def is_tensor(value: object) -> "TypeGuard[torch.Tensor]":
    """Whether it is a torch tensor (without importing torch)."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> TypeGuard[np.ndarray]:
    """Whether it is a numpy array or scalar, or a torch tensor (which has what is used of an array here)."""
    return isinstance(value, (np.ndarray, np.generic)) or is_tensor(value)


def is_float(value: object) -> bool:
    """Whether it is an array of floating-point numbers."""
    if is_tensor(value):
        return value.dtype.is_floating_point
    return is_array(value) and value.dtype.kind == "f"


def mapped(fn: Callable, value: T) -> T:
    """`value` with `fn` applied to every array and number inside tuples, lists, dicts and dataclasses."""
    clone: Any = value
    if is_array(value) or isinstance(value, numbers.Number):
        clone = fn(value)
    elif isinstance(value, Mapping):
        clone = {key: mapped(fn, item) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        items = [mapped(fn, item) for item in value]
        clone = type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        clone = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(clone, field.name, mapped(fn, getattr(value, field.name)))
    return clone


def leaves(value: object) -> list:
    """The arrays and numbers inside, in order."""
    found: list = []
    mapped(found.append, value)
    return found


def copied(value: T) -> T:
    """A copy that shares no array with the original."""
    return mapped(lambda x: x.detach().clone() if is_tensor(x) else np.copy(x) if is_array(x) else x, value)


def cast(value: T, dtype: str) -> T:
    """The floating-point arrays inside, in another dtype (`"float64"`, `"bfloat16"`, ...)."""

    def convert(x: Any) -> object:
        if not is_float(x):
            return x
        return x.to(getattr(sys.modules["torch"], dtype)) if is_tensor(x) else x.astype(dtype)

    return mapped(convert, value)


def plain(value: object) -> np.ndarray:
    """An array as numpy; bfloat16 and the like become float64."""
    if is_tensor(value):
        here = value.detach().cpu().resolve_conj()
        return (here.double() if here.dtype.is_floating_point else here).numpy()
    return np.asarray(value)


def error(got: object, wanted: object) -> float:
    """The largest absolute difference between two results of one structure."""
    return max((_gap(plain(a), plain(b)) for a, b in _pairs(got, wanted)), default=0.0)


def scale(value: object) -> float:
    """The largest absolute entry."""
    return max((float(np.max(np.abs(plain(x)), initial=0.0)) for x in leaves(value)), default=0.0)


def assert_close(got: object, wanted: object, tolerance: float, what: str) -> None:
    """Equal structure and shapes, and every entry within `tolerance` times the largest one."""
    for a, b in _pairs(got, wanted, what):
        gap, allowed = _gap(plain(a), plain(b)), tolerance * scale(b)
        assert gap <= allowed, f"{what}: off by {gap:.3g}, more than {allowed:.3g}"


def assert_same(got: object, wanted: object, what: str) -> None:
    """Equal to the last bit, NaN to NaN."""
    for a, b in _pairs(got, wanted, what):
        np.testing.assert_array_equal(plain(a), plain(b), err_msg=what)


def spoilt(output: object) -> Iterator[object]:
    """The output with each of its arrays and numbers spoilt in turn, in one entry."""
    for chosen, leaf in enumerate(leaves(output)):
        if not is_array(leaf) or math.prod(leaf.shape):
            turn = iter(range(sys.maxsize))
            yield mapped(lambda x, turn=turn, chosen=chosen: _bumped(x) if next(turn) == chosen else x, output)


def _pairs(got: object, wanted: object, what: str = "results") -> list[tuple]:
    first, second = leaves(got), leaves(wanted)
    shapes = [[np.shape(plain(x)) for x in side] for side in (first, second)]
    assert shapes[0] == shapes[1], f"{what}: shapes {shapes[0]} and {shapes[1]} differ"
    return list(zip(first, second, strict=True))


def _gap(a: np.ndarray, b: np.ndarray) -> float:
    if a.dtype == bool or b.dtype == bool:
        return float(np.any(a != b))
    same = (a == b) | ((a != a) & (b != b))
    with np.errstate(invalid="ignore"):
        gap = np.max(np.where(same, 0.0, np.abs(a - b)), initial=0.0)
    return float("inf") if np.isnan(gap) else float(gap)


def _bumped(x: Any) -> object:
    """A copy whose largest entry is 5 % off (one off, where it is no float, or nothing)."""
    wrong: Any = x.detach().clone().contiguous() if is_tensor(x) else np.array(x)
    flat, kind = wrong.reshape(-1), str(wrong.dtype)
    if "float" in kind or "complex" in kind:
        at = int(abs(flat).argmax())
        flat[at] += 0.05 * flat[at] if flat[at] else 1
    else:
        flat[0] = not flat[0] if "bool" in kind else flat[0] + 1
    return wrong if is_tensor(x) or wrong.ndim else type(x)(wrong)
