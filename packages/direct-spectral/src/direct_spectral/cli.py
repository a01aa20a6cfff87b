"""Command line: `direct-spectral train` trains a model on one of the experiments' problems, `evaluate` tests it."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from offprints.device import pick_device
from offprints.seeding import isolated

from direct_spectral import data as data_set
from direct_spectral.baselines import GeoFNO, PointMLP
from direct_spectral.domain import fit_bounds
from direct_spectral.interpolation import InterpFNO
from direct_spectral.lattice import LatticeBasis
from direct_spectral.layers import parameter_count
from direct_spectral.models import FFNODSE, FNODSE
from direct_spectral.operator import PointOperator
from direct_spectral.spherical import SFNODSE
from direct_spectral.train import evaluate, train_operator
from direct_spectral.unet import UFNODSE

Data = dict[str, torch.Tensor]
MODELS = {
    "fno-dse": FNODSE, "ffno-dse": FFNODSE, "ufno-dse": UFNODSE, "sfno-dse": SFNODSE, "geo-fno": GeoFNO,
    "interp-fno": InterpFNO, "point-mlp": PointMLP,
}  # fmt: skip
RECIPES = {  # batch, lr, step, gamma, weight decay, modes, width: the paper's table of experiments
    "burgers": (50, 5e-3, 10, 0.97, 1e-5, 16, 64),
    "elasticity": (20, 5e-3, 10, 0.97, 1e-4, 12, 32),
    "airfoil": (20, 1e-3, 50, 0.5, 1e-4, 12, 32),
    "shear-layer": (8, 5e-3, 10, 0.97, 1e-4, 20, 32),
    "humidity": (30, 5e-3, 10, 0.97, 1e-4, 32, 32),
    "shallow-water": (4, 1e-3, 10, 0.97, 0.0, 22, 128),
}
PERIODIC = {
    "burgers": (True,), "elasticity": (False, False), "airfoil": (False, False), "shear-layer": (True, True),
    "humidity": (False, True), "shallow-water": (False,) * 3,
}  # fmt: skip
FIXED = {"burgers": [(0.0, 1.0)], "shear-layer": [(0.0, 1.0)] * 2, "humidity": [(-90.0, 90.0), (0.0, 360.0)]}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; 0, or 2 for what a user can put right."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except (ValueError, TypeError, FileNotFoundError, ModuleNotFoundError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("direct-spectral", description="Neural operators on arbitrary points.")
    verbs = parser.add_subparsers(required=True, metavar="verb")
    train = verbs.add_parser("train", help="train a model; data of the paper from --data, else from a solver here")
    test = verbs.add_parser("evaluate", help="errors of a trained model")
    for verb in (train, test):
        verb.add_argument("--problem", choices=RECIPES, required=True)
        verb.add_argument("--data", type=Path, help="file (burgers) or folder with the paper's data")
        verb.add_argument("--train", type=int, default=200, help="samples for training")
        verb.add_argument("--test", type=int, default=50, help="samples for the test")
        verb.add_argument("--seed", type=int, default=0)
        verb.add_argument("--device", default="auto")
        verb.add_argument("--points", choices=("uniform", "ce", "random"), default="ce", help="of burgers")
        verb.add_argument("--size", type=int, help="points of a sample, or of a grid's axis, made here")
        verb.add_argument("--out", type=Path, required=True, help="folder of the model")
    train.add_argument("--model", choices=MODELS, default="fno-dse")
    train.add_argument("--epochs", type=int, default=50)
    for name, kind in (("batch", int), ("lr", float), ("modes", int), ("width", int)):
        train.add_argument(f"--{name}", type=kind, help="the paper's by default")
    train.add_argument("--quadrature", choices=("mean", "voronoi"), default="mean")
    train.set_defaults(run=_train)
    test.add_argument("--batch", type=int)
    test.set_defaults(run=_evaluate)
    return parser


def load(options: argparse.Namespace) -> tuple[Data, Data]:
    """Training and test data of the problem: read from --data, or made by a solver."""
    total = options.train + options.test
    data: Data = _READERS[options.problem](options) if options.data else _SOLVERS[options.problem](options, total)
    n = max(len(x) for name, x in data.items() if not name.startswith("axes"))
    if n < total:
        raise ValueError(f"--train and --test must be at most {n} together (what is there), got {total}.")
    parts = []
    for rows in (slice(options.train), slice(options.train, total)):
        keep = lambda name, x, rows=rows: x if name.startswith("axes") or len(x) == 1 else x[rows]  # noqa: E731
        parts.append({name: keep(name, x) for name, x in data.items()})
    return parts[0], parts[1]


def _axis(n: int, centre: int) -> torch.Tensor:
    return data_set.contracting_expanding(n, centre, max(1, min(100, n // 10)), 1.75)


def _burgers_indices(options: argparse.Namespace, n: int = 8192) -> torch.Tensor:
    chosen = data_set.contracting_expanding(n, n // 2, 100, 1.9)
    if options.points == "uniform":
        return torch.arange(len(chosen)) * n // len(chosen)
    return chosen if options.points == "ce" else data_set.random_subset(n, len(chosen), options.seed)


def _read_lattice(options: argparse.Namespace) -> Data:
    files = sorted(options.data.glob("*.nc*"))
    if not files:
        raise FileNotFoundError(f"no netCDF files in {options.data}.")
    if options.problem == "shear-layer":
        axes = (_axis(1024, 256), _axis(1024, 768))
        found = data_set.load_lattice_pairs(files, {"field": ("u", "v")}, axes)
        return found | {name: found[name] / 1024 for name in ("axes_x", "axes_y")}
    axes = (data_set.contracting_expanding(361, 180, 100, 2.0), data_set.contracting_expanding(576, 140, 100, 2.0))
    found = data_set.load_lattice_pairs(files, {"field": "QV"}, axes)
    return found | {"axes_x": found["axes_x"] / 2 - 90, "axes_y": found["axes_y"] / 1.6}


_READERS: Mapping[str, Callable[[argparse.Namespace], Data]] = {
    "burgers": lambda options: data_set.load_burgers(options.data, _burgers_indices(options)),
    "elasticity": lambda options: data_set.load_elasticity(options.data),
    "airfoil": lambda options: data_set.load_airfoil(options.data),
    "shear-layer": _read_lattice,
    "humidity": _read_lattice,
    "shallow-water": lambda options: _refuse(options),
}


def _refuse(options: argparse.Namespace) -> Data:
    raise ValueError("--data is not read for shallow-water: the paper makes these data by a solver, and so does this.")


def _make_shear(options: argparse.Namespace, total: int) -> Data:
    n = options.size or 64
    return data_set.shear_layer(total, (_axis(n, n // 4), _axis(n, 3 * n // 4)), options.seed, n_grid=n)


def _make_humidity(options: argparse.Namespace, total: int) -> Data:
    n = options.size or 48
    lat = _axis(n, n // 2).float() * (180 / n) - 90
    lon = _axis(2 * n, n).float() * (180 / n)
    return data_set.humidity(total, lat, lon, options.seed)


_SOLVERS: Mapping[str, Callable[[argparse.Namespace, int], Data]] = {
    "burgers": lambda o, n: data_set.burgers(n, (_burgers_indices(o).double() / 8192).unsqueeze(-1), o.seed),
    "elasticity": lambda o, n: data_set.elasticity(n, o.seed),
    "airfoil": lambda o, n: data_set.airfoil(n, o.seed),
    "shear-layer": _make_shear,
    "humidity": _make_humidity,
    "shallow-water": lambda o, n: data_set.shallow_water(n, o.size or 1000, o.seed),
}


def build(options: argparse.Namespace, train: Data) -> PointOperator:
    """The model for the data, with the bounds of the training set."""
    _, _, _, _, _, modes, width = RECIPES[options.problem]
    if options.problem == "elasticity" and options.model == "ffno-dse":
        modes, width = 15, 64  # the one model of a problem with sizes of its own
    modes, width = options.modes or modes, options.width or width
    channels = train["u"].shape[-1] * (1 + train["u"].is_complex())
    out = train["y"].shape[-1] * (1 + train["y"].is_complex())
    kind: Callable[..., PointOperator] = MODELS[options.model]
    if kind is SFNODSE:
        if options.problem != "shallow-water":
            raise ValueError("--model sfno-dse is for --problem shallow-water (points on the sphere).")
        return SFNODSE(channels, out, width, modes, coordinates="xyz", quadrature=options.quadrature)
    dim = 2 if "axes_x" in train else train["points"].shape[-1]
    bounds = FIXED.get(options.problem) or fit_bounds(train["points"], margin=0.1)
    common: dict = {"bounds": bounds, "periodic": PERIODIC[options.problem]}
    if kind is PointMLP:
        return PointMLP(dim, channels, out, 4 * width, **common)
    if kind in (FNODSE, FFNODSE, UFNODSE):
        common["quadrature"] = options.quadrature
    if kind in (GeoFNO, InterpFNO, UFNODSE):
        common["grid"] = max(32, 8 * -(-modes // 4))
    return kind(dim, channels, out, width, modes, **common)


def _with_lattice(model: PointOperator, data: Data) -> Data:
    """Data on a lattice: its basis is given to the model once, or its points to a model that takes no lattice."""
    if "axes_x" not in data:
        return data
    axes = [data["axes_x"].double(), data["axes_y"].double()]
    rest = {name: x for name, x in data.items() if not name.startswith("axes")}
    points = torch.cartesian_prod(*axes).float().unsqueeze(0)
    if isinstance(model, (FNODSE, FFNODSE, UFNODSE)):
        basis = LatticeBasis(axes, model.n_modes, model.domain, dtype=torch.float32)
        basis.remember(points)
        model.precompute(basis.to(next(model.parameters()).device))
    return rest | {"points": points}


def _train(options: argparse.Namespace) -> int:
    device = pick_device(options.device)
    train, test = load(options)
    batch, lr, step, gamma, decay, _, _ = RECIPES[options.problem]
    batch, lr = options.batch or batch, options.lr or lr
    options.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    with isolated(options.seed):
        model = build(options, train).to(device)
    model.fit_scales(train["u"], train["y"])
    train, test = _with_lattice(model, train), _with_lattice(model, test)
    test["points"] = train["points"] if len(train["points"]) == 1 else test["points"]
    loaders = [data_set.Batches(part, batch, part is train, options.seed, device) for part in (train, test)]
    loaders[1].data["points"] = loaders[0].data["points"] if len(train["points"]) == 1 else loaders[1].data["points"]
    if model._basis is not None and len(train["points"]) == 1:
        model._basis.remember(loaders[0].data["points"])
    history = train_operator(
        model, loaders[0], loaders[1], options.epochs, lr, weight_decay=decay, step=step, gamma=gamma,
        schedule="plateau" if options.problem == "shallow-water" else "step", every=max(1, options.epochs // 10),
    )  # fmt: skip
    model.save_pretrained(options.out)
    report = {"loss": history.loss, "error": history.error, "seconds": history.seconds}
    (options.out / "history.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(
        f"{options.model}, {parameter_count(model)} parameters, {history.seconds[-1] if history.seconds else 0:.1f} s"
    )
    last = history.error[-1] if history.error else float("nan")
    print(f"relative L1 error on {options.test} test samples: {last:.4g} %")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    device = pick_device(options.device)
    header = json.loads((options.out / "model.json").read_text(encoding="utf-8"))
    kind = {cls.__name__: cls for cls in MODELS.values()}[header["config"]["class"]]
    model = kind.from_pretrained(options.out, device)
    _, test = load(options)
    test = _with_lattice(model, test)
    loader = data_set.Batches(test, options.batch or 20, device=device)
    if model._basis is not None:
        model._basis.remember(loader.data["points"])
    found = evaluate(model, loader)
    print(f"relative L1 error: mean {found['mean']:.4g} %, median {found['median']:.4g} %")
    return 0
