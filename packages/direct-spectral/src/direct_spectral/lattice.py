"""Product lattices (section 3 of the paper): X_1 × … × X_d, not equispaced, transformed one axis at a time.

û = V_x u V_y^T costs m N_x N_y + m² N_y per channel, where the cloud of the same points costs m² N_x N_y.
"""

import math
from collections.abc import Sequence

import torch
from offprints.checks import message, require_choice
from offprints.device import full_precision

from direct_spectral.basis import NORMS, FourierBasis
from direct_spectral.contract import Basis, compute_dtype, pack, unpack, warn_aliasing
from direct_spectral.domain import Bounds, Domain, require_finite_where, require_floating
from direct_spectral.quadrature import cell_areas
from direct_spectral.waves import count, hermitian, require_modes, tables, wave_vectors


class LatticeBasis(Basis):
    """The kept Fourier modes on a product lattice; the points are all combinations, the last axis fastest.

    Args:
        axes: positions along each axis, (N_i,) tensors in any units and any order.
        n_modes: as in `FourierBasis`.
        bounds: (lo, hi) of each axis; None takes the least and greatest position.
        periodic: of each axis, or of all.
        gap: γ along the other axes.
        quadrature: "mean" (q = 1/N) or "voronoi" (products of trapezoid weights).
        norm: as in `FourierBasis`.
        dtype: of the sums.
        validate: whether to look for NaN and positions outside the bounds.

    Raises:
        TypeError: if an axis is no floating-point tensor.
        ValueError: if an axis is empty or not one-dimensional, or as in `FourierBasis`.
    """

    shared = True

    def __init__(
        self,
        axes: Sequence[torch.Tensor],
        n_modes: int | Sequence[int],
        bounds: Bounds | Domain | None = None,
        periodic: bool | Sequence[bool] = True,
        gap: float = 0.9,
        quadrature: str = "mean",
        norm: str = "forward",
        dtype: torch.dtype | None = None,
        validate: bool = True,
    ) -> None:
        for i, axis in enumerate(axes):
            require_floating(f"axes[{i}]", axis)
            if axis.ndim != 1 or not len(axis):
                raise ValueError(message(f"axes[{i}]", "of shape (N_i,), not empty", tuple(axis.shape)))
            if validate:
                require_finite_where(f"axes[{i}]", axis.unsqueeze(-1))
        require_choice("norm", norm, NORMS)
        require_choice("quadrature", quadrature, ("mean", "voronoi"))
        if bounds is None:
            bounds = [(float(axis.min()), float(axis.max())) for axis in axes]
        self.domain = bounds if isinstance(bounds, Domain) else Domain.of(bounds, periodic, gap)
        if self.domain.dim != len(axes):
            raise ValueError(message("axes", f"{self.domain.dim} (as bounds)", len(axes)))
        self.n_modes = require_modes(n_modes, len(axes))
        self.sizes = tuple(len(axis) for axis in axes)
        self.dtype = compute_dtype(axes[0].dtype if dtype is None else dtype)
        self.positions = [axis.detach().clone() for axis in axes]
        self.tables: list[torch.Tensor] = []
        self.weights: list[torch.Tensor] = []
        for i, axis in enumerate(axes):
            one, part = self.domain.axis(i), axis.double().unsqueeze(-1)
            if validate:
                one.require_inside(f"axes[{i}]", part)
            last = i == len(axes) - 1
            if len(axis) < 2 * self.n_modes[i] - last:
                warn_aliasing(f"{len(axis)} positions along axis {i}", self.n_modes[i], stacklevel=3)
            theta = one.angles(part)
            self.tables.append(tables(theta, (self.n_modes[i],), self.dtype) if last else _both_signs(theta, self, i))
            if quadrature == "voronoi":
                self.weights.append(cell_areas(part, one).to(axis.device, self.dtype))
        power = {"forward": (-1.0, 0.0), "backward": (0.0, -1.0), "ortho": (-0.5, -0.5)}[norm]
        n = float(math.prod(self.sizes))
        extra = n if quadrature == "voronoi" else 1.0  # trapezoid weights hold the 1/N already
        self._scale_in, self._scale_out = extra * n ** power[0], n ** power[1]

    def to(self, device: "torch.device | str | None" = None, dtype: torch.dtype | None = None) -> "LatticeBasis":
        """A copy on another device or in another floating-point dtype; itself where nothing changes."""
        moved = super().to(device, dtype)
        assert isinstance(moved, LatticeBasis)  # the same class as self
        if moved is not self:
            moved.tables = [table.to(moved.device if device is None else device, moved.dtype) for table in self.tables]
            moved.weights = [w.to(moved.tables[0].device, moved.dtype) for w in self.weights]
            moved.positions = [axis.to(moved.tables[0].device) for axis in self.positions]
        return moved

    @property
    def n_points(self) -> int:
        """N = Π N_i."""
        return math.prod(self.sizes)

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.tables[0].device

    @property
    def modes(self) -> torch.Tensor:
        """The kept wave vectors k, (M, d) integers."""
        return wave_vectors(self.n_modes, self.device)

    def points(self) -> torch.Tensor:
        """All positions, (N, d)."""
        return torch.stack(torch.meshgrid(*self.positions, indexing="ij"), -1).reshape(-1, len(self.sizes))

    def at(self, points: torch.Tensor, mask: torch.Tensor | None = None, validate: bool = True) -> FourierBasis:
        """The same modes at the points of a cloud, with the scale of this lattice."""
        start = self.points()[: count(self.n_modes)]
        cloud = FourierBasis(start, 1, self.domain, norm="backward", dtype=self.dtype, validate=False)
        cloud.n_modes, cloud._scale_out = self.n_modes, self._scale_out
        return cloud.at(points, mask, validate)

    def along(self, axis: int, m: int) -> "Fibres":
        """The waves 0..m-1 along one axis, for every line of the lattice by itself."""
        return Fibres(self, axis, m)

    def analyse(self, u: torch.Tensor) -> torch.Tensor:
        """Packed coefficients (B, C, 2M) of real values (B, C, N) or (B, C, N_1, …, N_d)."""
        grid = self._grid(u)
        with full_precision(self.device):
            for i, weight in enumerate(self.weights):
                grid = grid * weight.reshape(-1, *[1] * (len(self.sizes) - 1 - i))
            pairs = (grid @ self.tables[-1].t()).unflatten(-1, (2, -1))  # (..., N_i, 2, modes so far)
            for table in reversed(self.tables[:-1]):
                products = (table @ pairs.flatten(-2)).unflatten(-1, (2, -1)).unflatten(-3, (2, -1))
                cos, sin = products.unbind(-4)  # each (..., 2m, 2, modes)
                alpha = cos[..., 0, :] - sin[..., 1, :]
                beta = sin[..., 0, :] + cos[..., 1, :]
                pairs = torch.stack([alpha.flatten(-2), beta.flatten(-2)], -2)
            return pairs.flatten(-2) * self._scale_in

    def synthesise(self, packed: torch.Tensor) -> torch.Tensor:
        """Values (B, C, N) of packed coefficients (B, C, 2M)."""
        m = count(self.n_modes)
        if packed.ndim != 3 or packed.shape[-1] != 2 * m:
            raise ValueError(message("coefficients", f"of shape (B, C, {2 * m})", tuple(packed.shape)))
        packed = self._fitting(packed)
        with full_precision(self.device):
            h = hermitian(self.n_modes, packed.device, packed.dtype).repeat(2)
            pairs = (packed * h * self._scale_out).unflatten(-1, (2, -1))  # (..., 2, modes to go)
            for table, m in zip(self.tables[:-1], self.n_modes, strict=False):
                rows = pairs.unflatten(-1, (2 * m, -1)).transpose(-3, -2).flatten(-2)  # (..., 2m, 2 · modes)
                cos, sin = ((half.t() @ rows).unflatten(-1, (2, -1)) for half in table.chunk(2))
                alpha = cos[..., 0, :] + sin[..., 1, :]
                beta = cos[..., 1, :] - sin[..., 0, :]
                pairs = torch.stack([alpha, beta], -2)  # (..., N_i, 2, modes)
            return (pairs.flatten(-2) @ self.tables[-1]).reshape(*packed.shape[:2], self.n_points)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        """û_k of real values (B, C, N_1, …, N_d) or (B, C, N): (B, C, M) complex."""
        return unpack(self.analyse(u))

    def inverse(self, c: torch.Tensor) -> torch.Tensor:
        """Values (B, C, N_1, …, N_d) of coefficients (B, C, M)."""
        return self.synthesise(pack(c)).unflatten(-1, self.sizes)

    def _grid(self, u: torch.Tensor) -> torch.Tensor:
        require_floating("values", u)
        if tuple(u.shape[2:]) not in {self.sizes, (self.n_points,)}:
            raise ValueError(message("values", f"of shape (B, C, {', '.join(map(str, self.sizes))})", tuple(u.shape)))
        return self._fitting(u).reshape(*u.shape[:2], *self.sizes)


class Fibres(Basis):
    """One-dimensional transforms along one axis of a lattice; the lines join the batch, (B · lines, C, 2m).

    Args:
        lattice: whose axis.
        axis: which one.
        m: waves 0..m-1.
    """

    shared = True

    def __init__(self, lattice: LatticeBasis, axis: int, m: int) -> None:
        self.sizes, self.axis, self.dtype = lattice.sizes, axis, lattice.dtype
        part = lattice.positions[axis].double().unsqueeze(-1)
        self.line = FourierBasis(part, m, lattice.domain.axis(axis), dtype=lattice.dtype, validate=False)

    @property
    def n_points(self) -> int:
        """N of the whole lattice."""
        return math.prod(self.sizes)

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.line.device

    def analyse(self, u: torch.Tensor) -> torch.Tensor:
        """(B, C, N) to (B · lines, C, 2m)."""
        grid = self.check_values(u).reshape(*u.shape[:2], *self.sizes).movedim(2 + self.axis, -1)
        lines = grid.movedim(1, -2).reshape(-1, u.shape[1], self.sizes[self.axis])
        return self.line.analyse(lines)

    def synthesise(self, packed: torch.Tensor) -> torch.Tensor:
        """(B · lines, C, 2m) to (B, C, N)."""
        others = [n for i, n in enumerate(self.sizes) if i != self.axis]
        lines = self.line.synthesise(packed)
        batch = len(packed) // math.prod(others)
        grid = lines.reshape(batch, *others, packed.shape[1], self.sizes[self.axis]).movedim(-2, 1)
        return grid.movedim(-1, 2 + self.axis).reshape(batch, packed.shape[1], self.n_points)


def _both_signs(theta: torch.Tensor, basis: LatticeBasis, i: int) -> torch.Tensor:
    """Cos and sin of kθ for k = 0..m-1, -m..-1, (4m, N_i): true negative waves, on any positions."""
    k = wave_vectors((basis.n_modes[i], 1))[:, :1].to(theta.device, theta.dtype)
    phase = k @ theta.t()
    return torch.cat([phase.cos(), phase.sin()]).to(basis.dtype)
