"""Fake tensors that claim to be on CUDA: device mix-ups show without a GPU."""

import copy
import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily

from offprints.testing.values import is_tensor, leaves, mapped

Move = Callable
_CUDA, _META, _DEVICES = 1, 14, 21  # c10::DeviceType
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"


def on_fake_cuda(act: Callable[[Move, str], object]) -> None:
    """Run `act(move, device)` on fake CUDA tensors: `move` takes tensors and modules there, as `.to("cuda")` would.

    What goes wrong otherwise gets a second opinion from fake tensors on the meta device: without a GPU the autograd
    engine refuses CUDA. They miss only CPU indices of gather and embedding.

    Raises:
        RuntimeError: of torch, where CPU and CUDA tensors meet.
        AssertionError: if a tensor of the result is not on the device.
    """
    try:
        _on("cuda", act)
    except RuntimeError as error:
        if torch.cuda.is_available() or "two" in str(error):  # "found two different devices"
            raise
        _on("meta", act)


def _on(device: str, act: Callable[[Move, str], object]) -> None:
    with _cuda_guard(), FakeTensorMode(allow_non_fake_inputs=True):
        result = act(lambda value: _moved(value, device), device)
    stray = [x.device for x in leaves(result) if is_tensor(x) and x.device.type != device]
    assert not stray, f"inputs on {device}, but a result on {stray[0]}"


def _moved(value: object, device: str) -> object:
    if isinstance(value, torch.nn.Module):
        with unset_fake_temporarily():  # a fake copy of a real buffer cannot be made
            value = copy.deepcopy(value)
        for module in value.modules():
            for name, p in module.named_parameters(recurse=False, remove_duplicate=False):
                module._parameters[name] = torch.nn.Parameter(_claim(p, device), p.requires_grad)
            for name, b in module.named_buffers(recurse=False, remove_duplicate=False):
                module._buffers[name] = _claim(b, device)
        return value
    return mapped(lambda x: _claim(x, device) if is_tensor(x) else x, value)


def _claim(x: torch.Tensor, device: str) -> torch.Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=device)


@contextmanager
def _cuda_guard() -> Iterator[None]:
    """Let C++ switch to a CUDA device that is not there.

    A torch built for CUDA has a call for that. One built without has no guard for the device type, and indexing
    would stop at its absence: the do-nothing guard of the meta device is lent to it.
    """
    getattr(torch._C, "_ensureCUDADeviceGuardSet", int)()
    libraries = (Path(torch.__file__).parent / "lib").glob("libc10.*")
    registries = [(ctypes.c_void_p * _DEVICES).in_dll(ctypes.CDLL(str(library)), _REGISTRY) for library in libraries]
    lacking = [guards for guards in registries if not guards[_CUDA]]
    for guards in lacking:
        guards[_CUDA] = guards[_META]
    try:
        yield
    finally:
        for guards in lacking:
            guards[_CUDA] = None
