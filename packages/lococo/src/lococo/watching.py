"""Watching a model: the attention mass of each slot, and which tokens are padding, for the caches of this package."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import Cache

from lococo.attention import BACKENDS, WATCHED, eager_of
from lococo.host import attention_modules, decoder_of, given_cache, unwrapped
from lococo.layer import CompressedLayer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_WATCHES: "WeakKeyDictionary[nn.Module, _Watch]" = WeakKeyDictionary()


@contextmanager
def observe(model: "PreTrainedModel") -> Generator["PreTrainedModel", None, None]:
    """Let compressed caches see what they need while the model runs: scores of slots (Section 3), and padding.

    Inside, `model(…, cache=cache)` and `model.generate(…, cache=cache)` work as ever; without a cache of this package
    the results are the model's own. May be nested; on leaving, hooks and back end are as before.

    Args:
        model: a decoder of Llama's kind (Llama, Mistral, Qwen2, Qwen3, SmolLM, …), also inside a PEFT wrapper.

    Raises:
        TypeError: if its attention modules are of an unknown kind.
        RuntimeError: if its attention back end gives no scores.
    """
    inner = unwrapped(model)
    watch = _WATCHES.get(inner)
    if watch is None:
        watch = _WATCHES[inner] = _Watch(inner)
    watch.users += 1
    try:
        yield model
    finally:
        watch.users -= 1
        if not watch.users:
            watch.stop()
            _WATCHES.pop(inner, None)


class _Watch:
    """The hooks on one model."""

    def __init__(self, model: nn.Module) -> None:
        self.users = 0
        self.pads: list[int] | None = None
        self.own_mask = False
        self.modules = attention_modules(model)
        decoder = decoder_of(model)
        configs: list[Any] = [module.config for module in (*self.modules, decoder)]
        self.configs = {id(config): (config, config._attn_implementation) for config in configs}
        for _, backend in self.configs.values():
            if backend not in BACKENDS:
                raise RuntimeError(
                    f"the attention back end must be one that gives scores ({' or '.join(BACKENDS)}), got {backend!r}. "
                    "Load the model with attn_implementation='sdpa', or call model.set_attn_implementation('sdpa')."
                )
            if backend == "eager" and eager_of(self.modules[0]) is None:
                raise TypeError(f"model must have an eager attention function, got {type(self.modules[0]).__name__}.")
        for config, backend in self.configs.values():
            config._attn_implementation = f"lococo_{backend}"
        self.hooks = [decoder.register_forward_pre_hook(self._before_model, with_kwargs=True)]
        for module in self.modules:
            self.hooks.append(module.register_forward_pre_hook(self._before_attention, with_kwargs=True))
            self.hooks.append(module.register_forward_hook(_after_attention, always_call=True))

    def stop(self) -> None:
        for hook in self.hooks:
            hook.remove()
        for config, backend in self.configs.values():
            config._attn_implementation = backend
        for module in self.modules:
            WATCHED.pop(module, None)

    def _before_model(self, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        self.pads = None
        layers = _compressed(given_cache(kwargs))
        if not layers:
            return
        if kwargs.get("use_cache") is False:
            raise ValueError("use_cache must not be False with a compressed cache. Leave it out.")
        ids = next((x for x in (kwargs.get("input_ids"), kwargs.get("inputs_embeds"), *args) if x is not None), None)
        if not isinstance(ids, Tensor):
            raise TypeError("the model must be called with input_ids or inputs_embeds.")
        self.pads = padding(kwargs.get("attention_mask"), layers[0], ids.shape[0], ids.shape[1])
        # transformers builds one mask, from the sizes of one layer: right only while no layer has lost a token
        self.own_mask = any(layer.compressed or layer.due() for layer in layers)

    def _before_attention(self, module: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        WATCHED.pop(module, None)
        cache = given_cache(kwargs)
        if not isinstance(cache, Cache) or module.layer_idx >= len(cache.layers):
            return
        layer = cache.layers[module.layer_idx]
        if isinstance(layer, CompressedLayer):
            layer.arm(self.pads, self.own_mask)
            WATCHED[module] = layer


def _after_attention(module: nn.Module, args: tuple, output: object) -> None:
    WATCHED.pop(module, None)


def _compressed(cache: object) -> list[CompressedLayer]:
    layers = cache.layers if isinstance(cache, Cache) else []
    return [layer for layer in layers if isinstance(layer, CompressedLayer)]


def padding(mask: object, layer: CompressedLayer, rows: int, queries: int) -> list[int] | None:
    """How many of the new tokens of each row are padding; None if none is.

    Raises:
        ValueError: naming the rows, if padding does not stand in front, or the mask contradicts that of earlier calls.
    """
    seen = layer.seen
    held = layer.tokens or [0] * rows
    if mask is None:
        if any(count != seen for count in held):
            padded = [row for row, count in enumerate(held) if count != seen]
            raise ValueError(f"attention_mask must be given again: rows {padded} of the cache began with padding.")
        return None
    if not isinstance(mask, Tensor) or mask.ndim != 2 or tuple(mask.shape) != (rows, seen + queries):
        got = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(
            f"attention_mask must be of shape ({rows}, {seen + queries}) (rows, tokens seen and new ones), got {got}. "
            "It marks padding in front of the prompts; masks of four dimensions cannot follow a compression."
        )
    real = mask != 0
    if all(count == seen for count in held) and bool(real.all()):
        return None
    behind = ((real.long().cumsum(-1) > 0) & ~real).any(-1)
    fresh, total = (torch.stack((real[:, seen:].sum(-1), real.sum(-1))).tolist()) if rows else ([], [])
    if wrong := behind.nonzero()[:, 0].tolist():
        raise ValueError(
            f"attention_mask must be 0 only in front of a row, got padding behind tokens in rows {wrong}. "
            "Set tokenizer.padding_side = 'left'."
        )
    if wrong := [row for row in range(rows) if total[row] - fresh[row] != held[row]]:
        raise ValueError(f"attention_mask must extend that of earlier calls, got another for rows {wrong}.")
    return [queries - new for new in fresh]
