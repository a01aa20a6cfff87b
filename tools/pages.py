"""Hooks of the docs site: pages, tables and navigation made from the packages' folders; formulas as MathML.

Nothing is listed by hand: a new folder under packages/ is a new page, a row of the home table, and an entry of the API.
"""

from __future__ import annotations

import ast
import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import latex2mathml.converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.docstrings import public_names
from tools.imports import claims_side
from tools.tables import all_benchmarks, all_claims, gallery, methods, methods_table
from tools.workspace import Package, discover

LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
COMMANDS = {"cli", "commands"}  # documented by their own --help
INLINE = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def readme_page(package: Package, attach: set[str]) -> str:
    """A README as a page: links to files of the package go with it, links out of it become plain text."""
    text = (package.folder / "README.md").read_text(encoding="utf-8")

    def keep(found: re.Match[str]) -> str:
        start, target, anchor = found[1], found[2], found[3] or ""
        path = (package.folder / target).resolve()
        if path.is_file() and path.is_relative_to(package.folder):
            attach.add(target)
            return f"{start}{target}{anchor})"
        return re.sub(r"^!?\[(.*)\]\($", r"\1", start)

    return LINK.sub(keep, text)


def api_page(package: Package) -> str:
    """The names that a package exports, then what else its public modules offer."""
    exported = set(public_names(package))
    parts = [f"# {package.dist}: API\n\n::: {package.module}\n"] if exported and not package.is_core else []
    parts = parts or [f"# {package.dist}: API\n"]
    for name, file in public_modules(package):
        offered = [item for item in offers(file) if item not in exported or package.is_core]
        if offered:
            members = "".join(f"\n        - {item}" for item in offered)
            options = f"    options:\n      heading_level: 3\n      members:{members}\n"
            parts.append(f"## {package.module}.{name}\n\n::: {package.module}.{name}\n{options}")
    return "\n".join(parts)


def public_modules(package: Package) -> Iterator[tuple[str, Path]]:
    """Name and file of each; of a folder that only imports its modules when they are asked for, those modules."""
    for path in sorted(package.source.glob("[a-z]*")):
        file = path / "__init__.py" if path.is_dir() else path
        if file.suffix != ".py" or not file.exists() or file in claims_side(package) or path.stem in COMMANDS:
            continue
        if path.is_dir() and "__getattr__" in offers(file, hidden=True):
            yield from ((f"{path.stem}.{inner.stem}", inner) for inner in sorted(path.glob("[a-z]*.py")))
        else:
            yield path.stem, file


def offers(file: Path, hidden: bool = False) -> list[str]:
    """The public names of a module: its `__all__`, or the functions and classes it defines (all, with `hidden`)."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__" and not hidden:
            return list(ast.literal_eval(node.value))
    defined = (node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef))
    return [node.name for node in defined if hidden or not node.name.startswith("_")]


@event_priority(100)  # before mkdocstrings reads its settings
def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Tell mkdocstrings where the sources lie, and write the navigation."""
    packages = discover()
    python = config.plugins["mkdocstrings"].config.handlers["python"]
    python["paths"] = [str(package.folder / "src") for package in packages.values()]
    pages = [{package.dist: f"methods/{package.dist}/README.md"} for package in methods()]
    interfaces = [{package.dist: f"api/{package.dist}.md"} for package in packages.values()]
    guides = [f"guides/{name}.md" for name in ("reading-a-card", "devices", "full-scale", "adding-a-method")]
    results_pages: list[str] = ["claims.md", "benchmarks.md"]
    config.nav = [
        {"Methods": ["index.md", *pages]},
        {"Results": results_pages},
        {"Guides": guides},
        {"API": interfaces},
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page and the API of every package, with the files that its README shows."""
    for package in discover().values():
        files.append(File.generated(config, f"api/{package.dist}.md", content=api_page(package)))
        if package.is_core:
            continue
        attach: set[str] = set()
        page = f"methods/{package.dist}"
        files.append(File.generated(config, f"{page}/README.md", content=readme_page(package, attach)))
        for name in sorted(attach):
            files.append(File.generated(config, f"{page}/{name}", abs_src_path=str(package.folder / name)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fill the tables."""
    released = [package for package in methods() if not package.is_draft]
    blocks = {
        "gallery": lambda: gallery(released),
        "methods": lambda: methods_table(released, "methods/{dist}/README.md"),
        "claims": all_claims,
        "benchmarks": all_benchmarks,
    }
    return re.sub(r"<!-- (gallery|methods|claims|benchmarks) -->", lambda found: blocks[found[1]](), markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas become MathML, which browsers draw without a script; verdicts get their colour."""

    def formula(found: re.Match[str]) -> str:
        text = html.unescape(re.sub(r"<[^>]+>", "", found[2])).strip()
        display = "block" if text.startswith("\\[") else "inline"
        return latex2mathml.converter.convert(text[2:-2].strip(), display=display)

    content = INLINE.sub(formula, content)
    verdict = re.compile(r"<td>([✓✗○–] (holds|fails|open|not run|pass|fail))</td>")
    return verdict.sub(lambda found: f'<td class="verdict-{found[2].split()[0]}">{found[1]}</td>', content)
