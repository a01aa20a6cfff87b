"""Measures."""

import math

import pytest
from dfa_rag import DFARouter, Dialogue, DialogueDFA, ScriptedLLM, Turn, WorkflowSimulator
from dfa_rag.evaluate import JudgeCase, inform_success, retrieval_precision, win_rate, workflow_adherence
from dfa_rag.experiments import act_at, acts_of


def test_precision_counts_what_was_asked_for():
    dialogues = WorkflowSimulator(seed=0).sample(40)
    router = DFARouter(DialogueDFA(1).fit(dialogues), dialogues, 2, "random", "greedy")
    found = retrieval_precision(router, dialogues[:5], 2, acts_of(dialogues), act_at)
    assert found.places == sum(len(d.turns) // 2 for d in dialogues[:5])
    assert found.asked == 2 * found.places
    assert found.right <= found.asked
    assert found.precision == found.right / found.asked
    wrong = retrieval_precision(router, dialogues[:5], 2, acts_of(dialogues), lambda d, k: "none of these")
    assert (wrong.right, wrong.copied, wrong.accuracy) == (0, 0, 0.0)
    twice = retrieval_precision(router, dialogues[:5], 4, acts_of(dialogues), act_at)
    assert twice.precision == pytest.approx(found.precision / 2)
    nothing = retrieval_precision(router, [], 2, acts_of(dialogues), act_at)
    assert nothing.precision == nothing.accuracy == 0


def test_adherence():
    dialogues = WorkflowSimulator(seed=0).sample(60)
    dfa = DialogueDFA(1).fit(dialogues)
    assert workflow_adherence(dfa, dialogues) == 1.0
    bad = Dialogue("x", (Turn("user", "", ("battery",)), Turn("system", "", ("close",))))
    good = Dialogue("y", (Turn("user", "", ("battery",)), Turn("system", "", ("ask_update",))))
    assert workflow_adherence(dfa, [bad, good, good]) == pytest.approx(2 / 3)
    assert math.isnan(workflow_adherence(dfa, [Dialogue("z", (Turn("user", "hi"),))]))


def case(ours, other):
    return JudgeCase((Turn("user", "q"),), "real", ours, other)


def judge(prompt):
    """Prefers the longer reply."""
    text = prompt.messages[1]["content"]
    a, b = (text.split(f"\n{name}:\n> reply: ")[1].split("\n")[0] for name in "AB")
    return "tie" if len(a) == len(b) else "I say A." if len(a) > len(b) else "b"


def test_win_rate_by_hand():
    found = win_rate(ScriptedLLM(judge), [case("long", "x")] * 3 + [case("x", "long")] + [case("ab", "cd")] * 2)
    assert (found.wins, found.ties, found.losses) == (3, 2, 1)
    assert found.rate == pytest.approx(4 / 6)
    z, p, n = 1.959963984540054, 4 / 6, 6
    centre, half = (
        (p + z * z / 12) / (1 + z * z / n),
        z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n)),
    )
    assert (found.low, found.high) == pytest.approx((centre - half, centre + half))
    biased = win_rate(ScriptedLLM(lambda prompt: "A"), [case("long", "x")] * 4)
    assert (biased.rate, biased.ties) == (0.5, 4)
    sure = win_rate(ScriptedLLM(judge), [case("long", "x")])
    assert sure.high == 1.0
    with pytest.raises(ValueError, match="at least one"):
        win_rate(ScriptedLLM([]), [])


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("A", 1), ("b.", -1), (" Tie! ", 0), ("**B**", -1), ("It is a tie.", 0), ("A close tie", 0), ("It is a B", -1),
        ("B is a better reply", -1), ("A is closer", 1), ("I cannot say", 0), ("", 0),
    ],
)  # fmt: skip
def test_verdicts_in_prose(answer, verdict):
    for second, agrees in (("B", 1), ("A", -1)):  # in the other order the letters change sides
        found = win_rate(ScriptedLLM([answer, second]), [case("x", "y")])
        assert found.wins - found.losses == (verdict if verdict == agrees else 0)


def test_the_longer_of_two_names_is_meant():
    places = (("Owl", "south"), ("Owl House", "north"), ("!", "west"))
    table = {"bar": [{"name": name, "area": area} for name, area in places]}
    found = inform_success({"d": {"bar": {"info": {"area": "north"}}}}, {"d": ["The Owl House!"]}, table)
    assert found.inform == 1


TABLE = {
    "bar": [{"name": "Red Fox", "area": "north", "phone": "01 22"}, {"name": "Owl", "area": "south", "phone": "5"}]
}
GOAL = {"bar": {"info": {"area": "North"}, "reqt": ["phone"]}}


@pytest.mark.parametrize(
    ("goal", "told", "outcome"),
    [
        (GOAL, ["The red fox!", "call 01 22."], (True, True)),
        (GOAL, ["The red fox!", "call 01 23."], (True, False)),
        (GOAL, ["The red fox, or rather the Owl. Call 01 22"], (False, False)),
        (GOAL, ["Owl?", "Red Fox."], (True, False)),
        (GOAL, ["The red foxes", "01 22"], (False, False)),
        ({"bar": {"info": {"area": "west"}, "reqt": ["phone"]}}, ["There is none."], (True, True)),
        ({"bar": {"info": {"area": "west"}, "reqt": []}}, ["Owl."], (False, False)),
        ({"bar": {"info": {}, "reqt": ["opening"]}}, ["Owl."], (True, False)),
        ({}, [], (True, True)),
        ({"bar": {"info": {}, "reqt": ["opening"]}}, ["Owl.", "..."], (True, False)),  # nothing said, nothing told
    ],
)
def test_inform_and_success(goal, told, outcome):
    found = inform_success({"d": goal}, {"d": told}, TABLE)
    assert found.each["d"] == outcome
    assert (found.inform, found.success) == outcome


def test_shares_of_inform_and_success():
    found = inform_success({"a": GOAL, "b": GOAL}, {"a": ["Red Fox", "01 22"], "b": ["Owl"]}, TABLE)
    assert (found.inform, found.success) == (0.5, 0.5)
    for goals, responses, problem in [
        ({}, {}, "at least one dialogue"),
        ({"a": GOAL}, {}, "got none for 'a'"),
        ({"a": {"zoo": {}}}, {"a": []}, "must have a table 'zoo'"),
    ]:
        with pytest.raises(ValueError, match=problem):
            inform_success(goals, responses, TABLE)
    with pytest.raises(TypeError, match="a response must be"):
        inform_success({"a": GOAL}, {"a": [3]}, TABLE)
