import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest
import threadpoolctl
from offprints.claims import Runs, Verdict, executors, load_method, runner
from offprints.claims.executors import ExecutorError, Inline, opened
from offprints.claims.runner import Done, Outcome, run

Install = Callable[..., Path]


def outcomes(out: Path, **options: object) -> dict[str, Outcome]:
    events = list(run(load_method("toy-method"), out=out, **{"executor": "inline", **options}))
    return {event.claim.id: event for event in events if isinstance(event, Outcome)}


def calls(package: Path) -> list[str]:
    log = package / "calls.log"
    return log.read_text().split("\n")[:-1] if log.exists() else []


def test_the_full_budget_is_judged(toy: Install, tmp_path: Path) -> None:
    toy()
    found = outcomes(tmp_path)
    assert {name: outcome.verdict.value for name, outcome in found.items()} == {"gain": "holds", "identity": "holds"}
    entry = found["gain"].to_json()
    assert entry["metrics"]["ours"] == pytest.approx([1, 1.01, 1.02, 1.03, 1.04, 1.05])
    assert entry["p"] == pytest.approx(1 / 64)
    assert entry["statistic"] == pytest.approx(0.9)
    assert entry["seeds"] == [0, 1, 2, 3, 4, 5]
    assert entry["expect"][0]["text"] == "ours < peer by 0.1"
    assert found["gain"].runs is not None
    assert found["gain"].runs.series("curve").shape == (6, 3)


def test_less_than_the_budget_is_not_run(toy: Install, tmp_path: Path) -> None:
    toy()
    found = outcomes(tmp_path, scale="smoke")["gain"]
    assert found.verdict is Verdict.NOT_RUN
    assert "less than the full budget (it would read: open)" in found.note
    claim = load_method("toy-method").claims["gain"]
    short = Runs((0,), ({"metrics": {"ours": 1.0, "peer": 2.0}, "series": {}},))
    assert runner.judge(claim, "cpu", short).verdict is Verdict.NOT_RUN


def test_events_come_as_runs_come_in(toy: Install, tmp_path: Path) -> None:
    toy()
    events = list(
        run(load_method("toy-method"), out=tmp_path, executor="inline", claims=["gain"], scale="smoke", seed_offset=100)
    )
    assert events[:2] == [Done("gain", 100, 1, 2, False), Done("gain", 101, 2, 2, False)]
    assert isinstance(events[2], Outcome)
    again = list(
        run(load_method("toy-method"), out=tmp_path, executor="inline", claims=["gain"], scale="smoke", seed_offset=100)
    )
    assert [event.resumed for event in again[:2]] == [True, True]


def test_what_is_kept_is_keyed_by_source_and_size(toy: Install, tmp_path: Path) -> None:
    package = toy()
    outcomes(tmp_path)
    assert len(calls(package)) == 11
    outcomes(tmp_path)
    assert len(calls(package)) == 11
    damaged = next(tmp_path.glob("*/cpu-*/gain/seed-3.json"))
    damaged.write_text("{")
    outcomes(tmp_path)
    assert calls(package)[11:] == ["gain 3"]
    damaged.write_text("[]")
    outcomes(tmp_path)
    assert calls(package)[12:] == ["gain 3"]
    law = package / "law.py"
    law.write_text(law.read_text() + "X = 1\n")
    outcomes(tmp_path)
    assert len(calls(package)) == 24


@pytest.mark.parametrize(
    ("change", "note", "error"),
    [
        (('{"gap": 0.0}', '{"gab": 0.0}'), "no metric gap", True),
        (('{"gap": 0.0}', '{"gap": np.nan}'), "metrics must be finite, got gap = nan", True),
        (('return {"gap": 0.0}', "raise RuntimeError"), "RuntimeError", True),
        (('return {"gap": 0.0}', "raise MissingResource('get the model')"), "get the model", False),
    ],
)
def test_a_broken_claim_leaves_the_others(
    toy: Install, tmp_path: Path, change: tuple[str, str], note: str, error: bool
) -> None:
    toy(change=change)
    for executor in ("inline", "processes")[: 1 + (note == "RuntimeError")]:
        found = outcomes(tmp_path, executor=executor)
        assert found["gain"].verdict is Verdict.HOLDS
        assert found["identity"].verdict is Verdict.NOT_RUN
        assert note in found["identity"].note
        assert found["identity"].error is error
        assert found["identity"].decisive() is None
        assert found["identity"].to_json()["metrics"] == {}


SCRIPT = """
import sys
from pathlib import Path
from offprints.claims import load_method
from offprints.claims.runner import Outcome, run
if __name__ == "__main__":
    method = load_method("toy-method")
    for event in run(method, out=Path(sys.argv[1]), executor=sys.argv[2], jobs=2):
        if isinstance(event, Outcome):
            print(event.to_json(), flush=True)
"""


def test_sigkill_in_mid_claim_and_again(toy: Install, tmp_path: Path) -> None:
    package = toy(change=("cpu=Scale(seeds=6, wait=0.0)", "cpu=Scale(seeds=6, wait=0.2)"))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "out"), "inline"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as first:
        deadline = time.monotonic() + 60
        while len(list((tmp_path / "out").glob("*/*/gain/seed-*.json"))) < 3 and time.monotonic() < deadline:
            time.sleep(0.02)
        first.send_signal(signal.SIGKILL)
    assert first.returncode == -signal.SIGKILL
    finished = {int(file.stem[5:]) for file in (tmp_path / "out").glob("*/*/gain/seed-*.json")}
    assert 3 <= len(finished) < 6
    before = len(calls(package))
    second = subprocess.run(command, capture_output=True, text=True, check=True)
    repeated = {int(call.split()[1]) for call in calls(package)[before:] if call.startswith("gain")}
    assert repeated == set(range(6)) - finished
    clean = subprocess.run(
        [*command[:2], str(tmp_path / "clean"), "inline"], capture_output=True, text=True, check=True
    )
    assert second.stdout == clean.stdout != ""


@pytest.mark.slow
def test_workers_end_with_a_killed_runner(toy: Install, tmp_path: Path) -> None:
    package = toy(change=('note(f"gain {seed}")', 'note(f"{os.getpid()}"); time.sleep(60)'))
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    with subprocess.Popen([sys.executable, str(script), str(tmp_path / "out"), "processes"]) as runner_process:
        deadline = time.monotonic() + 60
        while len(calls(package)) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        runner_process.send_signal(signal.SIGKILL)
    workers = [Path(f"/proc/{call}") for call in calls(package)]
    assert len(workers) == 2
    while any(worker.exists() for worker in workers) and time.monotonic() < deadline + 10:
        time.sleep(0.05)
    assert not any(worker.exists() for worker in workers)


KILLS = """
@METHOD.claim("many", where="", says="", expect=[exact("gap")], smoke=Scale(seeds=50), cpu=Scale(seeds=50))
def many(seed, scale, device):
    note(f"many {seed} begun")
    mark = LOG.with_name("killed")
    if seed == 25 and not mark.exists():
        mark.touch()
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.02)
    note(f"many {seed} done")
    return {"gap": 0.0}
"""


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["processes", "dask"])
def test_a_worker_killed_in_the_middle_of_fifty(toy: Install, tmp_path: Path, executor: str) -> None:
    package = toy(extra=KILLS)
    found = outcomes(tmp_path, executor=executor, jobs=2, claims=["many"])["many"]
    assert (package / "killed").exists()
    assert found.verdict is Verdict.HOLDS
    assert found.seeds == tuple(range(50))
    finished = [call for call in calls(package) if call.endswith("done")]
    assert set(finished) == {f"many {seed} done" for seed in range(50)}  # none lost
    in_flight = 1 if executor == "processes" else 0  # a broken pool takes the other worker's run down, Dask does not
    assert len(finished) <= 50 + in_flight


def test_workers_that_keep_dying_end_the_run(toy: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy(change=('note(f"identity {seed}")', "os.kill(os.getpid(), signal.SIGKILL)"))
    monkeypatch.setattr(runner, "RESTARTS", 1)
    with pytest.raises(ExecutorError, match=r"workers keep dying .* Finished runs are kept in"):
        outcomes(tmp_path, executor="processes", jobs=1, claims=["identity"])


def test_a_run_that_is_abandoned_cancels_what_waits(toy: Install, tmp_path: Path) -> None:
    package = toy()
    events = run(load_method("toy-method"), out=tmp_path, executor="processes", jobs=1)
    next(events)
    events.close()
    assert len(calls(package)) < 11


def test_dask_cluster_and_by_address(toy: Install, tmp_path: Path) -> None:
    from distributed import LocalCluster

    package = toy()
    expected = {name: outcome.to_json() for name, outcome in outcomes(tmp_path / "inline").items()}
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50) as cluster:
        found = outcomes(tmp_path / "dask", executor=cluster.scheduler_address)
    assert {name: outcome.to_json() for name, outcome in found.items()} == expected
    assert len(calls(package)) == 22


def test_dask_starts_a_cluster_of_its_own() -> None:
    with opened("dask", 1) as (workers, window):
        assert workers.submit(pow, 2, 5).result(60) == 32
    assert window == 2


def test_dask_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import LocalCluster

    monkeypatch.setenv("OFFPRINTS_DASK_TIMEOUT", "0.5")
    with (
        pytest.raises(ExecutorError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9 within 0.5 s"),
        opened("tcp://127.0.0.1:9", 1),
    ):
        pass
    with (
        LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as empty,
        pytest.raises(ExecutorError, match="has no workers"),
        opened(empty.scheduler_address, 1),
    ):
        pass
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(Exception, match=r'pip install "offprints\[dask\]"'), opened("dask", 1):
        pass


def test_a_worker_watches_its_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[object] = []
    idle = types.SimpleNamespace(start=lambda: None)
    monkeypatch.setattr(executors.threading, "Thread", lambda target, daemon: said.append((target, daemon)) or idle)
    monkeypatch.setattr(executors.os, "_exit", said.append)
    runner_process = types.SimpleNamespace(join=lambda: said.append("joined"))
    monkeypatch.setattr(executors.multiprocessing, "parent_process", lambda: runner_process)
    executors._die_with_parent()
    target, daemon = said.pop()
    target()
    assert daemon
    assert said == ["joined", 1]


def test_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        pytest.raises(
            ValueError, match="executor must be 'inline', 'processes', 'dask' or a Dask address, got 'threads'"
        ),
        opened("threads", 1),
    ):
        pass
    assert Inline().submit(lambda x: x + 1, 1).result() == 2
    with pytest.raises(ZeroDivisionError):
        Inline().submit(lambda: 1 / 0).result()
    with opened("inline", 8) as (workers, window):
        assert isinstance(workers, Inline)
        assert window == 1


def _threads() -> list[int]:
    return [pool["num_threads"] for pool in threadpoolctl.threadpool_info()]


def test_runs_have_one_thread_in_every_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    with threadpoolctl.threadpool_limits(2):
        before = _threads()
        with runner._one_thread():
            assert set(_threads()) == {1}
        assert _threads() == before
        monkeypatch.setitem(sys.modules, "threadpoolctl", None)
        with runner._one_thread():
            assert _threads() == before
    assert 2 in before


def test_store_keys(toy: Install, tmp_path: Path) -> None:
    toy()
    claim = load_method("toy-method").claims["gain"]
    store = runner.Store(tmp_path, "abc")
    paths = {str(store.path(claim, scale, device, 0)) for scale in ("smoke", "cpu") for device in ("cpu", "cuda:1")}
    assert len(paths) == 4
    assert any("cpu@cuda1-" in path for path in paths)
    assert os.fspath(tmp_path) in min(paths)
    assert json.dumps(sorted(paths))
