"""Merging of like states (Section 3, step 3), in red-blue order: breadth first, each new entry into the best red.

Only entry states of one role are compared; what lies behind them is folded, so that the automaton stays
deterministic. A state that waits to be judged still roots a piece of the prefix tree and has one edge into it, so
edges never go stale.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dfa_rag.similarity import SLACK, Similarity, lookahead
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
        self.parts: dict[int, list[int]] = {}
        self.ids: list[set[int]] = [set(members) for members in tree.members] if self.similarity == "paper" else []
        support = [len(members) for members in tree.members]
        self.counts = [{t: support[c] for t, c in edges.items()} for edges in tree.children]
        self.norms = [sum([n * n for n in passes.values()]) for passes in self.counts]
        self.tables = (_Table(self), _Table(self))

    def run(self) -> None:
        """Merge until every state is judged. A similarity of zero never merges."""
        red, queue = {0}, deque([0])
        self.tables[0].add(0)
        while queue:
            state = queue.popleft()
            new = [letter for letter, child in self.tree.children[state].items() if child not in red]
            for letter in sorted(new):
                child = self.tree.children[state][letter]
                table = self.tables[self.tree.round[child] % 2]
                found, score = table.best(child) if self.tree.entry[child] else (-1, 0.0)
                if found >= 0 and score > 0 and score >= self.threshold:
                    self.merges.append(Merge(found, self.tree.round[child], self.support(child), score))
                    self.tree.children[state][letter] = found
                    folded = [(kept, gone) for kept, gone in self.fold(found, child) if kept in red]
                    queue.extend(sorted({kept for kept, _ in folded}))
                    for kept, gone in folded:
                        if self.tree.entry[kept]:
                            self.tables[self.tree.round[kept] % 2].update(kept, self.counts[gone])
                else:
                    red.add(child)
                    queue.append(child)
                    if self.tree.entry[child]:
                        table.add(child)

    def fold(self, state: int, other: int) -> list[tuple[int, int]]:
        """Make `other`, the root of a piece of tree, part of `state`; pairs (state, what it took in)."""
        pending, folded, children, parts = [(state, other)], [], self.tree.children, self.parts
        counts, norms = self.counts, self.norms
        while pending:
            kept, gone = pending.pop()
            folded.append((kept, gone))
            self.into[gone] = kept
            parts.setdefault(kept, []).append(gone)
            if self.ids:
                small, large = sorted((self.ids[kept], self.ids[gone]), key=len)
                large |= small
                self.ids[kept], self.ids[gone] = large, set()
            mine, edges, passes = counts[kept], children[kept], counts[gone]
            for letter, child in children[gone].items():
                n, more = mine.get(letter, 0), passes[letter]
                mine[letter] = n + more
                norms[kept] += more * (2 * n + more)
                if letter in edges:
                    pending.append((edges[letter], child))
                else:
                    edges[letter] = child
            children[gone] = {}
        return folded

    def support(self, state: int) -> int:
        """|I(q)|: dialogues that pass through a state and through those that were folded into it."""
        if state not in self.parts:
            return len(self.tree.members[state])
        found, pending = set(), [state]
        while pending:
            part = pending.pop()
            found.update(self.tree.members[part])
            pending += self.parts.get(part, ())
        return len(found)

    def final(self, state: int) -> int:
        """The state that a state of the tree ended up in."""
        path = []
        while state in self.into:
            path.append(state)
            state = self.into[state]
        for passed in path:
            self.into[passed] = state
        return state

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
        self.update(state, self.merger.counts[state])

    def update(self, state: int, letters: Iterable[int]) -> None:
        """Read some counts of a red state again. φ_sim's columns lack ⊣, behind which I grows with merges elsewhere."""
        place, merger, paper = self.place[state], self.merger, self.merger.similarity == "paper"
        edges, passes = merger.tree.children[state], merger.counts[state]
        for letter in letters:
            if paper and letter == TURN_END:
                continue
            n = len(merger.ids[edges[letter]]) if paper else passes[letter]
            if letter not in self.columns:
                self.columns[letter] = np.zeros(len(self.norms))
            column = self.columns[letter]
            self.norms[place] += n - column[place]
            column[place] = n
        if not paper:
            self.norms[place] = merger.norms[state]

    def best(self, state: int) -> tuple[int, float]:
        """The red state that is most like `state` (ties: the earliest), and φ."""
        if not self.states:
            return -1, 0.0
        if callable(self.merger.similarity):
            counts, named = self.merger.named(state), self.merger.named
            scores = np.array([self.merger.similarity(named(red), counts) for red in self.states], dtype=float)
            if not ((scores >= 0) & (scores <= 1 + 1e-9)).all():  # NaN neither
                raise ValueError(f"similarity must give numbers in [0, 1], got {scores.min()} to {scores.max()}.")
        elif self.merger.similarity == "paper":
            scores = self._paper(state)
        else:
            return self._lookahead(state)
        scores = scores.round(DIGITS)
        place = int(scores.argmax())
        return self.states[place], float(scores[place])

    def _dots(self, counts: dict[int, int]) -> np.ndarray:
        dots = np.zeros(len(self.states))
        for letter, n in counts.items():
            if letter in self.columns:
                dots += n * self.columns[letter][: len(dots)]
        return dots

    def _paper(self, state: int) -> np.ndarray:
        merger = self.merger
        counts = {t: len(merger.ids[c]) for t, c in merger.tree.children[state].items() if t != TURN_END}
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
        places = np.flatnonzero((bounds >= merger.threshold - SLACK) & (bounds > 0))
        found, top, memo, ways = -1, 0.0, {}, self._ways(state)
        places = places[np.argsort(-bounds[places], kind="stable")]
        for place, bound in zip(places.tolist(), bounds[places].tolist(), strict=True):
            floor = max(merger.threshold, top)
            if bound < top - SLACK:
                break
            if bound * self._share(self.states[place], ways) < floor - SLACK:
                continue
            value = lookahead(
                self.states[place], state, merger.depth, children, merger.counts, merger.norms, memo, floor
            )
            if value is None:
                continue
            value = round(value, DIGITS)
            if value > top or (value == top and place < found):
                found, top = place, value
        return (self.states[found] if found >= 0 else -1), top

    def _ways(self, state: int) -> list[tuple[int, int, list[int]]]:
        """Letters of a state, their passes, and the letters that every way on from there begins with."""
        children, found = self.merger.tree.children, []
        for letter, here in children[state].items():
            word: list[int] = []
            while len(children[here]) == 1 and len(word) < self.merger.depth - 1:
                ((following, here),) = children[here].items()
                word.append(following)
            found.append((letter, self.merger.counts[state][letter], word))
        return found

    def _share(self, red: int, ways: list[tuple[int, int, list[int]]]) -> float:
        """An upper bound of Σ_t w_t φ(δ(q,t), δ(q',t)) / Σ_t w_t: the cosines along the words of `ways`."""
        children, counts, norms = self.merger.tree.children, self.merger.counts, self.merger.norms
        value, total, mine = 0.0, 0, counts[red]
        for letter, passes, word in ways:
            n = mine.get(letter)
            if n is None:
                continue
            weight, here, part = n if n < passes else passes, children[red][letter], 1.0
            for following in word:
                n = counts[here].get(following)
                if n is None:
                    part = 0.0
                    break
                if n * n != norms[here]:
                    part *= n / norms[here] ** 0.5
                here = children[here][following]
            value, total = value + weight * part, total + weight
        return value / total
