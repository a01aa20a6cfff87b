"""The code in the method card runs as it stands."""

import re
from pathlib import Path

import pytest
from offprints.testing import readme_blocks

CARD = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("block", readme_blocks(CARD))
def test_block_runs(block, capsys):
    exec(compile(block, str(CARD), "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"plus +12 .* 75\.0%", out)
    assert 0.98 < float(re.search(r"'edq_ratio': ([\d.]+)", out)[1]) < 1.02


def test_card_is_short():
    assert len(CARD.read_text(encoding="utf-8").splitlines()) <= 150
