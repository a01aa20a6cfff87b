"""The learning rates of the paper's runs."""

import math


def schedule(step: int, steps: int, warmup: int) -> float:
    """Factor on the highest rate: linear over `warmup` steps, then a cosine from 1 to 0.1 at `steps`."""
    if step < warmup:
        return (step + 1) / warmup
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - warmup) / max(steps - warmup, 1)))
