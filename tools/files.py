"""What may stand in the files: no hosts, no machine, no coverage exclusions; news for every change; floors, no caps."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.workspace import CORE, ROOT, Package, git, last_tag

# spelt with classes of one letter, so that this file does not name them
HOSTS = re.compile(r"py[p]i[.]org|pyth[o]nhosted[.]org|downl[o]ad[.]pytorch[.]org|regi[s]try[.]npmjs|anac[o]nda[.]org")
MACHINE = re.compile(r"(?<![\w.~/:-])/(root|work|opt|home/\w+|Users/\w+|tmp/\w+)/")
CORE_LINES = 2000
BINARY = {".png", ".svg", ".safetensors", ".gz", ".ico", ".woff2"}


def tracked(root: Path) -> list[Path]:
    listed = git("ls-files", "--cached", "--others", "--exclude-standard", "-z", root=root).split("\0")
    return [path for name in listed if name and (path := root / name).is_file() and path.suffix not in BINARY]


def text_problems(root: Path = ROOT) -> Iterator[str]:
    """Coverage exclusions, hosts of package indexes and paths of one machine, in any file of the repository."""
    exclusion = "pragma: " + "no cover"
    for path in tracked(root):
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            where = f"{path.relative_to(root)}:{number}:"
            if path.suffix == ".py" and exclusion in line:
                yield f"{where} a coverage exclusion"
            if match := HOSTS.search(line):
                yield f"{where} names the package index host {match[0]}"
            if match := MACHINE.search(line):
                yield f"{where} names a path of one machine, {match[0]}"


def code_lines(path: Path) -> int:
    """Lines that hold code: no comments, no docstrings, no blank lines."""
    text = path.read_text(encoding="utf-8")
    documented = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            documented.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - documented - {len(text.splitlines()) + 1})


def size_problems(package: Package) -> Iterator[str]:
    """The core stays small; the conformance suite that ships with it is not counted."""
    counted = [path for path in package.source.rglob("*.py") if "testing" not in path.parts] if package.is_core else []
    total = sum(code_lines(path) for path in counted)
    if total >= CORE_LINES:
        yield f"{package.folder.name}: {total} lines of code; the core stays under {CORE_LINES}"


def news_problems(package: Package) -> Iterator[str]:
    """News fragments are well formed, and a package changed since its last release has one."""
    folder = package.folder / "changes"
    fragments = [path for path in sorted(folder.glob("*")) if not path.name.startswith(".")]
    for path in fragments:
        where = f"{path.relative_to(package.root)}:"
        if not re.fullmatch(r"(\+[\w-]+|\d+)\.(feature|bugfix|doc|removal|misc)(\.\d+)?\.md", path.name):
            yield f"{where} name it +<slug>.<feature|bugfix|doc|removal|misc>.md"
        elif len(path.read_text(encoding="utf-8").strip().splitlines()) != 1:
            yield f"{where} a news fragment is one line"
    tag = last_tag(package.dist, package.root)
    changed = (
        bool(git("diff", "--name-only", tag, "--", str(package.source), root=package.root))
        if tag
        else not package.is_draft
    )
    if changed and not fragments:
        since = f"since {tag}" if tag else "and never released"
        yield f"{package.folder.relative_to(package.root)}: changed {since}, but changes/ has no news fragment"


def requirement_problems(package: Package) -> Iterator[str]:
    """Floors on everything, caps on nothing but the core; the folder, the licence and the entry point agree."""
    where = f"{(package.folder / 'pyproject.toml').relative_to(package.root)}:"
    for line in package.required + [line for lines in package.extras.values() for line in lines]:
        requirement = Requirement(line)
        operators = {spec.operator for spec in requirement.specifier}
        own = canonicalize_name(requirement.name) in {CORE, package.dist}
        if requirement.url or operators - {">=", "!="} - ({"<"} if own else set()):
            yield f"{where} {line!r} is capped, pinned or an address"
        elif ">=" not in operators and requirement.name != package.dist:
            yield f"{where} {line!r} has no tested floor"
    if package.is_core:
        return
    if package.folder.name != package.dist:
        yield f"{where} the distribution {package.dist} lies in the folder {package.folder.name}"
    if not (package.folder / "LICENSE").is_symlink():
        yield f"{where} LICENSE is no link to ../../LICENSE"
    wanted = {package.dist: f"{package.module}.claims:METHOD"}
    if package.pyproject["project"].get("entry-points", {}).get("offprints.methods") != wanted:
        yield f"{where} the entry point of group offprints.methods is not {wanted}"
