"""Which interpreters of the supported range this machine has; nothing is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

SUPPORTED = ("3.11", "3.12", "3.13")


def found(version: str) -> bool:
    """Whether an interpreter of this version is on the search path or in a version manager."""
    if version == ".".join(map(str, sys.version_info[:2])):
        return True
    try:
        from python_discovery import get_interpreter  # what nox itself searches with

        return get_interpreter(version) is not None
    except ImportError:
        path = shutil.which(f"python{version}")
        return path is not None and subprocess.run([path, "-c", ""], capture_output=True, check=False).returncode == 0


def running() -> str:
    return ".".join(map(str, sys.version_info[:2]))


def base() -> str:
    """The oldest supported interpreter here, on which everything runs."""
    return next((version for version in SUPPORTED if found(version)), running())


def newest() -> str:
    """The newest supported interpreter here, on which the packages without torch run as well."""
    return next((version for version in reversed(SUPPORTED) if found(version)), running())


def asked() -> list[str]:
    """`PYTHONS="3.11 3.13"` names the interpreters for every package; otherwise none are asked for."""
    return os.environ.get("PYTHONS", "").replace(",", " ").split()
