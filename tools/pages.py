"""Hooks of the docs site: pages, tables and navigation made from the packages' folders; formulas as MathML.

Nothing is listed by hand: a new folder under packages/ is a new page, a row of the home table, and an entry of the API.
"""

from __future__ import annotations

import html
import re
import sys
from pathlib import Path

import latex2mathml.converter
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tools.tables import all_benchmarks, all_claims, methods, methods_table
from tools.workspace import Package, discover

LINK = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
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
    """The public names of a method; the public modules of the core."""
    if not package.is_core:
        return f"# {package.dist}: API\n\n::: {package.module}\n"
    names = sorted(path.relative_to(package.source) for path in package.source.glob("[a-z]*"))
    modules = [
        path.with_suffix("").name
        for path in names
        if path.suffix == ".py" or (package.source / path / "__init__.py").exists()
    ]
    inner = [name for name in modules if name not in {"cli", "commands"}]
    parts = [f"## offprints.{name}\n\n::: offprints.{name}\n    options: {{heading_level: 3}}\n" for name in inner]
    return "# offprints: API\n\n" + "\n".join(parts)


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
        "methods": lambda: methods_table(released, "methods/{dist}/README.md"),
        "claims": all_claims,
        "benchmarks": all_benchmarks,
    }
    return re.sub(r"<!-- (methods|claims|benchmarks) -->", lambda found: blocks[found[1]](), markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas become MathML, which browsers draw without a script; verdicts get their colour."""

    def formula(found: re.Match[str]) -> str:
        text = html.unescape(re.sub(r"<[^>]+>", "", found[2])).strip()
        display = "block" if text.startswith("\\[") else "inline"
        return latex2mathml.converter.convert(text[2:-2].strip(), display=display)

    content = INLINE.sub(formula, content)
    verdict = re.compile(r"<td>([✓✗○–] (holds|fails|open|not run|pass|fail))</td>")
    return verdict.sub(lambda found: f'<td class="verdict-{found[2].split()[0]}">{found[1]}</td>', content)
