"""Runs with `python -I` in the environment under test: imports everything, and proves where the tested files lie.

import   every module of a package imports; without --strict a module may lack an optional dependency
shipped  every file that a coverage report names lies in site-packages, and none of the package is missing there
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

IMPORT_SECONDS = 0.5  # of `import package`, beyond torch

TIMED = """
import sys, time
if {torch}:
    import torch
start = time.process_time()
import {module}
print(time.process_time() - start, "torch" in sys.modules)
"""


def fail(message: str) -> None:
    print(message, file=sys.stderr)
    raise SystemExit(1)


def import_seconds(module: str) -> float:
    """Processor seconds of a fresh import beyond torch: the least of three, the first of which writes bytecode."""

    def once(torch: bool) -> tuple[float, bool]:
        code = TIMED.format(module=module, torch=torch)
        out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True).stdout
        seconds, has_torch = out.split()[-2:]
        return float(seconds), has_torch == "True"

    _, torch = once(False)
    return min(once(torch)[0] for _ in range(3))


def import_all(module: str, *, strict: bool) -> None:
    site = Path(sysconfig.get_paths()["purelib"]).resolve()
    package = importlib.import_module(module)
    if not Path(str(package.__file__)).resolve().is_relative_to(site):
        fail(f"{module} was imported from {package.__file__}, not from {site}")
    count, lacking = 1, {}
    for info in pkgutil.walk_packages(package.__path__, f"{module}."):
        if info.name.rsplit(".", 1)[-1] == "__main__":
            continue
        count += 1
        try:
            importlib.import_module(info.name)
        except ModuleNotFoundError as error:
            if strict or (error.name or module).split(".")[0] == module:
                raise
            lacking[info.name] = error.name
    for name, missing in lacking.items():
        print(f"{name} needs an extra here: no module named {missing}")
    print(f"{module}: {count - len(lacking)} of {count} modules import")
    if not strict and (seconds := import_seconds(module)) > IMPORT_SECONDS:
        fail(f"import {module} takes {seconds:.2f} s of the processor beyond torch; at most {IMPORT_SECONDS} s")


def shipped(module: str, report: Path) -> None:
    site = Path(sysconfig.get_paths()["purelib"]).resolve()
    tested = {Path(name).resolve() for name in json.loads(report.read_text(encoding="utf-8"))["files"]}
    made = Path(tempfile.gettempdir()).resolve()  # where torch_geometric writes modules while tests run
    outside = sorted(str(path) for path in tested if not path.is_relative_to(site) and path.parent != made)
    if outside:
        fail(f"tested outside site-packages: {outside[:3]}")
    there = set((site / module).rglob("*.py"))
    if missing := sorted(str(path) for path in there - tested):
        fail(f"installed but not measured: {missing[:3]}")
    print(f"{module}: all {len(there)} tested files lie in {site}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("import")
    one.add_argument("module")
    one.add_argument("--strict", action="store_true")
    two = commands.add_parser("shipped")
    two.add_argument("module")
    two.add_argument("report", type=Path)
    given = parser.parse_args()
    if given.command == "import":
        import_all(given.module, strict=given.strict)
    else:
        shipped(given.module, given.report)


if __name__ == "__main__":
    main()
