"""The code in the method card runs as it stands."""

from pathlib import Path

import pytest
from offprints.testing import readme_blocks

CARD = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("block", readme_blocks(CARD))
def test_block_runs(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(CARD), "exec"), {})
    assert "folded forward" in capsys.readouterr().out


def test_card_is_short():
    assert len(CARD.read_text(encoding="utf-8").splitlines()) <= 150
