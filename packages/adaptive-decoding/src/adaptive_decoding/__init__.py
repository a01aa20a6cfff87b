"""Sample from a language model with a candidate set that adapts to each step (Zhu et al., ICML 2024).

Tokens are admitted, most probable first, while each raises an entropy-based confidence by more than ε. Names are loaded
when they are first used: `adaptive_filter` needs neither torch nor transformers.
"""

from importlib import import_module

__all__ = [
    "AdaptiveLogitsProcessor",
    "Answered",
    "Calibration",
    "Continuation",
    "Decoder",
    "DecoderReport",
    "DecodingTrace",
    "Estimate",
    "Increments",
    "MauveScore",
    "MirostatLogitsProcessor",
    "Prompt",
    "Question",
    "ReasoningReport",
    "Recorded",
    "SentenceEncoder",
    "adaptive_filter",
    "calibrate_epsilon",
    "candidate_mask",
    "coherence",
    "compare",
    "confidence",
    "confidence_increments",
    "continuations",
    "contrastive_search",
    "diversity",
    "evaluate_reasoning",
    "load_prompts",
    "load_questions",
    "log_likelihood_coherence",
    "make_decoder",
    "match_size",
    "mauve",
    "perplexity",
    "read_answer",
    "record_logits",
    "rep_n",
    "self_bleu",
    "zipf",
]

_HOMES = {
    "array": "adaptive_filter",
    "calibration": "Calibration Recorded calibrate_epsilon match_size record_logits",
    "candidates": "candidate_mask",
    "comparison": "compare",
    "contrastive": "contrastive_search",
    "data": "Prompt Question load_prompts load_questions",
    "decoders": "Decoder make_decoder",
    "distance": "MauveScore mauve",
    "generation": "Continuation continuations",
    "increments": "Increments confidence confidence_increments",
    "metrics": "SentenceEncoder coherence diversity log_likelihood_coherence perplexity rep_n self_bleu zipf",
    "mirostat": "MirostatLogitsProcessor",
    "processor": "AdaptiveLogitsProcessor",
    "reasoning": "Answered ReasoningReport evaluate_reasoning read_answer",
    "report": "DecoderReport Estimate",
    "trace": "DecodingTrace",
}
_WHERE = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
