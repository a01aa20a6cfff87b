"""Texts and questions as people have them on disk, and the paper's kinds of tasks (Section 4)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from offprints.checks import message, require_range
from torch import Tensor

from lococo.chunked import require_ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class Question:
    """A question about a text, as in RACE, TriviaQA, SQuAD, QuAC or BoolQ (Section 4).

    Attributes:
        context: what is to be read.
        question: what is asked.
        answers: what counts as right (of a multiple choice: the one choice).
        choices: of a multiple choice; empty for an open question.
    """

    context: str
    question: str
    answers: tuple[str, ...]
    choices: tuple[str, ...] = ()


def load_texts(path: str | Path) -> list[str]:
    """Texts of a folder of .txt files, of one .txt file, or of a .jsonl file with a field `text`.

    Raises:
        FileNotFoundError: if there is no such file, or no .txt file in the folder.
        ValueError: naming file and line, if something is no text or not UTF-8; if there is none.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob("*.txt"))
        if not files:
            raise FileNotFoundError(f"no .txt file in {path}.")
        return [_read(file) for file in files]
    if path.suffix == ".jsonl":
        found = [_field(path, number, value, "text") for number, value in _objects(path)]
    else:
        found = [_read(path)]
    found = [text for text in found if text.strip()]
    if not found:
        raise ValueError(message(str(path), "a file of one text or more", "none"))
    return found


def load_questions(path: str | Path) -> list[Question]:
    """Questions of a .jsonl file with fields `context`, `question`, `answer` and, of a multiple choice, `choices`.

    `answer` is a text, a list of texts, true or false (then the choices are yes and no), or, with choices, a letter
    (A is the first) or a number (0 is the first). `article` counts as context and `options` as choices.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming file, line and field, if something is missing; without any question.
    """
    path, found = Path(path), []
    for number, value in _objects(path):
        context = _field(path, number, value, "context" if "context" in value else "article")
        choices = value.get("choices", value.get("options", []))
        if not isinstance(choices, list) or not all(isinstance(choice, str) for choice in choices):
            raise ValueError(message(f"{path}, line {number}: field 'choices'", "a list of texts", repr(choices)))
        answers, choices = _answers(path, number, value.get("answer"), choices)
        found.append(Question(context, _field(path, number, value, "question"), answers, choices))
    if not found:
        raise ValueError(message(str(path), "a file of one question or more", "none"))
    return found


def token_rows(
    data: "Sequence[str] | Tensor",
    tokenizer: "PreTrainedTokenizerBase | None",
    context: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """(documents, context) token ids: each text is cut into as many whole windows as it has; shorter ones are left out.

    Raises:
        TypeError: if the data is one text, or texts come without a tokenizer.
        ValueError: if no text is long enough.
    """
    require_range("context", context, low=2, integer=True)
    if isinstance(data, Tensor):
        require_ids("data", data)
        if data.shape[1] < context:
            raise ValueError(message("data", f"of {context} tokens (context) or more", data.shape[1]))
        return data[:, :context].to(device)
    if isinstance(data, str):
        raise TypeError(message("data", "a list of texts", "one text", "Put it into a list."))
    if tokenizer is None:
        raise TypeError("tokenizer must be given with texts, got None.")
    rows: list[list[int]] = []
    longest = 0
    for text in data:
        ids = list(tokenizer(text, truncation=False, verbose=False)["input_ids"])
        longest = max(longest, len(ids))
        rows += [ids[start : start + context] for start in range(0, len(ids) - context + 1, context)]
    if not rows:
        raise ValueError(message("data", f"texts of {context} tokens (context) or more", f"at most {longest}"))
    return torch.tensor(rows, device=device)


def associative_recall(
    rows: int, gen: np.random.Generator, *, pairs: int = 3, prefix: int = 48, keys: int = 8, fillers: int = 8
) -> tuple[Tensor, Tensor]:
    """Sequences that ask, after a long prefix, what followed a key: what a cache of too few slots forgets.

    A prefix of random filler holds `pairs` distinct keys, each with its value right behind it, at even places; then
    follow 2 · pairs queries "mark, key, value", each pair twice, in random order.

    Args:
        rows: how many.
        gen: of the draw.
        pairs: keys in a sequence.
        prefix: its length, even.
        keys: in the vocabulary; as many values.
        fillers: in the vocabulary.

    Returns:
        (rows, prefix + 6 · pairs) ids, of a vocabulary of 1 + fillers + 2 · keys, and the (2 · pairs,) places of the
        values to be answered.
    """
    require_range("pairs", pairs, low=1, high=min(keys, prefix // 2), integer=True)
    x = 1 + gen.integers(fillers, size=(rows, prefix))
    named = 1 + fillers + gen.random((rows, keys)).argsort(1)[:, :pairs]
    values = 1 + fillers + keys + gen.integers(keys, size=(rows, pairs))
    places = 2 * gen.random((rows, prefix // 2)).argsort(1)[:, :pairs]
    np.put_along_axis(x, places, named, 1)
    np.put_along_axis(x, places + 1, values, 1)
    order = gen.random((rows, 2 * pairs)).argsort(1) % pairs
    asked = [np.zeros_like(order), np.take_along_axis(named, order, 1), np.take_along_axis(values, order, 1)]
    whole = np.concatenate((x, np.stack(asked, -1).reshape(rows, -1)), 1)
    return torch.from_numpy(whole), torch.from_numpy(prefix + 2 + 3 * np.arange(2 * pairs))


def _answers(path: Path, number: int, answer: object, choices: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    if isinstance(answer, bool):
        return (("yes" if answer else "no"),), tuple(choices) or ("yes", "no")
    if choices:
        place = answer if isinstance(answer, int) else None
        if isinstance(answer, str):
            letter = ord(answer.upper()) - ord("A") if len(answer) == 1 else -1
            place = choices.index(answer) if answer in choices else letter
        if place is None or not 0 <= place < len(choices):
            expected = "one of the choices, its letter or number"
            raise ValueError(message(f"{path}, line {number}: field 'answer'", expected, repr(answer)))
        return (choices[place],), tuple(choices)
    given = answer if isinstance(answer, list) else [answer]
    if not given or not all(isinstance(text, str) and text.strip() for text in given):
        raise ValueError(message(f"{path}, line {number}: field 'answer'", "a text or a list of texts", repr(answer)))
    return tuple(str(text) for text in given), ()


def _read(path: Path) -> str:
    raw = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ValueError(message(f"{path}, line {line}", "UTF-8", f"byte {raw[error.start]:#04x}")) from error


def _objects(path: Path) -> list[tuple[int, dict[str, object]]]:
    found = []
    for number, line in enumerate(_read(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(
                message(f"{path}, line {number}", "a JSON object", f"{line[:40]!r} ({error.msg})")
            ) from error
        if not isinstance(value, dict):
            raise ValueError(message(f"{path}, line {number}", "a JSON object", repr(value)[:40]))
        found.append((number, value))
    return found


def _field(path: Path, number: int, value: dict[str, object], field: str) -> str:
    text = value.get(field)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(message(f"{path}, line {number}: field {field!r}", "a text", repr(text)))
    return text
