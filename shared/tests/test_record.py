import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from offprints.bench import fingerprint
from offprints.claims import record


def test_essence_keeps_what_can_change_a_result() -> None:
    source = '''"""Doc."""
import numpy as np  # why


METHOD = Method(dist="x", title="T")
LIMIT = 3  # "#" is kept


@METHOD.claim("a", says="""long
text""")
def a(seed):
    """Doc."""
    "a # string"
    return "#" * seed


@METHOD.figure("f", needs=[])
def draw(runs):
    return 1


class C:
    """Doc."""

    x = 1

    @property
    def y(self):
        return """kept"""
'''
    assert record.essence(source).split("\n") == [
        "import numpy as np",
        "LIMIT = 3",
        "def a(seed):",
        '    return "#" * seed',
        "class C:",
        "    x = 1",
        "    @property",
        "    def y(self):",
        '        return """kept"""',
    ]


def test_fingerprint(toy: Callable[..., Path]) -> None:
    package = toy()
    first = record.fingerprint("toy_method.claims")
    law = package / "law.py"
    law.write_text('"""New words."""\n\n' + law.read_text() + "# and a comment\n")
    assert record.fingerprint("toy_method.claims") == first
    (package / "unreached.py").write_text("x = 1\n")
    assert record.fingerprint("toy_method.claims") == first
    law.write_text(law.read_text().replace("0.01", "0.02"))
    assert record.fingerprint("toy_method.claims") != first


def test_reached_follows_all_kinds_of_imports(toy: Callable[..., Path]) -> None:
    package = toy(claims="from . import law\nimport toy_method.sub.one, math\nfrom toy_method import nothing\n")
    sub = package / "sub"
    sub.mkdir()
    (sub / "__init__.py").write_text("from .two import x\n")
    (sub / "one.py").write_text("from ..three import *\n")
    (sub / "two.py").write_text("x = 1\n")
    (package / "three.py").write_text(
        "def f():\n    from toy_method import claims\n    from toy_method.law.draw import z\n"
    )
    found = record.reached(package / "claims.py", "toy_method.claims")
    names = {"claims", "law", "sub", "sub.one", "sub.two", "three"}
    assert set(found) == {"toy_method", *(f"toy_method.{name}" for name in names)}


def test_fingerprint_of_a_file_outside(toy: Callable[..., Path], tmp_path: Path) -> None:
    package = toy()
    bench = tmp_path / "test_bench.py"
    bench.write_text("import toy_method as toy\n")
    (package / "__init__.py").write_text("from toy_method.law import draw\n")
    first = fingerprint("toy-method", bench)
    (package / "law.py").write_text("def draw(seed):\n    return 5\n")
    assert fingerprint("toy-method", bench) != first


def test_environment(toy: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toy()
    env = record.environment("toy-method", "cpu", "float64")
    assert env["versions"]["toy-method"] == "0.3.0"
    assert {"numpy", "offprints", "torch"} <= set(env["versions"])
    assert (env["device"], env["dtype"], env["threads"]) == ("cpu", "float64", 1)
    monkeypatch.chdir(tmp_path)
    assert record.environment("toy-method", "cpu", "float64")["commit"] == "unknown"


def test_cpu_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record.Path, "read_text", lambda *_: "model name\t: A Fast One\n")
    monkeypatch.setattr(record.sys, "platform", "linux")
    assert record._cpu() == "A Fast One"
    monkeypatch.setattr(record.Path, "read_text", lambda *_: "flags: x\n")
    assert record._cpu()
    monkeypatch.setattr(record.sys, "platform", "darwin")
    monkeypatch.setattr(record.platform, "processor", lambda: "")
    assert record._cpu() == record.platform.machine()


def test_rounded() -> None:
    given = {"a": 1.23456789, 2: [math.inf, (1e-20, True, "x")], "n": None}
    assert record.rounded(given) == {"a": 1.23457, "2": [None, [1e-20, True, "x"]], "n": None}


def test_read_and_write(tmp_path: Path) -> None:
    path = tmp_path / "claims.json"
    record.write(path, {"schema": record.SCHEMA, "b": 1, "a": "≥"})
    assert record.read(path) == {"schema": record.SCHEMA, "a": "≥", "b": 1}
    assert path.read_text("utf-8").index('"a"') < path.read_text("utf-8").index('"b"')
    path.write_text('{"schema": "offprints.claims/9"}')
    with pytest.raises(ValueError, match=r"must be of schema offprints.claims/1, got offprints.claims/9"):
        record.read(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match="got None"):
        record.read(path)
    path.write_text('{"schema":\n')
    with pytest.raises(ValueError, match="must be JSON, got an error at line 2"):
        record.read(path)
    with pytest.raises(FileNotFoundError):
        record.read(tmp_path / "none")
    assert json.loads('{"x": 1}')
