"""Accuracy on questions whose answer is a number, with any decoder (GSM8K and MultiArith of Section 4)."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from offprints.checks import message, require_kind

from adaptive_decoding.data import Question, load_questions, value_of
from adaptive_decoding.decoders import Decoder, make_decoder
from adaptive_decoding.generation import continuations

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

NUMBER = r"(?:(?<![\w)\]])[-−])?\$?(?:(?<=\$)[-−])?\d[\d,]*(?:\.\d+)?"  # the 5 of 3-5 is positive
STATED = re.compile(rf"(?:####|[Aa]nswer\s*(?:is|:|=))[\s:=*]*({NUMBER})")
NEXT = re.compile(r"^\s*(?:Question|Q)\s*\d*\s*:", re.MULTILINE)
TEMPLATE = "Question: {question}\nAnswer:"


@dataclass(frozen=True)
class Answered:
    """One question, what the model wrote, the number read from it, and whether it is right (Section 4)."""

    question: str
    gold: str
    text: str
    answer: str | None
    right: bool


@dataclass(frozen=True)
class ReasoningReport:
    """Accuracy of one decoder (Section 4).

    Attributes:
        decoder: its name.
        accuracy: share of right answers.
        interval: 95 % over questions, by bootstrap.
        items: every question.
    """

    decoder: str
    accuracy: float
    interval: tuple[float, float]
    items: tuple[Answered, ...]


def read_answer(text: str, answer_re: str | re.Pattern[str] | None = None) -> str | None:
    """The number that a text answers with: after `####` or "answer is", else the last number; None without any.

    Only what comes before a line with the next question ("Question:", "Q:") counts, as models go on with one of their
    own. `answer_re` is searched for there instead, where given: its last match counts, the first group of it if it has
    one.

    Raises:
        ValueError: if `answer_re` is no regular expression.
    """
    text = NEXT.split(text, maxsplit=1)[0]
    if answer_re is not None:
        try:
            pattern = re.compile(answer_re)
        except re.error as error:
            raise ValueError(message("answer_re", "a regular expression", f"{answer_re!r} ({error})")) from error
        matches = list(pattern.finditer(text))
        return matches[-1].group(1 if pattern.groups else 0) if matches else None
    stated = STATED.findall(text)
    numbers = stated or re.findall(NUMBER, text)
    return numbers[-1] if numbers else None


def same_number(answer: str | None, gold: str) -> bool:
    """Whether two numbers are equal, commas and currency signs aside."""
    said, right = value_of(answer or ""), value_of(gold)
    return said is not None and right is not None and math.isclose(said, right, rel_tol=1e-9, abs_tol=1e-9)


def evaluate_reasoning(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    jsonl: str | Path | Sequence[Question],
    decoder: str | Decoder = "greedy",
    answer_re: str | re.Pattern[str] | None = None,
    *,
    template: str = TEMPLATE,
    chat: bool = False,
    max_new_tokens: int = 256,
    seed: int = 0,
    batch_size: int = 16,
    resamples: int = 1000,
) -> ReasoningReport:
    """Share of questions that a model answers right, with a bootstrap interval over questions (Section 4).

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer.
        jsonl: a file of GSM8K or MultiArith form, or questions.
        decoder: as `make_decoder` reads it.
        answer_re: how the answer is found in the text; see `read_answer`.
        template: the prompt, with `{question}` in it.
        chat: whether the tokenizer's chat template is put around it.
        max_new_tokens: of each answer.
        seed: of the random numbers.
        batch_size: questions at a time.
        resamples: of the bootstrap.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if the template lacks `{question}`, there is no question, or as `make_decoder` and `continuations`.
    """
    require_kind("template", template, str)
    if "{question}" not in template:
        raise ValueError(message("template", "a text with {question} in it", repr(template)))
    chosen = make_decoder(decoder)
    questions = load_questions(jsonl) if isinstance(jsonl, str | Path) else list(jsonl)
    if not questions:
        raise ValueError(message("jsonl", "a file or list of one question or more", "none"))
    prompts = [template.replace("{question}", question.text) for question in questions]
    if chat:
        prompts = [
            str(
                tokenizer.apply_chat_template(
                    [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
                )
            )
            for prompt in prompts
        ]
    texts = continuations(
        model, tokenizer, prompts, chosen, max_new_tokens=max_new_tokens, seed=seed, batch_size=batch_size
    )
    items = []
    for question, continuation in zip(questions, texts, strict=True):
        answer = read_answer(continuation.text, answer_re)
        right = same_number(answer, question.answer)
        items.append(Answered(question.text, question.answer, continuation.text, answer, right))
    right = np.array([item.right for item in items], dtype=float)
    means = np.random.default_rng(seed).choice(right, (resamples, len(right))).mean(1)
    low, high = np.quantile(means, (0.025, 0.975)) if resamples else (math.nan, math.nan)
    return ReasoningReport(chosen.name, float(right.mean()), (float(low), float(high)), tuple(items))
