"""A tracer in a wind on the sphere: advection and diffusion in spherical harmonics, for the humidity experiment."""

import math

import numpy as np
import torch
from offprints.checks import message, require_range
from offprints.seeding import rng

from direct_spectral.data.shallow_water_solver import RADIUS, ShallowWater
from direct_spectral.sphere import _slopes as harmonic_slopes
from direct_spectral.sphere import real_sph_harm


class Tracer:
    """∂q/∂t = -∇·(q V) + κ ∇²q, q in coefficients (n, L²), V a wind without divergence that does not change.

    Args:
        stream: coefficients of the stream function, (n, L²) in m²/s.
        lmax: L.
        diffusivity: κ in m²/s.

    Raises:
        ValueError: if the coefficients are not (n, L²).
    """

    def __init__(self, stream: np.ndarray, lmax: int, diffusivity: float = 1e5) -> None:
        if stream.ndim != 2 or stream.shape[1] != lmax**2:
            raise ValueError(message("stream", f"of shape (n, {lmax**2})", stream.shape))
        self.grid = ShallowWater(lmax)
        self.east, self.north = -stream @ self.grid.north, stream @ self.grid.east
        self.diffusion = require_range("diffusivity", diffusivity, low=0) * self.grid.laplace

    def tendency(self, q: np.ndarray) -> np.ndarray:
        """Advection alone."""
        field = q @ self.grid.y
        return -self.grid._divergence(field * self.east, field * self.north)

    def run(self, q: np.ndarray, hours: float, dt: float = 1800.0) -> np.ndarray:
        """The tracer some hours later: Runge-Kutta for advection, diffusion as an exact factor.

        Raises:
            ValueError: if it is not finite (time step too long).
        """
        steps = math.ceil(require_range("hours", hours, low=0) * 3600 / dt)
        h = hours * 3600 / max(steps, 1)
        factor = np.exp(self.diffusion * h)
        for _ in range(steps):
            a = self.tendency(q)
            b = self.tendency(q + h / 2 * a)
            c = self.tendency(q + h / 2 * b)
            d = self.tendency(q + h * c)
            q = (q + h / 6 * (a + 2 * b + 2 * c + d)) * factor
        if not np.isfinite(q).all():
            raise ValueError(message("dt", "short enough for a stable solution", dt, "Halve it."))
        return q


def humidity(
    n_samples: int,
    lat: torch.Tensor,
    lon: torch.Tensor,
    seed: int,
    lmax: int = 16,
    hours: float = 24.0,
) -> dict[str, torch.Tensor]:
    """A moist band that random winds stir: (q, u, v)(0) → q(t) on a lattice of latitudes and longitudes (humidity).

    Args:
        n_samples: how many.
        lat: latitudes in degrees, (n_lat,).
        lon: longitudes in degrees, (n_lon,).
        seed: of winds and initial data.
        lmax: degrees of the solver.
        hours: t.

    Returns:
        "u" (n, n_lat · n_lon, 3), "y" (n, n_lat · n_lon, 1), "axes_x" (latitudes), "axes_y" (longitudes); float32.
    """
    grid, gen = ShallowWater(lmax), rng(seed + 1)
    state = grid.start(n_samples, seed, wind=15.0)
    stream = state[:, 0] * grid.inverse
    degree = np.repeat(np.arange(lmax), 2 * np.arange(lmax) + 1)
    q = 0.2 * gen.standard_normal((n_samples, lmax**2)) * ((degree > 0) & (degree <= 5)) / np.maximum(degree, 1)
    band = np.exp(-((np.pi / 2 - grid.places.numpy()[:, 0]) ** 2) / 0.3)  # moist near the equator
    q = q + grid.analyse(band[None])
    end = Tracer(stream, lmax).run(q, hours)
    theta = torch.deg2rad(90 - lat.double()).repeat_interleave(len(lon))
    phi = torch.deg2rad(lon.double()).repeat(len(lat))
    y = real_sph_harm(lmax, theta, phi).numpy().T
    inner = theta.clamp(1e-6, math.pi - 1e-6)
    slope_theta, slope_phi = _slopes_of(lmax, inner, phi)
    east, north = stream @ slope_theta / RADIUS, stream @ slope_phi / RADIUS
    inputs = np.stack([q @ y, east / 10, north / 10], -1)
    return {
        "u": torch.from_numpy(inputs).float(), "y": torch.from_numpy(end @ y).float().unsqueeze(-1),
        "axes_x": lat.float(), "axes_y": lon.float(),
    }  # fmt: skip


def _slopes_of(lmax: int, theta: torch.Tensor, phi: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """∂Y/∂θ and ∂Y/∂φ / sin θ, (L², N) each: winds of a stream function are (∂ψ/∂θ, ∂ψ/∂φ / sin θ) / R."""
    slopes = harmonic_slopes(theta, phi, lmax).numpy()
    return slopes[..., 0].T, slopes[..., 1].T / theta.sin().numpy()
