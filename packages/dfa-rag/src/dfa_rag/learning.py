"""From tagged dialogues to the automaton: prefix tree, merging at a threshold, numbering (Section 3, steps 2 and 3)."""

import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dfa_rag.automaton import Automaton, from_merger
from dfa_rag.merging import Merge, Merger
from dfa_rag.similarity import Similarity
from dfa_rag.tree import build_tree

THRESHOLDS = {"paper": 0.1, "lookahead": 0.6}
"""λ of each similarity: 0.1 is the paper's (Section 3, step 3)."""
SHARE = 0.2
"""Share of a state's dialogues that makes a branch although they are fewer than τ (the paper has none)."""


class Settings(NamedTuple):
    """What `learn` goes by: τ, a share beside it, λ (None: no merges), similarity, depth, most states (Section 3)."""

    min_support: int
    min_share: float | None
    threshold: float | None
    similarity: str | Similarity
    depth: int
    max_states: int | None


class Learnt(NamedTuple):
    """The automaton, the merges in order, and the λ that was used (Section 3)."""

    automaton: Automaton
    merges: list[Merge]
    threshold: float | None


def learn(training: Mapping[str, Sequence[Sequence[str]]], texts: Mapping[str, list[str]], how: Settings) -> Learnt:
    """The automaton of dialogues given as tags by round; λ is lowered in tenths until `max_states` is kept.

    Args:
        training: id -> round -> tags.
        texts: id -> round -> what was said, for the examples of a state; ids may be missing.
        how: the settings.

    Raises:
        ValueError: if `max_states` is out of reach.
    """
    ids = sorted(training)
    tags = sorted({tag for name in ids for turn in training[name] for tag in turn})
    if not tags:
        warnings.warn("no turn has a tag, so only the number of turns is learnt. Tag the dialogues.", stacklevel=4)
    codes = {tag: code for code, tag in enumerate(tags, 1)}
    rounds = [[frozenset(codes[tag] for tag in turn) for turn in training[name]] for name in ids]
    lowered = [1.0] if how.threshold is None or how.max_states is None else [tenth / 10 for tenth in range(10, -1, -1)]
    levels = [2.0 if how.threshold is None else how.threshold * factor for factor in lowered]  # above 1: no merge
    left = 0
    for level in levels:
        tree = build_tree(rounds, how.min_support, how.min_share)
        merger = Merger(tree, level, how.similarity, how.depth, ["⊣", *tags])
        merger.run()
        left = len(merger.tree.children) - len(merger.into)
        if how.max_states is None or left <= how.max_states:
            found = from_merger(merger, tags, ids, [texts.get(name, []) for name in ids])
            return Learnt(found, merger.merges, None if how.threshold is None else level)
    raise ValueError(
        f"max_states must be at least {left} (what is left at the smallest λ), got {how.max_states}. "
        "Raise it, or min_support."
    )
