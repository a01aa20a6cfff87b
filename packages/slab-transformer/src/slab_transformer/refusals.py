"""Layers that cannot be folded into (Guo et al., 2024, Section 3.2): quantised ones and those with adapters."""

from offprints.checks import Problems
from torch import nn


def refuse_wrapped_layers(model: nn.Module, kind: type[ValueError]) -> None:
    """Raise `kind`, naming every layer that is quantised, or wrapped by LoRA or another adapter."""
    quantised, wrapped = [], []
    for name, module in model.named_modules():
        if hasattr(module, "lora_A") or type(module).__module__.startswith("peft.tuners"):
            if hasattr(module, "base_layer"):
                wrapped.append(name)
            continue
        if is_quantised(module):
            quantised.append(f"{name} ({type(module).__name__})")
    try:
        with Problems("cannot fuse the model") as problems:
            if quantised:
                problems.add(f"quantised layers: {', '.join(quantised)}. Fuse first, then quantise.")
            if wrapped:
                problems.add(
                    f"layers with adapters: {', '.join(wrapped)}. Merge them first (merge_and_unload in peft)."
                )
    except ValueError as error:
        raise kind(str(error)) from None


def is_quantised(module: nn.Module) -> bool:
    """By the names that torch, bitsandbytes, GPTQ and AWQ use, or a weight that is not of floating point."""
    home, name = type(module).__module__, type(module).__name__
    if "quantized" in home.split(".") or name.startswith(("Linear4bit", "Linear8bit", "QuantLinear", "WQLinear")):
        return True
    weight = getattr(module, "weight", None)
    return name.lower().endswith("linear") and hasattr(weight, "is_floating_point") and not weight.is_floating_point()
