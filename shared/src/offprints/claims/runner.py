"""Runs claims seed by seed, keeps each finished run in a file of its own, and judges a claim once its runs are in.

A kill at any moment loses at most the seeds in flight: a rerun reads what is there. The worker itself writes the file
and looks for it first, so that a scheduler that repeats a task repeats no work.
"""

import json
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from offprints.checkpoint import write_atomic
from offprints.claims import record
from offprints.claims.executors import ExecutorError, opened
from offprints.claims.expectations import Finding, Verdict
from offprints.claims.method import Claim, ClaimError, Method, MissingResource, Runs, load_method
from offprints.seeding import isolated

RESTARTS = 3
"""How often a pool that lost a worker is started anew before the run gives up."""


@dataclass(frozen=True)
class Store:
    """A folder of finished runs, keyed by source, scale, device, claim and seed."""

    folder: Path
    fingerprint: str

    def path(self, claim: Claim, scale: str, device: str, seed: int) -> Path:
        """Where the run lies; other sizes of a scale are another key."""
        sizes = sha256(repr(claim.scale(scale).sizes).encode()).hexdigest()[:8]
        place = scale if device == "cpu" else f"{scale}@{device.replace(':', '')}"
        return self.folder / self.fingerprint / f"{place}-{sizes}" / claim.id / f"seed-{seed}.json"


@dataclass(frozen=True)
class Done:
    """One run is in."""

    claim: str
    seed: int
    done: int
    total: int
    resumed: bool


@dataclass(frozen=True)
class Outcome:
    """One claim measured and judged."""

    claim: Claim
    scale: str
    seeds: tuple[int, ...]
    runs: Runs | None
    findings: tuple[Finding, ...]
    verdict: Verdict
    note: str
    seconds: float
    error: bool = False

    def decisive(self) -> Finding | None:
        """The worst finding: what the verdict rests on."""
        return max(self.findings, key=lambda finding: finding.verdict.rank, default=None)

    def to_json(self) -> record.Json:
        """The claim's entry in claims.json."""
        claim, finding = self.claim, self.decisive()
        return {
            "id": claim.id,
            "where": claim.where,
            "says": claim.says,
            "paper": dict(claim.paper),
            "scale": self.scale,
            "sizes": {name: repr(size) for name, size in claim.scale(self.scale).sizes.items()},
            "seeds": list(self.seeds),
            "metrics": {name: self.runs.metric(name).tolist() for name in self.runs.metrics} if self.runs else {},
            "expect": [
                {"text": f.text, "statistic": f.statistic, "interval": f.interval, "p": f.p, "verdict": f.verdict.value}
                for f in self.findings
            ],
            "statistic": finding.statistic if finding else None,
            "interval": finding.interval if finding else None,
            "p": finding.p if finding else None,
            "verdict": self.verdict.value,
            "note": self.note,
        }


def judge(claim: Claim, scale: str, runs: Runs, seconds: float = 0.0) -> Outcome:
    """Judge a claim on its runs; less than the full budget is *not run*, whatever the numbers say."""
    metrics = {name: runs.metric(name) for name in runs.metrics}
    findings = tuple(expectation.judge(metrics) for expectation in claim.expect)
    verdict = max((finding.verdict for finding in findings), key=lambda verdict: verdict.rank)
    note = claim.note
    if scale == "smoke" or len(runs.seeds) < claim.scale(scale).seeds:
        note = f"{scale} scale, {len(runs.seeds)} seeds: less than the full budget (it would read: {verdict.value})"
        verdict = Verdict.NOT_RUN
    return Outcome(claim, scale, runs.seeds, runs, findings, verdict, note, seconds)


def compute(dist: str, claim_id: str, scale: str, device: str, seed: int, path: str) -> record.Json:
    """One run, in whatever process: read from its file if that is there, else measured and written."""
    file = Path(path)
    kept = _kept(file)
    if kept is not None:
        return kept | {"resumed": True}
    claim = load_method(dist).claims[claim_id]
    begun = time.perf_counter()
    with _one_thread(), isolated(seed):
        metrics, series = claim.measure(seed, claim.scale(scale), device)
    output = {"metrics": metrics, "series": series, "seconds": time.perf_counter() - begun}
    write_atomic(file, json.dumps(output).encode())
    return output | {"resumed": False}


def _kept(file: Path) -> record.Json | None:
    """A finished run; a damaged file counts as none and is computed anew."""
    try:
        output = json.loads(file.read_text("utf-8"))
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError):
        return None
    return output if isinstance(output, dict) and {"metrics", "series", "seconds"} <= set(output) else None


def _one_thread() -> AbstractContextManager[object]:
    """Results and their cost do not depend on the number of cores: one thread in every pool."""
    try:
        import threadpoolctl
    except ImportError:
        return nullcontext()
    return threadpoolctl.threadpool_limits(1)


@dataclass
class _Pending:
    """What is known of a claim while its runs come in."""

    claim: Claim
    seeds: list[int]
    outputs: dict[int, record.Json] = field(default_factory=dict)
    failed: BaseException | None = None

    def outcome(self, scale: str) -> Outcome:
        seeds = tuple(seed for seed in self.seeds if seed in self.outputs)
        seconds = sum(output["seconds"] for output in self.outputs.values())
        if self.failed is not None:
            told = isinstance(self.failed, (ClaimError, MissingResource))
            text = str(self.failed) if told else f"{type(self.failed).__name__}: {self.failed}"
            bad = not isinstance(self.failed, MissingResource)
            return Outcome(self.claim, scale, seeds, None, (), Verdict.NOT_RUN, text, seconds, error=bad)
        return judge(self.claim, scale, Runs(seeds, tuple(self.outputs[seed] for seed in seeds)), seconds)


def run(
    method: Method,
    *,
    scale: str = "cpu",
    claims: Sequence[str] | None = None,
    device: str = "cpu",
    out: Path,
    executor: str = "processes",
    jobs: int = 2,
    seed_offset: int = 0,
) -> Iterator[Done | Outcome]:
    """Measure claims: a `Done` for each run, an `Outcome` for each claim as soon as its last run is in.

    Args:
        method: from `load_method`.
        scale: "smoke", "cpu" or "full".
        claims: ids, or None for all.
        device: handed to the claims.
        out: folder of finished runs; an existing one is continued.
        executor: see `executors.opened`.
        jobs: local workers.
        seed_offset: added to the seeds 0..k-1.

    Raises:
        ValueError: if a claim, scale or executor is unknown.
        ExecutorError: if the workers cannot be had or keep dying.
    """
    store = Store(out, record.fingerprint(f"{method.dist.replace('-', '_')}.claims"))
    pending = {
        claim.id: _Pending(claim, [seed_offset + k for k in range(claim.scale(scale).seeds)])
        for claim in method.pick(claims)
    }
    todo = deque((name, seed) for name, state in pending.items() for seed in state.seeds)
    total = len(todo)
    restarts = 0
    while True:
        try:
            with opened(executor, jobs) as (workers, window):
                yield from _drain(method, scale, device, store, pending, todo, total, workers, window)
            return
        except BrokenExecutor as error:
            restarts += 1
            if restarts > RESTARTS:
                raise ExecutorError(f"workers keep dying ({error}). Finished runs are kept in {out}.") from error


def _drain(
    method: Method,
    scale: str,
    device: str,
    store: Store,
    pending: dict[str, _Pending],
    todo: "deque[tuple[str, int]]",
    total: int,
    executor: Executor,
    window: int,
) -> Iterator[Done | Outcome]:
    """Keep `window` runs on the executor until none is left; on a broken executor put those in flight back."""
    flying: dict[Future[record.Json], tuple[str, int]] = {}
    try:
        while todo or flying:
            while todo and len(flying) < window:
                name, seed = todo[0]  # leaves the queue only once it is on the executor
                if pending[name].failed is None:
                    path = store.path(pending[name].claim, scale, device, seed)
                    future = executor.submit(compute, method.dist, name, scale, device, seed, str(path))
                    flying[future] = (name, seed)
                todo.popleft()
            for future in wait(flying, return_when=FIRST_COMPLETED).done:
                name, seed = flying[future]
                state = pending[name]
                try:
                    output = future.result()
                except (BrokenExecutor, CancelledError):
                    raise
                except Exception as error:
                    first, state.failed = state.failed is None, error
                    del flying[future]
                    if first:
                        yield state.outcome(scale)
                    continue
                del flying[future]
                state.outputs[seed] = output
                done = sum(len(other.outputs) for other in pending.values())
                yield Done(name, seed, done, total, output["resumed"])
                if len(state.outputs) == len(state.seeds):
                    yield state.outcome(scale)
    except (BrokenExecutor, CancelledError):
        todo.extendleft(flying.values())
        raise
    finally:
        for future in flying:
            future.cancel()
