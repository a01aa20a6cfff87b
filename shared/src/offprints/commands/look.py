"""`offprints list`, `show`, `doctor`: what is here."""

import os
import platform
from collections import Counter
from importlib import metadata, util

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from offprints import card as cards
from offprints.claims import Method, Verdict, load_method
from offprints.claims.record import Json
from offprints.commands.base import COLOURS, Dist, app, committed, installed, print_json, rich_table, source_of


def _counts(dist: str) -> dict[str, int]:
    content = committed(dist, "claims.json")
    counts = Counter(claim["verdict"] for claim in content["claims"]) if content else Counter()
    return {verdict.value: counts[verdict.value] for verdict in Verdict if counts[verdict.value]}


def _state(method: Method) -> str:
    made = (committed(method.dist, "claims.json") or {}).get("fingerprint", "")
    return "not measured" if not made else "fresh" if made == source_of(method) else "made by other source"


@app.command(name="list")
def list_(json: bool = False) -> int:
    """List the methods installed here.

    Args:
        json: print JSON.
    """
    rows: list[Json] = []
    for dist, m in installed().items():
        field, summary = (m.field, m.summary) if isinstance(m, Method) else ("", m)
        version, verdicts = metadata.version(dist), _counts(dist)
        rows.append(dict(dist=dist, version=version, field=field, summary=summary, verdicts=verdicts))
    if json:
        print_json(rows)
        return 0
    table = Table("method", "version", "field", "what it does", "claims")
    for row in rows:
        counts = "\n".join(f"[{COLOURS[v]}]{n} {v}[/]" for v, n in row["verdicts"].items())
        texts = map(escape, (row["version"], row["field"], row["summary"]))
        table.add_row(f"[bold]{row['dist']}[/]", *texts, counts or "not measured")
    Console().print(table)
    return 0


@app.command
def show(dist: Dist, json: bool = False) -> int:
    """Show one method: paper, claims with verdicts, benchmarks.

    Args:
        dist: the method.
        json: print JSON.
    """
    method = load_method(dist)
    claims, bench = committed(dist, "claims.json"), committed(dist, "bench.json")
    if json:
        fields = ("dist", "version", "title", "authors", "venue", "arxiv", "code", "field", "summary", "bibtex")
        print_json({name: getattr(method, name) for name in fields} | {"claims": claims, "bench": bench})
        return 0
    console = Console()
    link = f", arXiv {method.arxiv}" if method.arxiv else ""
    console.print(f"[bold]{method.dist} {method.version}[/]: {method.summary}")
    console.print(f"{method.title}. {method.authors}. {method.venue}{link}")
    for content, render in ((claims, cards.claims_table), (bench, cards.bench_table)):
        if content is not None:
            console.print(rich_table(render(content)))
    console.print(*(f"deviation: {deviation}" for deviation in method.deviations), sep="\n", markup=False)
    return 0


@app.command
def doctor(json: bool = False) -> int:
    """Tell what is here: versions, devices, floats, threads, optional parts, and whether results are fresh.

    Args:
        json: print JSON.
    """
    parts = dict(torch="torch", matplotlib="offprints[repro]", distributed="offprints[dask]", pytest="offprints[test]")
    lacks = {name: f'missing: pip install "{extra}"' for name, extra in parts.items()}
    optional = {name: "present" if util.find_spec(name) else lack for name, lack in lacks.items()}
    devices, floats = ["cpu"], ["float32", "float64"]
    if util.find_spec("torch"):
        from offprints.device import float_dtype, pick_device

        best = pick_device()
        devices = sorted({"cpu", str(best)})
        floats = ["bfloat16", "float32", *(["float64"] if str(float_dtype(best)).endswith("64") else [])]
    results = {dist: m if isinstance(m, str) else _state(m) for dist, m in installed().items()}
    facts: Json = {
        "python": platform.python_version(), "system": platform.platform(), "offprints": metadata.version("offprints"),
        "numpy": np.__version__, "cores": os.cpu_count(), "devices": devices, "floats": floats, "optional": optional,
        "results": results,
    }  # fmt: skip
    if json:
        print_json(facts)
        return 0
    table = Table("what", "here", show_header=False)
    for name, value in facts.items():
        lines = [f"{k}: {v}" for k, v in value.items()] if isinstance(value, dict) else np.atleast_1d(value).astype(str)
        table.add_row(f"[bold]{name}[/]", escape("\n".join(lines)))
    Console().print(table)
    return 0
