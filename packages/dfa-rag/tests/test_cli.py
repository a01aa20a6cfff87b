"""The command line, on files."""

import io
import sys
import types

import pytest
from dfa_rag import DFARouter, DialogueDFA, WorkflowSimulator, cli, load_dialogues, save_dialogues
from dfa_rag.evaluate import retrieval_precision
from dfa_rag.llms import CopyLLM, OpenAICompatLLM


@pytest.fixture(name="log")
def fixture_log(tmp_path):
    return str(save_dialogues(tmp_path / "log.jsonl", WorkflowSimulator(seed=0).sample(80)))


def test_fit_show_chat(log, tmp_path, capsys, monkeypatch):
    out = str(tmp_path / "made" / "flow")
    assert cli.main(["fit", "--data", log, "--out", out, "--min-support", "3"]) == 0
    assert "states" in capsys.readouterr().out
    assert {path.suffix for path in (tmp_path / "made").iterdir()} == {
        ".json",
        ".safetensors",
        ".jsonl",
        ".dot",
        ".mmd",
    }
    for form, start in (("summary", ""), ("mermaid", "flowchart"), ("dot", "digraph"), ("json", "{")):
        assert cli.main(["show", out, "--as", form]) == 0
        assert capsys.readouterr().out.startswith(start)
    monkeypatch.setattr("sys.stdin", io.StringIO("the screen is cracked\nwhat?\n\nnever read\n"))
    assert cli.main(["chat", out, "--guard", "reask"]) == 0
    said = capsys.readouterr().out
    assert "warranty" in said
    assert said.count("examples") == 2


def test_the_data_are_not_overwritten(log, capsys):
    assert cli.main(["fit", "--data", log, "--out", log.removesuffix(".jsonl")]) == 2
    assert "--out must not overwrite the data" in capsys.readouterr().err


@pytest.mark.parametrize("tagger", ["data", "clusters:9", "keywords"])
def test_evaluate(log, tmp_path, capsys, tagger):
    if tagger == "keywords":
        (tmp_path / "words.json").write_text('{"battery": ["battery"], "yes": ["yes", "sure"]}')
        tagger += f":{tmp_path / 'words.json'}"
    assert cli.main(["evaluate", "--data", log, "--tagger", tagger, "--examples", "2", "--threshold", "0.5"]) == 0
    told = capsys.readouterr().out
    assert "56 to learn from, 24 to measure on" in told
    assert all(f"{name:7s} precision@2" in told for name in ("dfa", "paper", "dense", "bm25", "random"))


def test_evaluate_compares_with_the_paper_and_hides_the_test_dialogues(log, capsys, monkeypatch):
    seen, fit = [], cli.ClusterTagger.fit
    monkeypatch.setattr(
        cli.ClusterTagger, "fit", lambda self, dialogues: seen.append(len(dialogues)) or fit(self, dialogues)
    )
    assert cli.main(["evaluate", "--data", log, "--tagger", "clusters:9"]) == 0
    assert seen == [56]
    dialogues = load_dialogues(log)
    train, test = dialogues[:56], dialogues[56:]
    paper = DFARouter.paper(DialogueDFA.paper().fit(train), train)
    found = retrieval_precision(paper, test, 5, lambda e: e.answer.tags, lambda d, p: d.turns[p].tags)
    capsys.readouterr()
    assert cli.main(["evaluate", "--data", log]) == 0
    assert f"paper   precision@5 {found.precision:.3f}" in capsys.readouterr().out


def test_evaluate_with_a_model_and_a_judge(log, capsys, monkeypatch):
    monkeypatch.setattr(OpenAICompatLLM, "complete", lambda self, prompt: "tie")
    options = ["--llm", "copy", "--judge", "openai:any", "--limit", "4"]
    assert cli.main(["evaluate", "--data", log, *options]) == 0
    assert "0 wins, 4 ties, 0 losses" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "share"), [((), "auto"), (["--min-share", "0"], None), (["--min-share", "0.4"], 0.4)]
)
def test_settings_reach_the_automaton(log, tmp_path, given, share):
    out = str(tmp_path / "flow")
    assert cli.main(["fit", "--data", log, "--out", out, "--threshold", "0.7", *given]) == 0
    dfa = DialogueDFA.load(out)
    assert (dfa.min_support, dfa.merge_threshold, dfa.similarity, dfa.min_share) == (5, 0.7, "lookahead", share)


def test_a_drawing_is_made_by_graphviz(log, tmp_path, capsys, monkeypatch):
    out = str(tmp_path / "flow")
    assert cli.main(["fit", "--data", log, "--out", out]) == 0
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "graphviz", None)  # not installed
    assert cli.main(["show", out, "--as", "svg"]) == 2
    assert "dfa-rag[viz]" in capsys.readouterr().err
    library = types.ModuleType("graphviz")
    library.ExecutableNotFound = type("ExecutableNotFound", (RuntimeError,), {})
    dot = DialogueDFA.load(out).to_dot()

    class Source:
        def __init__(self, text):
            assert text == dot

        def pipe(self, format, encoding):
            assert (format, encoding) == ("svg", "utf-8")
            if library.lost:
                raise library.ExecutableNotFound("dot")
            return "<svg/>"

    library.Source, library.lost = Source, False
    monkeypatch.setitem(sys.modules, "graphviz", library)
    assert cli.main(["show", out, "--as", "svg"]) == 0
    assert capsys.readouterr().out == "<svg/>\n"
    library.lost = True
    assert cli.main(["show", out, "--as", "svg"]) == 2
    assert "must be on the path" in capsys.readouterr().err


def test_wrong_usage(log, tmp_path, capsys, monkeypatch):
    assert cli.main(["fit", "--data", str(tmp_path / "none.jsonl")]) == 2
    assert "no dialogues at" in capsys.readouterr().err
    assert cli.main(["evaluate", "--data", log, "--test", "0"]) == 2
    assert cli.main(["fit", "--data", log, "--tagger", "magic", "--out", str(tmp_path / "x")]) == 2
    assert "copy, hf:NAME or openai:NAME" in capsys.readouterr().err

    def unreachable(self, prompt):
        raise ConnectionError("nobody there")

    monkeypatch.setattr(OpenAICompatLLM, "complete", unreachable)
    assert cli.main(["fit", "--data", log, "--tagger", "openai:m", "--out", str(tmp_path / "x")]) == 1
    assert "nobody there" in capsys.readouterr().err
    assert isinstance(cli.language_model("copy", ""), CopyLLM)
    with pytest.raises(SystemExit):
        cli.main(["dance"])
