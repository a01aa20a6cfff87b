"""A release: what may be released, the next version, the changelog, the commit and its tag. Nothing is pushed."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import nox
from packaging.requirements import Requirement
from packaging.version import Version

from tools.workspace import CORE, ROOT, Package, git, last_tag

PARTS = ("major", "minor", "patch", "first")


def tag_of(dist: str, version: str) -> str:
    return f"{dist}-v{version}"


def core_floor(package: Package) -> str | None:
    """The tag of the oldest core that a method declares to work with (`offprints>=0.1` means offprints-v0.1.0)."""
    for line in package.required:
        requirement = Requirement(line)
        floors = [spec.version for spec in requirement.specifier if spec.operator == ">="]
        if requirement.name == CORE and floors:
            return tag_of(CORE, ".".join((*floors[0].split("."), "0", "0")[i] for i in range(3)))
    return None


def has_tag(tag: str, root: Path = ROOT) -> bool:
    return bool(git("tag", "--list", tag, root=root).strip())


def next_version(current: str, part: str) -> str:
    """The version after `current`; `first` keeps it."""
    major, minor, patch = Version(current).release
    following = {"major": (major + 1, 0, 0), "minor": (major, minor + 1, 0), "patch": (major, minor, patch + 1)}
    return ".".join(map(str, following.get(part, (major, minor, patch))))


def permits_breaking(before: str, after: str) -> bool:
    """SemVer: the first number that is not zero says what may break."""
    old, new = Version(before).release, Version(after).release
    return new[0] > old[0] or (old[0] == 0 and new[:2] > old[:2])


def removals(package: Package) -> list[Path]:
    return sorted((package.folder / "changes").glob("*.removal*.md"))


def refusal(package: Package, part: str) -> str | None:
    """Why this release may not be made, in one line, or None."""
    if part not in PARTS:
        return f"the part to raise must be one of {', '.join(PARTS)}, got {part!r}"
    if dirty := git("status", "--porcelain", root=package.root).strip():
        return f"the work tree is not clean: {dirty.splitlines()[0].strip()}"
    if not list((package.folder / "changes").glob("*.md")):
        return f"{package.folder.name}/changes holds no news: a release says what changed"
    tag = last_tag(package.dist, package.root)
    if part == "first" and tag:
        return f"{package.dist} was released before, as {tag}: raise major, minor or patch"
    if part == "first" and package.is_draft:
        return f"{package.dist} stands at 0.0.0, a draft: raise minor for its first release"
    after = next_version(package.version, part)
    if has_tag(tag_of(package.dist, after), package.root):
        return f"the tag {tag_of(package.dist, after)} exists already"
    if tag and removals(package) and not permits_breaking(tag.rpartition("-v")[2], after):
        return f"{removals(package)[0].name} breaks the interface, which {after} may not"
    floor = core_floor(package)
    if floor and not has_tag(floor, package.root):
        return f"{package.dist} requires a core that was never released: no tag {floor}. Release {CORE} first."
    return None


def set_version(package: Package, version: str) -> None:
    """Write the static version of the pyproject."""
    path = package.folder / "pyproject.toml"
    text, count = re.subn(
        r'(?m)^version = "[^"]*"$', f'version = "{version}"', path.read_text(encoding="utf-8"), count=1
    )
    if count != 1:
        raise SystemExit(f'{path}: no line `version = "…"`')
    path.write_text(text, encoding="utf-8")


def make(session: nox.Session, package: Package, part: str) -> None:
    """Refuse, or raise the version, write the changelog, test it, commit and tag."""
    if reason := refusal(package, part):
        session.error(reason)
    version = next_version(package.version, part)
    folder, tag = str(package.folder.relative_to(ROOT)), tag_of(package.dist, version)
    touched = [folder, *(["README.md"] if package.is_draft else [])]  # from now on the table of methods lists it
    try:
        set_version(package, version)
        news = ["--config", "pyproject.toml", "--dir", folder, "--name", package.dist, "--version", version, "--yes"]
        session.run("towncrier", "build", *news)
        if package.is_draft:
            session.run("python", "-m", "tools.readme")
        for check in ("test", "lowest", "api"):
            command = [sys.executable, "-m", "nox", "-s", f"{check}({package.dist})"]
            session.run(*command, env={"SINCE": "", "SHARD": "", "PYTHONS": ""}, external=True)
    except BaseException:
        git("restore", "--staged", "--worktree", "--source=HEAD", "--", *touched)  # the tree was clean: nothing is lost
        raise
    git("add", "--", *touched)
    git("commit", "--quiet", "-m", f"Release {package.dist} {version}", "--", *touched)
    git("tag", "--annotate", tag, "-m", f"{package.dist} {version}")
    session.log(f"tagged {tag}; nothing is pushed: git push --follow-tags")


def check_api(session: nox.Session, package: Package) -> None:
    """griffe against the last tag; a break is allowed by a `removal` in the news, or by the version standing here."""
    tag = last_tag(package.dist)
    if tag is None:
        session.log(f"{package.dist} was never released: nothing to compare with")
        return
    allowed = bool(removals(package)) or permits_breaking(tag.rpartition("-v")[2], package.version)
    search = str((package.folder / "src").relative_to(ROOT))
    command = ["griffe", "check", package.module, "--search", search, "--against", tag]
    session.run(*command, success_codes=[0, 1] if allowed else [0])


def check_tag(session: nox.Session, packages: dict[str, Package], tag: str) -> None:
    """A tag that may be published names a package and the version that its pyproject holds."""
    dist, _, version = tag.rpartition("-v")
    if dist not in packages:
        session.error(f"the tag must be <dist>-vX.Y.Z of one of {', '.join(packages)}, got {tag!r}")
    if packages[dist].version != version:
        session.error(f"the tag says {version}, packages/{dist}/pyproject.toml {packages[dist].version}")


def notes(package: Package) -> str:
    """The newest section of the changelog."""
    text = (package.folder / "CHANGELOG.md").read_text(encoding="utf-8")
    _, *sections = re.split(r"(?m)^## ", text)
    return "## " + sections[0].strip() + "\n" if sections else f"{package.dist} {package.version}\n"
