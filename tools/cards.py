"""What a card tells a newcomer to do: its first `pip install`, its first block of code."""

from __future__ import annotations

import re

from tools.workspace import Package


def _text(package: Package) -> str:
    return (package.folder / "README.md").read_text(encoding="utf-8")


def extras(package: Package) -> list[str]:
    """The extras that the card's first `pip install` of the package names."""
    found = re.search(rf'pip install "?{package.dist}(?:\[([a-z0-9,-]+)\])?', _text(package))
    return found[1].split(",") if found and found[1] else []


def first_block(package: Package) -> str | None:
    """The first block of Python, or None."""
    found = re.search(r"^```python[ ]*\n(.*?)^```[ ]*$", _text(package), flags=re.MULTILINE | re.DOTALL)
    return found[1] if found else None
