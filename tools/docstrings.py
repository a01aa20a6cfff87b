"""What a public docstring states, and what a public signature may not say."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tools.imports import claims_side, modules
from tools.workspace import Package

PLACE = re.compile(  # a place of the paper
    r"\b(eqs?\.?|equations?|tables?|sections?|secs?\.?|theorems?|algorithms?|appendix|appendices|figures?|fig\.|lemmas?|"
    r"definitions?|propositions?|corollar(y|ies)|assumptions?|remarks?|conjectures?)[\s~]*\(?([A-Z]?\.?\d|[A-Z]\b)|§",
    re.IGNORECASE,
)


def public_names(package: Package) -> list[str]:
    tree = ast.parse((package.source / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value)]
    return []


@cache
def definitions(package: Package) -> dict[str, tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]]:
    """Top-level functions and classes of all modules by name; the claims and the literal reference left out."""
    found = {}
    for path in set(modules(package)) - claims_side(package):
        if path.name == "_reference.py":
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[node.name] = (path, node)
    return found


def full_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """A class's docstring with those of its public methods: together they are what a reader sees."""
    parts = [ast.get_docstring(node) or ""]
    if isinstance(node, ast.ClassDef):
        parts += [ast.get_docstring(child) or "" for child in node.body if isinstance(child, ast.FunctionDef)]
    return "\n".join(parts)


@cache
def cites(path: Path) -> bool:
    """Whether any docstring of a module names its place in the paper: what a file adds to the paper needs none."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (node for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef))
    return any(PLACE.search(ast.get_docstring(node) or "") for node in documented)


def own_raises(node: ast.AST) -> bool:
    """Whether the body raises by itself (bare re-raises and nested functions do not count)."""
    pending = list(ast.iter_child_nodes(node))
    while pending:
        child = pending.pop()
        if (
            isinstance(child, ast.Raise)
            and child.exc is not None
            and "NotImplementedError" not in ast.unparse(child.exc)
        ):
            return True
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(child)
    return False


def docstring_problems(package: Package) -> Iterator[str]:
    """A module with public names says where in the paper they stand (methods only); what raises says so."""
    exported = set(public_names(package))
    if not exported:
        yield f"{(package.source / '__init__.py').relative_to(package.root)}: no __all__"
    silent: set[Path] = set()
    for name, (path, node) in definitions(package).items():
        if name not in exported:
            continue
        where, text = f"{path.relative_to(package.root)}:{node.lineno}:", full_docstring(node)
        if not text.strip():
            yield f"{where} {name} has no docstring"
        silent |= {path} if not package.is_core and not cites(path) else set()
        functions = (
            [node] if not isinstance(node, ast.ClassDef) else [n for n in node.body if isinstance(n, ast.FunctionDef)]
        )
        for function in functions:
            if (
                (not function.name.startswith("_") or function.name == "__init__")
                and own_raises(function)
                and "Raises:" not in text
            ):
                here = f"{path.relative_to(package.root)}:{function.lineno}:"
                yield f"{here} {name}.{function.name} raises; no `Raises:` in its docstring"
    for path in sorted(silent):
        yield f"{path.relative_to(package.root)}:1: no docstring here names an equation, table or section of the paper"


def any_problems(package: Package) -> Iterator[str]:
    """`Any` in the signature of a public function or method."""
    for path in sorted(package.source.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        owners = [
            tree,
            *(node for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")),
        ]
        for function in (child for owner in owners for child in owner.body if isinstance(child, ast.FunctionDef)):
            if function.name.startswith("_") and function.name not in {"__init__", "__call__"}:
                continue
            arguments = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
            notes = [arg.annotation for arg in (*arguments, function.args.vararg, function.args.kwarg) if arg] + [
                function.returns
            ]
            if any(re.search(r"\bAny\b", ast.unparse(note)) for note in notes if note is not None):
                where = f"{path.relative_to(package.root)}:{function.lineno}:"
                yield f"{where} Any in the public signature of {function.name}"
