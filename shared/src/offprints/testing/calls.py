"""Checks of what is called with arrays (functions and modules), of either framework."""

from collections.abc import Callable
from typing import Any

import numpy as np

from offprints.testing.conformance import Conformance, needs, when
from offprints.testing.values import (
    assert_close,
    assert_same,
    cast,
    copied,
    error,
    is_array,
    is_float,
    is_tensor,
    leaves,
    mapped,
    plain,
    scale,
)


def act(case: Conformance) -> Callable[[], object]:
    """One call."""
    thing, inputs = case.prepared()
    return lambda: case.call(thing, *inputs)


def check_dtype(case: Conformance) -> None:
    """Float32 in gives float32 out, float64 float64."""
    for dtype in ("float32", "float64"):
        assert_dtype(case, dtype)


def assert_dtype(case: Conformance, dtype: str) -> None:
    """Every floating-point output has the dtype that went in, and is finite."""
    thing, inputs = case.prepared(dtype)
    for output in (x for x in leaves(case.call(thing, *inputs)) if is_float(x)):
        assert str(output.dtype).endswith(dtype), f"{dtype} in, {output.dtype} out"
        assert np.isfinite(plain(output)).all(), f"not finite in {dtype}"


@needs("reference")
def check_low_precision(case: Conformance) -> None:
    """In 32 and 16 bits the error is at most twice that of the literal equations in the same dtype."""
    low = ["float32"] + ["bfloat16"] * (case.framework == "torch" and "bfloat16" not in case.skip)
    for dtype in low:
        thing, inputs = case.prepared(dtype)
        exact, _ = case.prepared("float64")
        if case.kind == "module":
            exact.load_state_dict(thing.state_dict())
        truth = case.reference(exact, *cast(inputs, "float64"))
        ours, literal = error(case.call(thing, *inputs), truth), error(case.reference(thing, *inputs), truth)
        rounding = scale(truth) * (2.0**-23 if dtype == "float32" else 2.0**-7)
        assert ours <= max(2 * literal, rounding), f"{dtype}: error {ours:.3g}, of the reference {literal:.3g}"


@when(lambda case: case.batched)
def check_rows(case: Conformance) -> None:
    """Row i of a batch is the run of row i alone."""
    thing, inputs = case.prepared()
    whole = case.call(thing, *inputs)
    n = len(leaves(whole)[0])
    assert n >= 2, "inputs() must hold two rows or more"
    for i in range(n):
        alone = case.call(thing, *case.rows(inputs, slice(i, i + 1)))
        within = mapped(lambda x, i=i: x[i : i + 1], whole)
        assert_close(alone, within, case.tolerance, f"row {i} alone and in the batch")


@when(lambda case: case.batched)
def check_empty_batch(case: Conformance) -> None:
    """A batch of no rows gives no rows, of the usual shape."""
    thing, inputs = case.prepared()
    wanted = [(0, *x.shape[1:]) for x in leaves(case.call(thing, *inputs))]
    shapes = [tuple(x.shape) for x in leaves(case.call(thing, *case.rows(inputs, slice(0, 0))))]
    assert shapes == wanted, f"an empty batch gives {shapes}, not {wanted}"


@needs("length_axis")
def check_length_one(case: Conformance) -> None:
    """A sequence of length one works."""
    thing, inputs = case.prepared()
    axis = case.length_axis
    length = next(x.shape[axis] for x in leaves(inputs) if is_array(x) and x.ndim > axis)
    first = (slice(None),) * axis + (slice(0, 1),)
    short = mapped(lambda x: x[first] if is_array(x) and x.ndim > axis and x.shape[axis] == length else x, inputs)
    outputs = leaves(case.call(thing, *copied(short)))
    assert all(np.isfinite(plain(x)).all() for x in outputs), "length 1 gives NaN or inf"


@needs("left_pad")
def check_left_padding(case: Conformance) -> None:
    """Padding in front changes nothing behind it."""
    thing, inputs = case.prepared()
    padded = case.unpad(case.call(thing, *case.left_pad(inputs, 3)), 3)
    assert_close(padded, case.call(thing, *inputs), case.tolerance, "with and without left padding")


def check_noncontiguous(case: Conformance) -> None:
    """Strided inputs give what contiguous ones give."""
    thing, inputs = case.prepared()
    strided = mapped(_strided, inputs)
    assert_close(case.call(thing, *strided), case.call(thing, *inputs), case.tolerance, "strided and contiguous inputs")


def check_unmodified(case: Conformance) -> None:
    """A call leaves its inputs as they were."""
    thing, inputs = case.prepared()
    before = copied(inputs)
    case.call(thing, *inputs)
    assert_same(inputs, before, "inputs before and after the call")


@when(lambda case: case.kind == "function")
def check_nan(case: Conformance) -> None:
    """A NaN in an input is refused by ValueError or seen in the result, never swallowed."""
    thing, inputs = case.prepared()
    for chosen in range(len(leaves(inputs))):
        poisoned = copied(inputs)
        leaf = leaves(poisoned)[chosen]
        if not is_float(leaf) or not leaf.ndim or 0 in leaf.shape:
            continue
        leaf[(0,) * leaf.ndim] = float("nan")
        try:
            output = case.call(thing, *poisoned)
        except ValueError:
            continue
        assert any(np.isnan(plain(x)).any() for x in leaves(output)), f"NaN in input {chosen} vanishes"


def _strided(x: object) -> object:
    """The same array as a view with gaps, such that no two axes can be joined without a copy."""
    if not is_array(x) or not x.ndim:
        return x
    wide = (*x.shape[:-1], 2 * x.shape[-1] + 1)
    view: Any = (x.new_zeros(wide) if is_tensor(x) else np.zeros(wide, x.dtype))[..., :-1:2]
    view[...] = x
    return view
