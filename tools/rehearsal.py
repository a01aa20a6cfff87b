"""A release of everything, rehearsed here: build, check, publish to an index on loopback, install by name."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import nox

from tools import cards, shipping
from tools.environment import DIST, uv
from tools.lock import LOCK
from tools.workspace import CORE, Package, discover


@contextlib.contextmanager
def served(folder: Path, python: str = sys.executable) -> Iterator[str]:
    """An index of the files in a folder, on loopback, without a fallback to another: its address.

    `python` is an interpreter that has pypiserver.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--disable-fallback", "-P", ".", "-a", "."]  # no redirect to another index, no passwords
    command = [python, "-m", "pypiserver", "run", "-i", "127.0.0.1", "-p", str(port), *options, str(folder)]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(100):
            try:
                urllib.request.urlopen(address, timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait()


def run(session: nox.Session, packages: list[Package]) -> None:
    """All packages are published; then each is installed by name with plain pip elsewhere, and its first use runs."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "index").mkdir()
        with served(Path(folder) / "index", f"{session.bin}/python") as address:
            for package in [discover()[CORE], *packages]:
                shipping.run(session, package, DIST / package.dist)
                files = sorted(str(path) for path in (DIST / package.dist).glob("*.[wt]*"))
                sign_in = ["--username", "x", "--password", "x"]
                session.run(uv(), "publish", "--publish-url", f"{address}/", *sign_in, *files, external=True)
            for package in packages:
                outside = Path(folder) / package.dist
                outside.mkdir()
                use_first(session, package, outside, address)


def use_first(session: nox.Session, package: Package, outside: Path, address: str) -> None:
    """What a newcomer does: a venv, the first `pip install` of the card, its first block."""
    (outside / "first.py").write_text(cards.first_block(package) or "", encoding="utf-8")
    extras = ",".join(cards.extras(package))
    wanted = f"{package.dist}[{extras}]=={package.version}" if extras else f"{package.dist}=={package.version}"
    with session.chdir(outside):
        session.run("python", "-m", "venv", "venv")
        pip = ["venv/bin/python", "-m", "pip", "install", "--quiet", "--extra-index-url", f"{address}/simple/"]
        session.run(*pip, "-c", str(LOCK), wanted, external=True)
        session.run("venv/bin/python", "-I", "-W", "error::FutureWarning", "first.py", external=True, silent=True)
