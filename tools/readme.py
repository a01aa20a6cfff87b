"""The table of methods in the root README: `python -m tools.readme` writes it, `--check` says whether it is fresh."""

from __future__ import annotations

import sys

from offprints import card

from tools.tables import methods, methods_table
from tools.workspace import ROOT

if __name__ == "__main__":
    path = ROOT / "README.md"
    before = path.read_text(encoding="utf-8")
    table = methods_table([package for package in methods() if not package.is_draft], "packages/{dist}/README.md")
    after = card.with_blocks(before, {"methods": table})
    if "--check" not in sys.argv:
        path.write_text(after, encoding="utf-8")
    elif after != before:
        print("README.md: the table of methods is not what the packages say. Run nox -s card.", file=sys.stderr)
        sys.exit(1)
