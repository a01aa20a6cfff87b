"""The prefix tree over tags, one part a round (Section 3, step 2: at each point branch on the most frequent tag).

States are numbers; letters are codes, 0 for the end of a turn (⊣) and k >= 1 for the k-th tag in lexicographic order,
so that no tag of a user can collide with ⊣ and ties go to the smaller code.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

TURN_END = 0


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
    ends: list[list[int]] = field(default_factory=list)

    def add(self, round: int, entry: bool, members: list[int]) -> int:
        """A new state; returns its number."""
        self.children.append({})
        self.entry.append(entry)
        self.round.append(round)
        self.members.append(members)
        self.ends.append([])
        return len(self.children) - 1


def build_tree(rounds: Sequence[Sequence[frozenset[int]]], min_support: int) -> Tree:
    """The prefix tree of dialogues given as tag codes by round (Section 3, step 2).

    At a state, t* = the tag in most dialogues here (ties: the smallest code); while it is in τ = `min_support` or more
    of them, they go to δ(q, t*) and the others stay. Those left when no tag is frequent end the turn: δ(q, ⊣), or the
    dialogue. Cost O(tag occurrences × depth); every dialogue ends in exactly one state.

    Args:
        rounds: dialogue -> round -> codes (>= 1).
        min_support: τ, the smallest number of dialogues of a branch.
    """
    tree = Tree()
    tree.add(0, True, list(range(len(rounds))))
    pending = [(0, 0, {i: parts[0] for i, parts in enumerate(rounds)})]
    while pending:
        state, place, rest = pending.pop()
        counts = Counter(code for tags in rest.values() for code in tags)
        holders = defaultdict(list)
        for i, tags in rest.items():
            for code in tags:
                holders[code].append(i)
        while counts:
            best = min(counts, key=lambda code: (-counts[code], code))
            if counts[best] < min_support:
                break
            taken = [i for i in holders[best] if i in rest]
            child = tree.add(place, False, taken)
            tree.children[state][best] = child
            pending.append((child, place, {i: rest[i] - {best} for i in taken}))
            for i in taken:
                counts.subtract(rest.pop(i))
            del counts[best]
        tree.ends[state] = [i for i in rest if len(rounds[i]) == place + 1]
        going = [i for i in rest if len(rounds[i]) > place + 1]
        if going:
            child = tree.add(place + 1, True, going)
            tree.children[state][TURN_END] = child
            pending.append((child, place + 1, {i: rounds[i][place + 1] for i in going}))
    return tree
