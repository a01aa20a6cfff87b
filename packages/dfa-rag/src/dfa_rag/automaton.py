"""The automaton (Q, Σ, δ, q0, F) with its state tracking I(q) (Section 3), as plain lists over states."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dfa_rag.data import ROLES
from dfa_rag.merging import Merger
from dfa_rag.tree import TURN_END

Visits = np.ndarray
"""(k, 2) int64: (dialogue, round) pairs, sorted."""


class TurnPath(NamedTuple):
    """A way through one turn: the codes of its tags, the entry state behind it (-1: dialogues end), its passes."""

    codes: tuple[int, ...]
    to: int
    passes: int
    through: tuple[int, ...]


@dataclass
class Automaton:
    """States are numbered breadth first from the start, 0; letters are codes, 0 for the end of a turn.

    Attributes:
        tags: the tag of code k is tags[k - 1]; codes follow the lexicographic order.
        children: state -> letter -> state (δ).
        passes: state -> letter -> turns of training dialogues that took the edge.
        roles: "user" or "system", whose turn it is.
        entry: whether a turn begins here.
        visits: where training dialogues pass through: I(q) with the round.
        ends: dialogues that end here (accepting, if there are any).
        names: names of the states, each once.
        forbidden: states that may not be entered.
        examples: up to three things that were said here.
        dialogues: ids of the training dialogues.
        whole: δ with the edges into forbidden states, which `children` lacks.
    """

    tags: list[str]
    children: list[dict[int, int]]
    passes: list[dict[int, int]]
    roles: list[str]
    entry: list[bool]
    visits: list[Visits]
    ends: list[np.ndarray]
    names: list[str]
    forbidden: set[int]
    examples: list[tuple[str, ...]]
    dialogues: list[str]
    whole: list[dict[int, int]] = field(default_factory=list)
    codes: dict[str, int] = field(init=False)
    support: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.codes = {tag: code for code, tag in enumerate(self.tags, 1)}
        self.support = [len(np.unique(visits[:, 0])) for visits in self.visits]
        self.whole = self.whole or self.children
        self.children = [{t: c for t, c in edges.items() if c not in self.forbidden} for edges in self.whole]

    def __len__(self) -> int:
        return len(self.children)

    def order(self, letter: int) -> tuple[int, int]:
        """Of letters: ⊣ first, then tags by code."""
        return (letter != TURN_END, letter)

    def turn_paths(self, state: int) -> Iterator[TurnPath]:
        """All ways through the turn that `state` stands in; their passes add up to the visits of the state."""
        pending: list[tuple[int, tuple[int, ...], tuple[int, ...]]] = [(state, (), (state,))]
        while pending:
            here, codes, through = pending.pop()
            if len(self.ends[here]):
                yield TurnPath(codes, -1, len(self.ends[here]), through)
            for letter, child in self.children[here].items():
                if letter == TURN_END:
                    yield TurnPath(codes, child, self.passes[here][letter], through)
                else:
                    pending.append((child, (*codes, letter), (*through, child)))

    def word(self, codes: Sequence[int]) -> tuple[str, ...]:
        """Tags of codes, sorted."""
        return tuple(sorted(self.tags[code - 1] for code in codes))

    def quotient(self, block: Sequence[int]) -> "Automaton":
        """Join states of one block into one, numbered breadth first. `block` must be closed under successors."""
        joined: dict[int, list[int]] = {}
        for state, representative in enumerate(block):
            joined.setdefault(representative, []).append(state)
        children: dict[int, dict[int, int]] = {}
        passes: dict[int, dict[int, int]] = {}
        for head, parts in joined.items():
            children[head] = {t: block[c] for q in parts for t, c in self.whole[q].items()}
            passes[head] = {}
            for q in parts:
                for letter, n in self.passes[q].items():
                    passes[head][letter] = passes[head].get(letter, 0) + n
        order = breadth_first(block[0], children)
        number = {head: k for k, head in enumerate(order)}
        parts_of = [joined[head] for head in order]
        return Automaton(
            self.tags,
            [{t: number[c] for t, c in sorted(children[head].items())} for head in order],
            [dict(sorted(passes[head].items())) for head in order],
            [self.roles[head] for head in order],
            [self.entry[head] for head in order],
            [sorted_visits([self.visits[q] for q in parts]) for parts in parts_of],
            [np.sort(np.concatenate([self.ends[q] for q in parts])) for parts in parts_of],
            [self.names[head] for head in order],
            {number[head] for head in order if self.forbidden & set(joined[head])},
            [tuple(dict.fromkeys(text for q in parts for text in self.examples[q]))[:3] for parts in parts_of],
            self.dialogues,
        )


def breadth_first(start: int, children: Mapping[int, Mapping[int, int]] | Sequence[Mapping[int, int]]) -> list[int]:
    """States in the order of a breadth-first walk, ⊣ first, then tags by code."""
    order, seen, queue = [start], {start}, deque([start])
    while queue:
        for _, child in sorted(children[queue.popleft()].items()):
            if child not in seen:
                seen.add(child)
                order.append(child)
                queue.append(child)
    return order


def sorted_visits(parts: Sequence[Visits]) -> Visits:
    """Visits of several states as one sorted array."""
    visits = np.concatenate([np.asarray(part, dtype=np.int64).reshape(-1, 2) for part in parts])
    return visits[np.lexsort((visits[:, 1], visits[:, 0]))]


def from_merger(merger: Merger, tags: list[str], dialogues: list[str], texts: Sequence[Sequence[str]]) -> Automaton:
    """Number the states that are left, breadth first, and collect who passes through them.

    Args:
        merger: after `run`.
        tags: the vocabulary.
        dialogues: ids.
        texts: dialogue -> round -> what was said, for the examples; a dialogue without texts gives none.
    """
    tree = merger.tree
    order = breadth_first(0, tree.children)
    number = {state: k for k, state in enumerate(order)}
    visits: list[list[Visits]] = [[] for _ in order]
    ends: list[list[int]] = [[] for _ in order]
    for state, members in enumerate(tree.members):
        pairs = np.empty((len(members), 2), dtype=np.int64)
        pairs[:, 0], pairs[:, 1] = members, tree.round[state]
        visits[number[merger.final(state)]].append(pairs)
        ends[number[merger.final(state)]] += tree.ends[state]
    roles = [ROLES[tree.round[state] % 2] for state in order]
    gathered = [sorted_visits(parts) for parts in visits]
    merger.merges[:] = [merge._replace(into=number[merge.into]) for merge in merger.merges]
    return Automaton(
        tags,
        [{t: number[c] for t, c in sorted(tree.children[state].items())} for state in order],
        [dict(sorted(merger.counts[state].items())) for state in order],
        roles,
        [tree.entry[state] for state in order],
        gathered,
        [np.sort(np.array(parts, dtype=np.int64)) for parts in ends],
        [f"{role[0]}{k}" for k, role in enumerate(roles)],
        set(),
        [_said(pairs, texts) for pairs in gathered],
        dialogues,
    )


def _said(visits: Visits, texts: Sequence[Sequence[str]], most: int = 3) -> tuple[str, ...]:
    """The first different things that were said in a state."""
    found: dict[str, None] = {}
    for dialogue, place in visits.tolist():
        if place < len(texts[dialogue]) and texts[dialogue][place]:
            found[texts[dialogue][place]] = None
        if len(found) == most:
            break
    return tuple(found)
