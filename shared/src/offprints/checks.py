"""Checks of arguments that all speak in one form: what, got, expected, hint.

`ValueError: slots must be between 1 and 128 (the key length), got 256. Lower slots or pass a longer cache.`
`TypeError` for a wrong kind, `ValueError` for a wrong value. Nothing here imports torch.
"""

import math
import numbers
import sys
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import ParamSpec, TypeVar

import numpy as np

T = TypeVar("T")
P = ParamSpec("P")


def message(name: str, expected: str, got: object, hint: str = "") -> str:
    """`<name> must be <expected>, got <got>. <hint>`: the one form of an error."""
    return f"{name} must be {expected}, got {got}." + (f" {hint}" if hint else "")


def _interval(low: float | None, high: float | None, low_open: bool, high_open: bool) -> str:
    if low is not None and high is not None and not low_open and not high_open:
        return f"between {low} and {high}"
    lower = "" if low is None else f"{'greater than' if low_open else 'at least'} {low}"
    upper = "" if high is None else f"{'less than' if high_open else 'at most'} {high}"
    return " and ".join(part for part in (lower, upper) if part) or "a number"


def require_range(
    name: str,
    value: T,
    *,
    low: float | None = None,
    high: float | None = None,
    low_open: bool = False,
    high_open: bool = False,
    integer: bool = False,
    because: str = "",
    hint: str = "",
) -> T:
    """Return `value` if it is a real number (an integer if `integer`) in the interval.

    Args:
        name: the argument, as the caller knows it.
        value: what was given.
        low: lower end, or None.
        high: upper end, or None.
        low_open: whether `low` itself is excluded.
        high_open: whether `high` itself is excluded.
        integer: whether only integers are allowed.
        because: what the interval comes from, put in brackets.
        hint: what to do about it.

    Raises:
        TypeError: if it is no number (bool counts as none), or no integer.
        ValueError: if it is NaN or outside.
    """
    kind = numbers.Integral if integer else numbers.Real
    expected = ("an integer " if integer else "") + _interval(low, high, low_open, high_open)
    expected += f" ({because})" if because else ""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, kind):
        raise TypeError(message(name, expected, f"{value!r} ({type(value).__name__})", hint))
    number = float(value)
    inside = not math.isnan(number)
    inside = inside and (low is None or (number > low if low_open else number >= low))
    inside = inside and (high is None or (number < high if high_open else number <= high))
    if not inside:
        raise ValueError(message(name, expected, value, hint))
    return value


def require_shape(name: str, array: object, shape: Sequence[int | str | None], *, hint: str = "") -> None:
    """Check the shape of an array or tensor.

    `shape` holds an int (that size), a name (any size, the same wherever the name stands again) or None (any);
    a leading `"..."` stands for any number of dimensions.

    Raises:
        TypeError: if it has no shape.
        ValueError: if the shape differs.
    """
    expected = "of shape (" + ", ".join("any" if size is None else str(size) for size in shape) + ")"
    got = getattr(array, "shape", None)
    if got is None:
        raise TypeError(message(name, f"an array {expected}", type(array).__name__, hint))
    got, want = tuple(got), tuple(shape)
    if want[:1] == ("...",):
        want = want[1:]
        tail = got[len(got) - len(want) :] if len(got) >= len(want) else None
    else:
        tail = got if len(got) == len(want) else None
    bound: dict[str, int] = {}
    fits = tail is not None and all(
        bound.setdefault(size, have) == have if isinstance(size, str) else size in (None, have)
        for size, have in zip(want, tail, strict=True)
    )
    if not fits:
        raise ValueError(message(name, expected, got, hint))


def require_finite(name: str, array: object, *, hint: str = "") -> None:
    """Check that every entry is finite (skipped while torch traces: fake values have none).

    Raises:
        ValueError: naming how many entries are not, and the first one.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        from torch._subclasses.fake_tensor import FakeTensor

        if torch.compiler.is_compiling() or isinstance(array, FakeTensor) or array.is_meta:
            return
        bad = (~torch.isfinite(array.detach())).nonzero().cpu().numpy()
        entries = array.numel()
    else:
        values = np.asarray(array)
        bad, entries = np.argwhere(~np.isfinite(values)), values.size
    if len(bad):
        where = tuple(int(i) for i in bad[0])
        raise ValueError(
            message(name, "finite", f"{len(bad)} NaN or inf of {entries} entries, the first at {where}", hint)
        )


def require_choice(name: str, value: T, choices: Iterable[T], *, hint: str = "") -> T:
    """Return `value` if it is one of `choices`; the error lists them.

    Raises:
        ValueError: if it is not.
    """
    allowed = list(choices)
    if value not in allowed:
        raise ValueError(message(name, "one of " + ", ".join(map(repr, allowed)), repr(value), hint))
    return value


def require_kind(name: str, value: object, kind: type | tuple[type, ...], *, hint: str = "") -> None:
    """Check `isinstance(value, kind)`.

    Raises:
        TypeError: if it is not.
    """
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        raise TypeError(message(name, "of type " + " or ".join(k.__name__ for k in kinds), type(value).__name__, hint))


def require_same_device(**tensors: object) -> None:
    """Check that all tensors lie on one device; None is passed over.

    Raises:
        ValueError: listing the device of each.
    """
    devices = {name: str(tensor.device) for name, tensor in tensors.items() if hasattr(tensor, "device")}
    if len(set(devices.values())) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise ValueError(message(" and ".join(devices), "on one device", listed, "Move them with .to(device)."))


class Problems:
    """Collects what is wrong and raises it all at once, as one `ValueError`.

    >>> with Problems("cannot convert the model") as problems:
    ...     problems.check(require_range, "heads", 4, low=1)
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.found: list[str] = []

    def add(self, problem: str) -> None:
        """Note one problem."""
        self.found.append(problem)

    def check(self, check: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run a check and note its error instead of raising it."""
        try:
            check(*args, **kwargs)
        except (TypeError, ValueError) as error:
            self.add(str(error))

    def __enter__(self) -> "Problems":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.found:
            count = f"{len(self.found)} problem" + "s" * (len(self.found) > 1)
            raise ValueError(f"{self.what}: {count}.\n" + "\n".join(f"  - {problem}" for problem in self.found))
