"""Bytes per parameter (Table 2): by arithmetic before training, and of a live optimizer."""

from collections.abc import Sequence

import torch
from offprints.checks import require_choice, require_range

from collage_optim.adamw import MODES
from collage_optim.base import Collage, require_low
from collage_optim.mcf import FLOATS

STRATEGIES = {"bf16": "plain"} | {mode: mode for mode in MODES}
"""Names of the paper's strategies: "bf16" is the mode "plain"."""


def bytes_per_param(
    mode: str,
    dtype: torch.dtype = torch.bfloat16,
    components: int = 2,
    grads: bool = True,
    low_dtype: torch.dtype | None = None,
) -> int:
    """Weight + gradient + optimizer state, in bytes per parameter.

    With a 16-bit type: plain 8, light 10, plus 12, fp32_states 12, fp32_master 16; 2 less without the gradient, 2 more
    with a third component.

    Args:
        mode: a mode of `CollageAdamW`, or "bf16" for "plain".
        dtype: of the weights.
        components: 2 or 3, as `CollageAdamW` takes them.
        grads: whether to count a gradient of the weights' type.
        low_dtype: of the low part of the weights, in modes light and plus.

    Raises:
        ValueError: an unknown mode or type, or a combination that `CollageAdamW` refuses.
    """
    mode = STRATEGIES[require_choice("mode", mode, STRATEGIES)]
    require_choice("dtype", dtype, FLOATS)
    require_low(mode, components, low_dtype)
    narrow, wide = dtype.itemsize, max(dtype.itemsize, 4)
    moment = wide if mode in ("fp32_states", "fp32_master") else narrow
    total = narrow + 2 * moment + (narrow if grads else 0)
    if mode in ("light", "plus", "kahan"):
        total += narrow * (components - 2) + (low_dtype or dtype).itemsize
    if mode == "plus":
        total += narrow
    return total + (wide if mode == "fp32_master" else 0)


def memory_report(
    model_or_numel: torch.nn.Module | int,
    strategies: Sequence[str] = ("bf16", "light", "plus", "fp32_states", "fp32_master"),
    dtype: torch.dtype = torch.bfloat16,
) -> str:
    """A table: strategy, bytes per parameter, GiB of weights, gradients and state, and the share of fp32_master's.

    Raises:
        ValueError: an unknown strategy, or fewer than one parameter.
    """
    if isinstance(model_or_numel, torch.nn.Module):
        count = sum(p.numel() for p in model_or_numel.parameters())
    else:
        count = model_or_numel
    require_range("the number of parameters", count, low=1, integer=True)
    most = bytes_per_param("fp32_master", dtype)
    lines = [f"{'strategy':<12} {'bytes/param':>11} {'GiB':>9} {'of fp32_master':>15}"]
    for strategy in strategies:
        each = bytes_per_param(strategy, dtype)
        lines.append(f"{strategy:<12} {each:>11} {each * count / 2**30:>9.3f} {each / most:>14.1%}")
    return "\n".join(lines)


def optimizer_bytes(optimizer: Collage) -> int:
    """Bytes of all state tensors that are alive (the step counters apart), weights and gradients not counted."""
    return sum(
        tensor.untyped_storage().nbytes()
        for state in optimizer.state.values()
        for name, tensor in state.items()
        if name != "step"
    )
