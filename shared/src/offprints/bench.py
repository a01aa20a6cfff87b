"""Duels: ours against what a user would pick instead, on equal results, in one process and one thread.

    def test_compress(duel):
        duel(sizes=[512, 2048, 8192], make=lambda n: cache(n), ours=lambda x: compress(x, slots=64),
             peers={"keep all": keep_all, "python loop": loop_compress},
             same=lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
             target={"python loop": 5.0}, growth="n")

Provisional: the pytest plugin and the command line use it.
"""

import gc
import math
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from offprints.checks import require_range
from offprints.claims import record
from offprints.device import stopwatch
from offprints.seeding import rng
from offprints.testing.memory import peak, probed
from offprints.testing.values import is_float, leaves, spoilt

SCHEMA = "offprints.bench/1"
ROUNDS = 30
"""Most rounds of a recorded duel, in the pilot and again in the final race."""
Run = Callable[[object], object]
Peers = Mapping[str, Run | Mapping[str, Run]]
Same = Callable[[object, object], bool | None]
Quality = tuple[Callable[[object, object], float], Callable[[float, float], bool]]
Target = Mapping[str, float | Mapping[int, float]]
_POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NUMEXPR_NUM_THREADS")


def limit_threads() -> dict[str, int]:
    """One thread in every pool that is loaded, and in those that load later; the pools and their threads."""
    os.environ.update(dict.fromkeys(_POOLS, "1"))
    import threadpoolctl

    threadpoolctl.threadpool_limits(1)
    pools = {pool["internal_api"]: pool["num_threads"] for pool in threadpoolctl.threadpool_info()}
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)
        pools["torch"] = torch.get_num_threads()
    return pools


def fingerprint(dist: str, tests: Path) -> str:
    """Hash of what the benchmark file reaches inside the package."""
    return record.fingerprint(f"{dist.replace('-', '_')}.{tests.stem}", tests)


@dataclass
class Bench:
    """The duels of one test session: how long they may take, what they found, where that is written."""

    file: Path | None = None
    rounds: int | None = None
    rows: list[dict] = field(default_factory=list)
    times: list[str] = field(default_factory=list)
    tests: Path = Path()
    device: str = "cpu"
    dtypes: set[str] = field(default_factory=set)

    def table(self) -> list[str]:
        """The report in lines: the machine and its threads, ratios with the absolute times."""
        if not self.rows:
            return []
        processor = record.environment("offprints", self.device, "")["cpu"]
        return [f"{processor}, threads: {limit_threads()}", *self.times]

    def write(self, dist: str | None = None) -> None:
        """Write bench.json (schema `offprints.bench/1`), where a file was asked for and something was measured."""
        if self.file is None or not self.rows:
            return
        folder = next(folder for folder in self.tests.parents if (folder / "pyproject.toml").exists())
        dist = dist or tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
        rows = sorted(self.rows, key=lambda row: (row["id"], row["peer"], row["size"]))
        env = record.environment(dist, self.device, ", ".join(sorted(self.dtypes)))
        content = {"schema": SCHEMA, "fingerprint": fingerprint(dist, self.tests), "env": env, "duels": rows}
        record.write(self.file, record.rounded(content))


@dataclass(frozen=True)
class _Match:
    """The arguments of one duel."""

    id: str
    sizes: list[int]
    make: Callable[[int], object]
    ours: Run
    peers: Peers
    same: Same | None
    quality: Quality | None
    target: Target
    device: str

    def compare(self, data: object, outputs: Mapping[str, object], peer: str) -> dict[str, float] | None:
        """Results are equal, and `same` would see it if they were not; or the quality of both."""
        ours, theirs = outputs["ours"], outputs[peer]
        if self.quality is not None:
            measure, rule = self.quality
            found = {"ours": float(measure(data, ours)), "peer": float(measure(data, theirs))}
            assert rule(*found.values()), f"ours has quality {found['ours']:.6g}, {peer} {found['peer']:.6g}"
            return found
        assert self.equal(ours, theirs), f"ours and {peer} differ: {ours!r:.200} and {theirs!r:.200}"
        wrong = list(spoilt(ours))
        if not wrong or any(self.equal(output, theirs) for output in wrong):
            raise ValueError(f"same must refuse an output that is 5 % off in one entry; against {peer} it accepts one.")
        return None

    def equal(self, ours: object, theirs: object) -> bool:
        """What `same` says: None is a test by assertions that passed."""
        try:
            answer = self.same(ours, theirs) if self.same else None
            return answer is None or bool(answer)
        except AssertionError:
            return False

    def wanted(self, peer: str, size: int) -> float | None:
        """The target against a peer at a size."""
        target = self.target.get(peer)
        if isinstance(target, Mapping):
            _known("target", target, self.sizes)
            return target.get(size)
        return target if size == self.sizes[-1] else None


@dataclass
class Duel:
    """The fixture `duel`. Without `--duel-record` it proves equal results and runs a few rounds, judging nothing."""

    bench: Bench
    test: str
    nodeid: str
    path: Path

    def __call__(
        self,
        *,
        sizes: Sequence[int],
        make: Callable[[int], object],
        ours: Run,
        peers: Peers,
        same: Same | None = None,
        quality: Quality | None = None,
        target: Target | None = None,
        growth: str | None = None,
        device: str = "cpu",
        id: str | None = None,
    ) -> None:
        """Race ours against every peer at every size, interleaved, in random order.

        A verdict: *pass* when the lower end of the 95 % interval of the median ratio (time of the peer / ours) reaches
        the target and the time of ours grows no faster than said, *fail* when the upper end does not reach it or the
        time grows faster, *open* between; none where nothing was demanded. It is recorded, never raised.

        Args:
            sizes: what `make` takes; targets are for the largest.
            make: size -> input, handed to every side.
            ours: input -> output.
            peers: name -> the same, or name -> {setting -> the same}: the fastest setting races, and is recorded.
            same: (ours, peer) -> None or True when equal, else False or AssertionError.
            quality: instead of `same`, where outputs differ by nature: ((input, output) -> number, (ours, peer) ->
                whether ours is good enough); the numbers stand beside the ratio.
            target: peer -> ratio to reach, or {size: ratio}.
            growth: time of ours, as "1", "n", "n log n", "n^1.5", "n^2"; the fitted exponent may be 0.2 higher.
            device: where it runs.
            id: name of the record; the test's name by default.

        Raises:
            TypeError: unless exactly one of `same` and `quality` is given.
            ValueError: if a target names no peer or size, or `same` accepts an output that was spoilt on purpose.
            AssertionError: if the results differ.
        """
        if (same is None) == (quality is None):
            raise TypeError("duel must have either same= or quality=.")
        _known("target", target or {}, peers)
        match = _Match(id or self.test, sorted(sizes), make, ours, peers, same, quality, target or {}, device)
        if probed(match.id, {"ours": ours, **peers}, make, match.sizes, device):
            return
        self.bench.tests, self.bench.device = self.path, device
        rows, typical = [], []
        for size in match.sizes:
            more, seconds = self._at(match, size)
            rows += more
            typical.append(seconds)
        if growth is not None:
            self._judge_growth(growth, match.sizes, typical, rows)
        if self.bench.file:
            self._weigh(match, rows)
        self.bench.rows += rows

    def _at(self, match: _Match, size: int) -> tuple[list[dict], float]:
        """The rows of one size, and the typical seconds of ours."""
        data, sides, settings = match.make(size), {"ours": match.ours}, {}
        for name, peer in match.peers.items():
            settings[name] = _fastest(peer, data, match.device) if isinstance(peer, Mapping) else None
            sides[name] = peer[settings[name]] if isinstance(peer, Mapping) else peer
        outputs = {name: run(data) for name, run in sides.items()}
        self.bench.dtypes |= {str(x.dtype).removeprefix("torch.") for x in leaves(outputs["ours"]) if is_float(x)}
        quality = {name: match.compare(data, outputs, name) for name in match.peers}
        wanted = {name: match.wanted(name, size) for name in match.peers}
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # what lies there already is nobody's garbage; what a run allocates is collected at its own cost
        seconds, rows = self._race(sides, data, match.device, wanted), []
        for name in match.peers:
            ratio, interval = _ratio(seconds, name)
            row = {
                "id": match.id, "peer": name, "size": size, "ratio": ratio, "interval": interval, "growth": None,
                "target": wanted[name], "verdict": _verdict(interval, wanted[name]), "memory": None,
                "quality": quality[name], "setting": settings[name],
            }  # fmt: skip
            rows.append(row)
            gate = f"target {wanted[name]:g}: {row['verdict']}" if row["verdict"] else "no target"
            ours, theirs = (1e3 * float(np.median(seconds[side])) for side in ("ours", name))
            told = f"{match.id} at {size}: {ours:.4g} ms, {name} {theirs:.4g} ms, ratio {ratio:.3g} "
            self.bench.times.append(told + f"[{interval[0]:.3g}, {interval[1]:.3g}], {gate}")
        return rows, float(np.median(seconds["ours"]))

    def _race(self, sides: Mapping[str, Run], data: object, device: str, wanted: Mapping[str, float | None]) -> dict:
        """Seconds per side and round. A pilot finds how many rounds it takes; the result comes from fresh ones."""
        limit_threads()
        once = {name: max(_seconds(run, data, 1, device), 1e-7) for name, run in sides.items()}  # warm: it ran before
        repeats = {name: max(1, math.ceil(0.005 / seconds)) for name, seconds in once.items()}  # the clock is coarse
        gen, cap = rng(0), self.bench.rounds or (ROUNDS if self.bench.file else 3)
        rounds, pilot = 0, {name: [] for name in sides}
        while self.bench.file and rounds < cap and not (rounds and _all_decided(pilot, wanted)):
            more = min(10, cap - rounds)
            for name, seconds in _rounds(sides, data, repeats, more, gen, device).items():
                pilot[name] += seconds
            rounds += more
        return _rounds(sides, data, repeats, rounds or cap, gen, device)

    def _judge_growth(self, growth: str, sizes: list[int], seconds: list[float], rows: list[dict]) -> None:
        expected, fitted = _exponent(sizes, [_growth(growth)(n) for n in sizes]), _exponent(sizes, seconds)
        for row in rows:
            row["growth"] = {"expected": growth, "fitted": fitted}
            if row["size"] == sizes[-1]:
                row["verdict"] = "fail" if fitted > expected + 0.2 else row["verdict"] or "pass"
        told = f"{rows[0]['id']}: time grows by exponent {fitted:.2f}, {growth} is {expected:.2f} over these sizes"
        self.bench.times.append(told)

    def _weigh(self, match: _Match, rows: list[dict]) -> None:
        """Peak memory in bytes of each side at the largest size, each in a fresh process that runs this test alone."""
        peaks: dict[tuple, int] = {}
        test = f"{self.path}::{self.nodeid.partition('::')[2]}"
        for row in (row for row in rows if row["size"] == match.sizes[-1]):
            for side in (("ours", None), (row["peer"], row["setting"])):
                if side not in peaks:
                    peaks[side] = peak(test, match.id, *side)
            row["memory"] = {"ours": peaks["ours", None], "peer": peaks[row["peer"], row["setting"]]}


def _seconds(run: Run, data: object, repeats: int, device: str) -> float:
    with stopwatch(device) as watch:
        for _ in range(repeats):
            run(data)
    return watch.seconds / repeats


def _rounds(
    sides: Mapping[str, Run],
    data: object,
    repeats: Mapping[str, int],
    rounds: int,
    gen: np.random.Generator,
    device: str,
) -> dict[str, list[float]]:
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name in gen.permutation(list(sides)).tolist():
            seconds[name].append(_seconds(sides[name], data, repeats[name], device))
    return seconds


def _fastest(settings: Mapping[str, Run], data: object, device: str) -> str:
    for run in settings.values():
        run(data)
    return min(settings, key=lambda name: min(_seconds(settings[name], data, 1, device) for _ in range(3)))


def _ratio(seconds: Mapping[str, Sequence[float]], peer: str) -> tuple[float, tuple[float, float]]:
    """Median over rounds of peer / ours, and its 95 % bootstrap interval."""
    ratios = np.divide(seconds[peer], seconds["ours"])
    medians = np.median(rng(0).choice(ratios, (2000, len(ratios))), axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(np.median(ratios)), (float(low), float(high))


def _all_decided(seconds: Mapping[str, Sequence[float]], wanted: Mapping[str, float | None]) -> bool:
    """Whether every interval is within 5 % of its ratio, or clear of its target, where it has one."""
    found = [(*_ratio(seconds, name), target) for name, target in wanted.items()]
    return all(high - low <= 0.05 * ratio or not low < (target or low) <= high for ratio, (low, high), target in found)


def _verdict(interval: tuple[float, float], target: float | None) -> str | None:
    if target is None:
        return None
    return "pass" if interval[0] >= target else "fail" if interval[1] < target else "open"


def _known(what: str, given: Mapping, known: Mapping | Sequence) -> None:
    if unknown := [key for key in given if key not in known]:
        raise ValueError(f"{what} must name one of {', '.join(map(str, known))}, got {unknown[0]}.")


def _growth(name: str) -> Callable[[int], float]:
    """The function that "1", "n", "n log n", "n^1.5", "n^2 log n" stand for."""
    found = re.fullmatch(r"1|n(?:\^(\d+(?:\.\d+)?))?( log n)?", name)
    if not found:
        raise ValueError(f"growth must be '1', 'n', 'n log n', 'n^1.5' or the like, got {name!r}.")
    power = 0.0 if name == "1" else float(found[1] or 1)
    return lambda n: n**power * (math.log(n) if found[2] else 1.0)


def _exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Slope of log value on log size."""
    require_range("sizes", len(sizes), low=2, because="an exponent is fitted")
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
