import re
from pathlib import Path

import pytest
from offprints.testing import readme_blocks

README = Path(__file__).parents[1] / "README.md"
SAID = [
    "charge[\\s\\S]*predicted[\\s\\S]*best",
    "\\['T', 'S', 'L', 'V', 'M', 'G'\\] D→E: charge kept[\\s\\S]*active",
]


@pytest.mark.parametrize(
    ("block", "said"), list(zip(readme_blocks(README), SAID, strict=True)), ids=["plates", "graph"]
)
@pytest.mark.filterwarnings("ignore::knowrlm.MeasurementWarning")
def test_the_readme_runs(block, said, capsys):
    pytest.importorskip("ewht", reason="the landscape CR6261 of ewht")
    exec(compile(block, str(README), "exec"), {})

    assert re.search(said, capsys.readouterr().out)
