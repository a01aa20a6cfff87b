"""What this package asks of a transformers model, in one place: its cache argument, its shape, its attention modules.

The names changed within version 5: a model takes `cache=` from 5.24 on and `past_key_values=` before.
"""

import importlib.metadata
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from offprints.checks import message
from torch import Tensor, nn
from transformers import DynamicCache, PreTrainedConfig
from transformers.cache_utils import DynamicLayer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CACHE_NAMES = ("cache", "past_key_values")
HALF_ROTATED = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "gemma", "gemma2", "gemma3_text",
    "olmo", "olmo2", "phi3", "smollm3", "granite", "starcoder2", "stablelm", "phi",
)  # fmt: skip
"""Model types whose rotary embedding turns the pairs (i, i + r/2) of the first r dimensions of a head."""


@dataclass(frozen=True)
class ModelShape:
    """What heads must agree on with their model (Section 3): layers, key-value heads, head dimension."""

    layers: int
    kv_heads: int
    head_dim: int


def version() -> str:
    """The installed version of this distribution."""
    return importlib.metadata.version("lococo")


def cache_argument(model: nn.Module) -> str:
    """The keyword under which a model takes its cache."""
    names = inspect.signature(unwrapped(model).forward).parameters
    return next((name for name in CACHE_NAMES if name in names), CACHE_NAMES[-1])


def unwrapped(model: nn.Module) -> nn.Module:
    """The transformers model inside a PEFT wrapper, or the model itself."""
    inner = getattr(model, "get_base_model", None)
    return inner() if callable(inner) else model


def text_config(model: "PreTrainedModel | PreTrainedConfig") -> "PreTrainedConfig":
    """The configuration of the decoder.

    Raises:
        TypeError: if it is neither a model nor a configuration of transformers.
        ValueError: if the model has an encoder.
    """
    config = getattr(model, "config", model)
    if not isinstance(config, PreTrainedConfig):
        raise TypeError(message("model", "a transformers model or its config", type(model).__name__))
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(message("model", "decoder only", "an encoder with a decoder", "Its caches are not supported."))
    return config.get_text_config(decoder=True)


def plain_layers(model: "PreTrainedModel | PreTrainedConfig") -> "Sequence[object]":
    """The cache layers that transformers itself would give this model."""
    return DynamicCache(config=text_config(model)).layers


def full_attention_layers(model: "PreTrainedModel | PreTrainedConfig") -> list[int]:
    """The layers whose cache grows without end: the ones that can be compressed.

    Raises:
        ValueError: if there are none.
    """
    layers = plain_layers(model)
    found = [number for number, layer in enumerate(layers) if type(layer) is DynamicLayer]
    if not found:
        kinds = ", ".join(sorted({type(layer).__name__ for layer in layers}))
        raise ValueError(message("model", "one with full-attention layers", f"only {kinds}", "Nothing would grow."))
    return found


def shape_of(model: "PreTrainedModel | PreTrainedConfig") -> ModelShape:
    """Layers, key-value heads and head dimension of a model."""
    config = text_config(model)
    heads = config.num_attention_heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return ModelShape(config.num_hidden_layers, getattr(config, "num_key_value_heads", None) or heads, head_dim)


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """The attention modules of a Llama-type model, in the order of their layers.

    Raises:
        TypeError: if the model has none that this package knows how to watch.
    """
    found = {}
    for module in model.modules():
        number = getattr(module, "layer_idx", None)
        if isinstance(number, int) and all(hasattr(module, name) for name in ("k_proj", "v_proj", "config", "scaling")):
            found[number] = module
    if not found:
        raise TypeError(
            f"model must have attention modules as Llama's (layer_idx, k_proj, v_proj, scaling), "
            f"got {type(unwrapped(model)).__name__}. Supported are Llama, Mistral, Qwen2, Qwen3, SmolLM and their kind."
        )
    return [found[number] for number in sorted(found)]


def decoder_of(model: nn.Module) -> nn.Module:
    """The module that holds the list of layers and is handed mask and cache."""
    attention = set(map(id, attention_modules(model)))
    holders = [
        module
        for module in model.modules()
        if isinstance(getattr(module, "layers", None), nn.ModuleList)
        and any(id(inner) in attention for inner in module.modules())
    ]
    return holders[-1]


def given_cache(kwargs: Mapping[str, object]) -> object:
    """The cache among the keyword arguments of a call."""
    return next((kwargs[name] for name in CACHE_NAMES if kwargs.get(name) is not None), None)


def inverse_frequencies(model: "PreTrainedModel | nn.Module") -> Tensor:
    """(r/2,) angle per position of each pair of dimensions that the model rotates.

    Raises:
        ValueError: if its rotary embedding is of another kind, or changes with the length of the input.
    """
    config: Any = text_config(unwrapped(model))  # type: ignore[arg-type]
    rotary: Any = next((module for module in model.modules() if hasattr(module, "inv_freq")), None)
    if rotary is None or config.model_type not in HALF_ROTATED:
        raise ValueError(
            message("model", f"of a type whose rotation is known ({', '.join(HALF_ROTATED)})", config.model_type)
        )
    kind = getattr(rotary, "rope_type", "default")
    if kind in ("dynamic", "longrope"):
        raise ValueError(message("model", "one whose rotary frequencies are fixed", f"rope type {kind!r}"))
    return rotary.inv_freq.detach().to(torch.float32)
