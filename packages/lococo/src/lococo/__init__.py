"""Keep a transformer's key-value cache at a fixed size by fusing old entries (Cai et al., ICML 2024).

Names are loaded when they are first used: nothing is imported before.
"""

from importlib import import_module

__all__ = [
    "CacheReport",
    "CompressedCache",
    "ConvCompressor",
    "H2OCache",
    "LoCoCoCache",
    "LoCoCoCompressor",
    "LoCoCoConfig",
    "ModelShape",
    "RandomEvictionCache",
    "SnapKVCache",
    "StreamingLLMCache",
    "observe",
]

_HOMES = {
    "cache": "CacheReport CompressedCache H2OCache LoCoCoCache RandomEvictionCache SnapKVCache StreamingLLMCache",
    "compressor": "ConvCompressor LoCoCoCompressor LoCoCoConfig ModelShape",
    "observe": "observe",
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
    globals()[name] = found  # `observe` is also the name of its module
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
