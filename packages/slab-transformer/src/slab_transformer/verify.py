"""Compare a model before and after fusion: the two are the same map (Guo et al., 2024, Lemma 4.1)."""

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from .errors import FusionError
from .example import call

_TOLERANCE = {torch.float64: 1e-9, torch.float32: 2e-4, torch.bfloat16: 0.1, torch.float16: 0.02}


@dataclass(frozen=True)
class Verification:
    """Differences of two models: the largest, absolute and relative to the largest output."""

    max_abs_error: float
    max_rel_error: float


def runner(given: object) -> Callable[[nn.Module], object]:
    """A function that calls a model on one input, without gradients and without the norms' own warning."""

    def run(model: nn.Module) -> object:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return call(model, given)

    return run


def compare(original: nn.Module, fused: nn.Module, run: Callable[[nn.Module], object]) -> float:
    """The largest difference on an example.

    Raises:
        FusionError: It is more than rounding, of the outputs or (with a warning) of the weights, explains.
    """
    found = _difference(run(original), run(fused))
    dtype = next((p.dtype for p in fused.parameters()), torch.float32)
    limit = _TOLERANCE.get(dtype, 2e-4)
    if found.max_rel_error <= limit:
        return found.max_abs_error
    noise = _difference(run(original), run(_rounded_otherwise(original, dtype))).max_rel_error
    if not found.max_rel_error <= 30 * noise:
        raise FusionError(
            f"the fused model differs from the original by {found.max_rel_error:.2g} of its largest output on the "
            f"example (at most {limit:g} is rounding in {dtype}). It reads a norm in a way that was not seen: "
            "exclude that norm from the conversion."
        )
    warnings.warn(
        f"the model is so sensitive that rounding its weights changes the output by {noise:.2g} of the largest; the "
        f"fused one differs by {found.max_rel_error:.2g}. Is it trained?",
        UserWarning,
        stacklevel=3,
    )
    return found.max_abs_error


def _rounded_otherwise(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """A copy whose weights are off by a last digit: how far rounding alone moves the output."""
    other = copy.deepcopy(model)
    gen = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in other.parameters():
            noise = torch.rand(weight.shape, generator=gen).to(weight.device) * 2 - 1
            weight.mul_(
                (1 + 2 * torch.finfo(dtype).eps * noise.to(torch.promote_types(dtype, torch.float32))).to(dtype)
            )
    return other


def verify_fusion(a: nn.Module, b: nn.Module, *inputs: object) -> Verification:
    """Compare two models in eval mode on the same inputs (tensors, or one dict of keywords).

    Returns:
        The largest difference over all floating-point outputs, absolute and relative.

    Raises:
        ValueError: No inputs, or outputs that do not have the same shapes.
    """
    if not inputs:
        raise ValueError("inputs must be given, got none.")
    given: object = inputs[0] if len(inputs) == 1 else tuple(inputs)
    outputs = []
    for model in (a, b):
        training = model.training
        model.eval()
        try:
            outputs.append(runner(given)(model))
        finally:
            model.train(training)
    return _difference(*outputs)


def _difference(one: object, two: object) -> Verification:
    left, right = (_floats(outputs) for outputs in (one, two))
    if [t.shape for t in left] != [t.shape for t in right] or not left:
        raise ValueError(
            f"the outputs must have the same shapes, got {[tuple(t.shape) for t in left]} and "
            f"{[tuple(t.shape) for t in right]}."
        )
    worst = [
        float((x.double() - y.double()).abs().max()) if x.numel() else 0.0 for x, y in zip(left, right, strict=True)
    ]
    size = [float(x.double().abs().max()) if x.numel() else 0.0 for x in left]
    relative = max(w / max(s, 1e-12) for w, s in zip(worst, size, strict=True))
    return Verification(max(worst), relative)


def _floats(outputs: object) -> list[Tensor]:
    if isinstance(outputs, Mapping):
        outputs = {name: value for name, value in outputs.items() if name != "past_key_values"}
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
