"""Texts and token ids: files as people have them, the documentation that ships with Python, windows of a stream.

Section 5 of the paper cuts texts into consecutive windows of n tokens.
"""

import json
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from offprints.checks import require_range
from torch import Tensor

_WORD = re.compile(r"\w+|[^\w\s]")


def documentation() -> str:
    """The English reference documentation that ships inside CPython, about 460 kB.

    Raises:
        FileNotFoundError: if this Python was built without it.
    """
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        raise FileNotFoundError("pydoc_data.topics is not in this Python. Give a text of your own.") from error
    return "\n".join(topics.values())


def read_text(path: str | Path, field: str = "text") -> str:
    """The text of a UTF-8 file: all of a .txt (or any other suffix), the given field of each line of a .jsonl.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming file, line and field, if it is not UTF-8, not JSON, or has no text.
    """
    path = Path(path)
    try:
        content = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ValueError(
            f"{path.name}, line {line} must be UTF-8, got the byte {error.object[error.start]:#x}."
        ) from error
    if path.suffix == ".jsonl":
        content = "\n".join(_fields(path.name, content.split("\n"), field))
    if not content.strip():
        raise ValueError(f"{path.name} must hold text, got none.")
    return content


def _fields(name: str, lines: Sequence[str], field: str) -> Iterable[str]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name}, line {number} must be a JSON object, got an error: {error.msg}.") from error
        text = record.get(field) if isinstance(record, dict) else None
        if not isinstance(text, str):
            raise ValueError(f"{name}, line {number}: field {field!r} must be a text, got {text!r}.")
        yield text


class WordHashTokenizer:
    """Words and punctuation marks to ids by a hash: for models with random weights, which no tokenizer belongs to.

    Args:
        vocab_size: number of ids, ≥ 1.
    """

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = require_range("vocab_size", vocab_size, low=1, integer=True)

    def __call__(self, text: str) -> Tensor:
        """(n,) ids, the same in every process."""
        words = _WORD.findall(text)
        return torch.tensor([zlib.crc32(word.encode()) % self.vocab_size for word in words], dtype=torch.long)


def windows(ids: Tensor | Sequence[int], n: int, count: int) -> Tensor:
    """(count, n) consecutive windows that do not overlap; the stream is repeated where it ends (Section 5).

    Raises:
        ValueError: if there are no ids, or n or count is less than 1.
    """
    require_range("n", n, low=1, integer=True)
    require_range("count", count, low=1, integer=True)
    stream = torch.as_tensor(ids, dtype=torch.long).flatten()
    if stream.numel() == 0:
        raise ValueError("ids must hold one token or more, got none.")
    at = torch.arange(n * count, device=stream.device) % stream.numel()
    return stream[at].reshape(count, n)
