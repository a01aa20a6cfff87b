"""A small method, installed for the tests alone: real entry point, real files, real claims."""

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest_plugins = ["offprints.testing.plugin"]

CLAIMS = '''
"""Claims of a small method."""
import os, signal, time
from pathlib import Path
import numpy as np
from offprints.claims import Method, MissingResource, Scale, exact, greater, less
from offprints import plot
from toy_method.law import draw

METHOD = Method(
    dist="toy-method", title="A Toy", authors="A. Author", field="statistics", summary="Adds numbers.",
    bibtex="@inproceedings{toy}", arxiv="2401.00001", deviations=["none that matters"])
LOG = Path(__file__).parent / "calls.log"

def note(text):
    with open(LOG, "a") as file:
        file.write(text + "\\n")

@METHOD.claim("gain", where="Table 1", says="Ours loses less.", paper={"ours": 1.0, "peer": 2.0},
              expect=[less("ours", than="peer", by=0.1)],
              smoke=Scale(seeds=2, wait=0.0), cpu=Scale(seeds=6, wait=0.0),
              full=Scale(seeds=1, wait=0.0, needs="one machine"))
def gain(seed, scale, device):
    note(f"gain {seed}")
    time.sleep(scale.wait)
    return {"ours": 1 + draw(seed), "peer": 2 + draw(seed), "curve": [1.0, draw(seed), seed]}

@METHOD.claim("identity", where="Theorem 2", says="Nothing is lost.", expect=[exact("gap", 0.0, tol=1e-12)],
              smoke=Scale(seeds=1), cpu=Scale(seeds=5), note="a note")
def identity(seed, scale, device):
    note(f"identity {seed}")
    return {"gap": 0.0}

@METHOD.figure("curve", needs=["gain"], caption="How it goes.")
def picture(runs):
    drawn, (ax,) = plot.figure()
    plot.bands(ax, [0, 1, 2], runs["gain"].series("curve"), "ours")
    return drawn
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Installs `toy-method` (or more) into a folder on the path of this process and its children."""
    site = tmp_path / "site"
    before = set(sys.modules)

    def install(
        claims: str = CLAIMS,
        dist: str = "toy-method",
        target: str = "METHOD",
        name: str = "",
        change: tuple[str, str] = ("", ""),
        extra: str = "",
    ) -> Path:
        assert change[0] in claims
        claims = claims.replace(*change) + extra if change[0] else claims + extra
        package = site / dist.replace("-", "_")
        package.mkdir(parents=True, exist_ok=True)
        (package / "__init__.py").write_text('"""A toy."""\n')
        (package / "law.py").write_text("def draw(seed):\n    return 0.01 * seed\n")
        if claims:
            (package / "claims.py").write_text(claims)
        info = site / f"{dist.replace('-', '_')}-0.3.0.dist-info"
        info.mkdir(exist_ok=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {dist}\nVersion: 0.3.0\n"
            "Requires-Dist: numpy>=1.26\nRequires-Dist: rich; extra == 'x'\n"
        )
        entry = f"[offprints.methods]\n{name or dist} = {dist.replace('-', '_')}.claims:{target}\n"
        (info / "entry_points.txt").write_text(entry)
        importlib.invalidate_caches()
        return package

    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]))
    yield install
    for module in set(sys.modules) - before:
        if module.startswith("toy_"):
            del sys.modules[module]
