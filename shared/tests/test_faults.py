"""What the machine does to a run: full disks, bad folders, damaged files, jumping clocks, two runners at once."""

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from offprints.claims import record

pytestmark = pytest.mark.slow  # every run is a process that starts anew
Install = Callable[..., Path]
COMMAND = [sys.executable, "-c", "from offprints.cli import script; script()", "reproduce", "toy-method"]
INLINE = [*COMMAND, "--executor", "inline"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def reproduce(limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """Run in a child; `limit` bytes are all that the disk takes of one file."""

    def full() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(INLINE, capture_output=True, text=True, check=False, preexec_fn=full)


def one_line(found: subprocess.CompletedProcess[str], text: str) -> None:
    errors = [line for line in found.stderr.splitlines() if line.startswith("offprints: ")]
    assert found.returncode == 2
    assert len(errors) == 1
    assert text in errors[0]
    assert "Traceback" not in found.stderr


def test_a_disk_that_fills_up_loses_no_finished_run(toy: Install, here: Path) -> None:
    package = toy()
    one_line(reproduce(limit=400), "File too large")  # a run has 150 bytes, claims.json 2 000
    runs = sorted(path.name for path in here.glob("results/toy-method/runs/*/*/*/seed-*.json"))
    assert len(runs) == 11
    assert not list(here.rglob("*.part"))
    assert not Path("results/toy-method/claims.json").exists()
    before = (package / "calls.log").read_text()
    assert reproduce().returncode == 0
    assert (package / "calls.log").read_text() == before
    whole = Path("results/toy-method/claims.json").read_bytes()
    one_line(reproduce(limit=400), "File too large")
    assert Path("results/toy-method/claims.json").read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_computed(toy: Install, here: Path) -> None:
    package = toy()
    Path("results").write_text("a file")
    one_line(reproduce(), "results")
    assert not (package / "calls.log").exists()


def test_damaged_and_future_runs(toy: Install, here: Path) -> None:
    """A truncated run is computed anew, alone; what the clock said when a run was written does not matter."""
    package = toy()
    reproduce()
    before = (package / "calls.log").read_text()
    files = sorted(here.glob("results/toy-method/runs/*/*/gain/seed-*.json"))
    for file, moment in zip(files, (0, 2**33, 1, 2**33, 0, 0), strict=True):
        os.utime(file, (moment, moment))
    files[2].write_bytes(files[2].read_bytes()[:-9])
    first = record.read(Path("results/toy-method/claims.json"))
    Path("results/toy-method/claims.json").write_text('{"schema": ')
    assert reproduce().returncode == 0
    assert (package / "calls.log").read_text().removeprefix(before) == "gain 2\n"
    again = record.read(Path("results/toy-method/claims.json"))
    assert {**again, "cost": first["cost"]} == first


def test_two_runners_in_one_folder_end_alike(toy: Install, here: Path) -> None:
    package = toy(change=("cpu=Scale(seeds=6, wait=0.0)", "cpu=Scale(seeds=6, wait=0.1)"))
    runners = [subprocess.Popen(INLINE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    found = [runner.communicate() for runner in runners]
    assert [runner.returncode for runner in runners] == [0, 0], found
    assert found[0][1].count("✓ holds") == found[1][1].count("✓ holds") == 2
    verdicts = [claim["verdict"] for claim in record.read(Path("results/toy-method/claims.json"))["claims"]]
    assert verdicts == ["holds", "holds"]
    assert not list(here.rglob("*.part"))
    before = (package / "calls.log").read_text()
    assert reproduce().returncode == 0
    assert (package / "calls.log").read_text() == before
