"""The packages of this repository, read from the folders, and which of them a change touches."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
CORE = "offprints"
WHOLE = ("shared/", "tools/", "noxfile.py", "pyproject.toml", "constraints")  # a change here touches every package


@dataclass(frozen=True)
class Package:
    """One distribution: the core or a method."""

    folder: Path

    @cached_property
    def pyproject(self) -> dict[str, Any]:
        return tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))

    @property
    def dist(self) -> str:
        return self.pyproject["project"]["name"]

    @property
    def version(self) -> str:
        return self.pyproject["project"]["version"]

    @property
    def module(self) -> str:
        return self.dist.replace("-", "_")

    @property
    def source(self) -> Path:
        return self.folder / "src" / self.module

    @property
    def root(self) -> Path:
        """The repository."""
        return self.folder.parent if self.folder.name == "shared" else self.folder.parent.parent

    @property
    def is_core(self) -> bool:
        return self.dist == CORE

    @property
    def is_draft(self) -> bool:
        """Version 0.0.0: a fresh skeleton, which no table lists until its first release."""
        return self.version == "0.0.0"

    @property
    def unfinished(self) -> str:
        """What is still missing, in one line; such a package lies here to be worked on, and no gate waits for it."""
        return str(self.pyproject.get("tool", {}).get("offprints", {}).get("unfinished", ""))

    @property
    def required(self) -> list[str]:
        return list(self.pyproject["project"].get("dependencies", []))

    @property
    def extras(self) -> dict[str, list[str]]:
        return dict(self.pyproject["project"].get("optional-dependencies", {}))

    def group(self, name: str) -> list[str]:
        """The requirements of a dependency group, with its includes followed; empty where there is none."""
        return expand_group(self.pyproject, name)

    @property
    def tested_with(self) -> list[str]:
        """What its tests install beside the wheels: the `repro` extra and the test group."""
        return self.extras.get("repro", []) + self.group("test")

    @property
    def needs_torch(self) -> bool:
        return "torch" in {name_of(line) for line in self.required + self.tested_with}

    @property
    def title(self) -> str:
        return self.pyproject["project"]["description"]


def expand_group(pyproject: dict[str, Any], name: str) -> list[str]:
    """Requirements of `[dependency-groups]` `name`; `{include-group = "x"}` is followed."""
    lines: list[str] = []
    for entry in pyproject.get("dependency-groups", {}).get(name, []):
        lines += [entry] if isinstance(entry, str) else expand_group(pyproject, entry["include-group"])
    return lines


def name_of(requirement: str) -> str:
    return canonicalize_name(Requirement(requirement).name)


def members(root: Path = ROOT) -> list[Package]:
    """The core first, then the methods by name, unfinished ones included."""
    folders = [root / "shared", *sorted(path.parent for path in (root / "packages").glob("*/pyproject.toml"))]
    return [Package(folder) for folder in folders if (folder / "pyproject.toml").exists()]


def discover(root: Path = ROOT) -> dict[str, Package]:
    """What the sessions know, by distribution; unfinished packages only with `UNFINISHED=1`."""
    wanted = bool(os.environ.get("UNFINISHED"))
    return {package.dist: package for package in members(root) if wanted or not package.unfinished}


def git(*args: str, root: Path = ROOT) -> str:
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"git {shlex.join(args)}: {done.stderr.strip()}")
    return done.stdout


def changed_files(since: str, root: Path = ROOT) -> list[str]:
    """Paths that differ from the point where this branch left `since`, work tree and untracked files included."""
    base = git("merge-base", since, "HEAD", root=root).strip()
    tracked = git("diff", "--name-only", "--no-renames", "-z", base, "--", root=root)
    untracked = git("ls-files", "--others", "--exclude-standard", "-z", root=root)
    return sorted({path for path in (tracked + untracked).split("\0") if path})


def affected(since: str, root: Path = ROOT) -> list[str]:
    """Distributions that a change since the revision `since` touches."""
    packages = discover(root)
    files = changed_files(since, root)
    if any(path.startswith(WHOLE) for path in files):
        return list(packages)
    touched = {Path(path).parts[1] for path in files if path.startswith("packages/") and path.count("/") > 1}
    return [dist for dist, package in packages.items() if package.folder.name in touched and not package.is_core]


def selected(root: Path = ROOT) -> list[str]:
    """Distributions that the environment asks for: `SINCE=<rev>` (affected ones), then `SHARD=i/n` (every n-th)."""
    since = os.environ.get("SINCE")
    names = affected(since, root) if since else list(discover(root))
    if shard := os.environ.get("SHARD"):
        found = re.fullmatch(r"(\d+)/(\d+)", shard)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise SystemExit(f"SHARD must be i/n with 1 <= i <= n, such as 1/4, got {shard!r}.")
        names = names[int(found[1]) - 1 :: int(found[2])]
    return names


def find_links() -> list[str]:
    """One flag for every folder of wheels that the machine offers: a flag replaces the variable, so all are handed on.

    The resolver may then take a smaller build of the same version (a CPU build of torch) where one is offered.
    """
    folders = os.environ.get("UV_FIND_LINKS", "").split(",") + os.environ.get("PIP_FIND_LINKS", "").split()
    return [part for folder in folders if folder.strip() for part in ("--find-links", folder.strip())]


def last_tag(dist: str, root: Path = ROOT) -> str | None:
    """The newest release tag `<dist>-vX.Y.Z` that HEAD descends from, or None before the first release."""
    pattern = f"{dist}-v[0-9]*"
    tags = git("tag", "--list", pattern, "--merged", "HEAD", "--sort=-version:refname", root=root).split()
    return tags[0] if tags else None
