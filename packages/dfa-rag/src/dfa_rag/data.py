"""Dialogues as the method reads them: turns with tags, aligned to rounds that alternate between user and system.

A dialogue is x_1, …, x_R with the user at odd and the system at even places (Section 3 of the paper); a turn carries a
set of tags T_{i,r}. `align` brings what logs really hold into that form without losing a turn.
"""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from offprints.checks import Problems, require_choice, require_kind

USER, SYSTEM = "user", "system"
ROLES = (USER, SYSTEM)


@dataclass(frozen=True)
class Turn:
    """One utterance (x_{i,r} of Section 3).

    Attributes:
        role: "user" or "system".
        text: what was said; may be empty.
        tags: normalised tags, sorted, each once (T_{i,r}).

    Raises:
        TypeError: if text is no string, or tags are one string instead of several.
        ValueError: if the role is another.
    """

    role: str
    text: str
    tags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_choice("role", self.role, ROLES)
        require_kind("text", self.text, str)
        object.__setattr__(self, "tags", normalise_tags(self.tags))


@dataclass(frozen=True)
class Dialogue:
    """A dialogue with its id; `meta` is carried along and never read (Section 3).

    Raises:
        TypeError: if the id is no string, or a turn is no `Turn`.
    """

    id: str
    turns: tuple[Turn, ...]
    meta: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_kind("id", self.id, str)
        object.__setattr__(self, "turns", tuple(self.turns))
        for turn in self.turns:
            require_kind(f"a turn of dialogue {self.id!r}", turn, Turn)

    def tagged(self, tags: Sequence[Sequence[str]]) -> "Dialogue":
        """The same dialogue with these tags, one sequence for each turn."""
        pairs = zip(self.turns, tags, strict=True)
        return replace(self, turns=tuple(replace(turn, tags=tuple(new)) for turn, new in pairs))


class Round(NamedTuple):
    """One place of an aligned dialogue: even rounds are the user's, odd ones the system's.

    `turns` are the places of the original turns it holds; none for a round that alignment put in.
    """

    role: str
    text: str
    tags: tuple[str, ...]
    turns: tuple[int, ...]


def normalise_tag(tag: str) -> str:
    """Lower case, NFKC, no leading `#`, inner spaces as `-`, no control characters; may come out empty."""
    require_kind("a tag", tag, str)
    return _normalised(tag)


@lru_cache(maxsize=65536)
def _normalised(tag: str) -> str:
    text = unicodedata.normalize("NFKC", tag).casefold().strip().lstrip("#")
    text = "".join(" " if unicodedata.category(c)[0] in "CZ" else c for c in text)
    return "-".join(text.split())


def normalise_tags(
    tags: Iterable[str], synonyms: Mapping[str, str] | None = None, max_tags: int | None = None
) -> tuple[str, ...]:
    """Tags of one turn as a sorted tuple without repeats (Section 3, step 1).

    Args:
        tags: raw tags; what is empty after `normalise_tag` is left out.
        synonyms: normalised tag -> the tag that stands for it.
        max_tags: keep only the first so many, in the order given.

    Raises:
        TypeError: if `tags` is one string, or holds something else.
    """
    if isinstance(tags, str):
        raise TypeError(f"tags must be a sequence of strings, got the string {tags!r}. Put it in a list.")
    known = synonyms or {}
    clean = [tag for tag in map(normalise_tag, tags) if tag]
    kept = list(dict.fromkeys(known.get(tag, tag) for tag in clean))[:max_tags]
    return tuple(sorted(kept))


def align(dialogue: Dialogue | Sequence[Turn], on_repeat: str = "join") -> tuple[Round, ...]:
    """Rounds that start with the user and alternate (the form that Section 3 assumes).

    A dialogue that starts with the system gets an empty user round in front. Turns of one role in a row are joined
    into one round (texts by a line break, tags united), or kept apart by empty rounds of the other role.

    Args:
        dialogue: a dialogue, or its turns.
        on_repeat: "join" or "keep".

    Raises:
        ValueError: if `on_repeat` is another.
    """
    require_choice("on_repeat", on_repeat, ("join", "keep"))
    turns = dialogue.turns if isinstance(dialogue, Dialogue) else dialogue
    rounds: list[Round] = []
    for place, turn in enumerate(turns):
        if rounds and rounds[-1].role == turn.role and on_repeat == "join":
            last = rounds[-1]
            text = "\n".join(part for part in (last.text, turn.text) if part)
            rounds[-1] = Round(turn.role, text, tuple(sorted({*last.tags, *turn.tags})), (*last.turns, place))
            continue
        if turn.role != ROLES[len(rounds) % 2]:
            rounds.append(Round(ROLES[len(rounds) % 2], "", (), ()))
        rounds.append(Round(turn.role, turn.text, turn.tags, (place,)))
    return tuple(rounds)


def check_dialogues(dialogues: Iterable[Dialogue], what: str = "dialogues") -> list[Dialogue]:
    """The dialogues as a list, if they can be learnt from.

    Raises:
        TypeError: if one is no `Dialogue`.
        ValueError: if there are none, two have one id, or one has no user turn; all such problems at once.
    """
    found = list(dialogues)
    for dialogue in found:
        require_kind(f"each of {what}", dialogue, Dialogue)
    if not found:
        raise ValueError(f"{what} must hold at least one dialogue, got none.")
    seen: set[str] = set()
    with Problems(f"cannot use {what}") as problems:
        for dialogue in found:
            if dialogue.id in seen:
                problems.add(f"two dialogues have the id {dialogue.id!r}; ids must differ")
            seen.add(dialogue.id)
            if not any(turn.role == USER for turn in dialogue.turns):
                problems.add(f"dialogue {dialogue.id!r} has no user turn")
    return found
