from pathlib import Path

import pytest
from offprints.testing import readme_blocks

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("block", readme_blocks(README), ids=lambda block: f"line {block.count(chr(10), 0, 400)}")
def test_the_readme_runs(block, capsys):
    exec(compile(block, str(README), "exec"), {})
