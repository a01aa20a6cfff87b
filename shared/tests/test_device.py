import builtins
import io
import sys
import types

import numpy as np
import pytest
import torch
from offprints import device as d


class FakeAccelerator:
    """A device module as torch has them, that counts what it is asked."""

    def __init__(self, **extra: object) -> None:
        self.calls: list[str] = []
        self.__dict__.update(extra)

    def is_available(self) -> bool:
        return True

    def synchronize(self) -> None:
        self.calls.append("synchronize")


def test_pick_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    assert d.pick_device() == d.pick_device("auto") == torch.device("cpu")
    assert d.pick_device(torch.device("meta")).type == "meta"
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu', .* got 'gpu'"):
        d.pick_device("gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="which is not available"):
            d.pick_device("cuda")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    assert d.pick_device().type == "cuda"
    monkeypatch.setattr(torch, "get_device_module", lambda kind: FakeAccelerator())
    assert str(d.pick_device("cuda:1")) == "cuda:1"


def test_float_dtype_and_full_precision() -> None:
    assert d.float_dtype("cpu") == torch.float64
    assert d.float_dtype("mps") == torch.float32
    assert d.float_dtype("mps", torch.bfloat16) == torch.bfloat16
    x = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        with d.full_precision("cpu"):
            assert (x @ x).dtype == torch.float32


def test_clock_and_memory_of_the_cpu() -> None:
    with d.stopwatch() as watch:
        sum(range(10_000))
    assert 0 < watch.seconds < 5
    d.synchronize("cpu")
    d.reset_peak()
    before = d.memory_stats()
    held = np.ones(5_000_000)
    after = d.memory_stats()
    assert after.peak - before.peak >= 0.9 * held.nbytes
    del held
    d.reset_peak()
    assert d.memory_stats().peak < after.peak


def test_memory_elsewhere_than_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(d.os, "access", lambda *_: False)
    d.reset_peak()  # nothing to reset: no error
    usage = types.SimpleNamespace(ru_maxrss=7)
    fake = types.SimpleNamespace(getrusage=lambda _: usage, RUSAGE_SELF=0)
    monkeypatch.setitem(sys.modules, "resource", fake)
    for platform, factor in (("darwin", 1), ("freebsd", 1024)):
        monkeypatch.setattr(sys, "platform", platform)
        assert d.memory_stats().peak == 7 * factor


def test_reset_writes_what_the_kernel_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr(written, "close", lambda: None)
    monkeypatch.setattr(d.os, "access", lambda *_: True)
    monkeypatch.setattr(builtins, "open", lambda *_: written)
    d.reset_peak()
    assert written.getvalue() == "5"


def test_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            cuda.calls.append("record")

        def elapsed_time(self, other: "Event") -> float:
            return 1500.0

    cuda = FakeAccelerator(
        Event=Event,
        memory_allocated=lambda: 3,
        max_memory_allocated=lambda: 9,
        reset_peak_memory_stats=lambda: cuda.calls.append("reset"),
    )
    mps = FakeAccelerator(current_allocated_memory=lambda: 2, driver_allocated_memory=lambda: 4)
    monkeypatch.setattr(torch, "get_device_module", lambda kind: {"cuda": cuda, "mps": mps}[kind])
    with d.stopwatch("cuda") as watch:
        pass
    assert watch.seconds == 1.5
    assert cuda.calls == ["record", "record", "synchronize"]
    with d.stopwatch("mps") as watch:
        pass
    assert watch.seconds >= 0
    assert mps.calls == ["synchronize", "synchronize"]
    assert (d.memory_stats("cuda"), d.memory_stats("mps")) == (d.MemoryStats(3, 9), d.MemoryStats(2, 4))
    d.reset_peak("cuda")
    d.reset_peak("mps")
    assert cuda.calls[-1] == "reset"


def test_in_chunks() -> None:
    sizes: list[int] = []

    def fn(x: torch.Tensor) -> torch.Tensor:
        sizes.append(len(x))
        return 2 * x

    x = torch.arange(5)
    assert torch.equal(d.in_chunks(fn, x, 2), 2 * x)
    assert sizes == [2, 2, 1]
    assert d.in_chunks(fn, x[:0], 2).shape == (0,)
    assert d.in_chunks(lambda a: a + 1, np.arange(3), 10).tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match="size must be an integer at least 1"):
        d.in_chunks(fn, x, 0)


@pytest.mark.parametrize("exhausted", [MemoryError, torch.OutOfMemoryError])
def test_in_chunks_halves_when_memory_runs_out(exhausted: type[Exception]) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        if len(x) > 2:
            raise exhausted
        return x

    x = torch.arange(9)
    assert torch.equal(d.in_chunks(fn, x, 8), x)
    with pytest.raises(exhausted):
        d.in_chunks(fn, x, 8, on_oom="raise")

    def never(x: torch.Tensor) -> torch.Tensor:
        raise exhausted

    with pytest.raises(exhausted):
        d.in_chunks(never, x, 8)
