"""The command line: `knowrlm plate` proposes the next plate, `knowrlm simulate` compares methods on a table."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from knowrlm.benchmark import METHODS, evaluate
from knowrlm.constraints import PlateConstraints
from knowrlm.evolve import DirectedEvolution
from knowrlm.landscape import load_landscape
from knowrlm.predictor import MODELS, EnsemblePredictor
from knowrlm.settings import WalkSettings


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; errors of the input are one line on stderr and status 2."""
    options = _parser().parse_args(argv)
    try:
        return options.run(options)
    except (FileNotFoundError, TypeError, ValueError) as error:
        print(f"knowrlm: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="knowrlm", description="Plates for directed evolution.")
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    both = argparse.ArgumentParser(add_help=False)
    both.add_argument("--batch", type=int, default=96, help="variants on the plate")
    both.add_argument("--steps", type=int, default=3000, help="steps of the walks")
    both.add_argument("--plm", default="scales", help="scales, none, unirep-64, or the folder of an ESM-2 model")
    both.add_argument("--models", help=f"of the predictor, its best 3 are averaged: out of {', '.join(MODELS)}")
    plate = verbs.add_parser("plate", parents=[both], help="propose the next plate")
    plate.add_argument("--parent", required=True, help="the parent sequence, or a FASTA file that holds it")
    plate.add_argument("--sites", required=True, help="1-based, such as 39,40,41,54 or V39,D40,G41,V54")
    plate.add_argument(
        "--measured", nargs="*", default=[], type=Path, help="tables of measured variants, plate by plate"
    )
    plate.add_argument("--allowed", help="residues at sites, such as 28:TP,30:SR; all 20 at the others")
    plate.add_argument("--codons", help="degenerate codon, such as NNK or NDT")
    plate.add_argument("--forbid", default="", help="residues that may not be put in, such as CP")
    plate.add_argument("--max-mutations", type=int, help="against the parent")
    plate.add_argument("--last", action="store_true", help="the last plate: the best predictions of the whole space")
    plate.add_argument("--seed", type=int, default=0)
    plate.add_argument("--out", type=Path, help="write the plate as .csv there instead of to standard output")
    plate.set_defaults(run=_plate)
    simulate = verbs.add_parser("simulate", parents=[both], help="compare methods on a measured landscape")
    simulate.add_argument("landscape", type=Path, help=".csv, .tsv or .xlsx with columns variant and fitness")
    simulate.add_argument("--methods", default="knowrlm,random,mlde,active", help=f"out of {', '.join(METHODS)}")
    simulate.add_argument("--rounds", type=int, default=3)
    simulate.add_argument("--seeds", type=int, default=5)
    simulate.add_argument("--out", type=Path, help="write one row a campaign as .csv there")
    simulate.set_defaults(run=_simulate)
    return parser


def _plate(options: argparse.Namespace) -> int:
    sites = [int(site) if site.isdigit() else site for site in options.sites.replace(" ", "").split(",")]
    constraints = PlateConstraints(forbidden=options.forbid, codons=options.codons, max_mutations=options.max_mutations)
    evolution = DirectedEvolution(
        read_parent(options.parent), sites, batch=options.batch, constraints=constraints, random_state=options.seed,
        allowed=read_allowed(options.allowed),
        walk=WalkSettings(plm=options.plm, steps=options.steps), predictor=_predictor(options, options.seed),
    )  # fmt: skip
    for table in options.measured:
        evolution.tell(table)
    plate = evolution.recommend() if options.last else evolution.ask()
    text = plate.to_csv(options.out, index=False)
    if text is not None:
        print(text, end="")
    return 0


def _simulate(options: argparse.Namespace) -> int:
    landscape = load_landscape(options.landscape, allowed="observed")
    found = evaluate(
        options.methods.split(","), landscape, rounds=options.rounds, seeds=options.seeds, batch=options.batch,
        walk=WalkSettings(steps=options.steps, plm=options.plm), predictor=_predictor(options),
    )  # fmt: skip
    if options.out is not None:
        found.table.to_csv(options.out, index=False)
    print(landscape)
    print(found.summary().round(4).to_string())
    return 0


def _predictor(options: argparse.Namespace, seed: int = 0) -> EnsemblePredictor | None:
    if options.models is None:
        return None
    return EnsemblePredictor(options.models.split(","), random_state=seed)


def read_allowed(text: str | None) -> dict[int, str] | None:
    """`28:TP,30:SR` as {28: "TP", 30: "SR"}."""
    if text is None:
        return None
    pairs = [part.strip().partition(":") for part in text.split(",")]
    for site, _, letters in pairs:
        if not site.isdigit() or not letters:
            raise ValueError(f"--allowed must be <site>:<residues>,…, such as 28:TP,30:SR, got {text!r}.")
    return {int(site): letters for site, _, letters in pairs}


def read_parent(text: str) -> str:
    """A sequence as it stands, or the only record of a FASTA file."""
    path = Path(text)
    if path.suffix.lower() not in (".fasta", ".fa", ".faa"):
        return text
    from Bio import SeqIO

    if not path.exists():
        raise FileNotFoundError(f"no file {path}.")
    with path.open(encoding="utf-8") as file:
        records = list(SeqIO.parse(file, "fasta"))
    if len(records) != 1:
        raise ValueError(f"{path} must hold one sequence, got {len(records)}.")
    return str(records[0].seq)
