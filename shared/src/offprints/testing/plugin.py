"""The pytest plugin of all packages, loaded by name: `pytest_plugins = ["offprints.testing.plugin"]`.

One thread in every pool, no network, the marker `slow`, skips only from an allow-list (`--strict-skips`), and the
fixture `duel` with its record (`--duel-record FILE`).
"""

import socket
import tomllib
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from offprints.bench import Bench, Duel, limit_threads

_LOOPBACK = ("localhost", "127.", "::1", "0.0.0.0")
Report = pytest.TestReport | pytest.CollectReport
_BENCH = pytest.StashKey[Bench]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the suite."""
    group = parser.getgroup("offprints")
    group.addoption("--slow", action="store_true", help="run the tests marked slow too")
    group.addoption("--strict-skips", action="store_true", help="fail a skip that [tool.offprints] allowed-skips lacks")
    group.addoption("--duel-record", type=Path, metavar="FILE", help="time the duels in full and write bench.json")
    group.addoption("--duel-dist", metavar="DIST", help="what is recorded; by default the nearest project")
    group.addoption("--duel-rounds", type=int, metavar="N", help="most rounds of a duel (3, or 30 when recording)")


def pytest_configure(config: pytest.Config) -> None:
    """Set the limits that hold from collection on."""
    config.addinivalue_line("markers", "slow: needs a real model or more than a few seconds (run with --slow)")
    patch = pytest.MonkeyPatch()
    for name in ("connect", "connect_ex"):
        patch.setattr(socket.socket, name, _local_connect(getattr(socket.socket, name)))
    patch.setattr(socket, "getaddrinfo", _local_lookup(socket.getaddrinfo))
    config.add_cleanup(patch.undo)
    limit_threads()
    config.stash[_BENCH] = Bench(config.getoption("--duel-record"), config.getoption("--duel-rounds"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the slow tests out, unless asked."""
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, Report]:
    """A skipped test fails under --strict-skips."""
    return _strict((yield), item.config, item.path)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, Report]:
    """A skipped module too."""
    return _strict((yield), collector.config, getattr(collector, "path", Path()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the duels: ratios, and the absolute times with the machine."""
    if lines := config.stash[_BENCH].table():
        terminalreporter.section("duels")
        terminalreporter.write_line("\n".join(lines))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write bench.json."""
    session.config.stash[_BENCH].write(session.config.getoption("--duel-dist"))


@pytest.fixture
def duel(request: pytest.FixtureRequest) -> Duel:
    """Race ours against peers; see `offprints.bench.Duel`."""
    node = request.node
    return Duel(node.config.stash[_BENCH], node.name.removeprefix("test_"), node.nodeid, node.path)


def _strict(report: Report, config: pytest.Config, path: Path) -> Report:
    if report.skipped and isinstance(report.longrepr, tuple) and config.getoption("--strict-skips"):
        reason = f"{report.nodeid}: {report.longrepr[2]}"
        if not any(allowed in reason for allowed in _allowed_skips(path)):
            report.outcome, report.longrepr = "failed", f"a skip that [tool.offprints] allowed-skips lacks: {reason}"
    return report


def _allowed_skips(path: Path) -> list[str]:
    """The list in the nearest pyproject.toml; an entry allows every skip whose test id and reason hold it."""
    project = next((folder / "pyproject.toml" for folder in path.parents if (folder / "pyproject.toml").exists()), None)
    table = tomllib.loads(project.read_text(encoding="utf-8")) if project else {}
    return table.get("tool", {}).get("offprints", {}).get("allowed-skips", [])


def _local_connect(connect: Callable) -> Callable:
    def guarded(self: socket.socket, address: tuple | str) -> object:
        stream = self.type == socket.SOCK_STREAM and self.family in (socket.AF_INET, socket.AF_INET6)
        if stream and not str(address[0]).startswith(_LOOPBACK):
            raise RuntimeError(f"tests may not use the network: connect to {address}")
        return connect(self, address)

    return guarded


def _local_lookup(lookup: Callable) -> Callable:
    def guarded(host: str | bytes | None, *args: object, **options: object) -> object:
        name = host.decode() if isinstance(host, bytes) else host or "localhost"
        if not name.startswith(_LOOPBACK) and name != socket.gethostname():
            raise RuntimeError(f"tests may not use the network: look up {name}")
        return lookup(host, *args, **options)

    return guarded
