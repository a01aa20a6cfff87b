"""The prefix tree over tags, one part a round (Section 3, step 2: at each point branch on the most frequent tag).

States are numbers; letters are codes, 0 for the end of a turn (⊣) and k >= 1 for the k-th tag in lexicographic order,
so that no tag of a user can collide with ⊣ and ties go to the smaller code.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

TURN_END = 0
FEWEST = 3
"""Dialogues of a branch that is made for its share: two may carry the same wrong tag by chance."""


@dataclass
class Tree:
    """A prefix tree. Lists run over states; state 0 is the start.

    Attributes:
        children: letter -> state (δ).
        entry: whether a turn begins here.
        round: the round that the state lies in; even ones are the user's.
        members: dialogues that pass through, I(q).
        ends: dialogues that end here; the state is accepting if there are any.
    """

    children: list[dict[int, int]] = field(default_factory=list)
    entry: list[bool] = field(default_factory=list)
    round: list[int] = field(default_factory=list)
    members: list[list[int]] = field(default_factory=list)
    ends: list[Sequence[int]] = field(default_factory=list)

    def add(self, round: int, entry: bool, members: list[int]) -> int:
        """A new state; returns its number."""
        self.children.append({})
        self.entry.append(entry)
        self.round.append(round)
        self.members.append(members)
        self.ends.append(())
        return len(self.children) - 1


def build_tree(rounds: Sequence[Sequence[frozenset[int]]], min_support: int, min_share: float | None = None) -> Tree:
    """The prefix tree of dialogues given as tag codes by round (Section 3, step 2).

    At a state, t* = the tag in most dialogues here (ties: the smallest code); while it is in τ = `min_support` or more
    of them, they go to δ(q, t*) and the others stay. Those left when no tag is frequent end the turn: δ(q, ⊣), or the
    dialogue. Cost O(tag occurrences × depth); every dialogue ends in exactly one state.

    Args:
        rounds: dialogue -> round -> codes (>= 1).
        min_support: τ, the smallest number of dialogues of a branch.
        min_share: a branch with fewer dialogues that are this share of its state's, and three at least, is made too.
    """
    tree, least = Tree(), min_support if min_share is None else min(min_support, FEWEST)
    tree.add(0, True, list(range(len(rounds))))
    lengths = [len(parts) for parts in rounds]
    pending = [(0, 0, {i: parts[0] for i, parts in enumerate(rounds)})]
    while pending:
        state, place, rest = pending.pop()
        for best, taken in _branches(rest, needed(len(rest), min_support, min_share)):
            child = tree.add(place, False, taken)
            tree.children[state][best] = child
            pending.append((child, place, {i: rest.pop(i) - {best} for i in taken}))
        going = _end_turn(tree, state, list(rest), lengths, place)
        if len(going) < least:  # no tag is frequent any more: the ends of turns, one behind the other
            while going:
                place, state = place + 1, tree.children[state][TURN_END]
                going = _end_turn(tree, state, going, lengths, place)
        elif going:
            pending.append((tree.children[state][TURN_END], place + 1, {i: rounds[i][place + 1] for i in going}))
    return tree


def needed(dialogues: int, min_support: int, min_share: float | None) -> int:
    """Dialogues that a branch of a state with so many needs: τ; with a share ρ, min(τ, max(3, ⌈ρ · dialogues⌉))."""
    if min_share is None:
        return min_support
    return min(min_support, max(FEWEST, math.ceil(round(min_share * dialogues, 9))))


def _end_turn(tree: Tree, state: int, rest: list[int], lengths: Sequence[int], place: int) -> list[int]:
    """Let dialogues end their turn in `state`: the last turn here, δ(q, ⊣) for the others, which are returned."""
    going = [i for i in rest if lengths[i] > place + 1]
    if len(going) == len(rest):
        going = rest  # one list for all states of a chain
    else:
        tree.ends[state] = [i for i in rest if lengths[i] == place + 1]
    if going:
        tree.children[state][TURN_END] = tree.add(place + 1, True, going)
    return going


def _branches(rest: dict[int, frozenset[int]], min_support: int) -> Iterator[tuple[int, list[int]]]:
    """The most frequent tags of one state, one after the other, with the dialogues that they take out of `rest`."""
    holders: dict[int, list[int]] = {}
    for i, tags in rest.items():
        for code in tags:
            holders.setdefault(code, []).append(i)
    frequent = {code: found for code, found in holders.items() if len(found) >= min_support}
    while frequent:
        best = min(frequent, key=lambda code: (-len(frequent[code]), code))
        taken = set(frequent[best])
        yield best, frequent.pop(best)
        for code, found in list(frequent.items()):
            left = found if taken.isdisjoint(found) else [i for i in found if i not in taken]
            if len(left) < min_support:
                del frequent[code]
            else:
                frequent[code] = left
