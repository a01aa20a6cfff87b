import re
from pathlib import Path

import pytest
from offprints.testing import readme_blocks

README = Path(__file__).parents[1] / "README.md"
NUMBER = r"(\d+\.\d+)\n"
PRINTED = [rf"{NUMBER}{NUMBER}", rf"fit step[\s\S]*classification +grokking\n{NUMBER}{NUMBER}"]


@pytest.mark.parametrize(("block", "printed"), list(zip(readme_blocks(README), PRINTED, strict=True)))
def test_the_readme_runs(block, printed, capsys):
    exec(compile(block, str(README), "exec"), {})
    found = re.fullmatch(printed, capsys.readouterr().out)
    assert found
    share, loss = map(float, found.groups())
    assert 0 < share < 1
    assert loss > 1
