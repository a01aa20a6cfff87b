"""AdamW for pure 16-bit training: no update is lost, and no float32 master copy is kept."""

from collage_optim.adamw import CollageAdamW
from collage_optim.convert import from_adamw, wrap_hf_trainer_kwargs
from collage_optim.mcf import (
    MCF,
    fast_two_sum,
    from_float,
    grow,
    grow_,
    mul,
    mul_,
    scale,
    to_float64,
    two_prod,
    two_sum,
)
from collage_optim.memory import bytes_per_param, memory_report, optimizer_bytes
from collage_optim.metrics import PrecisionMonitor, PrecisionReport, Suggestion, edq, suggest
from collage_optim.sgd import CollageSGD

__all__ = [
    "MCF",
    "CollageAdamW",
    "CollageSGD",
    "PrecisionMonitor",
    "PrecisionReport",
    "Suggestion",
    "bytes_per_param",
    "edq",
    "fast_two_sum",
    "from_adamw",
    "from_float",
    "grow",
    "grow_",
    "memory_report",
    "mul",
    "mul_",
    "optimizer_bytes",
    "scale",
    "suggest",
    "to_float64",
    "two_prod",
    "two_sum",
    "wrap_hf_trainer_kwargs",
]
