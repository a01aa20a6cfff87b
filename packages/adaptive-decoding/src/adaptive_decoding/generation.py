"""Continuations by any decoder, the same random numbers for all of them, and what each step's candidates were."""

import inspect
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from offprints.checks import message, require_kind, require_range
from offprints.progress import track
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from adaptive_decoding.contrastive import contrastive_search
from adaptive_decoding.decoders import Decoder
from adaptive_decoding.processor import AdaptiveLogitsProcessor
from adaptive_decoding.ranking import checked_top, upcast
from adaptive_decoding.trace import DecodingTrace

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Continuation:
    """What one decoder wrote after one prompt (what Section 4 compares).

    For every decoder p is the softmax of the model's own logits, before anything is ruled out. Candidates are the
    tokens that the decoder could have picked at that step: where no text may end early, the end is none of them.

    Attributes:
        ids: the new tokens, the end of the text left out.
        text: the same as text.
        log_probs: ln p of each of them.
        k: candidates of each step.
        mass: Σ p over them.
    """

    ids: list[int]
    text: str
    log_probs: np.ndarray
    k: np.ndarray
    mass: np.ndarray


class Sampler(LogitsProcessor):
    """A decoder with its draw: of each row only the chosen token is left, so that greedy generation takes it.

    A token is found by its place on the cumulative distribution over ids, at a number in [0, 1) that is the same for
    every decoder: common random numbers. What is told of a step is as in `Continuation`.

    Args:
        decoder: what chooses the candidates.
        numbers: (rows, steps) in [0, 1).
        ruled_out: ids that no decoder may pick.
        record: whether an adaptive decoder keeps a trace.
    """

    def __init__(
        self, decoder: Decoder, numbers: np.ndarray, ruled_out: Sequence[int] = (), record: bool = False
    ) -> None:
        self.decoder, self.numbers, self.ruled_out = decoder, numbers, list(ruled_out)
        self.processors = LogitsProcessorList(decoder.processors(record=record))
        self.log_probs: list[Tensor] = []
        self.k: list[Tensor] = []
        self.mass: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(rows, length) ids and (rows, V) scores -> (rows, V), 0 at the chosen tokens and −inf elsewhere."""
        x = upcast(scores)
        checked_top(x)
        logs = torch.log_softmax(x, -1)
        x = without(x, self.ruled_out)
        if self.decoder.samples:
            kept = self.processors(cast("torch.LongTensor", input_ids), x)
            mask = kept > -torch.inf
            chosen = self._drawn(kept)
        else:
            chosen = x.argmax(-1, keepdim=True)
            mask = torch.zeros_like(x, dtype=torch.bool).scatter_(1, chosen, True)
        self.k.append(mask.sum(-1))
        self.mass.append((logs.exp() * mask).sum(-1))
        self.log_probs.append(logs.gather(1, chosen)[:, 0])
        return torch.full_like(scores, -torch.inf).scatter_(1, chosen, 0.0)

    @property
    def trace(self) -> DecodingTrace:
        """Of an adaptive decoder; empty for others, and if none is kept."""
        return next((p.trace for p in self.processors if isinstance(p, AdaptiveLogitsProcessor)), DecodingTrace())

    def _drawn(self, kept: Tensor) -> Tensor:
        """(rows, 1) the first id whose cumulative probability exceeds the number of this step."""
        fine = kept.double() if kept.device.type != "mps" else kept
        cumulative = torch.softmax(fine, -1).cumsum(-1)
        numbers = torch.as_tensor(self.numbers[:, len(self.k)], dtype=cumulative.dtype, device=kept.device)
        wanted = numbers[:, None] * cumulative[:, -1:]
        return torch.searchsorted(cumulative, wanted, right=True).clamp(max=kept.shape[1] - 1)


def without(logits: Tensor, ruled_out: Sequence[int]) -> Tensor:
    """The logits (..., V), −inf at the ids that are ruled out."""
    if not ruled_out:
        return logits
    return logits.index_fill(-1, torch.tensor(ruled_out, device=logits.device), -torch.inf)


@contextmanager
def own_settings(model: "PreTrainedModel") -> Generator[None]:
    """The model without the generation settings that it was published with, but for its special tokens.

    `generate` takes from them whatever it is not given: penalties of repetition, beams, a temperature, a top-p. They
    come back at the end; meanwhile no other thread should generate with the same model.
    """
    holders = [(cast("Any", p), p.generation_config) for p in model.modules() if "generation_config" in vars(p)]
    for part, given in holders:
        kept = {name: getattr(given, name, None) for name in ("bos_token_id", "pad_token_id")}
        part.generation_config = GenerationConfig(**kept)
    try:
        yield
    finally:
        for part, given in holders:
            part.generation_config = given


def random_numbers(seed: int, prompts: Sequence[int], steps: int) -> np.ndarray:
    """(prompts, steps) numbers in [0, 1) that depend on the seed and the number of the prompt alone."""
    return np.stack([np.random.default_rng([seed, prompt]).random(steps) for prompt in prompts])


def encoded(
    tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[str], room: int, context: int | None
) -> list[list[int]]:
    """Ids of each prompt.

    Raises:
        TypeError: if the prompts are one text, or one is no text.
        ValueError: naming the prompt that is empty or leaves no room in the context.
    """
    if isinstance(prompts, str):
        raise TypeError(message("prompts", "a list of texts", "one text", "Put it into a list."))
    found = []
    for index, prompt in enumerate(prompts):
        require_kind(f"prompt {index}", prompt, str)
        ids = tokenizer(prompt)["input_ids"] if prompt else []
        if not ids:
            raise ValueError(message(f"prompt {index}", "a text of one token or more", repr(prompt)))
        if context is not None and len(ids) + room > context:
            hint = f"Shorten it, or lower max_new_tokens (the model's context is {context})."
            raise ValueError(message(f"prompt {index}", f"at most {context - room} tokens", f"{len(ids)} tokens", hint))
        found.append(list(ids))
    if not found:
        raise ValueError(message("prompts", "a list of one text or more", "none"))
    return found


def context_of(model: "PreTrainedModel") -> int | None:
    """The longest sequence that the model was made for, if its configuration tells."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    return getattr(config, "max_position_embeddings", None) or getattr(config, "n_positions", None)


def end_ids(model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase") -> list[int]:
    """The ids that end a text, as the model or else the tokenizer says."""
    found = getattr(model.generation_config, "eos_token_id", None)
    found = tokenizer.eos_token_id if found is None else found
    return [] if found is None else [found] if isinstance(found, int) else list(found)


def padded(ids: Sequence[Sequence[int]], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(rows, longest) ids padded on the left, and the mask."""
    width = max(map(len, ids))
    table = torch.tensor([[pad] * (width - len(row)) + list(row) for row in ids], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids], device=device)
    return table, mask


@torch.no_grad()
def continuations(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    decoder: Decoder,
    *,
    max_new_tokens: int = 64,
    seed: int = 0,
    batch_size: int = 16,
    exact_length: bool = False,
) -> list[Continuation]:
    """What a decoder writes after each prompt, from a seed alone: neither batch nor global random state matters.

    Of the model's own generation settings (`model.generation_config`) only its special tokens count: penalties, beams
    or a temperature that it was published with would make another decoder of each.

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer.
        prompts: texts.
        decoder: how the next token is chosen.
        max_new_tokens: of each continuation.
        seed: of the random numbers, which are the same for every decoder.
        batch_size: prompts at a time.
        exact_length: whether no text may end before `max_new_tokens`.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if a number is out of range or the model has an encoder; naming the prompt that is empty or too
            long.
    """
    require_range("max_new_tokens", max_new_tokens, low=1, integer=True)
    require_range("batch_size", batch_size, low=1, integer=True)
    require_range("seed", seed, low=0, integer=True)
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(message("model", "decoder only", "an encoder with a decoder", "Use its generate()."))
    ids = encoded(tokenizer, prompts, max_new_tokens, context_of(model))
    found = []
    for start in track(range(0, len(ids), batch_size), desc=decoder.name):
        part = ids[start : start + batch_size]
        numbers = random_numbers(seed, range(start, start + len(part)), max_new_tokens)
        found += _batch(model, tokenizer, part, Sampler(decoder, numbers), exact_length)[0]
    return found


@torch.no_grad()
def traced_continuation(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompt: str,
    decoder: Decoder,
    *,
    max_new_tokens: int = 64,
    seed: int = 0,
) -> tuple[Continuation, DecodingTrace, Tensor]:
    """What `continuations` writes after one prompt, with the trace of an adaptive decoder and the (1, length) ids.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: as `continuations`.
    """
    require_range("max_new_tokens", max_new_tokens, low=1, integer=True)
    require_range("seed", seed, low=0, integer=True)
    ids = encoded(tokenizer, [prompt], max_new_tokens, context_of(model))
    sampler = Sampler(decoder, random_numbers(seed, [0], max_new_tokens), record=True)
    (text,), out = _batch(model, tokenizer, ids, sampler, exact_length=False)
    return text, sampler.trace, out


def _batch(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    ids: list[list[int]],
    sampler: Sampler,
    exact_length: bool,
) -> tuple[list[Continuation], Tensor]:
    """The continuations of one batch, and (rows, length) what was generated, prompts included."""
    ends, decoder = end_ids(model, tokenizer), sampler.decoder
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else (ends or [0])[0]
    table, mask = padded(ids, pad, model.device)
    steps = sampler.numbers.shape[1]
    stops, sampler.ruled_out = ([], ends) if exact_length else (ends, [])
    if decoder.kind == "contrastive":
        k, alpha = int(decoder.number("k")), float(decoder.number("alpha"))
        out = contrastive_search(
            model, table, k, alpha, max_new_tokens=steps, attention_mask=mask, eos_token_id=stops, pad_token_id=pad,
            suppress_tokens=sampler.ruled_out,
        )  # fmt: skip
        new = out[:, table.shape[1] :]
        told = _scored(model, out, mask, new.shape[1], k, sampler.ruled_out)
    else:
        config = GenerationConfig(do_sample=False, max_new_tokens=steps, pad_token_id=pad, eos_token_id=stops or None)
        generate = cast("Any", model).generate
        with own_settings(model):
            out = generate(
                table, attention_mask=mask, generation_config=config, logits_processor=LogitsProcessorList([sampler])
            )
        new = out[:, table.shape[1] :]
        told = tuple(torch.stack(values, 1) for values in (sampler.log_probs, sampler.k, sampler.mass))
    logs, k, mass = (values.cpu().double().numpy() for values in told)
    found = []
    for row, tokens in enumerate(new.tolist()):
        length = next((i for i, token in enumerate(tokens) if token in stops), len(tokens))
        text = str(tokenizer.decode(tokens[:length], skip_special_tokens=True))
        upto = slice(0, min(length + 1, len(tokens)))  # the step that ended the text counts as a step
        found.append(Continuation(tokens[:length], text, logs[row, :length], k[row, upto], mass[row, upto]))
    return found, out


def _scored(
    model: "PreTrainedModel", ids: Tensor, mask: Tensor, new: int, k: int, ruled_out: Sequence[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """(rows, new) ln p of the last `new` tokens, and k and the mass of the k best at each step: one pass."""
    logits = continuation_logits(model, ids, torch.cat((mask, mask.new_ones(len(ids), new)), 1), new)
    logs = torch.log_softmax(logits, -1)
    chosen = logs.gather(-1, ids[:, -new:, None])[..., 0]
    k = min(k, logs.shape[-1] - len(set(ruled_out)))
    mass = without(logs, ruled_out).topk(k, dim=-1).values.exp().sum(-1)
    return chosen, torch.full_like(chosen, k), mass


def continuation_logits(model: "PreTrainedModel", ids: Tensor, mask: Tensor, new: int) -> Tensor:
    """(rows, new, V) float32 logits that the last `new` tokens were drawn from."""
    known = inspect.signature(model.forward).parameters
    extra: dict[str, object] = {}
    if "position_ids" in known:
        extra["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
    if "logits_to_keep" in known:
        extra["logits_to_keep"] = new + 1
    out = model(ids, attention_mask=mask, use_cache=False, **extra)
    return out.logits[:, -new - 1 : -1].float()
