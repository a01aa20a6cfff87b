"""What the automaton does not know yet: where dialogues fall off it (Section 3, step 4), which to label next."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from dfa_rag.data import Dialogue, align, check_dialogues
from dfa_rag.dfa import DialogueDFA


class Fall(NamedTuple):
    """A turn that could not be followed whole: where, who spoke, tags that led nowhere, whether the state stayed."""

    dialogue_id: str
    round: int
    state: int
    role: str
    missed: tuple[str, ...]
    fell_back: bool
    text: str


@dataclass(frozen=True)
class CoverageReport:
    """How much of some dialogues an automaton follows (Section 3, step 4).

    Attributes:
        rounds: turns walked.
        followed: turns all of whose tags were followed.
        dialogues: dialogues walked.
        accepted: dialogues followed whole.
        falls: the other turns.
    """

    rounds: int
    followed: int
    dialogues: int
    accepted: int
    falls: tuple[Fall, ...]

    @property
    def share(self) -> float:
        """Share of the turns that were followed whole."""
        return self.followed / self.rounds

    def by_state(self) -> list[tuple[int, int]]:
        """(state, falls there), the most first."""
        counts = Counter(fall.state for fall in self.falls)
        return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))

    def missing(self) -> list[tuple[int, str, int]]:
        """(state, tag, times): tags that lead nowhere from a state, the most frequent first."""
        counts = Counter((fall.state, tag) for fall in self.falls for tag in fall.missed)
        return [(q, tag, n) for (q, tag), n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))]

    def to_label(self, most: int = 10) -> list[str]:
        """Ids of the dialogues to look at first: each next one adds most falls at states and tags not seen yet."""
        gaps: dict[str, set] = {}
        for fall in self.falls:
            gaps.setdefault(fall.dialogue_id, set()).update((fall.state, tag) for tag in fall.missed or ("",))
        weight = Counter(gap for own in gaps.values() for gap in own)
        chosen: list[str] = []
        seen: set = set()
        while gaps and len(chosen) < most:
            name = min(gaps, key=lambda key: (-sum(weight[gap] for gap in gaps[key] - seen), key))
            seen |= gaps.pop(name)
            chosen.append(name)
        return chosen


def coverage(dfa: DialogueDFA, dialogues: Iterable[Dialogue]) -> CoverageReport:
    """Walk tagged dialogues through the automaton and note where they fall off (Section 3, step 4).

    Raises:
        ValueError: if there are no dialogues, two have one id, or one has no user turn.
    """
    falls, rounds, accepted = [], 0, 0
    found = check_dialogues(dialogues)
    for dialogue in found:
        state, whole = dfa.start, True
        for place, part in enumerate(align(dialogue, dfa.on_repeat)):
            result = dfa.step(state, part.tags, part.role)
            rounds += 1
            if result.missed or result.fell_back:
                whole = False
                falls.append(
                    Fall(dialogue.id, place, state, part.role, result.missed, result.fell_back, part.text[:200])
                )
            state = result.state
        accepted += whole
    return CoverageReport(rounds, rounds - len(falls), len(found), accepted, tuple(falls))
