"""Editing by hand, keeping edits over a refit, comparing two automata: what stands around Section 3 of the paper."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from offprints.checks import require_kind

from dfa_rag.automaton import Automaton
from dfa_rag.tree import TURN_END


class Shift(NamedTuple):
    """An edge, told by the letters that lead to it (None: end of a turn), and its share here and there."""

    path: tuple[str | None, ...]
    here: float
    there: float


@dataclass(frozen=True)
class Difference:
    """Edges that only one of two automata (Section 3) has, and those whose share of the passes moved by a tenth."""

    only_here: tuple[Shift, ...]
    only_there: tuple[Shift, ...]
    shifted: tuple[Shift, ...]

    def __bool__(self) -> bool:
        return bool(self.only_here or self.only_there or self.shifted)


def rename(lists: Automaton, state: int, name: str) -> Automaton:
    """The same automaton with another name for one state."""
    require_kind("name", name, str)
    if not name.strip() or name in lists.names[:state] + lists.names[state + 1 :]:
        raise ValueError(f"name must be new and not empty, got {name!r}.")
    return replace(lists, names=[*lists.names[:state], name, *lists.names[state + 1 :]])


def forbid(lists: Automaton, states: Sequence[int]) -> Automaton:
    """The same automaton without the edges into some states."""
    if 0 in states:
        raise ValueError("the start cannot be forbidden, got state 0.")
    return replace(lists, forbidden=lists.forbidden | set(states))


def join(lists: Automaton, state: int, other: int) -> Automaton:
    """Two entry states of one role as one; successors on one letter are joined too, so that it stays deterministic."""
    for q in (state, other):
        if not lists.entry[q]:
            raise ValueError(f"only entry states can be merged, got {lists.names[q]!r} inside a turn.")
    if lists.roles[state] != lists.roles[other]:
        raise ValueError(
            f"states to merge must be of one role, got {lists.names[state]!r} ({lists.roles[state]}) and "
            f"{lists.names[other]!r} ({lists.roles[other]})."
        )
    block = list(range(len(lists)))
    edges: dict[int, dict[int, int]] = {q: dict(children) for q, children in enumerate(lists.whole)}

    def find(q: int) -> int:
        while block[q] != q:
            block[q] = block[block[q]]
            q = block[q]
        return q

    pending = [(state, other)]
    while pending:
        kept, gone = (find(q) for q in pending.pop())
        if kept == gone:
            continue
        if gone == find(0):  # the start stays the start
            kept, gone = gone, kept
        block[gone] = kept
        for letter, child in edges.pop(gone).items():
            if letter in edges[kept]:
                pending.append((edges[kept][letter], child))
            else:
                edges[kept][letter] = child
    name = lists.names[state]
    found = lists.quotient([find(q) for q in range(len(lists))])
    if find(state) != state and name not in found.names:
        found = rename(found, 0, name)
    return found


def first_visit(lists: Automaton, state: int) -> tuple[str, int]:
    """The first pass through a state: id of the dialogue, round. A state that nobody passes has none: ("", 0)."""
    if not len(lists.visits[state]):
        return "", 0
    dialogue, place = lists.visits[state][0].tolist()
    return lists.dialogues[dialogue], place


def entry_at(lists: Automaton, dialogue: str, place: int) -> int:
    """The entry state where a round of a training dialogue begins; the start if the dialogue is unknown."""
    if dialogue not in lists.dialogues:
        return 0
    wanted = [lists.dialogues.index(dialogue), place]
    found = (q for q, visits in enumerate(lists.visits) if lists.entry[q] and (visits == wanted).all(axis=1).any())
    return next(found, 0)


def carry_over(old: Automaton, new: Automaton) -> Automaton:
    """Give states of a refit the names, examples and forbidden marks of the old states they share most visits with."""
    deep, depth = _depths(old), _depths(new)
    where = {
        (old.dialogues[i], place, deep[q]): q for q, visits in enumerate(old.visits) for i, place in visits.tolist()
    }
    names, taken, forbidden, examples = list(new.names), set(), set(), list(new.examples)
    shared = []
    for q, visits in enumerate(new.visits):
        known = [where.get((new.dialogues[i], place, depth[q]), -1) for i, place in visits.tolist()]
        counts = np.bincount([k for k in known if k >= 0], minlength=1)
        shared.append((-int(counts.max()), q, int(counts.argmax())))
    for negative, q, best in sorted(shared):
        if negative < 0 and best not in taken:
            taken.add(best)
            names[q] = old.names[best]
            forbidden |= {q} if best in old.forbidden else set()
            examples[q] = tuple(dict.fromkeys((*old.examples[best], *new.examples[q])))[:3]
        else:
            names[q] = ""
    used = {*names, *old.names}
    for q, name in enumerate(names):
        if not name:
            fresh = next(text for k in range(q, q + len(used) + 1) if (text := f"{new.roles[q][0]}{k}") not in used)
            used.add(fresh)
            names[q] = fresh
    return replace(new, names=names, forbidden=forbidden, examples=examples)


def _depths(lists: Automaton) -> list[int]:
    """Tags since the turn began: a dialogue passes one state of each depth in a round."""
    depths = [0] * len(lists)
    for q, edges in enumerate(lists.whole):  # breadth first: a state inside a turn comes after the one before it
        for letter, child in edges.items():
            if letter != TURN_END:
                depths[child] = depths[q] + 1
    return depths


def difference(here: Automaton, there: Automaton, moved: float = 0.1) -> Difference:
    """Walk both side by side from the start, breadth first, on letters that both have."""
    only_here, only_there, shifted = [], [], []
    queue: deque[tuple[int, int, tuple[str | None, ...]]] = deque([(0, 0, ())])
    seen = {(0, 0)}
    while queue:
        p, q, path = queue.popleft()
        for letter in sorted(
            {_letter(here, t) for t in here.children[p]} | {_letter(there, t) for t in there.children[q]}
        ):
            shares = [_share(lists, s, letter) for lists, s in ((here, p), (there, q))]
            word = (*path, letter or None)
            shift = Shift(word, shares[0] or 0.0, shares[1] or 0.0)
            if shares[1] is None:
                only_here.append(shift)
            elif shares[0] is None:
                only_there.append(shift)
            else:
                if abs(shift.here - shift.there) >= moved:
                    shifted.append(shift)
                pair = (here.children[p][_code(here, letter)], there.children[q][_code(there, letter)])
                if pair not in seen:
                    seen.add(pair)
                    queue.append((*pair, word))
    return Difference(tuple(only_here), tuple(only_there), tuple(shifted))


def _letter(lists: Automaton, code: int) -> str:
    return "" if code == TURN_END else lists.tags[code - 1]


def _code(lists: Automaton, letter: str) -> int:
    return lists.codes.get(letter, -1) if letter else TURN_END


def _share(lists: Automaton, state: int, letter: str) -> float | None:
    """The share of the visits of a state that take a letter; None where it has no such edge."""
    code = _code(lists, letter)
    if code not in lists.children[state]:
        return None
    return lists.passes[state][code] / max(1, len(lists.visits[state]))
