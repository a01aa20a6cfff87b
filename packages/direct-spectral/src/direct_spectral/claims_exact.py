"""Claims that hold to rounding: equality with the FFT, with finufft, and the solver that made the data."""

import math
from typing import Any

import numpy as np
import torch
from offprints.claims import Scale, exact, less
from offprints.seeding import rng

from direct_spectral._method import METHOD
from direct_spectral.basis import FourierBasis
from direct_spectral.data.shallow_water_solver import ShallowWater
from direct_spectral.interpolation import neuralop_fno
from direct_spectral.lattice import LatticeBasis
from direct_spectral.layers import DirectSpectralConv, GridSpectralConv


def _grid(sizes: tuple[int, ...]) -> torch.Tensor:
    lines = [torch.arange(n, dtype=torch.float64) / n for n in sizes]
    return torch.stack(torch.meshgrid(*lines, indexing="ij"), -1).reshape(-1, len(sizes))


def _gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).detach().abs().max() / b.detach().abs().max())


@METHOD.claim(
    "equality",
    where="Section 3",
    says="On an equispaced grid the direct layer is the FFT layer; on a lattice the separable one; no grid is needed.",
    expect=[
        exact("layer_1d", 0.0, 1e-12),
        exact("layer_2d", 0.0, 1e-12),
        exact("layer_3d", 0.0, 1e-12),
        exact("lattice", 0.0, 1e-12),
        exact("neuraloperator", 0.0, 2e-6),
        exact("least_squares", 0.0, 1e-10),
    ],
    smoke=Scale(seeds=1, channels=3),
    cpu=Scale(seeds=5, channels=8),
    tolerance=100.0,
    note="neuraloperator holds Fourier coefficients in complex64 whatever its input, hence the wider tolerance there.",
)
def equality(seed: int, scale: Scale, device: str) -> dict[str, float]:
    """Largest relative difference of each pair, random weights and values."""
    gen, c, found = rng(seed, "cpu"), scale.channels, {}
    for modes, sizes in (((6,), (32,)), ((4, 5), (16, 12)), ((2, 3, 3), (8, 8, 6))):
        direct = DirectSpectralConv(c, c, modes, "normal", dtype=torch.float64)
        plain = GridSpectralConv(c, c, modes, dtype=torch.float64)
        plain.load_state_dict(direct.state_dict())
        v = torch.randn(2, c, *sizes, generator=gen, dtype=torch.float64)
        basis = FourierBasis(_grid(sizes), modes, [(0, 1)] * len(sizes))
        found[f"layer_{len(sizes)}d"] = _gap(direct(v.flatten(2), basis), plain(v).flatten(2))
    axes = [torch.rand(n, generator=gen, dtype=torch.float64) for n in (16, 12)]
    lattice, layer = LatticeBasis(axes, (4, 5), [(0, 1)] * 2), DirectSpectralConv(c, c, (4, 5), dtype=torch.float64)
    cloud, v = FourierBasis(lattice.points(), (4, 5), [(0, 1)] * 2), torch.randn(2, c, 192, generator=gen).double()
    found["lattice"] = _gap(layer(v, lattice), layer(v, cloud))
    theirs: Any = neuralop_fno((4, 5), 1, 1, c, n_layers=1).get_submodule("fno_blocks.convs.0")
    ours = DirectSpectralConv(c, c, (4, 5))
    with torch.no_grad():
        tensor = theirs.weight.tensor
        weight = torch.fft.ifftshift(tensor, dim=2).permute(2, 3, 0, 1).flatten(0, 1)
        ours.weight.copy_(torch.view_as_real(weight.resolve_conj().contiguous()))
        theirs.bias.zero_()
    basis, v = FourierBasis(_grid((16, 12)).float(), (4, 5), [(0, 1)] * 2), v.float().unflatten(-1, (16, 12))
    found["neuraloperator"] = _gap(ours(v.flatten(2), basis), theirs(v).flatten(2))
    points, query = (torch.rand(n, 2, generator=gen, dtype=torch.float64) for n in (200, 50))
    solved = FourierBasis(points, (4, 5), [(0, 1)] * 2, quadrature="lstsq")
    field = torch.randn(1, 1, 40, generator=gen, dtype=torch.float64) + 0j
    wanted = solved.at(query).inverse(field)
    found["least_squares"] = _gap(solved.at(query).inverse(solved.forward(solved.inverse(field))), wanted)
    return found


@METHOD.claim(
    "shallow-water-solver",
    where="Section 4 (spherical shallow water: the data)",
    says="The solver that makes the spherical data conserves mass to rounding, energy up to its time steps.",
    expect=[exact("mass_drift", 0.0, 1e-12), less("energy_drift", 1e-6), less("step_error", 1e-3)],
    smoke=Scale(seeds=1, lmax=8, hours=2.0, samples=2),
    cpu=Scale(seeds=5, lmax=16, hours=24.0, samples=4),
    tolerance=0.05,
)
def shallow_water_solver(seed: int, scale: Scale, device: str) -> dict[str, float]:
    """Without damping: relative change of both integrals, and of the state when the time step is halved."""
    solver = ShallowWater(scale.lmax, hyperviscosity=None)
    start = solver.start(scale.samples, seed)
    end, finer = solver.run(start, scale.hours, 900.0), solver.run(start, scale.hours, 450.0)
    size = np.abs(finer).max((0, 2))
    return {
        "mass_drift": float(np.abs(solver.mass(end) / solver.mass(start) - 1).max()),
        "energy_drift": float(np.abs(solver.energy(end) / solver.energy(start) - 1).max()),
        "step_error": float((np.abs(end - finer).max((0, 2)) / size).max()),
        "mass": float(solver.mass(end)[0] / (4 * math.pi)),
    }
