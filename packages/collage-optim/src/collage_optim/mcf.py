"""Multi-component floats: an unevaluated sum of floats of one type, with error-free transformations (section 3).

An expansion (h, l) has the value h + l with h = RN(h + l), where RN rounds to nearest, ties to even. torch computes
`+ - * /` on bfloat16 and float16 in float32 and rounds once more; float32 has at least 2p + 2 bits for p = 8 and
p = 11, so this double rounding gives RN of the exact result, and the transformations hold with plain torch operations.
"""

import math
from numbers import Real
from typing import NamedTuple

import torch
from offprints.checks import require_kind
from torch import Tensor

HALF = (torch.bfloat16, torch.float16)
FLOATS = (*HALF, torch.float32, torch.float64)
_SPLIT = {torch.float32: 2.0**12 + 1.0, torch.float64: 2.0**27 + 1.0}  # Veltkamp's constants
_FORMAT = {  # significant bits, exponent of the smallest subnormal number
    torch.bfloat16: (8, -133),
    torch.float16: (11, -24),
    torch.float32: (24, -149),
    torch.float64: (53, -1074),
}


class MCF(NamedTuple):
    """An expansion: tensors of one shape and type whose sum is the value."""

    hi: Tensor
    lo: Tensor

    def value(self) -> Tensor:
        """Hi + lo, in float32 for 16-bit components and in float64 for wider ones."""
        wide = torch.float32 if self.hi.dtype in HALF else torch.float64
        return self.hi.to(wide) + self.lo.to(wide)


def to_float64(expansion: MCF) -> Tensor:
    """Hi + lo in float64, exact for 16-bit components."""
    return expansion.hi.double() + expansion.lo.double()


def _same_floats(**tensors: Tensor) -> None:
    """Raises TypeError unless all are tensors of one floating type."""
    for name, tensor in tensors.items():
        require_kind(name, tensor, Tensor)
    kinds = {name: tensor.dtype for name, tensor in tensors.items()}
    if len(set(kinds.values())) > 1 or not set(kinds.values()) <= set(FLOATS):
        got = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
        raise TypeError(
            f"components must be of one type of {', '.join(map(str, FLOATS))}, got {got}. Convert them first."
        )


def two_sum(a: Tensor, b: Tensor) -> MCF:
    """A + b = x + e exactly, whatever the sizes (Knuth; 6 operations); e is 0 where x overflows.

    Raises:
        TypeError: for mixed or other than floating types.
    """
    _same_floats(a=a, b=b)
    x = a + b
    virtual = x - a
    return MCF(x, _finite((a - (x - virtual)) + (b - virtual)))


def fast_two_sum(a: Tensor, b: Tensor) -> MCF:
    """A + b = x + e exactly if |a| >= |b| or a = 0 (Dekker; 3 operations); not exact otherwise.

    Raises:
        TypeError: for mixed or other than floating types.
    """
    _same_floats(a=a, b=b)
    x = a + b
    return MCF(x, _finite(b - (x - a)))


def two_prod(a: Tensor, b: Tensor) -> MCF:
    """A b = x + e exactly unless e underflows: by a fused multiply-add in 16 bits, by Dekker's split in wider types.

    Raises:
        TypeError: for mixed or other than floating types.
    """
    _same_floats(a=a, b=b)
    x = a * b
    if a.dtype in HALF:  # computed in float32, which holds the product of two 16-bit numbers
        return MCF(x, _finite(torch.addcmul(-x, a, b)))
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return MCF(x, _finite(((a_high * b_high - x) + a_high * b_low + a_low * b_high) + a_low * b_low))


def _halves(a: Tensor) -> tuple[Tensor, Tensor]:
    """A = high + low, each with half of the significant bits (Veltkamp)."""
    scaled = a * _SPLIT[a.dtype]
    high = scaled - (scaled - a)
    return high, a - high


def _finite(error: Tensor) -> Tensor:
    """Inf - inf is no error term: where the sum overflowed or is NaN, that shows in the leading part alone."""
    return torch.nan_to_num(error, 0.0, 0.0, 0.0)


def _overflows(x: Tensor) -> bool:
    """Whether x may hold inf or NaN; on a CPU a sum tells, at a third of the cost of a guard that is not needed."""
    return x.device.type != "cpu" or not math.isfinite(x.sum().item())


@torch.no_grad()
def grow(hi: Tensor, lo: Tensor, c: Tensor, *, robust: bool = False) -> MCF:
    """(hi, lo) + c as an expansion (Algorithm 1); no gradient goes through it.

    u = RN(h + c); v = RN(l + (c - (u - h))); h' = RN(u + v); l' = v - (h' - u). For |h| >= |c| the error is at most
    2^-14 max(|h|, |h'|) in bfloat16.

    Args:
        hi: h, any shape.
        lo: l, of the same shape and type.
        c: what is added, of the same type.
        robust: use `two_sum` for h + c, which is exact for |c| > |h| too (weights that start at zero).

    Raises:
        TypeError: for mixed or other than floating types.
    """
    hi, lo = torch.broadcast_tensors(hi, lo)
    return grow_(MCF(hi.clone(), lo.clone()), c, robust=robust)


def grow_(expansion: MCF, c: Tensor, *, robust: bool = False, scratch: tuple[Tensor, ...] = ()) -> MCF:
    """`grow` in place; `scratch` are up to three buffers of the same shape and type that spare allocations."""
    hi, lo = expansion
    _same_floats(hi=hi, lo=lo, c=c)
    u, t, w = scratch if scratch else (torch.empty_like(hi) for _ in range(3))
    torch.add(hi, c, out=u)
    torch.sub(u, hi, out=t)  # what of c arrived
    if robust:
        torch.sub(u, t, out=w)
        torch.sub(hi, w, out=w)  # what of h was lost
        torch.sub(c, t, out=t)
        t.add_(w)
    else:
        torch.sub(c, t, out=t)
    lo.add_(t)  # v
    torch.add(u, lo, out=hi)
    guarded = _overflows(hi)
    if guarded:  # in either addition: the first one's inf or NaN stays, not inf - inf
        hi.copy_(torch.where(torch.isfinite(u), hi, u))
    torch.sub(hi, u, out=t)
    lo.sub_(t)
    if guarded:
        lo.copy_(torch.where(torch.isfinite(hi), lo, 0.0))
    return expansion


def grow_three_(hi: Tensor, lo: Tensor, lowest: Tensor, c: Tensor) -> None:
    """(h, l, k) + c in place: each error goes one component down, then all are renormalised.

    Raises:
        TypeError: for mixed or other than floating types.
    """
    u, error = two_sum(hi, c)
    v, rest = two_sum(lo, error)
    u, v = two_sum(u, v)
    v, rest = two_sum(v, lowest + rest)
    for component, part in zip((hi, lo, lowest), (u, v, rest), strict=True):
        component.copy_(part)


@torch.no_grad()
def mul(hi: Tensor, lo: Tensor, factor: MCF) -> MCF:
    """(hi, lo) times (p, q): x, e = two_prod(h, p); e = RN(RN(e + h q) + l p); fast_two_sum(x, e) ("Mul").

    No gradient goes through it.

    Raises:
        TypeError: for mixed or other than floating types.
    """
    hi, lo = torch.broadcast_tensors(hi, lo)
    return mul_(MCF(hi.clone(), lo.clone()), factor)


def mul_(expansion: MCF, factor: MCF, *, scratch: tuple[Tensor, ...] = ()) -> MCF:
    """`mul` in place; `scratch` are up to three buffers."""
    hi, lo = expansion
    _same_floats(hi=hi, lo=lo, p=factor.hi, q=factor.lo)
    x, e, t = scratch if scratch else (torch.empty_like(hi) for _ in range(3))
    if hi.dtype in HALF:
        torch.mul(hi, factor.hi, out=x)
        torch.neg(x, out=t)
        torch.addcmul(t, hi, factor.hi, out=e)
    else:
        for out, part in zip((x, e), two_prod(hi, factor.hi), strict=True):
            out.copy_(part)
    guarded = _overflows(x)
    if guarded:
        e.nan_to_num_(0.0, 0.0, 0.0)
    e.add_(torch.mul(hi, factor.lo, out=t))
    e.add_(torch.mul(lo, factor.hi, out=t))
    torch.add(x, e, out=hi)
    torch.sub(hi, x, out=t)
    torch.sub(e, t, out=lo)
    if guarded:
        lo.nan_to_num_(0.0, 0.0, 0.0)
    return expansion


def scale(hi: Tensor, lo: Tensor, factor: float) -> MCF:
    """(hi, lo) times a Python number, which is first split by `from_float`."""
    return mul(hi, lo, from_float(factor, hi.dtype, hi.device))


def from_float(value: float, dtype: torch.dtype, device: torch.device | str | None = None) -> MCF:
    """(RN(value), RN(value - RN(value))) of a float64: never by way of float32, which would round twice.

    Raises:
        TypeError: for another dtype than bfloat16, float16, float32 or float64, or what is no number.
    """
    require_kind("value", value, Real)
    if dtype not in FLOATS:
        raise TypeError(f"dtype must be one of {', '.join(map(str, FLOATS))}, got {dtype}.")
    bits, lowest = _FORMAT[dtype]
    high = _nearest(float(value), bits, lowest)
    if abs(high) > torch.finfo(dtype).max:
        high = math.copysign(math.inf, high)
    low = _nearest(value - high, bits, lowest) if math.isfinite(high) else 0.0
    return MCF(*(torch.tensor(part, dtype=torch.float64).to(dtype).to(device or "cpu") for part in (high, low)))


def _nearest(value: float, bits: int, lowest: int) -> float:
    """The nearest number of `bits` significant bits, in steps no finer than 2^lowest; Python rounds ties to even."""
    if value == 0.0 or not math.isfinite(value):
        return value
    step = max(math.frexp(value)[1] - bits, lowest)
    return math.ldexp(round(math.ldexp(value, -step)), step)
