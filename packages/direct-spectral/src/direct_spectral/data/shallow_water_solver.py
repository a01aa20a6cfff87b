"""Shallow water on the rotating sphere: a small pseudo-spectral solver on a Gauss-Legendre grid.

Vorticity ζ, divergence δ and geopotential Φ in spherical harmonics of degree below L; products on the grid.
∂ζ/∂t = -∇·((ζ + f) V), ∂δ/∂t = k·∇×((ζ + f) V) - ∇²(Φ + |V|²/2), ∂Φ/∂t = -∇·(Φ V), V = k×∇ψ + ∇χ.
"""

import math

import numpy as np
import torch
from offprints.checks import message, require_range
from offprints.seeding import rng
from scipy.special import sph_harm_y_all

from direct_spectral.sphere import _real, gauss_legendre_grid, real_sph_harm

RADIUS, ROTATION, GRAVITY = 6.371e6, 7.292e-5, 9.80616


class ShallowWater:
    """The equations in coefficients, (n, 3, L²) for (ζ, δ, Φ), in SI units.

    Args:
        lmax: L, degrees kept.
        depth: mean depth H in metres.
        hyperviscosity: e-folding time in seconds of the highest degree under ∇⁴, or None for none.
    """

    def __init__(self, lmax: int, depth: float = 1000.0, hyperviscosity: float | None = 3 * 3600.0) -> None:
        self.lmax = int(require_range("lmax", lmax, low=3, integer=True))
        self.depth = require_range("depth", depth, low=0, low_open=True)
        n_lat = (3 * lmax + 1) // 2 + 1  # products of two fields are integrated exactly
        places, weights = gauss_legendre_grid(n_lat, 2 * n_lat)
        theta, phi = places.numpy().T
        self.places, self.weights = places, weights.numpy() * 4 * math.pi
        values, slopes = sph_harm_y_all(lmax - 1, lmax - 1, theta, phi, diff_n=1)
        self.y = _real(values, lmax).T  # (L², N)
        self.north = -_real(slopes[..., 0], lmax).T / RADIUS
        self.east = _real(slopes[..., 1], lmax).T / np.sin(theta) / RADIUS
        degree = np.repeat(np.arange(lmax), 2 * np.arange(lmax) + 1)
        self.laplace = -degree * (degree + 1) / RADIUS**2
        self.inverse = np.divide(1.0, self.laplace, out=np.zeros_like(self.laplace), where=degree > 0)
        self.coriolis = 2 * ROTATION * np.cos(theta)
        top = self.laplace.min() ** 2
        self.damping = np.zeros_like(self.laplace) if hyperviscosity is None else self.laplace**2 / top / hyperviscosity

    def winds(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Eastward and northward wind on the grid, (n, N) each."""
        stream, potential = state[:, 0] * self.inverse, state[:, 1] * self.inverse
        return potential @ self.east - stream @ self.north, potential @ self.north + stream @ self.east

    def analyse(self, field: np.ndarray) -> np.ndarray:
        """Coefficients (n, L²) of grid values (n, N)."""
        return (field * self.weights) @ self.y.T

    def _divergence(self, east: np.ndarray, north: np.ndarray) -> np.ndarray:
        """Of a vector field: by parts, -∫ F·∇Y, exact for band-limited products."""
        return -((east * self.weights) @ self.east.T + (north * self.weights) @ self.north.T)

    def tendency(self, state: np.ndarray) -> np.ndarray:
        """Time derivative of the coefficients, without damping."""
        u, v = self.winds(state)
        absolute = state[:, 0] @ self.y + self.coriolis
        thickness = state[:, 2] @ self.y
        vorticity = -self._divergence(absolute * u, absolute * v)
        curl = self._divergence(absolute * v, -absolute * u)
        pressure = state[:, 2] + self.analyse((u**2 + v**2) / 2)
        return np.stack([vorticity, curl - self.laplace * pressure, -self._divergence(thickness * u, thickness * v)], 1)

    def run(self, state: np.ndarray, hours: float, dt: float = 600.0) -> np.ndarray:
        """The state after some hours: classical Runge-Kutta, damping as an exact factor.

        Raises:
            ValueError: if the solution is not finite (time step too long).
        """
        require_range("hours", hours, low=0)
        steps = math.ceil(hours * 3600 / dt)
        h = hours * 3600 / max(steps, 1)
        factor = np.exp(-self.damping * h)
        for _ in range(steps):
            a = self.tendency(state)
            b = self.tendency(state + h / 2 * a)
            c = self.tendency(state + h / 2 * b)
            d = self.tendency(state + h * c)
            state = state + h / 6 * (a + 2 * b + 2 * c + d)
            state[:, :2] *= factor
        if not np.isfinite(state).all():
            raise ValueError(message("dt", "short enough for a stable solution", dt, "Halve it."))
        return state

    def mass(self, state: np.ndarray) -> np.ndarray:
        """∫ Φ, (n,): conserved exactly."""
        return state[:, 2, 0] * math.sqrt(4 * math.pi)

    def energy(self, state: np.ndarray) -> np.ndarray:
        """∫ (Φ |V|² + Φ²) / 2, (n,): conserved up to truncation and time steps, without damping."""
        u, v = self.winds(state)
        thickness = state[:, 2] @ self.y
        return ((thickness * (u**2 + v**2) + thickness**2) / 2) @ self.weights

    def start(self, n_samples: int, seed: int, wind: float = 10.0, waves: int = 6) -> np.ndarray:
        """Random smooth winds of about `wind` m/s in degrees 1..waves, with the height that balances them linearly."""
        gen, size = rng(seed), self.lmax**2
        state = np.zeros((n_samples, 3, size))
        degree = np.repeat(np.arange(self.lmax), 2 * np.arange(self.lmax) + 1)
        stream = (
            gen.standard_normal((n_samples, size)) * ((degree >= 1) & (degree <= waves)) / np.maximum(degree, 1) ** 2
        )
        state[:, 0] = stream * self.laplace
        u, v = self.winds(state)
        state[:, 0] *= wind / np.sqrt((u**2 + v**2).mean(1, keepdims=True))
        u, v = self.winds(state)
        balance = self._divergence(self.coriolis * v, -self.coriolis * u)  # ∇²Φ = ∇·(f ∇ψ)
        state[:, 2] = balance * self.inverse
        state[:, 2, 0] = GRAVITY * self.depth * math.sqrt(4 * math.pi)
        return state


def shallow_water(
    n_samples: int,
    n_points: int,
    seed: int,
    lmax: int = 16,
    hours: float = 6.0,
    dt: float = 900.0,
) -> dict[str, torch.Tensor]:
    """Pairs of fields (Φ, ζ, δ)(0) → (Φ, ζ, δ)(t) at scattered points (spherical shallow water of the paper).

    Every sample has points of its own, uniform on the sphere. The Coriolis parameter is a fourth input, so that the
    map commutes with rotations of points and fields together. Each channel is divided by a fixed scale.

    Args:
        n_samples: how many.
        n_points: of each sample.
        seed: of winds and points.
        lmax: degrees of the solver.
        hours: t.
        dt: time step in seconds.

    Returns:
        "u" (n, N, 4), "y" (n, N, 3) and "points" (n, N, 3), unit vectors; float32.
    """
    require_range("n_points", n_points, low=1, integer=True)
    solver = ShallowWater(lmax)
    start = solver.start(n_samples, seed)
    end = solver.run(start, hours, dt)
    places = rng(seed + 2**32).standard_normal((n_samples, n_points, 3))
    points = torch.from_numpy(places / np.linalg.norm(places, axis=-1, keepdims=True))
    theta, phi = torch.acos(points[..., 2].clamp(-1, 1)), torch.atan2(points[..., 1], points[..., 0])
    harmonics = real_sph_harm(lmax, theta, phi)  # (n, N, L²)
    mean = GRAVITY * solver.depth
    scale = torch.tensor([1e-5, 1e-6, 500.0], dtype=torch.float64)
    fields = []
    for state in (start, end):
        field = torch.einsum("npk,nck->npc", harmonics, torch.from_numpy(state))
        field[..., 2] -= mean
        fields.append(field / scale)
    f = 2 * ROTATION * points[..., 2:] / 1e-4
    return {
        "u": torch.cat([fields[0], f], -1).float(), "y": fields[1].float(), "points": points.float(),
    }  # fmt: skip
