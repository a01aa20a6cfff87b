"""The few-shot tagger on a language model (Section 3, step 1), with a cache and a way out when the model rambles."""

import hashlib
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from offprints.checks import require_range

from dfa_rag.data import Turn, normalise_tags
from dfa_rag.llms import LLM
from dfa_rag.prompts import TAGGING, TAGGING_EXAMPLES, tagging_prompt
from dfa_rag.tags import Tagger, _Tagging

LOG = logging.getLogger(__name__)


class LLMTagger(_Tagging):
    """Asks a language model for a few tags of each utterance (Section 3, step 1: concise, core elements only).

    Args:
        llm: any language model.
        inventory: "auto" (grows with every new tag), or the only tags allowed.
        cache: a JSON-lines file of answers, keyed by model, prompt and text; None keeps them in memory.
        max_tags: tags of one utterance at most.
        examples: (role, utterance, tags) for the prompt.
        synonyms: tag -> the tag that stands for it.
        retries: times to ask again when an answer cannot be read.
        fallback: tagger to use then; None gives no tags. Either is logged.

    Raises:
        ValueError: if the inventory is empty or arguments are out of range.
    """

    def __init__(
        self,
        llm: LLM,
        inventory: str | Iterable[str] = "auto",
        cache: str | Path | None = None,
        max_tags: int = 3,
        examples: Sequence[tuple[str, str, Sequence[str]]] = TAGGING_EXAMPLES,
        synonyms: Mapping[str, str] | None = None,
        retries: int = 1,
        fallback: Tagger | None = None,
    ) -> None:
        self.closed = inventory != "auto"
        if isinstance(inventory, str) and self.closed:
            raise ValueError(f"inventory must be 'auto' or a list of tags, got {inventory!r}.")
        self.inventory: Counter[str] = Counter({tag: 0 for tag in (normalise_tags(inventory) if self.closed else ())})
        if self.closed and not self.inventory:
            raise ValueError("inventory must hold at least one tag, got none.")
        self.llm, self.examples, self.fallback = llm, tuple(examples), fallback
        self.max_tags = require_range("max_tags", max_tags, low=1, integer=True)
        self.retries = require_range("retries", retries, low=0, integer=True)
        self.synonyms = dict(synonyms or {})
        self.cache = None if cache is None else Path(cache)
        self._known: dict[str, tuple[str, ...]] = {}
        if self.cache is not None and self.cache.exists():
            self._read_cache(self.cache)

    def _read_cache(self, path: Path) -> None:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
                self._known[record["key"]] = normalise_tags(record["tags"])
            except (json.JSONDecodeError, KeyError, TypeError):
                LOG.warning("%s:%d: no cache record, passed over", path, number)

    def tag_turn(self, text: str, role: str, history: Sequence[Turn] = ()) -> tuple[str, ...]:
        """Tags of one utterance; none for an empty one."""
        if not text.strip():
            return ()
        previous = history[-1].text if history else ""
        recipe = [TAGGING, self.max_tags, sorted(self.inventory) if self.closed else "auto", repr(self.examples)]
        recipe += [sorted(self.synonyms.items())] * bool(self.synonyms)
        key = hashlib.sha256(json.dumps([self.llm.name, *recipe, role, previous, text]).encode()).hexdigest()[:32]
        tags = self._known.get(key)
        if tags is None:
            tags = self._asked(text, role, previous)
            if not tags:  # not kept: the next run asks again
                return self.fallback.tag_turn(text, role, history) if self.fallback is not None else ()
            self._known[key] = tags
            if self.cache is not None:
                self.cache.parent.mkdir(parents=True, exist_ok=True)
                with self.cache.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "text": text, "tags": list(tags)}, ensure_ascii=False) + "\n")
        self.inventory.update(tags)
        return tags

    def _asked(self, text: str, role: str, previous: str) -> tuple[str, ...]:
        """The model's tags; none, and a line in the log, where it gives none that can be read."""
        prompt = tagging_prompt(text, role, previous, self.inventory, self.closed, self.max_tags, self.examples)
        answer = ""
        for _ in range(self.retries + 1):
            answer = self.llm.complete(prompt)
            tags = normalise_tags(parse_tags(answer), self.synonyms, self.max_tags)
            if self.closed:
                tags = tuple(tag for tag in tags if tag in self.inventory)
            if tags:
                return tags
        LOG.warning("no tags in the answer %.80r for %.80r; the fallback decides", answer, text)
        return ()


def parse_tags(answer: str) -> list[str]:
    """Tags in a model's answer: a JSON list of strings, else #tags, else a short comma list (Section 3, step 1).

    Returns:
        Raw tags; none for prose.
    """
    for match in re.finditer(r"\[[^\[\]]*\]", answer):
        try:
            found = json.loads(match[0])
        except json.JSONDecodeError:
            continue
        if found and all(isinstance(tag, str) for tag in found):
            return found
    if found := re.findall(r"(?<!\w)#([\w-]+)", answer):
        return found
    parts = [part.strip(" \t\"'.`") for part in answer.strip().splitlines()[0].split(",")] if answer.strip() else []
    short = [part for part in parts if re.fullmatch(r"[\w-]+(?: [\w-]+)?", part) and len(part) <= 30]
    return short if short and len(short) == len(parts) else []
