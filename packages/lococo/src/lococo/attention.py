"""Attention that also tells how much mass each slot got: s_j = Σ_i a_ij over queries and heads of a group (Section 3).

Two functions are registered with transformers, one for each back end that can give scores. Outside `observe`, and for
layers that are not compressed, they are the back end's own.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

if TYPE_CHECKING:
    from lococo.layer import CompressedLayer

BACKENDS = ("eager", "sdpa")
BLOCK = 256  # queries at a time
WATCHED: "WeakKeyDictionary[nn.Module, CompressedLayer]" = WeakKeyDictionary()
"""The cache layer that each attention module is about to use."""
PASSED = ("position_ids", "cache_position", "output_attentions", "is_causal", "use_cache", "position_embeddings")


def register() -> None:
    """Make `lococo_eager` and `lococo_sdpa` known to transformers."""
    for name, function in (("eager", _eager), ("sdpa", _sdpa)):
        AttentionInterface.register(f"lococo_{name}", function)
        AttentionMaskInterface.register(f"lococo_{name}", ALL_MASK_ATTENTION_FUNCTIONS[name])


def eager_of(module: nn.Module) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The eager attention that the file of a model brings."""
    return getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)


def _eager(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **how: Any
) -> tuple[Tensor, Tensor | None]:
    base: Any = eager_of(module)
    layer = WATCHED.get(module)
    if layer is None:
        return base(module, query, key, value, attention_mask, **how)
    mask = layer.mask(query.shape[2]) if layer.own_mask else attention_mask
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(~mask, torch.finfo(query.dtype).min)
    out, weights = base(module, query, key, value, mask, **how)
    if layer.wants_scores():
        queries, window = query.shape[2], layer.policy.window or query.shape[2]
        mass = weights.detach()[:, :, -window:].to(torch.promote_types(weights.dtype, torch.float32))
        if (real := layer.real_queries(queries)) is not None:
            mass = mass.masked_fill(~real[:, None, -window:, None], 0)  # may be NaN there
        b, heads, _, slots = mass.shape
        layer.absorb(mass.sum(2).view(b, key.shape[1], heads // key.shape[1], slots).sum(2), queries)
    return out, weights


def _sdpa(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **how: Any
) -> tuple[Tensor, Tensor | None]:
    layer = WATCHED.get(module)
    if layer is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **how)
    queries = query.shape[2]
    mask = layer.mask(queries) if layer.own_mask else attention_mask
    if not layer.wants_scores():
        return sdpa_attention_forward(module, query, key, value, mask, **how)
    scaling = how.get("scaling") or query.shape[-1] ** -0.5
    extras = [name for name, value in how.items() if value is not None and name not in (*PASSED, "scaling", "dropout")]
    window = layer.policy.window or queries
    plain = not torch.is_grad_enabled() and not how.get("dropout") and not extras and window >= queries
    real = layer.real_queries(queries)
    if plain:
        out, mass = weigh(query, key, value, mask, scaling, real)
        layer.absorb(mass, queries)
        return out.transpose(1, 2).contiguous(), None
    out, _ = sdpa_attention_forward(module, query, key, value, mask, **how)
    with torch.no_grad():
        last = min(window, queries)
        if mask is None and queries > 1:
            mask = causal(queries, key.shape[2], key.device)
        mask = None if mask is None else mask[:, :, queries - last :]
        real = None if real is None else real[:, queries - last :]
        _, mass = weigh(query[:, :, queries - last :], key, None, mask, scaling, real)
        layer.absorb(mass, queries)
    return out, None


def causal(queries: int, slots: int, device: torch.device) -> Tensor:
    """(1, 1, q, S) the mask of the last q of S tokens."""
    return torch.ones(queries, slots, dtype=torch.bool, device=device).tril(slots - queries)[None, None]


def weigh(
    query: Tensor, key: Tensor, value: Tensor | None, mask: Tensor | None, scaling: float, real: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Attention by its weights, in blocks of queries, with the sum of each column.

    Args:
        query: (b, H, q, d).
        key: (b, h, S, d), h a divisor of H.
        value: (b, h, S, d), or None when only the sums are wanted.
        mask: (b or 1, 1, q, S), boolean or additive; None is causal, the last query seeing all.
        scaling: factor of the products.
        real: (b, q) which queries are no padding and count.

    Returns:
        the outputs (b, H, q, d), empty without values, and Σ over queries and groups of the weights, (b, h, S) in
        float32 at least.
    """
    b, heads, queries, d = query.shape
    h, slots = key.shape[1], key.shape[2]
    groups = heads // h
    if mask is None and queries > 1:
        mask = causal(queries, slots, key.device)
    precise = torch.promote_types(query.dtype, torch.float32)
    mass = torch.zeros(b, h, slots, dtype=precise, device=key.device)
    outputs = []
    for start in range(0, queries, BLOCK):
        part = query[:, :, start : start + BLOCK]
        size = part.shape[2]
        products = torch.matmul(part.reshape(b, h, groups * size, d), key.transpose(-1, -2)) * scaling
        products = products.view(b, h, groups, size, slots)
        if mask is not None:
            seen = mask[:, :, None, start : start + size]
            if seen.dtype == torch.bool:
                products = products.masked_fill(~seen, torch.finfo(products.dtype).min)
            else:
                products = products + seen
        weights = torch.softmax(products, -1, dtype=precise)
        counted = weights if real is None else weights.masked_fill(~real[:, None, None, start : start + size, None], 0)
        mass += counted.sum((2, 3))
        if value is not None:
            out = torch.matmul(weights.to(value.dtype).view(b, h, groups * size, slots), value)
            outputs.append(out.view(b, heads, size, d))
    return torch.cat(outputs, 2) if outputs else query.new_zeros(b, heads, 0, d), mass


register()
