"""Files as people have them, questions and needles, the command line, and a real model."""

import json

import lococo as lc
import pytest
import torch
from lococo.cli import main
from lococo.experiments_texts import plain
from lococo_tiny import build, letters, put

# ---- files


def test_texts(tmp_path):
    one = tmp_path / "a.txt"
    one.write_bytes("\ufeffErste Zeile\r\nzweite – Zeile\n".encode())
    assert lc.load_texts(one) == ["Erste Zeile\nzweite – Zeile\n"]
    (tmp_path / "b.txt").write_text("second")
    assert lc.load_texts(tmp_path) == ["Erste Zeile\nzweite – Zeile\n", "second"]
    lines = tmp_path / "c.jsonl"
    lines.write_bytes(b'\xef\xbb\xbf{"text": "a b", "id": 1}\r\n\r\n{"text": "c"}\n')
    assert lc.load_texts(lines) == ["a b", "c"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a"}\n{"body": "b"}\n', "a.jsonl, line 2: field 'text' must be a text, got None"),
        ("a.jsonl", '{"text": 3}\n', "line 1: field 'text' must be a text, got 3"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "line 2 must be a JSON object"),
        ("a.jsonl", '["a"]\n', "line 1 must be a JSON object"),
        ("a.txt", "\n\n", "must be a file of one text or more, got none"),
        ("a.jsonl", "\n", "must be a file of one text or more, got none"),
        ("a.txt", b"good\nb\xffd\n", "a.txt, line 2 must be UTF-8, got byte 0xff"),
    ],
)
def test_broken_texts(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        lc.load_texts(path)


def test_missing_texts(tmp_path):
    with pytest.raises(FileNotFoundError):
        lc.load_texts(tmp_path / "none.txt")
    with pytest.raises(FileNotFoundError, match="no .txt file in"):
        lc.load_texts(tmp_path)


def test_questions(tmp_path):
    path = tmp_path / "q.jsonl"
    rows = [
        {"context": "The sky is blue.", "question": "Colour?", "answer": ["blue", "azure"]},  # SQuAD, TriviaQA
        {"article": "A cat.", "question": "What?", "options": ["a dog", "a cat"], "answer": "B"},  # RACE
        {"context": "It rains.", "question": "Is it dry?", "answer": False},  # BoolQ
        {"context": "c", "question": "q", "choices": ["x", "y"], "answer": 0},
        {"context": "c", "question": "q", "choices": ["x", "y"], "answer": "y"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = lc.load_questions(path)
    assert found[0] == lc.Question("The sky is blue.", "Colour?", ("blue", "azure"))
    assert found[1] == lc.Question("A cat.", "What?", ("a cat",), ("a dog", "a cat"))
    assert found[2] == lc.Question("It rains.", "Is it dry?", ("no",), ("yes", "no"))
    assert [question.answers for question in found[3:]] == [("x",), ("y",)]
    for row, message in (
        ({"question": "q", "answer": "a"}, "field 'article' must be a text"),
        ({"context": "c", "answer": "a"}, "field 'question' must be a text"),
        ({"context": "c", "question": "q"}, "field 'answer' must be a text or a list of texts, got None"),
        ({"context": "c", "question": "q", "answer": []}, "field 'answer' must be a text or a list"),
        (
            {"context": "c", "question": "q", "choices": ["x"], "answer": "C"},
            "one of the choices, its letter or num",
        ),
        ({"context": "c", "question": "q", "choices": "xy", "answer": "x"}, "field 'choices' must be a list of texts"),
    ):
        path.write_text(json.dumps(row))
        with pytest.raises(ValueError, match=message):
            lc.load_questions(path)
    path.write_text("\n")
    with pytest.raises(ValueError, match="must be a file of one question or more"):
        lc.load_questions(path)


def test_texts_become_windows():
    from lococo.data import token_rows

    rows = token_rows(["abcdefg", "xy", "hijk"], letters(), 3)
    assert letters().batch_decode(rows) == ["abc", "def", "hij"]


# ---- questions


@pytest.fixture(scope="module")
def speaker():
    """A model over characters that goes on with the next letter of the alphabet."""
    model = build(dtype=torch.float32, vocab_size=98, hidden_size=112, num_hidden_layers=1, num_attention_heads=4)
    with torch.no_grad():
        for name in ("o_proj", "down_proj"):
            for module in model.modules():
                if hasattr(module, name):
                    getattr(module, name).weight.zero_()
        model.model.embed_tokens.weight.copy_(torch.eye(98, 112))
        shifted = torch.zeros(98, 112)
        shifted[torch.arange(1, 98), torch.arange(97)] = 30.0
        model.lm_head.weight.copy_(shifted)
    return model


def test_questions_are_judged(speaker):
    tokenizer, make = letters(), lambda: lc.H2OCache(speaker, 8, buffer=2)
    asked = [lc.Question("Some context.", "?", ("fgh",)), lc.Question("More.", "?", ("xyz",))]
    found = lc.qa(speaker, tokenizer, asked, make, chunk=5, max_new_tokens=3, template="{context}{question}cde")
    assert found.answers == ["fgh", "fgh"]
    assert (found.right, found.accuracy) == ([True, False], 0.5)
    choices = [lc.Question("c", "?", (good,), ("!bcde", "!ceca")) for good in ("!bcde", "!ceca")]
    picked = lc.multiple_choice(speaker, tokenizer, choices, make, chunk=4, template="{context}{question}")
    assert picked.answers == ["!bcde", "!bcde"]
    assert picked.right == [True, False]


def test_needles(model):
    text = "It is a long text about nothing at all. " * 20
    found = lc.needle_recall(
        build(dtype=torch.float32, vocab_size=98), letters(), [text], context=200, trials=1, chunk=50
    )
    assert found == {0.1: 0.0, 0.5: 0.0, 0.9: 0.0}
    with pytest.raises(ValueError, match="depth must be between 0 and 1, got 2"):
        lc.needle_recall(model, letters(), [text], context=200, depths=[2])


# ---- the command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    where = tmp_path_factory.mktemp("model")
    build(dtype=torch.float32, vocab_size=98, num_hidden_layers=1).save_pretrained(where / "model")
    letters().save_pretrained(where / "model")
    (where / "texts.jsonl").write_text(
        "\n".join(json.dumps({"text": f"text {i} " + "abc def " * 12}) for i in range(4))
    )
    return where


def test_command_line(folder, capsys):
    how = ["--model", str(folder / "model"), "--texts", str(folder / "texts.jsonl"), "--context", "64", "--chunk", "8"]
    train = ["--mem", "8", "--kernel", "5", "--steps", "1"]
    assert main(["calibrate", *how, *train, "--out", str(folder / "heads"), "--held-out", "1"]) == 0
    assert "loss" in capsys.readouterr().out
    assert (folder / "heads" / "heads.safetensors").exists()
    assert main(["calibrate", *how, *train, "--out", str(folder / "paper"), "--recipe", "paper"]) == 0
    assert (folder / "paper" / "model" / "config.json").exists()
    assert main(["tune", *how, *train, "--out", str(folder / "tuned")]) == 0
    assert "positions / 1" in capsys.readouterr().out
    assert (folder / "tuned" / "adapter_config.json").exists()
    heads = f"lococo:heads={folder / 'heads'}"
    assert main(["ppl", *how, "--cache", heads]) == 0
    assert capsys.readouterr().out.startswith("perplexity ")
    caches = ["full", heads, "lococo:mem_size=8,rope_mode=pre", "streaming:mem_size=8", "snapkv:mem_size=8,window=4"]
    assert main(["compare", *how, "--caches", *caches, "random:mem_size=8"]) == 0
    out = capsys.readouterr().out
    assert "| streaming:mem_size=8 |" in out
    assert "| full |" in out
    assert main(["compare", *how, "--caches", "lru"]) == 2
    assert "lococo: cache must be one of 'full'" in capsys.readouterr().err
    assert main(["ppl", *how[:2], "--texts", str(folder / "none.txt")]) == 2


def test_markup_is_stripped():
    markup = (
        "== Head ==\n'''Bold''' [[link|text]] and [[plain]]<ref name=x>{{cite|a}}</ref> {{box|{{inner}}}}here"
        "[[File:a.png|thumb|a [[b]] c]].<!-- no --> [https://x.org site]\n* item\n{| table\n|-\n|}\nlast"
    )
    assert plain(markup).split("\n") == ["", "Bold text and plain here. site", "", "", "last"]


# ---- a real model

PROMPTS = (
    "The capital of France is",
    "Once upon a time, there was a girl who lived in a small house at the edge of a large forest. Every morning she",
    "Question: What is two plus two?\nAnswer:",
    "In the year 1969, two men walked on the Moon for the first time, while a third one stayed in orbit. They were "
    "called Armstrong, Aldrin and Collins. When they came home, people all over the world celebrated them, and the",
)


@pytest.mark.slow
def test_smollm2_samples_in_a_left_padded_batch():
    """Four prompts of different lengths in one padded batch, sampled through a compressed cache; a row's own text
    when it is alone is the row's text in the batch."""
    from offprints.testing import offline_lm

    model, tokenizer = offline_lm()
    tokenizer.padding_side = "left"
    batch = tokenizer(list(PROMPTS), return_tensors="pt", padding=True)
    heads = lc.LoCoCoCompressor.for_model(model, mem_size=24, buffer=4, alpha_init=0.1)
    lengths = batch["attention_mask"].sum(1)
    assert len(set(lengths.tolist())) == 4
    with lc.observe(model):
        cache = lc.LoCoCoCache(model, heads)
        torch.manual_seed(0)  # noqa: TID251 -- generate() draws from the global state
        out = model.generate(**batch, do_sample=True, top_k=20, max_new_tokens=12, **put(model, cache))
        assert out.shape == (4, batch["input_ids"].shape[1] + 12)
        assert max(cache.report().slots) <= 24 + 4 + 1
        assert cache.report().ratio > 1.5
        greedy = {"do_sample": False, "max_new_tokens": 8}
        together = model.generate(**batch, **greedy, **put(model, lc.LoCoCoCache(model, heads)))
        for row in (0, 3):
            ids = batch["input_ids"][row : row + 1, -lengths[row] :]
            alone = model.generate(ids, **greedy, **put(model, lc.LoCoCoCache(model, heads)))
            text = tokenizer.decode(alone[0, lengths[row] :], skip_special_tokens=True)
            assert tokenizer.decode(together[row, -8:], skip_special_tokens=True).startswith(text)
        assert "Paris" in tokenizer.decode(together[0])


@pytest.mark.slow
def test_smollm2_in_bfloat16_and_its_heads_on_disk(tmp_path):
    from offprints.testing import offline_lm

    model, tokenizer = offline_lm()
    model = model.bfloat16()
    ids = tokenizer(PROMPTS[3] * 2, return_tensors="pt")["input_ids"]
    heads = lc.LoCoCoCompressor.for_model(model, mem_size=32, kernel_size=5)
    file = heads.save_pretrained(tmp_path)
    assert file.stat().st_size < 4e6
    heads = lc.LoCoCoCompressor.from_pretrained(tmp_path, model)
    caches = {
        "lococo": lambda: lc.LoCoCoCache(model, heads),
        "h2o": lambda: lc.H2OCache(model, 32),
        "streaming": lambda: lc.StreamingLLMCache(model, 32, reposition=True),
        "snapkv": lambda: lc.SnapKVCache(model, 32, 8),
    }
    for name, make in caches.items():
        nll = lc.chunked_nll(model, ids, make(), 16)
        assert nll.isfinite().all(), name
        assert nll.mean() < 5, name
