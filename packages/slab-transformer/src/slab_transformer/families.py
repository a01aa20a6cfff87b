"""Where attention sits in vision models of transformers and timm, to replace it (Guo et al., 2024, Section 3.3)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .attention import SimplifiedLinearAttention
from .errors import UnsupportedModuleError
from .example import call, example_inputs
from .report import Change, ConversionReport


class SLAttention(nn.Module):
    """Simplified linear attention (Eq. 6) with the call of the attention that it stands in for.

    Args:
        sla: The attention.
        returns: "tensor", "single" (a tuple of one) or "pair" (with None for the weights).

    Raises:
        ValueError: In forward, when a mask is given: an additive one cannot be kept.
    """

    def __init__(self, sla: SimplifiedLinearAttention, returns: str) -> None:
        super().__init__()
        self.sla = sla
        self.returns = returns

    def forward(self, hidden_states: Tensor, *args: object, **kwargs: object) -> Tensor | tuple[Tensor | None, ...]:
        """Attend over (B, N, C); sizes of the image among the arguments must be those of the grid."""
        mask = kwargs.get("attention_mask", args[0] if args and isinstance(args[0], Tensor) else None)
        if mask is not None:
            raise ValueError(
                "attention_mask must be None for linear attention: an additive mask or position bias cannot be kept."
            )
        out = self.sla(hidden_states)
        if self.returns == "tensor":
            return out
        return (out,) if self.returns == "single" else (out, None)


@dataclass(frozen=True)
class Site:
    """One attention to replace."""

    name: str
    projections: dict[str, nn.Module]
    grid: tuple[int, int]
    heads: int
    prefix: int
    returns: str
    sr: nn.Module | None = None
    sr_norm: nn.Module | None = None
    window: nn.Module | None = None  # the Swin block whose window becomes the whole grid


_KINDS = {  # class name -> (paths of q, k, v, output; or of qkv, output), what its forward returns
    "ViTAttention": (("q_proj", "k_proj", "v_proj", "o_proj"), "pair"),
    "DeiTAttention": (("q_proj", "k_proj", "v_proj", "o_proj"), "pair"),
    "SwinAttention": (("q_proj", "k_proj", "v_proj", "o_proj"), "pair"),
    "PvtAttention": (("self.query", "self.key", "self.value", "output.dense"), "single"),
    "PvtV2SelfAttention": (("query", "key", "value", "proj"), "single"),
    "Attention": (("qkv", "proj"), "tensor"),  # timm's ViT and DeiT
    "WindowAttention": (("qkv", "proj"), "tensor"),  # timm's Swin
}
_PYRAMID = {"Attention": (("q", "kv", "proj"), "tensor")}  # timm's PVT-v2
_REDUCTIONS = ("sequence_reduction", "spatial_reduction", "sr")  # of PVT, PVT-v2, timm
_OLD = {  # transformers before 5.x moved the projections
    "ViTAttention": (("attention.query", "attention.key", "attention.value", "output.dense"), "tensor"),
    "DeiTAttention": (("attention.query", "attention.key", "attention.value", "output.dense"), "tensor"),
    "SwinAttention": (("self.query", "self.key", "self.value", "output.dense"), "single"),
}


def attention_sites(
    model: nn.Module, stages: Sequence[int] | None, wanted: Callable[[str], bool], report: ConversionReport
) -> list[Site]:
    """All attention modules that can be replaced, in the stages asked for.

    Raises:
        UnsupportedModuleError: None is known.
        ValueError: A stage that is not there, or a grid that does not fit.
    """
    found = []
    for name, module in model.named_modules():
        kind = _kind_of(module)
        if kind is not None:
            found.append((name, module, *kind))
    if not found:
        raise UnsupportedModuleError(
            f"{type(model).__name__} has no attention that can be replaced: ViT, DeiT, Swin, PVT and PVT-v2 have. "
            "Language models keep softmax attention (attention=None)."
        )
    flat = ("ViTAttention", "DeiTAttention", "Attention")
    hierarchical = type(found[0][1]).__name__ not in flat or "kv" in found[0][2]
    stage_of = {name: _stage(name) if hierarchical else 0 for name, *_ in found}
    window = type(found[0][1]).__name__ in ("SwinAttention", "WindowAttention")
    chosen = set(stages) if stages is not None else ({0, 1} if window else set(stage_of.values()))
    unknown = chosen - set(stage_of.values()) if stages is not None else set()
    if unknown:
        raise ValueError(f"stages must be among {sorted(set(stage_of.values()))}, got {sorted(unknown)}.")
    sizes = _watch_sizes(model, [name for name, *_ in found]) if not window else {}
    sites = []
    for name, module, projections, returns in found:
        if stage_of[name] not in chosen or not wanted(name):
            report.left.append(Change(name, "left", f"softmax attention of stage {stage_of[name]}"))
        elif getattr(module, "linear_attention", False) or getattr(module, "pool", None) is not None:
            report.left.append(Change(name, "left", "pools its keys to 7 x 7: not an attention over the grid"))
        else:
            sites.append(_site(model, name, module, projections, returns, sizes))
    return sites


def _kind_of(module: nn.Module) -> tuple[dict[str, nn.Module], str] | None:
    if hasattr(module, "logit_scale"):  # Swin-v2: cosine attention with biases of its own
        return None
    for table in (_KINDS, _PYRAMID, _OLD):
        paths, returns = table.get(type(module).__name__, ((), ""))
        try:
            layers = [module.get_submodule(path) for path in paths]
        except AttributeError:
            continue
        if len(layers) == 4:
            return dict(zip("qkvo", layers, strict=True)), returns
        if len(layers) == 3:
            return dict(zip(("q", "kv", "o"), layers, strict=True)), returns
        if len(layers) == 2:
            return {"qkv": layers[0], "o": layers[1]}, returns
    return None


def _stage(name: str) -> int:
    return int(re.findall(r"\.(\d+)", "." + name)[0])


def _watch_sizes(model: nn.Module, names: Sequence[str]) -> dict[str, tuple[int, tuple[int, int] | None]]:
    """Tokens, and the grid where the model passes it on, of each attention in one forward."""
    sizes: dict[str, tuple[int, tuple[int, int] | None]] = {}
    handles = []

    def hook_for(name: str) -> Callable:
        def hook(module: nn.Module, args: tuple, kwargs: Mapping[str, object]) -> None:
            x = args[0] if args else kwargs["hidden_states"]
            sides = [a for a in args[1:3] if isinstance(a, int)] or [kwargs.get("height"), kwargs.get("width")]
            feat = kwargs.get("feat_size") or (
                args[1] if len(args) > 1 and isinstance(args[1], (tuple, list)) else None
            )
            if feat is not None:
                sides = list(feat)
            sizes[name] = (x.shape[1], (int(sides[0]), int(sides[1])) if None not in sides else None)

        return hook

    for name in names:
        handles.append(model.get_submodule(name).register_forward_pre_hook(hook_for(name), with_kwargs=True))
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            call(model, example_inputs(model, batch=1))
    finally:
        model.train(training)
        for handle in handles:
            handle.remove()
    return sizes


def _site(model, name, module, projections, returns, sizes) -> Site:
    kind = type(module).__name__
    heads = int(getattr(module, "num_attention_heads", 0) or getattr(module, "num_heads", 0) or _inner_heads(module))
    if kind in ("SwinAttention", "WindowAttention"):
        block = model.get_submodule(name.rpartition(".")[0])
        height, width = (int(side) for side in block.input_resolution)
        if height != width:
            raise ValueError(f"{name}: the window must be square to span the grid, got {height} x {width}.")
        return Site(name, projections, (height, width), heads, 0, returns, window=block)
    tokens, grid = sizes[name]
    if grid is None:
        grid = _grid_of(model)
    inner = getattr(module, "self", module)
    sr = next((m for name, m in inner.named_children() if name in _REDUCTIONS and isinstance(m, nn.Conv2d)), None)
    sr_norm = next((m for name, m in inner.named_children() if name in ("layer_norm", "norm")), None)
    prefix = tokens - grid[0] * grid[1]
    if prefix < 0:
        raise ValueError(f"{name}: {tokens} tokens do not fill a grid of {grid[0]} x {grid[1]}.")
    return Site(name, projections, grid, heads, prefix, returns, sr, sr_norm)


def _inner_heads(module: nn.Module) -> int:
    inner = getattr(module, "self", getattr(module, "attention", module))
    return int(inner.num_attention_heads)


def _grid_of(model: nn.Module) -> tuple[int, int]:
    config = getattr(model, "config", None)
    if config is None:
        size = model.patch_embed.grid_size
        return int(size[0]), int(size[1])
    pairs = []
    for value in (config.image_size, config.patch_size):
        pairs.append(tuple(value) if isinstance(value, (tuple, list)) else (value, value))
    return pairs[0][0] // pairs[1][0], pairs[0][1] // pairs[1][1]


def convert_attention(model: nn.Module, sites: Sequence[Site], report: ConversionReport) -> dict[str, object]:
    """Put simplified linear attention at the sites, with their projections; say how each can be built again."""
    made = {}
    for site in sites:
        arguments = _arguments(site)
        adapter = build_attention(model, site.name, arguments, site.projections["o"].weight)
        _copy_projections(adapter.sla, site)
        if site.window is not None:
            _whole_window(site.window, site.grid[0])
        made[site.name] = arguments
        height, width = site.grid
        report.replaced.append(
            Change(site.name, "sla", f"{site.heads} heads, grid {height} x {width}, prefix {site.prefix}")
        )
    return made


def _arguments(site: Site) -> dict[str, object]:
    qkv = site.projections.get("qkv", site.projections.get("q"))
    return {
        "dim": site.projections["o"].in_features, "num_heads": site.heads, "grid": list(site.grid),
        "qkv_bias": qkv.bias is not None, "num_prefix_tokens": site.prefix,
        "sr_ratio": int(site.sr.stride[0]) if site.sr is not None else 1,
        "returns": site.returns, "window": site.grid[0] if site.window is not None else 0,
    }  # fmt: skip


def build_attention(model: nn.Module, name: str, arguments: Mapping[str, object], like: Tensor) -> SLAttention:
    """Put a new attention at `name`, with the device and dtype of `like`."""
    options = {key: value for key, value in arguments.items() if key not in ("returns", "window")}
    options["grid"] = tuple(options["grid"])
    sla = SimplifiedLinearAttention(**options, device=like.device, dtype=like.dtype)
    adapter = SLAttention(sla, str(arguments["returns"]))
    adapter.train(model.training)
    parent, _, leaf = name.rpartition(".")
    setattr(model.get_submodule(parent), leaf, adapter)
    if arguments["window"]:
        _whole_window(model.get_submodule(parent), int(arguments["window"]))
    return adapter


def _whole_window(block: nn.Module, side: int) -> None:
    if isinstance(block.window_size, int):
        block.window_size, block.shift_size = side, 0
    else:  # timm
        block.window_size, block.shift_size, block.window_area = (side, side), (0, 0), side * side
    if getattr(block, "attn_mask", None) is not None:
        block.attn_mask = None


@torch.no_grad()
def _copy_projections(sla: SimplifiedLinearAttention, site: Site) -> None:
    given = site.projections
    pairs = [(sla.proj, given["o"].weight, given["o"].bias)]
    if "qkv" in given:
        biases = given["qkv"].bias.chunk(3) if given["qkv"].bias is not None else (None,) * 3
        pairs += list(zip((sla.q, sla.k, sla.v), given["qkv"].weight.chunk(3), biases, strict=True))
    elif "kv" in given:
        biases = given["kv"].bias.chunk(2) if given["kv"].bias is not None else (None,) * 2
        pairs += [(sla.q, given["q"].weight, given["q"].bias)]
        pairs += list(zip((sla.k, sla.v), given["kv"].weight.chunk(2), biases, strict=True))
    else:
        pairs += [(getattr(sla, key), given[key].weight, given[key].bias) for key in "qkv"]
    for layer, weight, bias in pairs:
        layer.weight.copy_(weight)
        if layer.bias is not None and bias is not None:
            layer.bias.copy_(bias)
        elif layer.bias is not None:
            layer.bias.zero_()
    if site.sr is not None:
        sla.sr, sla.norm = site.sr, site.sr_norm
