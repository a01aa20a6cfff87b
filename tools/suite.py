"""A package's tests, run against its installed wheel."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import nox

from tools import cards
from tools.environment import INSIDE, Wheels, install, measured
from tools.lock import LOCK
from tools.workspace import ROOT, Package

SECONDS = 45  # of a package's tests, on two cores
CORES = 2
NO_TESTS = 5  # pytest's exit status when nothing is selected
ALONE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COVERAGE_CORE": "ctrace", "PYTHONWARNINGS": ""}


def prepare(
    session: nox.Session,
    package: Package,
    *,
    pins: Path | None = LOCK,
    core: Path | None = None,
    extras: Iterable[str] = ("repro",),
    first_use: bool = False,
) -> None:
    """Bare wheels first: every module imports. Then the test group and the extras.

    With `first_use` a newcomer's way lies between: the card's first code runs on what its first `pip install` brings,
    before the tests' own requirements hide what it lacks.
    """
    wheels = Wheels(session, [package], core=core)
    install(session, *wheels.lines(), pins=pins)
    session.run("python", "-I", INSIDE, "import", package.module)
    if first_use and not package.is_core and (block := cards.first_block(package)):
        if more := cards.extras(package):
            install(session, *wheels.lines(extras=more), pins=pins)
        with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
            Path("first.py").write_text(block, encoding="utf-8")
            session.run("python", "-I", "first.py", env=ALONE, silent=True)
    install(session, *wheels.lines(package.group("test"), extras=extras), pins=pins)
    session.run("python", "-I", INSIDE, "import", package.module, "--strict")


def run(session: nox.Session, package: Package) -> None:
    """The fast tests, with branch coverage of the files in site-packages and a limit on the processor's time."""
    with tempfile.TemporaryDirectory() as folder, session.chdir(package.folder):
        report = Path(folder) / "coverage.json"
        floor = 100 if package.is_core else 90
        command = ["pytest", "tests", "-q", "--strict-skips", f"--cov={package.module}", "--cov-branch"]
        command += [f"--cov-config={ROOT / 'pyproject.toml'}", f"--cov-fail-under={floor}", "--cov-report=term"]
        command += [f"--cov-report=json:{report}", *session.posargs]
        with measured() as spent:
            session.run(*command, env={**ALONE, "COVERAGE_FILE": str(Path(folder) / "coverage")})
        session.run("python", "-I", INSIDE, "shipped", package.module, str(report))
    session.log(f"{package.dist}: {spent.clock:.0f} s on the clock, {spent.processor:.0f} s of the processor")
    if spent.processor > SECONDS * CORES:
        session.error(f"tests take {spent.processor:.0f} s of the processor; at most {SECONDS} s on {CORES} cores")


def run_plain(session: nox.Session, package: Package) -> None:
    """The fast tests without coverage, as the sessions on other versions run them."""
    with session.chdir(package.folder):
        session.run("pytest", "tests", "-q", "--strict-skips", env=ALONE)


def run_slow(session: nox.Session, package: Package) -> None:
    """The tests marked slow (real models, long runs); none is fine, a skip is not."""
    with session.chdir(package.folder):
        command = ["pytest", "tests", "-q", "--slow", "-m", "slow", "--strict-skips", "--durations=5"]
        session.run(*command, env=ALONE, success_codes=[0, NO_TESTS])
