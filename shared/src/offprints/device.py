"""Devices: which one, which float it has, what its memory holds, how long work on it takes."""

import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from offprints.checks import require_choice, require_range

if TYPE_CHECKING:
    import torch

A = TypeVar("A", "np.ndarray", "torch.Tensor")


def pick_device(device: "str | torch.device | None" = None) -> "torch.device":
    """The device that was given; for None or `"auto"` the accelerator there is, else the CPU.

    Raises:
        ValueError: if the text names no device, or one that is not here.
    """
    import torch

    if device is None or device == "auto":
        here = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return here or torch.device("cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"device must be 'auto', 'cpu', 'cuda', 'cuda:1', 'mps', ..., got {device!r}.") from error
    if chosen.type not in ("cpu", "meta") and not torch.get_device_module(chosen.type).is_available():
        raise ValueError(f"device must be one that is here, got {device!r}, which is not available. Try 'auto'.")
    return chosen


def float_dtype(device: "str | torch.device", wanted: "torch.dtype | None" = None) -> "torch.dtype":
    """`wanted` (float64 by default), lowered to float32 where the device has no float64 (MPS)."""
    import torch

    wanted = torch.float64 if wanted is None else wanted
    return torch.float32 if torch.device(device).type == "mps" and wanted == torch.float64 else wanted


def full_precision(device: "str | torch.device") -> AbstractContextManager[object]:
    """Autocast off, for arithmetic that 16 bits would spoil: indices, probabilities, FFT."""
    import torch

    kind = torch.device(device).type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()


def synchronize(device: "str | torch.device") -> None:
    """Wait until the device has done all that was queued (nothing to do on the CPU)."""
    import torch

    if torch.device(device).type != "cpu":
        torch.get_device_module(torch.device(device).type).synchronize()


@dataclass
class Stopwatch:
    """Seconds between entering and leaving `stopwatch`."""

    seconds: float = float("nan")


@contextmanager
def stopwatch(device: "str | torch.device" = "cpu") -> Generator[Stopwatch, None, None]:
    """Time a block: by device events on an accelerator that has them, by the clock elsewhere."""
    watch = Stopwatch()
    if str(device).startswith("cuda"):
        events = __import__("torch").get_device_module("cuda").Event
        start, stop = events(enable_timing=True), events(enable_timing=True)
        start.record()
        yield watch
        stop.record()
        synchronize(device)
        watch.seconds = start.elapsed_time(stop) / 1000
        return
    if str(device) != "cpu":
        synchronize(device)
    begun = time.perf_counter()
    yield watch
    if str(device) != "cpu":
        synchronize(device)
    watch.seconds = time.perf_counter() - begun


@dataclass(frozen=True)
class MemoryStats:
    """Bytes held now, and at most since the last `reset_peak`."""

    current: int
    peak: int


def memory_stats(device: "str | torch.device" = "cpu") -> MemoryStats:
    """Memory of this process on the device: resident on the CPU, the allocator's on an accelerator."""
    if str(device) == "cpu":
        if sys.platform == "linux":
            with open("/proc/self/status") as file:
                fields = dict(line.split(":", 1) for line in file)
            return MemoryStats(*(int(fields[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM")))
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return MemoryStats(peak, peak)
    import torch

    module = torch.get_device_module(torch.device(device).type)
    if hasattr(module, "max_memory_allocated"):
        return MemoryStats(module.memory_allocated(), module.max_memory_allocated())
    return MemoryStats(module.current_allocated_memory(), module.driver_allocated_memory())


def reset_peak(device: "str | torch.device" = "cpu") -> None:
    """Let the peak of `memory_stats` start again from what is held now (where the system can)."""
    if str(device) == "cpu":
        if os.access("/proc/self/clear_refs", os.W_OK):
            with open("/proc/self/clear_refs", "w") as file:
                file.write("5")
        return
    import torch

    getattr(torch.get_device_module(torch.device(device).type), "reset_peak_memory_stats", int)()


def in_chunks(fn: Callable[[A], A], x: A, size: int, on_oom: str = "halve") -> A:
    """`fn` applied to slices of at most `size` rows and joined along the first dimension.

    Args:
        fn: maps (rows, ...) to (rows, ...), each row by itself.
        x: (n, ...) array or tensor; for n = 0 `fn` is called once, on it.
        size: rows at a time.
        on_oom: "halve" the size when memory runs out (down to one row), or "raise".

    Raises:
        MemoryError: or torch's out-of-memory error, when even one row does not fit.
    """
    require_range("size", size, low=1, integer=True)
    require_choice("on_oom", on_oom, ("halve", "raise"))
    torch = sys.modules.get("torch")
    exhausted = (MemoryError, torch.OutOfMemoryError) if torch else (MemoryError,)
    done, parts = 0, []
    while done < len(x) or not parts:
        try:
            parts.append(fn(x[done : done + size]))
            done += size
        except exhausted:
            if on_oom == "raise" or size == 1:
                raise
            size //= 2
    if torch is not None and isinstance(parts[0], torch.Tensor):
        return cast(A, torch.cat(parts))
    return cast(A, np.concatenate(parts))
