"""Reading a text in chunks through a cache, and what the model thinks of it (the protocol of Section 4)."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from offprints.checks import message, require_kind, require_range, require_shape
from torch import Tensor, nn
from transformers import Cache

from lococo.host import cache_argument, unwrapped
from lococo.watching import observe

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MakeCache = Callable[[], Cache]


def require_ids(name: str, ids: Tensor) -> None:
    """Check token ids (rows, length).

    Raises:
        TypeError: if they are no tensor of integers.
        ValueError: if the shape is wrong, or there is nothing to predict.
    """
    require_kind(name, ids, Tensor)
    require_shape(name, ids, ("rows", "length"))
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise TypeError(message(name, "token ids (integers)", str(ids.dtype)))
    if ids.shape[1] < 2:
        raise ValueError(message(name, "of 2 tokens or more", f"{ids.shape[1]}", "There is nothing to predict."))


def run(model: nn.Module, ids: Tensor, cache: Cache, **how: object) -> Tensor:
    """(rows, q, V) logits of the next tokens, with a cache under whatever name the model takes it."""
    out: Any = model(ids, **{cache_argument(model): cache}, use_cache=True, **how)
    return out.logits


def chunks(ids: Tensor, chunk: int) -> Iterator[tuple[int, Tensor]]:
    """Start and (rows, ≤ chunk) ids of each part."""
    for start in range(0, ids.shape[1], chunk):
        yield start, ids[:, start : start + chunk]


def token_nll(logits: Tensor, ids: Tensor, start: int) -> Tensor:
    """(rows, ≤ q) −ln p of the tokens start + 1 … that these logits predict: also the first one of the next chunk."""
    targets = ids[:, start + 1 : start + 1 + logits.shape[1]]
    logits = logits[:, : targets.shape[1]].float()
    flat = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
    return flat.view(targets.shape)


def chunked_nll(model: "PreTrainedModel", ids: Tensor, cache: Cache, chunk: int) -> Tensor:
    """−ln p of each token but the first, reading `chunk` tokens at a time through a cache (Section 4).

    The first token of a chunk is predicted by the last logits of the chunk before (the released code leaves it out).

    Args:
        model: a causal model of transformers.
        ids: (rows, length) token ids, without padding.
        cache: an empty cache, of this package or transformers' own.
        chunk: tokens at a time.

    Returns:
        (rows, length − 1) nats.

    Raises:
        TypeError: if `ids` are no integers.
        ValueError: if the shape is wrong or the cache not empty.
    """
    require_ids("ids", ids)
    require_range("chunk", chunk, low=1, integer=True)
    if cache.get_seq_length():
        raise ValueError(message("cache", "empty", f"{cache.get_seq_length()} tokens", "Call its reset()."))
    with observe(model), torch.no_grad():
        return torch.cat([token_nll(run(model, part, cache), ids, start) for start, part in chunks(ids, chunk)], 1)


def named_parameters(model: nn.Module) -> Mapping[str, nn.Parameter]:
    """Parameters of the transformers model, inside a wrapper or not."""
    return dict(unwrapped(model).named_parameters())
