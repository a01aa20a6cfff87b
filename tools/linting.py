"""The steps of the lint session. All of them run; the session fails at the end with the names of those that failed."""

from __future__ import annotations

from collections.abc import Callable

import nox
from nox.command import CommandFailed

from tools import lock, wheels
from tools.environment import build, uv
from tools.workspace import ROOT, Package, members

WORKFLOWS = ".github/workflows"


def run(session: nox.Session, packages: dict[str, Package]) -> None:
    """Every step, then one error that names the failed ones."""
    methods = [package for package in packages.values() if not package.is_core]
    failed: list[str] = []

    def step(name: str, action: Callable[[], object]) -> None:
        try:
            problem = action()
        except (CommandFailed, SystemExit) as error:
            problem = str(error) or "see above"
        if isinstance(problem, str) and problem:
            session.warn(f"{name}: {problem}")
            failed.append(name)

    def command(*words: str) -> Callable[[], object]:
        return lambda: session.run(*words) and None

    sources = [f"{package.folder.relative_to(ROOT)}/src" for package in packages.values()]
    waiting = [package for package in members() if package.dist not in packages]
    for package in waiting:
        session.warn(f"{package.dist} is unfinished and not checked (UNFINISHED=1 does): {package.unfinished}")
    apart = [f"--exclude={package.folder.relative_to(ROOT)}" for package in waiting]
    step("ruff check", command("ruff", "check", *apart, "."))
    step("ruff format", command("ruff", "format", "--check", *apart, "."))
    step("types", command("pyrefly", "check", *sources, "noxfile.py", "tools"))
    for package in packages.values():
        step(f"dependencies of {package.dist}", lambda package=package: deptry(session, package))
        step(f"wheel of {package.dist}", lambda package=package: wheel(session, package))
    step("rules", command("python", "-m", "tools.rules"))
    step("workflow schema", command("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *workflows()))
    step("workflow security", command("zizmor", "--offline", "--quiet", "--persona", "pedantic", WORKFLOWS))
    step("table of methods", command("python", "-m", "tools.readme", "--check"))
    step("lock", lambda: lock.stale(uv(), ROOT))
    for package in methods:
        folder = str(package.folder.relative_to(ROOT))
        step(f"results of {package.dist}", command("offprints", "fresh", folder))
        step(f"card of {package.dist}", command("offprints", "card", folder, "--check"))
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def workflows() -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for path in (ROOT / WORKFLOWS).glob("*.yml"))


def deptry(session: nox.Session, package: Package) -> None:
    """Imports of the sources against the declared requirements (the extras count as declared)."""
    flags = ["--known-first-party", package.module, "--no-ansi", "--extend-exclude", r".+/_reference\.py"]  # tests' own
    lazy = ["--ignore", "DEP004"] if package.is_core else []  # torch and host libraries, where the user has them
    with session.chdir(package.folder):
        session.run("deptry", "src", *flags, *lazy)


def wheel(session: nox.Session, package: Package) -> str:
    """What is wrong with the contents of the package's wheel, in one line."""
    return "; ".join(wheels.problems(build(session, package.folder), package))
