"""The code in the method card runs as it stands, and the script that anyone can check the finding with."""

import runpy
from pathlib import Path

import pytest
from offprints.testing import readme_blocks

HERE = Path(__file__).parents[1]
CARD, SCRIPT = HERE / "README.md", HERE / "examples" / "published_estimator.py"


@pytest.mark.parametrize("block", readme_blocks(CARD))
def test_block_runs(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, str(CARD), "exec"), {})
    assert capsys.readouterr().out


def test_card_is_short():
    assert len(CARD.read_text(encoding="utf-8").splitlines()) <= 150


def test_the_script_needs_torch_and_transformers_alone(capsys):
    text = SCRIPT.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 40
    imported = {line.split()[1].partition(".")[0] for line in text.splitlines() if line.startswith(("import", "from"))}
    assert imported <= {"torch", "transformers", "pydoc_data", "zlib", "re"}
    namespace = runpy.run_path(str(SCRIPT), init_globals=None, run_name="check")
    namespace["main"](layer=1, lengths=(2, 8), n_layer=2, n_embd=48)
    said = capsys.readouterr().out
    assert said.count("n =") == 2
