"""The code in the method card runs as it stands."""

from pathlib import Path

import pytest
from offprints.testing import readme_blocks

CARD = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("block", readme_blocks(CARD))
def test_block_runs(block, capsys):
    exec(compile(block, str(CARD), "exec"), {})
    out = capsys.readouterr().out
    assert "kept per step [" in out
    assert 1e-5 < float(out.rpartition("candidates ")[2]) < 0.5


def test_card_is_short():
    assert len(CARD.read_text(encoding="utf-8").splitlines()) <= 150
