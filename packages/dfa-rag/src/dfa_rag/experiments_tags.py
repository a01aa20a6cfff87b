"""What the automaton adds to its tags: the router against retrieval that reads the same tags (Section 4)."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from offprints.seeding import spawn

from dfa_rag.data import Dialogue, Round
from dfa_rag.dfa import DialogueDFA
from dfa_rag.experiments import Metrics, Retriever, precisions, simulated
from dfa_rag.retrieval import DenseRetriever
from dfa_rag.router import DFARouter


class TagRetriever(DenseRetriever):
    """TF-IDF over the tags of history and last turn: what the automaton knows, without the automaton (Section 4).

    Args:
        dialogues: training dialogues.
        examples: how many to show.
        texts: add the cosines of the texts.
    """

    def __init__(self, dialogues: Sequence[Dialogue], examples: int, texts: bool) -> None:
        super().__init__(dialogues, examples)
        told = [replace(d, turns=tuple(replace(t, text=_as_words(t.tags)) for t in d.turns)) for d in dialogues]
        self.tags, self.with_texts = DenseRetriever(told, examples), texts

    def _scores(self, rounds: Sequence[Round]) -> np.ndarray:
        scores = self.tags._scores([part._replace(text=_as_words(part.tags)) for part in rounds])
        return scores + super()._scores(rounds) if self.with_texts else scores


def _as_words(tags: Sequence[str]) -> str:
    return " ".join(re.sub(r"\W", "_", tag) for tag in tags)


def tags_alone(seed: int, graphs: Sequence[int], train: int, test: int) -> Metrics:
    """Precision@5 of state and hybrid, and of TF-IDF over tags, and over tags and texts; support flow and graphs."""
    found: Metrics = {}
    for noise in (0.0, 0.1):
        flows: list[tuple[str, int | str, int]] = [("support", "support", seed)]
        flows += [("graphs", size, own) for size, own in zip(graphs, spawn(seed, len(graphs)), strict=True)]
        rows: dict[str, list[float]] = {}
        for label, flow, own in flows:
            dialogues = simulated(flow, own, train + test, noise)
            learn, held = dialogues[:train], dialogues[train:]
            dfa = DialogueDFA().fit(learn)
            sides: dict[str, Retriever] = {
                "dfa": DFARouter(dfa, learn, 5, "random"), "hybrid": DFARouter(dfa, learn),
                "tags": TagRetriever(learn, 5, False), "tags_texts": TagRetriever(learn, 5, True),
            }  # fmt: skip
            for name, value in precisions(sides, learn, held, 5).items():
                rows.setdefault(f"{label}_{name}_{noise:g}", []).append(value)
        found |= {name: float(np.mean(values)) for name, values in rows.items() if "copy_" not in name}
    return found
