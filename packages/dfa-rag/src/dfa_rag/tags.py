"""Taggers that need no language model: keywords, embeddings of tag descriptions, clusters (step 1 of Section 3)."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from offprints.checks import require_choice, require_range

from dfa_rag.data import ROLES, Dialogue, Turn, check_dialogues, normalise_tag, normalise_tags
from dfa_rag.retrieval import WORDS, Encoder, encoded

Patterns = Mapping[str, Sequence[str | re.Pattern]]


class Tagger(Protocol):
    """What gives an utterance its tags (Section 3, step 1)."""

    def tag_turn(self, text: str, role: str, history: Sequence[Turn]) -> tuple[str, ...]:
        """Tags of one utterance, normalised; `history` are the turns before it."""
        ...


def tag_dialogues(tagger: Tagger, dialogues: Iterable[Dialogue]) -> list[Dialogue]:
    """The dialogues with the tags that a tagger gives each turn, seeing those before it (Section 3, step 1)."""
    found = []
    for dialogue in dialogues:
        history: list[Turn] = []
        for turn in dialogue.turns:
            history.append(Turn(turn.role, turn.text, tagger.tag_turn(turn.text, turn.role, tuple(history))))
        found.append(Dialogue(dialogue.id, tuple(history), dialogue.meta))
    return found


class _Tagging:
    """`tag` for taggers."""

    def tag(self: Tagger, dialogues: Iterable[Dialogue]) -> list[Dialogue]:
        """The dialogues with tags for every turn."""
        return tag_dialogues(self, dialogues)


class KeywordTagger(_Tagging):
    """A tag where one of its words or patterns occurs (Section 3, step 1, without a model).

    Args:
        patterns: tag -> whole words and compiled patterns, any case; or "user"/"system" -> such a mapping.
        synonyms: tag -> the tag that stands for it.
        max_tags: keep so many, those found first in the text.

    Raises:
        ValueError: if there are no patterns, or a tag is empty.
    """

    def __init__(
        self,
        patterns: Patterns | Mapping[str, Patterns],
        synonyms: Mapping[str, str] | None = None,
        max_tags: int | None = None,
    ) -> None:
        if not patterns:
            raise ValueError("patterns must hold at least one tag, got none.")
        by_role = set(patterns) <= set(ROLES) and all(isinstance(value, Mapping) for value in patterns.values())
        tables: dict[str, Any] = {role: patterns.get(role, {}) if by_role else patterns for role in ROLES}
        self._patterns = {
            role: [_compiled(tag, words) for tag, words in table.items()] for role, table in tables.items()
        }
        self.synonyms, self.max_tags = dict(synonyms or {}), max_tags

    def tag_turn(self, text: str, role: str, history: Sequence[Turn] = ()) -> tuple[str, ...]:
        """Tags whose words occur."""
        found = []
        for tag, patterns in self._patterns[require_choice("role", role, ROLES)]:
            if matches := [match.start() for pattern in patterns if (match := pattern.search(text))]:
                found.append((min(matches), tag))
        return normalise_tags([tag for _, tag in sorted(found)], self.synonyms, self.max_tags)


def _compiled(tag: str, words: Sequence[str | re.Pattern]) -> tuple[str, list[re.Pattern]]:
    if isinstance(words, str) or not words or not normalise_tag(tag):
        raise ValueError(f"patterns must map each tag to a list of words, got {words!r} for {tag!r}.")
    plain = "|".join(re.escape(word) for word in words if not isinstance(word, re.Pattern))
    own = [re.compile(word.pattern, word.flags | re.IGNORECASE) for word in words if isinstance(word, re.Pattern)]
    return tag, [re.compile(rf"(?<!\w)(?:{plain})(?!\w)", re.IGNORECASE), *own] if plain else own


class EmbeddingTagger(_Tagging):
    """The tags whose description is nearest to the utterance (Section 3, step 1, without a language model).

    Args:
        descriptions: tag -> what it means, or example utterances joined.
        encoder: texts -> vectors; None is TF-IDF over the descriptions.
        threshold: the least cosine.
        max_tags: keep so many, the nearest.

    Raises:
        ValueError: if there are no descriptions, or arguments are out of range.
    """

    def __init__(
        self,
        descriptions: Mapping[str, str],
        encoder: Encoder | None = None,
        threshold: float = 0.3,
        max_tags: int = 1,
    ) -> None:
        if not descriptions:
            raise ValueError("descriptions must hold at least one tag, got none.")
        from dfa_rag.retrieval import CosineIndex

        self.threshold = require_range("threshold", threshold, low=-1, high=1)
        self.max_tags = require_range("max_tags", max_tags, low=1, integer=True)
        self._tags = list(descriptions)
        self._index = CosineIndex(list(descriptions.values()), encoder)

    def tag_turn(self, text: str, role: str, history: Sequence[Turn] = ()) -> tuple[str, ...]:
        """Tags whose cosine reaches the threshold."""
        scores = self._index.scores(text)
        order = np.argsort(-scores, kind="stable")[: self.max_tags]
        return normalise_tags([self._tags[k] for k in order.tolist() if scores[k] >= self.threshold])


class ClusterTagger(_Tagging):
    """k-means over utterance vectors; a tag is its cluster's top TF-IDF term (Section 3, step 1, without labels).

    The clusters of each role are its own.

    Args:
        clusters: clusters a role (fewer, where there are fewer different utterances).
        encoder: texts -> vectors; None is TF-IDF.
        seed: of k-means.

    Raises:
        ValueError: if `clusters` is below 1, or `tag_turn` comes before `fit`.
    """

    def __init__(self, clusters: int = 12, encoder: Encoder | None = None, seed: int = 0) -> None:
        self.clusters = require_range("clusters", clusters, low=1, integer=True)
        self.encoder, self.seed = encoder, require_range("seed", seed, low=0, integer=True)
        self._models: dict[str, tuple] = {}

    def fit(self, dialogues: Iterable[Dialogue]) -> "ClusterTagger":
        """Find the clusters of both roles."""
        turns = [turn for dialogue in check_dialogues(dialogues) for turn in dialogue.turns]
        self._models = {}
        for role in ROLES:
            texts = sorted({turn.text for turn in turns if turn.role == role and turn.text.strip()})
            if texts:
                self._models[role] = self._fit_role(texts)
        return self

    def _fit_role(self, texts: list[str]) -> tuple:
        from sklearn.cluster import KMeans
        from sklearn.feature_extraction.text import TfidfVectorizer

        try:
            vectorizer = TfidfVectorizer(token_pattern=WORDS).fit(texts)
        except ValueError:  # signs without words: the utterance itself is the tag
            return None, None, {}
        words: Any = vectorizer.transform(texts)
        matrix: Any = words.toarray() if self.encoder is None else encoded(self.encoder, texts)
        count = min(self.clusters, len(np.unique(matrix.round(9), axis=0)))
        model: Any = KMeans(count, n_init=10, random_state=self.seed).fit(matrix)
        names, terms = {}, vectorizer.get_feature_names_out()
        sizes = Counter(model.labels_.tolist())
        for cluster in sorted(sizes, key=lambda k: (-sizes[k], k)):
            weights = np.asarray(words[model.labels_ == cluster].sum(axis=0)).ravel()
            ranked = [str(terms[k]) for k in np.argsort(-weights, kind="stable")]
            names[cluster] = next(term for term in [*ranked, f"cluster-{cluster}"] if term not in names.values())
        return vectorizer, model, names

    def tag_turn(self, text: str, role: str, history: Sequence[Turn] = ()) -> tuple[str, ...]:
        """The tag of the nearest cluster; none for an empty text or a role without training utterances."""
        if not self._models:
            raise ValueError("ClusterTagger must be fitted first, got no clusters. Call fit(dialogues).")
        if not text.strip() or require_choice("role", role, ROLES) not in self._models:
            return ()
        vectorizer, model, names = self._models[role]
        if model is None:
            return normalise_tags([text])
        vector = vectorizer.transform([text]).toarray() if self.encoder is None else encoded(self.encoder, [text])
        return normalise_tags([names[int(model.predict(vector.astype(model.cluster_centers_.dtype))[0])]])
