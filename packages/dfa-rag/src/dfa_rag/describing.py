"""What an automaton says about itself: shares of what comes next, a state explained, sizes in lines (Section 3)."""

from collections import Counter
from dataclasses import dataclass

from dfa_rag.automaton import Automaton
from dfa_rag.data import ROLES


@dataclass(frozen=True)
class Explanation:
    """What a state stands for (Section 3).

    Name and role, dialogues that pass and that end here, the next tags with their shares, things that were said.
    """

    name: str
    role: str
    support: int
    accepting: int
    tags: dict[str, float]
    said: tuple[str, ...]


def explain(lists: Automaton, state: int) -> Explanation:
    """Name, support, next tags with their shares, and utterances of a state."""
    total = max(1, len(lists.visits[state]))
    counts = {lists.tags[t - 1]: n for t, n in lists.passes[state].items() if t in lists.children[state] and t}
    shares = {tag: n / total for tag, n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))}
    return Explanation(
        lists.names[state], lists.roles[state], lists.support[state], len(lists.ends[state]), shares,
        lists.examples[state],
    )  # fmt: skip


def turn_shares(lists: Automaton, state: int) -> dict[tuple[str, ...], float]:
    """Sets of tags of the turn that begins in a state, with their shares among the training dialogues."""
    found: Counter[tuple[str, ...]] = Counter()
    for path in lists.turn_paths(state):
        found[lists.word(path.codes)] += path.passes
    total = sum(found.values())
    return {word: n / total for word, n in sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))}


def summary(lists: Automaton, how: str) -> str:
    """A few lines: sizes by role, dialogues, how it was learnt, the states most dialogues pass."""
    states = range(len(lists))
    user, system = (sum(lists.entry[q] and lists.roles[q] == role for q in states) for role in ROLES)
    accepting = sum(len(ends) > 0 for ends in lists.ends)
    busiest = [q for q in sorted(states, key=lambda q: (-lists.support[q], q)) if lists.entry[q]][:5]
    lines = [
        f"{len(lists)} states ({user} user and {system} system entries), {sum(map(len, lists.children))} transitions, "
        f"{len(lists.tags)} tags, {len(lists.dialogues)} dialogues",
        f"{how}, {accepting} accepting",
    ]
    for found in (explain(lists, q) for q in busiest):
        tags = ", ".join([*found.tags][:5]) or "nothing"
        lines.append(f"  {found.name} ({found.role}): {found.support} dialogues, next {tags}")
    return "\n".join(lines)
