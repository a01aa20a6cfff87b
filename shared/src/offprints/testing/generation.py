"""Checks of logits processors and caches, in `generate()` of a tiny random transformers model."""

import functools
import inspect
from collections.abc import Callable

import torch
import transformers

from offprints.seeding import isolated
from offprints.testing.conformance import Conformance
from offprints.testing.values import assert_same

_NEW, _PAD, _WORDS = 6, 0, 64


def act(case: Conformance) -> Callable[[], object]:
    """Generate greedily."""
    _model()
    return lambda: _generated(case, _prompts(4))


def check_greedy(case: Conformance) -> None:
    """One prompt, token by token."""
    _grown(case, 1)


def check_sampling(case: Conformance) -> None:
    """Sampling."""
    with isolated(0):
        _grown(case, 3, do_sample=True)


def check_beam(case: Conformance) -> None:
    """Beam search, which reorders rows."""
    _grown(case, 1, num_beams=5)


def check_left_padding(case: Conformance) -> None:
    """A prompt padded on the left in a batch goes on as it does alone."""
    short = _prompts(2)[:, 2:]
    padded = torch.stack((_prompts(1)[0], torch.cat((torch.tensor([_PAD, _PAD]), short[0]))))
    whole, alone = _generated(case, padded), _generated(case, short)
    assert_same(whole[1, -_NEW:], alone[1, -_NEW:], "the padded prompt in the batch and alone")


@functools.cache
def _model() -> transformers.LlamaForCausalLM:
    sizes = {"vocab_size": _WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    with isolated(0):
        config = transformers.LlamaConfig(**sizes, **heads, pad_token_id=_PAD, eos_token_id=None, initializer_range=0.5)
        return transformers.LlamaForCausalLM(config).double().eval()


def _prompts(rows: int) -> torch.Tensor:
    return torch.tensor([[5, 9, 13, 7, 21]]).repeat(rows, 1)


def _generated(case: Conformance, prompts: torch.Tensor, **how: object) -> torch.Tensor:
    thing = case.make()
    if case.kind == "cache":
        known = inspect.signature(_model().forward).parameters  # renamed within version 5
        extra = {"cache" if "cache" in known else "past_key_values": thing}
    else:
        extra = {"logits_processor": transformers.LogitsProcessorList([thing])}
    mask = (prompts != _PAD).long()
    return _model().generate(prompts, attention_mask=mask, max_new_tokens=_NEW, **{"do_sample": False} | how, **extra)


def _grown(case: Conformance, rows: int, **how: object) -> None:
    tokens = _generated(case, _prompts(rows), **how)
    assert tokens.shape == (rows, 5 + _NEW), f"{rows} prompts of 5 and {_NEW} more tokens became {tuple(tokens.shape)}"
    assert_same(tokens[:, :5], _prompts(rows), "the prompts")
