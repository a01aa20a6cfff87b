"""Rules of this repository that no linter knows. Runs in the lint environment: `python -m tools.rules`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from tools.docstrings import any_problems, docstring_problems
from tools.files import news_problems, requirement_problems, size_problems, text_problems
from tools.imports import import_problems, optional_problems
from tools.workspace import discover


def problems() -> Iterator[str]:
    """Every breach of every rule, in the order of the packages."""
    packages = discover()
    modules = {package.module for package in packages.values()}
    for package in packages.values():
        for rule in (
            optional_problems,
            docstring_problems,
            any_problems,
            news_problems,
            requirement_problems,
            size_problems,
        ):
            yield from rule(package)
        yield from import_problems(package, modules)
    yield from text_problems()


if __name__ == "__main__":
    found = list(problems())
    print(*found, sep="\n")
    print(f"{len(found)} breaches of the rules of this repository")
    sys.exit(bool(found))
