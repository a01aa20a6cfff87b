"""A compressed context on disk: read a long document once, go on from it another time."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from offprints import checkpoint
from offprints.checks import require_finite
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from lococo.host import version
from lococo.layer import FIELDS

if TYPE_CHECKING:
    from lococo.cache import CompressedCache

COUNTS = ("seen", "lengths", "tokens", "compressed")


def save(cache: "CompressedCache", path: str | Path) -> Path:
    """Write a cache (Section 3: its memory is all that is left of the context).

    Raises:
        ValueError: if nothing was cached.
        NotImplementedError: if a layer is of another kind than those that hold keys and values.
    """
    tensors: dict[str, Tensor] = {}
    layers: list[dict[str, object]] = []
    for number, layer in enumerate(cache.layers):
        if not isinstance(layer, DynamicLayer):
            raise NotImplementedError(f"layer {number} must hold keys and values to be saved, got {layer!r}.")
        for name in FIELDS:
            if isinstance(x := getattr(layer, name, None), Tensor):
                tensors[f"{number}.{name}"] = x
        layers.append({name: getattr(layer, name) for name in COUNTS if hasattr(layer, name)})
        if hasattr(layer, "cumulative_length"):
            layers[-1]["cumulative_length"] = layer.cumulative_length
    if not tensors:
        raise ValueError("the cache must hold something to be saved, got an empty one.")
    config = {"layers": layers, **_kind(cache)}
    return checkpoint.save(path, tensors, method="lococo", version=version(), config=config)


def restore(cache: "CompressedCache", path: str | Path) -> "CompressedCache":
    """Fill a cache that was made as the saved one.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if the file is broken, or of a cache for another model, size or kind.
    """
    found = checkpoint.load(path, method="lococo", framework="torch")
    wanted = _kind(cache)
    for name, value in wanted.items():
        if (got := found.config.get(name)) != value:
            raise ValueError(f"{path} must be of a cache whose {name} is {value}, got {got}.")
    tensors: dict[str, Tensor] = found.tensors  # type: ignore[assignment]
    for name, tensor in tensors.items():
        if not name.endswith("scores"):
            require_finite(name, tensor)
    stored: list[dict] = found.config["layers"]  # type: ignore[assignment]
    cache.reset()
    for number, (layer, counts) in enumerate(zip(cache.layers, stored, strict=True)):
        held = {name: tensors[f"{number}.{name}"] for name in FIELDS if f"{number}.{name}" in tensors}
        if not held:
            continue
        held = {name: x.to(cache.device or "cpu") for name, x in held.items()}
        cast("DynamicLayer", layer).lazy_initialization(held["keys"], held["values"])
        for name, value in {**held, **counts}.items():
            setattr(layer, name, value)
    return cache


def _kind(cache: "CompressedCache") -> dict[str, object]:
    """What the cache to be filled must agree on."""
    budgets = [layer.policy.mem_size for layer in cache.compressed_layers]
    return {"cache": type(cache).__name__, "model": asdict(cache.shape), "mem_size": budgets}
