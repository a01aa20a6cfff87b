"""The command line: train on a graph file, embed another one, predict pairs."""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from duplex_embed.embedding import TASKS
from duplex_embed.evaluation import evaluate
from duplex_embed.graph import Graph
from duplex_embed.inputs import INITS
from duplex_embed.model import DUPLEX
from duplex_embed.readers import FORMATS, read_graph
from duplex_embed.splits import split_edges


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; returns the exit status (0, 2 for wrong usage, 130 when interrupted)."""
    parser = argparse.ArgumentParser(prog="duplex-embed", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    _train_options(verbs.add_parser("train", help="split the links, train, report the four link tasks, save"))
    embed = verbs.add_parser("embed", help="embed a graph by a saved model, unseen nodes too")
    _graph_options(embed)
    embed.add_argument("--model", type=Path, required=True)
    embed.add_argument("--out", type=Path, required=True, help="where the embedding goes")
    predict = verbs.add_parser("predict", help="probabilities of pairs, from a CSV of two names a line, to stdout")
    predict.add_argument("--model", type=Path, required=True)
    predict.add_argument("--pairs", type=Path, required=True)
    predict.add_argument("--task", choices=TASKS, default="type")
    options = parser.parse_args(arguments)
    try:
        {"train": _train, "embed": _embed, "predict": _predict}[options.verb](options)
    except (TypeError, ValueError, OSError) as error:
        print(f"duplex-embed: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("duplex-embed: interrupted, nothing was written", file=sys.stderr)
        return 130
    return 0


def _graph_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--edges", type=Path, required=True, help="the graph file")
    parser.add_argument("--format", choices=FORMATS, default="csv")


def _train_options(parser: argparse.ArgumentParser) -> None:
    _graph_options(parser)
    add = parser.add_argument
    add("--epochs", type=int, default=300)
    add("--dim", type=int, default=64)
    add("--layers", type=int, default=3)
    add("--lr", type=float, default=1e-2)
    add("--dropout", type=float, default=0.1)
    add("--init", choices=INITS, default="degree")
    add("--batch-size", type=int, help="pairs in a step; the whole graph by default")
    add("--fanout", type=int, nargs=2, metavar=("IN", "OUT"), help="neighbours drawn per node and layer")
    add("--val", type=float, default=0.05, help="share of links")
    add("--test", type=float, default=0.15, help="share of links; 0 trains on all")
    add("--official-leak", action="store_true", help="let test edges carry messages, as the official code does")
    add("--seed", type=int, default=0)
    add("--device", default="auto")
    add("--out", type=Path, required=True, help="where the model goes")


def _train(options: argparse.Namespace) -> None:
    graph = read_graph(options.edges, options.format)
    split = split_edges(graph, options.val, options.test, options.seed, official_leak=options.official_leak)
    settings = {name: getattr(options, name) for name in ("dim", "layers", "lr", "dropout", "init", "device")}
    model = DUPLEX(**settings, random_state=options.seed)
    fanout = tuple(options.fanout) if options.fanout else None
    val = split.val if len(split.val) else None
    model.fit(split.train, val, epochs=options.epochs, batch_size=options.batch_size, fanout=fanout)
    if len(split.test):
        print(evaluate(model, split.test))
    print(f"saved {model.save(options.out)}")


def _embed(options: argparse.Namespace) -> None:
    model = DUPLEX.load(options.model)
    found = model.embed(read_graph(options.edges, options.format))
    found.save(options.out)
    print(f"saved {found.num_nodes} nodes")


def _predict(options: argparse.Namespace) -> None:
    model = DUPLEX.load(options.model)
    with open(options.pairs, encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    bad = next((row for row in rows if len(row) < 2), None)
    if bad is not None or not rows:
        raise ValueError(f"{options.pairs} must hold source and target on each line, got {bad or 'an empty file'}.")
    pairs = [(row[0].strip(), row[1].strip()) for row in rows]
    if model.graph.names is None or isinstance(model.graph.names[0], int):
        pairs = [(_number(u), _number(v)) for u, v in pairs]
    columns = {"existence": ["edge"], "direction": ["forward"], "three": ["reverse", "forward", "none"]}
    found = model.predict_edges(_known(model.graph, pairs), options.task).reshape(len(pairs), -1)
    names = columns.get(options.task, ["reverse", "forward", "both", "none", "negative"][: found.shape[1]])
    print(",".join(["source", "target", *names]))
    for (u, v), row in zip(pairs, found, strict=True):
        print(",".join([str(u), str(v), *(f"{p:.6f}" for p in row)]))


def _known(graph: Graph, pairs: Sequence) -> Sequence:
    return graph.indices(pairs)  # type: ignore[bad-return]


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"pairs must hold node numbers, got {text!r}.") from None
