"""Checks of torch modules: where they are built, and that their state survives every way of keeping it."""

import copy
import pickle  # noqa: TID251 -- users pickle modules into worker processes, so a module must survive it
from collections.abc import Callable

import torch
from safetensors.torch import load, save

from offprints.testing.conformance import Conformance
from offprints.testing.values import assert_close, assert_same


def check_meta(case: Conformance) -> None:
    """On the meta device everything registered is built there, without memory."""
    thing = case.make(device="meta", dtype=torch.float32)
    stray = [name for name, x in thing.state_dict(keep_vars=True).items() if not x.is_meta]
    assert not stray, f"built off the meta device: {', '.join(stray)}"


def check_factory(case: Conformance) -> None:
    """`device=` and `dtype=` reach every floating-point parameter and buffer."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        state = case.make(device="cpu", dtype=dtype).state_dict()
        other = [name for name, x in state.items() if x.is_floating_point() and x.dtype != dtype]
        assert not other, f"dtype={dtype} does not reach {', '.join(other)}"


def check_state_dict(case: Conformance) -> None:
    """A strictly loaded `state_dict` gives the same outputs."""
    _survives(case, lambda module: _loaded(case, module.state_dict()))


def check_safetensors(case: Conformance) -> None:
    """The state goes through safetensors: tensors alone, none that share memory."""
    state = case.prepared()[0].state_dict()
    kept = load(save(state))
    assert_same([kept[name] for name in state], list(state.values()), "the state before and after safetensors")


def check_deepcopy(case: Conformance) -> None:
    """A deep copy gives the same outputs and shares no parameter."""
    module, _ = case.prepared()
    theirs = {p.data_ptr() for p in module.parameters()}
    assert theirs.isdisjoint(p.data_ptr() for p in copy.deepcopy(module).parameters()), "the copy shares parameters"
    _survives(case, copy.deepcopy)


def check_pickle(case: Conformance) -> None:
    """Pickle, as into a worker process, gives the same outputs."""
    _survives(case, lambda module: pickle.loads(pickle.dumps(module)))


def check_grads_untouched(case: Conformance) -> None:
    """A forward pass leaves parameters and their `grad` as they were."""
    module, inputs = case.prepared()
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    state = {name: x.clone() for name, x in module.state_dict().items()}
    case.call(module, *inputs)
    assert_same(module.state_dict(), state, "the state before and after a call")
    changed = [name for name, p in module.named_parameters() if p.grad is None or not (p.grad == 1).all()]
    assert not changed, f"a call changes the grad of {', '.join(changed)}"


def _loaded(case: Conformance, state: dict[str, torch.Tensor]) -> torch.nn.Module:
    fresh = case.make(dtype=torch.float64).eval()
    fresh.load_state_dict(state, strict=True)
    return fresh


def _survives(case: Conformance, keep: Callable[[torch.nn.Module], torch.nn.Module]) -> None:
    module, inputs = case.prepared()
    with torch.no_grad():  # other than freshly built, so that a state left behind shows
        for x in module.state_dict().values():
            x.mul_(1.25 if x.is_floating_point() else 1)
    wanted = case.call(module, *inputs)
    assert_close(case.call(keep(module), *inputs), wanted, case.tolerance, "outputs of the original and the restored")
