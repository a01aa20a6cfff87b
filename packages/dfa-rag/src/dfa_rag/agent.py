"""A chat that the automaton keeps on the workflow (Section 3, step 4): route, show examples, answer, tag, advance."""

from collections.abc import Mapping
from dataclasses import dataclass

from offprints.checks import require_choice, require_kind, require_range

from dfa_rag.data import SYSTEM, USER, Turn
from dfa_rag.llms import LLM
from dfa_rag.prompts import ANSWER, Dropped, Prompt, answering_prompt, rough_count
from dfa_rag.retrieval import Example, Route
from dfa_rag.router import DFARouter
from dfa_rag.tags import Tagger


@dataclass(frozen=True)
class Reply:
    """An answer and how it came about (Section 3, step 4).

    Attributes:
        text: what is said.
        state: the state after the answer.
        path: states from the start, one more than turns.
        examples: those in the prompt.
        tags: of the answer.
        user_tags: of the utterance it answers.
        fallback: the utterance could not be followed.
        blocked: the guardrail replaced the model's last answer.
        asked_again: answers that the guardrail refused before this one.
        dropped: what did not fit into the context.
        belief: state -> probability after the user's turn.
    """

    text: str
    state: int
    path: tuple[int, ...]
    examples: tuple[Example, ...]
    tags: tuple[str, ...]
    user_tags: tuple[str, ...]
    fallback: bool
    blocked: bool
    asked_again: int
    dropped: Dropped
    belief: tuple[tuple[int, float], ...]


class ChatAgent:
    """Any language model behind the router (Section 3, step 4).

    The guardrail compares the tags of an answer with what the automaton allows in the state: "off" lets everything
    pass, "reask" asks again with the allowed acts named and then lets pass, "block" asks again and then says
    `blocked_text` instead. It has no opinion where the automaton has none, or where an answer has no tags.

    Args:
        router: the router.
        llm: the language model.
        tagger: tags what the user says and what the model answers.
        guard: "off", "reask" or "block".
        asks: times to ask again.
        show_acts: name the usual next acts, with their shares, in every prompt.
        least_share: acts with a smaller chance count as not allowed.
        persona: what stands on top of the prompt.
        budget: tokens of a prompt; None takes the model's `context`, if it has one.
        blocked_text: said instead of a blocked answer.
        layout: of the prompt, "chat" or "transcript" (see `dfa_rag.prompts.answering_prompt`).

    Raises:
        TypeError, ValueError: an argument is of another kind or out of range.
    """

    def __init__(
        self,
        router: DFARouter,
        llm: LLM,
        tagger: Tagger,
        guard: str = "off",
        asks: int = 1,
        show_acts: bool = False,
        least_share: float = 0.01,
        persona: str = ANSWER,
        budget: int | None = None,
        blocked_text: str = "Let me pass you on to a colleague.",
        layout: str = "chat",
    ) -> None:
        require_kind("router", router, DFARouter)
        self.router, self.llm, self.tagger = router, llm, tagger
        self.guard = require_choice("guard", guard, ("off", "reask", "block"))
        self.asks = require_range("asks", asks, low=0, integer=True)
        self.least_share = require_range("least_share", least_share, low=0, high=1)
        self.layout = require_choice("layout", layout, ("chat", "transcript"))
        self.show_acts, self.persona, self.blocked_text = show_acts, persona, blocked_text
        self.budget = getattr(llm, "context", None) if budget is None else budget
        if self.budget is not None:
            require_range("budget", self.budget, low=1, integer=True)
        self.reset()

    def reset(self) -> None:
        """Begin a new conversation."""
        self.transcript: list[Turn] = []
        self.position = self.router.start()

    def reply(self, text: str) -> Reply:
        """Answer the user; the conversation moves on by two turns.

        Raises:
            TypeError: if `text` is no string.
        """
        require_kind("text", text, str)
        heard = Turn(USER, text, self.tagger.tag_turn(text, USER, tuple(self.transcript)))
        position = self.router.advance(self.position, heard.tags, USER)
        turns = (*self.transcript, heard)
        route = self.router.route(turns, position)
        allowed = self.router.allowed_acts(position, self.least_share)
        answer, prompt, refused = self._answer(turns, route, allowed)
        blocked = self.guard == "block" and not self._fits(answer, allowed)
        if blocked:
            answer = Turn(SYSTEM, self.blocked_text, self.tagger.tag_turn(self.blocked_text, SYSTEM, turns))
        self.transcript = [*turns, answer]
        self.position = self.router.advance(position, answer.tags, SYSTEM)
        return Reply(
            answer.text, self.position.state, self.position.path, prompt.examples, answer.tags, heard.tags,
            position.fell_back, blocked, refused, prompt.dropped, route.belief,
        )  # fmt: skip

    def _answer(self, turns: tuple[Turn, ...], route: Route, allowed: Mapping[str, float]) -> tuple[Turn, Prompt, int]:
        """The model's answer; asked again while the guardrail refuses it and there are tries left."""
        note, refused = "", 0
        while True:
            prompt = answering_prompt(
                turns, route.examples, allowed if self.show_acts else None, self.persona, note, self.budget,
                getattr(self.llm, "count_tokens", rough_count), self.layout,
            )  # fmt: skip
            said = self.llm.complete(prompt)
            answer = Turn(SYSTEM, said, self.tagger.tag_turn(said, SYSTEM, turns))
            if self.guard == "off" or self._fits(answer, allowed) or refused == self.asks:
                return answer, prompt, refused
            refused += 1
            acts = ", ".join(allowed)
            note = f"Reply as the assistant, with one short message that does one of these: {acts}."

    @staticmethod
    def _fits(answer: Turn, allowed: Mapping[str, float]) -> bool:
        return not allowed or not answer.tags or any(tag in allowed for tag in answer.tags)
