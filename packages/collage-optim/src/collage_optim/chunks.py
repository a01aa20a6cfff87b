"""Cache-sized pieces of many tensors: slices of the large ones, several small ones packed into one."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

CHUNK = 65_536
"""Elements that the kernels handle at a time: all their buffers stay in a second-level cache."""
Views = dict[str, Tensor]
"""State of some parameters by name ("param", "grad", "exp_avg", ...): one-dimensional views of equal length."""


class Scratch:
    """Buffers by name and type, made once and used for every chunk."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, torch.dtype, torch.device], Tensor] = {}

    def __call__(self, name: str, length: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A buffer (length,); its content is whatever was there before."""
        kept = self._kept.get((name, dtype, device))
        if kept is None or len(kept) < length:
            kept = torch.empty(max(length, CHUNK), dtype=dtype, device=device)
            self._kept[name, dtype, device] = kept
        return kept[:length]

    def like(self, x: Tensor, *names: str, dtype: torch.dtype | None = None) -> list[Tensor]:
        """Buffers of the length and device of x (1-D), and of its type unless another is given."""
        return [self(name, len(x), dtype or x.dtype, x.device) for name in names]


def flat(tensors: Mapping[str, Tensor]) -> tuple[Views, Views]:
    """One-dimensional views; and, where a tensor has none, the tensor itself, into which its copy is to be put back."""
    views, copied = {}, {}
    for name, tensor in tensors.items():
        local = tensor.to_local() if hasattr(tensor, "to_local") else tensor  # a DTensor: this rank's shard
        if not local.is_contiguous():
            copied[name] = local
        views[name] = local.detach().reshape(-1)
    return views, copied


def put_back(views: Views, copied: Views) -> None:
    """Write changed copies into the tensors that they were made of."""
    for name, tensor in copied.items():
        if name != "grad":
            tensor.copy_(views[name].view(tensor.shape))


def chunks(parts: list[Views], size: int, scratch: Scratch, pack: int) -> Iterator[Views]:
    """Slices of at most `size` elements, and packs of small parts, written back when the next chunk is asked for.

    Args:
        parts: views of one parameter each, all with the same names and types.
        size: elements per slice.
        scratch: where packed parts lie.
        pack: elements after which a pack is full; parts of half as many go alone. 0: all go alone.
    """
    small: list[Views] = []
    filled = 0
    for part in parts:
        length = part["param"].numel()
        if length >= pack // 2:
            for start in range(0, length, size):
                yield {name: view[start : start + size] for name, view in part.items()} if length > size else part
            continue
        small.append(part)
        filled += length
        if filled >= pack:
            yield from _together(small, scratch)
            small, filled = [], 0
    if filled:
        yield from _together(small, scratch)


def _together(parts: list[Views], scratch: Scratch) -> Iterator[Views]:
    """One chunk of several parts."""
    if len(parts) == 1:
        yield parts[0]
        return
    lengths = [part["param"].numel() for part in parts]
    lists = {name: [part[name] for part in parts] for name in parts[0]}
    chunk = {}
    for name, views in lists.items():
        buffer = scratch(f"packed {name}", sum(lengths), views[0].dtype, views[0].device)
        chunk[name] = torch.cat(views, out=buffer)
    yield chunk
    for name, views in lists.items():
        if name != "grad":
            torch._foreach_copy_(views, chunk[name].split(lengths))
