"""Examples and the retrievers that need no automaton: random, BM25 and dense (the baselines of Section 4)."""

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from offprints.checks import require_choice, require_finite, require_range, require_shape
from offprints.seeding import rng

from dfa_rag.data import SYSTEM, USER, Dialogue, Round, Turn, align, check_dialogues

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import CountVectorizer

Encoder = Callable[[Sequence[str]], np.ndarray]
"""Texts -> (texts, dimensions) vectors; cosines are taken."""
WORDS = r"(?u)\b\w+\b"


@dataclass(frozen=True)
class Example:
    """A training dialogue up to the system turn that answers where the conversation stands (Section 3, step 4).

    Attributes:
        dialogue_id: of the training dialogue.
        place: the round of that system turn, counted from 0.
        rounds: the turns up to and including it; none behind it.
        score: what it was ranked by; 0 for a random draw.
    """

    dialogue_id: str
    place: int
    rounds: tuple[Round, ...]
    score: float = 0.0

    @property
    def answer(self) -> Round:
        """The system turn itself."""
        return self.rounds[-1]


@dataclass(frozen=True)
class Route:
    """What a retriever gives for a conversation (Section 3, step 4).

    Attributes:
        state: the state after the last turn; None for retrievers without an automaton.
        path: states from the start, one more than turns.
        examples: the best first.
        fallback: the last turn could not be followed.
        belief: state -> probability, the greatest first; the state alone if one path is walked.
    """

    state: int | None
    path: tuple[int, ...]
    examples: tuple[Example, ...]
    fallback: bool = False
    belief: tuple[tuple[int, float], ...] = ()


class Points:
    """All places of the training dialogues where the system answers (system rounds), with their texts (Section 3)."""

    def __init__(self, dialogues: Iterable[Dialogue], on_repeat: str = "join") -> None:
        self.dialogues = check_dialogues(dialogues)
        self.rounds = [align(dialogue, on_repeat) for dialogue in self.dialogues]
        self.place = [
            (k, r)
            for k, rounds in enumerate(self.rounds)
            for r in range(1, len(rounds), 2)
            if rounds[r].turns  # not those that alignment put in
        ]
        if not self.place:
            raise ValueError("dialogues must hold a system turn that answers, got none. Nothing could be shown.")

    def __len__(self) -> int:
        return len(self.place)

    def example(self, point: int, score: float = 0.0) -> Example:
        """The example of one point."""
        k, r = self.place[point]
        return Example(self.dialogues[k].id, r, self.rounds[k][: r + 1], score)

    def texts(self, query: str) -> list[str]:
        """The last user utterance, or all turns before the answer, of each point."""
        return [said(self.rounds[k][:r], query) for k, r in self.place]

    def hidden(self, exclude: str | None) -> np.ndarray:
        """(points,) whether a point belongs to the dialogue `exclude`."""
        return np.array([self.dialogues[k].id == exclude for k, _ in self.place])


def said(rounds: Sequence[Round], query: str) -> str:
    """The text that a conversation is searched by: its last user utterance, or its history."""
    if query == "last":
        return next((part.text for part in reversed(rounds) if part.role == USER), "")
    return "\n".join(part.text for part in rounds if part.text)


def conversation_rounds(conversation: Sequence[Turn], on_repeat: str = "join") -> tuple[Round, ...]:
    """The rounds of a live conversation, which must end with the user.

    Raises:
        ValueError: if it is empty or ends with the system.
    """
    rounds = align(conversation, on_repeat)
    if not rounds or rounds[-1].role == SYSTEM:
        raise ValueError(
            "conversation must end with a user turn (there is something to answer), got one that does not."
        )
    return rounds


def dice(seed: int, rounds: Sequence[Round]) -> np.random.Generator:
    """A generator that depends on the seed and the conversation alone."""
    text = "\n".join(f"{part.role}: {part.text} {part.tags}" for part in rounds)
    return rng(seed + zlib.crc32(text.encode()))


def best(scores: np.ndarray, examples: int) -> list[int]:
    """Places of the greatest scores, ties by place; −inf is left out."""
    if examples < len(scores):
        floor = np.partition(scores, -examples)[-examples]
        candidates = np.flatnonzero(scores >= floor)
    else:
        candidates = np.arange(len(scores))
    order = candidates[np.argsort(-scores[candidates], kind="stable")][:examples]
    return [k for k in order.tolist() if np.isfinite(scores[k])]


class CosineIndex:
    """Cosines of a query with many texts (retrieval as in Section 4).

    TF-IDF words take one sparse product, an encoder's vectors one dense one.
    """

    def __init__(self, texts: Sequence[str], encoder: Encoder | None = None) -> None:
        self.encoder = encoder
        if encoder is not None:
            self._matrix: Any = encoded(encoder, texts)
            return
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._vectorizer: Any = TfidfVectorizer(token_pattern=WORDS, dtype=np.float64)
        try:
            self._matrix = self._vectorizer.fit_transform(texts)
        except ValueError:  # no text holds a word: nothing is similar
            self._vectorizer = None
            self._matrix = np.zeros((len(texts), 1))

    def scores(self, text: str) -> np.ndarray:
        """(texts,) cosines."""
        if self.encoder is not None:
            return self._matrix @ encoded(self.encoder, [text])[0]
        if self._vectorizer is None:
            return np.zeros(len(self._matrix))
        return self._matrix @ self._vectorizer.transform([text]).toarray()[0]


def encoded(encoder: Encoder, texts: Sequence[str]) -> np.ndarray:
    """(texts, dimensions) what an encoder makes of texts, in rows of length one (see `unit_rows`).

    Raises:
        ValueError: if it does not give one finite vector a text.
    """
    vectors = np.asarray(encoder(texts), dtype=np.float64)
    require_shape("the vectors of encoder", vectors, (len(texts), "dimensions"))
    require_finite("the vectors of encoder", vectors)
    return unit_rows(vectors)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """Rows of length one; a zero row stays."""
    vectors = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(norms > 0, norms, 1.0)


class _Retriever:
    """Ranks all points; what the baselines of Section 4 share."""

    def __init__(self, dialogues: Iterable[Dialogue], examples: int, on_repeat: str = "join") -> None:
        self.examples = require_range("examples", examples, low=0, integer=True)
        self.on_repeat = on_repeat
        self.points = Points(dialogues, on_repeat)

    def route(self, conversation: Sequence[Turn], exclude: str | None = None) -> Route:
        """Examples for a conversation.

        Args:
            conversation: its turns; the last one is the user's.
            exclude: id of a training dialogue that may not be shown.

        Raises:
            ValueError: if it is empty or ends with the system.
        """
        rounds = conversation_rounds(conversation, self.on_repeat)
        scores = self._scores(rounds)
        if exclude is not None:
            scores = np.where(self.points.hidden(exclude), -np.inf, scores)
        found = best(scores, self.examples) if self.examples else []
        return Route(None, (), tuple(self.points.example(k, float(scores[k])) for k in found))

    def _scores(self, rounds: Sequence[Round]) -> np.ndarray:
        raise NotImplementedError


class RandomRetriever(_Retriever):
    """Random places of random training dialogues (baseline of Section 4).

    Args:
        dialogues: training dialogues.
        examples: how many to show.
        seed: with the conversation, decides the draw.

    Raises:
        ValueError: no dialogues, or none with a system turn.
    """

    def __init__(self, dialogues: Iterable[Dialogue], examples: int = 5, seed: int = 0) -> None:
        super().__init__(dialogues, examples)
        self.seed = require_range("seed", seed, low=0, integer=True)

    def _scores(self, rounds: Sequence[Round]) -> np.ndarray:
        return dice(self.seed, rounds).permutation(len(self.points)).astype(float)


class DenseRetriever(_Retriever):
    """Cosine of TF-IDF vectors or of an encoder's embeddings (the RAG baseline of Section 4).

    Args:
        dialogues: training dialogues.
        examples: how many to show.
        encoder: texts -> vectors; None is TF-IDF.
        query: "last" user utterance, "history", or "both" (the sum of the two cosines).

    Raises:
        ValueError: no dialogues, none with a system turn, or an unknown query.
    """

    def __init__(
        self, dialogues: Iterable[Dialogue], examples: int = 5, encoder: Encoder | None = None, query: str = "both"
    ) -> None:
        super().__init__(dialogues, examples)
        require_choice("query", query, ("last", "history", "both"))
        self.queries = ("last", "history") if query == "both" else (query,)
        self.indices = [CosineIndex(self.points.texts(kind), encoder) for kind in self.queries]

    def _scores(self, rounds: Sequence[Round]) -> np.ndarray:
        pairs = zip(self.queries, self.indices, strict=True)
        return sum((index.scores(said(rounds, kind)) for kind, index in pairs), np.zeros(len(self.points)))


class BM25Retriever(_Retriever):
    """Okapi BM25 (the sparse baseline of Section 4).

    Score = Σ_{w in query} idf(w) · tf (k₁ + 1) / (tf + k₁ (1 − b + b · length / mean length)). idf(w) is "smooth",
    log(1 + (N − df + ½)/(df + ½)), or "floored", log((N − df + ½)/(df + ½)) with a quarter of the mean idf for words in
    more than half of the texts, where it would be negative (what the library rank-bm25 does: a word that all texts
    share then counts more than one that tells them apart a little).

    Args:
        dialogues: training dialogues.
        examples: how many to show.
        query: "last" user utterance, "history", or "both" (the sum of the two scores).
        k1: saturation of the term frequency.
        b: strength of the length normalisation.
        idf: "smooth" or "floored".

    Raises:
        ValueError: no dialogues, none with a system turn, an unknown query, or parameters out of range.
    """

    def __init__(
        self,
        dialogues: Iterable[Dialogue],
        examples: int = 5,
        query: str = "both",
        k1: float = 1.5,
        b: float = 0.75,
        idf: str = "smooth",
    ) -> None:
        super().__init__(dialogues, examples)
        require_choice("query", query, ("last", "history", "both"))
        require_range("k1", k1, low=0)
        require_range("b", b, low=0, high=1)
        require_choice("idf", idf, ("smooth", "floored"))
        self.queries = ("last", "history") if query == "both" else (query,)
        self._indices: list[Any] = [bm25_matrix(self.points.texts(kind), k1, b, idf) for kind in self.queries]

    def _scores(self, rounds: Sequence[Round]) -> np.ndarray:
        total = np.zeros(len(self.points))
        for kind, (vectorizer, weights) in zip(self.queries, self._indices, strict=True):
            if vectorizer is not None:
                total += weights @ vectorizer.transform([said(rounds, kind)]).toarray()[0]
        return total


def bm25_matrix(
    texts: Sequence[str], k1: float, b: float, idf: str = "smooth"
) -> "tuple[CountVectorizer | None, csr_array | None]":
    """The counting vectorizer and the (texts, words) matrix of BM25 weights; (None, None) where no text has a word."""
    from scipy.sparse import csr_array, diags_array
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer: Any = CountVectorizer(token_pattern=WORDS)
    try:
        counts: Any = csr_array(vectorizer.fit_transform(texts), dtype=float)
    except ValueError:
        return None, None
    lengths = counts.sum(axis=1)
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    odds = (len(texts) - frequency + 0.5) / (frequency + 0.5)
    rarity = np.log1p(odds) if idf == "smooth" else np.log(odds)
    rarity = np.where(rarity < 0, 0.25 * rarity.mean(), rarity)
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    weights = counts.copy()
    weights.data = counts.data * (k1 + 1) / (counts.data + np.repeat(norm, np.diff(counts.indptr)))
    return vectorizer, weights @ diags_array(rarity)
