"""Exact fusion of RepBN into its neighbours (Guo et al., 2024, Lemma 4.1 and Section 3.2).

With RepBN(x) = a x + b outside training: a layer that reads it takes it in as W' = W diag(a), d' = d + W b; the layer
that feeds it as W' = diag(a) W, d' = a d + b. All sums are made in float64 and cast back once.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from offprints.checks import require_choice, require_kind
from torch import Tensor, nn

from .dataflow import Flow, Observed, is_convolution, is_linear, observe
from .errors import FusionError, UnsupportedModuleError
from .example import example_inputs
from .norms import ChannelAffine, PRepBN, RepBN
from .recipe import get_recipe, put_recipe
from .refusals import refuse_wrapped_layers
from .report import Change, FusionReport
from .residual import fold_into_residual
from .verify import compare, runner


class FixedShape(nn.Module):
    """Where a norm was folded that is padded later: lets inputs of the example's size pass and refuses others.

    Args:
        shape: Sizes of all axes but the first.

    Raises:
        ValueError: In forward, for another size: there zeros might be padded that the fused weights would shift.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = tuple(shape)

    def forward(self, x: Tensor) -> Tensor:
        """Hand x (B, *shape) on as it is."""
        if tuple(x.shape[1:]) != self.shape:
            raise ValueError(
                f"input must have the size it was fused for ({self.shape}), got {tuple(x.shape[1:])}. "
                "Fuse with fixed_size=False for other image sizes."
            )
        return x

    def extra_repr(self) -> str:
        """The size."""
        return str(self.shape)


def fuse(
    model: nn.Module,
    inplace: bool = False,
    strict: bool = False,
    headless: str = "affine",
    *,
    example: object = None,
    fixed_size: bool = False,
    force: bool = False,
) -> nn.Module:
    """Fold every RepBN and PRepBN into linear layers where that is exact, else leave a `ChannelAffine` (Lemma 4.1).

    One forward on an example shows which layers read a norm and which feed it. A norm is folded forward when all that
    reads it are linear layers (and convolutions without padding) that read nothing else, backward when its input is one
    layer's output that nothing else reads. What remains (added to a residual, returned, feeding a layer whose weight is
    tied) becomes a multiply-add by channel. The result is compared with the original on the example.

    Args:
        model: A converted model, trained, in eval mode.
        inplace: Change the model itself; else a copy.
        strict: Raise FusionError where an affine would be left.
        headless: "affine", or "residual": fold the last norm of a Swin without a head into its last stage.
        example: Input of a forward: a tensor, a tuple, or a dict of keywords. Made up for transformers and timm models.
        fixed_size: The model will only see inputs of the example's size, so that norms may be folded over paddings that
            are empty at this size (windows of Swin); other sizes are refused.
        force: Fuse before the schedule has finished.

    Returns:
        The model, with `.fusion_report`. Already fused: the same, or a copy.

    Raises:
        FusionError: In training mode, before lambda is 0, a norm used twice, a channel with |a| < 1e-6 for "residual",
            quantised or LoRA layers, or (`strict`) something is left.
        UnsupportedModuleError: There is nothing to fuse.
        ValueError: Statistics that are not finite.
    """
    require_kind("model", model, nn.Module)
    require_choice("headless", headless, ("affine", "residual"))
    norms = find_norms(model)
    if not norms:
        if hasattr(model, "fusion_report"):
            return model if inplace else copy.deepcopy(model)
        raise UnsupportedModuleError(
            "the model holds no RepBN or PRepBN to fuse. Call convert(model) and train it first."
        )
    _check_ready(model, norms, force)
    original = copy.deepcopy(model) if inplace else model
    fused = model if inplace else copy.deepcopy(model)
    given = example if example is not None else example_inputs(fused)
    run = runner(given)
    seen = observe(fused, find_norms(fused), run)
    plans = [_plan(name, seen, fixed_size) for name in norms]
    for plan in plans:
        if seen.norms[plan.name].calls > 1:
            raise FusionError(
                f"{plan.name} is used {seen.norms[plan.name].calls} times in one forward: give each place its own norm."
            )
    if strict and any(plan.action == "affine" for plan in plans):
        raise FusionError(
            "cannot fold all norms:\n" + "\n".join(f"{p.name}: {p.detail}" for p in plans if p.action == "affine")
        )
    _apply(fused, plans, seen)
    if headless == "residual":
        plans = fold_into_residual(fused, plans)
    error = compare(original, fused, run)
    fused.fusion_report = FusionReport([Change(p.name, p.action, p.detail) for p in plans], error)
    recipe = get_recipe(fused)
    put_recipe(fused, {**recipe, "fused": structure(fused, plans)})
    return fused


def find_norms(model: nn.Module) -> dict[str, nn.Module]:
    """The outermost RepBN and PRepBN modules, by qualified name."""
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        inside = name.rpartition(".")[0] in found
        if isinstance(module, (RepBN, PRepBN)) and not inside:
            found[name] = module
    return found


def rep_of(norm: nn.Module) -> RepBN:
    """The RepBN of a norm."""
    return norm.rep if isinstance(norm, PRepBN) else norm


@dataclass(frozen=True)
class Plan:
    """What to do with one norm."""

    name: str
    action: str
    detail: str
    targets: tuple[str, ...] = ()
    shape: tuple[int, ...] | None = None


def _check_ready(model: nn.Module, norms: Mapping[str, nn.Module], force: bool) -> None:
    if model.training:
        raise FusionError("the model is in training mode: call model.eval() before fuse.")
    pending = [name for name, norm in norms.items() if isinstance(norm, PRepBN) and not norm.finished]
    if pending and not force:
        raise FusionError(
            f"the schedule has not finished: lambda of {pending[0]} is {norms[pending[0]].lam:.3g} "
            f"({len(pending)} norms). Train until PRepBNSchedule.finished, or pass force=True."
        )
    seen: dict[int, str] = {}
    for name, norm in norms.items():
        if id(norm) in seen:
            raise FusionError(f"{name} and {seen[id(norm)]} are one module: a norm that is shared cannot be folded.")
        seen[id(norm)] = name
    refuse_wrapped_layers(model, FusionError)
    for norm in norms.values():
        rep_of(norm).affine()  # raises with the layer's name when its statistics are not finite


def _plan(name: str, seen: Observed, fixed_size: bool) -> Plan:
    flow = seen.norms[name]
    why = _why_not_forward(name, flow, seen, fixed_size)
    if not why:
        shape = flow.shape[1:] if flow.padded else None
        return Plan(name, "folded forward", "into " + ", ".join(flow.consumers), tuple(flow.consumers), shape)
    source = flow.producer
    if source is not None and flow.calls == 1:
        before = seen.layers[source]
        if not before.escapes and before.consumers == [name] and before.calls == 1 and len(seen.sources[source]) <= 1:
            return Plan(name, "folded backward", f"into {source}", (source,))
    return Plan(name, "affine", why)


def _why_not_forward(name: str, flow: Flow, seen: Observed, fixed_size: bool) -> str:
    if not flow.calls:
        return "not reached by the example"
    if flow.escapes:
        return "; ".join(flow.escapes)
    if not flow.consumers:
        return "read by nothing"
    shared = [layer for layer in flow.consumers if seen.sources[layer] != {name}]
    if shared:
        return f"{', '.join(shared)} has a weight that is tied, or is read with other inputs too"
    if flow.padded and not fixed_size:
        return "padded before it is read (pass fixed_size=True if the image size will not change)"
    return ""


def _apply(model: nn.Module, plans: list[Plan], seen: Observed) -> None:
    affine = {plan.name: rep_of(model.get_submodule(plan.name)).affine() for plan in plans}
    work: dict[str, tuple[Tensor, Tensor]] = {}
    for plan in plans:
        a, b = affine[plan.name]
        for target in plan.targets:
            module = model.get_submodule(target)
            weight, bias = work.get(target) or _float64(module)
            turn = _after if plan.action == "folded forward" else _before
            work[target] = turn(module, weight, bias, a, b)
    for target, (weight, bias) in work.items():
        write_layer(model.get_submodule(target), weight, bias)
    for plan in plans:
        norm = rep_of(model.get_submodule(plan.name))
        if plan.action != "affine":
            put_module(model, plan.name, FixedShape(plan.shape) if plan.shape else nn.Identity())
        else:
            a, b = (t.to(norm.alpha.dtype) for t in affine[plan.name])
            put_module(model, plan.name, ChannelAffine(a, b))


def _float64(module: nn.Module) -> tuple[Tensor, Tensor]:
    weight = module.weight.detach().double()
    outputs = weight.shape[1] if is_linear(module) and not isinstance(module, nn.Linear) else weight.shape[0]
    bias = weight.new_zeros(outputs) if module.bias is None else module.bias.detach().double()
    return weight, bias


def _after(module: nn.Module, weight: Tensor, bias: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The layer reads a x + b: W' = W diag(a), d' = d + W b."""
    if is_convolution(module):
        groups = module.groups
        of_output = torch.arange(weight.shape[0], device=weight.device) // (weight.shape[0] // groups)
        channel = of_output[:, None] * weight.shape[1] + torch.arange(weight.shape[1], device=weight.device)
        spread = (slice(None), slice(None)) + (None,) * (weight.dim() - 2)
        inside = (weight * b[channel][spread]).flatten(1).sum(1)
        return weight * a[channel][spread], bias + inside
    if isinstance(module, nn.Linear):
        return weight * a, bias + weight @ b
    return weight * a[:, None], bias + b @ weight


def _before(module: nn.Module, weight: Tensor, bias: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The layer feeds a x + b: W' = diag(a) W, d' = a d + b."""
    if is_linear(module) and not isinstance(module, nn.Linear):
        return weight * a, a * bias + b
    spread = (slice(None),) + (None,) * (weight.dim() - 1)
    return weight * a[spread], a * bias + b


def write_layer(module: nn.Module, weight: Tensor, bias: Tensor) -> None:
    """Write weights made in float64, in the layer's dtype; a bias is added where there was none."""
    with torch.no_grad():
        module.weight.copy_(weight)
        if module.bias is None:
            module.bias = nn.Parameter(bias.to(module.weight.dtype), module.weight.requires_grad)
        else:
            module.bias.copy_(bias)


def put_module(model: nn.Module, name: str, module: nn.Module) -> None:
    """Replace the submodule of that name; modes and hooks of its parent stay."""
    parent, _, leaf = name.rpartition(".")
    module.train(model.training)
    setattr(model.get_submodule(parent), leaf, module)


def structure(model: nn.Module, plans: list[Plan]) -> dict[str, object]:
    """What `load_fused` needs to build the same modules without weights."""
    return {
        "norms": {
            plan.name: (list(plan.shape) if plan.shape else [])
            if plan.action != "affine"
            else int(model.get_submodule(plan.name).a.shape[0])
            for plan in plans
        },
        "biases": sorted({target for plan in plans for target in plan.targets}),
        "report": [[plan.name, plan.action, plan.detail] for plan in plans],
    }
