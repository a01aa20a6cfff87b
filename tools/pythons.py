"""Which interpreters of the supported range this machine has; nothing is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13")
RUNNING = ".".join(map(str, sys.version_info[:2]))


def answers(path: str | Path | None) -> bool:
    """Whether it is an interpreter that starts (a version manager's stand-in for an inactive one does not)."""
    return path is not None and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


@cache
def find(version: str) -> str | None:
    """What to ask nox for: the version where it is on the path, the file where pyenv has it inactive, else None."""
    if version == RUNNING or answers(shutil.which(f"python{version}")):
        return version
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    inactive = sorted(versions.glob(f"{version}.*/bin/python{version}"))
    return next((str(path) for path in reversed(inactive) if answers(path)), None)


def base() -> str:
    """The oldest supported interpreter here, on which everything runs."""
    return next((version for version in SUPPORTED if find(version)), RUNNING)


def newest() -> str:
    """The newest supported interpreter here, on which the packages without torch run as well."""
    return next((version for version in reversed(SUPPORTED) if find(version)), RUNNING)


def missing() -> list[str]:
    return [version for version in SUPPORTED if not find(version)]


def asked() -> list[str]:
    """`PYTHONS="3.11 3.13"` names the interpreters for every package; otherwise none are asked for."""
    return os.environ.get("PYTHONS", "").replace(",", " ").split()
