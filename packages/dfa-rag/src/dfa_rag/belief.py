"""Belief over states when tags are noisy: the forward algorithm through the automaton of Section 3.

The paper walks one path and stays where no tag fits (Section 3, step 4); one lost tag then loses the conversation.
Here every way through the turn is weighed by how likely it is to have been seen as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

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
        pairs = [*zip(self.states, self.weights, strict=True), *self.aside]
        return max(pairs, key=lambda pair: pair[1])[0] if pairs else -1


@dataclass(frozen=True)
class _Side:
    """The ways through the turns of one role."""

    entries: np.ndarray  # entry states of this role
    source: np.ndarray  # path -> place in entries
    target: np.ndarray  # path -> state behind it
    prior: np.ndarray  # path -> log share of the passes of its entry
    lengths: np.ndarray  # path -> number of tags
    matrix: Any  # (codes, paths) sparse 0/1
    support: np.ndarray  # entry -> share of visits
    letters: int  # tags that this role uses


class BeliefTracker:
    """P(state | tags so far), turn by turn, through the automaton of Section 3.

    A way through a turn with tag set P from entry e to the next entry e' has prior passes(P, e') / passes(e) and
    likelihood ∏_{t ∈ P} [t seen: 1 − d, else d] · ∏_{t seen, t ∉ P} i / |Σ_role|. With probability `aside` a user turn
    and the answer to it are off the path (all their tags are foreign) and lead back to e; with probability `restart`
    the conversation is anywhere, by support. The `beam` most likely states are kept.

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
        self._sides = {role: self._side(role) for role in ROLES}

    def _side(self, role: str) -> _Side:
        from scipy.sparse import csr_array

        lists = self.dfa.automaton
        entries = [q for q in range(len(lists)) if lists.entry[q] and lists.roles[q] == role]
        source, target, passes, words = [], [], [], []
        for place, q in enumerate(entries):
            for path in lists.turn_paths(q):
                if path.to >= 0:
                    source.append(place)
                    target.append(path.to)
                    passes.append(path.passes / max(1, len(lists.visits[q])))
                    words.append(path.codes)
        letters = {t for q, edges in enumerate(lists.children) for t in edges if t and lists.roles[q] == role}
        rows = [code for word in words for code in word]
        columns = [k for k, word in enumerate(words) for _ in word]
        shape = (len(lists.tags) + 1, len(words))
        support = np.array([len(lists.visits[q]) for q in entries], dtype=float)
        return _Side(
            np.array(entries, dtype=np.int64), np.array(source, dtype=np.int64), np.array(target, dtype=np.int64),
            np.log(np.array(passes, dtype=float)), np.array([len(word) for word in words], dtype=float),
            csr_array((np.ones(len(rows)), (rows, columns)), shape=shape), support / max(1.0, support.sum()),
            max(1, len(letters)),
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
        held = np.zeros(len(lists))
        held[list(belief.states)] = belief.weights
        here = (1 - self.restart) * held[side.entries] + self.restart * side.support
        seen = normalise_tags(tags)
        codes = [lists.codes[tag] for tag in seen if tag in lists.codes]
        foreign = np.log(self.insert / side.letters)
        shared = side.matrix[codes].sum(axis=0) if codes else np.zeros(len(side.source))
        chance = side.prior + shared * np.log1p(-self.drop) + (side.lengths - shared) * np.log(self.drop)
        with np.errstate(divide="ignore"):
            chance += (len(seen) - shared) * foreign + np.log(here[side.source])
            away = np.log(self.aside * here) if role == USER else np.log([weight for _, weight in belief.aside])
        away = away + len(seen) * foreign
        top = max(chance.max(initial=-np.inf), away.max(initial=-np.inf))
        if not np.isfinite(top):
            return self._anywhere(role)
        weights, beside = np.exp(chance - top), np.exp(away - top)
        total = weights.sum() + beside.sum()
        off_path = float((weights[shared == 0].sum() + beside.sum()) / total) if seen else 0.0
        found = np.bincount(side.target, weights, len(lists)).astype(float)  # of nothing it gives integers
        apart = np.zeros(len(lists))
        origin = side.entries if role == USER else [q for q, _ in belief.aside]
        (apart if role == USER else found)[origin] += beside
        kept, left = self._greatest(found), self._greatest(apart)
        total = found[kept].sum() + apart[left].sum()
        return Belief(
            tuple(kept.tolist()),
            tuple((found[kept] / total).tolist()),
            tuple(zip(left.tolist(), (apart[left] / total).tolist(), strict=True)),
            off_path,
        )

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
