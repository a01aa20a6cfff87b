"""Duels: equal results first, ratios and verdicts, growth, settings, quality, and the memory of a fresh process."""

import gc
import json
import math
import time
from contextlib import contextmanager

import numpy as np
import pytest
from offprints import bench
from offprints.bench import SCHEMA, Bench, Duel, fingerprint
from offprints.device import Stopwatch
from offprints.testing.memory import peak

pytest_plugins = ["pytester"]


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-9)


CLOCK = [0.0]
"""Seconds on a clock that `wait` moves: verdicts must not hang on the load of the machine."""


def wait(seconds, seed=0):
    """A side that takes so long by that clock, give or take 1 %, and returns its input."""
    jitter = np.random.default_rng(seed)

    def run(x):
        CLOCK[0] += seconds * jitter.uniform(0.99, 1.01)
        return x

    return run


@contextmanager
def by_the_clock(device="cpu"):
    watch, begun = Stopwatch(), CLOCK[0]
    yield watch
    watch.seconds = CLOCK[0] - begun


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(bench, "stopwatch", by_the_clock)


@pytest.fixture
def duel(tmp_path, monkeypatch, clock):
    """A duel whose verdicts are recorded; the memory is measured elsewhere."""
    monkeypatch.setattr(bench, "peak", lambda test, id, side, setting: 10 if side == "ours" else 20)
    file = tmp_path / "test_bench.py"
    return Duel(Bench(tmp_path / "bench.json", rounds=5), "race", "test_bench.py::test_race", file)


ARRAY = {"make": lambda n: np.ones(n), "same": same}


def verdicts(duel):
    return {(row["peer"], row["size"]): row["verdict"] for row in duel.bench.rows}


def test_unequal_results_are_not_timed(duel):
    with pytest.raises(AssertionError, match="ours and double differ: array"):
        duel(sizes=[3], ours=lambda x: x, peers={"double": lambda x: 2 * x}, **ARRAY)
    with pytest.raises(AssertionError, match="ours and double differ"):
        duel(sizes=[3], make=np.ones, ours=lambda x: x, peers={"double": lambda x: 2 * x}, same=np.array_equal)
    assert duel.bench.rows == []


@pytest.mark.parametrize("blind", [lambda a, b: None, lambda a, b: True, lambda a, b: np.allclose(a, b, rtol=0.2)])
def test_a_same_that_accepts_anything_is_refused(duel, blind):
    with pytest.raises(ValueError, match="same must refuse an output that is 5 % off in one entry; against peer it"):
        duel(sizes=[3], make=np.ones, ours=lambda x: x, peers={"peer": lambda x: x}, same=blind)


def test_a_same_that_sees_one_output_of_two_is_refused(duel):
    pair = lambda x: (x, 2 * x)  # noqa: E731
    with pytest.raises(ValueError, match="same must refuse"):
        duel(sizes=[3], make=np.ones, ours=pair, peers={"peer": pair}, same=lambda a, b: same(a[0], b[0]))


def test_outputs_that_hold_no_number_are_refused(duel):
    with pytest.raises(ValueError, match="same must refuse"):
        duel(sizes=[3], make=np.ones, ours=lambda x: "a", peers={"peer": lambda x: "a"}, same=lambda a, b: a == b)


def test_arguments_are_checked(duel):
    race = {"sizes": [3], "make": np.ones, "ours": wait(1e-3), "peers": {"peer": wait(1e-3)}}
    with pytest.raises(TypeError, match="either same= or quality="):
        duel(**race)
    with pytest.raises(TypeError, match="either same= or quality="):
        duel(**race, same=same, quality=(max, min))
    with pytest.raises(ValueError, match="target must name one of peer, got pear"):
        duel(**race, same=same, target={"pear": 2.0})
    with pytest.raises(ValueError, match="target must name one of 3, got 4"):
        duel(**race, same=same, target={"peer": {4: 2.0}})
    with pytest.raises(ValueError, match="growth must be '1', 'n'"):
        duel(**race | {"sizes": [3, 4]}, same=same, growth="2^n")
    with pytest.raises(ValueError, match="sizes must be at least 2"):
        duel(**race, same=same, growth="n")


def test_verdicts_pass_fail_and_open(duel):
    peers = {"slow": wait(0.02), "fast": wait(0.001), "ungated": wait(0.001), "equal": wait(0.002, seed=1)}
    target = {"slow": {4: 3.0, 2: 1000.0}, "fast": 1.0, "equal": 1.0}
    duel(sizes=[4, 2], ours=wait(0.002), peers=peers, target=target, **ARRAY)
    found = verdicts(duel)
    assert (found["slow", 4], found["slow", 2], found["fast", 4], found["fast", 2]) == ("pass", "fail", "fail", None)
    assert found["ungated", 4] is None
    assert found["equal", 4] == "open"
    rows = {(row["peer"], row["size"]): row for row in duel.bench.rows}
    assert rows["slow", 4]["ratio"] == pytest.approx(10, rel=0.02)
    low, high = rows["slow", 4]["interval"]
    assert low <= rows["slow", 4]["ratio"] <= high
    assert rows["slow", 4]["memory"] == {"ours": 10, "peer": 20}
    assert rows["slow", 2]["memory"] is None


def test_growth_gates_at_the_largest_size(duel):
    race = {"sizes": [2, 4, 8], "peers": {"peer": wait(0.001)}, **ARRAY}

    def power(p):
        return lambda x: wait(0.0005 * len(x) ** p)(x)

    duel(ours=power(1), growth="n", id="linear", **race)
    duel(ours=power(2), growth="n", id="square", **race)
    duel(ours=power(0), growth="n^2", id="constant", **race)
    duel(ours=power(1), growth="n", target={"peer": 5.0}, id="slower", **race)
    rows = {(row["id"], row["size"]): row for row in duel.bench.rows}
    found = {id: row["verdict"] for (id, size), row in rows.items() if size == 8}
    assert found == {"linear": "pass", "square": "fail", "constant": "pass", "slower": "fail"}
    assert rows["linear", 2]["verdict"] is None
    assert rows["square", 2]["growth"]["expected"] == "n"
    assert rows["square", 2]["growth"]["fitted"] == pytest.approx(2, abs=0.02)
    assert any("square: time grows by exponent" in line for line in duel.bench.times)


@pytest.mark.parametrize(
    ("name", "expected"), [("1", 0), ("n", 1), ("n^2", 2), ("n^1.5", 1.5), ("n log n", 1.217), ("n^2 log n", 2.217)]
)
def test_growth_functions(name, expected):
    function, sizes = bench._growth(name), [10, 100, 1000]
    assert bench._exponent(sizes, [function(n) for n in sizes]) == pytest.approx(expected, abs=0.03)


def test_the_fastest_setting_of_a_peer_races(duel):
    settings = {"block=1": wait(0.02), "block=64": wait(0.001)}
    duel(sizes=[2], ours=wait(0.001), peers={"library": settings}, **ARRAY)
    (row,) = duel.bench.rows
    assert (row["setting"], row["memory"]) == ("block=64", {"ours": 10, "peer": 20})
    assert row["ratio"] == pytest.approx(1, rel=0.02)


def test_quality_stands_beside_the_ratio(duel):
    race = {"sizes": [2], "make": np.ones, "ours": wait(0.001), "peers": {"rough": lambda x: wait(0.001)(x) + 0.1}}
    gap = lambda x, output: np.abs(output - x).max()  # noqa: E731
    duel(**race, quality=(gap, lambda ours, peer: ours <= peer))
    (row,) = duel.bench.rows
    assert row["quality"] == {"ours": 0.0, "peer": pytest.approx(0.1)}
    with pytest.raises(AssertionError, match=r"ours has quality 0, rough 0\.1"):
        duel(**race, quality=(gap, lambda ours, peer: ours > peer))


def test_rounds_are_interleaved_in_random_order(duel):
    order = []

    def side(name):
        def run(x):
            order.append(name)
            return wait(0.006)(x)  # one run a round

        return run

    duel(sizes=[2], ours=side("ours"), peers={"peer": side("peer")}, **ARRAY)
    rounds = order[-10:]
    pairs = [tuple(rounds[i : i + 2]) for i in range(0, 10, 2)]
    assert set(pairs) == {("ours", "peer"), ("peer", "ours")}


def test_a_pilot_stops_when_all_is_decided(tmp_path, monkeypatch, clock):
    monkeypatch.setattr(bench, "peak", lambda *job: 0)
    duel = Duel(Bench(tmp_path / "bench.json"), "race", "x::race", tmp_path)
    calls = []
    ours = lambda x: (calls.append(1), wait(0.006)(x))[1]  # noqa: E731
    duel(sizes=[2], ours=ours, peers={"slow": wait(0.06)}, target={"slow": 2.0}, **ARRAY)
    assert len(calls) == 2 + 10 + 10  # equal results, the clock, a pilot of ten rounds, ten fresh ones


def test_without_a_record_three_rounds_judge_nothing(tmp_path, clock):
    duel = Duel(Bench(), "race", "x::race", tmp_path)
    calls = []
    ours = lambda x: (calls.append(1), wait(0.006)(x))[1]  # noqa: E731
    duel(sizes=[2], ours=ours, peers={"peer": wait(1e-3)}, target={"peer": 100.0}, **ARRAY)
    assert len(calls) == 2 + 3
    duel.bench.write()
    assert list(tmp_path.iterdir()) == []


def test_the_real_clock_counts_seconds_a_run():
    assert 0.01 <= bench._seconds(lambda x: time.sleep(0.01), None, 3, "cpu") < 10


def test_bootstrap_interval_of_the_median():
    ratio, (low, high) = bench._ratio({"ours": [1.0, 2.0, 4.0], "peer": [2.0, 6.0, 16.0]}, "peer")
    assert ratio == 3.0
    assert (low, high) == (2.0, 4.0)
    assert bench._ratio({"ours": [1.0] * 4, "peer": [2.0] * 4}, "peer") == (2.0, (2.0, 2.0))


def test_the_result_file_is_sorted_and_short(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "offprints"\n')
    tests = tmp_path / "benchmarks" / "test_bench.py"
    tests.parent.mkdir()
    tests.write_text("import offprints.stats\n")
    rows = [{"id": id, "peer": "p", "size": 1, "ratio": math.pi * 1000} for id in "ba"]
    Bench(tmp_path / "bench.json", rows=rows, tests=tests, dtypes={"float64", "float32"}).write()
    text = (tmp_path / "bench.json").read_text()
    written = json.loads(text)
    assert text.index('"duels"') < text.index('"env"') < text.index('"fingerprint"') < text.index('"schema"')
    assert [row["id"] for row in written["duels"]] == ["a", "b"]
    assert written["duels"][0]["ratio"] == 3141.59
    assert written["env"]["dtype"] == "float32, float64"
    assert written["schema"] == SCHEMA
    assert written["fingerprint"] == fingerprint("offprints", tests)
    tests.write_text("import offprints.seeding\n")
    assert written["fingerprint"] != fingerprint("offprints", tests)


MEMORY = """
    import numpy as np

    def large(n):
        return float(np.ones(n).sum() + np.ones(n // 2).sum())

    def small(n):
        return 1.5 * n

    def test_first(duel):
        duel(sizes=[2**10, 2**23], make=int, ours=small, peers={"large": {"a": large}}, same=lambda a, b: a == b)
"""


def test_memory_is_the_peak_of_a_fresh_process(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest('pytest_plugins = ["offprints.testing.plugin"]')
    pytester.makepyprojecttoml('[project]\nname = "offprints"\n')
    pytester.makepyfile(MEMORY)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "--duel-record=bench.json").assert_outcomes(passed=1)
    rows = json.loads((pytester.path / "bench.json").read_text())["duels"]
    memory = {(row["id"], row["size"]): row["memory"] for row in rows}
    assert memory["first", 2**10] is None
    assert memory["first", 2**23]["ours"] < 2**20
    assert 60e6 < memory["first", 2**23]["peer"] < 90e6  # 67 MB of float64


def test_the_probe_runs_one_side_of_one_duel(tmp_path, monkeypatch):
    file = tmp_path / "peak"
    duel = Duel(Bench(), "race", "x::race", tmp_path)
    ran = []
    sides = {"ours": lambda n: ran.append(("ours", n)), "peers": {"p": {"a": lambda n: ran.append(("a", n))}}}
    for job in ({"side": "ours", "setting": None}, {"side": "p", "setting": "a"}):
        monkeypatch.setenv("OFFPRINTS_DUEL_PROBE", json.dumps({"id": "race", "file": str(file), **job}))
        duel(sizes=[8, 2], make=int, same=same, **sides)
        assert int(file.read_text()) >= 0
    assert ran == [("ours", 2), ("ours", 8), ("a", 2), ("a", 8)]
    duel(sizes=[8, 2], make=int, same=same, id="other", **sides)
    assert len(ran) == 4


def test_a_probe_that_fails_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    with pytest.raises(RuntimeError, match="measuring the memory of ours failed"):
        peak(str(tmp_path / "nothing.py"), "race", "ours", None)


def test_what_lies_there_already_is_not_collected_on_anyones_time(tmp_path):
    """Inputs of many small objects: the collector would walk all of them at every few thousand allocations."""
    seen = []
    gc.unfreeze()

    def ours(data):
        if len(seen) < 3:
            seen.append(gc.get_freeze_count() > len(data))
        return len(data)

    Duel(Bench(), "race", "test_bench.py::test_race", tmp_path / "test_bench.py")(
        sizes=[20_000],
        make=lambda n: [[k] for k in range(n)],
        ours=ours,
        peers={"counting": lambda data: len(data)},
        same=lambda a, b: a == b,
    )
    assert seen == [False, True, True]  # proved equal first, then timed
