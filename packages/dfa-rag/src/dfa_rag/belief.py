"""Belief over states when tags are noisy: the forward algorithm through the automaton of Section 3.

The paper walks one path and stays where no tag fits (Section 3, step 4); one lost tag then loses the conversation.
Here every way through the turn is weighed by how likely it is to have been seen as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from offprints.checks import require_range

from dfa_rag.data import ROLES, normalise_tags
from dfa_rag.dfa import DialogueDFA


class Belief(NamedTuple):
    """Probabilities over the entry states of one role (Section 3): `states` and `weights`, the greatest first; and
    the probability that the last turn's tags were all noise.
    """

    states: tuple[int, ...]
    weights: tuple[float, ...]
    off_path: float


@dataclass(frozen=True)
class _Side:
    """The ways through the turns of one role."""

    entries: np.ndarray  # entry states of this role
    source: np.ndarray  # path -> place in entries
    target: np.ndarray  # path -> state behind it
    prior: np.ndarray  # path -> log share of the passes of its entry
    lengths: np.ndarray  # path -> number of tags
    matrix: "object"  # (codes, paths) sparse 0/1
    support: np.ndarray  # entry -> share of visits
    letters: int  # tags that this role uses


class BeliefTracker:
    """P(state | tags so far), turn by turn, through the automaton of Section 3.

    A way through a turn with tag set P from entry e to the next entry e' has prior passes(P, e') / passes(e) and
    likelihood ∏_{t ∈ P} [t seen: 1 − d, else d] · ∏_{t seen, t ∉ P} i / |Σ_role|; with probability `restart` the
    conversation is anywhere, by support. The `beam` most likely states are kept.

    Args:
        dfa: a fitted automaton.
        drop: d, the chance that a tag of the training dialogues' kind is not seen.
        insert: i, the expected number of foreign tags in a turn.
        restart: the chance, each turn, of being anywhere.
        beam: states kept; None keeps all.

    Raises:
        TypeError, ValueError: an argument is of another kind or out of range.
    """

    def __init__(
        self, dfa: DialogueDFA, drop: float = 0.1, insert: float = 0.1, restart: float = 0.01, beam: int | None = 32
    ) -> None:
        self.dfa = dfa
        self.drop = require_range("drop", drop, low=0, high=1, low_open=True, high_open=True)
        self.insert = require_range("insert", insert, low=0, high=1, low_open=True)
        self.restart = require_range("restart", restart, low=0, high=1)
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
        rows = [code for word in words for code in word]
        columns = [k for k, word in enumerate(words) for _ in word]
        shape = (len(lists.tags) + 1, len(words))
        support = np.array([len(lists.visits[q]) for q in entries], dtype=float)
        return _Side(
            np.array(entries, dtype=np.int64), np.array(source, dtype=np.int64), np.array(target, dtype=np.int64),
            np.log(np.array(passes, dtype=float)), np.array([len(word) for word in words], dtype=float),
            csr_array((np.ones(len(rows)), (rows, columns)), shape=shape), support / max(1.0, support.sum()),
            max(1, len(set(rows))),
        )  # fmt: skip

    def start(self) -> Belief:
        """All on the start state."""
        return Belief((self.dfa.start,), (1.0,), 0.0)

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
        if not len(side.source):
            return self._anywhere(role)
        seen = normalise_tags(tags)
        codes = [lists.codes[tag] for tag in seen if tag in lists.codes]
        shared = side.matrix[codes].sum(axis=0) if codes else np.zeros(len(side.source))
        chance = side.prior + shared * np.log1p(-self.drop) + (side.lengths - shared) * np.log(self.drop)
        chance += (len(seen) - shared) * np.log(self.insert / side.letters)
        with np.errstate(divide="ignore"):
            chance += np.log(here[side.source])
        top = chance.max()
        if not np.isfinite(top):
            return self._anywhere(role)
        weights = np.exp(chance - top)
        off_path = float(weights[shared == 0].sum() / weights.sum()) if seen else 0.0
        found = np.bincount(side.target, weights, len(lists))
        order = np.argsort(-found, kind="stable")[: self.beam]
        order = order[found[order] > 0]
        kept = found[order] / found[order].sum()
        return Belief(tuple(order.tolist()), tuple(kept.tolist()), off_path)

    def _anywhere(self, role: str) -> Belief:
        """All dialogues end here: any state of the other side, by support."""
        side = self._sides[ROLES[1 - ROLES.index(role)]]
        if not len(side.entries):
            return Belief((), (), 1.0)
        order = np.argsort(-side.support, kind="stable")[: self.beam]
        weights = side.support[order] / side.support[order].sum()
        return Belief(tuple(side.entries[order].tolist()), tuple(weights.tolist()), 1.0)
