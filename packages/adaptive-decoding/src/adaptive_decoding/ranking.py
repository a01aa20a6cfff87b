"""The few tokens that can matter, in order, with their exact probabilities and the exact mass of all others.

ΔConf_k ≤ p_k (Section 3 of the paper, in its divergence form), so that only tokens with p > ε need to be looked at: one
pass over the vocabulary finds them, and no sort of it is needed.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from offprints.checks import message
from offprints.device import float_dtype
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

LOG2_E = math.log2(math.e)
SLACK = 1.0 - 1e-5
"""Tokens are gathered from a little below ε on, so that rounding in float32 cannot lose one."""


@dataclass(frozen=True)
class Ranked:
    """The gathered tokens of each row, most probable first, of equal ones the lower id first.

    Attributes:
        values: (rows, C) their logits; a row that has fewer than C repeats its first one.
        ids: (rows, C) their places in the vocabulary, likewise: scattering repeated ones is harmless.
        valid: (rows, C) whether the place is filled, and no repetition; None where all are.
        log_probs: (rows, C) ln p, in the finest dtype of the device.
        probs: (rows, C) p, 0 for repetitions.
        rest: (rows, C + 1) R_0 … R_C: what is not among the first k.
    """

    values: Tensor
    ids: Tensor
    valid: Tensor | None
    log_probs: Tensor
    probs: Tensor
    rest: Tensor

    def filled(self, flags: Tensor) -> Tensor:
        """`flags` (rows, C) without the repetitions."""
        return flags if self.valid is None else flags & self.valid


def traced(x: Tensor) -> bool:
    """Whether values cannot be looked at: a compiler traces, or the tensor has none."""
    return torch.compiler.is_compiling() or isinstance(x, FakeTensor) or x.is_meta


def upcast(logits: Tensor) -> Tensor:
    """At least float32: 16 bits move the kept set in a large part of all steps."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def checked_top(x: Tensor) -> Tensor:
    """(rows, 1) greatest logits.

    Raises:
        ValueError: naming the first row that holds NaN or +inf, or nothing finite.
    """
    top = x.amax(-1, keepdim=True)
    if traced(x) or math.isfinite(top.sum().item()) or bool(torch.isfinite(top).all()):
        return top
    row = int((~torch.isfinite(top.flatten())).nonzero()[0])
    value = float(top.flatten()[row])
    what = "no finite entry" if value == -torch.inf else "NaN or +inf"
    hint = "Check the model, and the processors that come before." if what[0] == "N" else "Every token was masked."
    raise ValueError(
        message("logits", "finite or -inf, with a finite entry in every row", f"{what} in row {row}", hint)
    )


def ranked(x: Tensor, floor: float | Tensor, least: int) -> Ranked:
    """Rank the tokens with p > `floor`, and the `least` most probable ones in any case.

    Args:
        x: (rows, V) logits in float32 or float64, V ≥ 1.
        floor: a probability, or (rows, 1) of them.
        least: how many are wanted in any case.

    Raises:
        ValueError: as `checked_top`.
    """
    top = checked_top(x)
    if traced(x):  # sizes may not depend on values: all are ranked
        return _with_rest(*torch.sort(x, dim=-1, descending=True, stable=True), top, None, None)
    x = x.contiguous()
    weights = _weights(x, top)
    level = weights.sum(-1, keepdim=True) * (SLACK * floor)
    at, counts = _above(weights, level.to(x.dtype))
    if min(counts, default=least) < least:
        few = torch.tensor(counts, device=x.device)[:, None] < least
        last = x.topk(min(least, x.shape[-1]), dim=-1).values[:, -1:]
        at, counts = _above(((weights > level.to(x.dtype)) | (few & (x >= last))).to(x.dtype), torch.zeros_like(top))
    outside = weights.flatten().index_fill_(0, at, 0.0).view_as(x).sum(-1, keepdim=True)
    values, ids, lengths = _rows_of(x, at, counts)
    values, order = torch.sort(values, dim=-1, descending=True, stable=True)
    return _with_rest(values, ids.gather(-1, order), top, outside, lengths)


def _weights(x: Tensor, top: Tensor) -> Tensor:
    """Probabilities up to a factor a row.

    In float32 by powers of two: four times as fast, and good to 1e-6 of the mass of what is not gathered, which is all
    that is taken from them.
    """
    shifted = x - top
    return shifted.exp_() if x.dtype == torch.float64 else shifted.mul_(LOG2_E).exp2_()


def _above(weights: Tensor, level: Tensor) -> tuple[Tensor, list[int]]:
    """Flat places of what exceeds the level of its row, and how many there are in each row."""
    if weights.device.type == "cpu":  # five times as fast as a comparison and nonzero() of torch
        at = torch.from_numpy(np.flatnonzero(weights.numpy() > level.numpy()))
    else:
        at = (weights > level).flatten().nonzero()[:, 0]
    if len(weights) == 1:
        return at, [len(at)]
    rows = torch.div(at, weights.shape[1], rounding_mode="floor")
    return at, torch.bincount(rows, minlength=len(weights)).tolist()


def _rows_of(x: Tensor, at: Tensor, counts: list[int]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Values and ids at flat places, a row each in the order of ids, filled up with −inf and 0; lengths of the rows."""
    if len(x) == 1:
        return x.flatten()[at][None], at[None], None
    lengths = torch.tensor(counts, dtype=torch.long, device=x.device)
    rows = torch.div(at, x.shape[1], rounding_mode="floor")
    place = torch.arange(len(at), device=x.device) - (lengths.cumsum(0) - lengths)[rows]
    width = max(counts, default=0)
    values, ids = x.new_full((len(x), width), -torch.inf), at.new_zeros(len(x), width)
    values[rows, place], ids[rows, place] = x.flatten()[at], at - rows * x.shape[1]
    return values, ids, lengths


def _with_rest(values: Tensor, ids: Tensor, top: Tensor, outside: Tensor | None, counts: Tensor | None) -> Ranked:
    """Probabilities of what was gathered, and reverse cumulative sums from the mass `outside` on: never 1 − Σ."""
    fine = float_dtype(values.device)
    logs = values.to(fine) - top.to(fine)
    weights = logs.exp()
    outside = weights.new_zeros(len(values), 1) if outside is None else outside.to(fine)
    rest = torch.cat((outside, weights.flip(-1)), -1).cumsum(-1).flip(-1)
    total = rest[:, :1]
    valid = None
    if counts is not None:
        valid = torch.arange(values.shape[-1], device=values.device) < counts[:, None]
        if values.shape[-1]:
            values, ids = (torch.where(valid, part, part[:, :1]) for part in (values, ids))
    return Ranked(values, ids, valid, logs - total.log(), weights / total, rest / total)
