"""Double shear layer in a periodic box: two-dimensional Navier-Stokes, pseudo-spectral, in vorticity form."""

import numpy as np
import torch
from offprints.checks import message, require_range
from offprints.seeding import rng

from direct_spectral.data.burgers_solver import etdrk4, etdrk4_step


def shear_layer_start(n_samples: int, n_grid: int, seed: int, thickness: float = 0.1) -> np.ndarray:
    """Velocities (n, 2, grid, grid) on [0, 1)²: two opposite layers, bent by ten random sine waves.

    u = tanh((y - ¼)/ρ), y below ½, and tanh((¾ - y)/ρ) above, y shifted by the waves; v = 0 before projection.
    """
    gen = rng(seed)
    line = np.arange(n_grid) / n_grid
    k = np.arange(1, 11)
    height, phase = gen.uniform(0, 1, (n_samples, 10)), gen.uniform(0, 2 * np.pi, (n_samples, 10))
    waves = np.sin(2 * np.pi * k[:, None] * line + phase[..., None])
    shift = 0.025 * (height[..., None] * waves).mean(1)  # (n, x)
    y = line[None, None, :] + shift[:, :, None]
    wide = thickness / 2
    u = np.where(line <= 0.5, np.tanh((y - 0.25) / wide), np.tanh((0.75 - y) / wide))
    return np.stack([u, np.zeros_like(u)], 1)


def solve_navier_stokes(
    velocity: np.ndarray, viscosity: float = 1e-4, time: float = 1.0, steps: int = 200
) -> np.ndarray:
    """Incompressible flow on [0, 1)² periodic: velocities (n, 2, grid, grid) to those at time t.

    ω_t + u·∇ω = ν Δω by ETDRK4 with the 2/3 rule; the mean velocity is kept.

    Raises:
        ValueError: if an argument is out of range, or the solution is not finite.
    """
    require_range("viscosity", viscosity, low=0)
    require_range("time", time, low=0, low_open=True)
    require_range("steps", steps, low=1, integer=True)
    n = velocity.shape[-1]
    kx, ky = 2 * np.pi * np.fft.fftfreq(n, 1 / n)[:, None], 2 * np.pi * np.arange(n // 2 + 1)[None, :]
    square = kx**2 + ky**2
    inverse = np.divide(1.0, square, out=np.zeros_like(square), where=square > 0)
    kept = (np.abs(kx) <= 2 * np.pi * (n // 3)) & (ky <= 2 * np.pi * (n // 3))
    mean = velocity.mean((-2, -1), keepdims=True)

    def flow(w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        stream = w * inverse
        return np.fft.irfft2(1j * ky * stream, s=(n, n)), np.fft.irfft2(-1j * kx * stream, s=(n, n))

    def nonlinear(w: np.ndarray) -> np.ndarray:
        u, v = flow(w)
        field = np.fft.irfft2(w, s=(n, n))
        along = 1j * kx * np.fft.rfft2((u + mean[:, 0]) * field) + 1j * ky * np.fft.rfft2((v + mean[:, 1]) * field)
        return -1.0 * kept * along

    hat = np.fft.rfft2(velocity)
    w = kept * (1j * kx * hat[:, 1] - 1j * ky * hat[:, 0])
    coefficients = etdrk4(-viscosity * square, time / steps)
    for _ in range(steps):
        w = etdrk4_step(w, nonlinear, coefficients)
    if not np.isfinite(w).all():
        raise ValueError(message("steps", "enough for a stable solution", steps, "Take more of them."))
    return np.stack(flow(w), 1) + mean


def shear_layer(
    n_samples: int,
    axes: tuple[torch.Tensor, torch.Tensor],
    seed: int,
    n_grid: int = 64,
    viscosity: float = 1e-3,
    time: float = 0.5,
    steps: int = 100,
) -> dict[str, torch.Tensor]:
    """Pairs of velocities (u, v)(0) → (u, v)(t), packed as u + iv, on a product lattice (shear layer of the paper).

    Args:
        n_samples: how many.
        axes: indices into the solver's grid along x and y, such as `contracting_expanding` gives.
        seed: of the initial data.
        n_grid: points of the solver along an axis.
        viscosity: ν.
        time: t.
        steps: of time.

    Returns:
        "u" and "y", (n, N_1 N_2, 1) complex64, and "axes_x", "axes_y": positions in [0, 1).
    """
    start = shear_layer_start(n_samples, n_grid, seed)
    fields = []
    for field in (start, solve_navier_stokes(start, viscosity, time, steps)):
        on_lattice = field[:, :, axes[0].numpy()][..., axes[1].numpy()]
        packed = torch.from_numpy(on_lattice[:, 0] + 1j * on_lattice[:, 1]).to(torch.complex64)
        fields.append(packed.flatten(1).unsqueeze(-1))
    return {"u": fields[0], "y": fields[1], "axes_x": axes[0].float() / n_grid, "axes_y": axes[1].float() / n_grid}
