"""The code in the method card and the example run as they stand."""

import runpy
from pathlib import Path

import pytest
from offprints.testing import readme_blocks

HOME = Path(__file__).parents[1]
CARD = HOME / "README.md"


def test_blocks_run(capsys):
    space = {}
    for block in readme_blocks(CARD):
        exec(compile(block, str(CARD), "exec"), space)
    shown = capsys.readouterr().out
    assert "nothing else was looked at" in shown
    assert "no violation" in shown
    assert "leaks" in shown


def test_card_is_short():
    assert len(CARD.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.slow
def test_example_runs(capsys):
    runpy.run_path(str(HOME / "examples" / "audit_explainers.py"), run_name="__main__")
    shown = capsys.readouterr().out
    assert "SUWR" in shown
    assert "certificate" in shown
