"""Quick duels of a change against the point where its branch began, as a table. Nothing is judged by it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import nox

from tools.environment import build, install
from tools.workspace import CORE, ROOT, Package, discover, git, name_of

ROUNDS = "5"


def run(session: nox.Session, packages: list[Package], since: str) -> None:
    """Time the packages' duels in a work tree of the base and in this one; print ratio before → after."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        git("worktree", "add", "--detach", "--quiet", str(base), git("merge-base", since, "HEAD").strip())
        try:
            before = {package.dist: ratios(session, base, package, Path(folder) / "before") for package in packages}
            after = {package.dist: ratios(session, ROOT, package, Path(folder) / "after") for package in packages}
        finally:
            git("worktree", "remove", "--force", str(base))
    rows = ["| package | duel | peer | size | base | here |", "| --- | --- | --- | --- | --- | --- |"]
    for dist, found in after.items():
        for (duel, peer, size), ratio in found.items():
            old = before[dist].get((duel, peer, size), "–")
            rows.append(f"| {dist} | {duel} | {peer} | {size} | {old} | {ratio} |")
    print(*rows, sep="\n")
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as output:
            output.write("Times faster than the peer, with 95 % interval\n\n" + "\n".join(rows) + "\n")


def ratios(session: nox.Session, tree: Path, package: Package, scratch: Path) -> dict[tuple[str, str, int], str]:
    """Ratio and interval of every duel of the package as it stands in `tree`; none where it has no benchmarks there."""
    there = discover(tree).get(package.dist)
    if there is None or not (there.folder / "benchmarks").is_dir():
        return {}
    wheels = [build(session, member.folder, scratch / "wheels") for member in (discover(tree)[CORE], there)]
    members = [f"{CORE}[repro,test] @ {wheels[0].as_uri()}", f"{there.dist} @ {wheels[1].as_uri()}"]
    peers = [line for line in there.group("bench") + there.group("test") if name_of(line) != CORE]
    install(session, *members, *peers, more=["--reinstall-package", CORE, "--reinstall-package", there.dist])
    record = scratch / there.dist
    shutil.copytree(there.folder, record, symlinks=True)
    (record / "bench.json").unlink(missing_ok=True)
    session.run("offprints", "bench", there.dist, "--record", str(record), "--rounds", ROUNDS, success_codes=[0, 1])
    content = json.loads((record / "bench.json").read_text(encoding="utf-8"))
    return {
        (duel["id"], duel["peer"], duel["size"]): shown(duel["ratio"], *duel["interval"]) for duel in content["duels"]
    }


def shown(ratio: float, low: float, high: float) -> str:
    return f"{ratio:.3g} [{low:.3g}, {high:.3g}]"
