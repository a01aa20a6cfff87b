"""Result files: the fingerprint of the source that made them, the machine they were made on, claims.json itself."""

import ast
import hashlib
import importlib.metadata
import importlib.util
import io
import json
import os
import platform
import re
import subprocess
import sys
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from offprints.checkpoint import write_atomic

if TYPE_CHECKING:
    from offprints.claims.method import Method
    from offprints.claims.runner import Outcome

RESULTS_VERSION = 1
"""Part of every fingerprint: raised when the core changes what results mean."""
SCHEMA = "offprints.claims/1"
Json = dict[str, Any]
"""The content of a JSON file: of the schema that its reader names."""

T = TypeVar("T")


def _dropped(tree: ast.Module) -> set[int]:
    """Lines that cannot change a result: docstrings, the METHOD's texts, claim decorators, functions that draw."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        spans: list[ast.stmt | ast.expr] = []
        if (
            isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            and ast.get_docstring(node) is not None
        ):
            spans.append(node.body[0])
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            spans.append(node)
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and getattr(node.value.func, "id", "") == "Method"
        ):
            spans.append(node)
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            kind = getattr(decorator.func, "attr", "") if isinstance(decorator, ast.Call) else ""
            if kind in ("claim", "figure"):
                spans.append(decorator)
            if kind == "figure" and isinstance(node, ast.FunctionDef):
                spans.append(node)
        for span in spans:
            lines.update(range(span.lineno, (span.end_lineno or span.lineno) + 1))
    return lines


def essence(source: str) -> str:
    """The lines of a source that can change a result: no comments, docstrings, blank lines, or texts of claims."""
    dropped = _dropped(ast.parse(source))
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    kept = (line.rstrip() for number, line in enumerate(lines, 1) if number not in dropped)
    return "\n".join(line for line in kept if line)


def _imports(source: str, module: str, is_package: bool) -> set[str]:
    """Every module that the source may import, by absolute name; importing a.b runs a as well."""
    package = module if is_package else module.rpartition(".")[0]
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            names.update([base, *(f"{base}.{alias.name}" for alias in node.names)])
    parts = [name.split(".") for name in names]
    return {".".join(part[: end + 1]) for part in parts for end in range(len(part))}


def reached(start: Path, module: str) -> dict[str, Path]:
    """The modules of `module`'s top-level package that the file `start` imports, directly or not, itself included."""
    top = module.partition(".")[0]
    found, queue = {module: start}, [(module, start)]
    while queue:
        name, file = queue.pop()
        for other in sorted(_imports(file.read_text("utf-8"), name, file.name == "__init__.py")):
            if other.partition(".")[0] != top or other in found:
                continue
            try:
                spec = importlib.util.find_spec(other)
            except ModuleNotFoundError:  # a name inside a module, not a module
                continue
            if spec is not None and spec.origin:
                found[other] = Path(spec.origin)
                queue.append((other, found[other]))
    return found


def fingerprint(module: str, start: Path | None = None) -> str:
    """Hash of the source that `module` reaches inside its package, and of the core's results version.

    Args:
        module: the module to start from, such as `lococo.claims`.
        start: a file to start from that is in no package (a benchmark), seen as part of `module`'s package.
    """
    spec = importlib.util.find_spec(module)
    first = start or Path(str(spec.origin if spec else ""))
    digest = hashlib.sha256(f"results {RESULTS_VERSION}\n".encode())
    for name, file in sorted(reached(first, module).items()):
        digest.update(f"{name}\n{essence(file.read_text('utf-8'))}\n".encode())
    return digest.hexdigest()[:16]


def environment(dist: str, device: str, dtype: str) -> dict[str, object]:
    """Versions, device, dtype, threads, CPU and commit: what a result was made on."""
    wanted = {dist, "offprints", "numpy", "scipy", "torch", "scikit-learn", "transformers"}
    for requirement in importlib.metadata.requires(dist) or ():
        if "extra ==" not in requirement:
            wanted.update(re.findall(r"^[\w.-]+", requirement))
    installed = {found.metadata["Name"]: found.version for found in importlib.metadata.distributions()}
    versions = {name: installed[name] for name in sorted(wanted) if name in installed}
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip() or "unknown", "cpu": _cpu(), "device": device, "dtype": dtype,
        "python": platform.python_version(), "system": platform.system(), "threads": 1, "versions": versions,
    }  # fmt: skip


def _cpu() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _none(constant: str) -> None:
    """What Infinity and NaN become."""


def rounded(value: T) -> T:
    """The value as JSON gives it back, with floats at 6 significant digits and infinities as None."""
    return json.loads(json.dumps(value), parse_float=lambda text: float(f"{float(text):.6g}"), parse_constant=_none)


def to_json(method: "Method", outcomes: "Sequence[Outcome]", device: str) -> Json:
    """The content of claims.json."""
    return rounded(
        {
            "schema": SCHEMA,
            "fingerprint": fingerprint(f"{method.dist.replace('-', '_')}.claims"),
            "env": environment(method.dist, device, method.dtype),
            "claims": [outcome.to_json() for outcome in outcomes],
            "cost": {outcome.claim.id: round(outcome.seconds, 1) for outcome in outcomes},
        }
    )


def write(path: Path, content: Json) -> None:
    """Write a result file, sorted and indented so that changes read well in a diff."""
    write_atomic(path, (json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False) + os.linesep).encode())


def read(path: Path, schema: str = SCHEMA) -> Json:
    """Read a result file.

    Raises:
        FileNotFoundError: if there is none.
        ValueError: if it is not JSON, or of another schema.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} must be JSON, got an error at line {error.lineno}: {error.msg}.") from error
    got = content.get("schema") if isinstance(content, dict) else None
    if got != schema:
        raise ValueError(f"{path} must be of schema {schema}, got {got}. Another version of offprints wrote it.")
    return content
