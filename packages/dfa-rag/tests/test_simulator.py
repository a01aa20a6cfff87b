"""Simulated workflows."""

from collections import Counter

import pytest
from dfa_rag import WorkflowSimulator, random_workflow
from dfa_rag.simulator import END, SUPPORT, SUPPORT_TEXTS


def test_every_dialogue_is_a_walk_of_the_flow():
    for dialogue in WorkflowSimulator(seed=0).sample(50):
        stage = "start"
        for user, system in zip(dialogue.turns[::2], dialogue.turns[1::2], strict=True):
            act, following = SUPPORT[stage][user.tags[0]]
            assert system.tags == (act,)
            assert user.text in SUPPORT_TEXTS[user.tags[0]]
            assert system.text in SUPPORT_TEXTS[act]
            stage = following
        assert stage == END
        assert dialogue.meta["acts"] == [turn.tags[0] for turn in dialogue.turns]


def test_yes_needs_five_reactions_or_more():
    assert len({answers["yes"][0] for answers in SUPPORT.values() if "yes" in answers}) >= 3
    assert sum("yes" in answers for answers in SUPPORT.values()) == 5


def test_noise_has_its_rates():
    dialogues = WorkflowSimulator(seed=1, tag_noise=0.2).sample(800)
    count = Counter()
    for dialogue in dialogues:
        for turn, truth in zip(dialogue.turns, dialogue.meta["acts"], strict=True):
            count[turn.role] += 1
            count[turn.role, "kept"] += truth in turn.tags
            count[turn.role, "wrong"] += bool(set(turn.tags) - {truth})
    assert count["user", "kept"] / count["user"] == pytest.approx(0.8, abs=0.03)
    assert count["system", "kept"] / count["system"] == pytest.approx(0.8, abs=0.03)
    assert count["user", "wrong"] / count["user"] == pytest.approx(0.2, abs=0.03)
    assert count["system", "wrong"] == 0


def test_a_dialogue_depends_on_seed_and_place_alone():
    assert WorkflowSimulator(seed=3).sample(5) == WorkflowSimulator(seed=3).sample(9)[:5]
    assert WorkflowSimulator(seed=3).sample(5) != WorkflowSimulator(seed=4).sample(5)
    assert WorkflowSimulator().sample(0) == []
    first = [dialogue.turns[0].tags[0] for dialogue in WorkflowSimulator(seed=0).sample(8)]
    assert first == ["refund", "screen", "screen", "screen", "refund", "battery", "refund", "battery"]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("states", [4, 10, 25, 60])
def test_random_workflows_end_and_share_their_answers(states, seed):
    flow, texts = random_workflow(states, seed)
    assert len(flow) == states
    assert random_workflow(states, seed) == (flow, texts)
    reached, queue = {"start"}, ["start"]
    while queue:
        for _, following in flow[queue.pop()].values():
            if following != END and following not in reached:
                reached.add(following)
                queue.append(following)
    assert len(reached) == states
    acts = [act for answers in flow.values() for act, _ in answers.values()]
    assert len(set(acts)) == len(acts)
    assert all(2 <= len(answers) <= 25 for name, answers in flow.items() if name != "start")
    dialogues = WorkflowSimulator(flow, seed, 0.0, texts).sample(20)
    assert all(len(dialogue.turns) <= 60 for dialogue in dialogues)


def test_the_answers_of_a_random_workflow_are_drawn():
    leading = set()
    for seed in range(4):
        flow, _ = random_workflow(25, seed)
        for name, answers in flow.items():
            on = [word for word, (_, following) in answers.items() if following != END]
            leading |= set(on[:1]) if name != "start" else set()
    assert len(leading) == 6


def test_a_cycle_is_cut():
    flow = {"s": {"again": ("go", "s")}}
    (dialogue,) = WorkflowSimulator(flow, 0, 0.5, {"again": ["a"], "go": ["g"]}, longest=4).sample(1)
    assert len(dialogue.turns) == 8
