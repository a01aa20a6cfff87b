"""`offprints verify`, `fresh`, `card`: whether committed results, sources and README agree."""

import random
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from offprints import bench as duels
from offprints import card as cards
from offprints.checkpoint import write_atomic
from offprints.claims import Claim, Method, Runs, exact, load_method, record
from offprints.claims.runner import compute, judge
from offprints.commands.base import Dist, Folder, app, committed, source_of


@app.command
def verify(dist: Dist, against: Path | None = None, draw: int | None = None) -> int:
    """Recompute one claim and seed, drawn by lot, and compare with the committed metrics.

    Args:
        dist: the method.
        against: package folder that holds claims.json; by default what the installed package carries.
        draw: seed of the lot, to repeat a draw.
    """
    method = load_method(dist)
    content = record.read(against / "claims.json") if against else committed(dist, "claims.json")
    entries = [entry for entry in (content or {"claims": []})["claims"] if entry["metrics"]]
    if not entries:
        raise ValueError(f"{dist} has no committed results to verify.")
    draw = random.SystemRandom().randrange(2**31) if draw is None else draw
    lot = random.Random(draw)
    entry = lot.choice(entries)
    place = lot.randrange(len(entry["seeds"]))
    claim, seed = method.claims[entry["id"]], entry["seeds"][place]
    print(f"{dist}: claim {claim.id}, seed {seed} (drawn by lot {draw})")
    with tempfile.TemporaryDirectory() as folder:
        output = compute(dist, claim.id, entry["scale"], "cpu", seed, str(Path(folder) / "run.json"))
    off = _differences(claim, output["metrics"], {name: values[place] for name, values in entry["metrics"].items()})
    for line in off:
        print(f"  {line}")
    print("differs" if off else f"agrees: {len(output['metrics'])} metrics within {claim.tolerance:g}")
    return int(bool(off))


def _differences(claim: Claim, now: dict[str, float], then: dict[str, float]) -> list[str]:
    """Metrics off by more than the tolerance, relative to max(|committed|, 1e-6); six digits are committed."""
    tolerance = max(claim.tolerance, 1e-5)
    apart = sorted(set(now) ^ set(then))
    off = [f"{name}: only in {'the recomputation' if name in now else 'the committed file'}" for name in apart]
    for name in sorted(set(now) & set(then)):
        if abs(now[name] - then[name]) > tolerance * max(abs(then[name]), 1e-6):
            off.append(f"{name}: committed {then[name]:.6g}, recomputed {now[name]:.6g}, tolerance {tolerance:g}")
    return off


def stale(method: Method, folder: Path) -> list[str]:
    """What is not fresh about a package's result files: other source, sizes, seeds, expectations; or nothing there."""
    found = []
    try:
        content = record.read(folder / "claims.json")
    except FileNotFoundError:
        return ["claims.json is missing: nox -s reproduce"]
    if content["fingerprint"] != source_of(method):
        found.append("claims.json was made by other source: nox -s reproduce")
    entries = {entry["id"]: entry for entry in content["claims"]}
    if list(entries) != list(method.claims):
        found.append(f"claims.json holds {', '.join(entries)}; the method declares {', '.join(method.claims)}")
    for name in entries.keys() & method.claims.keys():
        found += [f"{name}: {problem}" for problem in _stale_entry(method.claims[name], entries[name])]
    tests = folder / "benchmarks" / "test_bench.py"
    if tests.exists():
        try:
            if record.read(folder / "bench.json", duels.SCHEMA)["fingerprint"] != duels.fingerprint(method.dist, tests):
                found.append("bench.json was made by other source: nox -s bench")
        except FileNotFoundError:
            found.append("bench.json is missing: nox -s bench")
    return found


def _stale_entry(claim: Claim, entry: record.Json) -> list[str]:
    scale = claim.scale(entry["scale"])
    if entry["sizes"] != {name: repr(size) for name, size in scale.sizes.items()} or len(entry["seeds"]) < scale.seeds:
        return ["sizes or seeds have changed: nox -s reproduce"]
    if not entry["metrics"]:
        return []
    values, seeds = entry["metrics"], entry["seeds"]
    runs = Runs(tuple(seeds), tuple({"metrics": {name: values[name][k] for name in values}} for k in range(len(seeds))))
    try:
        again = judge(claim, entry["scale"], runs)
    except KeyError as missing:
        return [f"an expectation reads {missing}, which the results do not hold: nox -s reproduce"]
    same = [finding.text for finding in again.findings] == [finding["text"] for finding in entry["expect"]]
    texts = (claim.says, claim.where, claim.note, record.rounded(dict(claim.paper))) == tuple(
        entry[k] for k in ("says", "where", "note", "paper")
    )
    fine = {one.metric: 1e-5 * max(map(abs, values[one.metric])) for one in claim.expect if isinstance(one, exact)}
    filed = [
        replace(one, tol=max(one.tol, fine[one.metric])) if isinstance(one, exact) else one for one in claim.expect
    ]
    verdict = judge(replace(claim, expect=tuple(filed)), entry["scale"], runs).verdict  # files hold six digits
    changed = not same or verdict.value != entry["verdict"] or not texts
    return ["text or expectations have changed: nox -s reproduce (finished runs are reused)"] if changed else []


@app.command
def fresh(folder: Folder) -> int:
    """Check that a package's result files were made by its present source; exit status 1 if not.

    Args:
        folder: the package's folder.
    """
    problems = stale(load_method(folder.resolve().name), folder)
    for problem in problems:
        print(f"{folder.name}: {problem}", file=sys.stderr)
    return int(bool(problems))


@app.command
def card(folder: Folder, check: bool = False) -> int:
    """Fill the result blocks of a package's README from its result files.

    Args:
        folder: the package's folder.
        check: change nothing; exit with 1 if the README would change.
    """
    readme = folder / "README.md"
    text = readme.read_text("utf-8")
    renders: dict[str, Callable[[], str]] = {
        "claims": lambda: cards.claims_block(record.read(folder / "claims.json")),
        "bench": lambda: cards.bench_block(record.read(folder / "bench.json", duels.SCHEMA)),
    }
    filled = cards.with_blocks(text, {name: render() for name, render in renders.items()})
    if check and filled != text:
        print(f"{readme} differs from its result files: nox -s card", file=sys.stderr)
    elif filled != text:
        write_atomic(readme, filled.encode())
    return int(check and filled != text)
