"""Numbers worked out by hand, the properties of the automaton, and the fast path against the literal reference."""

import itertools
import json

import numpy as np
import pytest
from dfa_rag import (
    BeliefTracker,
    DFARouter,
    Dialogue,
    DialogueDFA,
    Turn,
    WorkflowSimulator,
    align,
    paper_similarity,
    random_workflow,
)
from dfa_rag import _reference as reference
from dfa_rag.merging import Merger
from dfa_rag.similarity import lookahead
from dfa_rag.tree import TURN_END, build_tree, needed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore:no turn has a tag")  # drawn at random


def dialogue(name, *words):
    """A dialogue from tags: "a b" is a turn with two tags, "" one without."""
    turns = [Turn(("user", "system")[k % 2], f"{name} {k}", tuple(word.split())) for k, word in enumerate(words)]
    return Dialogue(name, tuple(turns))


HAND = [
    dialogue("d1", "a", "x", "y"),
    dialogue("d2", "a", "x", "n"),
    dialogue("d3", "a b", "x"),
    dialogue("d4", "a b", "z"),
    dialogue("d5", "c", "x", "y"),
    dialogue("d6", "b", "x", "y"),
]


def literal(dialogues, tau, share=None):
    return reference.tree({d.id: [set(r.tags) for r in align(d)] for d in dialogues}, tau, share)


def shape(root):
    """A literal automaton as numbered edges, breadth first, with who passes."""
    order = reference.reachable(root)
    number = {id(q): k for k, q in enumerate(order)}
    edges = {
        (number[id(q)], None if t == reference.END else t[1]): (number[id(c)], q.passes[t])
        for q in order
        for t, c in q.next.items()
    }
    return edges, [(q.role, q.entry, q.ids, q.ends) for q in order]


def fast_shape(dfa):
    lists = dfa.automaton
    edges = {
        key: (child, lists.passes[key[0]][lists.codes[key[1]] if key[1] else TURN_END])
        for key, child in dfa.transitions.items()
    }
    states = [
        (
            ("user", "system").index(dfa.role(q)),
            dfa.is_entry(q),
            dfa.ids(q),
            {lists.dialogues[k] for k in lists.ends[q]},
        )
        for q in dfa.states
    ]
    return edges, states


@st.composite
def logs(draw):
    count = draw(st.integers(1, 14))
    found = []
    for k in range(count):
        words = draw(st.lists(st.lists(st.sampled_from("abcd"), max_size=3), min_size=1, max_size=6))
        found.append(dialogue(f"d{k:02d}", *(" ".join(word) for word in words)))
    return found


# --- check 1 and 2: the similarity


def counts(**passes):
    return np.array([passes.get(letter, 0) for letter in ("yes", "no", "maybe")], dtype=float)


@pytest.mark.parametrize(
    ("q", "other", "phi"),
    [
        (counts(yes=3, no=1), counts(yes=1, no=1), 0.5),
        (counts(yes=3), counts(no=2), 0.0),
        (counts(yes=3), counts(yes=7), 1.0),
        (np.ones(12), np.ones(12), 1 / 12),
        (counts(yes=3, no=1), counts(yes=3, no=1), 10 / 16),
        (counts(yes=2), counts(), 0.0),
    ],
)
def test_phi_by_hand(q, other, phi):
    assert paper_similarity(q, other) == pytest.approx(phi, abs=1e-15)


@given(st.lists(st.integers(0, 9), min_size=4, max_size=4), st.lists(st.integers(0, 9), min_size=4, max_size=4))
def test_phi_is_symmetric_in_the_unit_interval_and_no_identity(a, b):
    a, b = np.array(a, dtype=float), np.array(b, dtype=float)
    assert paper_similarity(a, b) == paper_similarity(b, a)
    assert 0 <= paper_similarity(a, b) <= 1
    if a.sum():
        assert paper_similarity(a, a) == pytest.approx(((a / a.sum()) ** 2).sum())


def test_lookahead_by_hand():
    #  q: yes(3) -> leaf, no(1) -> m -ok(1)-> leaf;  q': yes(1) -> leaf, no(1) -> m' -stop(1)-> leaf
    children = [{1: 2, 2: 3}, {1: 4, 2: 5}, {}, {3: 6}, {}, {4: 7}, {}, {}]
    passes = [{1: 3, 2: 1}, {1: 1, 2: 1}, {}, {3: 1}, {}, {4: 1}, {}, {}]
    norms = [sum(n * n for n in row.values()) for row in passes]
    cos = (3 + 1) / (10**0.5 * 2**0.5)
    at = lambda depth: lookahead(0, 1, depth, children, passes, norms, {})  # noqa: E731
    assert at(0) == 1
    assert at(1) == pytest.approx(cos)  # φ_0 = 1 behind both letters
    assert at(2) == pytest.approx(cos * (1 * 1 + 1 * 0) / 2)  # leaves agree behind yes; ok and stop do not
    floored = lambda floor: lookahead(0, 1, 2, children, passes, norms, {}, floor)  # noqa: E731
    assert floored(cos / 2) == pytest.approx(cos / 2)
    assert floored(cos / 2 + 1e-6) is None
    memo = {}
    known = lookahead(0, 1, 2, children, passes, norms, memo)
    assert memo == {(0, 1, 2): known}
    assert lookahead(0, 1, 2, children, passes, norms, {(0, 1, 2): 0.125}) == 0.125  # not worked out again
    assert lookahead(2, 4, 3, children, passes, norms, {}) == 1
    assert lookahead(2, 3, 3, children, passes, norms, {}) == 0
    assert lookahead(3, 5, 3, children, passes, norms, {}) == 0


# --- check 3: I(q)


@given(logs(), st.integers(1, 4))
def test_ids_of_a_tree_state_are_those_of_its_children_and_its_ends(dialogues, tau):
    dfa = DialogueDFA(tau, None).fit(dialogues)
    for q in dfa.states:
        behind = [dfa.ids(c) for (p, _), c in dfa.transitions.items() if p == q]
        ends = {dfa.dialogue_ids[k] for k in dfa.automaton.ends[q]}
        parts = [*behind, ends]
        assert sum(map(len, parts)) == len(dfa.ids(q))
        assert set().union(*parts) == dfa.ids(q)
    assert sum(len(ends) for ends in dfa.automaton.ends) == len(dialogues)  # each ends in exactly one state


# --- check 4: λ


def test_lambda_above_one_changes_nothing_and_zero_joins_all_that_share_a_letter():
    dialogues = WorkflowSimulator(seed=0).sample(60)
    codes = {tag: k for k, tag in enumerate(sorted({t for d in dialogues for x in d.turns for t in x.tags}), 1)}
    rounds = [[frozenset(codes[t] for t in r.tags) for r in align(d)] for d in dialogues]
    tree = build_tree(rounds, 2)
    before = [dict(children) for children in tree.children]
    for similarity in ("paper", "lookahead"):
        merger = Merger(build_tree(rounds, 2), 1.1, similarity, 4, ["⊣", *codes])
        merger.run()
        assert merger.tree.children == before
        assert not merger.merges
    loose = DialogueDFA(2, 0.0, "paper").fit(dialogues)
    for role in ("user", "system"):
        entries = [q for q in loose.states if loose.is_entry(q) and loose.role(q) == role]
        letters = [{t for (p, t) in loose.transitions if p == q} for q in entries]
        assert all(not a & b for a, b in itertools.combinations(letters, 2))


# --- check 5: the language only grows


@given(logs(), st.sampled_from(["paper", "lookahead"]), st.sampled_from([0.0, 0.1, 0.6, 1.0]))
def test_training_dialogues_are_accepted_before_and_after_merging(dialogues, similarity, level):
    for threshold in (None, level):
        dfa = DialogueDFA(1, threshold, similarity).fit(dialogues)
        assert all(dfa.accepts([turn.tags for turn in d.turns]) for d in dialogues)


def test_frequent_tags_alone_decide():
    dfa = DialogueDFA(2, None).fit(HAND)
    assert dfa.accepts([["a"], ["x"], []])  # y and n are in one dialogue each behind a, x: no branch
    assert not dfa.accepts([["a"], ["x"], ["y"]])
    assert dfa.accepts([["b", "a"], []])
    assert not dfa.accepts([["a"]])
    assert not dfa.accepts([["unheard"]])
    assert not dfa.accepts([])


# --- check 6: determinism


@given(logs(), st.randoms(use_true_random=False))
def test_the_order_of_the_dialogues_does_not_matter(dialogues, random):
    shuffled = random.sample(dialogues, len(dialogues))
    assert DialogueDFA(2).fit(dialogues) == DialogueDFA(2).fit(shuffled)


def test_other_ids_give_the_same_automaton():
    dialogues = WorkflowSimulator(seed=1, tag_noise=0.1).sample(80)
    renamed = [Dialogue(f"z{99 - k}", d.turns) for k, d in enumerate(dialogues)]
    one, two = DialogueDFA().fit(dialogues), DialogueDFA().fit(renamed)
    assert one.transitions == two.transitions
    assert [len(one.ids(q)) for q in one.states] == [len(two.ids(q)) for q in two.states]


# --- check 7 and 8


def test_a_branch_needs_tau_dialogues():
    dfa = DialogueDFA(7, None, min_share=None).fit(HAND)
    assert dfa.transitions == {(0, None): 1, (1, None): 2}
    assert dfa.ids(2) == {"d1", "d2", "d5", "d6"}


def test_a_share_makes_branches_with_fewer_than_tau_dialogues():
    assert [needed(n, 5, 0.2) for n in (1, 3, 10, 11, 15, 16, 25, 26, 90)] == [3, 3, 3, 3, 3, 4, 5, 5, 5]
    assert [needed(n, tau, 0.2) for n in (1, 90) for tau in (1, 2)] == [1, 2, 1, 2]
    assert needed(90, 5, None) == 5
    two_of_six = DialogueDFA(7, None, min_share=0.4).fit(HAND)  # ⌈0.4 · 6⌉ = 3: a (4) and then b (1 of the other two)
    assert {t for (q, t) in two_of_six.transitions if q == 0} == {"a", None}
    assert DialogueDFA(7, None).fit(HAND) == DialogueDFA(7, None, min_share="auto").fit(HAND)
    assert {t for (q, t) in DialogueDFA(7, None).fit(HAND).transitions if q == 0} == {"a", None}
    paper = DialogueDFA(7, None, "paper").fit(HAND)
    assert {t for (q, t) in paper.transitions if q == 0} == {None}


def test_the_order_of_the_tags_of_a_turn_does_not_matter():
    mirrored = [Dialogue(d.id, tuple(Turn(t.role, t.text, tuple(reversed(t.tags))) for t in d.turns)) for d in HAND]
    assert DialogueDFA(2).fit(HAND) == DialogueDFA(2).fit(mirrored)
    dfa = DialogueDFA(2, None).fit(HAND)
    assert dfa.step(0, ["a", "b"]) == dfa.step(0, ["b", "a"])


# --- check 9: round trips


def test_saved_and_exported_automata_are_equal(tmp_path):
    dfa = DialogueDFA(max_states=80).fit(WorkflowSimulator(seed=2, tag_noise=0.1).sample(150))
    dfa.rename(3, "third").forbid(dfa.states[-1])
    dfa.merge_states(*[q for q in dfa.states if dfa.is_entry(q) and dfa.role(q) == "user"][-2:])
    assert DialogueDFA.load(dfa.save(tmp_path / "flow.json")) == dfa
    assert DialogueDFA.from_json(dfa.to_json()) == dfa
    dfa.to_json(tmp_path / "edit.json")
    assert DialogueDFA.from_json(tmp_path / "edit.json") == dfa
    assert DialogueDFA.from_networkx(dfa.to_networkx()) == dfa
    assert dfa.copy() == dfa
    assert dfa != DialogueDFA().fit(HAND)
    assert json.loads((tmp_path / "flow.json").read_text())["method"] == "dfa-rag"
    loaded = DialogueDFA.load(tmp_path / "flow").partial_fit([dialogue("new", "battery")])
    whole = dfa.copy().partial_fit([dialogue("new", "battery")])
    assert fast_shape(loaded) == fast_shape(whole)
    assert [loaded.name(q) for q in loaded.states] == [whole.name(q) for q in whole.states]


# --- check 10: drawn in full


def test_the_hand_example_in_full():
    """Six dialogues, τ = 2. Round 0: a in 4, b in 3, c in 1. a first: {d1, d2, d3, d4}, of whom b: {d3, d4}; then b of
    the rest is in one dialogue only, so d5 and d6 end the turn without a tag."""
    dfa = DialogueDFA(2, None).fit(HAND)
    names = {
        (): {"d1", "d2", "d3", "d4", "d5", "d6"},
        (None,): {"d5", "d6"},
        ("a",): {"d1", "d2", "d3", "d4"},
        (None, "x"): {"d5", "d6"},
        ("a", None): {"d1", "d2"},
        ("a", "b"): {"d3", "d4"},
        (None, "x", None): {"d5", "d6"},
        ("a", None, "x"): {"d1", "d2"},
        ("a", "b", None): {"d3", "d4"},
        (None, "x", None, "y"): {"d5", "d6"},
        ("a", None, "x", None): {"d1", "d2"},
    }
    roles = ["user", "system", "user", "system", "system", "user", "user", "system", "system", "user", "user"]
    entries = [True, True, False, False, True, False, True, False, True, False, True]
    found, queue = {}, [(0, ())]
    while queue:
        q, word = queue.pop(0)
        found[word] = dfa.ids(q)
        queue += [(c, (*word, t)) for (p, t), c in sorted(dfa.transitions.items(), key=str) if p == q]
    assert found == names
    assert [dfa.role(q) for q in dfa.states] == roles
    assert [dfa.is_entry(q) for q in dfa.states] == entries
    assert dfa.accepting == {8, 9, 10}
    assert {q: [dfa.dialogue_ids[k] for k in dfa.automaton.ends[q]] for q in dfa.accepting} == {
        8: ["d3", "d4"], 9: ["d5", "d6"], 10: ["d1", "d2"],
    }  # fmt: skip
    assert dfa.visits(6).tolist() == [[4, 2], [5, 2]]


# --- check 11 and 12: routing


@pytest.mark.parametrize("threshold", [None, "auto"])
def test_a_training_dialogue_is_routed_to_states_that_it_passed(threshold):
    dialogues = WorkflowSimulator(seed=3).sample(80)
    dfa = DialogueDFA(1, threshold).fit(dialogues)
    for d in dialogues:
        state = dfa.start
        for place, turn in enumerate(d.turns):
            state = dfa.step(state, turn.tags, turn.role).state
            if place + 1 < len(d.turns):
                k = dfa.dialogue_ids.index(d.id)
                assert [k, place + 1] in dfa.visits(state).tolist()


@pytest.mark.parametrize("retriever", ["random", "hybrid", "dense", "bm25"])
def test_examples_hold_no_later_turn_and_not_the_dialogue_itself(retriever):
    dialogues = WorkflowSimulator(seed=4, tag_noise=0.1).sample(60)
    router = DFARouter(DialogueDFA().fit(dialogues), dialogues, 5, retriever)
    for d in dialogues[:10]:
        for place in range(1, len(d.turns), 2):
            for example in router.route(d.turns[:place], exclude=d.id).examples:
                assert example.dialogue_id != d.id
                assert example.answer.role == "system"
                own = next(other for other in dialogues if other.id == example.dialogue_id)
                assert [r.text for r in example.rounds] == [t.text for t in own.turns[: example.place + 1]]


# --- the fast path is the literal reference


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(logs(), st.integers(1, 6), st.sampled_from([None, 0.2, 0.4, 1.0]))
def test_the_tree_is_the_literal_one(dialogues, tau, share):
    assert fast_shape(DialogueDFA(tau, None, min_share=share).fit(dialogues)) == shape(literal(dialogues, tau, share))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(logs(), st.sampled_from(["paper", "lookahead"]), st.sampled_from([0.0, 0.05, 0.1, 0.3, 0.6, 1.0]))
def test_merging_is_the_literal_one(dialogues, similarity, level):
    phi = reference.phi_sim if similarity == "paper" else lambda a, b: reference.phi_ahead(a, b, 4)
    merged = reference.merge(literal(dialogues, 1), phi, level)
    assert fast_shape(DialogueDFA(1, level, similarity).fit(dialogues)) == shape(merged)


@pytest.mark.parametrize("similarity", ["paper", "lookahead"])
@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_merging_is_the_literal_one_on_workflows(similarity, noise):
    flow, texts = random_workflow(18, 5)
    dialogues = WorkflowSimulator(flow, 1, noise, texts).sample(250)
    dfa = DialogueDFA(3, similarity=similarity).fit(dialogues)
    phi = reference.phi_sim if similarity == "paper" else lambda a, b: reference.phi_ahead(a, b, 4)
    assert dfa.merge_history
    share = None if similarity == "paper" else 0.2
    assert fast_shape(dfa) == shape(reference.merge(literal(dialogues, 3, share), phi, dfa.threshold))


class CheckedMerger(Merger):
    """Compares what is counted when it is wanted with the sets that φ_sim keeps."""

    def support(self, state):
        found = super().support(state)
        assert found == len(self.ids[state])
        self.larger = getattr(self, "larger", 0) + (found > len(self.tree.members[state]))
        return found


def test_the_support_of_a_merge_counts_each_dialogue_once():
    flow, texts = random_workflow(8, 2)
    dialogues = WorkflowSimulator(flow, 1, 0.1, texts).sample(200)
    tags = sorted({tag for d in dialogues for turn in d.turns for tag in turn.tags})
    rounds = [[frozenset(tags.index(tag) + 1 for tag in part.tags) for part in align(d)] for d in dialogues]
    merger = CheckedMerger(build_tree(rounds, 1), 0.1, "paper", 4, ["⊣", *tags])
    merger.run()
    assert merger.merges
    assert merger.larger


def test_a_similarity_of_ones_own_is_used():
    dialogues = WorkflowSimulator(seed=5, tag_noise=0.1).sample(120)

    def phi(a, b):
        letters = sorted(set(a) | set(b))
        return paper_similarity(np.array([a.get(t, 0.0) for t in letters]), np.array([b.get(t, 0.0) for t in letters]))

    own = DialogueDFA(5, 0.1, phi).fit(dialogues)
    assert own.merge_history
    assert DialogueDFA(5, 0.1, lambda a, b: 0.0).fit(dialogues).merge_history == []


@given(logs(), st.lists(st.lists(st.sampled_from("abcde"), max_size=3), min_size=1, max_size=5))
def test_a_step_is_the_literal_one(dialogues, words):
    dfa, state = DialogueDFA(1, 0.6).fit(dialogues), 0
    root = reference.merge(literal(dialogues, 1), lambda a, b: reference.phi_ahead(a, b, 4), 0.6)
    number = {id(q): k for k, q in enumerate(reference.reachable(root))}
    here = root
    for word in words:
        result = dfa.step(state, word)
        here, matched = reference.step(here, set(word))
        state = result.state
        assert state == number[id(here)]
        assert list(result.matched) == matched
        assert set(result.missed) == set(word) - set(matched)


@given(logs(), st.lists(st.lists(st.sampled_from("abcd"), max_size=3), min_size=1, max_size=4))
def test_the_belief_is_the_literal_forward_algorithm(dialogues, words):
    dfa = DialogueDFA(1, 0.6).fit(dialogues)
    tracker = BeliefTracker(dfa, drop=0.2, insert=0.3, restart=0.0, aside=0.0, beam=None)
    root = reference.merge(literal(dialogues, 1), lambda a, b: reference.phi_ahead(a, b, 4), 0.6)
    order = reference.reachable(root)
    letters = [len({t for q in order if q.role == role for t in q.next if t != reference.END}) for role in (0, 1)]
    number, belief = {id(q): k for k, q in enumerate(order)}, tracker.start()
    for place, word in enumerate(words):
        turns = [set(w) for w in words[: place + 1]]
        wanted = reference.forward(root, turns, 0.2, 0.3, [max(1, n) for n in letters])
        if not wanted:
            return  # all dialogues are over
        belief = tracker.advance(belief, word, ("user", "system")[place % 2])
        found = dict(zip(belief.states, belief.weights, strict=True))
        assert found == pytest.approx({number[id(q)]: p for q, p in wanted.items()}, rel=1e-9)


def test_the_belief_by_hand():
    """start: a (3 of 4) -> s1, b (1 of 4) -> s2; d = 0.1, i = 0.2, two letters. Seen {a}: s1 0.75 · 0.9, s2 0.25 · 0.1
    · (0.2 / 2); seen nothing: 0.75 · 0.1 against 0.25 · 0.1."""
    dialogues = [dialogue(f"d{k}", "a", "x") for k in range(3)] + [dialogue("d3", "b", "y")]
    dfa = DialogueDFA(1, None).fit(dialogues)
    tracker = BeliefTracker(dfa, 0.1, 0.2, restart=0.0, aside=0.0)
    s1, s2 = dfa.step(0, ["a"]).state, dfa.step(0, ["b"]).state
    belief = tracker.advance(tracker.start(), ["a"], "user")
    one, two = 0.75 * 0.9, 0.25 * 0.1 * 0.1
    assert belief.states == (s1, s2)
    assert belief.weights == pytest.approx((one / (one + two), two / (one + two)))
    assert belief.off_path == pytest.approx(two / (one + two))
    belief = tracker.advance(tracker.start(), [], "user")
    assert belief.weights == pytest.approx((0.75, 0.25))
    # aside: with chance 0.3 the turn is off the path; x (known) is foreign on every way, 0.2 / 2; zzz only on the path
    aside = BeliefTracker(dfa, 0.1, 0.2, restart=0.0, aside=0.3)
    for tags, on, off in ((["x"], 0.1, 0.1), (["zzz"], 0.1, 1.0), (["zzz", "x"], 0.01, 0.1)):
        belief = aside.advance(aside.start(), tags, "user")
        weights = np.array([0.75 * 0.1 * on, 0.25 * 0.1 * on, 0.3 * off])
        weights /= weights.sum()
        assert belief.weights == pytest.approx(weights[:2])
        assert belief.aside == ((0, pytest.approx(weights[2])),)
        assert belief.off_path == pytest.approx(1.0)
        assert belief.best() == 0
    # the answer to it (zzz: foreign, 0.2 / 2 on the path, 1 off it) leads back to the start
    back = aside.advance(belief, ["zzz"], "system")
    assert back == ((0,), (1.0,), (), pytest.approx(1.0))  # on the path all dialogues end with x or y
    # restart: 0.5 of the mass is anywhere, by visits: user entries are the start alone
    again = BeliefTracker(dfa, 0.1, 0.2, restart=0.5, aside=0.0)
    belief = again.advance(again.start(), ["a"], "user")
    assert belief.weights == pytest.approx((one / (one + two), two / (one + two)))
