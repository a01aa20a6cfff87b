"""A package's tests, run against its installed wheel."""

from __future__ import annotations

import fnmatch
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import nox

from tools.environment import INSIDE, Wheels, install, measured
from tools.lock import LOCK
from tools.workspace import ROOT, Package

SECONDS = 45  # of a package's tests, on two cores
CORES = 2
NO_TESTS = 5  # pytest's exit status when nothing is selected
ALONE = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "COVERAGE_CORE": "ctrace"}


def run(session: nox.Session, package: Package, *, pins: Path | None = LOCK, wheels: Wheels | None = None) -> None:
    """Bare wheels first (every module imports), then the test group, then pytest with branch coverage."""
    wheels = wheels or Wheels(session, [package])
    install(session, *wheels.lines(), pins=pins)
    session.run("python", "-I", INSIDE, "import", package.module)
    install(session, *wheels.lines(package.group("test"), extras=["repro"]), pins=pins)
    session.run("python", "-I", INSIDE, "import", package.module, "--strict")
    with tempfile.TemporaryDirectory() as folder, session.chdir(package.folder):
        report, junit = Path(folder) / "coverage.json", Path(folder) / "junit.xml"
        floor = 100 if package.is_core else 90
        command = ["pytest", "tests", "-m", "not slow", "-q", f"--junitxml={junit}", f"--cov={package.module}"]
        command += ["--cov-branch", f"--cov-config={ROOT / 'pyproject.toml'}", f"--cov-fail-under={floor}"]
        command += ["--cov-report=term", f"--cov-report=json:{report}", *session.posargs]
        with measured() as spent:
            session.run(*command, env={**ALONE, "COVERAGE_FILE": str(Path(folder) / "coverage")})
        session.run("python", "-I", INSIDE, "shipped", package.module, str(report))
        refuse_skips(session, package, junit)
    session.log(f"{package.dist}: {spent.clock:.0f} s on the clock, {spent.processor:.0f} s of the processor")
    if spent.processor > SECONDS * CORES:
        session.error(f"tests take {spent.processor:.0f} s of the processor; at most {SECONDS} s on {CORES} cores")


def run_slow(session: nox.Session, package: Package) -> None:
    """The tests marked slow (real models, long runs) of an installed package; none is fine, a skip is not."""
    with tempfile.TemporaryDirectory() as folder, session.chdir(package.folder):
        junit = Path(folder) / "junit.xml"
        command = ["pytest", "tests", "-m", "slow", "-q", "--durations=5", f"--junitxml={junit}"]
        session.run(*command, env=ALONE, success_codes=[0, NO_TESTS])
        refuse_skips(session, package, junit)


def allowed_skips(package: Package) -> list[str]:
    """Patterns of tests that may skip: tests/skips.txt, one `pattern  # reason` a line."""
    path = package.folder / "tests" / "skips.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    bare = [line for line in lines if line.strip() and "#" not in line]
    if bare:
        raise SystemExit(f"{path}: no reason for {bare[0]!r}. Write `pattern  # reason`.")
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def skipped(junit: Path) -> list[str]:
    """Names `module::test` of the tests that a JUnit report calls skipped (an expected failure is not one)."""
    cases = ElementTree.parse(junit).iter("testcase")
    names = []
    for case in cases:
        mark = case.find("skipped")
        if mark is not None and mark.get("type") != "pytest.xfail":
            names.append(f"{case.get('classname')}::{case.get('name')}")
    return names


def refuse_skips(session: nox.Session, package: Package, junit: Path) -> None:
    patterns = allowed_skips(package)
    unknown = [name for name in skipped(junit) if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]
    if unknown:
        session.error(f"skipped without leave in {package.folder.name}/tests/skips.txt: {', '.join(unknown)}")
