"""What Section 4 measures of generated text: MAUVE, diversity and coherence, and what else the field reports."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from offprints.checks import message, require_kind, require_range, require_shape

from adaptive_decoding.generation import context_of, continuation_logits, encoded, padded

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts -> (texts, dimensions) vectors."""


def _grams(ids: Sequence[int], n: int) -> list[tuple[int, ...]]:
    return [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]


def rep_n(ids: Sequence[int], n: int) -> float:
    """rep-n = 100 · (1 − different n-grams / n-grams) in per cent; 0 for a text of fewer than n tokens (Section 4).

    Raises:
        TypeError: if n is no integer.
        ValueError: if n is less than 1.
    """
    require_range("n", n, low=1, integer=True)
    grams = _grams(ids, n)
    return 100.0 * (1 - len(set(grams)) / len(grams)) if grams else 0.0


def diversity(ids: Sequence[int]) -> float:
    """Π_{n=2..4} (1 − rep-n / 100) of the token ids of a continuation, in [0, 1] (Section 4)."""
    return math.prod(1 - rep_n(ids, n) / 100 for n in (2, 3, 4))


def cosines(prompts: Sequence[str], texts: Sequence[str], embed: Embed) -> np.ndarray:
    """(pairs,) cosine of the vectors of each prompt and its continuation; 0 where a vector is 0.

    Raises:
        ValueError: if there are not as many prompts as texts, or `embed` gives another number of vectors.
    """
    if len(prompts) != len(texts):
        raise ValueError(message("texts", f"as many as the {len(prompts)} prompts", len(texts)))
    a, b = (_vectors(part, embed) for part in (prompts, texts))
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.divide((a * b).sum(1), lengths, out=np.zeros(len(a)), where=lengths > 0)


def coherence(prompts: Sequence[str], texts: Sequence[str], embed: Embed) -> float:
    """Mean cosine of prompt and continuation under a sentence encoder, in [−1, 1] (Section 4).

    Raises:
        ValueError: if there are not as many prompts as texts, or none.
    """
    if not len(prompts):
        raise ValueError(message("prompts", "one or more", "none"))
    return float(cosines(prompts, texts, embed).mean())


def _vectors(texts: Sequence[str], embed: Embed) -> np.ndarray:
    vectors = np.asarray(embed(list(texts)), dtype=float)
    require_shape("embed(texts)", vectors, (len(texts), None))
    return vectors


@torch.no_grad()
def log_likelihoods(
    model: "PreTrainedModel", ids: Sequence[Sequence[int]], prompt_len: int | Sequence[int], batch_size: int = 16
) -> list[np.ndarray]:
    """Ln p, in nats, of every token after the prompt given all before it; one array a text.

    Args:
        model: a causal language model of transformers.
        ids: prompt and continuation of each text.
        prompt_len: tokens of the prompt, of all texts or of each; 1 at least.
        batch_size: texts at a time.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: naming the text whose prompt is empty, or as long as itself.
    """
    lengths = [prompt_len] * len(ids) if isinstance(prompt_len, int) else list(prompt_len)
    if len(lengths) != len(ids):
        raise ValueError(message("prompt_len", f"one number or {len(ids)}", f"{len(lengths)} numbers"))
    for index, (row, length) in enumerate(zip(ids, lengths, strict=True)):
        require_range(f"prompt_len of text {index}", length, low=1, high=len(row) - 1, integer=True)
    found = []
    for start in range(0, len(ids), batch_size):
        part, cut = ids[start : start + batch_size], lengths[start : start + batch_size]
        table, mask = padded(part, 0, model.device)
        new = max(len(row) - length for row, length in zip(part, cut, strict=True))
        logs = torch.log_softmax(continuation_logits(model, table, mask, new), -1)
        logs = logs.gather(-1, table[:, -new:, None])[..., 0].double().cpu().numpy()
        found += [row[new - (len(t) - length) :] for row, t, length in zip(logs, part, cut, strict=True)]
    return found


def perplexity(model: "PreTrainedModel", ids: Sequence[Sequence[int]], prompt_len: int | Sequence[int]) -> float:
    """exp(−mean ln p) over all tokens after the prompts; `ids` holds prompt and continuation of each text (Section 4).

    Raises:
        TypeError: if a kind is wrong.
        ValueError: as `log_likelihoods`, or without any text.
    """
    if not len(ids):
        raise ValueError(message("ids", "one text or more", "none"))
    return float(np.exp(-np.concatenate(log_likelihoods(model, ids, prompt_len)).mean()))


def log_likelihood_coherence(
    model: "PreTrainedModel", tokenizer: "PreTrainedTokenizerBase", prompts: Sequence[str], texts: Sequence[str]
) -> np.ndarray:
    """(pairs,) mean ln p of the tokens of a continuation given its prompt, under a scorer; NaN for an empty one.

    Raises:
        ValueError: naming the prompt that is empty or does not fit; if there are not as many prompts as texts.
    """
    if len(prompts) != len(texts):
        raise ValueError(message("texts", f"as many as the {len(prompts)} prompts", len(texts)))
    start = encoded(tokenizer, prompts, 0, context_of(model))
    more = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) if text else [] for text in texts]
    found = np.full(len(texts), np.nan)
    rows = [i for i, new in enumerate(more) if new]
    logs = log_likelihoods(model, [start[i] + more[i] for i in rows], [len(start[i]) for i in rows])
    found[rows] = [row.mean() for row in logs]
    return found


def zipf(texts_ids: Sequence[Sequence[int]], most: int = 5000) -> float:
    """Zipf coefficient: minus the slope of ln frequency on ln rank over the most frequent tokens of all texts.

    Raises:
        ValueError: if there are fewer than two different tokens.
    """
    counts = Counter(token for ids in texts_ids for token in ids)
    frequencies = np.array(sorted(counts.values(), reverse=True)[:most], dtype=float)
    require_range("different tokens", len(frequencies), low=2, integer=True)
    return float(-np.polyfit(np.log(np.arange(1, len(frequencies) + 1)), np.log(frequencies), 1)[0])


def self_bleu(texts: Sequence[str], most: int = 100) -> float:
    """Mean BLEU, 0 to 100, of each text against all the others: the higher, the more alike (sacrebleu).

    Only the first `most` texts are scored; all are references.

    Raises:
        ImportError: naming the extra, without sacrebleu.
        ValueError: with fewer than two texts.
    """
    try:
        from sacrebleu.metrics import BLEU
    except ImportError as error:
        raise ImportError('self_bleu needs sacrebleu: pip install "adaptive-decoding[metrics]"') from error
    require_range("texts", len(texts), low=2, integer=True)
    bleu = BLEU(effective_order=True)
    scores = [bleu.sentence_score(texts[i], [*texts[:i], *texts[i + 1 :]]).score for i in range(min(most, len(texts)))]
    return float(np.mean(scores))


class SentenceEncoder:
    """Mean-pooled last hidden states of a transformers encoder, of length one: texts -> (texts, dimensions) float64.

    What coherence and MAUVE are computed from (Section 4). A text that was seen before is not encoded again.

    Args:
        model: a loaded encoder.
        tokenizer: its tokenizer.
        max_length: tokens of a text that count.
        batch_size: texts at a time.

    Raises:
        TypeError: if a number is of the wrong kind.
        ValueError: if it is out of range.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        max_length: int = 256,
        batch_size: int = 32,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.max_length = require_range("max_length", max_length, low=1, integer=True)
        self.batch_size = require_range("batch_size", batch_size, low=1, integer=True)
        self._seen: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, dimensions) unit vectors; of an empty text zeros."""
        for text in texts:
            require_kind("text", text, str)
        new = sorted({text for text in texts if text.strip()} - set(self._seen), key=len)
        for start in range(0, len(new), self.batch_size):
            part = new[start : start + self.batch_size]
            self._seen.update(zip(part, self._encode(part), strict=True))
        nothing = np.zeros(self.model.config.hidden_size)
        return np.array([self._seen.get(text, nothing) for text in texts]).reshape(len(texts), len(nothing))

    @torch.no_grad()
    def _encode(self, texts: list[str]) -> np.ndarray:
        batch = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt")
        hidden = self.model(**batch.to(self.model.device)).last_hidden_state.float()
        mask = batch["attention_mask"].unsqueeze(-1).float()
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)
        return torch.nn.functional.normalize(mean, dim=-1).double().cpu().numpy()
