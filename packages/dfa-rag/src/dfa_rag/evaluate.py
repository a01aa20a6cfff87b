"""Measures of Section 4: retrieval precision, workflow adherence, pairwise win rate, MultiWOZ's Inform and Success."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from offprints.checks import require_kind

from dfa_rag.data import SYSTEM, USER, Dialogue, Turn
from dfa_rag.dfa import DialogueDFA
from dfa_rag.llms import LLM
from dfa_rag.prompts import judging_prompt
from dfa_rag.retrieval import Example, Route


class _Routes(Protocol):
    def route(self, conversation: Sequence[Turn], *, exclude: str | None = None) -> Route: ...


class Precision(NamedTuple):
    """Retrieved examples whose answer is the right act, among `examples` asked for at each of `places` (Section 4)."""

    right: int
    asked: int
    places: int
    copied: int

    @property
    def precision(self) -> float:
        """Share of the examples asked for; one that was not found counts as wrong."""
        return self.right / self.asked if self.asked else 0.0

    @property
    def accuracy(self) -> float:
        """Share of places where the majority of the examples does the right act (what `CopyLLM` would do)."""
        return self.copied / self.places if self.places else 0.0


def retrieval_precision(
    router: _Routes,
    dialogues: Iterable[Dialogue],
    examples: int,
    act: Callable[[Example], object],
    truth: Callable[[Dialogue, int], object],
) -> Precision:
    """Precision@k of a retriever on tagged test dialogues (the retrieval side of Section 4).

    Before each system turn the router sees the turns so far, and nothing of the dialogue itself if that is among its
    training dialogues.

    Args:
        router: `DFARouter` or a baseline, asked for that many examples.
        dialogues: test dialogues.
        examples: k.
        act: what the answer of an example does.
        truth: what the system turn at a place of a dialogue does.
    """
    right = asked = places = copied = 0
    for dialogue in dialogues:
        for place, turn in enumerate(dialogue.turns):
            if turn.role != SYSTEM or not place or dialogue.turns[place - 1].role != USER:
                continue
            found = router.route(dialogue.turns[:place], exclude=dialogue.id).examples
            acts = [act(example) for example in found]
            wanted = truth(dialogue, place)
            right += sum(other == wanted for other in acts)
            asked += examples
            places += 1
            copied += bool(acts) and max(acts, key=acts.count) == wanted
    return Precision(right, asked, places, copied)


def workflow_adherence(dfa: DialogueDFA, dialogues: Iterable[Dialogue]) -> float:
    """Share of system turns with tags that occur in the state reached, walking by the tags (Section 3, step 4).

    Turns where the automaton is on the user's side, or that have no tags, are not counted; NaN if none are.
    """
    kept = counted = 0
    for dialogue in dialogues:
        state = dfa.start
        for turn in dialogue.turns:
            if turn.role == SYSTEM and turn.tags and dfa.role(state) == SYSTEM:
                counted += 1
                kept += bool(set(turn.tags) & dfa.allowed_acts(state))
            state = dfa.step(state, turn.tags, turn.role).state
    return kept / counted if counted else float("nan")


class JudgeCase(NamedTuple):
    """A conversation, the reply that was really given, and two replies to compare (Section 4)."""

    conversation: tuple[Turn, ...]
    reference: str
    ours: str
    other: str


class WinRate(NamedTuple):
    """(wins + ½ ties) / n with its 95 % Wilson interval (Section 4)."""

    rate: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int


def win_rate(judge: LLM, cases: Iterable[JudgeCase]) -> WinRate:
    """Ask a judge about every case in both orders; answers that disagree, or say neither, are ties (Section 4).

    Raises:
        ValueError: if there are no cases.
    """
    wins = ties = losses = 0
    for case in cases:
        first = _verdict(judge, case, case.ours, case.other)
        second = -_verdict(judge, case, case.other, case.ours)
        verdict = first if first == second else 0
        wins, ties, losses = wins + (verdict > 0), ties + (verdict == 0), losses + (verdict < 0)
    n = wins + ties + losses
    if not n:
        raise ValueError("cases must hold at least one, got none.")
    rate, z = (wins + ties / 2) / n, 1.959963984540054
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * (rate * (1 - rate) / n + z * z / (4 * n * n)) ** 0.5
    return WinRate(rate, max(0.0, centre - half), min(1.0, centre + half), wins, ties, losses)


def _verdict(judge: LLM, case: JudgeCase, first: str, second: str) -> int:
    """1 for the first reply, −1 for the second, 0 for neither."""
    answer = judge.complete(judging_prompt(case.conversation, case.reference, first, second))
    found = re.fullmatch(r"\W*(a|b|tie)\W*", answer, re.IGNORECASE)
    found = found or re.search(r"\b(A(?!(?: \w+)? tie\b)|B|(?i:tie))\b", answer)  # not the article
    return {"a": 1, "b": -1, "tie": 0}[found[1].lower()] if found else 0


class InformSuccess(NamedTuple):
    """Shares of dialogues, and the two answers for each (MultiWOZ measures of Section 4)."""

    inform: float
    success: float
    each: dict[str, tuple[bool, bool]]


def inform_success(
    goals: Mapping[str, Mapping[str, Mapping]],
    responses: Mapping[str, Sequence[str]],
    database: Mapping[str, Sequence[Mapping[str, str]]],
) -> InformSuccess:
    """MultiWOZ's Inform and Success (Section 4).

    Inform: in each domain of the goal the last entity that the system names satisfies all constraints `info`; where no
    entity of the database satisfies them, none may be named. Success: Inform, and each requested slot `reqt` of that
    entity is told.

    Args:
        goals: dialogue id -> domain -> {"info": {slot: value}, "reqt": [slot, …]}.
        responses: dialogue id -> what the system said, in order.
        database: domain -> entities, each with a "name".

    Raises:
        ValueError: if there are no goals, or a dialogue has no responses, or a domain no table.
    """
    if not goals:
        raise ValueError("goals must hold at least one dialogue, got none.")
    each = {}
    for name, goal in goals.items():
        if name not in responses:
            raise ValueError(f"responses must hold every dialogue of goals, got none for {name!r}.")
        told = [_plain(text) for text in responses[name]]
        outcomes = []
        for domain, wanted in goal.items():
            if domain not in database:
                raise ValueError(f"database must have a table {domain!r}, got {', '.join(database)}.")
            outcomes.append(_domain(wanted, told, database[domain]))
        inform = all(informed for informed, _ in outcomes)
        each[name] = (inform, inform and all(answered for _, answered in outcomes))
    n = len(each)
    return InformSuccess(sum(i for i, _ in each.values()) / n, sum(s for _, s in each.values()) / n, each)


def _plain(text: object) -> str:
    """Lower case, single blanks, no signs but those inside numbers; padded so that whole words can be looked for."""
    require_kind("a response", text, str)
    words = re.findall(r"\w+(?:[:.]\w+)*", str(text).lower())
    return f" {' '.join(words)} "


def _holds(text: str, value: str) -> bool:
    """Whether a plain text holds a value; one without words is told by none."""
    words = _plain(value)
    return bool(words.strip()) and words in text


def _domain(wanted: Mapping, told: Sequence[str], table: Sequence[Mapping[str, str]]) -> tuple[bool, bool]:
    info, requested = wanted.get("info", {}), wanted.get("reqt", [])
    fitting = [e for e in table if all(_plain(e.get(s, "")) == _plain(v) for s, v in info.items())]
    offered = None
    for text in told:
        named = [entity for entity in table if _holds(text, entity["name"])]
        if named:
            offered = max(named, key=lambda entity: (text.rfind(found := _plain(entity["name"])), len(found)))
    if not fitting:
        return offered is None, offered is None
    if offered is None or offered not in fitting:
        return False, False
    answered = all(any(_holds(text, offered.get(slot, "")) for text in told) for slot in requested)
    return True, answered
