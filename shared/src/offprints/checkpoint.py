"""State on disk: one safetensors file, written whole or not at all, and a JSON sidecar that people can read.

The sidecar's content also stands in the header of the tensor file, which is what `load` reads: a kill between the two
renames therefore loses nothing. Neither file can run code.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from offprints.checks import require_choice

if TYPE_CHECKING:
    import torch

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """What `load` gives back: tensors by name, the method's config, and the version that wrote them."""

    tensors: "dict[str, np.ndarray] | dict[str, torch.Tensor]"
    config: dict[str, object]
    version: str


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new one (temp file, fsync, rename)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with open(part, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _pair(path: str | Path) -> tuple[Path, Path]:
    path = Path(path)
    stem = path.with_suffix("") if path.suffix in (".safetensors", ".json") else path
    return stem.with_name(stem.name + ".safetensors"), stem.with_name(stem.name + ".json")


def save(
    path: str | Path,
    tensors: "Mapping[str, np.ndarray | torch.Tensor]",
    *,
    method: str,
    version: str,
    config: Mapping[str, object],
) -> Path:
    """Write `<path>.safetensors` and `<path>.json` and return the former.

    Args:
        path: with or without the suffix.
        tensors: numpy arrays or torch tensors by name.
        method: the distribution's name; `load` refuses another's file.
        version: the distribution's version.
        config: what is needed to build the object again, as JSON values.

    Raises:
        TypeError: if `config` is not JSON.
    """
    tensor_file, sidecar = _pair(path)
    text = json.dumps({"format": FORMAT, "method": method, "version": version, "config": dict(config)}, sort_keys=True)
    metadata = {"offprints": text}
    if any(not isinstance(value, np.ndarray) for value in tensors.values()):
        import torch
        from safetensors.torch import save as serialize

        copies = {name: torch.as_tensor(value).detach().cpu().clone() for name, value in tensors.items()}
        data = serialize({name: value.contiguous() for name, value in copies.items()}, metadata)
    else:
        from safetensors.numpy import save as serialize_numpy

        data = serialize_numpy({name: np.ascontiguousarray(value) for name, value in tensors.items()}, metadata)
    write_atomic(tensor_file, data)
    write_atomic(sidecar, json.dumps(json.loads(text), indent=2, sort_keys=True).encode() + b"\n")
    return tensor_file


def load(
    path: str | Path, *, method: str, device: "str | torch.device | None" = None, framework: str = "numpy"
) -> Checkpoint:
    """Read what `save` wrote.

    Args:
        path: with or without the suffix.
        method: the distribution that the file must be of.
        device: where the tensors go, with `framework="torch"`.
        framework: "numpy" or "torch".

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is truncated, not ours, another method's, or of a format that only a newer core reads.
    """
    from safetensors import SafetensorError, safe_open

    require_choice("framework", framework, ("numpy", "torch"))
    file, _ = _pair(path)
    if not file.exists():
        raise FileNotFoundError(f"no checkpoint at {file}.")
    try:
        with safe_open(file, framework="np" if framework == "numpy" else "pt", device=str(device or "cpu")) as handle:
            header = json.loads((handle.metadata() or {}).get("offprints", "null"))
            tensors = {name: handle.get_tensor(name) for name in handle.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(f"{file} must be a whole safetensors file, got {error}. It may be truncated.") from error
    if not isinstance(header, dict) or not {"format", "method", "version", "config"} <= set(header):
        raise ValueError(f"{file} must be a checkpoint of {method}, got a safetensors file without its header.")
    if header["format"] != FORMAT:
        raise ValueError(
            f"{file} must be of checkpoint format {FORMAT}, got {header['format']}, written by "
            f"{header['method']} {header['version']}. Upgrade offprints and {method} to read it."
        )
    if header["method"] != method:
        raise ValueError(f"{file} must be a checkpoint of {method}, got one of {header['method']}.")
    return Checkpoint(tensors, header["config"], header["version"])
