"""The float32 step as one function of tensors, for torch.compile and CUDA graphs: one pass over memory.

A compiler that keeps float32 between fused 16-bit operations deletes error terms: x - RN(x) becomes 0. Inductor is told
to keep the roundings (`emulate_precision_casts`), and a known answer is checked before the first use.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from collage_optim.chunks import Scratch, Views
from collage_optim.kernels import Hyper, wide_step

BACKEND = "inductor"
LARGEST = torch.finfo(torch.float32).max
MODES = ("plain", "light", "plus", "kahan")
Kernel = Callable[..., None]


def numbers(h: Hyper, device: torch.device) -> Tensor:
    """(8,) float32: 1 - beta_1, beta_2, 1 - beta_2, eta / (1 - beta_1^t), 1 / sqrt(1 - beta_2^t), eps, decay, decay."""
    before, after = (h.decay, 0.0) if h.decay_style != "hf" else (0.0, h.decay)
    first, second = h.betas
    listed = [1 - first, second, 1 - second, h.step_size, 1 / h.bias2, h.eps, 1 - before, 1 - after]
    return torch.tensor(listed, dtype=torch.float64).to(device=device, dtype=torch.float32)


def capturable_numbers(h: Hyper, step: Tensor, lr: Tensor | float) -> Tensor:
    """`numbers` from a step (and rate) that live on the device: nothing is read back."""
    t, one = step.to(torch.float32), torch.ones((), device=step.device)
    (first, second), rate = h.betas, one * lr
    decay = rate * h.weight_decay
    before, after = (1 - decay, one) if h.decay_style != "hf" else (one, 1 - decay)
    size, bias2 = rate / (1 - first**t), (1 - second**t).sqrt()
    return torch.stack(
        [one * (1 - first), one * second, one * (1 - second), size, 1 / bias2, one * h.eps, before, after]
    )


def fused_step(
    param: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, param_lo: Tensor | None,
    exp_avg_sq_lo: Tensor | None, k: Tensor
) -> None:  # fmt: skip
    """`wide_step` on 16-bit state; k is from `numbers`."""
    g = grad.float()
    m = exp_avg.float()
    m = m + (g - m) * k[0]
    v = exp_avg_sq.float()
    if exp_avg_sq_lo is not None:
        v = v + exp_avg_sq_lo.float()
    v = v * k[1] + g * g * k[2]
    x = param.float()
    if param_lo is not None:
        x = x + param_lo.float()
    x = (x * k[6] - k[3] * (m / (v.sqrt() * k[4] + k[5]))) * k[7]
    exp_avg.copy_(m)
    for whole, high, low in ((v, exp_avg_sq, exp_avg_sq_lo), (x, param, param_lo)):
        rounded = whole.to(high.dtype)
        if low is not None:
            error = whole - rounded.float()
            low.copy_(torch.where(error.abs() < LARGEST, error, 0.0))  # 0 where h is infinite or NaN
        high.copy_(rounded)


@cache
def compiled(backend: str, device: str, dtype: torch.dtype) -> Kernel:
    """`fused_step` by torch.compile, once its answer on a kind of device and in a 16-bit type is known to be right.

    Raises:
        RuntimeError: the compiler optimised the compensation away, or it failed.
    """
    options: dict[str, Any] | None = {"emulate_precision_casts": True} if backend == "inductor" else None
    kernel: Kernel = torch.compile(fused_step, backend=backend, dynamic=True, fullgraph=True, options=options)
    h = Hyper(0.1, (0.9, 0.999), 0.0, 0.0, 1, "plus")
    ours, theirs = _known(device, dtype), _known(device, dtype)
    arguments = [ours[name] for name in ("param", "grad", "exp_avg", "exp_avg_sq", "param_lo", "exp_avg_sq_lo")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of what the compiler imports
        try:
            kernel(*arguments, numbers(h, torch.device(device)))
        except Exception as error:  # the compiler's own kinds of errors differ between versions
            raise RuntimeError(
                f"compile=True could not compile the step ({type(error).__name__}: {error}). On a CPU it needs a C++ "
                "compiler; without one leave compile=False."
            ) from error
    wide_step(theirs, h, Scratch())
    near = all(torch.allclose(ours[name].double(), theirs[name].double(), rtol=2**-7) for name in theirs)
    if not near or not ours["param_lo"].any():
        raise RuntimeError(
            f"compensation optimised away: the backend {backend!r} does not keep 200 - 0.1 as 200, -0.1."
        )
    return kernel


def _known(device: str, dtype: torch.dtype) -> Views:
    """200 (float16: 2000) with a first update of -0.1, which 16 bits alone would lose."""
    names = ("exp_avg", "exp_avg_sq", "param_lo", "exp_avg_sq_lo")
    ones = torch.ones(64, dtype=dtype, device=device)
    zeros = {name: torch.zeros_like(ones) for name in names}
    return {"param": (200 if dtype == torch.bfloat16 else 2000) * ones, "grad": ones.clone(), **zeros}


def run(kernel: Kernel, c: Views, k: Tensor, raw: Tensor | None) -> None:
    """One chunk; when someone measures, what was asked for is computed again from the stored moments."""
    before = c["param"].double() if raw is not None else c["param"]
    kernel(c["param"], c["grad"], c["exp_avg"], c["exp_avg_sq"], c.get("param_lo"), c.get("exp_avg_sq_lo"), k)
    if raw is not None:
        k = k.double()
        ratio = c["exp_avg"].double() / (c["exp_avg_sq"].double().sqrt() * k[4] + k[5])
        raw.copy_((before * k[6] - k[3] * ratio) * k[7] - before)
