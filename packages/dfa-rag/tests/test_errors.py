"""Bad input: what, got, expected, hint; nothing silently wrong."""

import math

import numpy as np
import pytest
from dfa_rag import (
    BeliefTracker,
    BM25Retriever,
    ChatAgent,
    ClusterTagger,
    CopyLLM,
    DenseRetriever,
    DFARouter,
    Dialogue,
    DialogueDFA,
    EmbeddingTagger,
    KeywordTagger,
    LLMTagger,
    OpenAICompatLLM,
    RandomRetriever,
    Turn,
    WorkflowSimulator,
    align,
    coverage,
    load_dialogues,
    normalise_tags,
    paper_similarity,
    random_workflow,
    save_dialogues,
)
from dfa_rag.prompts import answering_prompt

USER, SYSTEM = Turn("user", "hi", ("x",)), Turn("system", "yo", ("y",))
ONE = [Dialogue("a", (USER, SYSTEM))]
DFA = DialogueDFA(1).fit(ONE)
TAGGER = KeywordTagger({"x": ["hi"]})


def router(**options):
    return DFARouter(DFA, ONE, **options)


ROWS = {
    "role": (lambda: Turn("bot", "x"), ValueError, "role must be one of 'user', 'system', got 'bot'"),
    "text": (lambda: Turn("user", None), TypeError, "text must be of type str"),
    "tags as a string": (lambda: Turn("user", "x", "abc"), TypeError, "sequence of strings, got the string 'abc'"),
    "a tag that is none": (lambda: normalise_tags([3]), TypeError, "a tag must be of type str"),
    "id": (lambda: Dialogue(3, ()), TypeError, "id must be"),
    "turn": (lambda: Dialogue("a", ("hi",)), TypeError, "a turn of dialogue 'a' must be of type Turn"),
    "repeat": (lambda: align([USER], "drop"), ValueError, "on_repeat must be one of 'join', 'keep'"),
    "no dialogues": (lambda: DialogueDFA().fit([]), ValueError, "at least one dialogue, got none"),
    "no dialogue": (lambda: DialogueDFA().fit([USER]), TypeError, "each of dialogues must be of type Dialogue"),
    "equal ids and no user": (
        lambda: DialogueDFA().fit([*ONE, *ONE, Dialogue("b", (SYSTEM,))]), ValueError,
        r"2 problems.\n  - two dialogues have the id 'a'; ids must differ\n  - dialogue 'b' has no user turn",
    ),
    "τ": (lambda: DialogueDFA(0), ValueError, "min_support must be an integer at least 1, got 0. It is the paper's τ"),
    "share": (lambda: DialogueDFA(min_share=0.0), ValueError, "min_share must be"),
    "share above one": (lambda: DialogueDFA(min_share=1.5), ValueError, "min_share must be"),
    "share a word": (lambda: DialogueDFA(min_share="some"), ValueError, "min_share must be"),
    "τ a float": (lambda: DialogueDFA(2.5), TypeError, "min_support must be an integer"),
    "λ above one": (lambda: DialogueDFA(merge_threshold=1.1), ValueError, "between 0 and 1, got 1.1. It is the paper's λ"),
    "λ negative": (lambda: DialogueDFA(merge_threshold=-0.1), ValueError, "between 0 and 1"),
    "λ NaN": (lambda: DialogueDFA(merge_threshold=math.nan), ValueError, "got nan"),
    "λ a word": (lambda: DialogueDFA(merge_threshold="high"), ValueError, "Or a number in"),
    "similarity": (lambda: DialogueDFA(similarity="cosine"), ValueError, "'paper', 'lookahead', got 'cosine'. Or a function"),
    "lookahead": (lambda: DialogueDFA(lookahead=0), ValueError, "lookahead must be"),
    "max_states": (lambda: DialogueDFA(max_states=0), ValueError, "max_states must be"),
    "not fitted": (lambda: DialogueDFA().states, ValueError, "fitted first"),
    "unknown state": (lambda: DFA.step(99, ["x"]), ValueError, "state must be an integer between 0 and"),
    "state a name": (lambda: DFA.ids("u0"), TypeError, "state must be an integer"),
    "step role": (lambda: DFA.step(0, ["x"], "bot"), ValueError, "role must be one of"),
    "counts of other shapes": (lambda: paper_similarity(np.ones(2), np.ones(3)), ValueError, "other must be of shape"),
    "counts no array": (lambda: paper_similarity([1.0], [1.0]), TypeError, "counts must be an array"),
    "negative counts": (lambda: paper_similarity(np.ones(2), -np.ones(2)), ValueError, "other must not be negative, got -1.0"),
    "counts NaN": (lambda: paper_similarity(np.full(2, np.nan), np.ones(2)), ValueError, "counts must be finite"),
    "drop": (lambda: BeliefTracker(DFA, drop=0.0), ValueError, "drop must be"),
    "insert": (lambda: BeliefTracker(DFA, insert=0.0), ValueError, "insert must be"),
    "insert above one": (lambda: BeliefTracker(DFA, insert=1.5), ValueError, "insert must be"),
    "drop of all": (lambda: BeliefTracker(DFA, drop=1.0), ValueError, "drop must be"),
    "longest": (lambda: WorkflowSimulator(longest=0), ValueError, "longest must be"),
    "max_tokens": (lambda: OpenAICompatLLM("http://x", "m", max_tokens=0), ValueError, "max_tokens must be"),
    "max_tokens a float": (lambda: OpenAICompatLLM("http://x", "m", max_tokens=2.5), TypeError, "max_tokens must be"),
    "backoff": (lambda: OpenAICompatLLM("http://x", "m", backoff=-1), ValueError, "backoff must be"),
    "asks": (lambda: ChatAgent(router(), CopyLLM(), TAGGER, asks=-1), ValueError, "asks must be"),
    "least_share": (lambda: ChatAgent(router(), CopyLLM(), TAGGER, least_share=2), ValueError, "least_share must be"),
    "restart": (lambda: BeliefTracker(DFA, restart=1.5), ValueError, "restart must be"),
    "aside": (lambda: BeliefTracker(DFA, aside=-1), ValueError, "aside must be"),
    "beam": (lambda: BeliefTracker(DFA, beam=0), ValueError, "beam must be"),
    "router without automaton": (lambda: DFARouter("flow.json", ONE), TypeError, "dfa must be of type DialogueDFA"),
    "examples": (lambda: router(examples=-1), ValueError, "examples must be"),
    "retriever": (lambda: router(retriever="rag"), ValueError, "'hybrid', 'random', 'dense', 'bm25'"),
    "tracking": (lambda: router(tracking="both"), ValueError, "'belief', 'greedy'"),
    "two weights": (lambda: router(weights=(1, 1)), ValueError, "weights must be three numbers"),
    "a negative weight": (lambda: router(weights=(1, 1, -1)), ValueError, "a weight must be"),
    "seed": (lambda: router(seed=-1), ValueError, "seed must be"),
    "dialogues of another automaton": (
        lambda: DFARouter(DFA, [Dialogue("z", (USER, SYSTEM))]), ValueError, "got 1 others, the first 'z'.*partial_fit",
    ),
    "a dialogue that grew": (
        lambda: DFARouter(DFA, [Dialogue("a", (USER, SYSTEM, USER, SYSTEM))]), ValueError, "got more turns. Fit again",
    ),
    "no answers": (lambda: RandomRetriever([Dialogue("a", (USER,))]), ValueError, "a system turn that answers"),
    "conversation of nothing": (lambda: router().route([]), ValueError, "must end with a user turn"),
    "conversation that ends with the system": (lambda: router().route([USER, SYSTEM]), ValueError, "must end with a user"),
    "query": (lambda: DenseRetriever(ONE, query="all"), ValueError, "'last', 'history', 'both'"),
    "BM25 query": (lambda: BM25Retriever(ONE, query="all"), ValueError, "'last', 'history', 'both'"),
    "k1": (lambda: BM25Retriever(ONE, k1=-1), ValueError, "k1 must be"),
    "idf": (lambda: BM25Retriever(ONE, idf="raw"), ValueError, "'smooth', 'floored'"),
    "b": (lambda: BM25Retriever(ONE, b=2), ValueError, "b must be"),
    "no patterns": (lambda: KeywordTagger({}), ValueError, "patterns must hold at least one tag"),
    "a word for a list": (lambda: KeywordTagger({"x": "hi"}), ValueError, "list of words, got 'hi'"),
    "an empty tag": (lambda: KeywordTagger({"#": ["hi"]}), ValueError, "for '#'"),
    "no descriptions": (lambda: EmbeddingTagger({}), ValueError, "descriptions must hold"),
    "cosine": (lambda: EmbeddingTagger({"x": "hi"}, threshold=2), ValueError, "threshold must be"),
    "clusters": (lambda: ClusterTagger(0), ValueError, "clusters must be"),
    "clusters of nothing": (lambda: ClusterTagger().fit([]), ValueError, "at least one dialogue"),
    "inventory": (lambda: LLMTagger(CopyLLM(), "fixed"), ValueError, "'auto' or a list of tags, got 'fixed'"),
    "empty inventory": (lambda: LLMTagger(CopyLLM(), ["#"]), ValueError, "inventory must hold"),
    "retries of the tagger": (lambda: LLMTagger(CopyLLM(), retries=-1), ValueError, "retries must be"),
    "url": (lambda: OpenAICompatLLM("localhost:8000", "m"), ValueError, "must start with http:// or https://"),
    "timeout": (lambda: OpenAICompatLLM("http://x", "m", timeout=0), ValueError, "timeout must be"),
    "retries": (lambda: OpenAICompatLLM("http://x", "m", retries=-1), ValueError, "retries must be"),
    "temperature": (lambda: OpenAICompatLLM("http://x", "m", temperature=-1), ValueError, "temperature must be"),
    "guard": (lambda: ChatAgent(router(), CopyLLM(), TAGGER, guard="on"), ValueError, "'off', 'reask', 'block'"),
    "budget": (lambda: ChatAgent(router(), CopyLLM(), TAGGER, budget=0), ValueError, "budget must be"),
    "layout": (lambda: answering_prompt([USER], [], layout="xml"), ValueError, "'chat', 'transcript'"),
    "agent layout": (lambda: ChatAgent(router(), CopyLLM(), TAGGER, layout="xml"), ValueError, "'chat', 'transcript'"),
    "coverage of nothing": (lambda: coverage(DFA, []), ValueError, "at least one dialogue"),
    "noise": (lambda: WorkflowSimulator(tag_noise=1.5), ValueError, "tag_noise must be"),
    "flow": (lambda: WorkflowSimulator("sales"), ValueError, "flow must be one of 'support'"),
    "empty flow": (lambda: WorkflowSimulator({}, texts={}), ValueError, "flow must have a stage"),
    "next stage": (
        lambda: WorkflowSimulator({"s": {"a": ("b", "t")}}, texts={"a": ["a"], "b": ["b"]}), ValueError, "stage after 's', 'a'",
    ),
    "no paraphrase": (lambda: WorkflowSimulator({"s": {"a": ("b", "end")}}), ValueError, "a paraphrase of 'a'"),
    "n": (lambda: WorkflowSimulator().sample(-1), ValueError, "n must be"),
    "few stages": (lambda: random_workflow(3, 0), ValueError, "states must be"),
    "no file": (lambda: load_dialogues("nowhere.jsonl"), FileNotFoundError, "no dialogues at nowhere.jsonl"),
    "format": (lambda: load_dialogues("x", "xml"), ValueError, "format must be one of 'auto', 'jsonl'"),
    "no automaton": (lambda: DialogueDFA.load("nowhere"), FileNotFoundError, "no checkpoint at nowhere"),
}  # fmt: skip
# ruff: noqa: E501


@pytest.mark.parametrize(("call", "kind", "message"), ROWS.values(), ids=ROWS)
def test_bad_input_is_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


FILES = {
    "not JSON": ("d.jsonl", '{"id": "a", "turns": []}\n{oops\n', r"d.jsonl:2: not JSON"),
    "no turns": ("d.jsonl", '{"id": "a"}\n', r"d.jsonl:1: the field 'turns' is missing; there are id"),
    "no object": ("d.jsonl", "[1]\n", r"d.jsonl:1: must be an object"),
    "turns no list": ("d.jsonl", '{"id": "a", "turns": 3}', r"the field 'turns' must be of type list, got int"),
    "no id": ("d.jsonl", '{"turns": []}', r"d.jsonl:1: the field 'id' is missing"),
    "text no string": (
        "d.jsonl",
        '{"id": "a", "turns": [{"role": "user", "text": 3}]}',
        r"d.jsonl:1: turn 1: the field 'text'",
    ),
    "tags no list": (
        "d.jsonl",
        '{"id": "a", "turns": [{"role": "user", "text": "", "tags": [1]}]}',
        "'tags' must be a list of strings",
    ),
    "role": (
        "d.jsonl",
        '{"id": "a", "turns": [{"role": "judge", "text": ""}]}',
        r"turn 1: the role must be one of .*got 'judge'",
    ),
    "content": (
        "d.jsonl",
        '{"messages": [{"role": "user", "content": 3}]}',
        r"message 1: the field 'content' must be text, got int",
    ),
    "equal ids": (
        "d.jsonl",
        '{"id": "a", "turns": [{"role": "user", "text": "x"}]}\n' * 2,
        r"d.jsonl: 1 problem.\n  - two dialogues",
    ),
    "nothing": ("d.jsonl", "\n", r"d.jsonl must hold at least one dialogue"),
    "no user": ("d.jsonl", '{"id": "a", "turns": [{"role": "system", "text": "x"}]}', "'a' has no user turn"),
    "suffix": ("d.txt", "x", r"d.txt: the format must be told by one of .jsonl"),
    "other JSON": ("d.json", '{"a": 3}', r"d.json must hold MultiWOZ .* or SGD"),
    "broken JSON": ("d.json", '{\n"a": ', r"d.json:2: not JSON"),
    "MultiWOZ text": ("d.json", '{"a": {"log": [{"txt": ""}]}}', r"dialogue a: turn 0: the field 'text' is missing"),
    "SGD speaker": (
        "d.json",
        '[{"dialogue_id": "1", "turns": [{"speaker": "X", "utterance": ""}]}]',
        r"dialogue 0 \(1\): turn 0: the role",
    ),
    "YAML": ("d.yml", "conversations: [", r"d.yml:1: not YAML"),
    "YAML conversation": ("d.yml", "conversations:\n- {a: b}", r"conversation 0 must be a list of utterances"),
    "CSV columns": ("d.csv", "dialogue_id,turn\n", r"d.csv:1: the columns role, text are missing"),
    "CSV turn": (
        "d.csv",
        "dialogue_id,turn,role,text\na,first,user,x\n",
        r"d.csv:2: the field 'turn' must be an integer, got 'first'",
    ),
    "CSV twice": (
        "d.csv",
        "dialogue_id,turn,role,text\na,1,user,x\na,1,user,x\n",
        r"d.csv:3: dialogue 'a' has two turns 1",
    ),
    "CSV long": (
        "d.csv",
        "dialogue_id,turn,role,text\na,1,user,well, no\n",
        r"d.csv:2: the row is longer .* in quotes",
    ),
    "an id that is true": ("d.jsonl", '{"id": true, "turns": []}', r"'id' must be of type str or int, got True"),
    "a ChatML id": ("d.jsonl", '{"id": [], "messages": []}', r"d.jsonl:1: the field 'id' must be of type str or int"),
    "meta": (
        "d.jsonl",
        '{"id": "a", "meta": 5, "turns": []}',
        r"d.jsonl:1: the field 'meta' must be an object, got int",
    ),
    "MultiWOZ acts": (
        "d.json",
        '{"a": {"log": [{"text": "", "dialog_act": {"X": [5]}}]}}',
        r"a: turn 0: the field 'dialog_act' must map",
    ),
    "SGD act": (
        "d.json",
        '[{"dialogue_id": "1", "turns": [{"speaker": "USER", "utterance": "", "frames": [{"actions": [{}]}]}]}]',
        r"dialogue 0 \(1\): turn 0: the field 'act' is missing",
    ),
    "CSV short": ("d.csv", "dialogue_id,turn,role,text\na,1\n", r"d.csv:2: the row is shorter"),
}


@pytest.mark.parametrize(("name", "content", "message"), FILES.values(), ids=FILES)
def test_files_are_refused_with_their_place(tmp_path, name, content, message):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load_dialogues(tmp_path / name)


def test_texts_with_any_line_end_come_back(tmp_path):
    said = [Dialogue("a", (Turn("user", "one\u2028two\x85three\r\nfour"), Turn("system", "\x0b\x1c")))]
    assert load_dialogues(save_dialogues(tmp_path / "d.jsonl", said)) == said


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("d.jsonl", '{"id": "a", "turns": [{"role": "user", "text": "hi"}]}'),
        ("d.csv", "dialogue_id,turn,role,text\na,1,user,hi\n"),
        ("d.json", '{"a": {"log": [{"text": "hi"}]}}'),
        ("d.yml", "conversations:\n- [hi]\n"),
    ],
)
def test_a_byte_order_mark_is_no_text(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8-sig")
    assert [turn.text for turn in load_dialogues(tmp_path / name)[0].turns] == ["hi"]


def test_no_tags_are_noticed():
    with pytest.warns(UserWarning, match="no turn has a tag"):
        DialogueDFA().fit([Dialogue("a", (Turn("user", "hi"),))])


FAULTY = {
    "NaN": (lambda texts: np.full((len(texts), 3), np.nan), "the vectors of encoder must"),
    "one row": (lambda texts: np.ones((len(texts) + 1, 3)), "the vectors of encoder must"),
    "flat": (lambda texts: np.ones(len(texts)), "the vectors of encoder must"),
}


@pytest.mark.parametrize(("encoder", "message"), FAULTY.values(), ids=FAULTY)
def test_faulty_vectors_are_refused(encoder, message):
    learnt = WorkflowSimulator(seed=0).sample(20)
    for call in (
        lambda: DenseRetriever(learnt, encoder=encoder),
        lambda: DFARouter(DialogueDFA().fit(learnt), learnt, encoder=encoder),
        lambda: EmbeddingTagger({"a": "b"}, encoder),
        lambda: ClusterTagger(3, encoder).fit(learnt),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("value", [math.nan, 1.5, -0.1])
def test_a_similarity_outside_its_range_is_refused(value):
    with pytest.raises(ValueError, match="similarity must give numbers in"):
        DialogueDFA(similarity=lambda a, b: value).fit(WorkflowSimulator(seed=0).sample(20))


def test_wrong_kinds_of_files(tmp_path):
    (tmp_path / "d.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="must be UTF-8"):
        load_dialogues(tmp_path / "d.jsonl")
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(ValueError, match="object of dialogues by id, got list"):
        load_dialogues(tmp_path / "x.json", "multiwoz")
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="list of dialogues, got dict"):
        load_dialogues(tmp_path / "x.json", "sgd")
