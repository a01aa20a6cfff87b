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
from offprints.claims import load_method, methods
from offprints.claims.record import Json
from offprints.commands.base import COLOURS, Dist, app, committed, print_json, rich_table, source_of


def _counts(dist: str) -> dict[str, int]:
    content = committed(dist, "claims.json")
    return dict(Counter(claim["verdict"] for claim in content["claims"])) if content else {}


@app.command(name="list")
def list_(json: bool = False) -> int:
    """List the methods installed here.

    Args:
        json: print JSON.
    """
    found, fields = map(load_method, methods()), ("dist", "version", "field", "summary")
    rows: list[Json] = [{name: getattr(m, name) for name in fields} | {"verdicts": _counts(m.dist)} for m in found]
    if json:
        print_json(rows)
        return 0
    table = Table("method", "version", "field", "what it does", "claims")
    for row in rows:
        counts = "  ".join(f"[{COLOURS[v]}]{n} {v}[/]" for v, n in row["verdicts"].items())
        table.add_row(f"[bold]{row['dist']}[/]", row["version"], row["field"], row["summary"], counts or "not measured")
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
    optional = {
        name: "present" if util.find_spec(name) else f'missing: pip install "{extra}"' for name, extra in parts.items()
    }
    devices, floats = ["cpu"], ["float32", "float64"]
    if util.find_spec("torch"):
        from offprints.device import float_dtype, pick_device

        best = pick_device()
        devices = sorted({"cpu", str(best)})
        floats = ["bfloat16", "float32", *(["float64"] if str(float_dtype(best)).endswith("64") else [])]
    results = {}
    for dist in methods():
        method = load_method(dist)
        content = committed(dist, "claims.json")
        same = content is not None and content["fingerprint"] == source_of(method)
        results[dist] = "fresh" if same else "not measured" if content is None else "made by other source"
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
