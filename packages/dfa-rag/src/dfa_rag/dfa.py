"""`DialogueDFA`: learn a finite automaton over tags from dialogues and walk through it (Section 3)."""

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from offprints.checks import require_choice, require_range

from dfa_rag import describing, editing, export, state, walking
from dfa_rag.automaton import Automaton
from dfa_rag.data import ROLES, Dialogue, align, check_dialogues, normalise_tags
from dfa_rag.describing import Explanation
from dfa_rag.learning import SHARE, THRESHOLDS, Settings, learn
from dfa_rag.merging import Merge
from dfa_rag.similarity import Similarity
from dfa_rag.walking import StepResult

if TYPE_CHECKING:
    import networkx


class DialogueDFA:
    """A finite automaton over dialogue tags: prefix tree by rounds, then red-blue merging (Section 3, steps 2 and 3).

    The tree branches on the most frequent tag (`min_support` = τ dialogues at least), the end of a turn is a letter of
    its own; entry states of one role merge when their similarity reaches λ, and what lies behind is folded.

    Args:
        min_support: τ, the fewest dialogues of a branch (5 in the paper).
        merge_threshold: λ in [0, 1]; "auto" is 0.1 for "paper" and 0.6 for "lookahead"; None merges nothing.
        similarity: "lookahead" (see `dfa_rag.similarity.lookahead`), "paper" (φ_sim), or a function of two mappings
            from next tag ("⊣" for the end of a turn) to count.
        lookahead: letters that the look-ahead follows.
        max_states: λ is lowered in tenths until the automaton has no more states than this.
        min_share: a tag in fewer than τ dialogues branches too if these are this share of the state's, and three at
            least; None is τ alone, "auto" None with "paper" and 0.2 with others. Without it the branches of a stage
            that is met on many ways are cut in each of its copies, before merging could add them up.
        on_repeat: what to do with turns of one role in a row, "join" or "keep" (see `dfa_rag.data.align`).

    Attributes:
        merge_history: the merges, in order.
        threshold: the λ that was used; None if nothing was merged.

    Raises:
        TypeError, ValueError: an argument is of another kind or out of range.
    """

    def __init__(
        self,
        min_support: int = 5,
        merge_threshold: float | str | None = "auto",
        similarity: str | Similarity = "lookahead",
        lookahead: int = 4,
        max_states: int | None = None,
        on_repeat: str = "join",
        min_share: float | str | None = "auto",
    ) -> None:
        self.min_support = require_range("min_support", min_support, low=1, integer=True, hint="It is the paper's τ.")
        if not callable(similarity):
            require_choice("similarity", similarity, tuple(THRESHOLDS), hint="Or a function of two count mappings.")
        level, share = ("merge_threshold", merge_threshold, "the paper's λ"), ("min_share", min_share, "beside τ")
        for name, value, what in (level, share):
            if isinstance(value, str):
                require_choice(name, value, ("auto",), hint="Or a number in [0, 1], or None.")
            elif value is not None:
                require_range(name, value, low=0, high=1, low_open=name == "min_share", hint=f"It is {what}.")
        self.merge_threshold, self.similarity, self.min_share = merge_threshold, similarity, min_share
        self.lookahead = require_range("lookahead", lookahead, low=1, high=64, integer=True)
        if max_states is not None:
            require_range("max_states", max_states, low=1, integer=True)
        self.max_states = max_states
        self.on_repeat = require_choice("on_repeat", on_repeat, ("join", "keep"))
        self.merge_history: list[Merge] = []
        self.threshold: float | None = None
        self._automaton: Automaton | None = None
        self._training: dict[str, list[tuple[str, ...]]] = {}
        self._texts: dict[str, list[str]] = {}
        self._joined: list[tuple[tuple[str, int], tuple[str, int]]] = []

    @classmethod
    def paper(cls) -> "DialogueDFA":
        """The settings of the paper: τ = 5, φ_sim, λ = 0.1 (Section 3, steps 2 and 3)."""
        return cls(min_support=5, merge_threshold=0.1, similarity="paper")

    # --- learning ---

    def fit(self, dialogues: Iterable[Dialogue]) -> "DialogueDFA":
        """Learn the automaton. The order of the dialogues does not matter. Warns if no turn has a tag.

        Raises:
            ValueError: no dialogues, two equal ids, a dialogue without a user turn, or `max_states` is out of reach.
        """
        self._training, self._texts, self._joined = {}, {}, []
        self._take(check_dialogues(dialogues))
        self._learn()
        return self

    def partial_fit(self, dialogues: Iterable[Dialogue]) -> "DialogueDFA":
        """Learn from more dialogues: the result is that of `fit` on all seen so far, with names and edits kept.

        A state keeps the name, and whether it is forbidden, of the old state that it shares most visits with.

        Raises:
            ValueError: as `fit`, or an id was seen before.
        """
        found = check_dialogues(dialogues)
        if self._automaton is None:
            return self.fit(found)
        if known := [dialogue.id for dialogue in found if dialogue.id in self._training]:
            raise ValueError(f"ids must be new, got {known[0]!r} again ({len(known)} in all). Give them other ids.")
        old = self._automaton
        self._take(found)
        self._learn()
        self._automaton = editing.carry_over(old, self.automaton)
        for kept, gone in self._joined:
            pair = editing.entry_at(self.automaton, *kept), editing.entry_at(self.automaton, *gone)
            if pair[0] != pair[1]:
                pair = sorted(pair, key=lambda q: self.name(q) not in old.names)  # the name that was there stays
                self._automaton = editing.join(self.automaton, *pair)
        return self

    def _take(self, dialogues: Iterable[Dialogue]) -> None:
        for dialogue in dialogues:
            rounds = align(dialogue, self.on_repeat)
            self._training[dialogue.id] = [part.tags for part in rounds]
            self._texts[dialogue.id] = [part.text for part in rounds]

    def _learn(self) -> None:
        threshold = self.merge_threshold
        if threshold == "auto":
            threshold = 0.6 if callable(self.similarity) else THRESHOLDS[self.similarity]
        level = None if threshold is None else float(threshold)
        share = self.min_share
        if isinstance(share, str):
            share = None if self.similarity == "paper" else SHARE
        how = Settings(self.min_support, share, level, self.similarity, self.lookahead, self.max_states)
        self._automaton, self.merge_history, self.threshold = learn(self._training, self._texts, how)

    # --- looking ---

    @property
    def automaton(self) -> Automaton:
        """The lists behind it (Section 3).

        Raises:
            ValueError: before `fit`.
        """
        if self._automaton is None:
            raise ValueError("the automaton must be fitted first, got one without states. Call fit(dialogues).")
        return self._automaton

    @property
    def states(self) -> list[int]:
        """Q, numbered breadth first; the start is 0."""
        return list(range(len(self.automaton)))

    @property
    def start(self) -> int:
        """q0."""
        return 0

    @property
    def accepting(self) -> set[int]:
        """F: states where training dialogues end."""
        return {q for q, ends in enumerate(self.automaton.ends) if len(ends)}

    @property
    def tags(self) -> list[str]:
        """Σ, in lexicographic order, without the end of a turn."""
        return list(self.automaton.tags)

    @property
    def transitions(self) -> dict[tuple[int, str | None], int]:
        """δ: (state, tag) -> state; the tag None is the end of a turn."""
        tags = [None, *self.automaton.tags]
        return {(q, tags[t]): c for q, edges in enumerate(self.automaton.children) for t, c in edges.items()}

    @property
    def dialogue_ids(self) -> list[str]:
        """Ids of the training dialogues, sorted."""
        return list(self.automaton.dialogues)

    def _known(self, state: int) -> int:
        return require_range("state", state, low=0, high=len(self.automaton) - 1, integer=True)

    def ids(self, state: int) -> set[str]:
        """I(q): ids of the training dialogues that pass through a state."""
        found = self.automaton.visits[self._known(state)][:, 0]
        return {self.automaton.dialogues[k] for k in found.tolist()}

    def visits(self, state: int) -> np.ndarray:
        """(k, 2) pairs (place of the dialogue in `dialogue_ids`, round) of the passes through a state."""
        return self.automaton.visits[self._known(state)]

    def role(self, state: int) -> str:
        """Whose turn it is in a state: "user" or "system"."""
        return self.automaton.roles[self._known(state)]

    def is_entry(self, state: int) -> bool:
        """Whether a turn begins in a state."""
        return self.automaton.entry[self._known(state)]

    def name(self, state: int) -> str:
        """The name of a state."""
        return self.automaton.names[self._known(state)]

    def state(self, name: str) -> int:
        """The state of a name.

        Raises:
            ValueError: if there is none.
        """
        return self.automaton.names.index(require_choice("state name", name, self.automaton.names))

    def explain(self, state: int) -> Explanation:
        """Name, support, next tags with their shares, and utterances of a state."""
        return describing.explain(self.automaton, self._known(state))

    def next_action_distribution(self, state: int) -> dict[tuple[str, ...], float]:
        """Sets of tags of the turn that begins in a state, with their shares among the training dialogues."""
        return describing.turn_shares(self.automaton, self._known(state))

    def allowed_acts(self, state: int) -> set[str]:
        """Tags that may occur in the turn that begins in a state: the guardrail of the answer."""
        return {tag for word in self.next_action_distribution(state) for tag in word}

    def summary(self) -> str:
        """A few lines: sizes by role, dialogues, τ and λ, merges, the states most dialogues pass."""
        how = f"min_support {self.min_support}, threshold {self.threshold}, {len(self.merge_history)} merges"
        return describing.summary(self.automaton, how)

    # --- walking ---

    def step(self, state: int, tags: Iterable[str], role: str | None = None) -> StepResult:
        """Follow one turn: again and again the tag with the largest |I(δ(q, t))| (ties lexicographic), then ⊣.

        If nothing can be followed the state stays: δ(q, u) = ∅ returns to the last valid state (Section 3, step 4).

        Args:
            state: where the conversation is.
            tags: of the turn, in any order.
            role: who speaks; a turn of the other side than the state's cannot be followed.
        """
        if role is not None:
            require_choice("role", role, ROLES)
        return walking.step(self.automaton, self._known(state), normalise_tags(tags), role)

    def accepts(self, turns: Iterable[Iterable[str]]) -> bool:
        """Whether some order of the tags inside each turn leads from the start to an accepting state.

        Args:
            turns: the tags of each turn, the user's first; every tag must be consumed.
        """
        return walking.accepts(self.automaton, [normalise_tags(tags) for tags in turns])

    # --- editing ---

    def rename(self, state: int, name: str) -> "DialogueDFA":
        """Name a state.

        Raises:
            ValueError: if another state has the name, or it is empty.
        """
        self._automaton = editing.rename(self.automaton, self._known(state), name)
        return self

    def forbid(self, *states: int) -> "DialogueDFA":
        """Take away all edges into these states: neither walks nor guardrails enter them any more.

        Raises:
            ValueError: if one is the start.
        """
        self._automaton = editing.forbid(self.automaton, [self._known(q) for q in states])
        return self

    def merge_states(self, state: int, other: int) -> "DialogueDFA":
        """Make two entry states of one role one state, folding what lies behind; the first one's name stays.

        Raises:
            ValueError: if their roles differ, or one is no entry state.
        """
        places = (editing.first_visit(self.automaton, self._known(q)) for q in (state, other))
        pair = (next(places), next(places))
        self._automaton = editing.join(self.automaton, state, other)
        self._joined.append(pair)
        return self

    def diff(self, other: "DialogueDFA") -> editing.Difference:
        """Walk both automata side by side and list edges that only one has, and shares that moved."""
        return editing.difference(self.automaton, other.automaton)

    # --- exchange ---

    def to_networkx(self) -> "networkx.MultiDiGraph":
        """A `networkx.MultiDiGraph`: nodes carry name, role, support …, edges tag (None: end of turn) and passes."""
        return export.to_networkx(state.document(self))

    @classmethod
    def from_networkx(cls, graph: "networkx.MultiDiGraph") -> "DialogueDFA":
        """The automaton of a graph that `to_networkx` made (and that may have been edited)."""
        return state.from_document(cls(), export.from_networkx(graph), "graph")

    def to_dot(self, path: str | Path | None = None) -> str:
        """Graphviz source (user states blue, system states green, width = support); written to `path` if given."""
        return export.written(export.dot(self.automaton), path)

    def to_mermaid(self, path: str | Path | None = None) -> str:
        """Mermaid flowchart source; written to `path` if given."""
        return export.written(export.mermaid(self.automaton), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """All of it as JSON that a person can edit (name, forbidden, merge_into of a state); see `from_json`."""
        return export.written(state.to_json(self), path)

    @classmethod
    def from_json(cls, source: str | Path) -> "DialogueDFA":
        """Read what `to_json` wrote, a path or the text itself, and apply the edits in it.

        Raises:
            ValueError: naming the file and the field, if it is not of the format or not deterministic.
        """
        return state.from_json(cls(), source)

    def save(self, path: str | Path) -> Path:
        """Write `<path>.safetensors`, and `<path>.json` to read, not to edit (see `to_json`); returns the former.

        Utterances other than the three examples of each state are not saved.
        """
        return state.save(self, path)

    @classmethod
    def load(cls, path: str | Path) -> "DialogueDFA":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is damaged or of another method.
        """
        return state.load(cls(), path)

    def copy(self) -> "DialogueDFA":
        """An independent copy."""
        return copy.deepcopy(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DialogueDFA) and state.document(self) == state.document(other)

    __hash__ = None  # it can be edited
