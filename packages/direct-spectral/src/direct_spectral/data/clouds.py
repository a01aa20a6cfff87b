"""Sets of points: non-equispaced lattices, batches of clouds of different size."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from offprints.checks import message, require_range
from offprints.seeding import rng


def contracting_expanding(n: int, centre: int, uniform: int, growth: float) -> torch.Tensor:
    """Indices of a contracting-expanding axis: dense around a centre, then ever wider apart (experiments of the paper).

    `uniform` consecutive indices around the centre; from both of their ends on, steps e ± round(i^growth), i = 1, 2, …,
    while inside 0..n-1.

    Raises:
        ValueError: if the dense part does not fit, or growth < 1.
    """
    require_range("n", n, low=1, integer=True)
    require_range("centre", centre, low=0, high=n - 1, integer=True)
    require_range("uniform", uniform, low=1, high=n, integer=True)
    require_range("growth", growth, low=1.0)
    first = centre - uniform // 2
    last = first + uniform - 1
    if first < 0 or last >= n:
        raise ValueError(message("uniform", f"small enough around {centre} in 0..{n - 1}", uniform))
    chosen = set(range(first, last + 1))
    i, step = 1, 1
    while first - step >= 0 or last + step < n:
        chosen.update(place for place in (first - step, last + step) if 0 <= place < n)
        i += 1
        step = round(i**growth)
    return torch.tensor(sorted(chosen))


def random_subset(n: int, count: int, seed: int) -> torch.Tensor:
    """`count` of the indices 0..n-1 without repetition, sorted.

    Raises:
        ValueError: if there are not as many.
    """
    require_range("count", count, low=1, high=n, integer=True)
    return torch.from_numpy(rng(seed).choice(n, count, replace=False)).sort().values


def collate_point_clouds(samples: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """A batch of clouds that may differ in size: padded with zeros, with a mask; `collate_fn` of a DataLoader.

    Args:
        samples: each with "points" (N_i, d), "u" (N_i, C_in) and "y" (N_i, C_out); other keys are stacked.

    Returns:
        "points", "u", "y" of shape (B, max N_i, ·); and "mask" (B, max N_i), where sizes differ.

    Raises:
        ValueError: if there is no sample, keys differ, or a sample's rows are not as many as its points.
    """
    if not samples:
        raise ValueError(message("samples", "at least one", "none"))
    keys, sizes = set(samples[0]), [len(sample["points"]) for sample in samples]
    for place, sample in enumerate(samples):
        if set(sample) != keys:
            raise ValueError(message(f"samples[{place}]", f"with {', '.join(sorted(keys))}", ", ".join(sorted(sample))))
        for name in {"u", "y"} & keys:
            if len(sample[name]) != sizes[place]:
                wanted = f"of {sizes[place]} rows, as its points"
                raise ValueError(message(f"samples[{place}][{name!r}]", wanted, len(sample[name])))
    batch = {}
    for name in samples[0]:
        parts = [sample[name] for sample in samples]
        ragged = name in ("points", "u", "y")
        batch[name] = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True) if ragged else torch.stack(parts)
    if len(set(sizes)) > 1:
        batch["mask"] = torch.arange(max(sizes)) < torch.tensor(sizes).unsqueeze(1)
    return batch


class Batches:
    """Batches of a data set that lies in memory: a loader for `train_operator`.

    Tensors are sliced along the first axis; one of length 1 (points that all samples share) is handed on as it is, so
    that a basis precomputed from it is recognised.

    Args:
        data: tensors by name: "u", "points", "y", and "mask" where clouds are padded.
        size: samples of a batch.
        shuffle: whether each pass takes a new order.
        seed: of the orders.
        device: where batches go.

    Raises:
        ValueError: if lengths differ.
    """

    def __init__(
        self,
        data: Mapping[str, torch.Tensor],
        size: int = 20,
        shuffle: bool = False,
        seed: int = 0,
        device: "torch.device | str | None" = None,
    ) -> None:
        require_range("size", size, low=1, integer=True)
        self.data = {name: x if device is None else x.to(device) for name, x in data.items()}
        lengths = {len(x) for x in data.values()}
        if len(lengths - {1}) > 1:
            raise ValueError(message("data", "of one length (or 1)", {name: len(x) for name, x in data.items()}))
        self.n, self.size, self.shuffle = max(lengths), size, shuffle
        self.gen = rng(seed, "cpu")

    def __len__(self) -> int:
        return -(-self.n // self.size)

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        order = torch.randperm(self.n, generator=self.gen) if self.shuffle else torch.arange(self.n)
        for rows in order.split(self.size):
            yield {name: x if len(x) == 1 and self.n > 1 else x[rows.to(x.device)] for name, x in self.data.items()}
