"""Other ways to the same sums: the FFT where the points are an equispaced grid, finufft on large clouds."""

import importlib.util
import math
from typing import TYPE_CHECKING, Any

import torch
from offprints.checks import message

from direct_spectral.domain import values_known
from direct_spectral.waves import count, signed

if TYPE_CHECKING:
    from direct_spectral.basis import FourierBasis

NAMES = ("direct", "auto", "fft", "finufft")
GRID_TOLERANCE = 1e-9
CROSSOVER = 1500
"""2M past which finufft wins on a CPU (measured; the duels of this package report it)."""
CROSSOVER_POINTS = 4096
"""N below which a product of matrices wins whatever M is."""


def choose(wanted: str, basis: "FourierBasis") -> str:
    """The backend for a basis: what was wanted, or for "auto" the fastest that gives the same sums.

    Raises:
        ValueError: if the wanted one does not apply.
        ModuleNotFoundError: if finufft is wanted and not installed.
    """
    if wanted == "direct" or basis.solver is not None:
        return "direct"
    free = not basis.theta.requires_grad and values_known(basis.theta)
    grid = grid_of(basis) if free and wanted in ("auto", "fft") else None
    if grid is not None:
        basis.grid = grid
        return "fft"
    if wanted == "fft":
        hint = "Use backend='direct', or 'auto'."
        raise ValueError(
            message("points", "an equispaced periodic grid, in row order, finer than the modes", "others", hint)
        )
    if wanted == "finufft":
        _nufft()
        return "finufft"
    installed = all(importlib.util.find_spec(name) for name in ("finufft", "pytorch_finufft"))
    large = 2 * count(basis.n_modes) > CROSSOVER and basis.n_points > CROSSOVER_POINTS
    cpu = basis.device.type == "cpu" and basis.theta.shape[-1] <= 3
    return "finufft" if installed and large and cpu and values_known(basis.theta) else "direct"


def _nufft() -> Any:
    try:
        import pytorch_finufft.functional as nufft
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f'{error.name} is missing: pip install "direct-spectral[nufft]"') from error
    return nufft


def grid_of(basis: "FourierBasis") -> tuple[int, ...] | None:
    """The shape of the equispaced grid that the angles are (each axis i: 2πj/n_i + a start), row order; or None."""
    theta = basis.theta.detach()
    if not basis.shared or basis.mask is not None or not all(basis.domain.periodic) or not len(theta):
        return None
    sizes = []
    for axis in range(theta.shape[-1]):
        sizes.append(len(torch.unique((theta[:, axis] / GRID_TOLERANCE).round())))
    if math.prod(sizes) != len(theta):
        return None
    steps = [2 * math.pi / n * torch.arange(n, dtype=theta.dtype, device=theta.device) for n in sizes]
    wanted = torch.stack(torch.meshgrid(*steps, indexing="ij"), -1).reshape(-1, len(sizes)) + theta[0]
    *others, last = basis.n_modes
    fine = 2 * (last - 1) < sizes[-1] and all(2 * m <= n for m, n in zip(others, sizes[:-1], strict=True))
    return tuple(sizes) if fine and bool(((theta - wanted).abs() < 2 * math.pi * GRID_TOLERANCE).all()) else None


def block_indices(n_modes: tuple[int, ...], sizes: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, ...]:
    """Indices of the kept block in the output of `rfftn`."""
    axes = [torch.tensor(signed(m), device=device) % n for m, n in zip(n_modes[:-1], sizes[:-1], strict=True)]
    return torch.meshgrid(*axes, torch.arange(n_modes[-1], device=device), indexing="ij")


def _phase(basis: "FourierBasis") -> torch.Tensor:
    """e^{-ik·θ_0} of the first point of the grid, (M,)."""
    angle = basis.modes.to(basis.theta.dtype) @ basis.theta[0].detach()
    return torch.polar(torch.ones_like(angle), -angle).to(_complex(basis.dtype))


def _complex(dtype: torch.dtype) -> torch.dtype:
    return torch.complex128 if dtype == torch.float64 else torch.complex64


def analyse(basis: "FourierBasis", u: torch.Tensor) -> torch.Tensor:
    """Σ_j u_j e^{-ik·θ_j}, packed (B, C, 2M), by another backend than the direct one."""
    if not u.numel():  # the libraries refuse to transform nothing
        return u.new_zeros(*u.shape[:-1], 2 * count(basis.n_modes))
    if basis.backend == "fft":
        whole = torch.fft.rfftn(u.reshape(*u.shape[:-1], *basis.grid), dim=tuple(range(2, 2 + len(basis.grid))))
        c = whole[(..., *block_indices(basis.n_modes, basis.grid, u.device))].flatten(2) * _phase(basis)
        return torch.cat([c.real, -c.imag], -1)
    values = u.to(_complex(u.dtype))
    if basis.shared:
        c = _type1(basis, basis.theta, values.reshape(-1, values.shape[-1])).reshape(*u.shape[:-1], -1)
    else:
        clouds = basis.theta.expand(len(u), -1, -1)
        rows = [_type1(basis, theta, row) for theta, row in zip(clouds, values, strict=True)]
        c = torch.stack(rows)
    return torch.cat([c.real, -c.imag], -1)


def synthesise(basis: "FourierBasis", packed: torch.Tensor) -> torch.Tensor:
    """Re Σ_k (α - iβ)_k e^{ik·θ} of packed coefficients (the Hermitian weights are in them), (B, C, N)."""
    if not packed.numel() or not basis.n_points:
        return packed.new_zeros(*packed.shape[:-1], basis.n_points)
    alpha, beta = packed.chunk(2, -1)
    c = torch.complex(alpha.contiguous(), -beta.contiguous())
    if basis.backend == "fft":
        return _irfft(basis, c * _phase(basis).conj())
    if basis.shared:
        return _type2(basis, basis.theta, c.reshape(-1, c.shape[-1])).real.reshape(*packed.shape[:-1], -1)
    clouds = basis.theta.expand(len(c), -1, -1)
    rows = [_type2(basis, theta, row).real for theta, row in zip(clouds, c, strict=True)]
    return torch.stack(rows)


def _irfft(basis: "FourierBasis", c: torch.Tensor) -> torch.Tensor:
    sizes = basis.grid
    whole = c.new_zeros(*c.shape[:-1], *sizes[:-1], sizes[-1] // 2 + 1)
    last = torch.full((basis.n_modes[-1],), 0.5, dtype=basis.dtype, device=c.device)
    last[0] = 1.0  # irfft doubles all but this plane by itself
    blocks = c.reshape(*c.shape[:-1], *[2 * m for m in basis.n_modes[:-1]], basis.n_modes[-1]) * last
    whole[(..., *block_indices(basis.n_modes, sizes, c.device))] = blocks
    return torch.fft.irfftn(whole, s=sizes, dim=tuple(range(2, 2 + len(sizes))), norm="forward").flatten(2)


def _box(basis: "FourierBasis") -> tuple[int, ...]:
    """Modes that finufft computes: as many along the last axis as hold 0..m-1."""
    return tuple(2 * m for m in basis.n_modes)


def _wrapped(theta: torch.Tensor) -> torch.Tensor:
    """Angles (N, d) as finufft takes them: (d, N) in [-π, π); the gradient passes."""
    return (theta - 2 * math.pi * torch.round(theta.detach() / (2 * math.pi))).t().contiguous()


def _eps(dtype: torch.dtype) -> float:
    return 1e-13 if dtype == torch.float64 else 1e-6


def _type1(basis: "FourierBasis", theta: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    points = _wrapped(theta).to(basis.dtype)
    c = _nufft().finufft_type1(points, values.contiguous(), _box(basis), isign=-1, eps=_eps(basis.dtype), modeord=1)
    return c[..., : basis.n_modes[-1]].flatten(1)


def _type2(basis: "FourierBasis", theta: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    points, m = _wrapped(theta).to(basis.dtype), basis.n_modes[-1]
    blocks = c.reshape(len(c), *_box(basis)[:-1], m)
    padded = torch.cat([blocks, torch.zeros_like(blocks)], -1)
    return _nufft().finufft_type2(points, padded, isign=1, eps=_eps(basis.dtype), modeord=1)
