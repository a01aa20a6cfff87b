"""Sampled mutants of an installed package: mutmut's operators, one mutant a run, on the package's fast tests.

mutmut's own runner leaves out every decorated function (so all shape-checked ones) and rewrites functions into
trampolines that `torch.compile` cannot trace; here each mutant is a plain changed copy of the package, put before
site-packages on the path. The fast tests that touch the changed line run; where none does, all tests, slow ones too.

What may be changed: code inside functions of every module but those of the claims (their numbers are watched by
`verify`, not by tests). Texts are left alone: a test that knows a message by heart is no better for it.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import os
import random
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import libcst as cst
from coverage import CoverageData
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators

LONGEST = 900.0  # seconds for all tests, slow ones included
SLACK = 4.0  # a mutant that runs so many times longer than the tests did is caught in an endless loop: dead
FAST = ["-q", "-p", "no:cacheprovider"]  # the plugin of the packages leaves the slow tests out


@dataclass(frozen=True)
class Mutant:
    """One changed node of one file."""

    path: Path
    line: int
    source: str
    changed: str

    def difference(self) -> str:
        lines = difflib.unified_diff(self.source.splitlines(), self.changed.splitlines(), n=0, lineterm="")
        return " | ".join(line for line in lines if line[0] in "+-" and line[:3] not in {"+++", "---"})


class Places(cst.CSTVisitor):
    """Nodes inside function bodies with what mutmut's operators make of them."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.depth = 0
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, int]] = []

    def visit_Annotation(self, node: cst.Annotation) -> bool:
        return False

    def visit_Decorator(self, node: cst.Decorator) -> bool:
        return False

    def visit_Raise(self, node: cst.Raise) -> bool:
        return False  # the wording of an error; whether it is raised is decided by the condition above it

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.depth += 1

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self.depth -= 1

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self.depth:
            position = self.get_metadata(PositionProvider, node, None)
            for kind, operator in mutation_operators:
                if isinstance(node, kind) and operator.__name__ != "operator_string" and position is not None:
                    self.found += [(node, changed, position.start.line) for changed in operator(node)]
        return super().on_visit(node)


def same_program(one: str, other: str) -> bool:
    """Whether two sources differ in form only: such a mutant could not die."""
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except SyntaxError:
        return True  # not a program: no mutant


def sample(package: Path, leave_out: list[str], count: int, seed: int) -> tuple[list[Mutant], int]:
    """`count` mutants drawn evenly from all of the package, and how many there are."""
    places = []
    for path in sorted(package.rglob("*.py")):
        if path.relative_to(package).as_posix() in leave_out:
            continue
        wrapper, visitor = MetadataWrapper(cst.parse_module(path.read_text(encoding="utf-8"))), Places()
        wrapper.visit(visitor)
        places += [(path, wrapper.module, *place) for place in visitor.found]
    random.Random(seed).shuffle(places)
    mutants: list[Mutant] = []
    for path, module, old, new, line in places:
        if len(mutants) == count:
            break
        changed = cst.ensure_type(module.deep_replace(old, new), cst.Module).code
        if not same_program(module.code, changed):
            mutants.append(Mutant(path, line, module.code, changed))
    return mutants, len(places)


def pytest(arguments: Iterable[str], timeout: float | None = None, path: str = "") -> int | None:
    """Exit status of a run: 0 all pass, 1 a test fails, 2 not even collected; None when it took too long."""
    environment = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *arguments]
    try:
        done = subprocess.run(command, env=environment, timeout=timeout, capture_output=True, text=True, check=False)
    except subprocess.TimeoutExpired:
        return None
    output = done.stdout + done.stderr
    if done.returncode == 4 and ("ERROR collecting" in output or "while loading conftest" in output):
        return 2  # a test was asked for by name, and its file cannot be imported
    if done.returncode not in {0, 1, 2}:  # no test ran at all: that proves nothing
        raise SystemExit(f"pytest ended with status {done.returncode}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.returncode


def touching(data: CoverageData, path: Path, line: int) -> list[str]:
    """Tests that run a line; none where only an import or another process does."""
    contexts = data.contexts_by_lineno(str(path)).get(line, [])
    return sorted({context.rpartition("|")[0] for context in contexts if context})


def survives(mutant: Mutant, package: Path, tests: list[str], timeout: float) -> bool:
    """Whether the tests pass on a copy of the package with this one change, which comes first on the path."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / package.name
        shutil.copytree(package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / mutant.path.relative_to(package)).write_text(mutant.changed, encoding="utf-8")
        chosen = Path(folder) / "tests.txt"
        chosen.write_text("\n".join(tests), encoding="utf-8")
        return pytest([*FAST, "-x", f"@{chosen}"], timeout=timeout, path=folder) == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("tests", help="folder, from the root of the repository, where this runs")
    parser.add_argument("--leave-out", nargs="*", default=[], metavar="FILE", help="modules of the claims")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--floor", type=float, default=0.8, help="share of the mutants that must die")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    package = Path(sysconfig.get_paths()["purelib"]) / given.module
    mutants, population = sample(package, given.leave_out, given.count, given.seed)
    print(f"{given.module}: {len(mutants)} of {population} mutants, drawn with seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COVERAGE_FILE"] = str(Path(folder) / "coverage")
        start = time.monotonic()
        status = pytest([*FAST, given.tests, f"--cov={given.module}", "--cov-context=test", "--cov-report="])
        seconds = time.monotonic() - start
        if status != 0:
            raise SystemExit("the tests fail without any mutant")
        data = CoverageData(os.environ.pop("COVERAGE_FILE"))
        data.read()
        chosen = {mutant: touching(data, mutant.path, mutant.line) or [given.tests, "--slow"] for mutant in mutants}
        data.close()

    def judge(mutant: Mutant) -> bool:
        patience = LONGEST if "--slow" in chosen[mutant] else 30 + SLACK * seconds
        lived = survives(mutant, package, chosen[mutant], patience)
        where = f"{mutant.path.relative_to(package)}:{mutant.line}"
        print(f"{'SURVIVES' if lived else 'dies'}  {where}  {mutant.difference()}", flush=True)
        return lived

    with ThreadPoolExecutor(given.jobs) as pool:
        alive = sum(pool.map(judge, mutants))
    dead = len(mutants) - alive
    print(f"{given.module}: {dead} of {len(mutants)} mutants die (at least {given.floor:.0%} must)")
    raise SystemExit(dead < given.floor * len(mutants))


if __name__ == "__main__":
    main()
