"""The heads of one model, a compressor for each layer, and their way to disk (Section 3)."""

from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from offprints import checkpoint
from offprints.checks import require_finite
from offprints.seeding import rng, spawn
from torch import nn

from lococo.compressor import ConvCompressor, LoCoCoConfig
from lococo.host import ModelShape, full_attention_layers, shape_of, version

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


def require_fit(shape: ModelShape, layers: Sequence[int], other: ModelShape, theirs: Sequence[int]) -> None:
    """Check that heads made for one model serve another.

    Raises:
        ValueError: listing both.
    """
    if shape != other or list(layers) != list(theirs):
        raise ValueError(
            f"compressor must be made for this model: it is for {asdict(shape)}, compressed layers {list(layers)}; "
            f"the model has {asdict(other)}, layers with full attention {list(theirs)}."
        )


class LoCoCoCompressor(nn.ModuleList):
    """A `ConvCompressor` for each layer with full attention of one model (Section 3), and their way to disk.

    Args:
        configs: one for each compressed layer.
        layers: their numbers in the model.
        shape: what the model must have: number of layers, key-value heads and head dimension.
        device: of the parameters.
        dtype: of the parameters.
        seed: of the initial weights.
    """

    def __init__(
        self,
        configs: Sequence[LoCoCoConfig],
        layers: Sequence[int],
        shape: ModelShape,
        *,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
        seed: int = 0,
    ) -> None:
        seeds = spawn(seed, len(configs))
        where = torch.device(device) if device is not None else torch.get_default_device()
        on_cpu = "cpu" if where.type == "meta" else where
        super().__init__(
            ConvCompressor(config, shape.head_dim, device=device, dtype=dtype, generator=rng(s, on_cpu))
            for config, s in zip(configs, seeds, strict=True)
        )
        self.configs, self.layers, self.shape = list(configs), list(layers), shape

    @classmethod
    def for_model(
        cls,
        model: "PreTrainedModel | PreTrainedConfig",
        config: LoCoCoConfig | None = None,
        *,
        mem_size: "int | Sequence[int] | None" = None,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
        seed: int = 0,
        **sizes: "int | float | str | None",
    ) -> "LoCoCoCompressor":
        """New heads for a model: on its device, in float32.

        Args:
            model: a model, or its configuration.
            config: the sizes of all layers; or give them by name.
            mem_size: M; a list gives every compressed layer its own, with the share of last slots that `config` has.
            device: instead of the model's.
            dtype: of the parameters.
            seed: of the initial weights.
            **sizes: fields of `LoCoCoConfig`, instead of `config`.

        Raises:
            TypeError: if a size is unknown, or given beside `config`.
            ValueError: if the model has an encoder or no layer with full attention, or a size is out of range.
        """
        if unknown := sorted(set(sizes) - {field.name for field in fields(LoCoCoConfig)}):
            raise TypeError(f"sizes must be fields of LoCoCoConfig, got {unknown[0]!r}.")
        if config is not None and sizes:
            raise TypeError("for_model must be given a config or sizes by name, got both.")
        layers = full_attention_layers(model)
        given = LoCoCoConfig().mem_size if config is None else config.mem_size
        several = mem_size is not None and not isinstance(mem_size, int)
        budgets = list(mem_size) if several else [mem_size if mem_size is not None else given] * len(layers)  # type: ignore[arg-type]
        if len(budgets) != len(layers):
            raise ValueError(f"mem_size must have {len(layers)} entries (the compressed layers), got {len(budgets)}.")
        if config is None:
            configs = [LoCoCoConfig(mem_size=budget, **sizes) for budget in budgets]  # type: ignore[arg-type]
        else:
            share = config.local / config.mem_size
            configs = [replace(config, mem_size=budget, local_len=int(share * budget)) for budget in budgets]
        place = device if device is not None else getattr(model, "device", None)
        return cls(configs, layers, shape_of(model), device=place, dtype=dtype, seed=seed)

    def save_pretrained(self, folder: "str | Path") -> "Path":
        """Write `heads.safetensors` and `heads.json` into a folder; a few MB."""
        config = {
            "layers": self.layers,
            "model": asdict(self.shape),
            "configs": [asdict(config) for config in self.configs],
        }
        return checkpoint.save(
            Path(folder) / "heads", self.state_dict(), method="lococo", version=version(), config=config
        )

    @classmethod
    def from_pretrained(
        cls,
        folder: "str | Path",
        model: "PreTrainedModel | PreTrainedConfig | None" = None,
        *,
        device: "torch.device | str | None" = None,
    ) -> "LoCoCoCompressor":
        """Read what `save_pretrained` wrote; with a model, check that it fits and go to its device.

        Raises:
            FileNotFoundError: if there is nothing.
            ValueError: if a file is broken or of another method, or the model has other layers, heads or dimensions.
        """
        found = checkpoint.load(Path(folder) / "heads", method="lococo", framework="torch")
        stored = found.config
        shape = ModelShape(**stored["model"])  # type: ignore[arg-type]
        configs = [LoCoCoConfig(**config) for config in stored["configs"]]  # type: ignore[attr-defined]
        layers = list(stored["layers"])  # type: ignore[call-overload]
        if model is not None:
            require_fit(shape, layers, shape_of(model), full_attention_layers(model))
        state = found.tensors
        for name, tensor in state.items():
            require_finite(name, tensor)
        place = device if device is not None else getattr(model, "device", None)
        heads = cls(configs, layers, shape, device=place, dtype=next(iter(state.values())).dtype)  # type: ignore[arg-type]
        heads.load_state_dict(state, strict=True)  # type: ignore[arg-type]
        return heads
