"""What an epoch costs, measured in a process of its own: a used one keeps the pages of earlier runs."""

import gc
import json
import subprocess
import sys
import time

import torch
from offprints.device import memory_stats, reset_peak

from duplex_embed.datasets import random_dag
from duplex_embed.model import DUPLEX

_CHILD = "import sys; from duplex_embed.probe import main; main(sys.argv[1])"


def cost(edges: int, dim: int, seed: int, threads: int, repeats: int = 2) -> dict[str, float]:
    """One epoch on a random acyclic graph of 4 edges a node, and one embedding of it, on the CPU.

    Args:
        edges: E.
        dim: d.
        seed: of graph and model.
        threads: of torch.
        repeats: the quickest of so many fits counts, the memory is that of the first.

    Returns:
        seconds: of the processor (all threads); what else runs on the machine is not in it.
        mebibytes: the most that was held beyond what was held before, the graph.
    """
    torch.set_num_threads(threads)
    model = DUPLEX(dim=dim, random_state=seed, device="cpu")
    model.fit(random_dag(250, seed=seed), epochs=1)  # imports and pools
    graph = random_dag(max(edges // 4, 2), 4.0, seed=seed)
    gc.collect()
    reset_peak("cpu")
    before, seconds, most = memory_stats("cpu").current, [], 0
    for _ in range(repeats):
        vars(graph).pop("links", None), vars(graph).pop("joined", None)  # what the graph keeps is part of the cost
        start = time.process_time()
        model.fit(graph, epochs=1)
        seconds.append(time.process_time() - start)
        most = most or max(memory_stats("cpu").peak - before, 1)
    return {"seconds": min(seconds), "mebibytes": most / 2**20}


def cost_in_fresh_process(edges: int, dim: int, seed: int) -> dict[str, float]:
    """`cost`, measured by a new interpreter.

    Raises:
        RuntimeError: with the output of the process, if it measured nothing.
    """
    job = {"edges": edges, "dim": dim, "seed": seed, "threads": torch.get_num_threads()}
    command = [sys.executable, "-c", _CHILD, json.dumps(job)]
    child = subprocess.run(command, capture_output=True, text=True)
    if child.returncode:
        raise RuntimeError(f"measuring {edges} edges failed:\n{child.stderr}")
    return json.loads(child.stdout)


def main(job: str) -> None:
    """Measure what the JSON asks for and write what was found to stdout, in JSON."""
    sys.stdout.write(json.dumps(cost(**json.loads(job))))
