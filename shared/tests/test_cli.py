import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from offprints import cli, commands
from offprints.claims import Method, Runs, Scale, exact, load_method, methods, record, runner
from offprints.claims.runner import Done
from offprints.commands import check, measure
from offprints.commands.screen import Screen

Install = Callable[..., Path]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and no methods but the toy where all are listed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        commands.base, "methods", lambda: {name: entry for name, entry in methods().items() if name.startswith("toy")}
    )
    return tmp_path


def offprints(*arguments: str) -> int:
    return cli.main([*arguments])


def reproduce(*arguments: str) -> int:
    return offprints("reproduce", "toy-method", "--executor", "inline", *arguments)


def package_folder(at: Path) -> Path:
    folder = at / "packages" / "toy-method"
    folder.mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "toy-method"\n')
    (folder / "README.md").write_text(
        "<!-- claims:begin -->\n<!-- claims:end -->\n<!-- bench:begin -->\n<!-- bench:end -->\n"
    )
    return folder


def test_reproduce(toy: Install, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    toy()
    assert reproduce() == 0
    out, err = capfd.readouterr()
    assert "gain · paper: ours 1, peer 2 · here: ours 1.02, peer 2.02 · ✓ holds" in err
    assert out == "report: results/toy-method/report.html\n"
    page = Path("results/toy-method/report.html").read_text("utf-8")
    assert "Ours loses less." in page
    assert "data:image/png;base64" in page
    assert Path("results/toy-method/figures/curve.svg").exists()
    assert record.read(Path("results/toy-method/claims.json"))["claims"][0]["verdict"] == "holds"


def test_reproduce_as_json_and_one_claim(toy: Install, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy()
    assert reproduce("--json", "--claim", "identity", "--seed-offset", "100") == 0
    content = json.loads(capsys.readouterr().out)
    assert [(c["id"], c["seeds"]) for c in content["claims"]] == [("identity", [100, 101, 102, 103, 104])]


def test_reproduce_all(
    toy: Install, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy()
    monkeypatch.setattr(commands.base, "methods", lambda: {"toy-method": None, "toy-other": None})
    monkeypatch.setattr(commands.base, "load_method", lambda dist: load_method("toy-method"))
    assert offprints("reproduce", "--all", "--executor", "inline", "--json", "--scale", "smoke") == 0
    assert set(json.loads(capsys.readouterr().out)) == {"toy-method", "toy-other"}
    assert Path("results/report.html").read_text("utf-8").count("<h1>") == 2


def test_on_a_terminal(
    toy: Install, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    toy()
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(measure.Console, "is_terminal", True)
    assert reproduce() == 0
    shown = capsys.readouterr().err
    assert "✓ holds" in shown
    assert "11/11" in shown


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["reproduce"], "must be given a method, or --all"),
        (["reproduce", "nothing"], "method must be one of"),
        (
            ["reproduce", "toy-method", "--claim", "none"],
            "claim of toy-method must be one of 'gain', 'identity', got 'none'",
        ),
        (["reproduce", "toy-method", "--scale", "full", "--claim", "identity"], "scale of identity must be one of"),
        (["reproduce", "toy-method", "--executor", "magic"], "executor must be"),
        (["reproduce", "toy-method", "--executor", "tcp://127.0.0.1:9"], "no Dask scheduler answers"),
        (["reproduce", "toy-method", "--device", "gpu"], "device must be"),
        (["reproduce", "toy-method", "--record", "packages/x"], "record must be the package folder of toy-method"),
        (
            ["reproduce", "toy-method", "--scale", "smoke", "--record", "x"],
            "committed results must be of the cpu scale",
        ),
        (["reproduce", "toy-method", "--out", "/proc/none"], "/proc/none"),
        (["bench", "toy-method"], "benchmarks must be in the package's folder"),
        (["verify", "toy-method"], "no committed results"),
        (["card", "."], "README.md"),
    ],
)
def test_one_line_and_status_2(
    toy: Install,
    here: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    text: str,
) -> None:
    monkeypatch.setenv("OFFPRINTS_DASK_TIMEOUT", "0.3")
    toy()
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert text in error
    assert error.startswith("offprints: ")
    assert len(error.splitlines()) == 1


def test_unknown_scale_and_verb_are_usage(toy: Install, capsys: pytest.CaptureFixture[str]) -> None:
    toy()
    assert reproduce("--scale", "huge") == 2
    assert offprints("unknown") == 2
    assert offprints("--help") == 0
    assert "reproduce" in capsys.readouterr().out


def test_full_says_what_it_needs(toy: Install, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy()
    assert reproduce("--scale", "full", "--claim", "gain", "--device", "cpu") == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "gain needs one machine (1 seeds)" in shown
    assert "offprints reproduce toy-method --scale full --device cuda --executor tcp://" in shown


def test_device_auto(toy: Install, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy()
    monkeypatch.setattr("offprints.device.pick_device", lambda device: "cpu")
    assert reproduce("--device", "auto", "--scale", "smoke") == 0


def test_a_broken_claim_is_status_1_and_records_nothing(
    toy: Install, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    toy(change=('{"gap": 0.0}', '{"gap": np.nan}'))
    assert reproduce() == 1
    assert "identity: not run identity, seed 0: metrics must be finite" in capsys.readouterr().err
    folder = package_folder(here)
    assert reproduce("--record", str(folder)) == 2
    assert "nothing recorded, finished runs are kept: identity, seed 0" in capsys.readouterr().err
    assert not (folder / "claims.json").exists()
    assert len(list(here.glob("results/toy-method/runs/*/*/gain/*.json"))) == 6


def test_strict(toy: Install, here: Path) -> None:
    toy(change=('{"gap": 0.0}', '{"gap": 1.0}'))
    assert reproduce() == 0
    assert reproduce("--strict") == 1


def test_worse_than_committed(toy: Install, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = toy()
    assert reproduce() == 0
    (package / "claims.json").write_bytes(Path("results/toy-method/claims.json").read_bytes())
    assert reproduce() == 0
    law = package / "claims.py"
    law.write_text(law.read_text().replace('{"gap": 0.0}', '{"gap": 1.0}'))
    for module in [name for name in sys.modules if name.startswith("toy_")]:
        del sys.modules[module]
    capsys.readouterr()
    assert reproduce() == 1
    assert "identity: fails (committed: holds) a note" in capsys.readouterr().err


def test_record_fresh_card_verify(toy: Install, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package, folder = toy(), package_folder(here)
    assert offprints("fresh", str(folder)) == 1
    assert "claims.json is missing" in capsys.readouterr().err
    assert reproduce("--record", str(folder)) == 0
    assert (folder / "figures" / "curve.png").exists()
    assert offprints("fresh", str(folder)) == 0
    assert reproduce("--record", str(folder), "--claim", "gain") == 0
    assert [c["id"] for c in record.read(folder / "claims.json")["claims"]] == ["gain", "identity"]
    assert offprints("verify", "toy-method", "--against", str(folder), "--draw", "1") == 0
    assert "agrees" in capsys.readouterr().out
    (package / "claims.json").symlink_to(folder / "claims.json")
    assert offprints("verify", "toy-method") == 0

    content = record.read(folder / "claims.json")
    for claim in content["claims"]:
        for values in claim["metrics"].values():
            values[:] = [value + 0.5 for value in values]
        claim["metrics"]["gone"] = claim["metrics"][next(iter(claim["metrics"]))]
    record.write(folder / "claims.json", content)
    assert offprints("verify", "toy-method", "--against", str(folder)) == 1
    out = capsys.readouterr().out
    assert "gone: only in the committed file" in out
    assert "recomputed" in out
    assert offprints("fresh", str(folder)) == 1  # the verdict does not follow from the metrics any more


def test_what_is_stale(toy: Install, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package, folder = toy(), package_folder(here)
    reproduce("--record", str(folder))
    capsys.readouterr()

    def stale_after(old: str, new: str, file: str = "claims.py") -> str:
        source = (package / file).read_text()
        assert old in source
        (package / file).write_text(source.replace(old, new))
        for module in [name for name in sys.modules if name.startswith("toy_")]:
            del sys.modules[module]
        assert offprints("fresh", str(folder)) == 1
        (package / file).write_text(source)
        return capsys.readouterr().err

    assert "made by other source" in stale_after("0.01", "0.02", "law.py")
    assert "gain: text or expectations have changed" in stale_after("Ours loses less.", "Ours wins.")
    assert "gain: text or expectations have changed" in stale_after("by=0.1", "by=0.2")
    assert "gain: an expectation reads 'third', which the results do not" in stale_after('than="peer"', 'than="third"')
    assert "gain: sizes or seeds have changed" in stale_after(
        "cpu=Scale(seeds=6, wait=0.0)", "cpu=Scale(seeds=7, wait=0.0)"
    )
    assert "gain: sizes or seeds have changed" in stale_after(
        "cpu=Scale(seeds=6, wait=0.0)", "cpu=Scale(seeds=6, wait=0.1)"
    )
    assert "claims.json holds gain, identity; the method declares gain, same" in stale_after(
        '"identity", where', '"same", where'
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commands.measure, "source_of", lambda method: "other")
        assert reproduce("--record", str(folder), "--claim", "gain") == 2
    assert "is of other source: all claims must be measured again" in capsys.readouterr().err
    content = record.read(folder / "claims.json")
    content["claims"][0] |= {"metrics": {}}
    record.write(folder / "claims.json", content)
    for module in [name for name in sys.modules if name.startswith("toy_")]:
        del sys.modules[module]
    assert offprints("fresh", str(folder)) == 0  # a claim that was not run has nothing to be judged again


def test_what_six_digits_cannot_tell_is_not_stale(here: Path) -> None:
    method = Method(
        dist="toy-method", title="t", field="f", summary="s", authors="a", venue="v", arxiv="1", bibtex="@b{}"
    )
    third, size = 2 ** (1 / 3), Scale(seeds=1)

    @method.claim(
        "root", where="here", says="so", paper={"root": third}, expect=[exact("root", third, tol=1e-12)], smoke=size,
        cpu=size, full=size,
    )  # fmt: skip
    def root(seed: int, scale: Scale, device: str) -> dict[str, float]:
        return {"root": third}

    claim, seeds = method.claims["root"], (0,)
    for value, stale in ((third, False), (third + 1e-4, True)):
        outcome = runner.judge(claim, "cpu", Runs(seeds, ({"metrics": {"root": value}},)))
        entry = record.rounded(outcome.to_json()) | {"verdict": "holds"}
        assert bool(check._stale_entry(claim, entry)) == stale


BENCH = """
from toy_method.law import draw
pytest_plugins = ["offprints.testing.plugin"]

def test_sum(duel):
    import numpy as np
    duel(sizes=[1000, 4000], make=lambda n: np.ones(n), ours=np.sum,
         peers={"python": lambda x: np.float64(sum(x.tolist()))},
         same=lambda a, b: np.isclose(a, b, rtol=1e-9), target={"python": 1.5})
"""


def test_bench_fresh_and_card(toy: Install, here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    package, folder = toy(), package_folder(here)
    reproduce("--record", str(folder))
    (folder / "benchmarks").mkdir()
    tests = folder / "benchmarks" / "test_bench.py"
    tests.write_text(BENCH)
    assert offprints("fresh", str(folder)) == 1
    assert "bench.json is missing" in capfd.readouterr().err
    assert offprints("bench", "toy-method") == 0
    assert not (folder / "bench.json").exists()
    assert offprints("bench", "toy-method", "--record", str(folder), "--rounds", "5") == 0
    (package / "bench.json").symlink_to(folder / "bench.json")
    (package / "claims.json").symlink_to(folder / "claims.json")
    assert offprints("fresh", str(folder)) == 0
    assert offprints("card", str(folder), "--check") == 1
    assert "differs from its result files: nox -s card" in capfd.readouterr().err
    assert offprints("card", str(folder)) == 0
    assert "| sum | python | 4000 |" in (folder / "README.md").read_text("utf-8")  # the verdict is the machine's
    assert offprints("card", str(folder), "--check") == 0
    assert offprints("card", str(folder)) == 0
    capfd.readouterr()
    assert offprints("show", "toy-method") == 0
    assert "Times" not in (shown := capfd.readouterr().out)
    assert "A Toy" in shown
    assert "deviation: none that matters" in shown
    assert offprints("show", "toy-method", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["claims"]["claims"][0]["verdict"] == "holds"
    assert found["bench"]["duels"][0]["id"] == "sum"
    assert reproduce() == 0
    assert "<h2>Benchmarks</h2>" in Path("results/toy-method/report.html").read_text("utf-8")
    capfd.readouterr()
    assert offprints("doctor", "--json") == 0
    assert json.loads(capfd.readouterr().out)["results"]["toy-method"] == "fresh"
    tests.write_text(BENCH.replace("1.5", "1.6"))
    assert offprints("fresh", str(folder)) == 1
    assert "bench.json was made by other source" in capfd.readouterr().err
    assert offprints("list") == 0
    assert "2 holds" in capfd.readouterr().out


def test_list_show_doctor_without_results(
    toy: Install, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    package = toy(change=(', arxiv="2401.00001"', ""))
    assert offprints("list") == 0
    assert "not measured" in capsys.readouterr().out
    assert offprints("list", "--json") == 0
    rows = {row["dist"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["toy-method"]["verdicts"] == {}
    assert offprints("show", "toy-method") == 0
    assert "arXiv" not in capsys.readouterr().out
    assert offprints("doctor") == 0
    assert "toy-method: not measured" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr(commands.look.util, "find_spec", lambda name: None)
        patch.setattr(commands.base, "methods", dict)
        assert offprints("doctor") == 0
    assert 'pip install "offprints[dask]"' in " ".join(capsys.readouterr().out.split())
    reproduce("--scale", "smoke")
    (package / "claims.json").write_bytes(Path("results/toy-method/claims.json").read_bytes())
    (package / "law.py").write_text("def draw(seed):\n    return 1.0\n")
    capsys.readouterr()
    assert offprints("doctor", "--json") == 0
    assert json.loads(capsys.readouterr().out)["results"]["toy-method"] == "made by other source"


def test_a_method_that_cannot_be_loaded_hides_no_other(
    toy: Install, here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = [toy(), toy(dist="other-toy", claims="import not_here\n")]
    names = [path.name.replace("_", "-") for path in both]
    monkeypatch.setattr(commands.base, "methods", lambda: {name: None for name in names})
    reason = 'other-toy needs not_here here: pip install "other-toy[repro]"'
    assert offprints("list", "--json") == 0
    rows = {row["dist"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["toy-method"]["summary"] == "Adds numbers."
    assert (rows["other-toy"]["summary"], rows["other-toy"]["version"]) == (reason, "0.3.0")
    assert offprints("list") == offprints("doctor") == 0
    assert "not_here" in capsys.readouterr().out
    assert offprints("doctor", "--json") == 0
    assert json.loads(capsys.readouterr().out)["results"] == {"toy-method": "not measured", "other-toy": reason}
    assert offprints("reproduce", "--all", "--scale", "smoke", "--executor", "inline", "--json") == 1
    out, err = capsys.readouterr()
    assert list(json.loads(out)) == ["toy-method"]
    assert f"other-toy is left out: {reason}" in err
    assert "A Toy" in Path("results/report.html").read_text("utf-8")


def test_doctor_without_torch_or_float64(
    toy: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    toy()
    with monkeypatch.context() as patch:
        patch.setattr(commands.look.util, "find_spec", lambda name: None)
        patch.setattr(commands.base, "methods", dict)
        assert offprints("doctor", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["optional"]["distributed"] == 'missing: pip install "offprints[dask]"'
    assert facts["devices"] == ["cpu"]
    monkeypatch.setattr("offprints.device.pick_device", lambda: "mps")
    monkeypatch.setattr(commands.base, "methods", dict)
    assert offprints("doctor", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["devices"], facts["floats"]) == (["cpu", "mps"], ["bfloat16", "float32"])


def test_without_the_extra(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("offprints.commands")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("offprints.commands")
    monkeypatch.setitem(sys.modules, "tyro", None)
    assert offprints("reproduce", "--json", "lococo") == 2
    assert capsys.readouterr().err == 'offprints needs tyro for this: pip install "lococo[repro]"\n'
    assert offprints() == 2
    assert 'pip install "offprints[repro]"' in capsys.readouterr().err


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "dispatch", interrupt)
    assert offprints("list") == 130
    assert "a rerun continues" in capsys.readouterr().err


def test_a_reader_that_left_is_no_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: object) -> int:
        raise BrokenPipeError

    given: list[int] = []
    monkeypatch.setattr(commands, "dispatch", gone)
    monkeypatch.setattr(cli.os, "dup2", lambda null, out: given.append(null))
    monkeypatch.setattr(cli.sys, "argv", ["offprints", "list"])
    with pytest.raises(SystemExit) as stopped:
        cli.script()
    assert stopped.value.code == 1
    os.close(given[0])


def test_a_reader_that_left(toy: Install, here: Path) -> None:
    toy()
    start = f"{sys.executable} -c 'from offprints.cli import script; script()'"
    command = f"{start} reproduce toy-method --json --executor inline | true"
    found = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False, env=dict(os.environ)
    )
    assert "Traceback" not in found.stderr
    assert len(list(here.glob("results/toy-method/runs/*/*/gain/*.json"))) == 6


def test_a_terminal_without_signs(toy: Install, here: Path) -> None:
    toy()
    command = [
        sys.executable,
        "-c",
        "from offprints.cli import script; script()",
        "reproduce",
        "toy-method",
        "--executor",
        "inline",
    ]
    env = os.environ | {"PYTHONIOENCODING": "ascii", "TERM": "dumb"}
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert found.returncode == 0, found.stderr
    assert "? holds" in found.stderr


def test_streams_that_cannot_be_set(monkeypatch: pytest.MonkeyPatch, toy: Install) -> None:
    toy()

    class Plain:
        def write(self, text: str) -> int:
            return len(text)

        def flush(self) -> None: ...

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stdout", Plain())
    monkeypatch.setattr(commands.base, "methods", dict)
    assert offprints("list", "--json") == 0


def test_the_screen_without_a_terminal_is_quiet_about_single_runs(
    toy: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    toy()
    with Screen(load_method("toy-method"), 2, measure.Console()) as screen:
        screen.update(Done("gain", 0, 1, 2, False))
    assert capsys.readouterr().out == ""
