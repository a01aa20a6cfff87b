"""Viscous Burgers equation on the circle: pseudo-spectral in space, exponential Runge-Kutta in time."""

import numpy as np
import torch
from offprints.checks import message, require_range
from offprints.seeding import rng


def gaussian_field(n_samples: int, n_grid: int, seed: int, constant: bool = True) -> np.ndarray:
    """Initial data of the paper, N(0, 625 (-Δ + 25 I)^{-2}) on [0, 1) periodic; (n_samples, n_grid).

    The constant part is of variance 1, more than all waves together; without `constant` it is left out, as the
    generators that are in use in the field do.
    """
    gen, waves = rng(seed), np.arange(n_grid // 2 + 1)
    scale = 25.0 / ((2 * np.pi * waves) ** 2 + 25.0)
    noise = (gen.standard_normal((n_samples, len(waves))) + 1j * gen.standard_normal((n_samples, len(waves)))) / 2**0.5
    noise[:, 0] = noise[:, 0].real * 2**0.5 * constant  # real, of variance 1
    noise[:, -1] = 0.0
    return np.fft.irfft(noise * scale * n_grid, n=n_grid)


def solve_burgers(u0: np.ndarray, viscosity: float = 0.1, time: float = 1.0, steps: int = 200) -> np.ndarray:
    """u_t + u u_x = ν u_xx on [0, 1) periodic, at one time: (n, grid) to (n, grid).

    ETDRK4 (Cox and Matthews; contour integrals of Kassam and Trefethen), products with the 2/3 rule.

    Args:
        u0: initial values on an equispaced grid.
        viscosity: ν.
        time: t.
        steps: of time.

    Raises:
        ValueError: if ν or t is not positive, or the solution is not finite (too few steps).
    """
    require_range("viscosity", viscosity, low=0, low_open=True)
    require_range("time", time, low=0, low_open=True)
    require_range("steps", steps, low=1, integer=True)
    n, dt = u0.shape[-1], time / steps
    k = 2 * np.pi * np.arange(n // 2 + 1)
    kept = np.arange(n // 2 + 1) <= n // 3
    coefficients = etdrk4(-viscosity * k**2, dt)

    def nonlinear(v: np.ndarray) -> np.ndarray:
        u = np.fft.irfft(v, n=n)
        return -0.5j * k * kept * np.fft.rfft(u * u)

    v = np.fft.rfft(u0) * kept
    for _ in range(steps):
        v = etdrk4_step(v, nonlinear, coefficients)
    if not np.isfinite(v).all():
        raise ValueError(message("steps", "enough for a stable solution", steps, "Take more of them."))
    return np.fft.irfft(v, n=n)


def etdrk4(linear: np.ndarray, dt: float) -> tuple[np.ndarray, ...]:
    """Coefficients of ETDRK4 for v' = L v + N(v), L diagonal and real; means over 32 points of a circle."""
    roots = np.exp(1j * np.pi * (np.arange(1, 33) - 0.5) / 32)
    z = dt * linear[..., None] + roots
    q = dt * ((np.exp(z / 2) - 1) / z).mean(-1).real
    f1 = dt * ((-4 - z + np.exp(z) * (4 - 3 * z + z**2)) / z**3).mean(-1).real
    f2 = dt * ((2 + z + np.exp(z) * (-2 + z)) / z**3).mean(-1).real
    f3 = dt * ((-4 - 3 * z - z**2 + np.exp(z) * (4 - z)) / z**3).mean(-1).real
    return np.exp(dt * linear), np.exp(dt * linear / 2), q, f1, f2, f3


def etdrk4_step(v, nonlinear, coefficients):
    """One step."""
    full, half, q, f1, f2, f3 = coefficients
    n0 = nonlinear(v)
    a = half * v + q * n0
    na = nonlinear(a)
    b = half * v + q * na
    nb = nonlinear(b)
    c = half * a + q * (2 * nb - n0)
    return full * v + n0 * f1 + 2 * (na + nb) * f2 + nonlinear(c) * f3


def sample_series(u: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The trigonometric interpolant of grid values (n, grid) at points x of [0, 1), (P,) or (n, P): (n, P)."""
    grid = u.shape[-1]
    v = np.fft.rfft(u) / grid
    v[:, 1 : (grid + 1) // 2] *= 2
    top = int(np.flatnonzero(np.abs(v).max(0) > 1e-14 * np.abs(v).max()).max(initial=0)) + 1
    phase = np.exp(2j * np.pi * np.atleast_2d(x)[..., None] * np.arange(top))
    return (phase @ v[:, :top, None])[..., 0].real if np.ndim(x) == 2 else (v[:, :top] @ phase[0].T).real


def burgers(
    n_samples: int,
    points: torch.Tensor,
    seed: int,
    viscosity: float = 0.1,
    time: float = 1.0,
    n_grid: int = 512,
    constant: bool = True,
) -> dict[str, torch.Tensor]:
    """Pairs u(0) → u(t) at any points of [0, 1) (Burgers experiment of the paper).

    Args:
        n_samples: how many.
        points: (N, 1) for all samples, or (n_samples, N, 1).
        seed: of the initial data.
        viscosity: ν.
        time: t.
        n_grid: points of the solver.
        constant: whether initial data have a random mean, see `gaussian_field`.

    Returns:
        "u" and "y", (n_samples, N, 1), and "points", (n_samples or 1, N, 1); float32.
    """
    require_range("n_samples", n_samples, low=1, integer=True)
    if points.ndim not in (2, 3) or points.shape[-1] != 1:
        raise ValueError(message("points", "of shape (N, 1) or (n_samples, N, 1)", tuple(points.shape)))
    start = gaussian_field(n_samples, n_grid, seed, constant)
    x = points.double().numpy()[..., 0]
    pair = [sample_series(field, x) for field in (start, solve_burgers(start, viscosity, time))]
    u, y = (torch.from_numpy(field).float().unsqueeze(-1) for field in pair)
    return {"u": u, "y": y, "points": (points if points.ndim == 3 else points.unsqueeze(0)).float()}
