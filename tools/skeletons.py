"""A new package in one folder, from the files in skeleton/: its name and its one line are filled in."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

from tools.workspace import ROOT

TEMPLATE = Path(__file__).parent / "skeleton"
LINKS = {"LICENSE": "../../LICENSE"} | {
    f"src/__module__/{name}": f"../../{name}" for name in ("claims.json", "bench.json")
}


def check_name(dist: str, root: Path = ROOT) -> None:
    """Refuse a name that is no distribution name, no import name, or taken."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", dist) or keyword.iskeyword(dist):
        raise SystemExit(f"the name must be lower-case words joined by hyphens, such as duplex-embed, got {dist!r}.")
    if (root / "packages" / dist).exists() or dist == "offprints":
        raise SystemExit(f"packages/{dist} exists already. Choose another name.")


def check_summary(summary: str) -> None:
    if not summary.strip() or "\n" in summary or '"' in summary or "\\" in summary or len(summary) > 100:
        raise SystemExit(
            f"the summary must be one line of at most 100 characters, no quotation mark or backslash, got {summary!r}."
        )


def write(dist: str, summary: str, root: Path = ROOT) -> Path:
    """Write packages/<dist>; no other file is touched."""
    check_name(dist, root)
    check_summary(summary)
    words = {"__dist__": dist, "__module__": dist.replace("-", "_"), "__summary__": summary.strip().rstrip(".") + "."}

    def fill(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    folder = root / "packages" / dist
    for source in sorted(TEMPLATE.rglob("*.in")):
        target = folder / fill(str(source.relative_to(TEMPLATE).with_suffix("")))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(fill(source.read_text(encoding="utf-8")), encoding="utf-8")
    for name, aim in LINKS.items():
        (folder / fill(name)).symlink_to(aim)
    return folder
