"""Tables made from the packages: of the methods, of all claims, of all benchmarks."""

from __future__ import annotations

import ast
import html
import json
import re
from collections import Counter
from typing import Any

from offprints import card

from tools.workspace import Package, discover

FIGURE = re.compile(r"!\[([^\]]*)\]\((figures/[^)\s]+)\)")


def methods() -> list[Package]:
    return [package for package in discover().values() if not package.is_core]


def metadata(package: Package) -> dict[str, Any]:
    """The literal arguments of `METHOD = Method(...)`, read without importing the package."""
    for path in sorted(package.source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Method", "claims.Method"}:
                literal = {}
                for keyword in node.keywords:
                    try:
                        literal[str(keyword.arg)] = ast.literal_eval(keyword.value)
                    except ValueError:
                        continue
                return literal
    return {}


def results(package: Package, name: str) -> dict[str, Any] | None:
    path = package.folder / name
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def counts(package: Package) -> str:
    """How many claims hold, fail, are open or were not run: `5 hold, 1 fails`."""
    content = results(package, "claims.json")
    found = Counter(claim["verdict"] for claim in content["claims"]) if content else Counter()
    return (
        ", ".join(f"{found[verdict]} {verdict}" for verdict in ("holds", "fails", "open", "not run") if found[verdict])
        or "–"
    )


def methods_table(packages: list[Package], link: str) -> str:
    """Field · method · what it does · claims · install line; drafts are left out."""
    rows = []
    for package in packages:
        facts = metadata(package)
        name = f"[{package.dist}]({link.format(dist=package.dist)})"
        summary = str(facts.get("summary", package.title)).rstrip(".")
        rows.append([str(facts.get("field", "")), name, summary, counts(package), f"`pip install {package.dist}`"])
    return card.markdown((["field", "method", "what it does", "claims", "install"], sorted(rows)))


def gallery(packages: list[Package]) -> str:
    """The first figure of each method, which leads to its page."""
    parts = []
    for package in packages:
        found = FIGURE.search((package.folder / "README.md").read_text(encoding="utf-8"))
        if found is not None:
            page, says = f"methods/{package.dist}", html.escape(found[1])
            image = f'<img src="{page}/{found[2]}" alt="{says}" loading="lazy">'
            parts.append(f'<a href="{page}/index.html">{image}<span><b>{package.dist}</b><br>{says}</span></a>')
    return f'<div class="gallery">{"".join(parts)}</div>'


def all_claims() -> str:
    """One table a method, as in its card."""
    parts = []
    for package in methods():
        if (content := results(package, "claims.json")) and content.get("claims"):
            parts += [f"## {package.dist}", card.markdown(card.claims_table(content))]
    return "\n\n".join(parts) or "Nothing was measured yet."


def all_benchmarks() -> str:
    parts = []
    for package in methods():
        if (content := results(package, "bench.json")) and content.get("duels"):
            parts += [f"## {package.dist}", card.markdown(card.bench_table(content))]
    return "\n\n".join(parts) or "Nothing was measured yet."
