"""The command line: release labels of a file, thresholds and outlook from public parameters, an audit, timings."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from private_sbm.auditing import audit
from private_sbm.data import FORMATS, LISTS, format_of, load_graph
from private_sbm.estimator import PrivateSBM
from private_sbm.explain import utility_report
from private_sbm.mechanism import NOISES
from private_sbm.parameters import NEIGHBORS
from private_sbm.penalty import LAMS
from private_sbm.scale import measure
from private_sbm.thresholds import MODELS, private_threshold


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status: 0, 2 for wrong usage, 3 when an audit finds a violation."""
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except (TypeError, ValueError, OSError) as error:
        print(f"private-sbm: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="private-sbm", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    release = verbs.add_parser("release", help="labels of a graph file, or null, as JSON")
    release.add_argument("file", type=Path)
    release.add_argument("--format", choices=sorted(set(FORMATS.values())), help="by default from the suffix")
    nodes = "the public vertices of a list of edges: their number (snap), or a file with a name a line (edges, signed)"
    release.add_argument("--nodes", help=nodes)
    release.add_argument("--save", type=Path, help="write the release here too (safetensors and JSON)")
    release.add_argument("--no-strict", action="store_true", help="release even where the solver is heuristic")
    _model_options(release)
    _privacy_options(release)
    release.set_defaults(run=_release)
    threshold = verbs.add_parser("threshold", help="the smallest eps as n grows, at delta = n^-gamma")
    _model_options(threshold)
    threshold.add_argument("--gamma", type=float, default=2.0)
    threshold.add_argument("--xi", type=float)
    threshold.set_defaults(run=_threshold)
    outlook = verbs.add_parser("outlook", help="whether a release is to be expected, from public guesses")
    outlook.add_argument("--n", type=int, required=True)
    outlook.add_argument("--degrees", type=float, nargs=2, required=True, metavar=("INSIDE", "ACROSS"))
    outlook.add_argument("--model", choices=MODELS, default="asymmetric")
    outlook.add_argument("--rho", type=float, default=0.5)
    _privacy_options(outlook)
    outlook.set_defaults(run=_outlook)
    check = verbs.add_parser("audit", help="exact privacy loss over neighbouring graphs made for it")
    check.add_argument("--pairs", type=int, default=500)
    check.add_argument("--samples", type=int, default=0)
    check.add_argument("--seed", type=int, default=0)
    _model_options(check)
    _privacy_options(check)
    check.set_defaults(run=_audit)
    scale = verbs.add_parser("scale", help="time of one margin on a sampled graph, as JSON")
    scale.add_argument("--n", type=int, default=100_000)
    scale.add_argument("--a", type=float, default=20.0)
    scale.add_argument("--b", type=float, default=2.0)
    scale.add_argument("--seed", type=int, default=0)
    scale.set_defaults(run=_scale)
    return parser


def _model_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", choices=MODELS, default="asymmetric")
    add("--a", type=float, help="n p / ln n, public")
    add("--b", type=float, help="n q / ln n, public")
    add("--rho", type=float, help="size of the smallest community over n, public")
    add("--lam", default="tau", help="tau, balanced, noisy-density or a number")
    add("--eta", default="auto", help="trace penalty of the general model with outliers: auto or a number")
    add("--no-outliers", action="store_true", help="general model: every vertex is in a cluster")
    add("--neighbor", choices=NEIGHBORS, default="edge", help="relabel: a flipped label is one step too (censored)")


def _privacy_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--eps", type=float, default=1.0)
    add("--delta", type=float, default=1e-6)
    add("--noise", choices=NOISES, default="discrete")


def _estimator(options: argparse.Namespace) -> PrivateSBM:
    lam = options.lam if options.lam in LAMS else float(options.lam)
    eta = options.eta if options.eta == "auto" else float(options.eta)
    return PrivateSBM(
        options.model, a=options.a, b=options.b, rho=options.rho, lam=lam, eta=eta, eps=options.eps,
        delta=options.delta, noise=options.noise, neighbor=options.neighbor, outliers=not options.no_outliers,
        strict=not getattr(options, "no_strict", False),
    )  # fmt: skip


def _release(options: argparse.Namespace) -> int:
    kind = options.format or format_of(options.file)
    graph = load_graph(options.file, kind, _nodes(options.nodes, kind))
    estimator = _estimator(options).fit(graph)
    result = estimator.result_
    labels = None
    if result.labels is not None:
        labels = dict(zip(map(str, graph.nodes), result.labels.tolist(), strict=True))
    if options.save:
        estimator.save(options.save)
    print(json.dumps({**result._asdict(), "labels": labels}))
    return 0


def _nodes(given: str | None, kind: str) -> int | list[str] | None:
    """The vertices of a list; a release names them all, so they must not come from the edges.

    Raises:
        ValueError: if a list comes without.
    """
    if given is None:
        if kind in LISTS:
            raise ValueError(f"--nodes must be given for {kind}: which vertices have an edge is secret.")
        return None
    if kind == "snap":
        return int(given)
    return Path(given).read_text(encoding="utf-8").split()


def _threshold(options: argparse.Namespace) -> int:
    if options.a is None:
        raise ValueError("--a must be given: n p / ln n.")
    rho = 0.5 if options.rho is None else options.rho
    found = private_threshold(
        options.model, gamma=options.gamma, a=options.a, b=options.b, rho=rho, xi=options.xi,
        outliers=not options.no_outliers,
    )  # fmt: skip
    print(f"{2 * found if options.neighbor == 'relabel' else found:.6g}")
    return 0


def _outlook(options: argparse.Namespace) -> int:
    found = utility_report(
        options.n, tuple(options.degrees), eps=options.eps, delta=options.delta, model=options.model, rho=options.rho,
        noise=options.noise,
    )  # fmt: skip
    print(found.summary())
    return 0


def _audit(options: argparse.Namespace) -> int:
    report = audit(_estimator(options), options.pairs, samples=options.samples, seed=options.seed)
    print(report.summary())
    return 0 if report.passed else 3


def _scale(options: argparse.Namespace) -> int:
    print(json.dumps(measure(options.n, options.a, options.b, seed=options.seed)._asdict()))
    return 0
