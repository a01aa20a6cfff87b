"""The kept wave vectors, and tables of cos(k·θ) and sin(k·θ) by powers: no trigonometric call per mode and point."""

import math
from collections.abc import Sequence

import torch
from offprints.checks import message, require_range
from offprints.device import float_dtype, full_precision


def require_modes(n_modes: int | Sequence[int], dim: int) -> tuple[int, ...]:
    """`n_modes` as one positive integer for each axis.

    Raises:
        TypeError: if one is no integer.
        ValueError: if one is below 1, or their number is not `dim`.
    """
    modes = tuple(n_modes) if isinstance(n_modes, Sequence) else (n_modes,) * dim
    if len(modes) != dim:
        raise ValueError(message("n_modes", f"one integer, or {dim} (an axis each)", f"{len(modes)}"))
    return tuple(int(require_range(f"n_modes[{axis}]", m, low=1, integer=True)) for axis, m in enumerate(modes))


def signed(m: int) -> list[int]:
    """Wave numbers of an axis that keeps both signs, in FFT order: 0..m-1, -m..-1."""
    return [*range(m), *range(-m, 0)]


def wave_vectors(n_modes: tuple[int, ...], device: torch.device | None = None) -> torch.Tensor:
    """K = {0..m_1-1, -m_1..-1} × … × {0..m_d-1}, (M, d) integers: the block that an FNO keeps of `rfftn`."""
    axes = [torch.tensor(signed(m), device=device) for m in n_modes[:-1]]
    axes.append(torch.arange(n_modes[-1], device=device))
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(n_modes))


def hermitian(n_modes: tuple[int, ...], device: torch.device | None, dtype: torch.dtype) -> torch.Tensor:
    """h_k of every kept wave, (M,): 1 where the last wave number is 0 (k and -k are both kept), else 2."""
    last = torch.full((n_modes[-1],), 2.0, device=device, dtype=dtype)
    last[0] = 1.0
    return last.repeat(count(n_modes) // n_modes[-1])


def count(n_modes: tuple[int, ...]) -> int:
    """M, the number of kept wave vectors: 2^{d-1} Π m_i."""
    return 2 ** (len(n_modes) - 1) * math.prod(n_modes)


def partners(n_modes: tuple[int, ...]) -> list[int]:
    """For each kept k the place of -k among the kept ones, itself for k = 0, and -1 where it is not kept."""
    places = {tuple(k): place for place, k in enumerate(wave_vectors(n_modes).tolist())}
    return [places.get(tuple(-x for x in k), -1) for k in places]


def tables(theta: torch.Tensor, n_modes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """A = [cos(Kθ^T); sin(Kθ^T)], (..., 2M, N), of angles (..., N, d).

    Powers z_i^k = e^{ikθ_i} of each axis by repeated products in double precision, then products over the axes:
    N Σ m_i + N M complex multiplications and 2 N d trigonometric calls. Rounded to `dtype` at the end: in single
    precision the powers themselves would lose about m · 1e-7. Differentiable in θ, as often as wanted.
    """
    with full_precision(theta.device):
        exact = theta.to(float_dtype(theta.device, torch.float64))
        return _Tables.apply(exact, n_modes, dtype)


def _build(theta: torch.Tensor, n_modes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Cosines above sines; the last and largest product runs in the dtype of the result, without temporaries."""
    *others, last = n_modes
    pair = None  # (..., 2, waves, N): cosines and sines
    for axis, m in enumerate(others):
        c, s = _powers(theta[..., axis], m, negative=True)
        pair = torch.stack([c, s], -3) if pair is None else _times(pair, c, s)
    c, s = _powers(theta[..., -1], last, negative=False)
    if pair is None:
        return torch.cat([c, s], -2).to(dtype)
    return _times(pair.to(dtype), c.to(dtype), s.to(dtype)).flatten(-3, -2)


def _times(pair: torch.Tensor, c: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """e^{ia} e^{ib} for all pairs of waves: (..., 2, P, N) and (..., m, N) twice to (..., 2, P m, N)."""
    turned = torch.stack([-pair[..., 1, :, :], pair[..., 0, :, :]], -3)
    product = pair.unsqueeze(-2) * c.unsqueeze(-3).unsqueeze(-4)
    return product.addcmul_(turned.unsqueeze(-2), s.unsqueeze(-3).unsqueeze(-4)).flatten(-3, -2)


def _powers(theta: torch.Tensor, m: int, negative: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Cos and sin of kθ, (..., m or 2m, N), by doubling: z^{n+k} = z^n z^k, so that errors grow with log m only."""
    cos, sin = torch.ones_like(theta).unsqueeze(-2), torch.zeros_like(theta).unsqueeze(-2)
    top = m + 1 if negative else m
    if top > 1:
        c1, s1 = theta.cos().unsqueeze(-2), theta.sin().unsqueeze(-2)
        cos, sin = torch.cat([cos, c1], -2), torch.cat([sin, s1], -2)
    while cos.shape[-2] < top:
        c, s = cos[..., -1:, :], sin[..., -1:, :]
        more = slice(1, 1 + min(cos.shape[-2] - 1, top - cos.shape[-2]))
        cos, sin = (
            torch.cat([cos, c * cos[..., more, :] - s * sin[..., more, :]], -2),
            torch.cat([sin, s * cos[..., more, :] + c * sin[..., more, :]], -2),
        )
    if not negative:
        return cos, sin
    down_cos, down_sin = cos[..., 1:, :].flip(-2), -sin[..., 1:, :].flip(-2)
    return torch.cat([cos[..., :m, :], down_cos], -2), torch.cat([sin[..., :m, :], down_sin], -2)


class _Tables(torch.autograd.Function):
    """The tables with their own derivative: ∂cos(k·θ)/∂θ_i = -k_i sin(k·θ) and the like, from the tables themselves."""

    @staticmethod
    def forward(ctx, theta: torch.Tensor, n_modes: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        table = _build(theta, n_modes, dtype)
        ctx.save_for_backward(table)
        ctx.n_modes, ctx.theta_dtype = n_modes, theta.dtype
        return table

    @staticmethod
    def backward(ctx, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (table,) = ctx.saved_tensors
        cos, sin = table.chunk(2, -2)
        on_cos, on_sin = grads[0].chunk(2, -2)
        per_wave = on_sin * cos - on_cos * sin
        ks = wave_vectors(ctx.n_modes, per_wave.device).to(per_wave.dtype)
        return (per_wave.transpose(-1, -2) @ ks).to(ctx.theta_dtype), None, None
