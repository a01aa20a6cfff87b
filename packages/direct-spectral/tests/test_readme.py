from pathlib import Path

import pytest
from offprints.testing import readme_blocks

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("block", readme_blocks(README))
def test_the_readme_runs(block, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = {}
    exec(compile(block, str(README), "exec"), found)
    if "stress" in found:
        assert "'mean': " in capsys.readouterr().out
        assert found["stress"].shape == (4, 512, 1)
        assert found["history"].error[-1] < found["history"].error[0]
    else:
        assert found["there"].shape == (4, 50, 3)
        assert found["states"].shape == (3, 4, 300, 3)
        assert str(found["low"].dtype) == "torch.bfloat16"
