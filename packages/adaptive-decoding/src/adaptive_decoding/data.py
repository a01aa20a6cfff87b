"""Prompts and questions from files: plain text, JSONL, WritingPrompts, GSM8K and MultiArith (the data of Section 4)."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path

from offprints.checks import message, require_choice

KINDS = ("auto", "text", "jsonl", "writing-prompts")


@dataclass(frozen=True)
class Prompt:
    """A prompt, and what a person wrote after it where that is known (Section 4)."""

    text: str
    reference: str | None = None


@dataclass(frozen=True)
class Question:
    """A question with the number that answers it (GSM8K and MultiArith of Section 4)."""

    text: str
    answer: str


def _lines(path: Path) -> list[tuple[int, str]]:
    """Numbered lines that are not blank; a byte order mark and the ends of lines are left out.

    Raises:
        ValueError: naming the file and the line that is not UTF-8.
    """
    found = []
    for number, raw in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            line = raw.decode("utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise ValueError(message(f"{path}, line {number}", "UTF-8", str(error))) from error
        if line.strip():
            found.append((number, line))
    return found


def _objects(path: Path) -> list[tuple[int, dict[str, object]]]:
    found = []
    for number, line in _lines(path):
        try:
            value = json.loads(line)
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(message(f"{path}, line {number}", "a JSON object", f"{line[:60]!r}")) from error
        if not isinstance(value, dict):
            raise ValueError(message(f"{path}, line {number}", "a JSON object", f"{line[:60]!r}"))
        found.append((number, value))
    return found


def _text(path: Path, number: int, value: dict[str, object], field: str) -> str:
    text = value.get(field)
    if not isinstance(text, str) or not text.strip():
        raise ValueError(message(f"{path}, line {number}: field {field!r}", "a text", repr(text)))
    return text


def load_prompts(path: str | Path, kind: str = "auto") -> list[Prompt]:
    """Prompts of a file, with references where it has them (the inputs of Section 4).

    text: a prompt a line. jsonl: lines `{"prompt": "…", "reference": "…"}`, the reference optional. writing-prompts:
    the file `NAME.wp_source`, a prompt a line, with the stories in `NAME.wp_target` beside it, where `<newline>` stands
    for the end of a line. By default the ending of the name tells.

    Raises:
        FileNotFoundError: if there is no such file, or no stories beside the prompts.
        ValueError: naming file, line and field, if something is missing; without any prompt; for an unknown kind.
    """
    path = Path(path)
    require_choice("kind", kind, KINDS)
    if kind == "auto":
        kind = {".jsonl": "jsonl", ".wp_source": "writing-prompts"}.get(path.suffix, "text")
    if kind == "jsonl":
        found = []
        for number, value in _objects(path):
            reference = _text(path, number, value, "reference") if value.get("reference") is not None else None
            found.append(Prompt(_text(path, number, value, "prompt"), reference))
    elif kind == "writing-prompts":
        target = path.with_suffix(".wp_target")
        sources, stories = (dict(_lines(file)) for file in (path, target))
        if lonely := sorted(set(sources) ^ set(stories)):
            raise ValueError(message(f"{path.name} and {target.name}", "of equal lines", f"only one line {lonely[0]}"))
        found = [Prompt(text, stories[i].replace("<newline>", "\n").strip()) for i, text in sources.items()]
    else:
        found = [Prompt(line) for _, line in _lines(path)]
    if not found:
        raise ValueError(message(str(path), "a file of one prompt or more", "none"))
    return found


def load_questions(path: str | Path) -> list[Question]:
    """Questions of GSM8K (JSONL lines with `question` and an `answer` that ends in `#### 42`) or MultiArith.

    MultiArith is one JSON list of objects with `sQuestion` and `lSolutions`; an `answer` that is a number counts too.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming file, line and field, if something is missing; without any question.
    """
    path = Path(path)
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        try:
            values = json.loads(text)
        except UnicodeDecodeError as error:
            raise ValueError(message(str(path), "UTF-8", str(error))) from error
        except (json.JSONDecodeError, RecursionError) as error:
            raise ValueError(message(str(path), "a JSON list of objects", str(error))) from error
        numbered = list(enumerate(values, 1))
        if any(not isinstance(value, dict) for value in values):
            raise ValueError(message(str(path), "a list of objects", "something else in it"))
    else:
        numbered = _objects(path)
    found = []
    for number, value in numbered:
        field = "sQuestion" if "sQuestion" in value else "question"
        found.append(Question(_text(path, number, value, field).strip(), _gold(path, number, value)))
    if not found:
        raise ValueError(message(str(path), "a file of one question or more", "none"))
    return found


def _gold(path: Path, number: int, value: dict[str, object]) -> str:
    solutions = value.get("lSolutions")
    answer = solutions[0] if isinstance(solutions, list) and solutions else value.get("answer")
    if isinstance(answer, str):
        answer = answer.rpartition("####")[2].strip()
    if isinstance(answer, bool) or answer is None or value_of(str(answer)) is None:
        raise ValueError(message(f"{path}, line {number}: the answer", "a number, after #### if any", repr(answer)))
    return str(answer)


def value_of(text: str) -> float | None:
    """The value of a finite number, commas and a currency sign aside; None of anything else."""
    try:
        value = float(re.sub(r"[,$\s]", "", text).replace("−", "-"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None
