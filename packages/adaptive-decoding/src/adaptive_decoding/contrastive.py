"""Contrastive search (Su et al., 2022): one of the decoders that are compared with (Section 4)."""

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from offprints.checks import message, require_kind, require_range, require_shape
from torch import Tensor

if TYPE_CHECKING:
    from transformers import Cache, PreTrainedModel

TOP_K, ALPHA = 5, 0.6


@torch.no_grad()
def contrastive_search(
    model: "PreTrainedModel",
    input_ids: Tensor,
    k: int = TOP_K,
    alpha: float = ALPHA,
    *,
    max_new_tokens: int = 64,
    attention_mask: Tensor | None = None,
    eos_token_id: int | Sequence[int] | None = None,
    pad_token_id: int = 0,
    suppress_tokens: Sequence[int] = (),
) -> Tensor:
    """At every step argmax over the k most probable tokens v of (1 − α) p(v) − α max_j cos(h_v, h_j).

    h_v is the last hidden state of the model after v, h_j those of all tokens before. Deterministic; α = 0 is greedy
    decoding. Each step runs the k candidates of every row in one batch; the states of the prefix are kept, not
    recomputed. Su et al. (2022), a baseline of Section 4.

    Args:
        model: a causal language model of transformers, decoder only.
        input_ids: (batch, length) prompts, padded on the left.
        k: candidates of a step.
        alpha: α in [0, 1], the weight of the penalty.
        max_new_tokens: steps at most.
        attention_mask: (batch, length) 0 at padding; all 1 by default.
        eos_token_id: the id or ids that end a row; no row ends by default.
        pad_token_id: what fills rows up that have ended.
        suppress_tokens: ids that are never chosen; p is renormalised over the others.

    Returns:
        (batch, length + steps) ids.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if a shape or number is out of range, a row of the mask ends in padding, or the model's cache
            cannot be reordered; if every token is suppressed.
    """
    require_shape("input_ids", input_ids, ("batch", "length"))
    require_range("k", k, low=1, integer=True)
    require_range("alpha", alpha, low=0, high=1)
    require_range("max_new_tokens", max_new_tokens, low=1, integer=True)
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    require_kind("attention_mask", mask, Tensor)
    require_shape("attention_mask", mask, tuple(input_ids.shape))
    if input_ids.numel() == 0:
        raise ValueError(message("input_ids", "of one row and one token or more", tuple(input_ids.shape)))
    if not bool(mask[:, -1].all()):
        raise ValueError(message("attention_mask", "1 at the end of every row", "padding there", "Pad on the left."))
    ends = [] if eos_token_id is None else [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id)
    state = _Prefix(model, input_ids, mask.long(), sorted(set(suppress_tokens)))
    size = state.logits.shape[-1]
    require_range("suppressed tokens", len(state.never), high=size - 1, integer=True, because="one must be left")
    k = min(k, size - len(state.never))
    ids, over = input_ids, torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
    for _ in range(max_new_tokens):
        token = state.step(k, alpha)
        token = torch.where(over, torch.full_like(token, pad_token_id), token)
        ids = torch.cat((ids, token[:, None]), 1)
        over |= torch.isin(token, torch.tensor(ends, device=token.device, dtype=token.dtype))
        if ends and bool(over.all()):
            break
    return ids


class _Prefix:
    """What is known of the tokens so far: cache, mask, unit hidden states, logits of the next token."""

    def __init__(self, model: "PreTrainedModel", ids: Tensor, mask: Tensor, never: Sequence[int] = ()) -> None:
        self.model, self.mask = model, mask
        self.never = torch.tensor(never, dtype=torch.long, device=ids.device)
        known = inspect.signature(model.forward).parameters
        self.positioned = "position_ids" in known
        self.keyword = "cache" if "cache" in known else "past_key_values"  # renamed within version 5
        self.logits, self.states, self.cache = self._run(ids, mask, None)

    def _run(self, ids: Tensor, mask: Tensor, cache: "Cache | None") -> "tuple[Tensor, Tensor, Cache]":
        """(rows, V) logits after the last token, (rows, length, width) unit states of all, and the cache."""
        places = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        extra: dict[str, object] = {"position_ids": places} if self.positioned else {}
        extra[self.keyword] = cache
        out = self.model(ids, attention_mask=mask, use_cache=True, output_hidden_states=True, **extra)
        found = out.get("cache", out.get("past_key_values"))
        if not hasattr(found, "reorder_cache"):
            raise ValueError(message("model", "one whose cache can be reordered", type(found).__name__))
        states = torch.nn.functional.normalize(out["hidden_states"][-1].float(), dim=-1)
        return out["logits"][:, -1].float(), states, found

    def step(self, k: int, alpha: float) -> Tensor:
        """(batch,) the next tokens, which are part of the prefix then."""
        rows = len(self.logits)
        open_ = self.logits.index_fill(-1, self.never, -torch.inf)
        probs, candidates = open_.softmax(-1).topk(k, dim=-1)
        spread = torch.arange(rows, device=probs.device).repeat_interleave(k)
        self.cache.reorder_cache(cast("torch.LongTensor", spread))
        longer = torch.cat((self.mask, self.mask.new_ones(rows, 1)), 1)
        logits, states, self.cache = self._run(candidates.reshape(-1, 1), longer[spread], self.cache)
        hidden = states[:, -1].view(rows, k, -1)
        alike = (hidden @ self.states.mT).masked_fill(self.mask[:, None] == 0, -torch.inf).amax(-1)
        best = ((1 - alpha) * probs - alpha * alike).argmax(-1)
        chosen = best + k * torch.arange(rows, device=best.device)
        self.mask, self.logits = longer, logits[chosen]
        self.cache.reorder_cache(cast("torch.LongTensor", chosen))
        self.states = torch.cat((self.states, states[chosen, -1:]), 1)
        return candidates.gather(1, best[:, None])[:, 0]
