"""The code in the method card runs as it stands."""

from pathlib import Path

import pytest
from lococo_tiny import build, put
from offprints.testing import readme_blocks

CARD = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("block", readme_blocks(CARD))
def test_block_runs(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = next(iter(put(build(), None)))
    exec(compile(block.replace("cache=cache", f"{name}=cache"), str(CARD), "exec"), {})
    out = capsys.readouterr().out
    assert "tokens seen, " in out
    assert "in each of 2 layers" in out
    assert (tmp_path / "heads" / "heads.safetensors").exists()


def test_card_is_short():
    assert len(CARD.read_text(encoding="utf-8").splitlines()) <= 150
