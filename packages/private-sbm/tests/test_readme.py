"""The code in the method card and the example run as they stand."""

import runpy
from pathlib import Path

import pytest
from offprints.testing import readme_blocks

HOME = Path(__file__).parents[1]
CARD = HOME / "README.md"


@pytest.mark.parametrize("block", readme_blocks(CARD))
def test_block_runs(block, capsys):
    exec(compile(block, str(CARD), "exec"), {})
    assert "violations: none" in capsys.readouterr().out


def test_card_is_short():
    assert len(CARD.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.slow
def test_example_runs(capsys):
    runpy.run_path(str(HOME / "examples" / "publish_communities.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "released: True" in shown
    assert "karate club: refused" in shown
