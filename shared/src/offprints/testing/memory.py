"""Peak memory of one side of a duel: the test runs again in a fresh process that runs this side alone."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from offprints.device import memory_stats, reset_peak

_PROBE = "OFFPRINTS_DUEL_PROBE"
Sides = Mapping[str, Callable | Mapping[str, Callable]]


def peak(test: str, id: str, side: str, setting: str | None) -> int:
    """Bytes held at most during one run at the largest size, beyond what was held before it.

    Args:
        test: the pytest node to run.
        id: which of its duels.
        side: "ours" or a peer.
        setting: the setting of that peer, if it has some.

    Raises:
        RuntimeError: with the output of the process, if it measured nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "peak")
        job = {"id": id, "side": side, "setting": setting, "file": str(file)}
        plugins = ["-p", "no:cacheprovider", "-p", "offprints.testing.plugin"]
        command = [sys.executable, "-m", "pytest", "-q", *plugins, "--slow", test]
        child = subprocess.run(command, env=os.environ | {_PROBE: json.dumps(job)}, capture_output=True, text=True)
        if not file.exists():
            raise RuntimeError(f"measuring the memory of {side} failed:\n{child.stdout}{child.stderr}")
        return int(file.read_text())


def probed(id: str, sides: Sides, make: Callable[[int], object], sizes: Sequence[int], device: str) -> bool:
    """Whether this process was started by `peak`; if so, and for this duel, the peak is measured and written."""
    job = json.loads(os.environ.get(_PROBE, "null"))
    if job and job["id"] == id:
        side = sides[job["side"]]
        run = side[job["setting"]] if isinstance(side, Mapping) else side
        run(make(sizes[0]))  # imports and caches are no part of the peak
        data = make(sizes[-1])
        reset_peak(device)
        before = memory_stats(device).current
        run(data)
        Path(job["file"]).write_text(str(max(memory_stats(device).peak - before, 0)))
    return bool(job)
