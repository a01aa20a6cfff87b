"""The oldest versions that a package says it works with, as constraints; and the newest, as none."""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
from pathlib import Path

import nox
from packaging.requirements import Requirement

from tools.environment import Wheels
from tools.lock import LOCK
from tools.releasing import core_floor, has_tag
from tools.workspace import ROOT, Package, canonicalize_name, find_links, name_of


def locked(name: str) -> list[str]:
    """The lines of constraints.txt about one distribution."""
    lines = LOCK.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if re.split(r"[=; ]", line)[0] == name]


def torch_pin(session: nox.Session) -> list[str]:
    """Keep the torch build that the lock names, unless `-- --torch` asks for the package's own."""
    return [] if "--torch" in session.posargs else locked("torch")


def newest_pins(session: nox.Session, folder: Path) -> Path:
    """A constraints file that leaves everything free but torch."""
    path = folder / "newest.txt"
    path.write_text("\n".join(torch_pin(session)) + "\n", encoding="utf-8")
    return path


def lowest_pins(session: nox.Session, package: Package, wheels: Wheels, folder: Path) -> Path:
    """Constraints that hold every direct requirement of the package at its floor.

    Lowering only works on what is written in an input file (on a wheel it lowers nothing), so the requirements are
    written out; what they bring along stays free.
    """
    torch = torch_pin(session)
    direct = [*package.required, *(line for lines in package.extras.values() for line in lines)]
    lines = [line for line in wheels.lines(direct) if not (torch and Requirement(line).name == "torch")]
    wanted, pins, keep = folder / "direct.in", folder / "lowest.txt", folder / "torch.txt"
    wanted.write_text("\n".join(lines) + "\n", encoding="utf-8")
    keep.write_text("\n".join(torch) + "\n", encoding="utf-8")
    command = ["uv", "pip", "compile", "--resolution", "lowest-direct", "--no-sources", "--no-annotate", "--no-header"]
    command += ["--quiet", *find_links(), "-c", str(keep), "-o", str(pins), str(wanted)]
    session.run(*command)
    names = {name_of(line) for line in direct}
    kept = [
        line for line in pins.read_text(encoding="utf-8").splitlines() if canonicalize_name(line.split("=")[0]) in names
    ]
    pins.write_text("\n".join([*kept, *torch]) + "\n", encoding="utf-8")
    session.log(f"floors: {', '.join(kept)}")
    return pins


def oldest_core(session: nox.Session, package: Package, folder: Path) -> Path | None:
    """The sources of the core at the tag of the floor that the package declares; None stands for those of today."""
    tag = core_floor(package)
    if tag is None or not has_tag(tag):
        session.log(f"the core of today stands for its floor: {tag or 'the core itself'} has no tag")
        return None
    command = ["git", "archive", tag, "LICENSE", "shared"]
    content = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        archive.extractall(folder)
    return folder / "shared"
