"""The direct transform on a cloud: a few Fourier modes of values at any points, as real matrix products.

û_k = Σ_j q_j u_j e^{-ik·θ_j} and u(θ) = Σ_k h_k Re(c_k e^{ik·θ}), with k in the block that an FNO keeps. Inside, a
complex coefficient α - iβ travels as the real pair (α, β), "packed": analysis is (α, β) = A (q ⊙ u) and synthesis
u = A^T (h ⊙ (α, β)), with A = [cos(Kθ^T); sin(Kθ^T)].
"""

import copy
import math
from collections.abc import Callable, Sequence

import torch
from offprints.checks import message, require_choice, require_kind, require_range
from offprints.device import full_precision
from torch.utils.checkpoint import checkpoint

from direct_spectral import backends
from direct_spectral.contract import Basis, compute_dtype, pack, product, transposed_product, unpack, warn_aliasing
from direct_spectral.domain import Bounds, Domain, fit_bounds, require_finite_where, require_floating
from direct_spectral.quadrature import (
    QUADRATURE_HINT,
    cell_areas,
    mean_weights,
    pseudo_inverse,
    require_enough,
    user_weights,
)
from direct_spectral.quadrature import RULES as QUADRATURES
from direct_spectral.waves import count, hermitian, require_modes, tables, wave_vectors

NORMS = ("forward", "backward", "ortho")
MAX_BASIS_BYTES = 512 * 2**20


class FourierBasis(Basis):
    """The kept Fourier modes at the points of a cloud (section 3 of the paper).

    Args:
        points: (N, d) for one cloud that serves every sample, or (B, N, d); any units, d ≥ 1. Never written to.
            Differentiable.
        n_modes: m_i of each axis: waves -m_i..m_i-1, and 0..m_d-1 along the last.
        bounds: (lo, hi) of each axis; None takes them from these points.
        periodic: of each axis, or of all; along a periodic axis lo and hi are one point.
        gap: γ along the other axes, see `Domain`.
        quadrature: "mean" (q = 1/N), "voronoi" (cell areas), "lstsq" (pseudo-inverse, needs N ≥ 2M), or weights
            (N,) or (B, N) of sum 1.
        norm: "forward" scales the analysis only (coefficients do not depend on N), "backward" the synthesis by 1/N,
            "ortho" each by 1/√N, as in torch.fft.
        dtype: of the sums; by default that of the points, float32 if they are shorter.
        mask: (N,) or (B, N) bool, False at points that are padding: they count for nothing.
        backend: "direct"; "auto" takes the FFT where the points are an equispaced grid, and finufft (if installed)
            past the crossover (in float32 that differs by up to about 1e-5, in float64 by 1e-12); "fft", "finufft".
        max_basis_bytes: a larger table is not kept but built anew, piece by piece, also in the backward pass.
        validate: whether to look for NaN and points outside the bounds.

    Raises:
        TypeError: if points are no floating-point tensor.
        ValueError: if they are not finite, outside the bounds, without range, fewer than lstsq needs, or shapes differ.
    """

    _exact = ("theta",)
    grid: tuple[int, ...] = ()

    def __init__(
        self,
        points: torch.Tensor,
        n_modes: int | Sequence[int],
        bounds: Bounds | Domain | None = None,
        periodic: bool | Sequence[bool] = True,
        gap: float = 0.9,
        quadrature: str | torch.Tensor = "mean",
        norm: str = "forward",
        dtype: torch.dtype | None = None,
        mask: torch.Tensor | None = None,
        backend: str = "direct",
        max_basis_bytes: int = MAX_BASIS_BYTES,
        validate: bool = True,
    ) -> None:
        _require_cloud(points, None)
        require_choice("norm", norm, NORMS)
        require_choice("backend", backend, backends.NAMES)
        self.mask = _checked_mask(mask, points)
        if validate:
            require_finite_where("points", points, self.mask)
        if bounds is None:
            bounds = fit_bounds(points if self.mask is None else points[self.mask])
        self.domain = bounds if isinstance(bounds, Domain) else Domain.of(bounds, periodic, gap)
        _require_cloud(points, self.domain.dim)
        if validate:
            self.domain.require_inside("points", points, self.mask)
        self.n_modes = require_modes(n_modes, self.domain.dim)
        self.norm, self.max_bytes = norm, require_range("max_basis_bytes", max_basis_bytes, low=1)
        self.dtype = compute_dtype(points.dtype if dtype is None else dtype)
        self.remember(points)
        self._place(points)
        self._weigh(points, quadrature)
        self._scale_out = self._count_factor(inverse=True)
        self.backend = backends.choose(backend, self)
        self.table = None if self.backend != "direct" or self._too_large() else tables(*self._wanted(self.theta))

    def _place(self, points: torch.Tensor) -> None:
        """Angles of the points; a batch of one is a shared cloud."""
        if points.ndim == 3 and points.shape[0] == 1 and (self.mask is None or self.mask.ndim == 1):
            points = points[0]
        self.shared = points.ndim == 2 and (self.mask is None or self.mask.ndim == 1)
        if self.mask is not None:
            low = points.new_tensor([pair[0] for pair in self.domain.bounds])
            points = torch.where(self.mask.unsqueeze(-1), points, low)  # whatever padding holds, NaN too, ends here
        exact = points if points.dtype == torch.float64 else points.to(_wide(points.device))
        self.theta = self.domain.angles(exact)

    def _weigh(self, points: torch.Tensor, quadrature: str | torch.Tensor) -> None:
        """Weights q, with the factor of the norm, or the pseudo-inverse."""
        self.weights: torch.Tensor | float = 1.0
        self.solver: torch.Tensor | None = None
        m, n = count(self.n_modes), points.shape[-2]
        if isinstance(quadrature, torch.Tensor):
            weights = user_weights(quadrature.to(self.device, self.dtype), self.theta, self.mask)
        else:
            require_choice("quadrature", quadrature, QUADRATURES, hint=QUADRATURE_HINT)
            if quadrature == "lstsq":
                require_enough(points, 2 * m, self.mask)
                self.solver = pseudo_inverse(self.theta, self.n_modes, self.mask).to(self.dtype)
                self._count = self._counted()
                self.solver = self.solver * self._count_factor(inverse=False)
                return
            if quadrature == "voronoi":
                weights = cell_areas(points if points.ndim == self.theta.ndim else points[0], self.domain, self.mask)
                weights = weights.to(self.dtype)
            else:
                weights = mean_weights(self.theta, self.mask, self.dtype)
        if 0 < n < m:
            warn_aliasing(f"{n} points", m, stacklevel=4)
        self._count = self._counted()
        factor = self._count_factor(inverse=False)
        self.weights = weights * (factor.squeeze(-1) if isinstance(factor, torch.Tensor) else factor)

    def _counted(self) -> "torch.Tensor | float":
        """Number of points that count, of each sample where a mask tells."""
        if self.mask is None:
            return float(max(self.theta.shape[-2], 1))
        return self.mask.to(self.dtype).sum(-1).clamp_min(1).unsqueeze(-1).unsqueeze(-1)

    def _count_factor(self, inverse: bool) -> "torch.Tensor | float":
        power = {"forward": (0.0, 0.0), "backward": (1.0, -1.0), "ortho": (0.5, -0.5)}[self.norm][inverse]
        return self._count**power if power else 1.0

    def _too_large(self) -> bool:
        size = 2 * count(self.n_modes) * math.prod(self.theta.shape[:-1]) * self.dtype.itemsize
        return size > self.max_bytes

    def _wanted(self, theta: torch.Tensor) -> tuple[torch.Tensor, tuple[int, ...], torch.dtype]:
        return theta, self.n_modes, self.dtype

    @property
    def n_points(self) -> int:
        """N."""
        return self.theta.shape[-2]

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.theta.device

    @property
    def modes(self) -> torch.Tensor:
        """The kept wave vectors k, (M, d) integers."""
        return wave_vectors(self.n_modes, self.device)

    def at(self, points: torch.Tensor, mask: torch.Tensor | None = None, validate: bool = True) -> "FourierBasis":
        """The same modes at other points (N', d) or (B, N', d): where coefficients of this basis are evaluated.

        Raises:
            ValueError: as at construction.
        """
        _require_cloud(points, self.domain.dim)
        other = copy.copy(self)
        other.mask = _checked_mask(mask, points)
        if validate:
            require_finite_where("points", points, other.mask)
            self.domain.require_inside("points", points, other.mask)
        other.remember(points)
        other._place(points)
        other.weights, other.solver = mean_weights(other.theta, other.mask, self.dtype), None
        other.backend = "direct" if self.backend == "fft" else self.backend
        build = other.backend == "direct" and not other._too_large()
        other.table = tables(*other._wanted(other.theta)) if build else None
        return other

    def along(self, axis: int, m: int) -> "FourierBasis":
        """The waves 0..m-1 along one axis alone, at the same points with the same weights: a projection integral.

        Raises:
            ValueError: for least squares, which belongs to all axes together.
        """
        if self.solver is not None:
            hint = "Use 'mean' or 'voronoi' with a factorised operator."
            raise ValueError(message("quadrature", "a weight for each point", "'lstsq'", hint))
        if 0 < self.n_points < m:
            warn_aliasing(f"{self.n_points} points", m, stacklevel=3)
        one = copy.copy(self)
        one.n_modes, one.domain, one.backend = require_modes(m, 1), self.domain.axis(axis), "direct"
        one.theta = self.theta[..., axis : axis + 1]
        one.table = None if one._too_large() else tables(*one._wanted(one.theta))
        return one

    def analyse(self, u: torch.Tensor) -> torch.Tensor:
        """Packed coefficients (B, C, 2M) of real values u (B, C, N): (α, β) with û = α - iβ."""
        u = self.check_values(u)
        if self.mask is not None:
            u = torch.where(self.mask.unsqueeze(-2), u, 0)
        with full_precision(self.device):
            if self.solver is not None:
                return product(u, self.solver.transpose(-1, -2))
            if isinstance(self.weights, torch.Tensor):
                u = u * self.weights.unsqueeze(-2)
            if self.backend != "direct":
                packed = backends.analyse(self, u)
            elif self.table is not None:
                packed = product(u, self.table.transpose(-1, -2))
            else:
                packed = self._analyse_in_pieces(u)
            return packed if isinstance(self.weights, torch.Tensor) else packed * self.weights

    def synthesise(self, packed: torch.Tensor) -> torch.Tensor:
        """Values (B, C, N) of packed coefficients (B, C, 2M); 0 where masked."""
        m = count(self.n_modes)
        if packed.ndim != 3 or packed.shape[-1] != 2 * m:
            raise ValueError(message("coefficients", f"of shape (B, C, {2 * m})", tuple(packed.shape)))
        packed = self._fitting(packed)
        with full_precision(self.device):
            h = hermitian(self.n_modes, packed.device, packed.dtype).repeat(2)
            packed = packed * h * self._scale_out if self.norm != "forward" else packed * h
            if self.backend != "direct":
                values = backends.synthesise(self, packed)
            elif self.table is not None:
                values = product(packed, self.table)
            else:
                values = torch.cat([self._piece(product, packed, theta) for theta in self._pieces()], -1)
            return values if self.mask is None else torch.where(self.mask.unsqueeze(-2), values, 0)

    def _pieces(self) -> Sequence[torch.Tensor]:
        """The angles in pieces whose tables fit."""
        per_point = 2 * count(self.n_modes) * math.prod(self.theta.shape[:-2]) * self.dtype.itemsize
        return self.theta.split(max(1, int(self.max_bytes / per_point)), dim=-2)

    def _piece(self, multiply: Callable, x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
        def run(x: torch.Tensor, theta: torch.Tensor) -> torch.Tensor:
            return multiply(x, tables(*self._wanted(theta)))

        if torch.is_grad_enabled() and (x.requires_grad or theta.requires_grad):
            return checkpoint(run, x, theta, use_reentrant=False, preserve_rng_state=False)
        return run(x, theta)

    def _analyse_in_pieces(self, u: torch.Tensor) -> torch.Tensor:
        pieces = self._pieces()
        total = None
        for part, theta in zip(u.split(pieces[0].shape[-2], dim=-1), pieces, strict=True):
            more = self._piece(transposed_product, part, theta)
            total = more if total is None else total + more
        assert total is not None  # split gives at least one piece
        return total

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        """û_k = Σ_j q_j u_j e^{-ik·θ_j}: (B, C, N) real to (B, C, M) complex; complex u by parts, (2, B, C, M)."""
        if u.is_complex():
            return torch.stack([self.forward(u.real), self.forward(u.imag)])
        return unpack(self.analyse(u))

    def inverse(self, c: torch.Tensor) -> torch.Tensor:
        """u(θ) = Σ_k h_k Re(c_k e^{ik·θ}): (B, C, M) complex to (B, C, N) real; adjoint to `forward` up to q and h."""
        require_kind("coefficients", c, torch.Tensor)
        return self.synthesise(pack(c))

    def derivative(self, c: torch.Tensor, axis: int, order: int = 1) -> torch.Tensor:
        """Coefficients of ∂^order u / ∂x_axis^order, in the units of the positions: (i k f)^order c, f = dθ/dx.

        Raises:
            ValueError: if there is no such axis.
        """
        require_range("axis", axis, low=0, high=self.domain.dim - 1, integer=True)
        require_range("order", order, low=0, integer=True)
        k = self.modes[:, axis].to(self.dtype) * self.domain.factors()[axis]
        return c * (1j * k) ** order


def _wide(device: torch.device) -> torch.dtype:
    from offprints.device import float_dtype

    return float_dtype(device, torch.float64)


def _require_cloud(points: torch.Tensor, dim: int | None) -> None:
    require_floating("points", points)
    if points.ndim not in (2, 3) or not points.shape[-1]:
        raise ValueError(message("points", "of shape (N, d) or (B, N, d)", tuple(points.shape)))
    if dim is not None and points.shape[-1] != dim:
        raise ValueError(message("points", f"of {dim} coordinates (as bounds)", points.shape[-1]))


def _checked_mask(mask: torch.Tensor | None, points: torch.Tensor) -> torch.Tensor | None:
    if mask is None:
        return None
    require_kind("mask", mask, torch.Tensor)
    if mask.dtype != torch.bool:
        raise TypeError(message("mask", "of dtype bool, True at points that count", mask.dtype))
    if mask.ndim not in (1, 2) or mask.shape[-1] != points.shape[-2]:
        raise ValueError(message("mask", f"of shape {tuple(points.shape[:-1])}", tuple(mask.shape)))
    if mask.ndim == 2 and points.ndim == 3 and points.shape[0] not in (1, mask.shape[0]):
        raise ValueError(message("mask", f"of shape {tuple(points.shape[:-1])}", tuple(mask.shape)))
    return mask
