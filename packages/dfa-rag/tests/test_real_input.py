"""What users bring: files of six formats, the hand-made ones that ship, and real chatterbot conversations."""

import csv
import importlib.util
import json
from pathlib import Path

import pytest
from dfa_rag import (
    ClusterTagger,
    DFARouter,
    Dialogue,
    DialogueDFA,
    Turn,
    align,
    coverage,
    load_dialogues,
    save_dialogues,
)
from dfa_rag.experiments import LIBRARY, MULTIWOZ


def write(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_jsonl_round_trip(tmp_path):
    dialogues = [
        Dialogue("a", (Turn("user", "hi\n🙂", ("greet",)), Turn("system", "你好")), {"source": "x"}),
        Dialogue("b", (Turn("user", ""),)),
    ]
    assert load_dialogues(save_dialogues(tmp_path / "d.jsonl", dialogues)) == dialogues


def test_chatml(tmp_path):
    chat = {
        "messages": [
            {"role": "system", "content": "be nice"},
            {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "image_url"}]},
            {"role": "assistant", "content": None, "tool_calls": [{}]},
            {"role": "tool", "content": "42"},
            {"role": "assistant", "content": "hello", "tags": ["Greet"]},
        ]
    }
    path = write(tmp_path / "c.jsonl", json.dumps(chat) + "\n\n" + json.dumps(chat | {"id": 7}) + "\n")
    first, second = load_dialogues(path, "chatml")
    assert (first.id, second.id) == ("1", "7")
    assert [(t.role, t.text, t.tags) for t in first.turns] == [("user", "hi", ()), ("system", "hello", ("greet",))]


def test_multiwoz():
    dialogues = load_dialogues(MULTIWOZ)
    assert len(dialogues) == 20
    assert dialogues[0].turns[0].tags == ("restaurant-inform-area", "restaurant-inform-food")
    assert dialogues[4].turns[2].tags == ("general-thank",)
    assert dialogues[0].meta["goal"]["restaurant"]["reqt"] == ["phone"]
    assert [turn.role for turn in dialogues[0].turns] == ["user", "system", "user", "system"]


def test_sgd(tmp_path):
    sgd = [
        {
            "dialogue_id": "1_0", "services": ["Restaurants_1"],
            "turns": [
                {"speaker": "USER", "utterance": "a table?", "frames": [{"actions": [
                    {"act": "INFORM_INTENT", "slot": "intent"}, {"act": "THANK_YOU", "slot": ""}]}]},
                {"speaker": "SYSTEM", "utterance": "which city?", "frames": [
                    {"actions": [{"act": "REQUEST", "slot": "city"}]}]},
            ],
        }
    ]  # fmt: skip
    (dialogue,) = load_dialogues(write(tmp_path / "dialogues_001.json", sgd))
    assert dialogue.id == "1_0"
    assert dialogue.turns[0].tags == ("inform_intent-intent", "thank_you")
    assert dialogue.turns[1] == Turn("system", "which city?", ("request-city",))


def test_csv(tmp_path):
    path = tmp_path / "d.csv"
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        rows = csv.writer(file)
        rows.writerow(["dialogue_id", "turn", "role", "text", "tags"])
        rows.writerows(
            [["a", 10, "agent", "bye", ""], ["a", 2, "Customer", "hi, you", "greet|x y"], ["b", 0, "user", "?", ""]]
        )
    first, second = load_dialogues(path)
    assert first.turns == (Turn("user", "hi, you", ("greet", "x-y")), Turn("system", "bye"))
    assert second.id == "b"


def test_chatterbot_yaml_and_folders(tmp_path):
    text = "categories:\n- x\nconversations:\n- - Hi?\n  - yes\n  - 42\n- - no\n  - null\n  - a: yes\n- alone\n"
    write(tmp_path / "one.yml", text)
    first, second, third = load_dialogues(tmp_path / "one.yml")
    assert [turn.text for turn in first.turns] == ["Hi?", "yes", "42"]
    assert [turn.text for turn in second.turns] == ["no", "", "a: yes"]
    assert [turn.text for turn in third.turns] == ["alone"]
    assert second.id == "one:1"
    write(tmp_path / "two.yaml", text)
    write(tmp_path / "notes.txt", "not read")
    assert [d.id for d in load_dialogues(tmp_path)] == [f"{n}/{n}:{k}" for n in ("one", "two") for k in range(3)]


def test_real_chatterbot_conversations():
    """All English files of the corpus: clustered into tags, learnt, walked."""
    spec = importlib.util.find_spec("chatterbot_corpus")
    folder = Path(spec.submodule_search_locations[0]) / "data" / "english"
    dialogues = load_dialogues(folder)
    assert len(dialogues) > 1500
    longer = [d for d in dialogues if len(d.turns) >= 4]
    assert len(longer) > 40
    tagger = ClusterTagger(8).fit(longer)
    tagged = tagger.tag(longer)
    dfa = DialogueDFA(2).fit(tagged)
    assert len(dfa.states) > 8
    report = coverage(dfa, tagged)
    assert report.rounds == sum(len(align(d)) for d in tagged) == report.followed + len(report.falls)
    assert report.followed > report.rounds / 3
    router = DFARouter(dfa, tagged, 3)
    assert len(router.route(tagged[0].turns[:1]).examples) == 3


def test_the_library_dialogues_are_a_workflow():
    dialogues = load_dialogues(LIBRARY)
    assert len(dialogues) >= 40
    assert all(len(d.turns) >= 4 for d in dialogues)
    dfa = DialogueDFA(2).fit(dialogues)
    state = dfa.step(dfa.start, ["loan"]).state
    assert dfa.allowed_acts(state) == {"in-stock", "lent"}
    assert DialogueDFA(2).fit(dialogues) == dfa


def test_alignment():
    turns = (
        Turn("system", "hello", ("greet",)),
        Turn("user", "a", ("x",)),
        Turn("user", "b", ("y",)),
        Turn("system", "c"),
    )
    joined = align(turns)
    assert [(r.role, r.text, r.tags, r.turns) for r in joined] == [
        ("user", "", (), ()), ("system", "hello", ("greet",), (0,)), ("user", "a\nb", ("x", "y"), (1, 2)),
        ("system", "c", (), (3,)),
    ]  # fmt: skip
    kept = align(turns, "keep")
    assert [(r.role, r.text) for r in kept] == [
        ("user", ""), ("system", "hello"), ("user", "a"), ("system", ""), ("user", "b"), ("system", "c"),
    ]  # fmt: skip


ODD = {
    "one dialogue": [Dialogue("a", (Turn("user", "hi", ("x",)), Turn("system", "yo", ("y",))))],
    "all the same": [Dialogue(f"d{k}", (Turn("user", "hi", ("x",)), Turn("system", "yo", ("y",)))) for k in range(9)],
    "no tags": [Dialogue(f"d{k}", (Turn("user", "hi"), Turn("system", "yo"))) for k in range(3)],
    "empty texts": [Dialogue(f"d{k}", (Turn("user", "", ("x",)), Turn("system", ""))) for k in range(3)],
    "long": [Dialogue("a", (Turn("user", "word " * 2500, ("x",)), Turn("system", "z" * 10_000)))],
    "scripts": [Dialogue("a", (Turn("user", "电池坏了 🔋", ("电池", "🔋")), Turn("system", "هل حدثت؟", ("تحديث",))))],
    "signs": [
        Dialogue("a", (Turn("user", "x", ("⊣", '"', "a|b", "end", "-->", "#x y")), Turn("system", "y", ("\\N",))))
    ],
    "system first": [Dialogue("a", (Turn("system", "yo"), Turn("user", "hi", ("x",)), Turn("system", "yo")))],
    "ends with the user": [
        Dialogue(f"d{k}", (Turn("user", "hi"), Turn("system", "yo"), Turn("user", "x", ("x",)))) for k in "ab"
    ],
}


@pytest.mark.filterwarnings("ignore:no turn has a tag")
@pytest.mark.parametrize("dialogues", ODD.values(), ids=ODD)
@pytest.mark.parametrize("retriever", ["random", "hybrid", "dense", "bm25"])
def test_odd_logs_work(dialogues, retriever, tmp_path):
    dfa = DialogueDFA(1).fit(dialogues)
    assert set().union(*(dfa.ids(q) for q in dfa.accepting)) == {d.id for d in dialogues}
    assert DialogueDFA.load(dfa.save(tmp_path / "odd")) == dfa
    for tracking in ("greedy", "belief"):
        router = DFARouter(dfa, dialogues, 5, retriever, tracking)
        for d in dialogues[:2]:
            last = max(k for k, turn in enumerate(d.turns) if turn.role == "user")
            route = router.route(d.turns[: last + 1])
            assert all(example.answer.role == "system" for example in route.examples)
