import io
import sys

import pytest
from offprints.progress import track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_silent_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    items = [1, 2]
    assert track(items) is items
    assert capsys.readouterr() == ("", "")


def test_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    assert list(track(range(3), "fitting", total=3)) == [0, 1, 2]
    assert "fitting" in terminal.getvalue()
    monkeypatch.setenv("OFFPRINTS_PROGRESS", "0")
    items = [1]
    assert track(items) is items


def test_without_tqdm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setitem(sys.modules, "tqdm", None)
    items = [1]
    assert track(items) is items
