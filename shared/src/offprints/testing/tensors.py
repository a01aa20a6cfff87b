"""Checks of torch functions and modules: precision, device, tracing, gradients."""

import inspect

import numpy as np
import torch

from offprints.testing.calls import assert_dtype
from offprints.testing.compiled import failures
from offprints.testing.conformance import Conformance
from offprints.testing.fake import on_fake_cuda
from offprints.testing.values import error, is_float, leaves, mapped, plain, scale


def check_bfloat16(case: Conformance) -> None:
    """Bfloat16 in gives finite bfloat16 out."""
    assert_dtype(case, "bfloat16")


def check_autocast(case: Conformance) -> None:
    """Under CPU autocast to bfloat16 the result is finite and near that in float32."""
    thing, inputs = case.prepared("float32")
    wanted = case.call(thing, *inputs)
    with torch.autocast("cpu", torch.bfloat16):
        got = case.call(thing, *inputs)
    assert all(np.isfinite(plain(x)).all() for x in leaves(got)), "not finite under autocast"
    gap, allowed = error(got, wanted), case.autocast_tolerance * scale(wanted)
    assert gap <= allowed, f"autocast is off by {gap:.3g}, more than {allowed:.3g}"


def check_device(case: Conformance) -> None:
    """Moved to (and built on) CUDA, no CPU tensor is made or mixed inside; fake tensors, so no GPU is needed."""
    thing, inputs = case.prepared("float32")
    on_fake_cuda(lambda move, device: case.call(move(thing), *move(inputs)))
    if case.kind == "module" and not {"meta", "factory"} & set(case.skip):
        built = lambda device: case.make(device=device, dtype=torch.float32).eval()  # noqa: E731
        on_fake_cuda(lambda move, device: case.call(built(device), *move(inputs)))


def check_compile(case: Conformance) -> None:
    """`torch.compile(fullgraph=True)` gives equal values and gradients and traces once (in a process of its own)."""
    found = failures(inspect.getfile(type(case)))
    failure = found.get("") or found[type(case).__qualname__]
    assert not failure, failure


def check_gradient(case: Conformance) -> None:
    """The gradient of every input and parameter agrees with finite differences in float64."""
    thing, inputs = case.prepared()
    inputs = mapped(lambda x: x.requires_grad_() if is_float(x) else x, inputs)
    wanted = [x for x in leaves(inputs) if is_float(x)]
    wanted += [p for p in thing.parameters() if p.requires_grad] if isinstance(thing, torch.nn.Module) else []
    result = lambda *_: tuple(x for x in leaves(case.call(thing, *inputs)) if getattr(x, "requires_grad", False))  # noqa: E731
    if not case.differentiable:
        assert not result(), "an output claims a gradient, but differentiable = False"
        return
    assert result(), "no output follows the inputs or parameters with a gradient"
    assert torch.autograd.gradcheck(result, wanted, fast_mode=True)
