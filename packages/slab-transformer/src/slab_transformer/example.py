"""An example input for models that say what they take: transformers and timm (to follow the norms, Section 3.2)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn


def call(model: nn.Module, given: object) -> object:
    """Call the model with a tensor, a tuple of arguments, or a mapping of keywords."""
    if isinstance(given, Mapping):
        return model(**given)
    if isinstance(given, (tuple, list)):
        return model(*given)
    return model(given)


def to_device(given: object, device: torch.device) -> object:
    """The same input with its tensors on that device."""
    if isinstance(given, Tensor):
        return given.to(device)
    if isinstance(given, Mapping):
        return {name: to_device(value, device) for name, value in given.items()}
    if isinstance(given, (tuple, list)):
        return type(given)(to_device(value, device) for value in given)
    return given


def example_inputs(model: nn.Module, batch: int = 2) -> object:
    """Random pixels or tokens of the size that the model's own configuration states.

    Raises:
        ValueError: The model says nothing about its input; pass an example.
    """
    first = next(model.parameters())
    gen = torch.Generator().manual_seed(0)
    config = getattr(model, "config", None)
    if config is not None and hasattr(model, "main_input_name"):
        name = model.main_input_name
        if name == "pixel_values" and hasattr(config, "image_size"):
            size = config.image_size
            height, width = size if isinstance(size, (tuple, list)) else (size, size)
            pixels = torch.randn(batch, config.num_channels, height, width, generator=gen)
            return {name: pixels.to(first)}
        if name == "input_ids" and hasattr(config, "vocab_size"):
            ids = torch.randint(0, config.vocab_size, (batch, 7), generator=gen)
            return {name: ids.to(first.device)}
    if isinstance(getattr(model, "image_size", None), int):
        return (torch.randn(batch, 3, model.image_size, model.image_size, generator=gen).to(first),)
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    settings = getattr(model, "pretrained_cfg", None) or {}
    if size is not None or "input_size" in settings:  # timm
        shape = settings.get("input_size", (3, 224, 224))
        height, width = size if size is not None else shape[1:]
        channels = model.patch_embed.proj.in_channels if size is not None else shape[0]
        return (torch.randn(batch, channels, height, width, generator=gen).to(first),)
    raise ValueError("example must be given for a model that does not state its input size, got none. Pass one batch.")
