"""Winds on a latitude-longitude grid, sampled at scattered points, with their stream function as target."""

from pathlib import Path

import numpy as np
import torch
from offprints.checks import message, require_range
from offprints.seeding import rng
from scipy.interpolate import RegularGridInterpolator
from scipy.special import sph_harm_y_all

from direct_spectral import data
from direct_spectral.data.shallow_water_solver import RADIUS
from direct_spectral.sphere import _real, latlon_weights, real_sph_harm


class Winds:
    """Eastward and northward wind, (T, n_lat, n_lon) in m/s, and the stream function of their vorticity.

    ζ_lm = ∫ Y_lm k·∇×V by parts over the sphere, ψ_lm = -R² ζ_lm / (l (l + 1)).

    Args:
        u: eastward.
        v: northward.
        lat: degrees, (n_lat,), monotone.
        lon: degrees, (n_lon,), equispaced, once around.
        lmax: degrees of the stream function.

    Raises:
        ValueError: if shapes differ or values are not finite.
    """

    def __init__(self, u: np.ndarray, v: np.ndarray, lat: np.ndarray, lon: np.ndarray, lmax: int = 21) -> None:
        shape = (len(u), len(lat), len(lon))
        if u.shape != shape or v.shape != shape:
            raise ValueError(message("winds", f"of shape {shape}", f"{u.shape} and {v.shape}"))
        if not (np.isfinite(u).all() and np.isfinite(v).all()):
            raise ValueError(message("winds", "finite", "NaN or inf"))
        order = np.argsort(lat)
        self.u, self.v, self.lat = u[:, order].astype(float), v[:, order].astype(float), np.sort(lat).astype(float)
        self.lon, self.lmax = lon.astype(float), int(require_range("lmax", lmax, low=2, integer=True))
        theta = np.deg2rad(90.0 - np.repeat(self.lat, len(lon)))
        phi = np.deg2rad(np.tile(self.lon, len(lat)))
        inner = np.clip(theta, 1e-6, np.pi - 1e-6)  # 1 / sin θ at the poles, where the weight vanishes
        _, slopes = sph_harm_y_all(lmax - 1, lmax - 1, inner, phi, diff_n=1)
        north, east = -_real(slopes[..., 0], lmax), _real(slopes[..., 1], lmax) / np.sin(inner)[:, None]
        area = 4 * np.pi * latlon_weights(torch.from_numpy(self.lat), len(lon)).numpy()
        flat_u, flat_v = self.u.reshape(len(u), -1) * area, self.v.reshape(len(u), -1) * area
        vorticity = (flat_u @ north - flat_v @ east) / RADIUS  # -∫ (v ∂Y/∂x - u ∂Y/∂y)
        degree = np.repeat(np.arange(lmax), 2 * np.arange(lmax) + 1)
        self.vorticity = vorticity
        self.stream = np.where(degree > 0, -(RADIUS**2) * vorticity / np.maximum(degree * (degree + 1), 1), 0.0)

    @staticmethod
    def read(
        u_path: str | Path, v_path: str | Path, u_name: str = "uwnd", v_name: str = "vwnd", lmax: int = 21
    ) -> "Winds":
        """From two netCDF files with axes time, latitude, longitude.

        Raises:
            FileNotFoundError: if one is not there.
            ValueError: if a variable or an axis is missing.
        """
        u, axes = data.load_netcdf(u_path, u_name)
        v, _ = data.load_netcdf(v_path, v_name)
        return Winds(u, v, axes["latitude"], axes["longitude"], lmax)

    def sample(self, months: list[int], n_samples: int, n_points: int, seed: int) -> dict[str, torch.Tensor]:
        """Random months, turned about the axis by random angles, at random points uniform on the sphere.

        Returns:
            "u" (n, N, 3) wind in Cartesian components / 10 m/s, "y" (n, N, 1) stream function / 1e7 m²/s,
            "points" (n, N, 3) unit vectors; float32.
        """
        gen = rng(seed)
        u, y, points = [], [], []
        for _ in range(n_samples):
            month, turn = int(gen.choice(months)), gen.uniform(0, 360)
            xyz = gen.standard_normal((n_points, 3))
            xyz /= np.linalg.norm(xyz, axis=1, keepdims=True)
            lat, lon = np.rad2deg(np.arcsin(xyz[:, 2])), np.rad2deg(np.arctan2(xyz[:, 1], xyz[:, 0]))
            source = (lon - turn) % 360
            east, north = (self._at(field[month], lat, source) for field in (self.u, self.v))
            a, b = np.deg2rad(lon), np.deg2rad(lat)
            to_east = np.stack([-np.sin(a), np.cos(a), np.zeros_like(a)], 1)
            to_north = np.stack([-np.sin(b) * np.cos(a), -np.sin(b) * np.sin(a), np.cos(b)], 1)
            u.append(east[:, None] * to_east + north[:, None] * to_north)
            places = torch.from_numpy(np.deg2rad(np.stack([90 - lat, source], 1)))
            y.append(real_sph_harm(self.lmax, *places.unbind(-1)).numpy() @ self.stream[month])
            points.append(xyz)
        return {
            "u": torch.from_numpy(np.stack(u)).float() / 10,
            "y": torch.from_numpy(np.stack(y)).float().unsqueeze(-1) / 1e7,
            "points": torch.from_numpy(np.stack(points)).float(),
        }

    def _at(self, field: np.ndarray, lat: np.ndarray, lon: np.ndarray) -> np.ndarray:
        """Bilinear, around the seam."""
        wrapped = np.concatenate([field, field[:, :1]], 1)
        around = np.append(self.lon, self.lon[0] + 360)
        inside = self.lon[0] + (lon - self.lon[0]) % 360
        return RegularGridInterpolator((self.lat, around), wrapped)(np.stack([lat, inside], 1))
