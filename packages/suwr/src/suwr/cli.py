"""The command line: fit a table, explain its rows, audit a selection that is written in a file (Sections 2 and 3)."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from offprints.checks import message, require_choice

if TYPE_CHECKING:
    from suwr.estimators import SUWRClassifier, SUWRRegressor

    Model = SUWRClassifier | SUWRRegressor


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0, 1 when an audit finds a leak, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (TypeError, ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"suwr: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="suwr", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    fit = verbs.add_parser("fit", help="train on a CSV, TSV or parquet file and save the model")
    _table(fit)
    fit.add_argument("--save", type=Path, required=True, help="folder for model.safetensors and model.json")
    fit.add_argument("--regression", action="store_true", help="the target is a number")
    fit.add_argument("--max-features", type=int)
    fit.add_argument("--sparsity", type=float, default=0.2, help="price of a feature, a tenth of it in nats")
    fit.add_argument("--max-epochs", type=int, default=300)
    fit.add_argument("--batch-size", type=int, default=100, help="2000 updates or more are wanted in all")
    fit.add_argument("--groups", nargs="+", default=[], metavar="A,B", help="columns that are revealed together")
    fit.add_argument("--costs", nargs="+", default=[], metavar="A=2.5", help="of columns or groups; others cost 1")
    fit.add_argument("--allow-missing", action="store_true", help="empty values cannot be revealed")
    fit.add_argument("--seed", type=int, default=0)
    fit.set_defaults(run=_fit)
    explain = verbs.add_parser("explain", help="what a saved model looks at in the rows of a file")
    _table(explain, required=False)
    explain.add_argument("--model", type=Path, required=True)
    explain.add_argument("--rows", type=int, default=3)
    explain.add_argument("--json", action="store_true")
    explain.set_defaults(run=_explain)
    audit = verbs.add_parser("audit", help="leakage tests of a saved model or of any function")
    _table(audit)
    chosen = audit.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--model", type=Path, help="a folder that `fit` saved")
    chosen.add_argument("--selector", help="package.module:name of a function from rows to boolean masks")
    audit.add_argument("--probes", type=int, default=5000)
    audit.add_argument("--knn", action="store_true", help="hidden values from near rows, to stay on the support")
    audit.set_defaults(run=_audit)
    return parser


def _table(parser: argparse.ArgumentParser, required: bool = True) -> None:
    parser.add_argument("file", type=Path)
    parser.add_argument("--target", required=required, help="name of the column to predict")


def _units(names: list[str], options: argparse.Namespace) -> tuple[list[list[int]] | None, list[float] | None]:
    """Groups (those that are named, then every other column alone) and costs, of `--groups` and `--costs`.

    Raises:
        ValueError: naming a column or a cost that is none.
    """
    groups = [group.split(",") for group in options.groups]
    for name in (name for group in groups for name in group):
        require_choice("a column of --groups", name, names)
    groups += [[name] for name in names if not any(name in group for group in groups)] if groups else []
    labels = [",".join(group) for group in groups] or names
    costs = dict.fromkeys(labels, 1.0)
    for given in options.costs:
        name, _, cost = given.rpartition("=")
        costs[require_choice("a column or group of --costs", name, labels)] = float(cost)
    columns = [[names.index(name) for name in group] for group in groups]
    return columns or None, list(costs.values()) if options.costs else None


def _fit(options: argparse.Namespace) -> int:
    from suwr.data import load_table
    from suwr.estimators import SUWRClassifier, SUWRRegressor

    X, y = load_table(options.file, options.target)
    kind = SUWRRegressor if options.regression else SUWRClassifier
    frame: Any = X
    groups, costs = _units(list(frame.columns), options)
    model = kind(
        max_features=options.max_features, sparsity=options.sparsity, max_epochs=options.max_epochs,
        batch_size=options.batch_size, groups=groups, feature_costs=costs, allow_missing=options.allow_missing,
        random_state=options.seed,
    ).fit(X, y)  # fmt: skip
    model.save_pretrained(options.save)
    shown = float(model.local_support(X).sum(axis=1).mean())
    told = {"training_score": float(model.score(X, y)), "mean_features": shown, "updates": model.history_.updates}
    print(json.dumps(told | {"saved": str(options.save)}))
    return 0


def _loaded(folder: Path) -> "Model":
    from suwr.estimators import SUWRClassifier, SUWRRegressor

    try:
        return SUWRClassifier.from_pretrained(folder)
    except ValueError as error:
        if "SUWRRegressor" not in str(error):
            raise
        return SUWRRegressor.from_pretrained(folder)


def _explain(options: argparse.Namespace) -> int:
    from suwr.data import load_table

    X, _ = load_table(options.file, options.target)
    frame: Any = X
    for row, narrative in enumerate(_loaded(options.model).explain(frame[: options.rows])):
        print(json.dumps(narrative.to_dict()) if options.json else f"row {row}\n{narrative}")
    return 0


def _audit(options: argparse.Namespace) -> int:
    from importlib import import_module

    from suwr.data import load_table
    from suwr.leakage import leakage_report

    X, y = load_table(options.file, options.target)
    if options.model:
        selector: Any = _loaded(options.model)
    else:
        module, _, name = options.selector.partition(":")
        if not name:
            raise ValueError(message("--selector", "package.module:name", options.selector))
        sys.path.insert(0, "")
        selector = getattr(import_module(module), name, None)
        if selector is None:
            raise ValueError(message("--selector", f"a name in {module}", name))
    conditional = "knn" if options.knn else None
    try:
        found = leakage_report(selector, X, np.asarray(y), n_probes=options.probes, conditional=conditional)
    except (LookupError, AttributeError, ArithmeticError) as error:  # not ours: ours have messages of their own
        raise RuntimeError(f"the selector failed: {type(error).__name__}: {error}") from error
    print(found)
    return 1 if found.is_leak_free is False else 0
