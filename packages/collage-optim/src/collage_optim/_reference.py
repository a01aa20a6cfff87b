"""The paper's algorithms written out literally: whole tensors, one rounding to the storage type for every operation.

Slow and obvious; tests compare the fast paths with it. RN is round to nearest, ties to even, which torch applies after
each operation on bfloat16 and float16.
"""

import math

import torch
from torch import Tensor


def two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A + b = x + e exactly (Knuth): x = RN(a + b)."""
    x = a + b
    b_virtual = x - a
    a_virtual = x - b_virtual
    return x, (a - a_virtual) + (b - b_virtual)


def fast_two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A + b = x + e exactly for |a| >= |b| (Dekker)."""
    x = a + b
    return x, b - (x - a)


def two_prod(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A b = x + e exactly; a 16-bit product has at most 22 bits, which float32 holds."""
    x = a * b
    return x, (a.double() * b.double() - x.double()).to(a.dtype)


def grow(h: Tensor, low: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """(h, low) + c (Algorithm 1)."""
    u = h + c
    v = low + (c - (u - h))
    high = u + v
    return high, v - (high - u)


def mul(h: Tensor, low: Tensor, p: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """(h, low) times (p, q)."""
    x, e = two_prod(h, p)
    e = e + h * q + low * p
    return fast_two_sum(x, e)


def nearest(value: float, bits: int, lowest: int) -> float:
    """The nearest number of `bits` significant bits to a float64 (ties to even), no finer than 2^lowest."""
    if value == 0.0 or not math.isfinite(value):
        return value
    step = max(math.frexp(value)[1] - bits, lowest)
    return math.ldexp(round(math.ldexp(value, -step)), step)


def adamw_step(
    state: dict[str, Tensor],
    gradient: Tensor,
    t: int,
    *,
    mode: str,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    beta2: tuple[Tensor, ...] = (),
) -> None:
    """One step of Algorithm 2 on state {"theta", "m", "v"} and {"low"} (light, plus), {"v_low"} (plus)."""
    first, second = betas
    theta, m, v = state["theta"], state["m"], state["v"]
    m.copy_(torch.add(m * first, gradient, alpha=1 - first))
    if mode == "plus":
        square = (gradient * (1 - second)) * gradient
        v, v_low = grow(*mul(v, state["v_low"], *beta2), square)
        state["v"].copy_(v)
        state["v_low"].copy_(v_low)
    else:
        v.copy_(torch.addcmul(v * second, gradient, gradient, value=1 - second))
    corrected = m / (state["v"].sqrt() / math.sqrt(1 - second**t) + eps)
    update = corrected * (-lr / (1 - first**t)) - theta * (lr * weight_decay)
    if mode == "plain":
        theta.copy_(theta + update)
        return
    high, low = grow(theta, state["low"], update)
    state["theta"].copy_(high)
    state["low"].copy_(low)
