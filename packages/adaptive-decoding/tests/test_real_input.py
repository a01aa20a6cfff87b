"""Files as people have them, a scripted model for the reasoning harness, the command line, and a real model."""

import copy
import json

import adaptive_decoding as ad
import numpy as np
import pytest
import torch
from adaptive_decoding.cli import main
from adaptive_decoding.experiments_texts import documentation, plain
from adaptive_decoding.reasoning import same_number
from transformers.modeling_outputs import CausalLMOutputWithPast

# ---- files


def test_text_jsonl_and_writing_prompts(tmp_path):
    text = tmp_path / "p.txt"
    text.write_bytes("\ufeffOnce upon a time\r\n\r\n  Ünïcode “prompt”\r\n\n".encode())
    assert [p.text for p in ad.load_prompts(text)] == ["Once upon a time", "  Ünïcode “prompt”"]
    lines = tmp_path / "p.jsonl"
    lines.write_bytes(b'\xef\xbb\xbf{"prompt": "a b", "reference": "c"}\r\n\r\n{"prompt": "d"}\n')
    assert ad.load_prompts(lines) == [ad.Prompt("a b", "c"), ad.Prompt("d", None)]
    (tmp_path / "w.wp_source").write_text("[ WP ] A dragon\n[ WP ] A ship\n")
    (tmp_path / "w.wp_target").write_text("It woke . <newline> It flew .\nIt sank .\n")
    found = ad.load_prompts(tmp_path / "w.wp_source")
    assert found == [ad.Prompt("[ WP ] A dragon", "It woke . \n It flew ."), ad.Prompt("[ WP ] A ship", "It sank .")]
    assert len(ad.load_prompts(lines, kind="text")) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"prompt": "a"}\n{"text": "b"}\n', "a.jsonl, line 2: field 'prompt' must be a text, got None"),
        ("a.jsonl", '{"prompt": "a", "reference": 3}\n', "line 1: field 'reference' must be a text, got 3"),
        ("a.jsonl", '{"prompt": "a"}\n{"prompt": \n', "line 2 must be a JSON object"),
        ("a.jsonl", '["a"]\n', "line 1 must be a JSON object"),
        ("a.txt", "\n\n", "must be a file of one prompt or more, got none"),
        ("a.txt", b"good\nb\xffd\n", "a.txt, line 2 must be UTF-8"),
    ],
)
def test_broken_prompts(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        ad.load_prompts(path)


def test_stories_without_prompts(tmp_path):
    (tmp_path / "w.wp_source").write_text("a\nb\n")
    with pytest.raises(FileNotFoundError):
        ad.load_prompts(tmp_path / "w.wp_source")
    (tmp_path / "w.wp_target").write_text("a\n")
    with pytest.raises(ValueError, match=r"w.wp_source and w.wp_target must be of equal lines, got only one line 2"):
        ad.load_prompts(tmp_path / "w.wp_source")
    with pytest.raises(ValueError, match="kind must be one of 'auto'"):
        ad.load_prompts(tmp_path / "w.wp_source", kind="csv")


def test_questions(tmp_path):
    gsm = tmp_path / "gsm8k.jsonl"
    gsm.write_text(
        json.dumps({"question": "How many?", "answer": "6 * 7 = <<6*7=42>>42\n#### 1,042"}) + "\n"
        '{"question": "And?", "answer": 7}\n'
    )
    assert ad.load_questions(gsm) == [ad.Question("How many?", "1,042"), ad.Question("And?", "7")]
    arith = tmp_path / "MultiArith.json"
    arith.write_text('[{"iIndex": 0, "sQuestion": " For Halloween? ", "lSolutions": [14.0], "lEquations": ["X"]}]')
    assert ad.load_questions(arith) == [ad.Question("For Halloween?", "14.0")]
    for content, message in (
        ('{"question": "a", "answer": "none"}', "line 1: the answer must be a number, after ####"),
        ('{"question": "a"}', "the answer must be a number"),
        ('{"answer": "3"}', "field 'question' must be a text"),
        ("[3]", "must be a list of objects"),
        ("", "must be a file of one question or more"),
        ('{"question": "a", "answer": true}', "the answer must be a number"),
    ):
        gsm.write_text(content)
        with pytest.raises(ValueError, match=message):
            ad.load_questions(gsm)


# ---- reasoning


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("6 + 7 = 13. #### 13\nQuestion: 5", "13"),
        ("The answer is $1,200.50.", "$1,200.50"),
        ("So there are 3, then 4 left", "4"),
        ("answer: -5 or 6", "-5"),
        ("none at all", None),
    ],
)
def test_answers_are_read(text, answer):
    assert ad.read_answer(text) == answer


def test_answers_by_an_expression():
    assert ad.read_answer("<a>3</a><a>4</a>", r"<a>(\d)</a>") == "4"
    assert ad.read_answer("x3 y4", r"x\d") == "x3"
    assert ad.read_answer("nothing", r"\d") is None
    with pytest.raises(ValueError, match="answer_re must be a regular expression"):
        ad.read_answer("a", "(")
    assert same_number("$1,200", "1200.0")
    assert not same_number("12", "13")
    assert not same_number(None, "13")
    assert not same_number("x", "13")


def test_accuracy_is_the_count_by_hand(tiny, monkeypatch):
    """20 items, answers from a script: 13 right by hand."""
    from adaptive_decoding import reasoning

    questions = [ad.Question(f"What is {i} + {i}?", str(2 * i)) for i in range(20)]
    said = [f"It is {2 * i}. The answer is {2 * i if i % 3 else 2 * i + 1}" for i in range(20)]
    wanted = sum(1 for i in range(20) if i % 3)
    assert wanted == 13
    seen = []

    def scripted(model, tokenizer, prompts, decoder, **how):
        seen.extend(prompts)
        return [ad.Continuation([], text, np.zeros(0), np.zeros(0), np.zeros(0)) for text in said]

    monkeypatch.setattr(reasoning, "continuations", scripted)
    report = ad.evaluate_reasoning(*tiny, questions, "adaptive:epsilon=0.0005")
    assert report.accuracy == wanted / 20
    assert report.decoder == "adaptive:epsilon=0.0005"
    assert [item.right for item in report.items] == [bool(i % 3) for i in range(20)]
    assert report.interval[0] < report.accuracy < report.interval[1]
    assert seen[0] == "Question: What is 0 + 0?\nAnswer:"
    assert report.items[1].answer == "2"
    assert ad.evaluate_reasoning(*tiny, questions, answer_re=r"It is (\d+)").accuracy == 1.0


def test_a_scripted_model_through_generate(tiny, monkeypatch):
    """A model that goes on with "7 cats" after any ":": right for 13 of 20 items, whatever the decoder."""
    model, tokenizer = tiny
    model = copy.deepcopy(model)
    script = [*tokenizer(":7 cats")["input_ids"], 1]
    table = torch.full((97, 97), -20.0)
    table[script[:-1], script[1:]] = 20.0

    def forward(input_ids, **other):
        return CausalLMOutputWithPast(logits=table[input_ids])

    monkeypatch.setattr(model, "forward", forward)
    questions = [ad.Question(f"How many, of {i}?", "7" if i % 3 else "8") for i in range(20)]
    for decoder in ("greedy", "adaptive:epsilon=0.0005", "top_p:p=0.95", "mirostat"):
        report = ad.evaluate_reasoning(model, tokenizer, questions, decoder, max_new_tokens=12, batch_size=7)
        assert report.accuracy == 13 / 20
        assert {item.text for item in report.items} == {"7 cats"}


def test_reasoning_with_a_model(tiny, tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "2+2?", "answer": "#### 4"}\n')
    model, tokenizer = tiny
    tokenizer.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    try:
        found = ad.evaluate_reasoning(model, tokenizer, path, "greedy", chat=True, max_new_tokens=4, resamples=0)
    finally:
        tokenizer.chat_template = None
    assert len(found.items) == 1
    assert found.items[0].gold == "4"
    with pytest.raises(ValueError, match="template must be a text with .question. in it"):
        ad.evaluate_reasoning(model, tokenizer, path, template="hi")
    with pytest.raises(ValueError, match="jsonl must be a file or list of one question or more"):
        ad.evaluate_reasoning(model, tokenizer, [])


# ---- the command line


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory):
    where = tmp_path_factory.mktemp("model")
    for part in tiny:
        part.save_pretrained(where)
    return str(where)


def test_generate(folder, capsys, tmp_path, monkeypatch):
    how = ["--model", folder, "--max-new-tokens", "5", "--seed", "3"]
    assert main(["generate", "hello", *how]) == 0
    first = capsys.readouterr().out
    assert main(["generate", "hello", *how]) == 0
    assert capsys.readouterr().out == first
    page = tmp_path / "heat.html"
    assert main(["generate", "hello", *how, "--html", str(page)]) == 0
    assert "<span" in page.read_text()
    capsys.readouterr()
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("ab\n\ncd\n"))
    assert main(["generate", *how, "--decoder", "top_k:k=1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["generate", "a", *how, "--decoder", "top_p", "--html", str(page)]) == 2
    assert "--html must go with one prompt and an adaptive decoder" in capsys.readouterr().err
    assert main(["generate", "a", *how, "--decoder", "nope"]) == 2


def test_compare_and_reason(folder, capsys, tmp_path):
    prompts = tmp_path / "p.jsonl"
    prompts.write_text('{"prompt": "abc", "reference": "def"}\n{"prompt": "xyz", "reference": "uvw"}\n')
    how = ["--model", folder, "--max-new-tokens", "4"]
    for name in ("r.md", "r.json", "r.png"):
        out = tmp_path / name
        more = ["--prompts", str(prompts), "--decoders", "adaptive:epsilon=0.05", "greedy", "--out", str(out)]
        assert main(["compare", *how, *more]) == 0
        assert out.stat().st_size > 50
    assert "| greedy |" in capsys.readouterr().out
    questions = tmp_path / "q.jsonl"
    questions.write_text('{"question": "2+2?", "answer": "#### 4"}\n')
    assert main(["reason", *how, "--questions", str(questions)]) == 0
    assert capsys.readouterr().out.startswith("adaptive:epsilon=0.0005: accuracy 0.000 [0.000, 0.000] of 1")
    assert main(["reason", *how, "--questions", str(tmp_path / "none.jsonl")]) == 2
    assert "none.jsonl" in capsys.readouterr().err
    assert main(["compare", *how, "--prompts", str(prompts), "--metrics", "coherence"]) == 2
    assert "embed must be given for coherence" in capsys.readouterr().err


# ---- text for the claims


def test_markup_is_stripped():
    markup = (
        "== Head ==\n'''Bold''' [[link|text]] and [[plain]]<ref name=x>{{cite|a}}</ref> {{box|{{inner}}}}here"
        "[[File:a.png|thumb|a [[b]] c]].<!-- no --> [https://x.org site]\n* item\n{| table\n|-\n|}\nlast"
    )
    assert plain(markup).split("\n") == ["", "Bold text and plain here. site", "", "", "last"]
    assert all(len(part) >= 200 for parts in documentation() for part in parts)


# ---- a real model


@pytest.mark.slow
def test_smollm2_in_batches_with_padding():
    from offprints.testing import offline_lm

    model, tokenizer = offline_lm()
    tokenizer.padding_side = "left"
    batch = tokenizer(["The capital of France is", "Once upon a time, there was a"], return_tensors="pt", padding=True)
    for dtype in (torch.float32, torch.bfloat16):
        processor = ad.AdaptiveLogitsProcessor(1e-3, record=True)
        out = model.to(dtype).generate(**batch, do_sample=True, top_k=0, logits_processor=[processor], max_new_tokens=8)
        assert out.shape[1] == batch["input_ids"].shape[1] + len(processor.trace)
        k, mass = processor.trace.values("k"), processor.trace.values("mass")
        assert (k >= 1).all()
        assert (k <= 1000).all()
        assert k[0, 0] < k[0, 1]  # the capital is known, the story is open
        assert mass[0].min() > 0.5
        assert "<span" in processor.trace.to_html(tokenizer, out, 1)
    model.float()
    plain_run, greedy = (
        model.generate(**batch, do_sample=False, max_new_tokens=6, **extra)
        for extra in ({}, {"logits_processor": [ad.AdaptiveLogitsProcessor()]})
    )
    assert torch.equal(plain_run, greedy)
    beams = model.generate(
        **batch, do_sample=True, num_beams=2, top_k=0, max_new_tokens=4,
        logits_processor=[ad.AdaptiveLogitsProcessor(min_tokens_to_keep=2)],
    )  # fmt: skip
    assert beams.shape == (2, batch["input_ids"].shape[1] + 4)
