"""Interpolate onto a grid, run an FNO there, interpolate back: what section 1 of the paper wants to do without."""

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from offprints.checks import message, require_choice, require_range
from torch import nn
from torch.nn.functional import gelu, grid_sample

from direct_spectral.basis import FourierBasis
from direct_spectral.blocks import CONV, Head
from direct_spectral.contract import Basis
from direct_spectral.domain import Bounds
from direct_spectral.layers import GridSpectralConv, require_fine
from direct_spectral.memo import Memo
from direct_spectral.operator import CloudOperator, Prepared
from direct_spectral.waves import require_modes

_memo = Memo(128 * 2**20)


def _images(cloud: np.ndarray, periodic: list[bool]) -> tuple[np.ndarray, np.ndarray]:
    """Points of [-1, 1]^d and their copies half a period around along periodic axes; the places they were copied of."""
    places = np.arange(len(cloud))
    for axis in np.flatnonzero(periodic):
        wrapped = cloud.copy()
        wrapped[:, axis] = (cloud[:, axis] + 1) % 2 - 1
        other = wrapped.copy()
        other[:, axis] -= 2 * np.where(wrapped[:, axis] < 0, -1, 1)
        cloud, places = np.concatenate([wrapped, other]), np.concatenate([places, places])
    return cloud, places


def _weights_of(cloud: np.ndarray, grid: np.ndarray, periodic: list[bool]) -> tuple[np.ndarray, ...]:
    """Corners (G, d+1) and barycentric weights (G, d+1) of the simplex around each grid point; outside, the nearest.

    And the distance from each grid point to the nearest point of the cloud, (G, 1).
    """
    from scipy.spatial import Delaunay, KDTree  # not at import: it takes a while

    key = _memo.key(cloud, grid, np.array(periodic))
    if (known := _memo.get(key)) is not None:
        return known
    g, d = grid.shape
    cloud, places = _images(cloud, periodic)
    corners, weights = np.zeros((g, d + 1), dtype=np.int64), np.zeros((g, d + 1))
    distance, nearest = KDTree(cloud).query(grid)
    if d == 1:
        order = np.argsort(cloud[:, 0], kind="stable")
        x, at = cloud[order, 0], grid[:, 0]
        right = np.clip(np.searchsorted(x, at), 1, len(x) - 1) if len(x) > 1 else np.zeros(g, dtype=int)
        left = np.maximum(right - 1, 0)
        span = np.where(x[right] > x[left], x[right] - x[left], 1.0)
        share = np.clip((at - x[left]) / span, 0.0, 1.0)
        corners, weights = np.stack([order[left], order[right]], 1), np.stack([1 - share, share], 1)
    else:
        triangles = Delaunay(cloud)
        where = triangles.find_simplex(grid)
        inside = where >= 0
        affine = triangles.transform[where[inside]]
        part = np.einsum("gij,gj->gi", affine[:, :d], grid[inside] - affine[:, d])
        corners[inside] = triangles.simplices[where[inside]]
        weights[inside] = np.concatenate([part, 1 - part.sum(1, keepdims=True)], 1)
        lone = ~inside | ~np.isfinite(weights).all(1)  # outside, or in a degenerate simplex
        corners[lone, 0], weights[lone] = nearest[lone], 0.0
        weights[lone, 0] = 1.0
    found = places[corners], weights, distance[:, None]
    _memo.put(key, *found)
    return found


@torch.library.custom_op("direct_spectral::linear_weights", mutates_args=())
def _linear_weights(
    points: torch.Tensor, mask: torch.Tensor, grid: torch.Tensor, periodic: list[bool]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    clouds, kept = points.detach().double().cpu().numpy(), mask.cpu().numpy()
    at = grid.detach().double().cpu().numpy()
    found = []
    for cloud, which in zip(clouds, kept, strict=True):
        places = np.flatnonzero(which)
        corners, *rest = _weights_of(np.ascontiguousarray(cloud[which]), at, periodic)
        found.append((places[corners], *rest))
    g, d = at.shape
    empty = np.zeros((0, g, d + 1), dtype=np.int64), np.zeros((0, g, d + 1)), np.zeros((0, g, 1))
    corners, weights, distance = (np.stack(part) for part in zip(*found, strict=True)) if found else empty
    where = {"device": points.device, "dtype": points.dtype}
    return (
        torch.from_numpy(corners).to(points.device),
        torch.from_numpy(weights).to(**where),
        torch.from_numpy(distance).to(**where),
    )


@_linear_weights.register_fake
def _(
    points: torch.Tensor, mask: torch.Tensor, grid: torch.Tensor, periodic: list[bool]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    b, (g, d) = points.shape[0], grid.shape
    corners = points.new_empty((b, g, d + 1), dtype=torch.int64)
    return corners, points.new_empty((b, g, d + 1)), points.new_empty((b, g, 1))


def neuralop_fno(
    n_modes: Sequence[int],
    in_channels: int,
    out_channels: int,
    width: int = 32,
    n_layers: int = 4,
    device: "torch.device | str | None" = None,
    dtype: torch.dtype | None = None,
    **options: object,
) -> nn.Module:
    """The FNO of the library neuraloperator with the same block of modes; (B, C_in, n_1, …) to (B, C_out, n_1, …).

    Args:
        n_modes: m_i as here; there it keeps 2 m_i, and 2 m_d - 2 along the last axis.
        in_channels: C_in.
        out_channels: C_out.
        width: its hidden channels.
        n_layers: its layers.
        device: of the parameters.
        dtype: float32: its Fourier coefficients are complex64 whatever the input is.
        options: further arguments of `neuralop.models.FNO`.

    Raises:
        ModuleNotFoundError: if neuraloperator is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its own imports
            from neuralop.models import FNO
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f'{error.name} is missing: pip install "direct-spectral[grid]"') from error
    kept = (*(2 * m for m in n_modes[:-1]), max(2 * n_modes[-1] - 2, 1))
    more: dict = dict(options)
    model = FNO(kept, in_channels, out_channels, width, n_layers=n_layers, **more)
    return model.to(device=device) if dtype in (None, torch.float32) else model.to(device=device, dtype=dtype)


class GridFNO(nn.Module):
    """A plain FNO on an equispaced grid, of the layers of this package: (B, C_in, n_1, …) to (B, C_out, n_1, …).

    Args:
        in_channels: C_in.
        out_channels: C_out.
        width: channels inside.
        n_modes: m_i of each axis.
        n_layers: spectral layers; the last has no GELU.
        init: of the spectral weights.
        head: channels between the last two linear maps.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        width: int,
        n_modes: Sequence[int],
        n_layers: int = 4,
        init: str = "uniform",
        head: int = 128,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_range("n_layers", n_layers, low=1, integer=True)
        dim, factory = len(n_modes), {"device": device, "dtype": dtype}
        require_range("the number of axes", dim, low=1, high=3)
        self.lift = CONV[dim](in_channels, width, 1, **factory)
        self.spectral = nn.ModuleList(GridSpectralConv(width, width, n_modes, init, **factory) for _ in range(n_layers))
        self.pointwise = nn.ModuleList(CONV[dim](width, width, 1, **factory) for _ in range(n_layers))
        self.head = Head(width, head, out_channels, **factory)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        """Values on the same grid."""
        v = self.lift(u)
        for i, (layer, pointwise) in enumerate(zip(self.spectral, self.pointwise, strict=True)):
            v = layer(v) + pointwise(v)
            v = gelu(v) if i < len(self.spectral) - 1 else v
        return self.head(v.flatten(2)).transpose(-1, -2).unflatten(-1, u.shape[2:])


class InterpFNO(CloudOperator):
    """Linear interpolation (Delaunay) onto a grid, an FNO there, and bilinear interpolation back to the points.

    The FNO also sees how far each grid point is from the nearest point of the cloud: interpolated values alone do not
    tell where the cloud has a hole.

    Args:
        dim: d, from 1 to 3.
        in_channels: C_in.
        out_channels: C_out.
        width: channels inside.
        n_modes: m_i of each axis, or one for all.
        grid: size of the grid along each axis, or one for all.
        n_layers: spectral layers.
        bounds: (lo, hi) of each axis.
        periodic: of each axis, or of all: there the grid has no point twice, and neighbours across the seam count.
        inner: "neuralop" (the library's FNO, float32) or "grid" (`GridFNO`).
        append_positions: whether grid positions join the inputs.
        inner_options: further arguments of the inner model.
        validate: whether to look for NaN and points outside the bounds.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if an argument is out of range.
        ModuleNotFoundError: if neuraloperator is wanted and not installed.
    """

    def __init__(
        self,
        dim: int,
        in_channels: int,
        out_channels: int,
        width: int = 32,
        n_modes: int | Sequence[int] = 12,
        grid: int | Sequence[int] = 40,
        n_layers: int = 4,
        *,
        bounds: Bounds,
        periodic: bool | Sequence[bool] = False,
        inner: Literal["neuralop", "grid"] = "neuralop",
        append_positions: bool = True,
        inner_options: dict | None = None,
        validate: bool = True,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_up(
            dim, in_channels, bounds, periodic, append_positions=append_positions, max_basis_bytes=1,
            validate=validate, most=3,
        )  # fmt: skip
        self.append_positions = False  # those of the grid join, not those of the cloud
        require_choice("inner", inner, ("neuralop", "grid"))
        self.grid, self.modes = require_modes(grid, dim), require_modes(n_modes, dim)
        self.n_modes = (1,) * dim  # no transform of the cloud is used
        require_fine(self.grid, self.modes)
        self.place_features, self.out_channels = append_positions, out_channels
        self._register_scales(out_channels, device, dtype)
        channels, options = in_channels + 1 + dim * append_positions, inner_options or {}
        if inner == "neuralop":
            options = {"positional_embedding": None} | options
            self.inner = neuralop_fno(self.modes, channels, out_channels, width, n_layers, device, dtype, **options)
        else:
            self.inner = GridFNO(
                channels, out_channels, width, self.modes, n_layers, device=device, dtype=dtype, **options
            )

    def _fits(self, basis: Basis) -> None:
        if not isinstance(basis, FourierBasis):
            raise TypeError(message("points", "a tensor", type(basis).__name__))

    def operate(self, inputs: Prepared) -> torch.Tensor:
        """To the grid, through the FNO, and back."""
        assert isinstance(inputs.basis, FourierBasis)  # made by make_basis
        assert isinstance(inputs.out, FourierBasis)
        u, points = inputs.features, super().positions(inputs.basis)  # in [-1, 1]
        points = points.unsqueeze(0) if points.ndim == 2 else points
        mask = torch.ones(points.shape[:-1], dtype=torch.bool, device=u.device)
        mask = mask if inputs.mask is None else inputs.mask
        periodic = list(self.domain.periodic)
        lines = [
            torch.linspace(-1, 1, n + wraps, device=u.device, dtype=points.dtype)[:n]
            for n, wraps in zip(self.grid, periodic, strict=True)
        ]
        places = torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(lines))
        clouds = points.detach().expand(len(mask), -1, -1).contiguous()
        corners, weights, distance = _linear_weights(clouds, mask, places, periodic)
        rows = corners.expand(len(u), -1, -1).flatten(1)
        near = u.gather(1, rows.unsqueeze(-1).expand(-1, -1, u.shape[-1])).unflatten(1, corners.shape[1:])
        on_grid = (near * weights.unsqueeze(-1).to(u.dtype)).sum(2)
        on_grid = torch.cat([on_grid, distance.to(u.dtype).expand(len(u), -1, -1)], -1)
        on_grid = on_grid.transpose(-1, -2).unflatten(-1, self.grid)
        if self.place_features:
            where = places.t().unflatten(-1, self.grid).to(u.dtype).expand(len(u), -1, *self.grid)
            on_grid = torch.cat([on_grid, where], 1)
        if not len(on_grid):  # an FFT of nothing is an error of the library
            return u.new_zeros((0, inputs.out.n_points, self.out_channels))
        return self._back(self.inner(on_grid), super().positions(inputs.out))

    def _back(self, values: torch.Tensor, points: torch.Tensor) -> torch.Tensor:
        """Values (B, C, n_1, …) at points of [-1, 1]^d, (B, N, C)."""
        dim, points = len(self.grid), points.expand(len(values), -1, -1)
        wraps = torch.tensor(self.domain.periodic, device=points.device)
        points = torch.where(wraps, (points + 1) % 2 - 1, points).to(values.dtype)
        for axis, wrapped in enumerate(self.domain.periodic, start=2):
            if wrapped:  # the far end is the first value again
                values = torch.cat([values, values.narrow(axis, 0, 1)], axis)
        if dim == 1:  # grid_sample has two dimensions or three
            values, points = values.unsqueeze(-2), torch.cat([points, torch.zeros_like(points)], -1)
            sampled = grid_sample(values, points.unsqueeze(1), align_corners=True, padding_mode="border")
            return sampled.squeeze(2).transpose(-1, -2)
        at = points.flip(-1).reshape(len(values), *[1] * (dim - 1), -1, dim)  # it counts axes from the last
        sampled = grid_sample(values, at, align_corners=True, padding_mode="border")
        return sampled.flatten(2).transpose(-1, -2)
