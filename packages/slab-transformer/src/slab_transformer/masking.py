"""Keep padding out of the statistics (Guo et al., 2024, Section 5.3: language models)."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from offprints.checks import require_kind
from torch import Tensor, nn

from .norms import PRepBN


def _set(model: nn.Module, mask: Tensor | None) -> None:
    for module in model.modules():
        if isinstance(module, PRepBN):
            module.mask = mask


@contextmanager
def padding_mask(model: nn.Module, mask: Tensor | None) -> Iterator[None]:
    """Within the context, positions where mask (B, N) is 0 take no part in mean and variance and pass unchanged.

    Converted models read `attention_mask` themselves; this is for models that take none, or other names. It concerns
    training only: in eval mode the norms are the same map for all positions.

    Args:
        model: A converted model.
        mask: Of bool or 0/1, True = real; None for no mask.
    """
    require_kind("model", model, nn.Module)
    if mask is not None:
        require_kind("mask", mask, Tensor)
        mask = mask.to(torch.bool)
    _set(model, mask)
    try:
        yield
    finally:
        _set(model, None)


def read_attention_mask(module: nn.Module, args: tuple, kwargs: Mapping[str, object]) -> None:
    """Forward pre-hook: hand a (B, N) `attention_mask` to the norms."""
    mask = kwargs.get("attention_mask")
    if module.training and isinstance(mask, Tensor) and mask.dim() == 2:
        real = mask.to(torch.bool)
        _set(module, None if not torch.compiler.is_compiling() and bool(real.all()) else real)


def forget_attention_mask(module: nn.Module, args: tuple, kwargs: Mapping[str, object], output: object) -> None:
    """Forward hook: take it away again, but where activations are checkpointed: they are computed once more."""
    again = any(getattr(part, "gradient_checkpointing", False) is True for part in module.modules())
    if module.training and kwargs.get("attention_mask") is not None and not again:
        _set(module, None)


def install(model: nn.Module) -> None:
    """Add both hooks, once."""
    if not any(hook is read_attention_mask for hook in model._forward_pre_hooks.values()):
        model.register_forward_pre_hook(read_attention_mask, with_kwargs=True)
        model.register_forward_hook(forget_attention_mask, with_kwargs=True, always_call=True)
