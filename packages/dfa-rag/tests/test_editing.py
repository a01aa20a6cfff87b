"""Editing, refits, differences, drawings with hostile names."""

import json
import re

import pydot
import pytest
from dfa_rag import Dialogue, DialogueDFA, Turn, WorkflowSimulator
from dfa_rag.experiments import drawing_faults
from dfa_rag.export import dot_label, layout, mermaid_label

DIALOGUES = WorkflowSimulator(seed=0).sample(120)


def entries(dfa, role):
    return [q for q in dfa.states if dfa.is_entry(q) and dfa.role(q) == role]


def dialogue(name, *words):
    return Dialogue(
        name, tuple(Turn(("user", "system")[k % 2], f"say {w}", tuple(w.split())) for k, w in enumerate(words))
    )


def test_names():
    dfa = DialogueDFA().fit(DIALOGUES)
    assert dfa.rename(2, "topic").name(2) == "topic"
    assert dfa.state("topic") == 2
    assert dfa.rename(2, "topic").name(2) == "topic"
    for name in ("", "u0", " "):
        with pytest.raises(ValueError, match="name must be new"):
            dfa.rename(2, name)
    with pytest.raises(ValueError, match="state name must be one of"):
        dfa.state("nobody")


def test_forbidden_states_are_not_entered():
    dfa = DialogueDFA(1).fit(DIALOGUES)
    b1 = dfa.step(dfa.step(0, ["battery"]).state, ["ask_update"]).state
    system = dfa.step(b1, ["no"]).state
    assert dfa.allowed_acts(system) == {"send_steps"}
    inside = next(c for (q, t), c in dfa.transitions.items() if q == b1 and t == "no")
    dfa.forbid(inside)
    assert dfa.step(b1, ["no"]).fell_back
    assert dfa.step(b1, ["no"]).state == b1
    assert "no" not in dfa.explain(b1).tags
    assert sum(dfa.next_action_distribution(b1).values()) == pytest.approx(1)
    again = json.loads(dfa.to_json())
    assert DialogueDFA.from_json(json.dumps(again)) == dfa
    again["states"][inside]["forbidden"] = False
    assert DialogueDFA.from_json(json.dumps(again)).step(b1, ["no"]).matched == ("no",)
    with pytest.raises(ValueError, match="start cannot be forbidden"):
        dfa.forbid(0)


def test_merging_by_hand_folds_and_stays_deterministic():
    dfa = DialogueDFA(1, None).fit([dialogue("a", "x", "p", "yes", "q"), dialogue("b", "y", "p", "yes", "r")])
    one = dfa.step(dfa.step(0, ["x"]).state, ["p"]).state
    two = dfa.step(dfa.step(0, ["y"]).state, ["p"]).state
    count = len(dfa.states)
    assert one != two
    name = dfa.name(one)
    dfa.merge_states(one, two)
    merged = dfa.state(name)
    assert dfa.ids(merged) == {"a", "b"}
    assert len(dfa.states) == count - 3  # the two entries, yes, and the system entry behind it
    assert dfa.next_action_distribution(dfa.step(merged, ["yes"]).state) == {("q",): 0.5, ("r",): 0.5}
    assert dfa.accepts([["x"], ["p"], ["yes"], ["r"]])
    with pytest.raises(ValueError, match="one role"):
        dfa.merge_states(merged, entries(dfa, "system")[0])
    with pytest.raises(ValueError, match="inside a turn"):
        dfa.merge_states(merged, next(q for q in dfa.states if not dfa.is_entry(q)))
    dfa.merge_states(merged, 0)
    assert dfa.ids(0) == {"a", "b"}
    assert dfa.name(0) == name
    assert dfa.step(0, ["yes"]).matched == ("yes",)


def test_partial_fit_is_a_fit_on_everything_and_keeps_edits():
    whole = DialogueDFA().fit(DIALOGUES)
    grown = DialogueDFA().partial_fit(DIALOGUES[:50]).partial_fit(DIALOGUES[50:])
    assert grown.transitions == whole.transitions
    assert [grown.ids(q) for q in grown.states] == [whole.ids(q) for q in whole.states]
    edited = DialogueDFA().fit(DIALOGUES[:90])
    battery = edited.step(0, ["battery"]).state
    edited.rename(battery, "battery trouble")
    pair = [
        edited.step(edited.step(0, [tag]).state, [act]).state
        for tag, act in (("battery", "ask_update"), ("screen", "ask_warranty"))
    ]
    edited.rename(pair[0], "first").merge_states(*pair)
    screen = next(c for (q, t), c in edited.transitions.items() if q == 0 and t == "refund")
    edited.forbid(screen).partial_fit(DIALOGUES[90:])
    assert edited.step(0, ["battery"]).state == edited.state("battery trouble")
    assert edited.step(0, ["refund"]).matched == ()
    first = edited.state("first")
    assert edited.step(edited.state("battery trouble"), ["ask_update"]).state == first
    assert edited.step(edited.step(0, ["screen"]).state, ["ask_warranty"]).state == first
    assert len(set(edited.automaton.names)) == len(edited.states)
    with pytest.raises(ValueError, match="ids must be new"):
        edited.partial_fit(DIALOGUES[:1])


def test_edits_in_the_json_file(tmp_path):
    dfa = DialogueDFA(1, None).fit([dialogue("a", "x", "p", "yes", "q"), dialogue("b", "y", "p", "yes", "r")])
    one = dfa.step(dfa.step(0, ["x"]).state, ["p"]).state
    two = dfa.step(dfa.step(0, ["y"]).state, ["p"]).state
    content = json.loads(dfa.to_json(tmp_path / "flow.json"))
    content["states"][one]["name"] = "asked"
    content["states"][two]["merge_into"] = "asked"
    content["states"][dfa.step(0, ["y"]).state]["name"] = "y?"
    (tmp_path / "flow.json").write_text(json.dumps(content))
    edited = DialogueDFA.from_json(tmp_path / "flow.json")
    assert edited.ids(edited.state("asked")) == {"a", "b"}
    assert edited.partial_fit([dialogue("c", "z", "p")]).ids(edited.state("asked")) == {"a", "b"}


BROKEN = {
    "a field is gone": (lambda c: c["states"][1].pop("visits"), "state 1: the fields visits are missing"),
    "another role": (lambda c: c["states"][1].update(role="bot"), "role must be 'user' or 'system', got 'bot'"),
    "another id": (lambda c: c["states"][1].update(id=7), "id must be 1, its place"),
    "a name twice": (lambda c: c["states"][1].update(name="u0"), "name must be its own"),
    "merged into nobody": (lambda c: c["states"][1].update(merge_into="ghost"), "merge_into must name a state"),
    "an edge to nowhere": (lambda c: c["transitions"][0].update(to=99), "transition 0: from, to and tag"),
    "an edge without a tag": (lambda c: c["transitions"][0].pop("tag"), "transition 0: from, to and tag"),
    "two edges": (lambda c: c["transitions"].append(c["transitions"][0] | {"to": 3}), "two edges on"),
    "roles mixed": (lambda c: c["states"][-1].update(role="system"), "role must change at the end of a turn"),
    "an edge into the middle": (
        lambda c: c["states"][1].update(entry=True),
        "entry must be true behind the end of a turn",
    ),
    "entry no truth value": (lambda c: c["states"][1].update(entry=0), "entry must be true or false, got 0"),
    "a name that is none": (lambda c: c["states"][1].update(name=[1]), "name must be its own and not empty, got [1]"),
    "examples": (lambda c: c["states"][1].update(examples="x"), "examples must be a list of strings, got 'x'"),
    "another's visit": (lambda c: c["states"][1].update(visits=[[7, 0]]), "visits must hold places in the list"),
    "ragged visits": (lambda c: c["states"][1].update(visits=[[0], [0, 1]]), "visits must hold places in the list"),
    "flat visits": (lambda c: c["states"][1].update(visits=[0, 0]), "visits must hold places in the list"),
    "an end that is none": (lambda c: c["states"][1].update(ends=None), "ends must hold places in the list"),
    "passes": (lambda c: c["transitions"][0].update(passes=-1), "passes must be a number of turns, got -1"),
    "no passes": (lambda c: c["transitions"][0].pop("passes"), "passes must be a number of turns, got None"),
    "a tag that is a list": (lambda c: c["transitions"][0].update(tag=["x"]), "transition 0: from, to and tag"),
    "states no list": (lambda c: c.update(states={}), "the field 'states' must be a list, got dict"),
    "no states": (lambda c: c.update(states=[], transitions=[]), "there are no states"),
    "edges no objects": (lambda c: c.update(transitions=[1]), "the field 'transitions' must hold objects only"),
    "tags twice": (lambda c: c["tags"].append("x"), "the field 'tags' must be a list of different strings"),
    "settings": (lambda c: c["settings"].update(tau=3), "settings: there is no tau"),
    "a setting": (lambda c: c["settings"].update(min_support=0), "settings: min_support must be"),
    "less training": (lambda c: c.update(training=[]), "training must hold 1 dialogues, got 0"),
    "training": (lambda c: c.update(training=[["x"]]), "training 0: must be a list of turns"),
    "merges": (lambda c: c.update(merges=[3]), "merges 0: must be four numbers"),
    "joined": (lambda c: c.update(joined=[["a", 0]]), "joined 0: must be two pairs"),
    "threshold": (lambda c: c.update(threshold="x"), "threshold must be a number or null, got 'x'"),
    "a section is gone": (lambda c: c.pop("tags"), "the fields tags are missing"),
    "another format": (lambda c: c.update(format="x/9"), "got 'x/9'"),
}


@pytest.mark.parametrize(("spoil", "problem"), BROKEN.values(), ids=BROKEN)
def test_broken_documents_are_refused(spoil, problem):
    content = json.loads(DialogueDFA(1, None).fit([dialogue("a", "x", "p", "y")]).to_json())
    spoil(content)
    with pytest.raises(ValueError, match=re.escape(problem)):
        DialogueDFA.from_json(json.dumps(content))


def test_saved_files_of_another_form_are_refused(tmp_path):
    from offprints import checkpoint

    dfa = DialogueDFA(1).fit([dialogue("a", "x", "p", "y")])
    read = checkpoint.load(dfa.save(tmp_path / "flow"), method="dfa-rag")
    for name, tensors, config in (
        ("tensor", {k: v for k, v in read.tensors.items() if k != "visits_offsets"}, read.config),
        ("states", read.tensors, {k: v for k, v in read.config.items() if k != "states"}),
        ("more", read.tensors, read.config | {"states": [*read.config["states"], read.config["states"][0]]}),
        ("tags", read.tensors, read.config | {"tags": []}),
    ):
        checkpoint.save(tmp_path / name, tensors, method="dfa-rag", version="0", config=config)
        with pytest.raises(ValueError, match=f"{name} must hold an automaton as `save` writes it"):
            DialogueDFA.load(tmp_path / name)


def test_edits_in_the_file_that_is_not_read_are_noticed(tmp_path):
    dfa = DialogueDFA(1).fit([dialogue("a", "x", "p", "y")])
    dfa.save(tmp_path / "flow.v1")
    sidecar = tmp_path / "flow.v1.json"
    content = json.loads(sidecar.read_text())
    assert DialogueDFA.load(tmp_path / "flow.v1.safetensors") == dfa
    content["config"]["states"][0]["name"] = "start"
    for text in (json.dumps(content), "{", "[]"):
        sidecar.write_text(text)
        with pytest.warns(UserWarning, match="flow.v1.json differs from the tensor file.*from_json"):
            assert DialogueDFA.load(tmp_path / "flow.v1") == dfa
    sidecar.unlink()
    assert DialogueDFA.load(tmp_path / "flow.v1") == dfa


def test_documents_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="text:1: not JSON"):
        DialogueDFA.from_json("{")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ValueError, match="list.json must hold an automaton.*got 'list'"):
        DialogueDFA.from_json(tmp_path / "list.json")
    graph = DialogueDFA().fit(DIALOGUES).to_networkx()
    graph.remove_node(0)
    with pytest.raises(ValueError, match="states 0, 1"):
        DialogueDFA.from_networkx(graph)


def test_differences():
    old, new = DialogueDFA(1, None).fit(DIALOGUES[:60]), DialogueDFA(1, None).fit(DIALOGUES[:60])
    assert not old.diff(new)
    more = [dialogue(f"n{k}", "charger", "ask_model") for k in range(20)]
    found = old.diff(new.partial_fit(more))
    assert bool(found)
    assert found.only_here == ()
    assert [shift.path for shift in found.only_there] == [("charger",)]
    assert found.only_there[0].there == pytest.approx(0.25)
    assert new.diff(old).only_here[0].path == ("charger",)
    one = DialogueDFA(1, None).fit([dialogue("a", "x", "p"), dialogue("b", "y", "q")])
    two = DialogueDFA(1, None).fit([dialogue("a", "x", "p"), dialogue("b", "y", "q"), dialogue("c", "y", "q")])
    assert {(s.path, round(s.here, 2), round(s.there, 2)) for s in one.diff(two).shifted} == {
        (("x",), 0.5, 0.33), (("y",), 0.5, 0.67),
    }  # fmt: skip


HOSTILE = ['"', "\\", '\\"', "a]b", "-->", "|", "end", "<b>", "#35;", "]; n0 -> n1 [", "%%", "\\N", "⊣", "\u2063", "🔋",
           "{", "a;b", "`", "'", "subgraph", "a\nb"]  # fmt: skip


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # pydot uses old names of pyparsing
def test_drawings_survive_hostile_tags_and_names(tmp_path):
    dialogues = [
        Dialogue(f"d{k}", (Turn("user", "x", (tag,)), Turn("system", "y", (tag,)))) for k, tag in enumerate(HOSTILE)
    ]
    dfa = DialogueDFA(1, None).fit(dialogues)
    for k, name in enumerate(['x"]', "\\", "a\nb", "|", "end"]):
        dfa.rename(k, name)
    assert drawing_faults(dfa) == 0
    (graph,) = pydot.graph_from_dot_data(dfa.to_dot(tmp_path / "g.dot"))
    assert len(graph.get_edges()) == len(dfa.transitions)
    labels = {edge.get("label") for edge in graph.get_edges()}
    assert labels == {dot_label("")} | {dot_label(tag) for tag in dfa.tags}
    text = dfa.to_mermaid(tmp_path / "g.mmd")
    assert (tmp_path / "g.mmd").read_text(encoding="utf-8") == text
    assert DialogueDFA.from_json(dfa.to_json()) == dfa
    assert DialogueDFA.from_networkx(dfa.to_networkx()) == dfa
    assert mermaid_label('a"b|🔋') == '"a#34;b#124;#128267;"'


def test_drawings_and_graphs_tell_support_and_ends():
    said = {"a": ("x", "y"), "b": ("x", "y"), "c": ("x", "z"), "d": ("w", "z")}
    log = [Dialogue(n, tuple(Turn(("user", "system")[k], t, (t,)) for k, t in enumerate(w))) for n, w in said.items()]
    dfa = DialogueDFA(1, None).fit(log)
    graph = dfa.to_networkx()
    assert {q for q, data in graph.nodes(data=True) if data["accepting"]} == dfa.accepting
    widths = {data["passes"] for _, _, data in graph.edges(data=True)}
    assert widths == {1, 2, 3}
    lines = dfa.to_dot().splitlines()
    edge = {line.split("label=")[1].split(",")[0]: line for line in lines if " -> " in line}
    assert f"penwidth={1 + 4 * 3 / 3:.2f}" in edge['"x"']  # the busiest edge has width 5
    assert f"penwidth={1 + 4 * 2 / 3:.2f}" in edge['"y"']
    assert f"penwidth={1 + 4 * 1 / 3:.2f}" in edge['"w"']
    assert sum("peripheries=2" in line for line in lines) == len(dfa.accepting)


def test_a_layout_has_a_place_for_every_entry_state():
    dfa = DialogueDFA().fit(DIALOGUES)
    kept, places = layout(dfa.automaton)
    assert sorted(kept) == sorted(entries(dfa, "user") + entries(dfa, "system"))
    assert len(set(places.values())) == len(kept)
    assert len(layout(dfa.automaton, 3)[0]) == 3


def test_summary_and_explanation():
    dfa = DialogueDFA().fit(DIALOGUES)
    lines = dfa.summary().splitlines()
    assert lines[0].startswith(f"{len(dfa.states)} states (")
    assert "threshold 0.6" in lines[1]
    assert len(lines) == 7
    start = dfa.explain(0)
    assert (start.role, start.support, start.accepting) == ("user", 120, 0)
    assert set(start.tags) == {"battery", "screen", "refund"}
    assert list(start.tags.values()) == sorted(start.tags.values(), reverse=True)
    assert sum(start.tags.values()) == pytest.approx(1.0)
    assert len(start.said) == 3
    last = dfa.explain(max(dfa.accepting))
    assert last.tags == {}
    assert last.accepting > 0


def test_max_states():
    free = DialogueDFA(1, 1.0).fit(DIALOGUES)
    tight = DialogueDFA(1, 1.0, max_states=len(free.states) - 5).fit(DIALOGUES)
    assert len(tight.states) <= len(free.states) - 5
    assert tight.threshold < 1.0
    with pytest.raises(ValueError, match="max_states must be at least"):
        DialogueDFA(1, max_states=2).fit(DIALOGUES)
    with pytest.raises(ValueError, match="max_states must be at least"):
        DialogueDFA(1, None, max_states=2).fit(DIALOGUES)
