"""Mirostat, version 2 (Basu et al., 2021): one of the decoders that are compared with (Section 4)."""

import math

import torch
from offprints.checks import require_kind, require_range
from torch import Tensor
from transformers import LogitsProcessor

from adaptive_decoding.lifecycle import Generation
from adaptive_decoding.processor import checked_scores, held
from adaptive_decoding.ranking import checked_top, upcast


class MirostatLogitsProcessor(LogitsProcessor):
    """Keep tokens with surprise −log2 p ≤ μ, at least one; after each token μ ← μ − η (S − τ), from μ = 2τ on.

    S is the surprise in bits of the sampled token under the renormalised kept set. The token is seen at the next call,
    at the end of `input_ids`; rows that sampled something else (padding after the end) keep their μ. Each row of the
    batch has its own μ; a new prompt starts afresh (one that is the last with one more token does not: `reset()`). A
    beam search reorders rows, which this does not follow: sample.
    Version 2 of Mirostat (Basu et al., 2021), a baseline of Section 4.

    Args:
        tau: τ, the surprise aimed at, in bits.
        eta: η, the learning rate.
        filter_value: the score of what is not kept (the least of the dtype, where that cannot hold it).
        pad_token_id: the id that fills rows up after their end, if no row can sample it.

    Attributes:
        mu: (batch,) μ in bits; None before the first call.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if a number is out of range; at a call, as `AdaptiveLogitsProcessor`.
    """

    def __init__(
        self, tau: float = 3.0, eta: float = 0.1, filter_value: float = -math.inf, pad_token_id: int | None = None
    ) -> None:
        self.tau = float(require_range("tau", tau, low=0, low_open=True, high=1e6))
        self.eta = float(require_range("eta", eta, low=0, high=1e6))
        self.filter_value = float(require_range("filter_value", filter_value, high=0.0))
        if pad_token_id is not None:
            require_range("pad_token_id", pad_token_id, low=0, integer=True)
        self.pad_token_id = pad_token_id
        self.mu: Tensor | None = None
        self._kept: Tensor | None = None
        self._generation = Generation()

    def reset(self) -> None:
        """Forget the generation at hand."""
        self.mu, self._kept, self._generation = None, None, Generation()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(batch, length) ids so far and (batch, V) scores -> (batch, V) scores of the same dtype, on the same device.

        Raises:
            ValueError: as the class says.
        """
        x = upcast(checked_scores(scores).detach())
        require_kind("input_ids", input_ids, Tensor)
        top = checked_top(x)
        mu = torch.full((len(x),), 2 * self.tau, dtype=x.dtype, device=x.device)
        if self._generation.goes_on(input_ids) and self.mu is not None and self._kept is not None:
            mu = self._learn(self.mu, self._kept, input_ids[:, -1])
        self.mu = mu
        surprise = -torch.log_softmax(x, -1) / math.log(2)
        keep = (surprise <= mu[:, None]) & (x > -torch.inf)
        keep.scatter_(1, x.argmax(-1, keepdim=True), True)
        kept = x.masked_fill(~keep, -torch.inf) - top
        self._kept = -torch.log_softmax(kept, -1) / math.log(2)
        return scores.masked_fill(~keep, held(self.filter_value, scores.dtype))

    def _learn(self, mu: Tensor, kept: Tensor, tokens: Tensor) -> Tensor:
        observed = kept.gather(1, tokens[:, None])[:, 0]
        counts = torch.isfinite(observed)
        if self.pad_token_id is not None:
            counts &= tokens != self.pad_token_id
        return torch.where(counts, mu - self.eta * (observed - self.tau), mu)
