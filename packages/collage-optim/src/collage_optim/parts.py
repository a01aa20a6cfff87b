"""The parts of a stored value: components in float64, and a low part kept in 8 bits."""

import torch
from torch import Tensor

from collage_optim.chunks import Views
from collage_optim.mcf import MCF

EIGHT_BITS = {torch.float8_e4m3fn, torch.float8_e5m2}


def stored_value(chunk: Views) -> MCF:
    """The stored value in float64: (what the model reads, what the optimizer keeps beyond that)."""
    high = chunk["param"].double()
    low = chunk["master"].double() - high if "master" in chunk else torch.zeros_like(high)
    for name in ("param_lo", "param_lo2"):
        if name in chunk:
            low += chunk[name].double()
    return MCF(high.clone(), low)


def _unit(high: Tensor) -> Tensor:
    """ulp(h): |l| is at most half of it, so l / ulp(h) suits 8 bits; 1 where h is 0 (there l is 0)."""
    bits = {torch.bfloat16: 8, torch.float16: 11}.get(high.dtype, 24)
    _, exponent = torch.frexp(high.float())
    return torch.ldexp(torch.ones_like(high, dtype=torch.float32), exponent - bits)


def decoded(high: Tensor, stored: Tensor) -> Tensor:
    """The low part that `encoded` stored."""
    return (stored.float() * _unit(high)).to(high.dtype)


def encoded(high: Tensor, low: Tensor, dtype: torch.dtype) -> Tensor:
    """A low part in units of the last place of its high part, in 8 bits."""
    return (low.float() / _unit(high)).to(dtype)


def store(p: Tensor, state: Views, rest: Tensor) -> None:
    """Set low parts or master copy to what is to be stored beyond p (float64), as near as they can hold it."""
    rest = torch.where(torch.isfinite(rest), rest, 0.0)
    if "master" in state:
        state["master"].copy_(p.double() + rest)
    for name in ("param_lo", "param_lo2"):
        if name not in state:
            continue
        low = rest.to(p.dtype)
        if state[name].dtype in EIGHT_BITS:
            kept = encoded(p, low, state[name].dtype)
            low = decoded(p, kept)
            state[name].copy_(kept)
        else:
            state[name].copy_(low)
        rest = rest - low.double()
