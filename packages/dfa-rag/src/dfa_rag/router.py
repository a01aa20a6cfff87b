"""The router (Section 3, step 4): follow the conversation through the automaton, show dialogues from the same state."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from offprints.checks import require_choice, require_kind, require_range

from dfa_rag.belief import Belief, BeliefTracker
from dfa_rag.data import SYSTEM, Dialogue, Round, Turn
from dfa_rag.dfa import DialogueDFA
from dfa_rag.retrieval import (
    BM25Retriever,
    CosineIndex,
    Encoder,
    Example,
    Points,
    Route,
    best,
    conversation_rounds,
    dice,
    said,
)


class Position(NamedTuple):
    """Where a conversation is (Section 3, step 4).

    The state, the path that led there, whether the last turn could not be followed, and the belief (None when one path
    is walked).
    """

    state: int
    path: tuple[int, ...]
    fell_back: bool
    belief: Belief | None


class DFARouter:
    """Routes a conversation to a state and picks training dialogues that passed through it (Section 3, step 4).

    `retriever="random"` draws from I(state), as the paper does. "hybrid" ranks all places where the system answers by
    w₁ · P(state of the place) + w₂ · cos(history) + w₃ · cos(last utterance); "dense" and "bm25" rank the places of the
    state by text alone. P is 0 or 1 with tracking "greedy" (the paper's walk), the belief with tracking "belief".

    Args:
        dfa: a fitted automaton.
        dialogues: the tagged dialogues it was fitted on (or some of them).
        examples: how many to show (5 in the paper).
        retriever: "hybrid", "random", "dense" or "bm25".
        tracking: "belief" or "greedy".
        weights: of state, history and last utterance in "hybrid".
        encoder: texts -> vectors for the cosines; None is TF-IDF.
        seed: with the conversation, decides random draws.
        drop: see `BeliefTracker`.
        insert: see `BeliefTracker`.

    Raises:
        TypeError, ValueError: an argument is of another kind or out of range, or a dialogue is not among the
            automaton's.
    """

    def __init__(
        self,
        dfa: DialogueDFA,
        dialogues: Iterable[Dialogue],
        examples: int = 5,
        retriever: str = "hybrid",
        tracking: str = "belief",
        weights: tuple[float, float, float] = (1.0, 1.0, 1.0),
        encoder: Encoder | None = None,
        seed: int = 0,
        drop: float = 0.1,
        insert: float = 0.1,
    ) -> None:
        require_kind("dfa", dfa, DialogueDFA)
        self.dfa = dfa
        self.examples = require_range("examples", examples, low=0, integer=True)
        self.retriever = require_choice("retriever", retriever, ("hybrid", "random", "dense", "bm25"))
        self.tracking = require_choice("tracking", tracking, ("belief", "greedy"))
        self.seed = require_range("seed", seed, low=0, integer=True)
        if len(weights) != 3:
            raise ValueError(f"weights must be three numbers (state, history, last utterance), got {len(weights)}.")
        self.weights = tuple(float(require_range("a weight", weight, low=0)) for weight in weights)
        self.points = Points(dialogues, dfa.on_repeat)
        self._place_states()
        self.tracker = BeliefTracker(dfa, drop, insert) if tracking == "belief" else None
        self._bm25: BM25Retriever | None = None
        if retriever in ("hybrid", "dense"):
            self._history = CosineIndex(self.points.texts("history"), encoder)
            self._last = CosineIndex(self.points.texts("last"), encoder)
        elif retriever == "bm25":
            self._bm25 = BM25Retriever(self.points.dialogues, examples)

    @classmethod
    def paper(cls, dfa: DialogueDFA, dialogues: Iterable[Dialogue], seed: int = 0) -> "DFARouter":
        """The paper's router (Section 3, step 4): one path, five random dialogues of the state."""
        return cls(dfa, dialogues, 5, "random", "greedy", seed=seed)

    def _place_states(self) -> None:
        """The entry states of each point, before the user turn and after it, as they were tracked when fitting."""
        known = {name: k for k, name in enumerate(self.dfa.dialogue_ids)}
        unknown = [dialogue.id for dialogue in self.points.dialogues if dialogue.id not in known]
        if unknown:
            raise ValueError(
                f"dialogues must be those that the automaton was fitted on, got {len(unknown)} others, the first "
                f"{unknown[0]!r}. Add them with dfa.partial_fit."
            )
        entries = {
            (k, place): q for q in self.dfa.states if self.dfa.is_entry(q) for k, place in self.dfa.visits(q).tolist()
        }
        number = [known[dialogue.id] for dialogue in self.points.dialogues]
        after = [entries.get((number[k], r), -1) for k, r in self.points.place]
        before = [entries.get((number[k], r - 1), -1) for k, r in self.points.place]
        if -1 in after:
            name = self.points.dialogues[self.points.place[after.index(-1)][0]].id
            raise ValueError(
                f"dialogue {name!r} must be as it was when the automaton was fitted, got more turns. Fit again."
            )
        self.after, self.before = np.array(after), np.array(before)

    # --- following ---

    def start(self) -> Position:
        """Before the first turn."""
        return Position(self.dfa.start, (self.dfa.start,), False, self.tracker.start() if self.tracker else None)

    def advance(self, position: Position, tags: Iterable[str], role: str) -> Position:
        """Follow one turn."""
        if self.tracker is None or position.belief is None:
            result = self.dfa.step(position.state, tags, role)
            return Position(result.state, (*position.path, result.state), result.fell_back, None)
        belief = self.tracker.advance(position.belief, tags, role)
        best = belief.best()
        state = position.state if best < 0 else best
        return Position(state, (*position.path, state), belief.off_path > 0.5, belief)

    def follow(self, conversation: Sequence[Turn] | Sequence[Round]) -> Position:
        """The position after a whole conversation."""
        position = self.start()
        for turn in conversation:
            position = self.advance(position, turn.tags, turn.role)
        return position

    def allowed_acts(self, position: Position, share: float = 0.0) -> dict[str, float]:
        """Tags that the system's next turn may carry, with the chance that it does: the guardrail of the answer.

        Args:
            position: after a user turn.
            share: leave out tags with a smaller chance.

        Returns:
            Tag -> chance, the greatest first; nothing where the automaton has no opinion (a user state).
        """
        weights = [(position.state, 1.0)]
        if position.belief is not None:
            weights = list(zip(position.belief.states, position.belief.weights, strict=True))
        found: dict[str, float] = {}
        for state, weight in weights:
            if self.dfa.role(state) == SYSTEM:
                for word, part in self.dfa.next_action_distribution(state).items():
                    for tag in word:
                        found[tag] = found.get(tag, 0.0) + weight * part
        kept = [(tag, chance) for tag, chance in found.items() if chance >= share]
        return dict(sorted(kept, key=lambda pair: (-pair[1], pair[0])))

    # --- retrieving ---

    def route(
        self, conversation: Sequence[Turn], position: Position | None = None, exclude: str | None = None
    ) -> Route:
        """The state of a conversation and the examples to show.

        Args:
            conversation: its turns, tagged; the last one is the user's.
            position: where it is, if that is known already (`advance` turn by turn); else the tags are followed.
            exclude: id of a training dialogue that may not be shown.

        Raises:
            ValueError: if it is empty or ends with the system.
        """
        rounds = conversation_rounds(conversation, self.dfa.on_repeat)
        here = self.follow(rounds) if position is None else position
        chances = self._chances(here)
        hidden = self.points.hidden(exclude) if exclude is not None else np.zeros(len(self.points), dtype=bool)
        if self.retriever == "random":
            examples = self._drawn(here, hidden, rounds)
        else:
            scores = np.where(hidden, -np.inf, self._scores(chances, rounds))
            examples = tuple(self.points.example(k, float(scores[k])) for k in best(scores, self.examples))
        belief = ((here.state, 1.0),)
        if here.belief is not None:
            pairs = [*zip(here.belief.states, here.belief.weights, strict=True), *here.belief.aside]
            belief = tuple(sorted(pairs, key=lambda pair: -pair[1]))
        return Route(here.state, here.path, examples, here.fell_back, belief)

    def _chances(self, here: Position) -> np.ndarray:
        """(points,) probability that a point lies in the state of the conversation."""
        if here.belief is None:
            states = self.after if self.dfa.role(here.state) == SYSTEM else self.before
            return (states == here.state).astype(float)
        table = np.zeros(len(self.dfa.automaton))
        table[list(here.belief.states)] = here.belief.weights
        beside = np.zeros(len(table))
        for state, weight in here.belief.aside:
            beside[state] = weight
        return table[self.after] + beside[self.before]

    def _scores(self, chances: np.ndarray, rounds: Sequence[Round]) -> np.ndarray:
        if self._bm25 is not None:
            texts = self._bm25._scores(rounds)
        else:
            history, last = (self._history, "history"), (self._last, "last")
            parts = [index.scores(said(rounds, kind)) for index, kind in (history, last)]
            if self.retriever == "hybrid":
                state, *rest = self.weights
                return state * chances + rest[0] * parts[0] + rest[1] * parts[1]
            texts = parts[0] + parts[1]
        top = chances.max()
        return np.where((chances == top) & (top > 0), texts, -np.inf)

    def _drawn(self, here: Position, hidden: np.ndarray, rounds: Sequence[Round]) -> tuple[Example, ...]:
        """Up to `examples` dialogues of I(state), drawn without repeats; each at its first pass through the state."""
        states = self.after if self.dfa.role(here.state) == SYSTEM else self.before
        first: dict[int, int] = {}
        for point in np.flatnonzero((states == here.state) & ~hidden).tolist():
            first.setdefault(self.points.place[point][0], point)
        dialogues = sorted(first, key=lambda k: self.points.dialogues[k].id)
        order = dice(self.seed, rounds).permutation(len(dialogues))[: self.examples]
        return tuple(self.points.example(first[dialogues[k]]) for k in order.tolist())
