"""The sessions of this repository. Package names are read from the folders; none stands here.

`nox` alone runs lint, test and integration. `SINCE=<rev>` keeps the packages that a change touches, `SHARD=i/n` every
n-th of them, `PYTHONS="3.12 3.13"` chooses the interpreters.
"""

import os
import sys
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from tools import linting, pythons, suite, workspace  # noqa: E402
from tools import lock as locking  # noqa: E402
from tools.environment import everything, tools_of  # noqa: E402

nox.needs_version = ">=2025.5.1"
nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "test", "integration"]
nox.options.error_on_missing_interpreters = False
os.environ["UV_PYTHON_DOWNLOADS"] = "never"

PACKAGES = workspace.discover()
CHOSEN = workspace.selected()
BASE, NEWEST = pythons.base(), pythons.newest()


def cells() -> list[object]:
    """(interpreter, package): all on the oldest supported here, those without torch on the newest as well."""
    pairs = []
    for name in CHOSEN:
        also = [] if PACKAGES[name].needs_torch or NEWEST == BASE else [NEWEST]
        for python in pythons.asked() or [BASE, *also]:
            pairs.append(nox.param(python, name, id=name if python == BASE else f"{name}-{python}"))
    return pairs


per_package = nox.parametrize("package", [nox.param(name, id=name) for name in CHOSEN])


@nox.session
@nox.parametrize("python,package", cells())
def test(session: nox.Session, package: str) -> None:
    """Test what is shipped: the wheels alone in a clean environment; branch coverage of the installed files."""
    suite.run(session, PACKAGES[package])


@nox.session(python=BASE)
def lint(session: nox.Session) -> None:
    """Style, types, dependencies, imports, workflows, lock, wheel contents, news, cards and results."""
    install(session, *everything(PACKAGES), *tools_of("lint"))
    linting.run(session, PACKAGES)


@nox.session(venv_backend="none")
def dev(session: nox.Session) -> None:
    """.venv with all members editable and all groups, at the locked versions."""
    session.run("uv", "venv", "--quiet", "--allow-existing", "--python", BASE, ".venv", external=True)
    pins = ["-c", str(locking.LOCK), "--override", "constraints.overrides", "--no-sources", *workspace.find_links()]
    wanted = [*everything(PACKAGES), *tools_of("lint")]
    session.run("uv", "pip", "install", "--python", ".venv", *pins, *wanted, external=True)


@nox.session(venv_backend="none")
def lock(session: nox.Session) -> None:
    """Write constraints.txt; `-- --upgrade` takes newer versions."""
    locking.compile_lock(uv(), locking.LOCK, upgrade="--upgrade" in session.posargs)


@nox.session(python=BASE)
def integration(session: nox.Session) -> None:
    """All wheels in one environment: tests-integration/, and the tests marked slow of all packages."""
    wheels = Wheels(session, PACKAGES.values())
    groups = [line for package in PACKAGES.values() for line in package.group("test")]
    extras = {extra for package in PACKAGES.values() for extra in package.extras}
    install(session, *wheels.lines([*groups, *tools_of("integration")], extras))
    session.run("uv", "pip", "check")
    session.run("pytest", "tests-integration", *session.posargs, env=suite.ALONE)
    if not session.posargs:
        for package in PACKAGES.values():
            suite.run_slow(session, package)
