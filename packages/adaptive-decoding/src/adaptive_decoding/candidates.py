"""Which tokens stay: admit them by probability while each raises the confidence by more than ε (Section 3)."""

import warnings
from dataclasses import dataclass

import torch
from offprints.checks import message, require_choice, require_range
from offprints.device import float_dtype
from torch import Tensor

from adaptive_decoding.increments import as_logits, decisive_deltas
from adaptive_decoding.ranking import Ranked, checked_top, ranked, traced

RULES = ("prefix", "pointwise", "last")
FLAT = ("top1", "keep_all")


@dataclass(frozen=True)
class Rule:
    """How candidates are chosen.

    Attributes:
        rule: "prefix" (the paper's loop: stop at the first ΔConf_k ≤ ε), "pointwise" (each token with ΔConf_k > ε) or
            "last" (all up to the last such token).
        flat: what is kept where no token is admitted: "top1" (the most probable) or "keep_all".
        min_tokens_to_keep: the most probable tokens that are kept in any case.
        vocab_size: n, where the last logits are padding.
        count_masked: whether tokens at −inf count in n.
    """

    rule: str = "prefix"
    flat: str = "top1"
    min_tokens_to_keep: int = 1
    vocab_size: int | None = None
    count_masked: bool = True

    def __post_init__(self) -> None:
        require_choice("rule", self.rule, RULES)
        require_choice("flat", self.flat, FLAT)
        require_range("min_tokens_to_keep", self.min_tokens_to_keep, low=1, integer=True)
        if self.vocab_size is not None:
            require_range("vocab_size", self.vocab_size, low=1, integer=True)


@dataclass(frozen=True)
class Choice:
    """The tokens gathered, which of them are kept, and whether a row keeps everything.

    Attributes:
        order: the tokens gathered, ranked.
        keep: (rows, C) whether the token of that rank stays (a repetition of the first one does).
        everything: (rows, 1) whether the row keeps all its tokens, gathered or not; None if none does.
        delta: (rows, C) ΔConf_k.
        n: the size of the vocabulary, one number or (rows, 1).
    """

    order: Ranked
    keep: Tensor
    everything: Tensor | None
    delta: Tensor
    n: int | Tensor


def as_epsilon(epsilon: float | Tensor) -> float | Tensor:
    """ε in [0, 1), one number or one for each row.

    Raises:
        TypeError: if it is neither a number nor a tensor.
        ValueError: if one is outside, or NaN.
    """
    if not isinstance(epsilon, Tensor):
        return float(require_range("epsilon", epsilon, low=0, high=1, high_open=True, hint="The paper uses 0.001."))
    if traced(epsilon):
        return epsilon
    fits = epsilon.numel() > 0 and not epsilon.is_complex() and epsilon.dtype != torch.bool
    if not fits or not bool(((epsilon >= 0) & (epsilon < 1)).all()):
        raise ValueError(message("epsilon", "at least 0 and less than 1 in every row", epsilon.tolist() or "none"))
    return epsilon.detach()


def choose(x: Tensor, epsilon: float | Tensor, how: Rule) -> Choice:
    """The candidate set of (rows, V) logits in float32 or float64; `epsilon` a number or (rows,)."""
    size, fine = x.shape[-1], float_dtype(x.device)
    limit = epsilon.to(x.device, fine).reshape(-1, 1) if isinstance(epsilon, Tensor) else epsilon
    zeros = bool((limit == 0).any()) if isinstance(limit, Tensor) and not traced(x) else limit == 0
    # nothing here that autocast would lower: elementwise steps, sums and sorts
    order = ranked(x, limit, min(how.min_tokens_to_keep, size))
    n = size if how.count_masked else torch.isfinite(x).sum(-1, keepdim=True)
    delta = decisive_deltas(order, n)
    passes = order.filled(delta > limit)
    if zeros is not False:  # at ε = 0 exactly, not to rounding: ΔConf_k > 0 unless p_k is that of the last token
        lowest = x if how.count_masked else x.masked_fill(x == -torch.inf, torch.inf)
        above = order.filled(order.values > lowest.amin(-1, keepdim=True))
        passes = torch.where(torch.as_tensor(limit, device=x.device) == 0, above, passes)
    return _ruled(order, passes, delta, n, how)


def _ruled(order: Ranked, passes: Tensor, delta: Tensor, n: int | Tensor, how: Rule) -> Choice:
    keep = passes
    if how.rule == "prefix":
        keep = passes.cumprod(-1, dtype=torch.uint8).bool()
    elif how.rule == "last":
        keep = passes.flip(-1).long().cumsum(-1).flip(-1) > 0
    everything = None
    if how.flat == "keep_all":
        everything = ~keep.any(-1, keepdim=True)
    keep[:, : how.min_tokens_to_keep] = True
    keep = keep & (order.values > -torch.inf)  # what was ruled out stays so, however many are wanted
    return Choice(order, keep if order.valid is None else keep | ~order.valid, everything, delta, n)


def warn_of_too_few(wanted: int, size: int) -> None:
    """Say that all tokens are kept, where more are wanted than there are."""
    warnings.warn(f"min_tokens_to_keep is {wanted}, but there are {size} tokens: all are kept.", stacklevel=4)


def real_part(rows: Tensor, vocab_size: int | None) -> Tensor:
    """The logits without the padding of the vocabulary.

    Raises:
        ValueError: if there are fewer than `vocab_size`.
    """
    if vocab_size is None:
        return rows
    require_range("vocab_size", vocab_size, low=1, high=rows.shape[-1], integer=True, because="the logits of a row")
    return rows[:, :vocab_size]


@torch.no_grad()
def candidate_mask(
    logits: Tensor,
    epsilon: float | Tensor = 1e-3,
    *,
    rule: str = "prefix",
    flat: str = "top1",
    min_tokens_to_keep: int = 1,
    vocab_size: int | None = None,
    count_masked: bool = True,
) -> Tensor:
    """Which tokens the rule keeps: k = 1, 2, … is admitted while ΔConf_k > ε (Section 3).

    As ΔConf_k ≤ p_k, at most 1/ε tokens are kept and none with p ≤ ε. One pass over the vocabulary, no sort. At ε = 0
    every token stays that is more probable than the least probable one. Of equal tokens the lower id comes first.

    Args:
        logits: (..., V) scores; −inf for tokens that are ruled out. 16 bits are computed in float32; probabilities
            below 1e-38 of float32 logits count as 0.
        epsilon: ε in [0, 1), a number or a tensor of the leading shape.
        rule: "prefix", the paper's; "pointwise", each token with ΔConf_k > ε wherever it ranks, as in the released
            code; "last", all up to the last one that passes.
        flat: what stays where no token is admitted, because the best ones are about equally probable: "top1", the
            paper's, or "keep_all", every token that is not ruled out.
        min_tokens_to_keep: the most probable tokens that stay in any case, unless they are at −inf; a warning tells if
            there are fewer.
        vocab_size: n, where the last logits only fill the vocabulary up; ids from n on are never kept.
        count_masked: whether tokens at −inf count in n. False after a grammar has ruled most of them out.

    Returns:
        (..., V) bool.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if an argument is out of range, the dtype is no floating-point one, or a row holds NaN or +inf or
            nothing finite (the row is named).
    """
    how = Rule(rule, flat, min_tokens_to_keep, vocab_size, count_masked)
    rows = as_logits(logits, probs=False)
    x = real_part(rows, vocab_size)
    limit = as_epsilon(epsilon)
    if min_tokens_to_keep > x.shape[-1]:
        warn_of_too_few(min_tokens_to_keep, x.shape[-1])
    if isinstance(limit, Tensor):
        lead = tuple(logits.shape[:-1])
        if limit.ndim > len(lead) or any(a not in (1, b) for a, b in zip(limit.shape[::-1], lead[::-1], strict=False)):
            raise ValueError(message("epsilon", f"a number or of the leading shape {lead}", tuple(limit.shape)))
        limit = limit.expand(lead).reshape(-1) if limit.ndim else limit
    if x.shape[-1] == 1:
        checked_top(x)
        mask = torch.zeros_like(rows, dtype=torch.bool)
        mask[:, 0] = True
        return mask.reshape(logits.shape)
    choice = choose(x, limit, how)
    mask = torch.zeros_like(rows, dtype=torch.bool)
    mask.scatter_(1, choice.order.ids, choice.keep)
    if choice.everything is not None:
        mask[:, : x.shape[-1]] |= choice.everything & (x > -torch.inf)
    return mask.reshape(logits.shape)
