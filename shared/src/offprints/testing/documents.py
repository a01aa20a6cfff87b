"""Tests of what a package says of itself: its claims at smoke scale, the code blocks of its README."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from offprints.claims import Method


def run_smoke(method: "Method", claim_id: str, device: str = "cpu") -> dict[str, float]:
    """The metrics of seed 0 of a claim at smoke scale.

    Raises:
        KeyError: if the method has no such claim.
        ClaimError: if a metric that the claim expects is missing, or one is not finite.
    """
    claim = method.claims[claim_id]
    return claim.measure(0, claim.smoke, device)[0]


def readme_blocks(path: str | Path) -> list[str]:
    """The ```python blocks of a Markdown file, to be run by `exec(compile(block, path, "exec"), {})`.

    Each is padded with empty lines, so that a traceback names the line of the file. A block fenced as
    ```python skip is left out.
    """
    text = Path(path).read_text(encoding="utf-8")
    found = re.finditer(r"^```python[ ]*\n(.*?)^```[ ]*$", text, flags=re.MULTILINE | re.DOTALL)
    return ["\n" * text.count("\n", 0, match.start(1)) + match.group(1) for match in found]
