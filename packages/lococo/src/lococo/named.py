"""Caches by name, as a command line or a table of results writes them: `h2o:mem_size=128,local_len=0`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from offprints.checks import message, require_choice
from transformers import Cache, DynamicCache

from lococo.cache import H2OCache, LoCoCoCache, RandomEvictionCache, SnapKVCache, StreamingLLMCache
from lococo.heads import LoCoCoCompressor
from lococo.host import text_config

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from lococo.chunked import MakeCache

KINDS: dict[str, Callable[..., Cache]] = {
    "h2o": H2OCache,
    "random": RandomEvictionCache,
    "snapkv": SnapKVCache,
    "streaming": StreamingLLMCache,
}


def make_cache(name: str, model: "PreTrainedModel") -> "MakeCache":
    """A function that makes the cache of a name for a model (the caches that Section 4 compares).

    "full"; "h2o", "streaming", "random" and "snapkv" with `mem_size` and the arguments of their classes;
    "lococo:heads=FOLDER" with trained heads, or with `mem_size` and fields of `LoCoCoConfig` for untrained ones.

    Raises:
        TypeError: if an argument is unknown.
        ValueError: if the name is unknown or an argument out of range.
    """
    kind, _, rest = name.partition(":")
    require_choice("cache", kind, ("full", "lococo", *KINDS))
    given: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        if not equals:
            raise ValueError(message(f"arguments of cache {name!r}", "written as name=value", repr(part)))
        given[key.strip()] = _value(value.strip())
    if kind == "full":
        if given:
            raise TypeError(f"cache 'full' takes no arguments, got {next(iter(given))!r}.")
        return lambda: DynamicCache(config=text_config(model))
    if kind == "lococo":
        folder = given.pop("heads", None)
        heads = (
            LoCoCoCompressor.for_model(model, **given)
            if folder is None
            else LoCoCoCompressor.from_pretrained(str(folder), model)
        )
        return lambda: LoCoCoCache(model, heads)
    made = KINDS[kind]
    made(model, **given)  # an argument that is wrong is told now
    return lambda: made(model, **given)


def _value(text: str) -> int | float | bool | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False}.get(text.lower(), text)
