"""Whether a built site asks anything of the network: `python -m tools.offline site`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

REQUESTS = (
    re.compile(r'<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc="(?:https?:)?//[^"]*"'),
    re.compile(r'<link\b(?![^>]*rel="canonical")[^>]*\bhref="(?:https?:)?//[^"]*"'),
    re.compile(r"""(?:@import\s+|url\()["']?(?:https?:)?//[^"')]*"""),
)


def problems(site: Path) -> list[str]:
    found = []
    for path in sorted(site.rglob("*")):
        if path.suffix in {".html", ".css"}:
            text = path.read_text(encoding="utf-8")
            found += [f"{path.relative_to(site)}: {match[0][:120]}" for one in REQUESTS for match in one.finditer(text)]
        if path.suffix == ".html" and 'class="arithmatex"' in path.read_text(encoding="utf-8"):
            found.append(f"{path.relative_to(site)}: a formula that was not turned into MathML")
    return found


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))
