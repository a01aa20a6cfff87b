"""Which linear layers read a norm, and which layer feeds it: found by watching one forward (for Section 3.2, fusion).

A norm may be folded into the layers that read it only if its output goes nowhere else. That is a property of the whole
model, not of a class name, so it is observed: the output of each norm is followed through operations that only move
values (reshape, window partition, roll, selection of a token) or average them. With it goes a *shadow* of the same
shape that holds, in place of values, the number of the channel; at a linear layer the shadow proves that every input is
the channel that its weight takes it for, and that no padding is among them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

_MOVES = frozenset(
    [
        "view",
        "reshape",
        "permute",
        "transpose",
        "swapaxes",
        "swapdims",
        "movedim",
        "moveaxis",
        "flatten",
        "unflatten",
        "contiguous",
        "clone",
        "select",
        "narrow",
        "split",
        "chunk",
        "unbind",
        "squeeze",
        "unsqueeze",
        "roll",
        "pad",
        "__getitem__",
        "expand",
        "expand_as",
        "index_select",
        "view_as",
        "t",
        "mean",
        "adaptive_avg_pool1d",
        "adaptive_avg_pool2d",
        "dropout",
        "detach",
        "alias",
        "_pad",
        "identity",
    ]
)
_CASTS = frozenset(("to", "float", "double", "half", "bfloat16", "type", "type_as"))
_ASKS = frozenset(
    [
        "size",
        "dim",
        "numel",
        "stride",
        "is_contiguous",
        "element_size",
        "data_ptr",
        "get_device",
        "is_floating_point",
        "ndimension",
        "__len__",
        "is_complex",
        "is_cuda",
        "storage_offset",
        "__hash__",
        "__repr__",
        "__get__",
        "device",
        "is_same_size",
    ]
)
_CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")


@dataclass
class Flow:
    """What becomes of one norm's output (or, for a layer, of that layer's output)."""

    calls: int = 0
    consumers: list[str] = field(default_factory=list)
    escapes: list[str] = field(default_factory=list)
    padded: bool = False
    producer: str | None = None
    shape: tuple[int, ...] = ()

    def escape(self, why: str) -> None:
        """Note an operation that the norm cannot be folded through."""
        if why not in self.escapes:
            self.escapes.append(why)


@dataclass
class Observed:
    """The flows of all norms and layers, and how often each weight was used in another way than as that layer's."""

    norms: dict[str, Flow]
    layers: dict[str, Flow]
    sources: dict[
        str, set[str | None]
    ]  # layer -> the norms that feed it (None: something else, or the weight is shared)


class _Watch(TorchFunctionMode):
    def __init__(self, model: nn.Module, norms: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.flows: dict[str, Flow] = {name: Flow() for name in norms}
        self.layers: dict[str, Flow] = {}
        self.names: dict[int, str] = {}
        self.modules: dict[str, nn.Module] = {}
        self.sources: dict[str, set[str | None]] = {}
        for name, module in model.named_modules():
            if is_linear(module) or is_convolution(module):
                if id(module.weight) in self.names:  # two layers share one weight
                    self.sources[self.names[id(module.weight)]].add(None)
                    self.sources[name] = {None}
                else:
                    self.names[id(module.weight)] = name
                    self.sources[name] = set()
                self.modules[name] = module
        self.tracks: dict[int, tuple[Tensor, Flow, str, Tensor]] = {}
        self.kept: list[Tensor] = []  # so that no id is used twice
        self.paused = False

    def track(self, out: Tensor, flow: Flow, name: str, shadow: Tensor) -> None:
        self.tracks[id(out)] = (out, flow, name, shadow)
        self.kept.append(out)

    def __torch_function__(self, func: Callable, types: Sequence[type], args: tuple = (), kwargs: dict | None = None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if self.paused:
            return out
        name = getattr(func, "__name__", str(func))
        given = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if name in _ASKS and not isinstance(out, Tensor):
            return out
        self.paused = True
        try:
            self._note(func, name, args, kwargs, given, out)
        finally:
            self.paused = False
        return out

    def _note(self, func, name, args, kwargs, given, out) -> None:
        tracked = [t for t in given if id(t) in self.tracks]
        layer = self._layer_of(name, args, kwargs, given)
        if layer is not None:
            self._consume(layer, name, args, kwargs, tracked, out)
            return
        for tensor in given:  # a weight read by anything but its own layer: tied to an embedding, or transformed
            if id(tensor) in self.names:
                self.sources[self.names[id(tensor)]].add(None)
        if not tracked:
            return
        if len(tracked) == 1 and (name in _MOVES or name in _CASTS) and tracked[0] is given[0]:
            self._move(func, name, args, kwargs, tracked[0], out)
            return
        for tensor in tracked:
            self.tracks[id(tensor)][1].escape(f"read by {name}")

    def _move(self, func, name, args, kwargs, tensor, out) -> None:
        _, flow, source, shadow = self.tracks[id(tensor)]
        if name == "pad":
            mode = kwargs.get("mode", args[2] if len(args) > 2 else "constant")
            flow.padded = flow.padded or mode == "constant"
        if name in _CASTS:
            made = shadow
        else:
            new_args, new_kwargs = pytree.tree_map(lambda leaf: shadow if leaf is tensor else leaf, (args, kwargs))
            new_kwargs.pop("dtype", None)
            made = func(*new_args, **new_kwargs)
        pairs = zip(pytree.tree_leaves(out), pytree.tree_leaves(made), strict=True)
        for piece, its_shadow in pairs:
            if isinstance(piece, Tensor):
                self.track(piece, flow, source, its_shadow)

    def _layer_of(self, name, args, kwargs, given) -> str | None:
        if name in ("linear", *_CONVOLUTIONS):
            weight = kwargs.get("weight", args[1] if len(args) > 1 else None)
        elif name == "addmm":
            weight = args[2] if len(args) > 2 else None
        else:
            return None
        layer = self.names.get(id(weight))
        if layer is None:
            return None
        fits = is_convolution(self.modules[layer]) if name in _CONVOLUTIONS else is_linear(self.modules[layer])
        return layer if fits and isinstance(given[0], Tensor) else None

    def _consume(self, layer, name, args, kwargs, tracked, out) -> None:
        source = kwargs.get("input", args[1] if name == "addmm" else (args[0] if args else None))
        axis = 1 if name in _CONVOLUTIONS else -1
        padding = kwargs.get("padding", args[4] if len(args) > 4 else 0)  # of this call: other modes pad before it
        self.sources[layer].add(self._feeding(layer, source, axis, name, padding))
        for tensor in tracked:
            if tensor is not source:
                self.tracks[id(tensor)][1].escape(f"read by {name} of {layer}, not as its input")
        flow = self.layers.setdefault(layer, Flow())
        flow.calls += 1
        self.track(out, flow, layer, _channels(out, axis))

    def _feeding(self, layer, source, axis, name, padding) -> str | None:
        if id(source) not in self.tracks:
            return None
        _, flow, norm, shadow = self.tracks[id(source)]
        if flow is not self.flows.get(norm):  # a layer that feeds a layer
            flow.escape(f"read by {layer}")
            return None
        if name in _CONVOLUTIONS and padding != "valid" and padding != 0 and (padding == "same" or any(padding)):
            flow.escape(f"read by {layer}, a convolution that pads with zeros")
            return None
        if not torch.equal(shadow, _channels(shadow, axis)):
            flow.escape(f"read by {layer} with padding or with other channels in their place")
            return None
        if layer not in flow.consumers:
            flow.consumers.append(layer)
        return norm

    def before(self, name: str) -> Callable:
        """Hook before a norm: is its input the output of one layer, channel by channel?"""

        def hook(module: nn.Module, args: tuple) -> None:
            flow, x = self.flows[name], args[0]
            self.paused = True
            known = self.tracks.get(id(x))
            if known is None:
                return
            _, before, source, shadow = known
            if before is self.layers.get(source) and torch.equal(shadow, _channels(shadow, -1)):
                flow.producer = source
                before.consumers.append(name)
            else:
                before.escape(f"read by the norm {name}")

        return hook

    def after(self, name: str) -> Callable:
        """Hook after a norm: follow its output."""

        def hook(module: nn.Module, args: tuple, out: Tensor) -> None:
            flow = self.flows[name]
            flow.calls += 1
            flow.shape = tuple(out.shape)
            self.track(out, flow, name, _channels(out, -1))
            self.paused = False

        return hook

    def returned(self, outputs: object) -> None:
        """Whatever the model gives back has left it."""
        for leaf in pytree.tree_leaves(_open(outputs)):
            if isinstance(leaf, Tensor) and id(leaf) in self.tracks:
                self.tracks[id(leaf)][1].escape("returned by the model")


def _open(outputs: object) -> object:
    return dict(outputs) if isinstance(outputs, Mapping) else outputs


def _channels(like: Tensor, axis: int) -> Tensor:
    """Numbers 1..C along `axis`, in the shape of `like`; 0 is left for padding."""
    count = like.shape[axis]
    numbers = torch.arange(1, count + 1, dtype=torch.float64, device=like.device)
    shape = [1] * like.dim()
    shape[axis] = count
    return numbers.reshape(shape).expand(like.shape)


def is_linear(module: nn.Module) -> bool:
    """A `torch.nn.Linear`, or the transposed one of GPT-2 in transformers (`Conv1D`)."""
    return type(module) is nn.Linear or type(module).__name__ == "Conv1D"


def is_convolution(module: nn.Module) -> bool:
    """A plain convolution of torch."""
    return type(module) in (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@contextmanager
def _hooked(watch: _Watch, norms: Mapping[str, nn.Module]) -> Iterator[None]:
    handles = []
    for name, norm in norms.items():
        handles.append(norm.register_forward_pre_hook(watch.before(name)))
        handles.append(norm.register_forward_hook(watch.after(name)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def observe(model: nn.Module, norms: Mapping[str, nn.Module], run: Callable[[nn.Module], object]) -> Observed:
    """Run the model once and say where the output of each norm goes and what its input comes from.

    Args:
        model: In eval mode.
        norms: The norms to follow, by qualified name.
        run: Calls the model on an example.

    Returns:
        Flows by norm and by layer.
    """
    watch = _Watch(model, norms)
    with torch.no_grad(), _hooked(watch, norms), watch:
        outputs = run(model)
    watch.returned(outputs)
    return Observed(watch.flows, watch.layers, watch.sources)
