"""Random numbers without global state: generators that are passed on, and a context that restores what it seeds."""

import random
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, overload

import numpy as np

from offprints.checks import require_range

if TYPE_CHECKING:
    import torch


@overload
def rng(seed: int) -> np.random.Generator: ...
@overload
def rng(seed: int, device: "str | torch.device") -> "torch.Generator": ...
def rng(seed: int, device: "str | torch.device | None" = None) -> "np.random.Generator | torch.Generator":
    """A fresh generator: numpy's without a device, torch's on `device`.

    Raises:
        TypeError: if the seed is no integer.
        ValueError: if it is negative.
    """
    require_range("seed", seed, low=0, integer=True)
    if device is None:
        return np.random.default_rng(seed)
    import torch

    return torch.Generator(device).manual_seed(int(seed))


def spawn(seed: int, n: int) -> list[int]:
    """`n` independent 63-bit seeds grown from one, by numpy's `SeedSequence` (for workers, layers, runs)."""
    require_range("n", n, low=0, integer=True)
    return [int(child.generate_state(1, np.uint64)[0]) >> 1 for child in np.random.SeedSequence(seed).spawn(n)]


@contextmanager
def isolated(seed: int) -> Generator[None, None, None]:
    """Seed the global states of python, numpy and torch (where imported) inside, and restore them after."""
    require_range("seed", seed, low=0, integer=True)
    torch = sys.modules.get("torch")
    python, numpy = random.getstate(), np.random.get_state()
    tensor = torch.get_rng_state() if torch else None
    devices = torch.cuda.get_rng_state_all() if torch and torch.cuda.is_available() else []
    try:
        random.seed(seed)  # noqa: TID251
        np.random.seed(seed % 2**32)  # noqa: TID251
        if torch:
            torch.manual_seed(seed)
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
        if torch:
            torch.set_rng_state(tensor)
        if torch and devices:
            torch.cuda.set_rng_state_all(devices)
