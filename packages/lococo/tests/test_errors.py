"""Bad input: each is refused with what is wrong and what to do."""

import lococo as lc
import pytest
import torch
from lococo_tiny import build, letters, put
from transformers import GPT2Config, GPT2LMHeadModel, T5Config, T5ForConditionalGeneration


def heads(model, **sizes):
    return lc.LoCoCoCompressor.for_model(
        model, **{"mem_size": 8, "kernel_size": 5, "buffer": 2, "dtype": torch.float64, **sizes}
    )


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"kernel_size": 20}, "kernel_size must be odd, got 20. Try 21."),
        ({"kernel_size": 0}, "kernel_size must be an integer at least 1, got 0"),
        ({"mem_size": 1}, "mem_size must be an integer at least 2, got 1"),
        ({"keep_rate": 1.5}, "keep_rate must be between 0 and 1, got 1.5"),
        ({"keep_rate": float("nan")}, "keep_rate must be between 0 and 1, got nan"),
        ({"mem_size": 8, "local_len": 5}, "local_len must be an integer between 0 and 4"),
        ({"mem_size": 8, "keep_rate": 1.0, "local_len": 8}, "local_len must be less than mem_size, got 8 of 8"),
        ({"buffer": -1}, "buffer must be an integer at least 0"),
        ({"n_convs": 0}, "n_convs must be an integer at least 1"),
        ({"width": 0}, "width must be an integer at least 1"),
        ({"activation": "gelu"}, "activation must be one of 'relu', 'none', got 'gelu'"),
        ({"init": "zeros"}, "init must be one of 'kaiming', 'paper'"),
        ({"rope_mode": "both"}, "rope_mode must be one of 'post', 'pre'"),
        ({"alpha_max": -1.0}, "alpha_max must be at least 0"),
    ],
)
def test_sizes(sizes, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        lc.LoCoCoConfig(**sizes)


def test_all_problems_at_once():
    with pytest.raises(ValueError, match="3 problems") as told:
        lc.LoCoCoConfig(mem_size="many", keep_rate=2, kernel_size=2.5)
    assert "many" in str(told.value)


def test_module_inputs():
    module = lc.ConvCompressor(lc.LoCoCoConfig(mem_size=4, kernel_size=3), 3)
    keys, scores = torch.randn(2, 2, 9, 3), torch.rand(2, 2, 9)
    with pytest.raises(ValueError, match=r"keys must be of shape \(b, h, S, 3\), got \(2, 2, 9, 4\)"):
        module(torch.randn(2, 2, 9, 4), keys, scores)
    with pytest.raises(ValueError, match="values must be of shape"):
        module(keys, keys[:, :, 1:], scores)
    with pytest.raises(ValueError, match="scores must be of shape"):
        module(keys, keys, scores[:1])
    with pytest.raises(ValueError, match="valid must be of shape"):
        module(keys, keys, scores, torch.ones(2, 8, dtype=torch.bool))
    with pytest.raises(ValueError, match="got fewer in rows .1.. Compress those rows later: padding must not be fused"):
        module(keys, keys, scores, torch.arange(9) >= torch.tensor([[0], [6]]))
    assert module(keys[:, :, :4], keys[:, :, :4], scores[:, :, :4])[0].shape[2] == 4


def test_models(model):
    with pytest.raises(TypeError, match="model must be a transformers model or its config, got Linear"):
        lc.H2OCache(torch.nn.Linear(2, 2), 8)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": 32}
    with pytest.raises(ValueError, match="model must be decoder only"):
        lc.H2OCache(T5ForConditionalGeneration(T5Config(**sizes)), 8)
    gpt = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=1, n_head=2, vocab_size=32))
    with pytest.raises(TypeError, match="model must have attention modules as Llama's"), lc.observe(gpt):
        pass
    sliding = build("mistral", sliding_window=8)
    with pytest.raises(ValueError, match="model must be one with full-attention layers, got only DynamicSlidingWindow"):
        lc.H2OCache(sliding, 8)
    model_type = build(attn_implementation="sdpa")
    for module in model_type.modules():
        if hasattr(module, "config"):
            module.config._attn_implementation = "flash_attention_2"
    message = "must be one that gives scores .eager or sdpa., got 'flash_attention_2'"
    with pytest.raises(RuntimeError, match=message), lc.observe(model_type):
        pass


def test_heads_of_another_model(model, tmp_path):
    other = build(num_hidden_layers=3)
    with pytest.raises(ValueError, match="'layers': 3.*'layers': 2"):
        lc.LoCoCoCache(model, heads(other))
    heads(other).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="compressor must be made for this model"):
        lc.LoCoCoCompressor.from_pretrained(tmp_path, model)
    with pytest.raises(FileNotFoundError):
        lc.LoCoCoCompressor.from_pretrained(tmp_path / "none", model)
    with pytest.raises(TypeError, match="sizes must be fields of LoCoCoConfig, got 'slots'"):
        lc.LoCoCoCompressor.for_model(model, slots=3)
    with pytest.raises(TypeError, match="a config or sizes by name, got both"):
        lc.LoCoCoCompressor.for_model(model, lc.LoCoCoConfig(), kernel_size=3)
    with pytest.raises(ValueError, match="mem_size must have 2 entries"):
        lc.LoCoCoCompressor.for_model(model, mem_size=[8, 8, 8])
    with pytest.raises(ValueError, match="mem_size must have 2 entries"):
        lc.H2OCache(model, [8])
    with pytest.raises(ValueError, match="model must be given itself, not its config"):
        lc.LoCoCoCache(model.config, heads(model, rope_mode="pre"))
    with pytest.raises(ValueError, match="model must be given itself, not its config"):
        lc.StreamingLLMCache(model.config, 8, reposition=True)


def test_baselines(model):
    for make, message in (
        (lambda: lc.H2OCache(model, 8, 9), "local_len must be an integer between 0 and 8"),
        (lambda: lc.H2OCache(model, 1), "mem_size must be an integer at least 2"),
        (lambda: lc.H2OCache(model, 8, scores="mean"), "scores must be one of"),
        (lambda: lc.StreamingLLMCache(model, 8, 8), "sinks must be an integer at least 0 and less than 8"),
        (lambda: lc.RandomEvictionCache(model, 8, 8), "local_len must be an integer at least 0 and less than 8"),
        (lambda: lc.SnapKVCache(model, 8, 8), "window must be an integer at least 1 and less than 8"),
        (lambda: lc.SnapKVCache(model, 8, 4, 4), "pool must be odd, got 4. Try 5"),
        (lambda: lc.LoCoCoCache(model, heads(model), scores="none"), "scores must be one of 'last', 'sum', 'ema'"),
        (lambda: lc.LoCoCoCache(model, heads(model), decay=0.0), "decay must be greater than 0 and at most 1"),
        (lambda: lc.LoCoCoCache(model, heads(model), buffer=-1), "buffer must be an integer at least 0, got -1"),
        (lambda: lc.LoCoCoCache(model, heads(model), score_window=0), "score_window must be an integer at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_outside_observe(model, ids):
    for cache in (lc.LoCoCoCache(model, heads(model)), lc.StreamingLLMCache(model, 8)):
        with pytest.raises(RuntimeError, match="must be used inside `with observe.model.:`"):
            model(ids, **put(model, cache))


def test_padding_is_told_or_refused(model, ids):
    with lc.observe(model), torch.no_grad():
        for mask, message in (
            (
                torch.tensor([[1] * 40, [1] * 30 + [0] * 10]),
                "got padding behind tokens in rows .1.*padding_side = 'left'",
            ),
            (torch.ones(2, 1, 40, 40), r"attention_mask must be of shape \(2, 40\)"),
            (torch.ones(2, 39), r"attention_mask must be of shape \(2, 40\) .*got \(2, 39\)"),
        ):
            with pytest.raises(ValueError, match=message):
                model(ids, attention_mask=mask, **put(model, lc.LoCoCoCache(model, heads(model))))
        cache, mask = lc.LoCoCoCache(model, heads(model)), torch.ones(2, 40, dtype=torch.long)
        mask[1, :5] = 0
        model(ids[:, :20], attention_mask=mask[:, :20], **put(model, cache))
        with pytest.raises(ValueError, match="must be given again: rows .1. of the cache began with padding"):
            model(ids[:, 20:], **put(model, cache))
        with pytest.raises(ValueError, match="must extend that of earlier calls, got another for rows .1."):
            model(ids[:, 20:], attention_mask=torch.ones(2, 40), **put(model, cache))


def test_calls(model, ids):
    with lc.observe(model), torch.no_grad():
        cache = lc.LoCoCoCache(model, heads(model))
        with pytest.raises(ValueError, match="use_cache must not be False"):
            model(ids, use_cache=False, **put(model, cache))
        model(ids, **put(model, cache))
        with pytest.raises(ValueError, match="the batch must have the 2 rows that this cache holds, got 1"):
            model(ids[:1], **put(model, cache))
        with pytest.raises(ValueError, match="cache_implementation"):
            model.generate(ids, cache_implementation="static", max_new_tokens=1, **put(model, cache))
        with pytest.raises(ValueError, match="cache must be empty, got 40 tokens"):
            lc.chunked_nll(model, ids, cache, 8)
        with pytest.raises(ValueError, match="provenance must be asked for"):
            cache.provenance()


def test_a_nan_does_not_spread(model, ids):
    with lc.observe(model), torch.no_grad():
        cache = lc.LoCoCoCache(model, heads(model))
        model(ids[:, :20], **put(model, cache))
        cache.compressed_layers[0].keys[0, 0, 3, 1] = float("nan")
        with pytest.raises(ValueError, match="keys must be finite, got 1 NaN or inf.*spread over all fused slots"):
            model(ids[:, 20:21], **put(model, cache))


def test_crop(model, ids):
    """Before a compression tokens can be taken back; after it, not."""
    with lc.observe(model), torch.no_grad():
        cache, plain = (lc.LoCoCoCache(model, heads(model), provenance=True) for _ in range(2))
        cache.crop(-3)
        model(ids[:, :9], **put(model, cache))
        cache.crop(-2)
        cache.crop(7)
        cache.crop(0)
        assert cache.get_seq_length() == 7
        model(ids[:, :7], **put(model, plain))
        torch.testing.assert_close(
            model(ids[:, 7:9], **put(model, cache)).logits, model(ids[:, 7:9], **put(model, plain)).logits
        )
        assert cache.provenance()[0].shape == (2, 2, 9, 9)
        assert cache.compressed_layers[0].is_croppable
        for at in (9, 20):
            model(ids[:, at : at + 11], **put(model, cache))
        assert not cache.compressed_layers[0].is_croppable
        with pytest.raises(NotImplementedError, match="crop must come before the first compression"):
            cache.crop(-1)


def test_training(model, ids):
    made = heads(model)
    for how, message in (
        ({"context": 10, "chunk": 5}, "context must be longer than mem_size . buffer .10. by more than one chunk"),
        ({"steps": 0}, "steps must be an integer at least 1"),
        ({"objective": "kl"}, "objective must be one of 'lm', 'lm.distill', 'distill'"),
        ({"schedule": "cosine"}, "schedule must be one of 'constant', 'linear'"),
        ({"held_out": 2}, "data must be more than 2 documents of 40 tokens, got 2"),
        ({"loss_on": torch.ones(3)}, r"loss_on must be of shape \(40,\) .context., got \(3,\)"),
        ({"context": 50}, "data must be of 50 tokens .context. or more, got 40"),
    ):
        with pytest.raises(ValueError, match=message):
            lc.calibrate(model, made, ids, **{"context": 40, "chunk": 8, "steps": 1, **how})
    with pytest.raises(TypeError, match="compressor must be of type LoCoCoCompressor"):
        lc.calibrate(model, None, ids, context=40, chunk=8)
    with pytest.raises(TypeError, match="tokenizer must be given with texts"):
        lc.calibrate(model, made, ["a text"], context=40, chunk=8)
    with pytest.raises(TypeError, match="data must be a list of texts, got one text"):
        lc.perplexity(model, "a text", tokenizer=letters(), context=40, chunk=8)
    with pytest.raises(ValueError, match="data must be texts of 40 tokens .context. or more, got at most 6"):
        lc.perplexity(model, ["a text"], tokenizer=letters(), context=40, chunk=8)


def test_evaluation(model, ids):
    with pytest.raises(ValueError, match="context must be an integer at least 42 .two chunks go unscored., got 40"):
        lc.perplexity(model, ids, context=40, chunk=20)
    with pytest.raises(ValueError, match="caches must be one or more, got none"):
        lc.compare_caches(model, ids, {}, context=40, chunk=8)
    with pytest.raises(TypeError, match="ids must be token ids .integers., got torch.float32"):
        lc.chunked_nll(model, torch.rand(2, 5), lc.H2OCache(model, 8), 4)
    with pytest.raises(ValueError, match="ids must be of 2 tokens or more, got 1"):
        lc.chunked_nll(model, ids[:, :1], lc.H2OCache(model, 8), 4)
    with pytest.warns(UserWarning, match="holds all 40 tokens: it behaves as a full cache"):
        found = lc.perplexity(model, ids, lambda: lc.H2OCache(model, 40), context=40, chunk=8)
    assert found.nll == pytest.approx(lc.perplexity(model, ids, context=40, chunk=8).nll, rel=1e-6)
    question = lc.Question("c", "q", ("a",))
    with pytest.raises(ValueError, match="question 0 must be one with two choices or more, got 0"):
        lc.multiple_choice(model, letters(), [question])
    with pytest.raises(ValueError, match="template must be a text with .context. and .question. in it"):
        lc.qa(model, letters(), [question], template="{question}")
    with pytest.raises(ValueError, match="questions must be one or more, got none"):
        lc.qa(model, letters(), [])
    for sizes, message in (
        ([4, 4], "sizes must be rising"),
        ([16], "sizes must be rising and begin at mean_size .8. or"),
    ):
        with pytest.raises(ValueError, match=message):
            lc.allocate(model, ids, 8, sizes=sizes, context=40, chunk=8)
    with pytest.raises(ValueError, match="context must be greater than the largest size and buffer .32."):
        lc.allocate(model, ids, 8, context=32, chunk=8)


def test_names(model):
    for name, kind, message in (
        ("lru", ValueError, "cache must be one of 'full', 'lococo', 'h2o'"),
        ("h2o:mem_size", ValueError, "arguments of cache .* must be written as name=value, got 'mem_size'"),
        ("full:mem_size=3", TypeError, "cache 'full' takes no arguments, got 'mem_size'"),
        ("h2o:mem_size=8,sinks=2", TypeError, "sinks"),
        ("streaming:mem_size=8,sinks=9", ValueError, "sinks must be"),
    ):
        with pytest.raises(kind, match=message):
            lc.make_cache(name, model)


def test_interpolation(model):
    changed = build()
    lc.interpolate_positions(changed, 4)
    with pytest.raises(ValueError, match="model must be one without scaled positions, got rope type 'linear'"):
        lc.interpolate_positions(changed, 2)
    with pytest.raises(ValueError, match="factor must be at least 1, got 0.5"):
        lc.interpolate_positions(build(), 0.5)
    dynamic = build(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4})
    with pytest.raises(ValueError, match="one whose rotary frequencies are fixed, got rope type 'dynamic'"):
        lc.StreamingLLMCache(dynamic, 8, reposition=True)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lc.nothing  # noqa: B018
