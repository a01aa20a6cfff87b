"""Claims about training in one and two dimensions: Burgers on non-uniform points, elasticity on meshes."""

from collections.abc import Mapping

import torch
from offprints.claims import Scale, less, scaled
from offprints.seeding import rng, spawn

from direct_spectral import data as data_set
from direct_spectral._method import METHOD
from direct_spectral.baselines import GeoFNO, PointMLP
from direct_spectral.claims_setup import Contest, OnGrid, folder, measured, trained
from direct_spectral.data.burgers_solver import burgers
from direct_spectral.data.clouds import Batches, contracting_expanding, random_subset
from direct_spectral.data.elasticity_solver import elasticity
from direct_spectral.interpolation import InterpFNO
from direct_spectral.models import FFNODSE, FNODSE
from direct_spectral.train import evaluate
from direct_spectral.unet import UFNODSE

FULL_GPU = "one GPU with 24 GB, 1 to 6 hours a model, and the paper's data in the folder DIRECT_SPECTRAL_DATA"
LINE, BOX = ((0.0, 1.0),), ((0.0, 1.0), (0.0, 1.0))
FINE = 8192
"""Points of the grid that non-uniform ones are taken from."""
LRS = (1e-3, 3e-3, 1e-2)


def _indices(kind: str, scale: Scale, seed: int) -> torch.Tensor:
    chosen = contracting_expanding(FINE, FINE // 2, scale.uniform, scale.growth)
    if kind == "uniform":
        return torch.arange(len(chosen)) * FINE // len(chosen)
    return chosen if kind == "ce" else random_subset(FINE, len(chosen), seed)


def _burgers(kind: str, scale: Scale, seed: int) -> tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]:
    """Training and test pairs on one kind of points, the same for all samples."""
    indices = _indices(kind, scale, seed)
    total = scale.train + scale.test
    if scale.file:
        data = data_set.load_burgers(folder(scale.file), indices)
    else:
        points = (indices.double() / FINE).unsqueeze(-1)
        data = burgers(total, points, seed, scale.viscosity, constant=scale.constant)
    data = {name: x[:total] if len(x) > 1 else x for name, x in data.items()}
    parts = [{n: x if len(x) == 1 else x[rows] for n, x in data.items()} for rows in _split(scale)]
    return parts[0], parts[1]


def _split(scale: Scale) -> tuple[slice, slice]:
    return slice(scale.train), slice(scale.train, scale.train + scale.test)


def _dse(scale: Scale, quadrature: str = "mean") -> FNODSE:
    return FNODSE(1, 1, 1, scale.width, scale.modes, bounds=LINE, periodic=True, quadrature=quadrature)


BURGERS_GATES = [
    *(less(f"dse_{kind}", scaled("fno_uniform", 1.3)) for kind in ("ce", "random")),
    *(less(f"dse_{kind}", scaled(f"ignoring_{kind}", 0.7)) for kind in ("ce", "random")),
    *(less(f"dse_{kind}", scaled(f"interp_{kind}", 0.9)) for kind in ("ce", "random")),
]
BURGERS_SMOKE = {
    "seeds": 1, "train": 8, "test": 4, "batch": 4, "epochs": 1, "lrs": (3e-3,), "width": 4, "modes": 4, "uniform": 20,
    "growth": 3.0, "file": None,
}  # fmt: skip
BURGERS_CPU = {
    "seeds": 5, "train": 200, "test": 100, "batch": 20, "epochs": 40, "lrs": LRS, "width": 32, "modes": 16,
    "uniform": 100, "growth": 1.906, "file": None,
}  # fmt: skip
SMOOTH: dict = {"viscosity": 0.1, "constant": True}
SHARP: dict = {"viscosity": 0.01, "constant": False}


def _burgers_contest(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Equal numbers of points: FNO on uniform ones; DSE, an FNO blind to positions, and interpolation on others."""
    data = {kind: _burgers(kind, scale, seed) for kind in ("uniform", "ce", "random")}
    sizes = (scale.width, scale.modes)
    library = {"use_channel_mlp": False, "lifting_channel_ratio": 0, "projection_channel_ratio": 128 / scale.width}
    models: dict[str, Contest] = {
        "fno_own": (lambda: OnGrid(1, 1, *sizes, "own"), *data["uniform"]),
        "fno_neuralop": (lambda: OnGrid(1, 1, *sizes, "neuralop", library), *data["uniform"]),
    }
    n = data["uniform"][0]["points"].shape[1]
    for kind in ("ce", "random"):
        models[f"dse_{kind}"] = (lambda: _dse(scale), *data[kind])
        models[f"ignoring_{kind}"] = (lambda: OnGrid(1, 1, *sizes, "own"), *data[kind])
        models[f"interp_{kind}"] = (
            lambda: InterpFNO(1, 1, 1, *sizes, n, bounds=LINE, periodic=True, inner_options=library),
            *data[kind],
        )
    found, kept = measured(models, scale, seed, device)
    best = min(("fno_own", "fno_neuralop"), key=lambda name: float(str(found[name])))
    first = {name: x if len(x) == 1 else x[:1] for name, x in data["ce"][1].items()}
    with torch.no_grad():
        prediction = kept["dse_ce"](first["u"].to(device), first["points"].to(device)).flatten().tolist()
    return found | {
        "fno_uniform": found[best],
        "ce_points": first["points"].flatten().tolist(),
        "ce_start": first["u"].flatten().tolist(),
        "ce_truth": first["y"].flatten().tolist(),
        "ce_prediction": prediction,
    }


@METHOD.claim(
    "burgers",
    where="Section 4 (Burgers' equation)",
    says="The direct transform takes the FNO to arbitrary points and keeps its accuracy.",
    expect=BURGERS_GATES,
    smoke=Scale(**BURGERS_SMOKE, **SMOOTH),
    cpu=Scale(**BURGERS_CPU, **SMOOTH),
    full=Scale(
        seeds=1, needs=FULL_GPU, train=1000, test=200, batch=50, epochs=501, lrs=(5e-3,), width=64, modes=16,
        uniform=400, growth=1.5, file="burgers_data_R10.mat", **SMOOTH,
    ),
    tolerance=0.2,
    note="At ν = 0.1 the slowest wave of the unit circle has decayed by e^-3.9 at t = 1: the target is nearly the mean "
    "of u(0) (figure), and what is compared is how well each model integrates over its points. Linear interpolation "
    "does that almost exactly in one dimension, sums with q = 1/N do not; cell areas repair a part (burgers-areas).",
)  # fmt: skip
def burgers_claim(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """The problem of the paper."""
    return _burgers_contest(seed, scale, device)


@METHOD.claim(
    "burgers-sharp",
    where="Section 4 (Burgers' equation), at a tenth of the viscosity",
    says="The same where the solution is more than a mean: ν = 0.01, and initial data without a constant part.",
    expect=BURGERS_GATES,
    smoke=Scale(**BURGERS_SMOKE, **SHARP),
    cpu=Scale(**BURGERS_CPU, **SHARP),
    tolerance=0.2,
    note="Added after the first run of burgers, with the gates of burgers, before its own first run. The cause is the "
    "rule q = 1/N: with cell areas the errors of seeds 0 and 1 fall from 8.7 and 7.7 to 3.0 and 2.4 on "
    "contracting-expanding points and from 2.8 and 2.2 to 1.5 and 1.5 on random ones, where the FNO has 1.5 and 1.4. "
    "Linear interpolation (2.6, 2.8; 1.3, 1.5) is as good in one dimension.",
)
def burgers_sharp(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """The sharper one."""
    return _burgers_contest(seed, scale, device)


@METHOD.claim(
    "burgers-areas",
    where="beyond the paper",
    says="Cell areas instead of 1/N as weights of the forward sum lower the error on contracting-expanding points.",
    expect=[less("areas_ce", "mean_ce")],
    smoke=Scale(**BURGERS_SMOKE, **SMOOTH),
    cpu=Scale(**BURGERS_CPU, **SMOOTH),
    tolerance=0.2,
)
def burgers_areas(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """The same operator and points, two rules of quadrature."""
    data = _burgers("ce", scale, seed)
    models: dict[str, Contest] = {
        "mean_ce": (lambda: _dse(scale), *data),
        "areas_ce": (lambda: _dse(scale, "voronoi"), *data),
    }
    return measured(models, scale, seed, device)[0]


def _cloud_burgers(n_samples: int, n_points: int, seed: int) -> dict[str, torch.Tensor]:
    """Every sample with uniformly random points of its own."""
    points = torch.rand(n_samples, n_points, 1, generator=rng(seed + 2**31, "cpu"))
    return burgers(n_samples, points.sort(1).values, seed)


TRANSFER = [less(f"error_{n}", scaled("error_256", 1.5)) for n in (128, 512, 1024)]


def _transfer(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    train_seed, test_seed = spawn(seed, 2)
    train = _cloud_burgers(scale.train, 256, train_seed % 2**30)
    tests = {n: _cloud_burgers(scale.test, n, test_seed % 2**30) for n in (128, 256, 512, 1024)}
    make = lambda: _dse(scale, scale.quadrature)  # noqa: E731
    model = trained(make, train, tests[256], scale, seed, device, scale.lrs[0]).model
    return {f"error_{n}": evaluate(model, Batches(test, 20, device=device))["mean"] for n, test in tests.items()}


TRANSFER_SMOKE = {"seeds": 1, "train": 4, "test": 2, "batch": 4, "epochs": 1, "lrs": (3e-3,), "width": 4, "modes": 4}
TRANSFER_CPU = {
    "seeds": 5, "train": 200, "test": 100, "batch": 20, "epochs": 40, "lrs": (3e-3,), "width": 32, "modes": 16,
}  # fmt: skip


@METHOD.claim(
    "transfer",
    where="Section 3",
    says="Trained on random sets of 256 points, the operator works on other sets of 128 to 1024.",
    expect=TRANSFER,
    smoke=Scale(quadrature="mean", **TRANSFER_SMOKE),
    cpu=Scale(quadrature="mean", **TRANSFER_CPU),
    tolerance=0.2,
    note="Open at 128 points, where the Monte-Carlo error of q = 1/N is largest; larger sets pass, and with cell areas "
    "so do all (transfer-areas).",
)
def transfer(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """With q = 1/N, as the paper has it."""
    return _transfer(seed, scale, device)


@METHOD.claim(
    "transfer-areas",
    where="Section 3, with cell areas (beyond the paper)",
    says="The same, with cell areas as weights of the forward sum.",
    expect=TRANSFER,
    smoke=Scale(quadrature="voronoi", **TRANSFER_SMOKE),
    cpu=Scale(quadrature="voronoi", **TRANSFER_CPU),
    tolerance=0.2,
)
def transfer_areas(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """With Voronoi cells."""
    return _transfer(seed, scale, device)


def _elasticity(scale: Scale, seed: int) -> tuple[Mapping[str, torch.Tensor], Mapping[str, torch.Tensor]]:
    data = data_set.load_elasticity(folder(scale.file)) if scale.file else elasticity(scale.train + scale.test, seed)
    train, test = ({name: x[rows] for name, x in data.items()} for rows in _split(scale))
    return train, test


@METHOD.claim(
    "elasticity",
    where="Section 4 (elasticity)",
    says="On meshes that differ from sample to sample the direct transform is at least as accurate as Geo-FNO.",
    expect=[less("fnodse", scaled("geofno", 1.05)), less("fnodse", scaled("interpfno", 0.8))],
    smoke=Scale(
        seeds=1, train=4, test=2, batch=2, epochs=1, lrs=(3e-3,), width=4, geo_width=3, modes=3, grid=16, fft=16,
        file=None,
    ),
    cpu=Scale(
        seeds=5, train=300, test=100, batch=20, epochs=40, lrs=LRS, width=16, geo_width=12, modes=6, grid=40, fft=32,
        file=None,
    ),
    full=Scale(
        seeds=1, needs=FULL_GPU, train=1000, test=200, batch=20, epochs=501, lrs=(5e-3,), width=32, geo_width=32,
        modes=12, grid=40, fft=40, file="elasticity",
    ),
    tolerance=0.2,
    note="The other half of the paper's sentence, that training is much faster, is the duel training_step.",
)  # fmt: skip
def elasticity_claim(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Positions to stress; widths such that parameters agree within 10 %."""
    data = _elasticity(scale, seed)
    library = {"use_channel_mlp": False, "lifting_channel_ratio": 0, "projection_channel_ratio": 128 / scale.width}
    models: dict[str, Contest] = {
        "fnodse": (lambda: FNODSE(2, 0, 1, scale.width, scale.modes, bounds=BOX), *data),
        "geofno": (lambda: GeoFNO(2, 0, 1, scale.geo_width, scale.modes, scale.grid, bounds=BOX), *data),
        "interpfno": (
            lambda: InterpFNO(2, 0, 1, scale.width, scale.modes, scale.fft, bounds=BOX, inner_options=library),
            *data,
        ),
    }
    found, kept = measured(models, scale, seed, device)
    sample = {name: x[:1].to(device) for name, x in data[1].items()}
    with torch.no_grad():
        prediction = kept["fnodse"](sample["u"], sample["points"])
    return found | {
        "mesh": sample["points"].flatten().tolist(),
        "truth": sample["y"].flatten().tolist(),
        "prediction": prediction.flatten().tolist(),
    }


@METHOD.claim(
    "variants",
    where="Section 4 (elasticity), U-FNO and F-FNO",
    says="The direct transform also serves U-FNO and F-FNO: each is far ahead of a network that sees single points.",
    expect=[less(name, scaled("pointmlp", 0.5)) for name in ("ufnodse", "ffnodse")],
    smoke=Scale(
        seeds=1, train=4, test=2, batch=2, epochs=1, lrs=(3e-3,), u_width=4, f_width=4, mlp_width=8, modes=3, grid=8,
        file=None,
    ),
    cpu=Scale(
        seeds=5, train=300, test=100, batch=20, epochs=40, lrs=LRS, u_width=6, f_width=18, mlp_width=96, modes=6,
        grid=32, file=None,
    ),
    full=Scale(
        seeds=1, needs=FULL_GPU, train=1000, test=200, batch=20, epochs=501, lrs=(5e-3,), u_width=32, f_width=64,
        mlp_width=512, modes=12, grid=32, file="elasticity",
    ),
    tolerance=0.2,
)  # fmt: skip
def variants(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Positions to stress; every model at its best of the same learning rates, parameters within 10 %."""
    data = _elasticity(scale, seed)
    models: dict[str, Contest] = {
        "ufnodse": (lambda: UFNODSE(2, 0, 1, scale.u_width, scale.modes, scale.grid, bounds=BOX), *data),
        "ffnodse": (lambda: FFNODSE(2, 0, 1, scale.f_width, scale.modes, bounds=BOX), *data),
        "pointmlp": (lambda: PointMLP(2, 0, 1, scale.mlp_width, bounds=BOX), *data),
    }
    return measured(models, scale, seed, device)[0]
