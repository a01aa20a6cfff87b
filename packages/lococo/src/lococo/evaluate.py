"""What a cache costs in quality: perplexity, a needle in a haystack, questions about a text (Section 4)."""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from offprints.checks import message, require_range
from offprints.progress import track
from offprints.seeding import rng
from torch import Tensor
from transformers import Cache, DynamicCache

from lococo.cache import CompressedCache
from lococo.chunked import MakeCache, chunked_nll, run
from lococo.data import Question, load_questions, token_rows
from lococo.host import text_config
from lococo.watching import observe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True)
class Perplexity:
    """NLL of the tokens that were read after the first two chunks.

    Attributes:
        nll: mean, nats per token.
        per_document: (documents,) means.
        per_position: (length,) means over documents, from the first scored position on.
        first: that position.
        bytes: of the cache at the end.
        seconds: for all documents.
    """

    nll: float
    per_document: np.ndarray
    per_position: np.ndarray
    first: int
    bytes: int
    seconds: float

    @property
    def perplexity(self) -> float:
        """exp(nll)."""
        return math.exp(self.nll)


def perplexity(
    model: "PreTrainedModel",
    data: "Sequence[str] | Tensor",
    cache: MakeCache | None = None,
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    context: int = 1024,
    chunk: int = 128,
    batch_size: int = 4,
) -> Perplexity:
    """NLL with a cache on tokens after position 2 · chunk, when compression has happened (Section 4).

    Args:
        model: a causal model of transformers.
        data: texts, or (documents, ≥ context) token ids.
        cache: makes an empty cache for a batch; the full cache by default.
        tokenizer: for texts.
        context: tokens of a document.
        chunk: tokens at a time.
        batch_size: documents at a time.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if a number is out of range or nothing is left to score.
    """
    require_range("chunk", chunk, low=1, integer=True)
    require_range("batch_size", batch_size, low=1, integer=True)
    first = 2 * chunk
    require_range("context", context, low=first + 2, integer=True, because="two chunks go unscored")
    rows = token_rows(data, tokenizer, context, model.device)
    make = cache or (lambda: DynamicCache(config=text_config(model)))
    found, size, begun = [], 0, time.perf_counter()
    for start in range(0, len(rows), batch_size):
        used = make()
        _warn_if_idle(used, context)
        found.append(chunked_nll(model, rows[start : start + batch_size], used, chunk)[:, first - 1 :].double().cpu())
        size = max(size, cache_bytes(used))
    nll = torch.cat(found).numpy()
    return Perplexity(float(nll.mean()), nll.mean(1), nll.mean(0), first, size, time.perf_counter() - begun)


def cache_bytes(cache: Cache) -> int:
    """Bytes of the tensors of a cache, of this package or transformers' own."""
    if isinstance(cache, CompressedCache):
        return cache.memory_bytes()
    held = [getattr(layer, name, None) for layer in cache.layers for name in ("keys", "values")]
    return sum(x.numel() * x.element_size() for x in held if isinstance(x, Tensor))


@dataclass(frozen=True)
class Row:
    """One cache of a comparison: NLL, its paired difference to the first cache, and what it costs.

    Attributes:
        name: of the cache.
        nll: nats per token.
        difference: mean over documents of NLL − NLL of the first cache.
        error: standard error of that mean.
        bytes: at the end of a document.
        seconds: for all documents.
    """

    name: str
    nll: float
    difference: float
    error: float
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Comparison:
    """Caches side by side on the same tokens (Section 4).

    Attributes:
        rows: one for each cache.
        results: the full results by name.
    """

    rows: list[Row]
    results: dict[str, Perplexity]

    def __str__(self) -> str:
        """A Markdown table."""
        lines = ["| cache | NLL | difference ± SE | MB | seconds |", "|---|---|---|---|---|"]
        for row in self.rows:
            gap = f"{row.difference:+.4f} ± {row.error:.4f}"
            lines.append(f"| {row.name} | {row.nll:.4f} | {gap} | {row.bytes / 1e6:.2f} | {row.seconds:.1f} |")
        return "\n".join(lines)


def compare_caches(
    model: "PreTrainedModel",
    data: "Sequence[str] | Tensor",
    caches: Mapping[str, MakeCache],
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    context: int = 1024,
    chunk: int = 128,
    batch_size: int = 4,
) -> Comparison:
    """Perplexity of several caches on the same tokens, paired with the first one (Section 4).

    Args:
        model: a causal model of transformers.
        data: texts, or (documents, ≥ context) token ids.
        caches: name -> makes an empty cache.
        tokenizer: for texts.
        context: tokens of a document.
        chunk: tokens at a time.
        batch_size: documents at a time.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if there is no cache, a number is out of range, or nothing is left to score.
    """
    if not caches:
        raise ValueError(message("caches", "one or more", "none"))
    rows = token_rows(data, tokenizer, context, model.device)
    results = {
        name: perplexity(model, rows, make, context=context, chunk=chunk, batch_size=batch_size)
        for name, make in track(list(caches.items()), desc="caches")
    }
    base = next(iter(results.values())).per_document
    told = []
    for name, found in results.items():
        gap = found.per_document - base
        error = float(gap.std(ddof=1) / math.sqrt(len(gap))) if len(gap) > 1 else float("nan")
        told.append(Row(name, found.nll, float(gap.mean()), error, found.bytes, found.seconds))
    return Comparison(told, results)


def needle_recall(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    haystack: Sequence[str],
    cache: MakeCache | None = None,
    *,
    context: int = 1024,
    chunk: int = 128,
    depths: Sequence[float] = (0.1, 0.5, 0.9),
    trials: int = 4,
    seed: int = 0,
) -> dict[float, float]:
    """How often a number hidden at a depth of a long text is given back, by depth (a retrieval test as in Section 4).

    The text is cut to `context` tokens, "The secret number of CITY is NUMBER." put in, and the model asked at the end;
    right is a greedy answer that begins with the number.

    Raises:
        ValueError: if a depth lies outside [0, 1] or no text is long enough.
    """
    require_range("trials", trials, low=1, integer=True)
    rows, gen, found = token_rows(list(haystack), tokenizer, context, "cpu"), rng(seed), {}
    cities = ("Lisbon", "Oslo", "Cairo", "Lima", "Seoul", "Perth", "Quito", "Riga")
    for depth in depths:
        require_range("depth", depth, low=0, high=1)
        hits = 0
        for _ in range(trials):
            city, number = str(gen.choice(cities)), str(gen.integers(1000, 10000))
            hidden = _ids(tokenizer, f" The secret number of {city} is {number}. ")
            asked = _ids(
                tokenizer, f"\nQuestion: What is the secret number of {city}?\nAnswer: The secret number of {city} is"
            )
            base = rows[int(gen.integers(len(rows)))].tolist()
            room = context - len(hidden) - len(asked)
            at = int(depth * room)
            ids = torch.tensor([base[:at] + hidden + base[at:room] + asked], device=model.device)
            said = _continued(model, tokenizer, ids, cache, chunk, 8)
            hits += said.strip().startswith(number)
        found[float(depth)] = hits / trials
    return found


@dataclass(frozen=True)
class Accuracy:
    """Right answers of a model with one cache.

    Attributes:
        right: one truth value for each question.
        answers: what was said or chosen.
    """

    right: list[bool]
    answers: list[str]

    @property
    def accuracy(self) -> float:
        """The share of right answers."""
        return sum(self.right) / len(self.right)


def multiple_choice(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    questions: Sequence[Question] | str | Path,
    cache: MakeCache | None = None,
    *,
    chunk: int = 128,
    template: str = "{context}\nQuestion: {question}\nAnswer:",
) -> Accuracy:
    """The choice with the highest mean ln p per token after the question (RACE, BoolQ; Section 4).

    The context is read and compressed once for every choice.

    Raises:
        ValueError: if a question has no choices, or the template lacks a field.
    """
    right, said = [], []
    for number, question in enumerate(_questions(questions)):
        if len(question.choices) < 2:
            raise ValueError(message(f"question {number}", "one with two choices or more", len(question.choices)))
        prompt = _ids(tokenizer, _filled(template, question))
        values = []
        for choice in question.choices:
            ids = prompt + _ids(tokenizer, f" {choice}", special=False)
            used = (cache or (lambda: DynamicCache(config=text_config(model))))()
            nll = chunked_nll(model, torch.tensor([ids], device=model.device), used, chunk)
            values.append(float(nll[0, len(prompt) - 1 :].mean()))
        said.append(question.choices[int(np.argmin(values))])
        right.append(said[-1] in question.answers)
    return Accuracy(right, said)


def qa(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    questions: Sequence[Question] | str | Path,
    cache: MakeCache | None = None,
    *,
    chunk: int = 128,
    max_new_tokens: int = 16,
    template: str = "{context}\nQuestion: {question}\nAnswer:",
) -> Accuracy:
    """Greedy answers to open questions (TriviaQA, SQuAD, QuAC; Section 4): right if the first line holds an answer.

    Raises:
        ValueError: if there is no question, or the template lacks a field.
    """
    require_range("max_new_tokens", max_new_tokens, low=1, integer=True)
    right, said = [], []
    for question in _questions(questions):
        ids = torch.tensor([_ids(tokenizer, _filled(template, question))], device=model.device)
        text = _continued(model, tokenizer, ids, cache, chunk, max_new_tokens).strip().split("\n")[0]
        said.append(text)
        right.append(any(answer.casefold().strip() in text.casefold() for answer in question.answers))
    return Accuracy(right, said)


def _questions(given: Sequence[Question] | str | Path) -> Sequence[Question]:
    found = load_questions(given) if isinstance(given, str | Path) else given
    if not found:
        raise ValueError(message("questions", "one or more", "none"))
    return found


def _filled(template: str, question: Question) -> str:
    if "{context}" not in template or "{question}" not in template:
        raise ValueError(message("template", "a text with {context} and {question} in it", repr(template)))
    return template.replace("{question}", question.question).replace("{context}", question.context)


def _ids(tokenizer: Any, text: str, special: bool = True) -> list[int]:
    return list(tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"])


@torch.no_grad()
def _continued(
    model: "PreTrainedModel", tokenizer: Any, ids: Tensor, cache: MakeCache | None, chunk: int, steps: int
) -> str:
    """Greedy continuation, the prompt read in chunks."""
    used = (cache or (lambda: DynamicCache(config=text_config(model))))()
    end = getattr(model.generation_config, "eos_token_id", None)
    ends = {end} if isinstance(end, int) else set(end or ())
    new: list[int] = []
    with observe(model):
        *first, last = ids.split(chunk, 1)
        for part in first:
            run(model, part, used)
        logits = run(model, last, used)
        while len(new) < steps:
            new.append(int(logits[0, -1].argmax()))
            if new[-1] in ends or len(new) == steps:
                break
            logits = run(model, torch.tensor([[new[-1]]], device=ids.device), used)
    return str(tokenizer.decode(new, skip_special_tokens=True))


def _warn_if_idle(cache: Cache, context: int) -> None:
    """A cache that never fills behaves as the full one: say so, once."""
    if isinstance(cache, CompressedCache) and all(layer.policy.limit >= context for layer in cache.compressed_layers):
        least = min(layer.policy.mem_size for layer in cache.compressed_layers)
        text = f"the cache ({least} slots and more) holds all {context} tokens: it behaves as a full cache."
        warnings.warn(text, stacklevel=3)
