"""The few tokens that can matter, in order, with their exact probabilities and the exact mass of all others.

ΔConf_k ≤ p_k (Section 3 of the paper, in its divergence form), so that only tokens with p > ε need to be looked at: one
pass over the vocabulary finds them, and no sort of it is needed.
"""

from dataclasses import dataclass

import torch
from offprints.checks import message
from offprints.device import float_dtype
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

SLACK = 1.0 - 1e-5
"""Tokens are gathered from a little below ε on, so that rounding in float32 cannot lose one."""


@dataclass(frozen=True)
class Ranked:
    """The gathered tokens of each row, most probable first, of equal ones the lower id first.

    Attributes:
        values: (rows, C) their logits; a row that has fewer than C repeats its first one.
        ids: (rows, C) their places in the vocabulary, likewise: scattering repeated ones is harmless.
        valid: (rows, C) whether the place is filled, and no repetition.
        log_probs: (rows, C) ln p, in the finest dtype of the device.
        probs: (rows, C) p, 0 for repetitions.
        rest: (rows, C + 1) R_0 … R_C: what is not among the first k.
    """

    values: Tensor
    ids: Tensor
    valid: Tensor
    log_probs: Tensor
    probs: Tensor
    rest: Tensor


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
    if traced(x) or bool(torch.isfinite(top).all()):
        return top
    row = int((~torch.isfinite(top.flatten())).nonzero()[0])
    value = float(top.flatten()[row])
    what = "no finite entry" if value == -torch.inf else "NaN or +inf"
    hint = "Check the model, and the processors that come before." if what[0] == "N" else "Every token was masked."
    raise ValueError(message("logits", "finite or -inf, with a finite entry in every row", f"{what} in row {row}", hint))


def ranked(x: Tensor, floor: Tensor, least: int) -> Ranked:
    """Rank the tokens with p > `floor`, and the `least` most probable ones in any case.

    Args:
        x: (rows, V) logits in float32 or float64, V ≥ 1.
        floor: (rows, 1) or (1, 1) probabilities.
        least: how many are wanted in any case.

    Raises:
        ValueError: as `checked_top`.
    """
    top = checked_top(x)
    if traced(x):  # sizes may not depend on values: all are ranked
        return _with_rest(*torch.sort(x, dim=-1, descending=True, stable=True), top, None, None)
    weights = (x - top).exp_()
    chosen = weights > (SLACK * floor).to(x.dtype) * weights.sum(-1, keepdim=True)
    rows, columns = chosen.nonzero(as_tuple=True)
    counts = torch.bincount(rows, minlength=len(x))
    if len(x) and int(counts.min()) < least:
        last = x.topk(min(least, x.shape[-1]), dim=-1).values[:, -1:]
        chosen |= (counts[:, None] < least) & (x >= last)
        rows, columns = chosen.nonzero(as_tuple=True)
        counts = torch.bincount(rows, minlength=len(x))
    weights[rows, columns] = 0.0
    outside = weights.sum(-1, keepdim=True)
    width = int(counts.max()) if len(x) else 0
    place = torch.arange(len(rows), device=x.device) - (counts.cumsum(0) - counts)[rows]
    values, ids = x.new_full((len(x), width), -torch.inf), columns.new_zeros(len(x), width)
    values[rows, place], ids[rows, place] = x[rows, columns], columns
    values, order = torch.sort(values, dim=-1, descending=True, stable=True)
    return _with_rest(values, ids.gather(-1, order), top, outside, counts)


def _with_rest(values: Tensor, ids: Tensor, top: Tensor, outside: Tensor | None, counts: Tensor | None) -> Ranked:
    """Probabilities of what was gathered, and reverse cumulative sums from the mass `outside` on: never 1 − Σ."""
    fine = float_dtype(values.device)
    weights = (values.to(fine) - top.to(fine)).exp()
    outside = weights.new_zeros(len(values), 1) if outside is None else outside.to(fine)
    rest = torch.cat((outside, weights.flip(-1)), -1).cumsum(-1).flip(-1)
    total = rest[:, :1]
    places = torch.arange(values.shape[-1], device=values.device)
    valid = torch.ones_like(ids, dtype=torch.bool) if counts is None else places < counts[:, None]
    log_probs = values.to(fine) - top.to(fine) - total.log()
    if counts is not None and values.shape[-1]:
        values, ids = (torch.where(valid, part, part[:, :1]) for part in (values, ids))
    return Ranked(values, ids, valid, log_probs, weights / total, rest / total)
