"""The command line: train a network and report when it grokked; print the bounds for given sizes."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from offprints.checks import require_range
from offprints.device import float_dtype, pick_device

from grokking_theory import bounds
from grokking_theory.cayley import operation_lower_bound
from grokking_theory.data import load_table
from grokking_theory.empirical import MemoryBudgetError
from grokking_theory.model import QuadraticNetwork
from grokking_theory.report import grokking_report
from grokking_theory.spectrum import fourier_spectrum
from grokking_theory.tasks import ModularAddition, sample_size
from grokking_theory.tracker import NTKTracker
from grokking_theory.train import fit


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status (0, 2 for wrong usage or a run that diverged, 130 when interrupted)."""
    parser = argparse.ArgumentParser(prog="grokking-theory", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    _train_options(verbs.add_parser("train", help="train a quadratic network, write it and its history"))
    _bounds_options(verbs.add_parser("bounds", help="print kernel lower bounds and ℓ∞ upper bounds"))
    options = parser.parse_args(arguments)
    try:
        return _train(options) if options.verb == "train" else _bounds(options)
    except (TypeError, ValueError, OSError, FloatingPointError, MemoryBudgetError) as error:
        print(f"grokking-theory: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("grokking-theory: interrupted, nothing was written", file=sys.stderr)
        return 130


def _share_or_count(text: str) -> int | float:
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a count, or a share with a decimal point, got {text!r}") from None


def _train_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--p", type=int, default=23, help="the modulus")
    add("--kind", choices=["classification", "regression"], default="classification")
    add("--table", type=Path, help="learn this operation (.csv or .npy, p × p integers) instead of addition")
    add(
        "--n",
        type=_share_or_count,
        help="training points, or a share of all with a decimal point (default: the paper's)",
    )
    add("--width", type=int, help="hidden neurons (default: 8p)")
    add("--init", choices=["torch", "he", "uniform"], default="torch")
    add("--alpha", type=float, default=1.0, help="factor on the initial weights")
    add("--optimizer", choices=["gd", "ngd", "adamw"], default="adamw")
    add("--lr", type=float, default=1e-3)
    add("--weight-decay", type=float, help="of adamw (default: 1)")
    add("--linf", type=float, default=0.0, help="strength of the ℓ∞ penalty")
    add("--steps", type=int, default=4000)
    add("--every", type=int, default=100, help="steps between evaluations")
    add("--ntk-points", type=int, default=64, help="training points in the tracked kernel; 0 for none")
    add("--seed", type=int, default=0)
    add("--device", default="auto")
    add("--out", type=Path, required=True, help="folder for network and history")


def _bounds_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--p", type=int, required=True, help="the modulus")
    add("--n", type=int, required=True, help="training points")
    add("--table", type=Path, help="an operation table (.csv or .npy): adds its own lower bound")
    add("--width", type=int, help="hidden neurons (default: 8p)")
    add("--linf", type=float, help="‖θ‖_∞ (default: that of the exact network)")
    add("--delta", type=float, default=0.05, help="probability of failure")


def _train(options: argparse.Namespace) -> int:
    op = load_table(options.table) if options.table else None
    p = len(op) if op is not None else options.p
    task = ModularAddition(p, options.kind, options.n, seed=options.seed, op=op)
    device = pick_device(options.device)
    network = QuadraticNetwork(
        p,
        8 * p if options.width is None else options.width,
        options.init,
        options.alpha,
        seed=options.seed,
        device=device,
        dtype=float_dtype(device),
    )
    options.out.mkdir(parents=True, exist_ok=True)  # before the work, not after it
    callbacks = []
    if require_range("--ntk-points", options.ntk_points, low=0):
        inputs, targets = (part[: options.ntk_points].to(device) for part in task.train)
        callbacks = [NTKTracker(network, inputs, every=options.every, targets=targets)]
    decay = options.weight_decay
    history = fit(
        network,
        task,
        options.optimizer,
        steps=options.steps,
        lr=options.lr,
        weight_decay=(1.0 if options.optimizer == "adamw" else 0.0) if decay is None else decay,
        linf=options.linf,
        every=options.every,
        callbacks=callbacks,
    )
    network.save(options.out / "network")
    history.save(options.out / "history")
    spectrum = fourier_spectrum(network)
    _print_rows({"task": str(task), "stopped": history.stopped, "circuit completeness": spectrum.completeness})
    if len(history.series("test_acc")[0]):
        print(grokking_report(history).table())
    else:
        print("no point is held out, so there is no report; lower --n")
    return 0


def _bounds(options: argparse.Namespace) -> int:
    op = load_table(options.table) if options.table else None
    p, n, width = options.p, options.n, 8 * options.p if options.width is None else options.width
    if op is not None and len(op) != p:
        raise ValueError(f"--p must be {len(op)}, the size of {options.table}, got {p}.")
    linf = 4 ** (-1 / 3) * bounds.min_linf(p, max(width, 8 * p)) if options.linf is None else options.linf
    for kind in ("regression", "classification"):
        found = bounds.kernel_lower_bound(p, n, kind)
        _print_rows(
            {
                f"{kind}: kernel loss at least": found["loss_lb"],
                f"{kind}: loss of the best constant": found["trivial_const"],
                f"{kind}: samples for half of that": bounds.min_samples_kernel(p, kind, found["trivial_const"] / 2),
                f"{kind}: the paper's sample size": sample_size(p, kind),
            }
        )
    if op is not None:
        _print_rows({f"{options.table.name}: kernel loss at least": operation_lower_bound(op, n)})
    proof = bounds.certificate(p, width, linf, n, options.delta)
    _print_rows(
        {
            "ℓ∞ used": linf,
            "certificate for an interpolating network": f"{proof['value']:.4g}" + " (vacuous)" * proof["vacuous"],
            "rate of proposition 3.7, constant 1": bounds.rich_upper_rate(p, width, linf, n, options.delta),
            "rate of theorem 4.5, constant 1": bounds.max_margin_rate(p, n),
        }
    )
    return 0


def _print_rows(rows: Mapping[str, float | str]) -> None:
    for name, value in rows.items():
        print(f"{name:<45} {value if isinstance(value, str) else format(value, '.6g')}")
