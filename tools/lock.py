"""constraints.txt: one set of versions for every package, written from their pyproject files.

Versions and markers only, so that the file means the same on every machine. The members themselves are left out:
their requirements on each other are replaced by what those extras require.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from tools.workspace import ROOT, Package, canonicalize_name, expand_group, members

LOCK = ROOT / "constraints.txt"
MACHINE = ("UV_FIND_LINKS", "PIP_FIND_LINKS", "UV_CONSTRAINT", "UV_OVERRIDE", "UV_TORCH_BACKEND")
HEADER = "# Written by `nox -s lock`: the versions that every session installs. Do not edit.\n"


def requirements(packages: dict[str, Package], root_pyproject: dict[str, Any]) -> list[str]:
    """Every requirement of every member (extras and groups too) and of the tools, sorted, without the members."""
    wanted: set[str] = set()
    for package in packages.values():
        groups = package.pyproject.get("dependency-groups", {})
        wanted.update(package.required, *package.extras.values(), *(package.group(name) for name in groups))
        wanted.update(package.pyproject.get("build-system", {}).get("requires", []))
    for name in root_pyproject.get("dependency-groups", {}):
        wanted.update(expand_group(root_pyproject, name))
    members = {canonicalize_name(name) for name in packages}
    return sorted(line for line in wanted if canonicalize_name(Requirement(line).name) not in members)


def compile_lock(uv: str, output: Path, *, upgrade: bool = False, root: Path = ROOT) -> None:
    """Resolve for all interpreters and systems at once; pins that `output` already holds are kept unless `upgrade`."""
    import tomllib

    environment = {key: value for key, value in os.environ.items() if key not in MACHINE}
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "requirements.in"
        pyproject = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
        wanted.write_text(
            "\n".join(requirements({one.dist: one for one in members(root)}, pyproject)) + "\n", encoding="utf-8"
        )
        command = [uv, "pip", "compile", "--universal", "--no-sources", "--python-version", "3.11", "--no-annotate"]
        command += ["--no-header", "--quiet", "--override", str(root / "constraints.overrides")]
        command += ["--output-file", str(output), str(wanted), str(root / "constraints.in")]
        done = subprocess.run(command + ["--upgrade"] * upgrade, env=environment, cwd=root, check=False)
    if done.returncode:
        raise SystemExit("no set of versions satisfies every package: see the message above")
    text = output.read_text(encoding="utf-8")
    output.write_text(HEADER + text.removeprefix(HEADER), encoding="utf-8")


def stale(uv: str, root: Path = ROOT) -> str | None:
    """One line when constraints.txt is not what `nox -s lock` would write now, else None."""
    lock = root / "constraints.txt"
    with tempfile.TemporaryDirectory() as folder:
        fresh = Path(folder) / "constraints.txt"
        if lock.exists():
            shutil.copy(lock, fresh)
        compile_lock(uv, fresh, root=root)
        if lock.exists() and fresh.read_text(encoding="utf-8") == lock.read_text(encoding="utf-8"):
            return None
        before = set(lock.read_text(encoding="utf-8").splitlines()) if lock.exists() else set()
        changed = sorted(before ^ set(fresh.read_text(encoding="utf-8").splitlines()))
    print(*changed[:20], sep="\n", file=sys.stderr)
    return "constraints.txt is stale: run nox -s lock"
