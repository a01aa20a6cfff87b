"""Points on the sphere (section 3 of the paper): real spherical harmonics, evaluated where the data is.

Y_lm, orthonormal on the unit sphere, at index l² + l + m: for m > 0 √2 (-1)^m Re Y_l^m, for m < 0
√2 (-1)^{|m|} Im Y_l^{|m|}, with the complex harmonics of scipy. θ is the colatitude (0 at the north pole), φ the
longitude.
"""

import copy
import math
from typing import Literal

import numpy as np
import torch
from offprints.checks import message, require_choice, require_range
from offprints.device import float_dtype, full_precision

from direct_spectral.contract import Basis, compute_dtype, product, warn_aliasing
from direct_spectral.domain import require_finite_where, require_floating, values_known
from direct_spectral.memo import Memo
from direct_spectral.quadrature import QUADRATURE_HINT, mean_weights, require_enough, sphere_areas, user_weights

_memo = Memo(256 * 2**20)
Coordinates = Literal["thetaphi", "lonlat", "xyz"]


def real_sph_harm(l_max: int, theta: torch.Tensor, phi: torch.Tensor) -> torch.Tensor:
    """Y_lm(θ, φ) for all l < l_max, (..., l_max²); differentiable once in θ and φ.

    Args:
        l_max: L, the number of degrees.
        theta: colatitude in radians, (...).
        phi: longitude in radians, (...).

    Raises:
        TypeError: if an angle is no floating-point tensor.
        ValueError: if L < 1 or the shapes differ.
    """
    require_range("l_max", l_max, low=1, integer=True)
    require_floating("theta", theta)
    require_floating("phi", phi)
    if theta.shape != phi.shape:
        raise ValueError(message("phi", f"of shape {tuple(theta.shape)} (as theta)", tuple(phi.shape)))
    wide = float_dtype(theta.device)
    return _harmonics(theta.to(wide), phi.to(wide), int(l_max)).to(compute_dtype(theta.dtype))


def _real(values: np.ndarray, l_max: int) -> np.ndarray:
    """From scipy's (L, 2L-1, N) complex harmonics, m = 0..L-1, -L+1..-1, to (N, L²) real ones."""
    out = np.empty((values.shape[-1], l_max**2))
    for degree in range(l_max):
        for order in range(degree + 1):
            z = values[degree, order] * ((-1) ** order * math.sqrt(2) if order else 1.0)
            out[:, degree**2 + degree + order] = z.real
            if order:
                out[:, degree**2 + degree - order] = z.imag
    return out


@torch.library.custom_op("direct_spectral::harmonics", mutates_args=())
def _harmonics(theta: torch.Tensor, phi: torch.Tensor, l_max: int) -> torch.Tensor:
    clouds = zip(*(x.detach().double().cpu().reshape(-1, _last(x)).numpy() for x in (theta, phi)), strict=True)
    values = [_of_cloud(a, b, l_max) for a, b in clouds]
    table = np.concatenate(values) if values else np.empty((0, l_max**2))
    return torch.from_numpy(table).to(theta.dtype).reshape(*theta.shape, l_max**2).to(theta.device)


def _last(x: torch.Tensor) -> int:
    return x.shape[-1] if x.ndim and x.shape[-1] else 1


def _of_cloud(theta: np.ndarray, phi: np.ndarray, l_max: int) -> np.ndarray:
    """Harmonics (N, L²) of one cloud, remembered: the clouds of a training set come again every epoch."""
    key = _memo.key(theta, phi, l_max)
    if (known := _memo.get(key)) is not None:
        return known[0]
    from scipy.special import sph_harm_y_all  # not at import: it takes a while

    values = _real(sph_harm_y_all(l_max - 1, l_max - 1, theta, phi), l_max)
    _memo.put(key, values)
    return values


@_harmonics.register_fake
def _(theta: torch.Tensor, phi: torch.Tensor, l_max: int) -> torch.Tensor:
    return theta.new_empty(*theta.shape, l_max**2)


@torch.library.custom_op("direct_spectral::harmonics_slopes", mutates_args=())
def _slopes(theta: torch.Tensor, phi: torch.Tensor, l_max: int) -> torch.Tensor:
    """∂Y/∂θ and ∂Y/∂φ, (..., L², 2)."""
    from scipy.special import sph_harm_y_all

    a, b = theta.detach().double().cpu().numpy().ravel(), phi.detach().double().cpu().numpy().ravel()
    slopes = np.empty((a.size, l_max**2, 2))
    if a.size:
        _, jacobian = sph_harm_y_all(l_max - 1, l_max - 1, a, b, diff_n=1)
        for side in range(2):
            slopes[..., side] = _real(jacobian[..., side], l_max)
    return torch.from_numpy(slopes).to(theta.dtype).reshape(*theta.shape, l_max**2, 2).to(theta.device)


@_slopes.register_fake
def _(theta: torch.Tensor, phi: torch.Tensor, l_max: int) -> torch.Tensor:
    return theta.new_empty(*theta.shape, l_max**2, 2)


def _keep(ctx, inputs, output) -> None:
    theta, phi, ctx.l_max = inputs
    ctx.save_for_backward(theta, phi)


def _backward(ctx, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
    both = (grad.unsqueeze(-1) * _slopes(*ctx.saved_tensors, ctx.l_max)).sum(-2)
    return both[..., 0].contiguous(), both[..., 1].contiguous(), None


_harmonics.register_autograd(_backward, setup_context=_keep)


def to_thetaphi(points: torch.Tensor, coordinates: Coordinates, units: str = "radians") -> torch.Tensor:
    """(θ, φ) in radians, (..., 2), of points (..., 2) or (..., 3).

    Args:
        points: "thetaphi" (colatitude, longitude), "lonlat" (longitude, latitude), or "xyz" (any length but zero).
        coordinates: which of them.
        units: "radians" or "degrees".

    Raises:
        ValueError: if the last axis has another size, an angle is beyond 2π in "radians", a latitude beyond ±90°,
            or a vector is zero.
    """
    require_choice("coordinates", coordinates, ("thetaphi", "lonlat", "xyz"))
    require_choice("units", units, ("radians", "degrees"))
    size = 3 if coordinates == "xyz" else 2
    if points.shape[-1] != size:
        raise ValueError(message("points", f"of {size} coordinates ({coordinates})", points.shape[-1]))
    if coordinates == "xyz":
        radius = torch.linalg.vector_norm(points, dim=-1)
        if values_known(points) and (radius == 0).any():
            raise ValueError(message("points", "vectors that are not zero", f"{int((radius == 0).sum())} zeros"))
        x, y, z = points.unbind(-1)
        return torch.stack([torch.atan2(torch.hypot(x, y), z), torch.atan2(y, x)], -1)
    if values_known(points) and points.numel():
        largest = float(points.detach().abs().max())
        if units == "radians" and largest > 2 * math.pi + 1e-6:
            hint = "They look like degrees: pass units='degrees'."
            raise ValueError(message("points", "angles of at most 2π", f"{largest:.6g}", hint))
    points = torch.deg2rad(points) if units == "degrees" else points
    polar = points[..., 0] if coordinates == "thetaphi" else math.pi / 2 - points[..., 1]
    if values_known(points) and points.numel():
        outside = (polar < -1e-6) | (polar > math.pi + 1e-6)
        if outside.any():
            name = "colatitudes between 0 and π" if coordinates == "thetaphi" else "latitudes between -π/2 and π/2"
            hint = f"Is the order right? {coordinates} is expected."
            raise ValueError(message("points", name, f"{int(outside.sum())} outside", hint))
    return torch.stack([polar, points[..., 1 if coordinates == "thetaphi" else 0]], -1)


def to_xyz(thetaphi: torch.Tensor) -> torch.Tensor:
    """Unit vectors (..., 3) of (θ, φ)."""
    theta, phi = thetaphi.unbind(-1)
    return torch.stack([theta.sin() * phi.cos(), theta.sin() * phi.sin(), theta.cos()], -1)


class SphericalBasis(Basis):
    """Real spherical harmonics at points of the sphere, (L², N); coefficients are real, (B, C, L²).

    Args:
        points: (N, 2 or 3) or (B, N, 2 or 3), see `coordinates`.
        lmax: L, the number of degrees; M = L².
        quadrature: "mean" (4π/N, for points that are uniform on the sphere), "voronoi" (areas of spherical Voronoi
            cells), "lstsq", or weights (N,) or (B, N) of sum 1, such as those of `gauss_legendre_grid`.
        coordinates: "thetaphi", "lonlat" or "xyz".
        units: of the angles.
        dtype: of the sums.
        mask: (N,) or (B, N) bool, False at padding.
        validate: whether to look for NaN.

    Raises:
        TypeError: if points are no floating-point tensor.
        ValueError: as `to_thetaphi`, or if entries are not finite or shapes differ.
    """

    def __init__(
        self,
        points: torch.Tensor,
        lmax: int,
        quadrature: str | torch.Tensor = "mean",
        coordinates: Coordinates = "thetaphi",
        units: str = "radians",
        dtype: torch.dtype | None = None,
        mask: torch.Tensor | None = None,
        validate: bool = True,
    ) -> None:
        self.lmax = int(require_range("lmax", lmax, low=1, integer=True))
        self.coordinates, self.units = coordinates, units
        require_floating("points", points)
        self.dtype = compute_dtype(points.dtype if dtype is None else dtype)
        self._weigh(self._place(points, mask, validate), quadrature)

    def _place(self, points: torch.Tensor, mask: torch.Tensor | None, validate: bool) -> torch.Tensor:
        """Angles of checked points, and the table there; the harmonics (..., N, L²) before rounding."""
        require_floating("points", points)
        if points.ndim not in (2, 3):
            raise ValueError(message("points", "of shape (N, c) or (B, N, c)", tuple(points.shape)))
        if mask is not None and (mask.dtype != torch.bool or mask.shape[-1] != points.shape[-2]):
            raise ValueError(message("mask", f"bool, of shape {tuple(points.shape[:-1])}", tuple(mask.shape)))
        if validate:
            require_finite_where("points", points, mask)
        self.mask = mask
        self.remember(points)
        if points.ndim == 3 and points.shape[0] == 1 and (mask is None or mask.ndim == 1):
            points = points[0]
        self.shared = points.ndim == 2 and (mask is None or mask.ndim == 1)
        if mask is not None:
            points = torch.where(mask.unsqueeze(-1), points, points.new_tensor([1.0, 0.0, 0.0])[: points.shape[-1]])
        self.thetaphi = to_thetaphi(points.to(float_dtype(points.device)), self.coordinates, self.units)
        exact = real_sph_harm(self.lmax, *self.thetaphi.unbind(-1))
        self.table = exact.to(self.dtype).transpose(-1, -2)
        return exact

    def _weigh(self, exact: torch.Tensor, quadrature: str | torch.Tensor) -> None:
        self.weights: torch.Tensor | float = 1.0
        self.solver: torch.Tensor | None = None
        if isinstance(quadrature, torch.Tensor):
            weights = user_weights(quadrature.to(self.device, self.dtype), self.thetaphi, self.mask)
            self.weights = 4 * math.pi * weights
            return
        require_choice("quadrature", quadrature, ("mean", "voronoi", "lstsq"), hint=QUADRATURE_HINT)
        if quadrature == "lstsq":
            require_enough(self.thetaphi, self.lmax**2, self.mask)
            kept = exact if self.mask is None else exact * self.mask.unsqueeze(-1)
            eye = torch.eye(kept.shape[-2], dtype=kept.dtype, device=kept.device)
            self.solver = torch.linalg.lstsq(kept, eye.expand(*kept.shape[:-2], -1, -1)).solution.to(self.dtype)
            return
        if 0 < self.n_points < self.lmax**2:
            warn_aliasing(f"{self.n_points} points", self.lmax**2, stacklevel=4)
        if quadrature == "voronoi":
            self.weights = sphere_areas(to_xyz(self.thetaphi), self.mask).to(self.dtype)
        else:
            self.weights = 4 * math.pi * mean_weights(self.thetaphi, self.mask, self.dtype)

    _exact = ("thetaphi",)

    @property
    def n_points(self) -> int:
        """N."""
        return self.thetaphi.shape[-2]

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.thetaphi.device

    @property
    def degrees(self) -> torch.Tensor:
        """L of each coefficient, (L²,)."""
        return torch.cat([torch.full((2 * degree + 1,), degree) for degree in range(self.lmax)]).to(self.device)

    def at(self, points: torch.Tensor, mask: torch.Tensor | None = None, validate: bool = True) -> "SphericalBasis":
        """The same harmonics at other points, in the same coordinates."""
        other = copy.copy(self)
        other._place(points, mask, validate)
        other.weights, other.solver = 4 * math.pi * mean_weights(other.thetaphi, mask, self.dtype), None
        return other

    def analyse(self, u: torch.Tensor) -> torch.Tensor:
        """c_lm = Σ_j w_j u_j Y_lm(x_j), w of sum 4π: (B, C, N) to (B, C, L²)."""
        u = self.check_values(u)
        if self.mask is not None:
            u = torch.where(self.mask.unsqueeze(-2), u, 0)
        with full_precision(self.device):
            if self.solver is not None:
                return product(u, self.solver.transpose(-1, -2))
            if isinstance(self.weights, torch.Tensor):
                return product(u * self.weights.unsqueeze(-2), self.table.transpose(-1, -2))
            return product(u, self.table.transpose(-1, -2)) * self.weights

    def synthesise(self, packed: torch.Tensor) -> torch.Tensor:
        """u(x) = Σ_lm c_lm Y_lm(x): (B, C, L²) to (B, C, N); 0 where masked."""
        if packed.ndim != 3 or packed.shape[-1] != self.lmax**2:
            raise ValueError(message("coefficients", f"of shape (B, C, {self.lmax**2})", tuple(packed.shape)))
        with full_precision(self.device):
            values = product(self._fitting(packed), self.table)
            return values if self.mask is None else torch.where(self.mask.unsqueeze(-2), values, 0)

    def forward(self, u: torch.Tensor) -> torch.Tensor:
        """As `analyse`."""
        return self.analyse(u)

    def inverse(self, c: torch.Tensor) -> torch.Tensor:
        """As `synthesise`."""
        return self.synthesise(c)


def gauss_legendre_grid(n_lat: int, n_lon: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(θ, φ) of a Gauss-Legendre grid, (n_lat · n_lon, 2), longitude fastest, and weights of sum 1.

    Integrates products of two harmonics exactly for L ≤ n_lat and 2L - 1 ≤ n_lon.
    """
    require_range("n_lat", n_lat, low=1, integer=True)
    require_range("n_lon", n_lon, low=1, integer=True)
    nodes, weights = np.polynomial.legendre.leggauss(n_lat)
    theta, phi = torch.from_numpy(np.arccos(nodes)), 2 * math.pi * torch.arange(n_lon, dtype=torch.float64) / n_lon
    share = torch.from_numpy(weights) / 2 / n_lon
    return torch.cartesian_prod(theta, phi), share.repeat_interleave(n_lon)


def latlon_weights(lat: torch.Tensor, n_lon: int) -> torch.Tensor:
    """Areas of the cells of a latitude-longitude grid, (n_lat · n_lon,) of sum 1, longitude fastest.

    Args:
        lat: latitudes in degrees, monotone; a cell reaches half way to the next one, and to the pole at the ends.
        n_lon: equispaced longitudes.

    Raises:
        ValueError: if the latitudes are not monotone or beyond ±90.
    """
    require_range("n_lon", n_lon, low=1, integer=True)
    steps = lat.diff()
    if lat.abs().max() > 90 or not ((steps > 0).all() or (steps < 0).all()):
        raise ValueError(message("lat", "monotone degrees between -90 and 90", lat.tolist()))
    ordered = lat.double().sort().values
    middles = (ordered[1:] + ordered[:-1]) / 2
    edges = torch.cat([middles.new_tensor([-90.0]), middles, middles.new_tensor([90.0])])
    bands = torch.deg2rad(edges).sin().diff() / 2
    bands = bands if lat[-1] >= lat[0] else bands.flip(0)
    return bands.repeat_interleave(n_lon) / n_lon
