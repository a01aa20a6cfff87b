"""The empirical neural tangent kernel of any torch model, in blocks, with a limit on memory."""

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from jaxtyping import Num
from offprints.checks import require_finite, require_kind, require_range, require_same_device
from offprints.device import full_precision
from offprints.seeding import rng
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

Output = Literal["first", "trace_sample", "full"] | int
Forward = Callable[[nn.Module, Tensor], Tensor]

LOW_PRECISION = (torch.float16, torch.bfloat16)


class MemoryBudgetError(RuntimeError):
    """A kernel would need more memory than `max_bytes`; nothing was computed.

    Attributes:
        needed: bytes of the result and of the gradients that are alive at once.
        allowed: the limit.
    """

    def __init__(self, needed: int, allowed: int, advice: str) -> None:
        self.needed, self.allowed = needed, allowed
        super().__init__(f"the kernel must fit into max_bytes = {allowed:,}, got a need of {needed:,} bytes. {advice}")


class _Bound(nn.Module):
    """A model behind a single (n, outputs) matrix, so that `functional_call` can reach its parameters."""

    def __init__(self, model: nn.Module, forward_fn: Forward | None) -> None:
        super().__init__()
        self.model = model
        self.forward_fn = forward_fn

    def forward(self, x: Tensor) -> Tensor:
        out = self.model(x) if self.forward_fn is None else self.forward_fn(self.model, x)
        if not isinstance(out, Tensor):
            raise TypeError(
                f"the model must return a tensor, got {type(out).__name__}. "
                "Pass forward_fn, for instance lambda model, ids: model(input_ids=ids).logits[:, -1]."
            )
        return out.flatten(1) if out.ndim > 1 else out.unsqueeze(1)


@dataclass(frozen=True)
class NTKOptions:
    """How a kernel is computed: the arguments of `empirical_ntk` of the same names."""

    output: Output = "first"
    chunk: int = 64
    max_bytes: int = 2 << 30
    forward_fn: Forward | None = None
    seed: int = 0
    vectorize: bool = True


def empirical_ntk(
    model: nn.Module,
    x: Num[Tensor, "n ..."],
    x2: Num[Tensor, "n2 ..."] | None = None,
    output: Output = "first",
    chunk: int = 64,
    max_bytes: int = 2 << 30,
    per_layer: bool = False,
    forward_fn: Forward | None = None,
    seed: int = 0,
    vectorize: bool = True,
) -> Tensor | dict[str, Tensor]:
    """Θ(x, x') = ⟨∇_θ f_o(x), ∇_θ f_o(x')⟩ over all parameters that require a gradient (figures 1, 2 and 5).

    Gradients come from `torch.func`, `chunk` of them alive at once: memory is chunk · P floats for P parameters, plus
    the result. Products cost O(n n2 P). Larger kernels are computed in blocks of chunk / 2 rows and columns, with the
    gradients of the columns anew for each block of rows: chunk >= n (2n with x2) computes each gradient once.

    Args:
        model: any module. Batch norm and dropout in training mode have no per-sample gradient: the kernel is then that
            of the model in eval mode, with a warning. The modes, the weights and their `.grad` stay as they are.
        x: n inputs, the first dimension counts them.
        x2: n2 further inputs; None takes `x`, and the result is then exactly symmetric.
        output: which scalar f_o of the outputs, flattened to (n, C): "first", a number, "trace_sample" for u·f with
            one random unit vector u (E over u is 1/C of the trace over outputs), or "full" for all pairs of outputs.
        chunk: gradients alive at once.
        max_bytes: the limit on result and gradients.
        per_layer: return the summands by parameter name instead of their sum.
        forward_fn: how the outputs are computed, `forward_fn(model, x) -> (n, ...)`, for models that do not map one
            tensor to one tensor (transformers: `lambda model, ids: model(input_ids=ids).logits[:, -1]`).
        seed: of u.
        vectorize: False computes one sample after the other, for models that `torch.func.vmap` cannot batch.

    Returns:
        (n, n2) matrix, (n, n2, C, C) for "full"; a dict of them for `per_layer`. In the dtype of the parameters;
        half and bfloat16 models are computed in float32, with a warning.

    Raises:
        TypeError: if an input or what the model returns is no tensor, or parameters or outputs are complex.
        ValueError: if nothing is trainable, an input is empty, the output does not exist, devices differ, or a gradient
            is not finite.
        RuntimeError: if `torch.func.vmap` cannot batch the model: pass vectorize=False.
        MemoryBudgetError: if result and gradients exceed `max_bytes`.
    """
    options = NTKOptions(output, chunk, max_bytes, forward_fn, seed, vectorize)
    parts = ntk_parts(model, x, x2, options, per_layer)
    return parts if per_layer else parts["total"]


def ntk_parts(
    model: nn.Module, x: Tensor, x2: Tensor | None, options: NTKOptions, per_layer: bool = False
) -> dict[str, Tensor]:
    """The kernel by parameter name, or all of it under the name "total"; see `empirical_ntk`."""
    require_kind("model", model, nn.Module)
    require_range("chunk", options.chunk, low=1, integer=True)
    require_range("max_bytes", options.max_bytes, low=1, integer=True)
    require_kind("x", x, Tensor)
    require_kind("x2", x2, (Tensor, type(None)))
    columns = x if x2 is None else x2
    require_range("len(x)", len(x), low=1, integer=True)
    require_range("len(x2)", len(columns), low=1, integer=True)
    x, x2 = x.detach(), x2 if x2 is None else x2.detach()
    bound = _Bound(model, options.forward_fn)
    _warn_of_training_mode(model)
    with eval_mode(model), full_precision(x.device), sdpa_kernel(SDPBackend.MATH):  # fused attention cannot be vmapped
        params, fixed = _state(bound)
        require_same_device(x=x, x2=x2, parameters=next(iter(params.values())))
        read, outputs = _reader(bound, fixed, params, raised(x[:1]), options)
        shape = (len(x), len(columns)) + (2 * (outputs,) if options.output == "full" else ())
        block = len(x) if x2 is None and len(x) <= options.chunk else max(1, options.chunk // 2)
        alive = min(2 * block, len(x) if x2 is None else len(x) + len(columns))
        _check_budget(params, shape, alive, options.max_bytes, per_layer)

        def gradients(samples: Tensor) -> dict[str, Tensor]:
            return _per_sample(read, params, raised(samples), len(shape) == 4, options.vectorize)

        kernel = _accumulate(gradients, params, x, x2, shape, block, per_layer)
    for part in kernel.values():
        require_finite("kernel", part, hint="A weight, an input or a gradient of the model is not.")
    return {name.removeprefix("model."): part for name, part in kernel.items()}


@contextmanager
def eval_mode(model: nn.Module) -> Generator[None]:
    """Eval mode inside; afterwards every module has its own mode back."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def _warn_of_training_mode(model: nn.Module) -> None:
    if any(module.training and isinstance(module, (_BatchNorm, _DropoutNd)) for module in model.modules()):
        message = "batch norm or dropout in training mode: the NTK is that of the model in eval mode."
        warnings.warn(message, stacklevel=4)


def raised(value: Tensor) -> Tensor:
    """16-bit values in float32, others as they are."""
    return value.float() if value.dtype in LOW_PRECISION else value


def _state(bound: _Bound) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors to differentiate in, and all others (frozen parameters, buffers); 16-bit ones in float32."""
    params = {name: value.detach() for name, value in bound.named_parameters() if value.requires_grad}
    if not params:
        raise ValueError("model must have at least one parameter with requires_grad=True, got none.")
    fixed = {name: value.detach() for name, value in bound.named_parameters() if not value.requires_grad}
    fixed |= dict(bound.named_buffers())
    if any(value.dtype in LOW_PRECISION for value in params.values()):
        warnings.warn("16-bit parameters: the NTK is computed in float32.", stacklevel=3)
    for name, value in params.items():
        if value.is_complex():
            raise TypeError(f"parameters must be real, got {value.dtype} in {name.removeprefix('model.')}.")
    return {k: raised(v) for k, v in params.items()}, {k: raised(v) for k, v in fixed.items()}


@contextmanager
def _kept(model: nn.Module) -> Generator[None]:
    """Afterwards every module holds its own parameters and buffers again.

    `functional_call` sees to that, too, but not for a module that stands at two places of a model: it then leaves the
    replacement in one of them, so that an optimizer trains weights which the model no longer uses.
    """
    held = [(module, dict(module._parameters), dict(module._buffers)) for module in model.modules()]
    try:
        yield
    finally:
        for module, parameters, buffers in held:
            module._parameters.update(parameters)
            module._buffers.update(buffers)


def _reader(
    bound: _Bound, fixed: dict[str, Tensor], params: dict[str, Tensor], one: Tensor, options: NTKOptions
) -> tuple[Callable[[dict[str, Tensor], Tensor], Tensor], int]:
    """The scalar to differentiate (the vector, for "full") as a function of parameters and one sample; and C."""

    def outputs_of(params: dict[str, Tensor], sample: Tensor) -> Tensor:
        with _kept(bound):
            return functional_call(bound, {**params, **fixed}, (sample.unsqueeze(0),)).squeeze(0)

    with torch.no_grad():
        example = outputs_of(params, one[0])
    if example.is_complex():
        raise TypeError(
            f"outputs of the model must be real, got {example.dtype}. Pass forward_fn to choose a real part."
        )
    count, output = example.numel(), options.output
    if output == "full":
        return outputs_of, count
    if output == "trace_sample":
        direction = torch.randn(count, generator=rng(options.seed, "cpu"), dtype=torch.float64)
        direction = (direction / direction.norm()).to(example.device, example.dtype)
        return lambda params, sample: outputs_of(params, sample) @ direction, count
    if isinstance(output, str) and output != "first":
        raise ValueError(f"output must be 'first', a number, 'trace_sample' or 'full', got {output!r}.")
    chosen = 0 if output == "first" else output
    require_range("output", chosen, low=0, high=count - 1, integer=True, because=f"the model has {count} outputs")
    return lambda params, sample: outputs_of(params, sample)[chosen], count


def _check_budget(
    params: dict[str, Tensor], shape: tuple[int, ...], alive: int, max_bytes: int, per_layer: bool
) -> None:
    size = max(value.element_size() for value in params.values())
    weights = sum(value.numel() for value in params.values())
    outputs = shape[2] if len(shape) == 4 else 1
    needed = size * (prod(shape) * (len(params) if per_layer else 1) + alive * outputs * weights)
    if needed > max_bytes:
        raise MemoryBudgetError(needed, max_bytes, "Lower chunk, pass fewer inputs, or raise max_bytes.")


def _per_sample(
    read: Callable[[dict[str, Tensor], Tensor], Tensor],
    params: dict[str, Tensor],
    samples: Tensor,
    full: bool,
    vectorize: bool,
) -> dict[str, Tensor]:
    """Gradients by parameter name: (samples, outputs, P_name), with one output unless `full`."""
    differentiate = jacrev(read) if full else grad(read)
    if vectorize:
        try:
            found = vmap(differentiate, in_dims=(None, 0))(params, samples)
        except RuntimeError as error:
            if not str(error).startswith("vmap:"):
                raise
            reason = "torch.func.vmap cannot batch this model: its control flow depends on the data, or so."
            raise RuntimeError(f"{reason} Pass vectorize=False.") from error
    else:
        each = [differentiate(params, sample) for sample in samples]
        found = {name: torch.stack([one[name] for one in each]) for name in params}
    return {name: value.reshape(len(samples), -1, params[name].numel()) for name, value in found.items()}


def _accumulate(
    gradients: Callable[[Tensor], dict[str, Tensor]],
    params: dict[str, Tensor],
    x: Tensor,
    x2: Tensor | None,
    shape: tuple[int, ...],
    block: int,
    per_layer: bool,
) -> dict[str, Tensor]:
    """Fill the kernel block by block; two blocks of gradients are alive at a time."""
    some = next(iter(params.values()))
    names = list(params) if per_layer else ["total"]
    kernel = {name: torch.zeros(shape, device=some.device, dtype=some.dtype) for name in names}
    columns = x if x2 is None else x2
    for i in range(0, len(x), block):
        left = gradients(x[i : i + block])
        for j in range(0 if x2 is not None else i, len(columns), block):
            right = left if x2 is None and i == j else gradients(columns[j : j + block])
            for name in params:
                product = torch.einsum("iop,jup->ijou", left[name], right[name])
                product = product if len(shape) == 4 else product[..., 0, 0]
                kernel[name if per_layer else "total"][i : i + block, j : j + block] += product
            del right
    if x2 is None:
        for part in kernel.values():
            _mirror(part, block)
    return kernel


def _mirror(kernel: Tensor, block: int) -> None:
    """Copy the upper triangle onto the lower one, in place: K[j, i, v, u] = K[i, j, u, v]."""
    for i in range(0, len(kernel), block):
        for j in range(i, len(kernel), block):
            upper = kernel[i : i + block, j : j + block]
            flipped = upper.transpose(0, 1).transpose(-1, -2) if kernel.ndim == 4 else upper.transpose(0, 1)
            if i == j:
                flipped = (flipped + upper) / 2  # products are symmetric up to rounding only
            kernel[j : j + block, i : i + block] = flipped
