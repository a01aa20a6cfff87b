"""Keep a transformer's key-value cache at a fixed size by fusing old entries (Cai et al., ICML 2024).

Names are loaded when they are first used: nothing is imported before.
"""

from importlib import import_module

__all__ = [
    "Accuracy",
    "CacheReport",
    "Calibration",
    "Comparison",
    "CompressedCache",
    "ConvCompressor",
    "H2OCache",
    "LoCoCoCache",
    "LoCoCoCompressor",
    "LoCoCoConfig",
    "ModelShape",
    "Perplexity",
    "Question",
    "RandomEvictionCache",
    "SnapKVCache",
    "StreamingLLMCache",
    "Tuned",
    "allocate",
    "associative_recall",
    "calibrate",
    "chunked_nll",
    "compare_caches",
    "interpolate_positions",
    "load_questions",
    "load_texts",
    "load_tuned",
    "make_cache",
    "multiple_choice",
    "needle_recall",
    "observe",
    "perplexity",
    "qa",
    "tune_long_context",
]

_HOMES = {
    "budgets": "allocate",
    "cache": "CacheReport CompressedCache H2OCache LoCoCoCache RandomEvictionCache SnapKVCache StreamingLLMCache",
    "chunked": "chunked_nll",
    "compressor": "ConvCompressor LoCoCoConfig",
    "data": "Question associative_recall load_questions load_texts",
    "evaluate": "Accuracy Comparison Perplexity compare_caches multiple_choice needle_recall perplexity qa",
    "heads": "LoCoCoCompressor",
    "host": "ModelShape",
    "named": "make_cache",
    "watching": "observe",
    "train": "Calibration calibrate",
    "tune": "Tuned interpolate_positions load_tuned tune_long_context",
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
