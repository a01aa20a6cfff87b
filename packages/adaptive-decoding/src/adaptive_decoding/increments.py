"""Confidence and its increments: how much of the greatest possible entropy each token resolves (Section 3)."""

import math
from dataclasses import dataclass

import torch
from offprints.checks import message, require_kind, require_range
from offprints.device import full_precision
from torch import Tensor

from adaptive_decoding.ranking import Ranked, ranked, traced, upcast

SMALL = 1e-3
"""Below it (1 + t) ln(1 + t) − t is summed as a series: as written it would cancel."""


@dataclass(frozen=True)
class Increments:
    """ΔConf_k of the K most probable tokens (Section 3).

    Attributes:
        delta: (..., K) ΔConf_k, float64 (float32 where the device has no float64), never negative.
        token_ids: (..., K) the tokens, most probable first, of equal ones the lower id first.
        log_probs: (..., K) ln p_k in nats.
        log_tail: (..., K) ln R_k in nats, R_k the mass of all tokens behind rank k; −inf if there is none.
    """

    delta: Tensor
    token_ids: Tensor
    log_probs: Tensor
    log_tail: Tensor


def _excess(x: Tensor, t: Tensor) -> Tensor:
    """X ln x − x + 1 ≥ 0 for x = 1 + t, without cancellation near 1."""
    series = t * t * (1 / 2 - t * (1 / 6 - t * (1 / 12 - t * (1 / 20 - t / 30))))
    return torch.where(t.abs() < SMALL, series, torch.xlogy(x, x) - t)


def deltas(probs: Tensor, rest: Tensor, n: Tensor) -> Tensor:
    """ΔConf_k = R_{k−1} KL(Bern(p_k / R_{k−1}) ‖ Bern(1/m)) / ln n with m = n − k + 1.

    The divergence is [φ(m q) + (m − 1) φ((1 − q) m / (m − 1))] / m with φ(x) = x ln x − x + 1: two terms that are never
    negative, so that nothing cancels. `probs` (rows, K), `rest` (rows, K + 1), `n` (rows or 1, 1) -> (rows, K).
    """
    m = (n - torch.arange(probs.shape[-1], device=probs.device)).clamp(min=1).to(probs.dtype)
    before = rest[:, :-1]
    safe = before.clamp(min=torch.finfo(before.dtype).tiny)
    others = (m - 1).clamp(min=1)
    x, y = m * (probs / safe), rest[:, 1:] / safe * (m / others)
    t = x - 1
    divergence = (_excess(x, t) + others * _excess(y, -t / others)) / m
    scale = before / n.to(probs.dtype).log().clamp(min=torch.finfo(before.dtype).tiny)
    return torch.where((m > 1) & (before > 0), divergence * scale, torch.zeros_like(before))


def decisive_deltas(order: Ranked, n: int | Tensor) -> Tensor:
    """The same in fewer steps, for comparing with ε: its error is 1e-15, absolute.

    With g_k = ln(R_k / (n − k)): [p_k (ln p_k − g_{k−1}) + R_k (g_k − g_{k−1})] / ln n. `n`: a number, or (rows, 1).
    """
    fine, device = order.rest.dtype, order.rest.device
    tiny, ranks = torch.finfo(fine).tiny, order.rest.shape[-1]
    if isinstance(n, int):
        left, scale = torch.arange(n, n - ranks, -1, dtype=fine, device=device), max(math.log(n), tiny)
    else:
        left, scale = n - torch.arange(ranks, dtype=fine, device=device), n.to(fine).log().clamp_(min=tiny)
    mean = order.rest.clamp(min=tiny).log_().sub_(left.clamp_(min=1).log_())
    before, after = mean[:, :-1], mean[:, 1:]
    logs = order.log_probs.clamp(min=-1e4)  # ln 0, times 0
    gain = torch.addcmul(order.probs * logs.sub_(before), order.rest[:, 1:], after - before)
    return gain.div_(scale)


def as_logits(scores: Tensor, probs: bool) -> Tensor:
    """Floating-point logits (..., V) as (rows, V), in float32 at least; of probabilities their logarithm.

    Raises:
        TypeError: if `scores` is no tensor.
        ValueError: if it is not of a floating-point type, has no axis, an empty vocabulary or negative probabilities.
    """
    require_kind("logits", scores, Tensor, hint="Of a numpy array, use adaptive_filter.")
    if not scores.is_floating_point():
        raise ValueError(message("logits", "of a floating-point type", str(scores.dtype), "Pass scores, not ids."))
    if scores.ndim == 0 or scores.shape[-1] == 0:
        raise ValueError(message("logits", "of shape (..., vocabulary)", tuple(scores.shape)))
    rows = upcast(scores.detach()).reshape(-1, scores.shape[-1])
    if not probs:
        return rows
    if not traced(rows) and bool((rows < 0).any()):
        raise ValueError(message("probs", "at least 0", f"{float(rows.min()):g}", "Of logits, leave probs=False."))
    return rows.log()


@torch.no_grad()
def confidence_increments(
    logits: Tensor, *, k_max: int | None = None, vocab_size: int | None = None, probs: bool = False
) -> Increments:
    """ΔConf_k = [p_k ln p_k + R_k ln(R_k/(n−k)) − R_{k−1} ln(R_{k−1}/(n−k+1))] / ln n (Section 3).

    p_1 ≥ p_2 ≥ … are the probabilities of the next token, R_k = Σ_{i>k} p_i. Each increment is at least 0 and at most
    p_k; they sum to the confidence Conf_k = 1 − H_k / ln n. Computed in float64 whatever comes in.

    Args:
        logits: (..., V) scores of a model; −inf for tokens that are ruled out.
        k_max: how many ranks are wanted; all V by default.
        vocab_size: n, where the last logits are padding (ids from n on are left out); V by default.
        probs: whether `logits` holds probabilities (of any positive sum) instead.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: naming the row, if it holds NaN or +inf or nothing finite; if a number is out of range, or the
            dtype is not a floating-point one.
    """
    rows = as_logits(logits, probs)
    size = rows.shape[-1]
    n = size if vocab_size is None else require_range("vocab_size", vocab_size, low=1, high=size, integer=True)
    k = n if k_max is None else min(require_range("k_max", k_max, low=1, integer=True), n)
    with full_precision(logits.device):
        order = exact_ranking(rows[:, :n], k)
        count = torch.full((1, 1), n, device=logits.device)
        delta = deltas(order.probs, order.rest, count)[:, :k]
    shape = (*logits.shape[:-1], k)
    found = (delta, order.ids[:, :k], order.log_probs[:, :k], order.rest[:, 1 : k + 1].log())
    return Increments(*(part.reshape(shape) for part in found))


def exact_ranking(rows: Tensor, k: int) -> Ranked:
    """The k most probable tokens (or a few more, at a tie) of float64 logits."""
    fine = rows.double() if rows.device.type != "mps" else rows
    return ranked(fine, 2.0 if k < rows.shape[-1] else -1.0, k)


@torch.no_grad()
def confidence(logits: Tensor, k: int, *, vocab_size: int | None = None, probs: bool = False) -> Tensor:
    """Conf_k = 1 − H_k / ln n, H_k = −Σ_{i≤k} p_i ln p_i − R_k ln(R_k/(n−k)): 0 for k = 0 (Section 3).

    What is not among the k most probable tokens counts as unknown, spread evenly over the other n − k.

    Args:
        logits: (..., V) scores.
        k: how many tokens are admitted, 0 … n.
        vocab_size: n, as in `confidence_increments`.
        probs: whether `logits` holds probabilities.

    Returns:
        (...) confidences in [0, 1], float64.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: as `confidence_increments`, or if k is out of range.
    """
    require_kind("logits", logits, Tensor)
    high = vocab_size or (logits.shape[-1] if logits.ndim else 0)
    require_range("k", k, low=0, high=high, integer=True, because="the size of the vocabulary")
    found = confidence_increments(logits, k_max=max(k, 1), vocab_size=vocab_size, probs=probs).delta
    return found[..., :k].sum(-1)
