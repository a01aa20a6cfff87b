"""Belief over states when tags are noisy: the forward algorithm through the automaton of Section 3.

The paper walks one path and stays where no tag fits (Section 3, step 4); one lost tag then loses the conversation.
Here every way through the turn is weighed by how likely it is to have been seen as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from offprints.checks import require_range

from dfa_rag.data import ROLES, USER, normalise_tags
from dfa_rag.dfa import DialogueDFA


class Belief(NamedTuple):
    """Probabilities over the states of a conversation (Section 3).

    `states` and `weights`: entry states of the role whose turn it is, the greatest first. `aside`: (user state, weight)
    pairs of a turn off the path, to which the conversation returns. `off_path`: the probability that all tags of the
    last turn were noise.
    """

    states: tuple[int, ...]
    weights: tuple[float, ...]
    aside: tuple[tuple[int, float], ...] = ()
    off_path: float = 0.0

    def best(self) -> int:
        """The most likely state; −1 if nothing is left."""
        if self.aside and (not self.states or self.aside[0][1] > self.weights[0]):
            return self.aside[0][0]
        return self.states[0] if self.states else -1


@dataclass(frozen=True)
class _Side:
    """The ways through the turns of one role; entries are held by their place among those of their role."""

    entries: np.ndarray  # entry states of this role
    support: np.ndarray  # entry -> share of visits
    source: np.ndarray  # path -> place of the entry it starts from
    target: np.ndarray  # path -> place, among the other role's, of the entry behind it
    unseen: np.ndarray  # path -> log share of the passes of its entry, and of none of its tags being seen
    holders: dict[int, np.ndarray]  # code -> paths that have it (an inverted index)
    foreign: float  # log-likelihood of a tag that is not the path's


class BeliefTracker:
    """P(state | tags so far), turn by turn, through the automaton of Section 3.

    A way through a turn with tag set P from entry e to the next entry e' has prior passes(P, e') / passes(e) and
    likelihood ∏_{t ∈ P} [t seen: 1 − d, else d] · ∏_{t seen, t ∉ P} i / |Σ_role|. With probability `aside` a user turn
    and the answer to it are off the path and lead back to e: all their tags are foreign, i / |Σ_role| each if the
    automaton knows them, 1 if not. With probability `restart` the conversation is anywhere, by support. The `beam` most
    likely states are kept.

    Args:
        dfa: a fitted automaton.
        drop: d, the chance that a tag of the training dialogues' kind is not seen.
        insert: i, the expected number of foreign tags in a turn.
        restart: the chance, each turn, of being anywhere.
        aside: the chance, each user turn, of a turn off the path.
        beam: states kept; None keeps all.

    Raises:
        TypeError, ValueError: an argument is of another kind or out of range.
    """

    def __init__(
        self,
        dfa: DialogueDFA,
        drop: float = 0.1,
        insert: float = 0.1,
        restart: float = 0.01,
        aside: float = 0.02,
        beam: int | None = 32,
    ) -> None:
        self.dfa = dfa
        self.drop = require_range("drop", drop, low=0, high=1, low_open=True, high_open=True)
        self.insert = require_range("insert", insert, low=0, high=1, low_open=True)
        self.restart = require_range("restart", restart, low=0, high=1)
        self.aside = require_range("aside", aside, low=0, high=1)
        self.beam = None if beam is None else require_range("beam", beam, low=1, integer=True)
        lists = dfa.automaton
        self._place = np.zeros(len(lists), dtype=np.int64)
        self._entries = {}
        for role in ROLES:
            own = [q for q in range(len(lists)) if lists.entry[q] and lists.roles[q] == role]
            self._place[own] = range(len(own))
            self._entries[role] = np.array(own, dtype=np.int64)
        self._sides = {role: self._side(role) for role in ROLES}

    def _side(self, role: str) -> _Side:
        lists, entries = self.dfa.automaton, self._entries[role]
        source, target, shares, words = [], [], [], []
        for place, q in enumerate(entries.tolist()):
            for path in lists.turn_paths(q):
                if path.to >= 0:
                    source.append(place)
                    target.append(path.to)
                    shares.append(path.passes / max(1, len(lists.visits[q])))
                    words.append(path.codes)
        letters = {t for q, edges in enumerate(lists.children) for t in edges if t and lists.roles[q] == role}
        holders: dict[int, list[int]] = {}
        for k, word in enumerate(words):
            for code in word:
                holders.setdefault(code, []).append(k)
        lengths = np.array([len(word) for word in words], dtype=float)
        support = np.array([len(lists.visits[q]) for q in entries], dtype=float)
        return _Side(
            entries, support / max(1.0, support.sum()), np.array(source, dtype=np.int64),
            self._place[np.array(target, dtype=np.int64)],
            np.log(np.array(shares, dtype=float)) + lengths * np.log(self.drop),
            {code: np.array(paths) for code, paths in holders.items()},
            float(np.log(self.insert / max(1, len(letters)))),
        )  # fmt: skip

    def start(self) -> Belief:
        """All on the start state."""
        return Belief((self.dfa.start,), (1.0,))

    def advance(self, belief: Belief, tags: Iterable[str], role: str) -> Belief:
        """The belief after a turn of `role` with these tags; over the entry states of the other role.

        Raises:
            ValueError: if the belief is over states of the other role.
        """
        side, lists = self._sides[role], self.dfa.automaton
        if any(lists.roles[q] != role for q in belief.states):
            raise ValueError(f"the belief must be over {role} states, got one over the other side's.")
        held = np.zeros(len(side.entries))
        held[self._place[list(belief.states)]] = belief.weights
        here = (1 - self.restart) * held + self.restart * side.support
        seen = normalise_tags(tags)
        noise = len(seen) * side.foreign  # all tags are foreign
        beyond = sum(tag in lists.codes for tag in seen) * side.foreign  # off the path unknown ones are no surprise
        with np.errstate(divide="ignore"):
            chance = side.unseen + (np.log(here) + noise)[side.source]
            away = np.log(self.aside * here if role == USER else [weight for _, weight in belief.aside]) + beyond
        explained = np.zeros(len(chance), dtype=bool)
        for tag in seen:
            if (paths := side.holders.get(lists.codes.get(tag, -1))) is not None:
                chance[paths] += np.log1p(-self.drop) - np.log(self.drop) - side.foreign
                explained[paths] = True
        top = max(chance.max(initial=-np.inf), away.max(initial=-np.inf))
        if not np.isfinite(top):
            return self._anywhere(role)
        weights, beside = np.exp(chance - top), np.exp(away - top)
        off_path = float((weights[~explained].sum() + beside.sum()) / (weights.sum() + beside.sum())) if seen else 0.0
        behind = self._entries[ROLES[1 - ROLES.index(role)]]
        found = np.bincount(side.target, weights, len(behind)).astype(float)  # of nothing it gives integers
        if role != USER:  # back to where the conversation was
            np.add.at(found, self._place[[q for q, _ in belief.aside]], beside)
            beside = beside[:0]
        kept, left = self._greatest(found), self._greatest(beside)
        total = found[kept].sum() + beside[left].sum()
        apart = zip(side.entries[left].tolist(), (beside[left] / total).tolist(), strict=True)
        return Belief(tuple(behind[kept].tolist()), tuple((found[kept] / total).tolist()), tuple(apart), off_path)

    def _greatest(self, weights: np.ndarray) -> np.ndarray:
        """The states of the beam, those without weight left out."""
        order = np.argsort(-weights, kind="stable")[: self.beam]
        return order[weights[order] > 0]

    def _anywhere(self, role: str) -> Belief:
        """All dialogues end here: any state of the other side, by support."""
        side = self._sides[ROLES[1 - ROLES.index(role)]]
        if not len(side.entries):
            return Belief((), (), (), 1.0)
        order = np.argsort(-side.support, kind="stable")[: self.beam]
        weights = side.support[order] / side.support[order].sum()
        return Belief(tuple(side.entries[order].tolist()), tuple(weights.tolist()), (), 1.0)
