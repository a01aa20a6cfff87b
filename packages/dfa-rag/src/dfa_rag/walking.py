"""Following turns through an automaton (Section 3, step 4), and the words that it accepts."""

from collections.abc import Sequence
from typing import NamedTuple

from dfa_rag.automaton import Automaton
from dfa_rag.tree import TURN_END


class StepResult(NamedTuple):
    """Where a turn led (Section 3, step 4).

    The new state, tags that were followed and that were not, whether none could be followed and the state stayed.
    """

    state: int
    matched: tuple[str, ...]
    missed: tuple[str, ...]
    fell_back: bool


def step(lists: Automaton, state: int, given: tuple[str, ...], role: str | None) -> StepResult:
    """The greedy walk of `DialogueDFA.step` (Section 3, step 4) with normalised tags."""
    q = state
    if role is not None and role != lists.roles[q]:
        return StepResult(q, (), given, True)
    left = {lists.codes[tag] for tag in given if tag in lists.codes}
    matched: list[int] = []
    while options := [code for code in left if code in lists.children[q]]:
        code = min(options, key=lambda code: (-lists.support[lists.children[q][code]], code))
        q = lists.children[q][code]
        left.remove(code)
        matched.append(code)
    ended = TURN_END in lists.children[q]
    followed = tuple(lists.tags[code - 1] for code in matched)
    missed = tuple(tag for tag in given if tag not in followed)
    return StepResult(lists.children[q][TURN_END] if ended else q, followed, missed, not (matched or ended))


def accepts(lists: Automaton, words: Sequence[tuple[str, ...]]) -> bool:
    """Whether some order of the tags inside each turn leads from the start to an accepting state (Section 3)."""
    if any(tag not in lists.codes for word in words for tag in word):
        return False
    here = {0}
    for place, word in enumerate(words):
        done = _ends_of_turn(lists, here, frozenset(lists.codes[tag] for tag in word))
        if place == len(words) - 1:
            return any(len(lists.ends[q]) for q in done)
        here = {lists.children[q][TURN_END] for q in done if TURN_END in lists.children[q]}
    return False


def _ends_of_turn(lists: Automaton, here: set[int], codes: frozenset[int]) -> set[int]:
    """States where all tags of a turn are consumed, in any order."""
    pending = [(q, codes) for q in here]
    seen, done = set(pending), set()
    while pending:
        q, left = pending.pop()
        if not left:
            done.add(q)
        for code in left & set(lists.children[q]):
            reached = (lists.children[q][code], left - {code})
            if reached not in seen:
                seen.add(reached)
                pending.append(reached)
    return done
