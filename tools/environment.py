"""Environments: what a session builds and installs. Locked versions, what the machine offers first, wheels only."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

import nox
from packaging.requirements import Requirement

from tools.lock import LOCK
from tools.workspace import CORE, ROOT, Package, canonicalize_name, discover, expand_group, find_links, name_of

DIST = ROOT / "dist"
INSIDE = str(ROOT / "tools" / "inside.py")  # runs in the environment under test, the rest of tools/ does not


def uv() -> str:
    """The uv that nox itself uses."""
    from nox.virtualenv import UV

    return UV


def install(session: nox.Session, *what: str, pins: Path | None = LOCK, more: Iterable[str] = ()) -> None:
    """`uv pip install` under the pins."""
    flags = ["-c", str(pins)] if pins else []
    flags += ["--override", str(ROOT / "constraints.overrides"), "--no-sources", *find_links(), *more]
    session.install(*flags, *what)


def build(session: nox.Session, folder: Path, out: Path = DIST, *, sdist: bool = False) -> Path:
    """The wheel of the package in `folder`, in `out`; by way of an sdist, which is kept beside it, where asked."""
    with tempfile.TemporaryDirectory() as scratch:
        if any(path.is_symlink() and not path.exists() for path in (folder / "src").rglob("*")):
            folder = without_dangling_links(folder, Path(scratch) / folder.name)
        kind = [] if sdist else ["--wheel"]
        made = Path(scratch) / "made"
        session.run("uv", "build", *kind, "--quiet", "--no-sources", "--out-dir", str(made), str(folder), silent=True)
        out.mkdir(parents=True, exist_ok=True)
        built = [Path(shutil.move(path, out / path.name)) for path in made.glob("*.[wt]*")]
    return next(path for path in built if path.suffix == ".whl")


def without_dangling_links(folder: Path, copy: Path) -> Path:
    """A copy to build from while a package has no results yet: its links to them point nowhere."""

    def dangling(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "__pycache__" or not (Path(parent) / name).exists()]

    return Path(shutil.copytree(folder, copy, ignore=dangling))


class Wheels:
    """Freshly built wheels of members, and requirement lines that mean exactly them."""

    def __init__(self, session: nox.Session, packages: Iterable[Package], *, core: Path | None = None) -> None:
        core_package = Package(core) if core else discover()[CORE]
        self.packages = {package.dist: package for package in [*packages, core_package]}
        self.paths = {dist: build(session, package.folder) for dist, package in self.packages.items()}

    def line(self, dist: str, extras: Iterable[str] = ()) -> str:
        """`dist[extras] @ file:///…whl`, with those of the extras that the distribution has."""
        known = ",".join(sorted(set(extras) & set(self.packages[dist].extras)))
        return f"{dist}[{known}] @ {self.paths[dist].as_uri()}" if known else f"{dist} @ {self.paths[dist].as_uri()}"

    def lines(self, wanted: Iterable[str] = (), extras: Iterable[str] = ()) -> list[str]:
        """All the wheels (with `extras`) and the requirements `wanted`, in which members stand for their wheels."""
        plain, taken = [], {dist: set(extras) for dist in self.packages}
        for text in wanted:
            requirement = Requirement(text)
            name = canonicalize_name(requirement.name)
            if name in taken:
                taken[name] |= requirement.extras
            else:
                plain.append(text)
        return [*(self.line(dist, more) for dist, more in taken.items()), *plain]


def everything(packages: dict[str, Package]) -> list[str]:
    """All members editable, with all their extras and groups."""
    lines: list[str] = []
    for package in packages.values():
        extras = ",".join(sorted(package.extras))
        lines += ["-e", f"{package.folder}[{extras}]" if extras else str(package.folder)]
        groups = package.pyproject.get("dependency-groups", {})
        lines += [line for name in groups for line in package.group(name) if name_of(line) not in packages]
    return lines


def tools_of(*groups: str) -> list[str]:
    """Dependency groups of the workspace root: what the sessions themselves need."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [line for name in groups for line in expand_group(pyproject, name)]


class Spent:
    """Seconds of a block: on the clock, and of the processor (which does not feel the neighbours)."""

    clock: float
    processor: float


@contextlib.contextmanager
def measured() -> Iterator[Spent]:
    """Time a block. Where the system does not tell the processor time of children (Windows), that stays zero."""
    spent, start, before = Spent(), time.monotonic(), os.times()
    yield spent
    after = os.times()
    spent.clock = time.monotonic() - start
    spent.processor = after.children_user + after.children_system - before.children_user - before.children_system
