"""`offprints reproduce` and `bench`: measuring, and writing what was measured."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console

from offprints import card as cards
from offprints import plot
from offprints.checkpoint import write_atomic
from offprints.checks import message
from offprints.claims import Method, Verdict, load_method, record
from offprints.claims.runner import Outcome, run
from offprints.commands.base import Dist, Dists, app, committed, installed, print_json, source_of
from offprints.commands.screen import Screen


@app.command
def reproduce(
    dists: Dists = (),
    all: bool = False,
    scale: Literal["smoke", "cpu", "full"] = "cpu",
    claim: tuple[str, ...] = (),
    device: str = "cpu",
    jobs: int = os.cpu_count() or 1,
    executor: str = "processes",
    out: Path = Path("results"),
    record: Path | None = None,
    seed_offset: int = 0,
    json: bool = False,
    strict: bool = False,
) -> int:
    """Measure the claims of methods again; a run that was stopped continues.

    Args:
        dists: the methods.
        all: all that are installed.
        scale: how large: smoke (seconds), cpu (the committed results), full (the paper's).
        claim: only these claims.
        device: cpu, cuda, mps, or auto.
        jobs: local worker processes.
        executor: inline, processes, dask, or the address of a Dask scheduler.
        out: folder for finished runs, figures and the report.
        record: package folder whose claims.json and figures are written.
        seed_offset: added to the seeds 0..k-1.
        json: print the results as JSON on stdout.
        strict: exit with 1 when any claim fails.
    """
    chosen = installed() if all else {dist: load_method(dist) for dist in dists}
    if not chosen:
        raise ValueError("reproduce must be given a method, or --all. Try offprints list.")
    if device != "cpu":
        from offprints.device import pick_device

        device = str(pick_device(device))
    sections, contents, bad = [], {}, False
    for dist, method in chosen.items():
        if isinstance(method, str):
            print(f"{dist} is left out: {method}", file=sys.stderr)
            bad = True
            continue
        if record is not None:
            _may_record(method, record, scale, claim, seed_offset)
        outcomes = _measure(method, scale, claim, device, jobs, executor, out / dist, seed_offset)
        contents[dist], section = _written(method, outcomes, device, out / dist)
        if record is not None:
            _record(method, outcomes, contents[dist], record, out / dist, whole=not claim)
        failed = strict and any(outcome.verdict is Verdict.FAILS for outcome in outcomes)
        bad |= _worse(method, outcomes, scale) or failed
        sections.append(section)
    page = out / ("report.html" if len(chosen) > 1 else f"{next(iter(chosen))}/report.html")
    write_atomic(page, cards.report(sections, "Offprints: claims re-measured").encode())
    if json:
        print_json(contents if len(chosen) > 1 else contents[dist])
    else:
        print(f"report: {page}")
    return int(bad)


def _measure(
    method: Method, scale: str, claim: Sequence[str], device: str, jobs: int, executor: str, out: Path, seed_offset: int
) -> list[Outcome]:
    """Run and show; outcomes come back in the order of declaration."""
    chosen = list(method.pick(claim))
    console = Console(stderr=not sys.stdout.isatty())
    for one in chosen if scale == "full" else ():
        needs = one.scale(scale).needs or "what is not stated"
        console.print(f"{one.id} needs {needs} ({one.scale(scale).seeds} seeds)")
    if scale == "full":
        console.print(
            f"several GPUs: offprints reproduce {method.dist} --scale full --device cuda --executor tcp://scheduler:8786"
        )
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / ".writable", b"")  # before hours of computing, not after
    with Screen(method, sum(one.scale(scale).seeds for one in chosen), console) as screen:
        where = dict(device=device, out=out / "runs", executor=executor, jobs=jobs)
        for event in run(method, scale=scale, claims=claim, seed_offset=seed_offset, **where):
            screen.update(event)
    order = [one.id for one in chosen]
    return sorted(screen.outcomes, key=lambda outcome: order.index(outcome.claim.id))


def _written(method: Method, outcomes: Sequence[Outcome], device: str, out: Path) -> tuple[record.Json, str]:
    """Write claims.json and the figures whose runs are all in; return the content and the report's section."""
    content = record.to_json(method, outcomes, device)
    record.write(out / "claims.json", content)
    runs = {outcome.claim.id: outcome.runs for outcome in outcomes if outcome.runs is not None}
    drawn: dict[Path, str] = {}
    for figure in method.figures.values():
        if set(figure.needs) <= set(runs):
            with plot.style():
                picture = figure.draw({name: runs[name] for name in figure.needs})
            png, _ = plot.save(picture, out / "figures" / figure.id)
            drawn[png] = figure.caption
    return content, cards.section(method.title, method.summary, content, committed(method.dist, "bench.json"), drawn)


def _may_record(method: Method, folder: Path, scale: str, claim: Sequence[str], seed_offset: int) -> None:
    """Refuse, before anything is computed, what must not be committed."""
    if scale != "cpu" or seed_offset:
        raise ValueError(
            "committed results must be of the cpu scale and seeds 0..k-1. Drop --record, --scale or --seed-offset."
        )
    if not (folder / "pyproject.toml").exists():
        raise ValueError(message("record", f"the package folder of {method.dist}", str(folder)))
    old = folder / "claims.json"
    if claim and (not old.exists() or record.read(old)["fingerprint"] != source_of(method)):
        raise ValueError(f"{old} is of other source: all claims must be measured again. Drop --claim.")


def _record(
    method: Method, outcomes: Sequence[Outcome], content: record.Json, folder: Path, out: Path, whole: bool
) -> None:
    """Write claims.json and PNG figures into the package; single claims replace their entries only."""
    errors = [outcome.note for outcome in outcomes if outcome.error]
    if errors:
        raise ValueError(f"nothing recorded, finished runs are kept: {'; '.join(errors)}")
    if not whole:
        old = record.read(folder / "claims.json")
        fresh = {entry["id"]: entry for entry in content["claims"]}
        kept = {entry["id"]: entry for entry in old["claims"]} | fresh
        content = old | {
            "claims": [kept[name] for name in method.claims if name in kept],
            "cost": old["cost"] | content["cost"],
        }
    record.write(folder / "claims.json", content)
    for png in sorted((out / "figures").glob("*.png")):
        write_atomic(folder / "figures" / png.name, png.read_bytes())


def _worse(method: Method, outcomes: Sequence[Outcome], scale: str) -> bool:
    """Whether a claim broke, or its verdict is worse than the committed one of the same scale."""
    content = committed(method.dist, "claims.json") or {"claims": []}
    before = {entry["id"]: entry for entry in content["claims"] if entry["scale"] == scale}
    bad = False
    for outcome in outcomes:
        old = before.get(outcome.claim.id)
        worse = old is not None and outcome.verdict.rank > Verdict(old["verdict"]).rank
        if outcome.error or worse:
            was = f" (committed: {old['verdict']})" if old else ""
            print(f"{outcome.claim.id}: {outcome.verdict.value}{was} {outcome.note}".rstrip(), file=sys.stderr)
            bad = True
    return bad


@app.command
def bench(dist: Dist, record: Path | None = None, rounds: int = 0) -> int:
    """Run the benchmarks of one method (they live in the repository, not in the wheel).

    Args:
        dist: the method.
        record: package folder whose bench.json is written.
        rounds: rounds of each duel, 0 for the default.
    """
    folder = record or Path("packages") / load_method(dist).dist
    if not (folder / "benchmarks").is_dir():
        place = f"in the package's folder of the repository ({folder})"
        raise ValueError(message("benchmarks", place, "nothing", "Use --record FOLDER."))
    options = ["-q", "-s", "-p", "offprints.testing.plugin", *([f"--duel-rounds={rounds}"] if rounds else [])]
    options += [f"--duel-record={folder / 'bench.json'}"] if record else []
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(folder / "benchmarks")], check=False
    ).returncode
