"""Refresh BatchNorm statistics after training, all parameters frozen (Guo et al., 2024, Section 5.1)."""

import warnings
from collections.abc import Iterable, Mapping
from itertools import islice

import torch
from offprints.checks import require_choice, require_kind, require_range
from torch import Tensor, nn

from .example import call, to_device
from .fuse import find_norms, rep_of
from .norms import PRepBN


def recalibrate(
    model: nn.Module,
    batches: Iterable[object],
    num_batches: int | None = None,
    mode: str = "exact",
    device: torch.device | str | None = None,
) -> int:
    """Run batches through the model in eval mode, with only the BatchNorm statistics following them.

    DropPath and Dropout shift the variance between training and eval; this measures it without them.

    Args:
        model: A converted model whose schedule has finished; its parameters and mode do not change.
        batches: Tensors, dicts of keywords, or tuples whose first entry is the input (labels are ignored).
        num_batches: Stop after so many; None for all.
        mode: "exact" (reset, then the average over all batches) or "ema" (the norm's momentum goes on: the paper's).
        device: Where batches are moved to; by default that of the model.

    Returns:
        How many batches were used.

    Raises:
        ValueError: No norms, no batches, or activations that are not finite (names the layer; statistics are put back).
    """
    require_kind("model", model, nn.Module)
    require_choice("mode", mode, ("exact", "ema"))
    if num_batches is not None:
        require_range("num_batches", num_batches, low=1, integer=True)
    norms = find_norms(model)
    if not norms:
        raise ValueError("model must hold RepBN or PRepBN norms, got none. Recalibrate before fusing.")
    where = torch.device(device) if device is not None else next(model.parameters()).device
    modes = {module: module.training for module in model.modules()}
    old = {name: _state(rep_of(norm).bn) for name, norm in norms.items()}
    momenta = {name: rep_of(norm).bn.momentum for name, norm in norms.items()}
    handles = [norm.register_forward_pre_hook(_finite(name)) for name, norm in norms.items()]
    used = 0
    try:
        _prepare(model, norms, mode)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            for batch in islice(batches, num_batches):
                _forward(model, to_device(batch, where))
                used += 1
        if not used:
            raise ValueError("batches must hold at least one batch, got none.")
    except BaseException:
        for name, norm in norms.items():
            _restore(rep_of(norm).bn, old[name])
        raise
    finally:
        for handle in handles:
            handle.remove()
        for name, norm in norms.items():
            rep_of(norm).bn.momentum = momenta[name]
        for module, training in modes.items():
            module.training = training
    return used


def _prepare(model: nn.Module, norms: Mapping[str, nn.Module], mode: str) -> None:
    model.eval()
    for norm in norms.values():
        bn = rep_of(norm).bn
        if mode == "exact":
            bn.reset_running_stats()
            bn.momentum = None
        bn.train()


def _forward(model: nn.Module, batch: object) -> None:
    mask = batch.get("attention_mask") if isinstance(batch, Mapping) else None
    real = mask.to(torch.bool) if isinstance(mask, Tensor) and mask.dim() == 2 and not bool(mask.all()) else None
    inner = [norm for norm in model.modules() if isinstance(norm, PRepBN)]
    for norm in inner:
        norm.mask = real
    try:
        if isinstance(batch, Mapping):
            call(model, {name: value for name, value in batch.items() if name not in ("labels", "label")})
        else:
            call(model, batch[0] if isinstance(batch, (tuple, list)) else batch)
    finally:
        for norm in inner:
            norm.mask = None


def _finite(name: str):
    def hook(module: nn.Module, args: tuple) -> None:
        mask = getattr(module, "mask", None)
        x = args[0] if mask is None else args[0][mask]
        if not bool(torch.isfinite(x).all()):
            raise ValueError(f"{name}: activations must be finite, got NaN or infinity. The statistics were put back.")

    return hook


def _state(bn: nn.Module) -> list[Tensor]:
    return [buffer.clone() for buffer in (bn.running_mean, bn.running_var, bn.num_batches_tracked)]


def _restore(bn: nn.Module, state: list[Tensor]) -> None:
    for buffer, value in zip((bn.running_mean, bn.running_var, bn.num_batches_tracked), state, strict=True):
        buffer.copy_(value)
