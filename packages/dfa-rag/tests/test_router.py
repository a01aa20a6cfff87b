"""Following, retrieving, baselines, coverage."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from dfa_rag import (
    Belief,
    BeliefTracker,
    BM25Retriever,
    DenseRetriever,
    DFARouter,
    Dialogue,
    DialogueDFA,
    RandomRetriever,
    Turn,
    WorkflowSimulator,
    coverage,
)
from dfa_rag.retrieval import best, said, unit_rows

DIALOGUES = WorkflowSimulator(seed=0, tag_noise=0.05).sample(120)
DFA = DialogueDFA().fit(DIALOGUES)
START = (Turn("user", "my phone battery dies", ("battery",)),)


def test_the_paper_draws_from_the_dialogues_of_the_state():
    router = DFARouter.paper(DialogueDFA.paper().fit(DIALOGUES), DIALOGUES, seed=3)
    route = router.route(START)
    assert route.path == (0, route.state)
    assert {e.dialogue_id for e in route.examples} <= router.dfa.ids(route.state)
    assert len({e.dialogue_id for e in route.examples}) == 5
    assert {e.score for e in route.examples} == {0.0}
    assert route == router.route(START)
    others = [DFARouter.paper(router.dfa, DIALOGUES, seed=seed).route(START).examples for seed in range(4)]
    assert len({tuple(e.dialogue_id for e in examples) for examples in others}) > 1
    assert route.belief == ((route.state, 1.0),)


def test_few_dialogues_of_a_state_are_all_shown():
    dialogues = [Dialogue(n, (Turn("user", n, (n,)), Turn("system", n))) for n in "abc"]
    router = DFARouter.paper(DialogueDFA(1, None).fit(dialogues), dialogues)
    assert [e.dialogue_id for e in router.route((Turn("user", "", ("b",)),)).examples] == ["b"]
    assert router.route((Turn("user", "", ("b",)),), exclude="b").examples == ()
    assert DFARouter(router.dfa, dialogues, 0).route(START).examples == ()


def test_hybrid_adds_state_and_cosines():
    router = DFARouter(DFA, DIALOGUES, 3, tracking="greedy", weights=(2.0, 0.5, 0.25))
    route = router.route(START)
    for example in route.examples:
        k = next(k for k, e in enumerate(map(router.points.example, range(len(router.points)))) if
                 (e.dialogue_id, e.place) == (example.dialogue_id, example.place))  # fmt: skip
        cosines = [index.scores("my phone battery dies")[k] for index in (router._history, router._last)]
        match = 2.0 * (router.after[k] == route.state)
        assert example.score == pytest.approx(match + 0.5 * cosines[0] + 0.25 * cosines[1])
    assert all(e.rounds[-2].tags for e in route.examples)
    assert [e.score for e in route.examples] == sorted((e.score for e in route.examples), reverse=True)


@pytest.mark.parametrize("retriever", ["dense", "bm25"])
def test_text_ranks_inside_the_state(retriever):
    router = DFARouter(DFA, DIALOGUES, 4, retriever, "greedy")
    route = router.route(START)
    assert {e.dialogue_id for e in route.examples} <= DFA.ids(route.state)
    assert all("battery" in e.rounds[-2].text for e in route.examples)


def test_an_unknown_turn_shows_what_comes_next_from_where_the_conversation_stays():
    clean = WorkflowSimulator(seed=0).sample(60)
    dfa = DialogueDFA(1).fit(clean)
    odd = (Turn("user", "what?", ("unheard",)),)
    for tracking in ("greedy", "belief"):
        router = DFARouter(dfa, clean, 5, "random", tracking)
        route = router.route(odd)
        assert route.fallback
        assert {e.place for e in route.examples} == {1}
        if tracking == "greedy":
            assert route.state == dfa.start
        else:
            assert dict(route.belief)[dfa.start] > 0.9  # off the path; else a known turn whose tag was lost
        again = router.route((*odd, Turn("system", "sorry?", ("shrug",)), *START))
        assert not again.fallback
        assert again.state == dfa.step(0, ["battery"]).state


def test_turn_by_turn_is_the_whole_walk():
    router = DFARouter(DFA, DIALOGUES)
    for dialogue in DIALOGUES[:5]:
        position = router.start()
        for place, turn in enumerate(dialogue.turns):
            position = router.advance(position, turn.tags, turn.role)
            if turn.role == "user":
                turns = dialogue.turns[: place + 1]
                assert router.route(turns, position) == router.route(turns)
                assert sum(p for _, p in router.route(turns).belief) == pytest.approx(1.0)


def test_the_guardrail_knows_what_comes_next():
    router = DFARouter(DFA, DIALOGUES, tracking="greedy")
    position = router.advance(router.start(), ["battery"], "user")
    acts = router.allowed_acts(position)
    assert next(iter(acts)) == "ask_update"
    assert 0.8 < acts["ask_update"] <= 1
    assert router.allowed_acts(router.start()) == {}
    assert router.allowed_acts(position, 1.0) == {}
    believing = DFARouter(DFA, DIALOGUES)
    position = believing.advance(believing.start(), [], "user")
    acts = believing.allowed_acts(position)
    assert {"ask_update", "ask_warranty", "ask_order"} <= set(acts)
    assert list(acts.values()) == sorted(acts.values(), reverse=True)


def test_a_beam_keeps_the_most_likely_and_ends_are_survived():
    tracker = BeliefTracker(DFA, beam=2)
    belief = tracker.advance(tracker.start(), [], "user")
    full = BeliefTracker(DFA, beam=None)
    assert belief.states == full.advance(full.start(), [], "user").states[:2]
    with pytest.raises(ValueError, match="other side"):
        tracker.advance(belief, [], "user")
    over = [Dialogue("a", (Turn("user", "x", ("x",)),))]
    ended = BeliefTracker(DialogueDFA(1).fit(over))
    after = ended.advance(ended.start(), ["x"], "user")
    assert after.best() == 0  # all that is left is that the turn was off the path
    strict = BeliefTracker(DialogueDFA(1).fit(over), aside=0.0, restart=0.0)
    assert strict.advance(strict.start(), ["x"], "user").best() == -1
    said = {"a": ("x", "y"), "b": ("x", "y"), "c": ("w", "v", "u", "t")}
    three = [
        Dialogue(n, tuple(Turn(("user", "system")[k % 2], t, (t,)) for k, t in enumerate(w))) for n, w in said.items()
    ]
    dfa = DialogueDFA(1, None).fit(three)
    strict = BeliefTracker(dfa, aside=0.0, restart=0.0)
    belief = strict.advance(Belief((dfa.step(0, ["x"]).state,), (1.0,)), ["y"], "system")
    later = next(q for q in dfa.states if dfa.is_entry(q) and dfa.role(q) == "user" and q)
    assert belief == ((0, later), (0.75, 0.25), (), 1.0)  # all dialogues end here: anywhere, by visits
    two = [Dialogue("a", (Turn("user", "x", ("x",)), Turn("system", "y", ("y",))))]
    router = DFARouter(DialogueDFA(1).fit(two), two)
    position = router.follow((*two[0].turns, Turn("user", "more", ("z",)), Turn("system", "y", ("y",))))
    assert 0 <= position.state < len(router.dfa.states)


@pytest.mark.parametrize("kind", ["smooth", "floored"])
def test_bm25_is_okapi(kind):
    docs = ["my " + e.rounds[-2].text for e in map(BM25Retriever(DIALOGUES).points.example, range(40))]
    train = [Dialogue(str(k), (Turn("user", text), Turn("system", "ok"))) for k, text in enumerate(docs)]
    retriever, asked = BM25Retriever(train, 40, "last", 1.2, 0.5, kind), Turn("user", "my phone battery, battery")
    found = retriever.route((asked,)).examples
    words = [re.findall(r"\w+", text.lower()) for text in docs]
    mean = sum(map(len, words)) / len(words)
    df = Counter(word for own in words for word in set(own))
    odds = {word: (len(words) - n + 0.5) / (n + 0.5) for word, n in df.items()}
    idf = {word: math.log(1 + odd if kind == "smooth" else odd) for word, odd in odds.items()}
    floor = 0.25 * sum(idf.values()) / len(idf)
    assert (min(idf.values()) < 0) == (kind == "floored")
    for example in found:
        own, score = words[int(example.dialogue_id)], 0.0
        for word, times in Counter(["my", "phone", "battery", "battery"]).items():
            tf, rarity = own.count(word), idf.get(word, 0.0)
            score += times * (floor if rarity < 0 else rarity) * tf * 2.2 / (tf + 1.2 * (0.5 + 0.5 * len(own) / mean))
        assert example.score == pytest.approx(score)


def test_dense_queries():
    last, history, both = (DenseRetriever(DIALOGUES, 3, query=q) for q in ("last", "history", "both"))
    turns = (*START, Turn("system", "Have you installed the latest update?"), Turn("user", "yes"))
    assert {e.rounds[-2].text for e in last.route(turns).examples} == {"yes"}
    heard = both.points.rounds[0][:3]
    scores = [r._scores(heard) for r in (last, history, both)]
    assert scores[0] + scores[1] == pytest.approx(scores[2])
    embed = lambda texts: np.array([[t.count("e"), t.count("a") + 1.0] for t in texts])  # noqa: E731
    encoded = DenseRetriever(DIALOGUES, 2, embed, "last")
    (asked,), others = embed([said(heard, "last")]), embed(encoded.points.texts("last"))
    cosines = others @ asked / np.linalg.norm(others, axis=1) / np.linalg.norm(asked)
    assert encoded._scores(heard) == pytest.approx(cosines)
    assert len(set(cosines.round(9))) > 2
    silent = [Dialogue("a", (Turn("user", "🔋"), Turn("system", "!")))]
    assert DenseRetriever(silent, 1).route(START).examples[0].score == 0


def test_random_is_random_and_repeatable():
    retriever = RandomRetriever(DIALOGUES, 5, seed=1)
    assert retriever.route(START) == retriever.route(START)
    assert retriever.route(START).examples != RandomRetriever(DIALOGUES, 5, seed=2).route(START).examples
    assert retriever.route(START).state is None


def test_best_is_a_stable_partial_sort():
    scores = np.array([1.0, 3.0, 2.0, 3.0, -np.inf])
    assert best(scores, 2) == [1, 3]
    assert best(scores, 3) == [1, 3, 2]
    assert best(scores, 9) == [1, 3, 2, 0]
    assert said((), "last") == ""
    assert unit_rows(np.array([[0.0, 0.0], [3.0, 4.0]])).tolist() == [[0.0, 0.0], [0.6, 0.8]]


def test_coverage_finds_the_gap():
    clean = WorkflowSimulator(seed=0).sample(150)
    dfa = DialogueDFA(1).fit(clean)
    assert coverage(dfa, clean).accepted == 150
    assert coverage(dfa, clean).share == 1.0
    gap = [
        Dialogue(f"gap{k}", (*START, Turn("system", "?", ("ask_update",)), Turn("user", "my dog ate it", ("dog",))))
        for k in range(3)
    ]
    lone = Dialogue("lone", (Turn("user", "hm", ("music",)),))
    report = coverage(dfa, [*clean, *gap, lone])
    b1 = dfa.step(dfa.step(0, ["battery"]).state, ["ask_update"]).state
    assert (report.dialogues, report.accepted, len(report.falls)) == (154, 150, 4)
    assert report.by_state()[0] == (b1, 3)
    assert report.missing()[0] == (b1, "dog", 3)
    assert report.to_label(2) == ["gap0", "lone"]
    assert report.falls[0].fell_back
    assert report.falls[0].text == "my dog ate it"
    assert report.rounds - report.followed == 4
