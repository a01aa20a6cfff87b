"""Merging of like states (Section 3, step 3), in red-blue order: breadth first, each new entry into the best red.

Only entry states of one role are compared; what lies behind them is folded, so that the automaton stays
deterministic. A state that waits to be judged still roots a piece of the prefix tree and has one edge into it, so
edges never go stale.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dfa_rag.similarity import Similarity, lookahead
from dfa_rag.tree import TURN_END, Tree

DIGITS = 12  # similarities are compared up to rounding, so that ties do not hang on the order of a sum


class Merge(NamedTuple):
    """One merge: the state that took the other one in, the round where that one lay, its dialogues, φ."""

    into: int
    round: int
    support: int
    score: float


@dataclass
class Merger:
    """A prefix tree on its way to an automaton.

    Attributes:
        tree: the tree; its `children` are rewritten.
        threshold: λ; above 1 nothing merges.
        similarity: "paper", "lookahead" or a function of two mappings from tag to count.
        depth: letters that the look-ahead follows.
        names: code -> tag, for a similarity of the user's own.
        into: folded state -> the state it became part of.
        merges: what was merged, in order.
    """

    tree: Tree
    threshold: float
    similarity: str | Similarity
    depth: int
    names: list[str]
    into: dict[int, int] = field(default_factory=dict)
    merges: list[Merge] = field(default_factory=list)

    def __post_init__(self) -> None:
        tree = self.tree
        self.ids = [set(members) for members in tree.members]
        self.counts = [{t: len(tree.members[c]) for t, c in edges.items()} for edges in tree.children]
        self.norms = [sum([n * n for n in passes.values()]) for passes in self.counts]
        self.tables = (_Table(self), _Table(self))

    def run(self) -> None:
        """Merge until every state is judged. A similarity of zero never merges."""
        red, queue = {0}, deque([0])
        self.tables[0].add(0)
        while queue:
            state = queue.popleft()
            for letter in sorted(self.tree.children[state]):
                child = self.tree.children[state][letter]
                if child in red:
                    continue
                table = self.tables[self.tree.round[child] % 2]
                found, score = table.best(child) if self.tree.entry[child] else (-1, 0.0)
                if found >= 0 and score > 0 and score >= self.threshold:
                    self.merges.append(Merge(found, self.tree.round[child], len(self.ids[child]), score))
                    self.tree.children[state][letter] = found
                    touched = sorted(red & set(self.fold(found, child)))
                    queue.extend(touched)
                    for changed in touched:
                        if self.tree.entry[changed]:
                            self.tables[self.tree.round[changed] % 2].update(changed)
                else:
                    red.add(child)
                    queue.append(child)
                    if self.tree.entry[child]:
                        table.add(child)

    def fold(self, state: int, other: int) -> list[int]:
        """Make `other`, the root of a piece of tree, part of `state`; the states that took something in."""
        pending, winners, children = [(state, other)], [], self.tree.children
        while pending:
            kept, gone = pending.pop()
            winners.append(kept)
            self.into[gone] = kept
            small, large = sorted((self.ids[kept], self.ids[gone]), key=len)
            large |= small
            self.ids[kept], self.ids[gone] = large, set()
            self.tree.ends[kept] += self.tree.ends[gone]
            for letter, child in children[gone].items():
                self.counts[kept][letter] = self.counts[kept].get(letter, 0) + self.counts[gone][letter]
                if letter in children[kept]:
                    pending.append((children[kept][letter], child))
                else:
                    children[kept][letter] = child
            children[gone] = {}
            self.norms[kept] = sum([n * n for n in self.counts[kept].values()])
        return winners

    def final(self, state: int) -> int:
        """The state that a state of the tree ended up in."""
        path = []
        while state in self.into:
            path.append(state)
            state = self.into[state]
        for passed in path:
            self.into[passed] = state
        return state

    def sizes(self, state: int) -> dict[int, int]:
        """|I(δ(q, t))| by letter, the counts of φ_sim."""
        return {t: len(self.ids[c]) for t, c in self.tree.children[state].items()}

    def named(self, state: int) -> dict[str, int]:
        """Next-letter counts by tag."""
        return {self.names[t]: n for t, n in self.counts[state].items()}


class _Table:
    """The red entry states of one role, their next-letter counts held by letter.

    One waiting state meets all of them in one sum of columns: an inverted index with dense columns.
    """

    def __init__(self, merger: Merger) -> None:
        self.merger = merger
        self.states: list[int] = []
        self.place: dict[int, int] = {}
        self.columns: dict[int, np.ndarray] = {}
        self.norms = np.zeros(16)

    def add(self, state: int) -> None:
        """A new red state, last in the order."""
        self.place[state] = len(self.states)
        self.states.append(state)
        if len(self.states) > len(self.norms):
            self.norms = np.concatenate([self.norms, np.zeros_like(self.norms)])
            self.columns = {t: np.concatenate([c, np.zeros_like(c)]) for t, c in self.columns.items()}
        self.update(state)

    def update(self, state: int) -> None:
        """Read the counts of a red state again."""
        place = self.place[state]
        counts = self._counts(state)
        for letter, n in counts.items():
            if letter not in self.columns:
                self.columns[letter] = np.zeros(len(self.norms))
            self.columns[letter][place] = n
        squared = self.merger.similarity != "paper"
        self.norms[place] = sum(n * n if squared else n for n in counts.values())

    def best(self, state: int) -> tuple[int, float]:
        """The red state that is most like `state` (ties: the earliest), and φ."""
        if not self.states:
            return -1, 0.0
        if callable(self.merger.similarity):
            counts, named = self.merger.named(state), self.merger.named
            scores = np.array([self.merger.similarity(named(red), counts) for red in self.states])
        elif self.merger.similarity == "paper":
            scores = self._paper(state)
        else:
            return self._lookahead(state)
        scores = scores.round(DIGITS)
        place = int(scores.argmax())
        return self.states[place], float(scores[place])

    def _counts(self, state: int) -> dict[int, int]:
        """What the columns hold: for φ_sim not the end of a turn, behind which I grows with every merge elsewhere."""
        if self.merger.similarity == "paper":
            return {t: n for t, n in self.merger.sizes(state).items() if t != TURN_END}
        return self.merger.counts[state]

    def _dots(self, counts: dict[int, int]) -> np.ndarray:
        dots = np.zeros(len(self.states))
        for letter, n in counts.items():
            if letter in self.columns:
                dots += n * self.columns[letter][: len(dots)]
        return dots

    def _paper(self, state: int) -> np.ndarray:
        merger, counts = self.merger, self._counts(state)
        children, ids = merger.tree.children, merger.ids
        end = len(ids[children[state][TURN_END]]) if TURN_END in children[state] else 0
        ends = np.array([len(ids[edges[TURN_END]]) if TURN_END in (edges := children[q]) else 0 for q in self.states])
        total = (self.norms[: len(ends)] + ends) * (sum(counts.values()) + end)
        return np.divide(self._dots(counts) + end * ends, total, out=np.zeros(len(ends)), where=total > 0)

    def _lookahead(self, state: int) -> tuple[int, float]:
        """Only reds whose cosine, an upper bound of φ, can still win are looked into, the most promising first."""
        merger = self.merger
        counts, children = merger.counts[state], merger.tree.children
        if not counts:
            empty = [red for red in self.states if not merger.counts[red]]
            return (empty[0], 1.0) if empty else (-1, 0.0)
        norm = sum(n * n for n in counts.values())
        bounds = self._dots(counts) / np.sqrt(np.maximum(self.norms[: len(self.states)], 1e-300) * norm)
        places = np.flatnonzero(bounds >= max(merger.threshold, 1e-9) - 1e-9)
        found, top, memo = -1, 0.0, {}
        for place in places[np.argsort(-bounds[places], kind="stable")].tolist():
            if bounds[place] < top - 1e-9:
                break
            floor = max(merger.threshold, top)
            value = lookahead(
                self.states[place], state, merger.depth, children, merger.counts, merger.norms, memo, floor
            )
            if value is None:
                continue
            value = round(value, DIGITS)
            if value > top or (value == top and place < found):
                found, top = place, value
        return (self.states[found] if found >= 0 else -1), top
