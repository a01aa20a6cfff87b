"""Put PRepBN and simplified linear attention into an existing model (Guo et al., 2024, Sections 3.2 and 3.3)."""

import re
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from offprints.checks import require_choice, require_kind
from torch import Tensor, nn

from . import masking
from .errors import UnsupportedModuleError
from .families import attention_sites, convert_attention
from .norms import PRepBN, RepBN
from .recipe import get_recipe, put_recipe
from .refusals import is_quantised
from .report import Change, ConversionReport
from .schedule import check_schedule

_HEAD_NORM = re.compile(r"(^|_)(q|k|v|query|key|value)_?(layer_?)?norm$|(^|_)norm_?(q|k|v)$")
_SCHEDULE = ("warmup_steps", "decay_steps", "total_steps", "decay_fraction", "r0", "shape")


def convert(
    model: nn.Module,
    norm: str | None = "prepbn",
    attention: str | None = None,
    stages: Sequence[int] | None = None,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    init: str = "identity",
    momentum: float | None = 0.1,
    sync: bool = False,
    **schedule: float | int | str | None,
) -> ConversionReport:
    """Replace norms, and if wanted attention, in place.

    Every LayerNorm over the last axis and every `*RMSNorm` becomes PRepBN, with that norm as its Norm1 (Eq. 3). Norms
    of queries and keys inside attention stay. With `init="identity"` the BatchNorm copies the norm's weights and alpha
    is 0: nothing changes at lambda = 1. With "paper" alpha = gamma = 1 for LayerNorm and alpha = gamma = 0 for RMSNorm.

    In training, BatchNorm mixes positions, future ones included; in eval mode each position stands alone again, so that
    a causal model is causal. A model that takes `attention_mask` keeps padding out of the statistics.

    Args:
        model: ViT, DeiT, Swin, PVT, PVT-v2, Llama, Mistral, Qwen2, GPT-2, BERT, RoBERTa of transformers; timm's; or any
            module tree with such norms.
        norm: "prepbn", "repbn" (at once), "bn" (plain BatchNorm at once), or None to keep the norms.
        attention: "sla" for simplified linear attention (vision models), or None. Projections keep their weights.
        stages: Stages whose attention is replaced, counted from 0; by default all, of Swin the first two.
        include: Patterns (as of a shell) of qualified names; by default all.
        exclude: Patterns to leave alone.
        init: "identity" or "paper".
        momentum: Of the running statistics.
        sync: Take statistics over all ranks of a distributed run.
        **schedule: Settings that `PRepBNSchedule(model)` will take.

    Returns:
        What was replaced and what was left, and why.

    Raises:
        UnsupportedModuleError: Nothing known in the model, or layers that are quantised.
        ValueError: Unknown options, one norm module in two places, a grid that does not fit, or a bad schedule.
    """
    require_kind("model", model, nn.Module)
    require_choice("norm", norm, ("prepbn", "repbn", "bn", None))
    require_choice("attention", attention, ("sla", None))
    require_choice("init", init, ("identity", "paper"))
    settings = _schedule_settings(schedule)
    report = ConversionReport()
    quantised = [name for name, module in model.named_modules() if is_quantised(module)]
    if quantised:
        raise UnsupportedModuleError(f"the model holds quantised layers: {', '.join(quantised)}. Convert it before.")
    wanted = _Filter(include, exclude)
    sites = attention_sites(model, stages, wanted, report) if attention else []
    found = _find_norms(model, wanted, report) if norm else {}
    if not sites and not found:
        raise UnsupportedModuleError(_nothing_found(model, norm, attention))
    before = get_recipe(model)
    replaced = convert_attention(model, sites, report)
    if norm and sites:
        found = _find_norms(model, wanted, ConversionReport())
    for name, old in found.items():
        _replace(model, name, old, norm or "", init, momentum, sync)
        report.replaced.append(Change(name, norm or "", f"was {type(old).__name__}({_effective_weight(old).numel()})"))
    masking.install(model)
    put_recipe(
        model,
        {
            "norm": norm or before.get("norm"),
            "momentum": momentum,
            "sync": sync,
            "norms": {**dict(before.get("norms", {})), **dict.fromkeys(found, norm)},
            "attention": {**dict(before.get("attention", {})), **replaced},
            "schedule": settings or before.get("schedule", {}),
        },
    )
    return report


class _Filter:
    def __init__(self, include: Sequence[str] | None, exclude: Sequence[str] | None) -> None:
        for name, patterns in (("include", include), ("exclude", exclude)):
            if isinstance(patterns, str):
                raise TypeError(f"{name} must be a list of patterns, got the string {patterns!r}.")
        self.include, self.exclude = include, exclude or ()

    def __call__(self, name: str) -> bool:
        inside = self.include is None or any(fnmatchcase(name, pattern) for pattern in self.include)
        return inside and not any(fnmatchcase(name, pattern) for pattern in self.exclude)


def _schedule_settings(schedule: dict[str, float | int | str | None]) -> dict[str, object]:
    unknown = sorted(set(schedule) - set(_SCHEDULE))
    if unknown:
        raise TypeError(f"convert has no argument {unknown[0]!r}; settings of the schedule are {', '.join(_SCHEDULE)}.")
    settings = {name: value for name, value in schedule.items() if value is not None}
    if settings:
        check_schedule(settings)
    return settings


def is_norm(module: nn.Module) -> bool:
    """A LayerNorm over the last axis, or an RMSNorm by its name, weight and eps."""
    if isinstance(module, (PRepBN, RepBN)):
        return False
    weight = getattr(module, "weight", None)
    if isinstance(module, nn.LayerNorm):
        return len(module.normalized_shape) == 1
    known = (
        type(module).__name__.endswith(("RMSNorm", "LayerNorm")) and isinstance(weight, Tensor) and weight.dim() == 1
    )
    return known and (hasattr(module, "eps") or hasattr(module, "variance_epsilon"))


def _find_norms(model: nn.Module, wanted: _Filter, report: ConversionReport) -> dict[str, nn.Module]:
    found: dict[str, nn.Module] = {}
    names: dict[int, str] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        parent = name.rpartition(".")[0]
        if parent and isinstance(model.get_submodule(parent), PRepBN):
            continue
        if not is_norm(module):
            if "Norm" in type(module).__name__ and not isinstance(module, (PRepBN, RepBN, nn.BatchNorm1d)):
                report.left.append(Change(name, "left", f"{type(module).__name__} is not a norm over the last axis"))
            continue
        if _HEAD_NORM.search(name.rpartition(".")[2]):
            report.left.append(Change(name, "left", "a norm of queries or keys inside attention"))
        elif not wanted(name):
            report.left.append(Change(name, "left", "not selected by include and exclude"))
        elif id(module) in names:
            raise ValueError(
                f"{names[id(module)]} and {name} are one norm module. Its statistics would mix two places: give each "
                "its own, or exclude both."
            )
        else:
            names[id(module)] = name
            found[name] = module
    return found


def _nothing_found(model: nn.Module, norm: str | None, attention: str | None) -> str:
    kinds = Counter(type(module).__name__ for module in model.modules() if not list(module.children()))
    held = ", ".join(f"{kind} x {count}" for kind, count in sorted(kinds.items()))
    what = " or ".join(
        (["LayerNorm or RMSNorm"] if norm else []) + (["attention that can be replaced"] if attention else [])
    )
    return f"the model must hold {what}, got {held or 'no modules'}."


def _effective_weight(old: nn.Module) -> Tensor:
    """What the norm multiplies by: its weight, but 1 + weight where the class has it so (Gemma)."""
    weight = getattr(old, "weight", None)
    if weight is None:
        return torch.ones(old.normalized_shape)
    weight = weight.detach()
    if isinstance(old, nn.LayerNorm) or weight.is_meta:
        return weight
    with torch.no_grad():
        seen = old(torch.ones_like(weight)[None])[0]
    return seen if not torch.allclose(seen, weight, rtol=0.05, atol=1e-3) else weight


def _replace(
    model: nn.Module, name: str, old: nn.Module, kind: str, init: str, momentum: float | None, sync: bool
) -> None:
    weight = _effective_weight(old)
    first = next(old.parameters(), None)
    place = first if first is not None else next(model.parameters())
    rms = not isinstance(old, nn.LayerNorm)
    # a LayerNorm's own eps may be 1e-12, far too small for a channel that hardly varies
    eps = float(getattr(old, "eps", None) or getattr(old, "variance_epsilon", 1e-5)) if rms else 1e-5
    alpha = 0.0 if kind == "bn" or init == "identity" or rms else 1.0
    rep = RepBN(weight.numel(), eps, momentum, alpha_init=alpha, device=place.device, dtype=place.dtype)
    with torch.no_grad():
        if init == "identity":
            rep.bn.weight.copy_(weight)
            bias = getattr(old, "bias", None)
            if isinstance(bias, Tensor):
                rep.bn.bias.copy_(bias)
        elif rms and kind != "bn":
            rep.bn.weight.zero_()
    if kind == "bn":
        rep.alpha.requires_grad_(False)
    rep.layer_name, rep.sync = name, sync
    made = PRepBN(old, rep) if kind == "prepbn" else rep
    made.train(old.training)
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, made)
