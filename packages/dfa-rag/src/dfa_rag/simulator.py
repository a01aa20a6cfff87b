"""Workflow dialogues from a graph, where no log can be had: the support flow, and random graphs of any size.

Each stage answers user tags with a system act and leads to the next stage, as the workflows of the paper's Section 1
do; the same short answers ("yes", "no") need other acts in other stages.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from offprints.checks import require_choice, require_range
from offprints.seeding import rng, spawn

from dfa_rag.data import SYSTEM, USER, Dialogue, Turn

END = "end"
Flow = Mapping[str, Mapping[str, tuple[str, str]]]
"""stage -> user tag -> (system act, next stage); the start is the first stage, "end" the last."""

SUPPORT: Flow = {
    "start": {"battery": ("ask_update", "b1"), "screen": ("ask_warranty", "s1"), "refund": ("ask_order", "r1")},
    "b1": {"yes": ("ask_store", "b2"), "no": ("send_steps", "b3"), "tried": ("ask_store", "b2")},
    "b2": {"yes": ("book", END), "no": ("escalate", END)},
    "b3": {"tried": ("ask_store", "b2"), "thanks": ("close", END)},
    "s1": {"warranty": ("free_repair", "s2"), "old": ("paid_repair", "s3")},
    "s2": {"yes": ("book", END), "thanks": ("close", END)},
    "s3": {"yes": ("book", END), "no": ("escalate", END)},
    "r1": {"order": ("confirm_refund", "r2")},
    "r2": {"yes": ("refund_done", "r3"), "no": ("escalate", END)},
    "r3": {"thanks": ("close", END)},
}

SUPPORT_TEXTS: Mapping[str, Sequence[str]] = {
    "battery": ("my phone battery dies within an hour", "the battery drains far too fast", "battery is empty by noon"),
    "screen": ("the screen is cracked", "my display broke yesterday", "there is a crack across the screen"),
    "refund": ("I want my money back", "please refund my purchase", "how do I get a refund"),
    "yes": ("yes", "yes please", "sure, that works", "yeah"),
    "no": ("no", "no thanks", "not really", "nope"),
    "tried": ("I already tried that", "did that, no change", "that did not help"),
    "thanks": ("thanks a lot", "great, thank you", "perfect, bye"),
    "warranty": ("it is still under warranty", "bought it two months ago, there is warranty"),
    "old": ("I have had it for four years", "it is quite old, no warranty any more"),
    "order": ("the order number is 5512", "here it is: order 90417", "my order is 7731"),
    "ask_update": ("Have you installed the latest update?", "Is your phone on the newest software version?"),
    "ask_warranty": ("Is the phone still under warranty?", "When did you buy it, is there warranty left?"),
    "ask_order": ("Could you give me your order number?", "What is the number of your order?"),
    "ask_store": ("Shall I book a visit to the nearest store?", "Would a store appointment suit you?"),
    "send_steps": ("Please install the update with these steps and tell me.", "Here are the steps to update it."),
    "book": ("Done, your appointment is booked.", "I have booked a slot for you."),
    "escalate": ("I pass you on to a colleague.", "A specialist will call you."),
    "close": ("You are welcome. Goodbye!", "Glad to help, have a good day."),
    "free_repair": ("The repair is free then. Shall I book it?", "Good, that is covered. Book a repair?"),
    "paid_repair": ("A repair would cost 120. Do you want it?", "That costs 120, shall we go ahead?"),
    "confirm_refund": ("I found it. Refund to the original card?", "Shall I send the money to the same card?"),
    "refund_done": ("The refund is on its way.", "I have issued the refund."),
}


@dataclass(frozen=True)
class WorkflowSimulator:
    """Dialogues of a workflow (Section 1 of the paper), with noisy tags and paraphrased texts.

    A walk from the first stage to the end: a user tag is drawn uniformly, the act follows from it. A turn's tag is
    dropped with probability `tag_noise`; a user turn gets, with the same probability, a wrong tag beside it.

    Attributes:
        flow: stage -> user tag -> (system act, next stage).
        seed: of the draws; dialogue k of a seed is always the same.
        tag_noise: p of the two faults.
        texts: tag or act -> paraphrases.
        longest: user turns after which a walk is cut (workflows may have cycles).

    Raises:
        ValueError: if the noise is no probability, a next stage is unknown, or a tag has no text.
    """

    flow: Flow | str = "support"
    seed: int = 0
    tag_noise: float = 0.0
    texts: Mapping[str, Sequence[str]] | None = None
    longest: int = 30

    def __post_init__(self) -> None:
        require_range("tag_noise", self.tag_noise, low=0, high=1)
        require_range("longest", self.longest, low=1, integer=True)
        if isinstance(self.flow, str):
            require_choice("flow", self.flow, ("support",))
            object.__setattr__(self, "flow", SUPPORT)
            object.__setattr__(self, "texts", self.texts or SUPPORT_TEXTS)
        stages = self.stages
        if not stages or any(not answers for answers in stages.values()):
            raise ValueError("flow must have a stage, and each stage a user tag, got one without.")
        texts = self.texts or {}
        for stage, answers in stages.items():
            for tag, (act, following) in answers.items():
                if following != END:
                    require_choice(f"the stage after {stage!r}, {tag!r}", following, stages)
                for name in (tag, act):
                    if not texts.get(name):
                        raise ValueError(f"texts must have a paraphrase of {name!r}, got none.")

    @property
    def stages(self) -> Flow:
        """The workflow itself."""
        return SUPPORT if isinstance(self.flow, str) else self.flow

    def sample(self, n: int, prefix: str = "d") -> list[Dialogue]:
        """N dialogues with ids prefix0, …; `meta["acts"]` holds the true tag or act of each turn.

        Raises:
            ValueError: if n is negative.
        """
        require_range("n", n, low=0, integer=True)
        return [self._walk(rng(seed), f"{prefix}{k}") for k, seed in enumerate(spawn(self.seed, n))]

    def _walk(self, gen: np.random.Generator, name: str) -> Dialogue:
        stages, texts = self.stages, self.texts or {}
        every = sorted({tag for answers in stages.values() for tag in answers})
        stage, turns, truth = next(iter(stages)), [], []
        while stage != END and len(turns) < 2 * self.longest:
            options = sorted(stages[stage])
            tag = options[gen.integers(len(options))]
            act, following = stages[stage][tag]
            for role, said in ((USER, tag), (SYSTEM, act)):
                paraphrases = texts[said]
                kept = {said} if gen.random() >= self.tag_noise else set()
                if role == USER and gen.random() < self.tag_noise:
                    wrong = [other for other in every if other != said]
                    kept.add(wrong[gen.integers(len(wrong))] if wrong else said)
                turns.append(Turn(role, paraphrases[int(gen.integers(len(paraphrases)))], tuple(kept)))
                truth.append(said)
            stage = following
        return Dialogue(name, tuple(turns), {"acts": truth})


_ANSWERS = ("yes", "no", "done", "other", "thanks", "later")
_ANSWER_TEXTS = {
    "yes": ("yes", "yes please", "sure", "okay"), "no": ("no", "no thanks", "rather not"),
    "done": ("I did that", "it is done", "that worked"), "other": ("something else", "can I have another one"),
    "thanks": ("thank you", "thanks"), "later": ("maybe later", "not now"),
}  # fmt: skip
_TOPICS = ("parcel", "invoice", "password", "router", "booking", "meter", "card", "contract", "heating", "ticket",
           "licence", "visa", "loan", "locker", "dentist", "lesson", "garden", "camera", "ferry", "museum",
           "scooter", "printer", "vaccine", "passport", "piano")  # fmt: skip
_ACTS = ("check", "offer", "ask", "send", "explain", "confirm", "forward", "cancel", "repair", "replace")


def random_workflow(states: int, seed: int) -> tuple[Flow, dict[str, list[str]]]:
    """A random workflow and its texts: topics open it, and all later stages share six generic answers (Section 1).

    Stages 1, …, states - 1 form a tree with some edges back, so that walks end and may loop; each has two to four of
    the generic answers, each answer its own act and next stage (half of the others lead to the end).

    Args:
        states: number of stages, at least 4.
        seed: of the draws.

    Raises:
        ValueError: if there are fewer than 4 stages, or more than topics and acts can name (250).
    """
    require_range("states", states, low=4, high=250, integer=True)
    gen = rng(seed)
    topics = [_TOPICS[k] for k in gen.permutation(len(_TOPICS))]
    opening = min(len(topics), max(2, states // 4))
    names = ["start", *(f"q{k}" for k in range(1, states))]
    acts = [f"{act}-{topic}" for topic in topics for act in _ACTS]
    acts = [acts[k] for k in gen.permutation(len(acts))]
    flow: dict[str, dict[str, tuple[str, str]]] = {name: {} for name in names}
    for k in range(1, states):
        parents = [0] if k <= opening else [p for p in range(1, k) if len(flow[names[p]]) < 3] or [k - 1]
        parent = names[parents[gen.integers(len(parents))]]
        free = [word for word in (topics if parent == "start" else _ANSWERS) if word not in flow[parent]]
        word = free[0] if parent == "start" else free[gen.integers(len(free))]
        flow[parent][word] = (acts.pop(), names[k])
    for k in range(1, states):
        answers = flow[names[k]]
        for word in [_ANSWERS[j] for j in gen.permutation(len(_ANSWERS))][: 4 - len(answers)]:
            if word not in answers and (len(answers) < 2 or gen.random() < 0.5):
                back = gen.random() < 0.3 and any(following != END for _, following in answers.values())
                following = names[gen.integers(1, states)] if back else END
                answers[word] = (acts.pop() if len(acts) else f"end-{names[k]}-{word}", following)
    texts = {word: list(said) for word, said in _ANSWER_TEXTS.items()}
    for topic in topics:
        texts[topic] = [f"I have a question about my {topic}", f"there is a problem with the {topic}", f"my {topic}"]
    for answers in flow.values():
        for act, _ in answers.values():
            verb, _, topic = act.partition("-")
            texts[act] = [f"Let me {verb} the {topic} for you.", f"I will {verb} your {topic} now, is that fine?"]
    return flow, texts
