"""Spectral layers (section 3 of the paper): a few modes, one matrix for each, and back. F⁻¹(R_k · F(v)_k)."""

from collections.abc import Sequence
from typing import Literal

import torch
from offprints.checks import message, require_choice, require_range
from offprints.device import full_precision
from torch import nn

from direct_spectral.backends import block_indices
from direct_spectral.contract import Basis, compute_dtype, pack, unpack
from direct_spectral.sphere import SphericalBasis
from direct_spectral.waves import count, require_modes

Init = Literal["uniform", "normal"]


def initialise(weight: torch.Tensor, in_channels: int, out_channels: int, init: str) -> None:
    """Fill spectral weights: "uniform" U[0, 1) / (C_in C_out) as in the released code, "normal" of std 1 / C_in."""
    require_choice("init", init, ("uniform", "normal"))
    if init == "uniform":
        nn.init.uniform_(weight, 0.0, 1.0 / (in_channels * out_channels))
    else:
        nn.init.normal_(weight, std=1.0 / in_channels)


def mix(packed: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """R_k c_k for packed coefficients: (B, C_in, 2M) and (M, C_in, C_out, 2) to (B, C_out, 2M).

    With c = α - iβ and R = P + iQ: α' = αP + βQ, β' = βP - αQ; one product for each mode, all batched.
    """
    m, c_in, c_out, _ = weight.shape
    if packed.shape[1] != c_in or packed.shape[2] != 2 * m:
        raise ValueError(message("coefficients", f"of shape (B, {c_in}, {2 * m})", tuple(packed.shape)))
    b = packed.shape[0]
    with full_precision(packed.device):
        rows = packed.reshape(b, c_in, 2, m).permute(3, 2, 0, 1).reshape(m, 2 * b, c_in)
        both = (rows @ weight.to(packed.dtype).flatten(-2)).reshape(m, 2, b, c_out, 2)
        alpha = both[:, 0, ..., 0] + both[:, 1, ..., 1]
        beta = both[:, 1, ..., 0] - both[:, 0, ..., 1]
        return torch.stack([alpha, beta]).permute(2, 3, 0, 1).reshape(b, c_out, 2 * m)


class DirectSpectralConv(nn.Module):
    """The spectral layer on any points: v (B, C_in, N) to F⁻¹(R_k · F(v)_k), (B, C_out, N').

    Args:
        in_channels: C_in.
        out_channels: C_out.
        n_modes: m_i of each axis, as the basis has.
        init: see `initialise`.
        device: of the weights.
        dtype: of the weights.

    Attributes:
        weight: R, (M, C_in, C_out, 2), real and imaginary parts; modes in the order of `FourierBasis.modes`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_modes: int | Sequence[int],
        init: str = "uniform",
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_range("in_channels", in_channels, low=1, integer=True)
        require_range("out_channels", out_channels, low=1, integer=True)
        self.n_modes = require_modes(n_modes, len(n_modes) if isinstance(n_modes, Sequence) else 1)
        shape = (count(self.n_modes), in_channels, out_channels, 2)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        initialise(self.weight.data, in_channels, out_channels, init)

    def forward(self, v: torch.Tensor, basis: Basis, out_basis: Basis | None = None) -> torch.Tensor:
        """Values (B, C_out, N') at the points of `out_basis`, those of `basis` by default, in the dtype of v.

        Raises:
            ValueError: if the basis keeps other modes, or shapes differ.
        """
        packed = mix(basis.analyse(v), self.weight)
        return (basis if out_basis is None else out_basis).synthesise(packed).to(v.dtype)


class FactorizedSpectralConv(nn.Module):
    """One-dimensional spectral layers along each axis, summed: Σ_i F_i⁻¹ R^{(i)} F_i v (F-FNO).

    On a cloud F_i sums over all points with the phase k θ_i; on a lattice over each line. Every axis has weights of
    its own.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        n_modes: m_i of each axis: waves 0..m_i-1.
        init: see `initialise`.
        device: of the weights.
        dtype: of the weights.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_modes: Sequence[int],
        init: str = "uniform",
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_range("in_channels", in_channels, low=1, integer=True)
        require_range("out_channels", out_channels, low=1, integer=True)
        self.n_modes = require_modes(n_modes, len(n_modes))
        shapes = [(m, in_channels, out_channels, 2) for m in self.n_modes]
        self.weights = nn.ParameterList([torch.empty(shape, device=device, dtype=dtype) for shape in shapes])
        for weight in self.weights:
            initialise(weight.data, in_channels, out_channels, init)

    def forward(self, v: torch.Tensor, axes: Sequence[Basis], out_axes: Sequence[Basis] | None = None) -> torch.Tensor:
        """Values (B, C_out, N'); `axes` are `basis.along(i, m_i)` of each axis.

        Raises:
            ValueError: if their number is not that of the axes.
        """
        if len(axes) != len(self.n_modes):
            raise ValueError(message("axes", f"{len(self.n_modes)} bases, one along each axis", len(axes)))
        outputs = axes if out_axes is None else out_axes
        total = None
        for weight, into, out in zip(self.weights, axes, outputs, strict=True):
            part = out.synthesise(mix(into.analyse(v), weight))
            total = part if total is None else total + part
        assert total is not None  # there is at least one axis
        return total.to(v.dtype)


class SphericalSpectralConv(nn.Module):
    """The spectral layer on the sphere: one matrix for each (l, m), each l, or each pair (l, ±m).

    With `weight="degree"` the real matrices depend on l alone: a convolution that commutes with every rotation. With
    "full" (the paper) there is a real one for each (l, m). Neither can differentiate along a parallel, as that takes
    cos mφ to sin mφ; with "complex" a complex matrix acts on each a - ib of a cos mφ + b sin mφ, and can.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        lmax: L, the number of degrees.
        weight: "full", "degree" or "complex".
        init: see `initialise`.
        device: of the weights.
        dtype: of the weights.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        lmax: int,
        weight: Literal["full", "degree", "complex"] = "full",
        init: str = "uniform",
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_range("in_channels", in_channels, low=1, integer=True)
        require_range("out_channels", out_channels, low=1, integer=True)
        self.lmax = int(require_range("lmax", lmax, low=1, integer=True))
        self.kind = require_choice("weight", weight, ("full", "degree", "complex"))
        shape = {
            "full": (self.lmax**2, in_channels, out_channels),
            "degree": (self.lmax, in_channels, out_channels),
            "complex": (self.lmax * (self.lmax + 1) // 2, in_channels, out_channels, 2),
        }[weight]
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        initialise(self.weight.data, in_channels, out_channels, init)

    def forward(self, v: torch.Tensor, basis: SphericalBasis, out_basis: SphericalBasis | None = None) -> torch.Tensor:
        """Values (B, C_out, N') in the dtype of v.

        Raises:
            ValueError: if the basis has other degrees, or shapes differ.
        """
        if basis.lmax != self.lmax:
            raise ValueError(message("basis", f"of {self.lmax} degrees", basis.lmax))
        coefficients = basis.analyse(v)
        if self.kind == "complex":
            mixed = self._turned(coefficients)
        else:
            with full_precision(v.device):
                weight = self.weight.to(coefficients.dtype)
                if self.kind == "degree":
                    parts = enumerate(weight.split(1))
                    weight = torch.cat([w.expand(2 * degree + 1, -1, -1) for degree, w in parts])
                mixed = (coefficients.permute(2, 0, 1) @ weight).permute(1, 2, 0)
        return (basis if out_basis is None else out_basis).synthesise(mixed).to(v.dtype)

    def _turned(self, c: torch.Tensor) -> torch.Tensor:
        """Complex weights on the pairs (l, m), (l, -m); the sine part of m = 0 is nothing."""
        pairs = [(degree, m) for degree in range(self.lmax) for m in range(degree + 1)]
        cos = torch.tensor([degree**2 + degree + m for degree, m in pairs], device=c.device)
        sin = torch.tensor([degree**2 + degree - m for degree, m in pairs], device=c.device)
        real = torch.tensor([float(m > 0) for _, m in pairs], device=c.device, dtype=c.dtype)
        alpha, beta = mix(torch.cat([c[..., cos], c[..., sin] * real], -1), self.weight).chunk(2, -1)
        place = {pair: k for k, pair in enumerate(pairs)}
        orders = [(degree, m) for degree in range(self.lmax) for m in range(-degree, degree + 1)]
        rows = [place[degree, abs(m)] + (m < 0) * len(pairs) for degree, m in orders]
        return torch.cat([alpha, beta], -1)[..., torch.tensor(rows, device=c.device)]


class GridSpectralConv(nn.Module):
    """The FFT layer of an FNO on an equispaced periodic grid, with the weights of `DirectSpectralConv`.

    v (B, C_in, n_1, …, n_d) to (B, C_out, n_1, …, n_d). Equal to `DirectSpectralConv` on that grid.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        n_modes: m_i of each axis.
        init: see `initialise`.
        device: of the weights.
        dtype: of the weights.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        n_modes: Sequence[int],
        init: str = "uniform",
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.n_modes = require_modes(n_modes, len(n_modes))
        shape = (count(self.n_modes), in_channels, out_channels, 2)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        initialise(self.weight.data, in_channels, out_channels, init)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        """Values on the grid, in the dtype of v.

        Raises:
            ValueError: if the grid is too coarse for the modes.
        """
        packed = mix(grid_analyse(v, self.n_modes), self.weight)
        return grid_synthesise(packed, self.n_modes, tuple(v.shape[2:])).to(v.dtype)


def grid_analyse(v: torch.Tensor, n_modes: tuple[int, ...]) -> torch.Tensor:
    """Packed coefficients (B, C, 2M) of values (B, C, n_1, …, n_d) on an equispaced periodic grid, by the FFT."""
    sizes = tuple(v.shape[2:])
    require_fine(sizes, n_modes)
    if not len(v):  # an FFT of nothing is an error of the library
        return v.new_zeros((0, v.shape[1], 2 * count(n_modes)), dtype=compute_dtype(v.dtype))
    with full_precision(v.device):
        whole = torch.fft.rfftn(v.to(compute_dtype(v.dtype)), dim=tuple(range(2, v.ndim)), norm="forward")
        return pack(whole[(..., *block_indices(n_modes, sizes, v.device))].flatten(2))


def grid_synthesise(packed: torch.Tensor, n_modes: tuple[int, ...], sizes: tuple[int, ...]) -> torch.Tensor:
    """Values (B, C, n_1, …, n_d) on a grid of these sizes from packed coefficients (B, C, 2M), by the FFT."""
    require_fine(sizes, n_modes)
    if not len(packed):
        return packed.new_zeros((0, packed.shape[1], *sizes))
    with full_precision(packed.device):
        c = unpack(packed)
        whole = c.new_zeros(*c.shape[:-1], *sizes[:-1], sizes[-1] // 2 + 1)
        block = c.reshape(*c.shape[:-1], *[2 * m for m in n_modes[:-1]], n_modes[-1])
        whole[(..., *block_indices(n_modes, sizes, c.device))] = block
        return torch.fft.irfftn(whole, s=sizes, dim=tuple(range(2, 2 + len(sizes))), norm="forward")


def require_fine(sizes: tuple[int, ...], n_modes: tuple[int, ...]) -> None:
    """Check that a grid resolves the kept modes.

    Raises:
        ValueError: naming the axis that does not.
    """
    if len(sizes) != len(n_modes):
        raise ValueError(message("the grid", f"of {len(n_modes)} axes", len(sizes)))
    for axis, (n, m) in enumerate(zip(sizes, n_modes, strict=True)):
        least = 2 * m - 1 if axis == len(sizes) - 1 else 2 * m
        if n < least:
            raise ValueError(message(f"axis {axis} of the grid", f"at least {least} points for {m} modes", n))


def parameter_count(module: nn.Module) -> int:
    """Real numbers among the parameters: a complex one counts twice."""
    return sum(p.numel() * (2 if p.is_complex() else 1) for p in module.parameters())
