"""ε for a wanted size, mass or entropy of the candidate set, from the distributions of a model on some prompts."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from offprints.checks import message, require_kind, require_range
from torch import Tensor
from transformers import LogitsProcessorList

from adaptive_decoding.candidates import Rule, real_part
from adaptive_decoding.decoders import TUNED, Decoder, make_decoder
from adaptive_decoding.generation import (
    context_of,
    continuation_logits,
    continuations,
    encoded,
    end_ids,
    padded,
    without,
)
from adaptive_decoding.increments import as_logits, decisive_deltas
from adaptive_decoding.processor import tempered
from adaptive_decoding.ranking import ranked

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LEAST, MOST = 1e-5, 0.5
STEPS = 60


@dataclass(frozen=True)
class Calibration:
    """The ε that was found, and what it does on the recorded steps (the quantities of Table 8).

    Attributes:
        epsilon: ε.
        k: mean number of kept tokens.
        mass: mean kept probability.
        entropy: mean entropy of the renormalised kept set, in nats.
        steps: recorded steps.
    """

    epsilon: float
    k: float
    mass: float
    entropy: float
    steps: int


@dataclass(frozen=True)
class Recorded:
    """Steps of texts that plain sampling wrote: what Table 8 is made of.

    Attributes:
        logits: (prompts, steps, V) of the model itself.
        tokens: (prompts, steps) what was sampled.
        ruled_out: the ids that were no candidates when it was: those that end a text.
    """

    logits: Tensor
    tokens: Tensor
    ruled_out: tuple[int, ...] = ()


@torch.no_grad()
def record_logits(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    *,
    max_new_tokens: int = 32,
    seed: int = 0,
    batch_size: int = 16,
) -> Recorded:
    """(prompts, steps, V) float32 logits at every step of texts that plain sampling writes after the prompts.

    They take 4 · prompts · steps · V bytes. No text ends early. Table 8 is made of such steps.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: naming the prompt that is empty or too long, or a number that is out of range.
    """
    texts = continuations(
        model, tokenizer, prompts, make_decoder("sampling"),
        max_new_tokens=max_new_tokens, seed=seed, batch_size=batch_size, exact_length=True,
    )  # fmt: skip
    starts = encoded(tokenizer, prompts, max_new_tokens, context_of(model))
    rows = [start + text.ids for start, text in zip(starts, texts, strict=True)]
    found = []
    for first in range(0, len(rows), batch_size):
        table, mask = padded(rows[first : first + batch_size], 0, model.device)
        found.append(continuation_logits(model, table, mask, max_new_tokens))
    tokens = torch.tensor([text.ids for text in texts], device=model.device)
    return Recorded(torch.cat(found), tokens, tuple(end_ids(model, tokenizer)))


def calibrate_epsilon(
    model: "PreTrainedModel | Tensor",
    prompts: Sequence[str] = (),
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    target_k: float | None = None,
    target_mass: float | None = None,
    target_entropy: float | None = None,
    rule: str = "prefix",
    vocab_size: int | None = None,
    count_masked: bool = True,
    temperature: float = 1.0,
    max_new_tokens: int = 32,
    seed: int = 0,
) -> Calibration:
    """The ε whose candidate sets have a wanted mean size, mass or entropy: by bisection on recorded logits.

    All three fall with ε (of the prefix rule because its sets are nested). The means are over the steps of texts that
    plain sampling writes, as in Table 8, of all that the model says, the end of the text included, which is what a
    processor is given in `generate`; ε is looked for between 1e-5 and 0.5.

    Args:
        model: a causal language model of transformers, or (..., V) logits that were recorded.
        prompts: texts; not needed with logits.
        tokenizer: of the model.
        target_k: wanted mean number of kept tokens.
        target_mass: wanted mean kept probability.
        target_entropy: wanted mean entropy of the renormalised kept set, in nats.
        rule: "prefix", "pointwise" or "last".
        vocab_size: n, where the last logits only fill the vocabulary up.
        count_masked: whether tokens at −inf count in n.
        temperature: what the logits are divided by before the rule.
        max_new_tokens: steps recorded a prompt.
        seed: of the texts.

    Raises:
        TypeError: if a model comes without a tokenizer, or a kind is wrong.
        ValueError: unless exactly one target is given and can be reached (the error says between what), or as
            `record_logits`.
    """
    targets = {"target_k": target_k, "target_mass": target_mass, "target_entropy": target_entropy}
    given = {name: value for name, value in targets.items() if value is not None}
    if len(given) != 1:
        got = ", ".join(given) or "none"
        raise ValueError(message("target_k, target_mass or target_entropy", "given, exactly one of them", got))
    ((name, wanted),) = given.items()
    require_range(name, wanted, low=0)
    how = Rule(rule, vocab_size=vocab_size, count_masked=count_masked)
    require_range("temperature", temperature, low=0, low_open=True, high=1e6)
    if isinstance(model, Tensor):
        logits = model
    elif tokenizer is None:
        raise TypeError(message("tokenizer", "given with a model", "None"))
    else:
        logits = record_logits(model, tokenizer, prompts, max_new_tokens=max_new_tokens, seed=seed).logits
    sets = _Sets(logits, how, temperature)
    at = {"target_k": 0, "target_mass": 1, "target_entropy": 2}[name]
    epsilon = _bisected(lambda e: sets.means(e)[at], name, wanted, LEAST, MOST, log=True, falls=True)
    return Calibration(epsilon, *sets.means(epsilon), sets.steps)


class _Sets:
    """Candidate sets of recorded steps as a function of ε: all that any ε ≥ 1e-5 can keep is ranked once."""

    def __init__(self, logits: Tensor, how: Rule, temperature: float) -> None:
        rows = real_part(as_logits(logits, probs=False), how.vocab_size)
        if not len(rows):
            raise ValueError(message("logits", "of one step or more", tuple(logits.shape)))
        rows = tempered(rows, temperature, torch.finfo(rows.dtype).max)
        order = ranked(rows, LEAST, 1)
        n = rows.shape[-1] if how.count_masked else torch.isfinite(rows).sum(-1, keepdim=True)
        self.delta = decisive_deltas(order, n)
        if order.valid is not None:
            self.delta = self.delta.masked_fill(~order.valid, -1.0)
        self.probs, self.how, self.steps = order.probs, how, len(rows)
        if how.rule == "prefix":
            self.delta = self.delta.cummin(-1).values
        elif how.rule == "last":
            self.delta = self.delta.flip(-1).cummax(-1).values.flip(-1)

    def means(self, epsilon: float) -> tuple[float, float, float]:
        """Mean size, mass and entropy."""
        keep = self.delta > epsilon
        keep[:, 0] = True
        p = self.probs * keep
        mass = p.sum(-1, keepdim=True)
        entropy = torch.special.entr(p / mass).sum(-1)
        return float(keep.sum(-1).double().mean()), float(mass.mean()), float(entropy.mean())


def _bisected(
    value: Callable[[float], float],
    name: str,
    wanted: float,
    low: float,
    high: float,
    *,
    log: bool,
    falls: bool,
    steps: int = STEPS,
) -> float:
    """Where a monotone step function comes nearest to `wanted`.

    Raises:
        ValueError: if `wanted` is outside what it takes on [low, high].
    """
    ends = sorted((value(low), value(high)))
    require_range(name, wanted, low=ends[0], high=ends[1], because="what can be reached here")
    place = (lambda a, b: math.sqrt(a * b)) if log else (lambda a, b: (a + b) / 2)
    for _ in range(steps):
        middle = place(low, high)
        if (value(middle) > wanted) == falls:
            low = middle
        else:
            high = middle
    return min((low, high), key=lambda x: abs(value(x) - wanted))


def mean_size(decoder: Decoder, recorded: Recorded) -> float:
    """Mean number of candidates, as in `Continuation`, of a decoder on recorded steps.

    What learns from the tokens is shown those sampled.
    """
    logits, tokens = without(recorded.logits, recorded.ruled_out), recorded.tokens
    if not decoder.samples:
        return float(decoder.parameters.get("k", 1))
    processors = LogitsProcessorList(decoder.processors())
    sizes: list[int] = []
    ids = torch.zeros_like(tokens[:, :1])
    for step in range(logits.shape[1]):
        sizes += (processors(cast("torch.LongTensor", ids), logits[:, step]) > -torch.inf).sum(-1).tolist()
        ids = torch.cat((ids, tokens[:, step : step + 1]), 1)
    return float(np.mean(sizes))


def match_size(decoder: Decoder, recorded: Recorded, size: float) -> Decoder | None:
    """The decoder with its parameter set such that its mean number of candidates is `size`, on recorded logits.

    What makes decoders comparable: each at the same mean candidate-set size (Table 8 gives those of the paper's rule).

    Args:
        decoder: any; of greedy, plain sampling and contrastive search, which have no such parameter, None comes back.
        recorded: from `record_logits`.
        size: the wanted mean.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if the size cannot be reached, saying what can.
    """
    require_kind("recorded", recorded, Recorded)
    if decoder.kind not in TUNED:
        return None
    _, low, high, log = TUNED[decoder.kind]
    high = min(high, recorded.logits.shape[-1]) if decoder.kind == "top_k" else high
    falls = decoder.kind in ("adaptive", "min_p", "eta", "epsilon")
    found = _bisected(
        lambda value: mean_size(decoder.tuned(value), recorded), "size", size, low, high, log=log, falls=falls, steps=14
    )
    return decoder.tuned(found)
