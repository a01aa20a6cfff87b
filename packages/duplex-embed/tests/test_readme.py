import runpy
from pathlib import Path

import pytest
from offprints.testing import readme_blocks

FOLDER = Path(__file__).parents[1]
README = FOLDER / "README.md"


@pytest.mark.parametrize("block", readme_blocks(README), ids=lambda block: f"line {block.count(chr(10), 0, 400)}")
def test_the_readme_runs(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(README), "exec"), {})
    assert "1 0 2 3" in capsys.readouterr().out or "spectral" not in block


def test_the_example_runs(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["example"])
    runpy.run_path(str(FOLDER / "examples" / "links_of_a_network.py"))
    assert "the new module" in capsys.readouterr().out
