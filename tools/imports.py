"""Who may import whom, read from the syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.workspace import CORE, Package

STABLE = {"device", "seeding", "progress", "checkpoint", "checks"}  # of the core: what method code may import
EXPERIMENTS = {"experiments", "figures", "method"}  # experiments.py, figures_training.py, _method.py ...


def imported(tree: ast.AST, package: str = "") -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import; a relative one gets the name of the package that it starts from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield node.lineno, module
            yield from ((node.lineno, f"{module}.{alias.name}") for alias in node.names)


def claims_side(package: Package) -> set[Path]:
    """The modules of the claims: claims*.py, and those named for it (`EXPERIMENTS`) that only they import."""
    if package.is_core:
        return set()
    paths = {".".join(path.relative_to(package.source.parent).with_suffix("").parts): path for path in modules(package)}
    users: dict[str, set[str]] = {name: set() for name in paths}
    for name, path in paths.items():
        for _, used in imported(ast.parse(path.read_text(encoding="utf-8")), name.rpartition(".")[0]):
            if used in users and used != name:
                users[used].add(name)
    stems = {name: name.split(".")[1].lstrip("_").split("_")[0] for name in paths}
    side = {name for name, stem in stems.items() if stem == "claims"}
    while more := {name for name in set(paths) - side if stems[name] in EXPERIMENTS and users[name] <= side}:
        side |= more
    return {paths[name] for name in side}


def modules(package: Package) -> list[Path]:
    return sorted(package.source.rglob("*.py"))


def import_problems(package: Package, members: set[str]) -> Iterator[str]:
    """Breaches in one package; `members` are the import names of all members."""
    others = members - {package.module, CORE}
    side = claims_side(package)
    for path in sorted(package.folder.rglob("*.py")):
        in_source = path.is_relative_to(package.source)
        parent = ".".join(path.relative_to(package.source.parent).parent.parts) if in_source else ""
        for line, name in imported(ast.parse(path.read_text(encoding="utf-8")), parent):
            where, parts = f"{path.relative_to(package.root)}:{line}:", name.split(".")
            if parts[0] in others:
                kind = "the core" if package.is_core else "a method"
                yield f"{where} {kind} imports the method {parts[0]}"
            if not in_source or package.is_core:
                continue
            if path.name == "_reference.py" and parts[0] in {package.module, CORE}:
                yield f"{where} _reference.py imports {name}: the literal equations stand alone"
            if path in side:
                continue
            if parts[0] == CORE and len(parts) > 1 and parts[1] not in STABLE:
                yield f"{where} method code imports {name}; of the core it may import {', '.join(sorted(STABLE))}"
            if parts[0] == package.module and len(parts) > 1 and parts[1].split("_")[0] == "claims":
                yield f"{where} method code imports {name}: claims are for the command line and the tests"


def eager_imports(tree: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when the module is imported: not in functions, nor for the type checker only, nor in a `try`."""
    pending: list[ast.AST] = list(tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            pending += node.orelse
        elif isinstance(node, ast.If | ast.With | ast.ClassDef):
            pending += node.body + getattr(node, "orelse", [])


def optional_problems(package: Package) -> Iterator[str]:
    """What `import package` reaches but an extra provides."""
    owners = packages_distributions()
    required = {canonicalize_name(Requirement(line).name) for line in package.required} | {package.dist}
    optional = {
        canonicalize_name(Requirement(line).name) for lines in package.extras.values() for line in lines
    } - required
    seen, pending = set(), [package.source / "__init__.py"]
    while pending:
        path = pending.pop()
        if path in seen or not path.exists():
            continue
        seen.add(path)
        parent = ".".join(path.relative_to(package.source.parent).parent.parts)
        for node in eager_imports(ast.parse(path.read_text(encoding="utf-8"))):
            for _, name in imported(ast.Module([node], []), parent):
                top = name.split(".")[0]
                if top == package.module:
                    stem = package.source.parent.joinpath(*name.split("."))
                    pending += [stem.with_suffix(".py"), stem / "__init__.py"]
                elif optional & {canonicalize_name(owner) for owner in owners.get(top, [])}:
                    where = f"{path.relative_to(package.root)}:{node.lineno}:"
                    yield f"{where} `import {package.module}` needs {top}, which only an extra brings"
