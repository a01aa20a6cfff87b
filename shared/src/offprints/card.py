"""Result files rendered: the blocks of a README, tables of the docs, and one self-contained HTML report."""

import base64
import html
import math
import re
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template

import numpy as np

from offprints.claims.record import Json

MARKS = {"holds": "✓", "pass": "✓", "open": "○", "not run": "–", "fails": "✗", "fail": "✗"}  # from best to worst
SHOWN = 3
"""Expectations of a claim that a table shows; the result file holds all."""
Table = tuple[list[str], list[list[str]]]


def number(value: float | None) -> str:
    """Three significant digits, or ∞ where the file holds none."""
    return "∞" if value is None or not math.isfinite(value) else f"{value:.3g}"


def interval(ends: Sequence[float | None] | None) -> str:
    """`[low, high]`, or nothing."""
    if ends is None:
        return ""
    low, high = ("-∞" if ends[0] is None else number(ends[0])), number(ends[1])
    return f" [{low}, {high}]"


def verdict(word: str | None) -> str:
    """The verdict with its sign; nothing was demanded where there is none."""
    return f"{MARKS[word]} {word}" if word else "no target"


def measured(claim: Json) -> str:
    """What was found: the paper's metrics as mean over seeds, else the expectations (the worst first)."""
    metrics = {name: float(np.mean(values)) for name, values in claim["metrics"].items()}
    shared = [f"{name} {number(metrics[name])}" for name in claim["paper"] if name in metrics]
    if shared:
        return ", ".join(shared)
    worst_first = sorted(claim["expect"], key=lambda finding: -list(MARKS).index(finding["verdict"]))
    found = [f"{f['text']}: {number(f['statistic'])}{interval(f['interval'])}" for f in worst_first[:SHOWN]]
    rest = [f"and {len(worst_first) - SHOWN} more"] if len(worst_first) > SHOWN else []
    return "; ".join(found + rest) or claim["note"] or "–"


def claims_table(content: Json) -> Table:
    """Head and rows of a claims.json: claim · paper · here · verdict."""
    rows = []
    for claim in content["claims"]:
        paper = ", ".join(f"{name} {number(value)}" for name, value in claim["paper"].items()) or "–"
        rows.append([f"{claim['says']} ({claim['where']})", paper, measured(claim), verdict(claim["verdict"])])
    return ["claim", "paper", "here", "verdict"], rows


def bench_table(content: Json) -> Table:
    """Head and rows of a bench.json: what · against · size · times faster · target · memory of both · verdict."""
    rows = []
    for duel in content["duels"]:
        target = number(duel["target"]) if duel["target"] is not None else "–"
        ratio = f"{number(duel['ratio'])}{interval(duel['interval'])}"
        memory = duel["memory"] and f"{duel['memory']['ours'] / 2**20:.1f} / {duel['memory']['peer'] / 2**20:.1f}"
        rows.append(
            [duel["id"], duel["peer"], str(duel["size"]), ratio, target, memory or "–", verdict(duel["verdict"])]
        )
    return ["duel", "against", "size", "times faster", "target", "peak MiB, ours / peer", "verdict"], rows


def markdown(table: Table) -> str:
    """A table as Markdown."""
    head, rows = table
    lines = [
        head,
        ["---"] * len(head),
        *([cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def claims_block(content: Json) -> str:
    """The README block of a claims.json: the table, notes of the claims that have one, and how it was made."""
    notes = [f"- *{claim['id']}*: {claim['note']}" for claim in content["claims"] if claim["note"]]
    env = content["env"]
    seeds = max(len(claim["seeds"]) for claim in content["claims"])
    seconds = sum(content["cost"].values())
    made = f"Made by `offprints reproduce` in {seconds:.0f} s of one {env['cpu']} core, up to {seeds} seeds"
    versions = ", ".join(f"{name} {version}" for name, version in env["versions"].items())
    return "\n".join([markdown(claims_table(content)), "", *notes, *([""] if notes else []), f"{made} ({versions})."])


def bench_block(content: Json) -> str:
    """The README block of a bench.json."""
    growth = {d["id"]: d["growth"] for d in content["duels"] if d.get("growth")}
    lines = [
        f"- *{name}*: time grows as {g['expected']}, fitted exponent {number(g['fitted'])}"
        for name, g in growth.items()
    ]
    made = f"Times faster, median and 95 % interval over interleaved rounds, one thread, {content['env']['cpu']}."
    return "\n".join([markdown(bench_table(content)), "", *lines, *([""] if lines else []), made])


def with_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """The text with each `<!-- name:begin -->` ... `<!-- name:end -->` filled anew.

    Raises:
        ValueError: if a marker is missing.
    """
    for name, block in blocks.items():
        pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"README.md must hold <!-- {name}:begin --> and <!-- {name}:end -->, got no such pair.")
        text = pattern.sub(lambda found, block=block: f"{found[1]}{block}\n{found[2]}", text)
    return text


PAGE = Template(resources.files("offprints").joinpath("report.html").read_text("utf-8"))


def _html_table(table: Table) -> str:
    cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in table[0])
    lines = []
    for row in table[1]:
        kind = row[-1].split()[1]
        body = "".join(f"<td>{html.escape(cell)}</td>" for cell in row[:-1])
        lines.append(f'<tr>{body}<td class="{kind}">{html.escape(row[-1])}</td></tr>')
    return f'<div class="wide"><table><tr>{cells}</tr>{"".join(lines)}</table></div>'


def section(title: str, summary: str, claims: Json, bench: Json | None, figures: Mapping[Path, str]) -> str:
    """One method of the report.

    Args:
        title: of the paper.
        summary: one line.
        claims: content of claims.json.
        bench: content of bench.json, or None.
        figures: captions by PNG file.
    """
    parts = [
        f"<h1>{html.escape(title)}</h1><p>{html.escape(summary)}</p><h2>Claims</h2>",
        _html_table(claims_table(claims)),
    ]
    notes = [f"{claim['id']}: {claim['note']}" for claim in claims["claims"] if claim["note"]]
    parts += [f'<p class="note">{html.escape(note)}</p>' for note in notes]
    for file, caption in figures.items():
        data, text = base64.b64encode(file.read_bytes()).decode(), html.escape(caption)
        parts.append(
            f'<figure><img alt="{text}" src="data:image/png;base64,{data}"><figcaption>{text}</figcaption></figure>'
        )
    if bench is not None:
        parts += ["<h2>Benchmarks</h2>", _html_table(bench_table(bench))]
    env = ", ".join(f"{key} {value}" for key, value in claims["env"].items() if key != "versions")
    versions = ", ".join(f"{name} {version}" for name, version in claims["env"]["versions"].items())
    return "\n".join([*parts, f"<footer>{html.escape(env)}; {html.escape(versions)}</footer>"])


def report(sections: Sequence[str], title: str) -> str:
    """The whole HTML report: nothing in it is fetched from elsewhere."""
    return PAGE.substitute(title=html.escape(title), body="\n<hr>\n".join(sections))
