"""Text of the standard library as a character-level task, and token files of language-model trainings."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from offprints.checks import require_range
from torch import Tensor


class Text(NamedTuple):
    """Character codes (n,) for training and validation, and the characters."""

    train: Tensor
    held_out: Tensor
    symbols: str


def standard_library_text(share: float = 0.9) -> Text:
    """Python's own documentation (`pydoc_data.topics`), about 450 000 characters, split in order.

    Raises:
        ValueError: share outside (0, 1).
    """
    from pydoc_data.topics import topics

    require_range("share", share, low=0.0, high=1.0, low_open=True, high_open=True)
    text = "".join(topics[name] for name in sorted(topics))
    symbols = "".join(sorted(set(text)))
    codes = torch.tensor([symbols.index(symbol) for symbol in text])
    cut = int(share * len(codes))
    return Text(codes[:cut], codes[cut:], symbols)


def load_tokens(path: str | Path, dtype: str = "auto") -> np.ndarray:
    """Token ids of a `.bin` file of nanoGPT or Megatron, mapped into memory.

    nanoGPT's `.bin` is bare uint16; of Megatron's `.bin` the `.idx` beside it tells the type (uint16 or int32).

    Args:
        path: the `.bin` file.
        dtype: "auto", or a numpy type for a bare file, such as "uint16" or "uint32".

    Returns:
        (n,) tokens, read-only.

    Raises:
        FileNotFoundError: no such file.
        ValueError: an `.idx` that is not Megatron's, or a size that is no multiple of the type's.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"no token file at {path}.")
    index = path.with_suffix(".idx")
    if dtype == "auto":
        dtype = _megatron_type(index) if index.exists() else "uint16"
    width = np.dtype(dtype).itemsize
    if path.stat().st_size == 0 or path.stat().st_size % width:
        raise ValueError(f"{path} must hold {dtype} tokens of {width} bytes, got {path.stat().st_size} bytes.")
    return np.memmap(path, dtype=dtype, mode="r")


def _megatron_type(index: Path) -> str:
    """The type code in a Megatron index: 9 bytes of magic, 8 of version, 1 of code."""
    codes = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32", 8: "uint16"}
    head = index.read_bytes()[:18]
    if len(head) < 18 or head[:9] != b"MMIDIDX\x00\x00" or codes.get(head[17], "float").startswith("float"):
        raise ValueError(f"{index} must be an index of Megatron (MMIDIDX) of integer tokens, got {head[:9]!r}.")
    return codes[head[17]]


def batches(tokens: Tensor | np.ndarray, length: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random windows: inputs and targets, each (size, length) of int64; targets are one token later.

    Raises:
        ValueError: fewer tokens than a window needs.
    """
    if len(tokens) <= length:
        raise ValueError(f"tokens must be more than a window of {length}, got {len(tokens)}.")
    starts = torch.randint(0, len(tokens) - length, (size,), generator=generator)
    windows = [torch.as_tensor(np.asarray(tokens[int(s) : int(s) + length + 1]).astype(np.int64)) for s in starts]
    both = torch.stack(windows)
    return both[:, :-1], both[:, 1:]
