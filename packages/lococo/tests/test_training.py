"""Heads learn, the model stays; tuning; heads and contexts on disk; rows that move; other families and dtypes."""

import copy

import lococo as lc
import numpy as np
import pytest
import torch
from lococo.experiments_language import fingerprint
from lococo.host import attention_modules, unwrapped
from lococo.tune import Tuned
from lococo_tiny import build, letters, put
from torch import nn


def heads(model, **sizes):
    given = {"mem_size": 8, "kernel_size": 5, "buffer": 2, "dtype": model.dtype, **sizes}
    return lc.LoCoCoCompressor.for_model(model, **given)


@pytest.fixture
def rows():
    """Texts that come back: what was dropped can be asked for."""
    gen = np.random.default_rng(0)
    half = gen.integers(1, 64, size=(12, 24))
    return torch.from_numpy(np.concatenate((half, half), 1))


# ---- calibration


def test_calibration_leaves_the_model_and_learns(rows):
    model = build(dtype=torch.float32)
    made = heads(model)
    before, start = fingerprint(model), copy.deepcopy(made.state_dict())
    flags = [p.requires_grad for p in model.parameters()]
    told = lc.calibrate(
        model, made, rows, context=48, chunk=8, steps=12, batch_size=4, lr=2e-2, held_out=2, eval_every=4
    )
    assert fingerprint(model) == before
    assert [p.requires_grad for p in model.parameters()] == flags
    assert all(p.grad is None for p in (*model.parameters(), *made.parameters()))
    assert len(told.losses) == 12
    assert [step for step, _ in told.held_out] == [0, 4, 8, 12]
    best = min(told.held_out, key=lambda pair: pair[1])
    assert told.best_step == best[0]
    assert told.trainable == sum(p.numel() for p in made.parameters())
    assert len(told.alphas) == 2
    nll = lc.chunked_nll(model, rows[:2], lc.LoCoCoCache(model, made), 8)[:, 16:].mean()
    assert float(nll) == pytest.approx(best[1], rel=1e-6)  # the best state is the one that stays
    if told.best_step:
        assert any(not torch.equal(start[name], x) for name, x in made.state_dict().items())


def test_calibration_lowers_the_loss(rows):
    model = build(dtype=torch.float32)
    made = heads(model, alpha_init=0.9)
    told = lc.calibrate(model, made, rows, context=48, chunk=8, steps=15, batch_size=12, lr=5e-2)
    assert np.mean(told.losses[-3:]) < told.losses[0] - 0.01
    assert told.best_step == 15


@pytest.mark.parametrize("objective", ["lm+distill", "distill"])
def test_distillation_brings_outputs_nearer(rows, objective):
    model = build(dtype=torch.float32)
    made = heads(model, alpha_init=0.9)
    told = lc.calibrate(model, made, rows, context=48, chunk=8, steps=8, batch_size=6, lr=5e-2, objective=objective)
    assert told.losses[-1] < told.losses[0]


def test_gradients_are_those_of_one_chunk(model, ids):
    """Truncated: the first compression learns through the chunk behind it only, and memory stays data."""
    from lococo.train import _document

    made = heads(model)
    for p in model.parameters():
        p.requires_grad_(False)
    with lc.observe(model):
        _document(model, made, ids, 10, "lm", "last", 1)
        whole = made[0].convs[0].weight.grad.clone()
        by_hand, cache = torch.zeros_like(whole), lc.LoCoCoCache(model, made)
        for start in range(0, 40, 10):
            made.zero_grad()
            out = model(ids[:, start : start + 10], **put(model, cache)).logits
            targets = ids[:, start + 1 : start + 11]
            loss = nn.functional.cross_entropy(out[:, : targets.shape[1]].flatten(0, 1).float(), targets.flatten())
            if start > 10:  # 10 slots are no more than M + β = 10; the second chunk compresses nothing
                loss.backward()
                by_hand += made[0].convs[0].weight.grad / 4
            cache.detach_()
    for p in model.parameters():
        p.requires_grad_(True)
    torch.testing.assert_close(whole, by_hand)


def test_what_the_loss_counts(model, ids):
    """Weights of zero everywhere but at one token: the loss is that token's."""
    from lococo.train import _document

    made, weights = heads(model), torch.zeros(40)
    weights[31] = 3.0
    with lc.observe(model):
        got = _document(model, made, ids, 10, "lm", "last", 1, weights)
    nll = lc.chunked_nll(model, ids, lc.LoCoCoCache(model, made), 10)
    assert got == pytest.approx(float(nll[:, 30].mean()), rel=1e-5)


def test_norms_learn_where_asked(rows):
    model = build(dtype=torch.float32)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    lc.calibrate(
        model, heads(model), rows, context=48, chunk=8, steps=2, train_norms=True, warmup=1, schedule="linear",
        accumulation=2, grad_clip=None,
    )  # fmt: skip
    changed = {name for name, p in model.named_parameters() if not torch.equal(before[name], p)}
    assert changed
    assert all("norm" in name or "embed" in name for name in changed)


def test_patience_stops(rows):
    model = build(dtype=torch.float32)
    told = lc.calibrate(
        model, heads(model), rows, context=48, chunk=8, steps=50, lr=10.0, held_out=rows[:2], eval_every=1, patience=2
    )
    assert len(told.losses) < 50


def test_alpha_clamp_and_warm_start(model, ids):
    """α = 0 is heavy-hitter eviction at step 0; a clamp bounds what is used, not what is stored."""
    zero = heads(model, alpha_init=0.0, local_len=0)
    ours = lc.chunked_nll(model, ids, lc.LoCoCoCache(model, zero), 10)
    heavy = lc.chunked_nll(model, ids, lc.H2OCache(model, 8, 0, buffer=2, scores="last"), 10)
    torch.testing.assert_close(ours, heavy)
    clamped = heads(model, alpha_init=5.0, alpha_max=0.25)
    assert float(clamped[0].alpha.detach()) == 5.0
    assert float(clamped[0].used_alpha().detach()) == 0.25


def test_budgets_of_layers(model, ids):
    made = heads(model, mem_size=[6, 12])
    cache = lc.LoCoCoCache(model, made)
    lc.chunked_nll(model, ids, cache, 5)
    assert [layer.policy.mem_size for layer in cache.compressed_layers] == [6, 12]
    config = lc.LoCoCoConfig(mem_size=16, local_len=6, kernel_size=3)
    several = lc.LoCoCoCompressor.for_model(model, config, mem_size=[8, 16])
    assert [(c.mem_size, c.local) for c in several.configs] == [(8, 3), (16, 6)]
    few, many = cache.report().slots
    assert few <= 6 + 2 + 5 < many <= 12 + 2 + 5
    found = lc.allocate(model, ids, 8, context=40, chunk=5, buffer=2)
    assert sum(found) <= 16
    assert all(size in (4, 6, 8, 12, 16) for size in found)
    lc.H2OCache(model, found)


def test_budgets_go_where_they_help(model, ids, monkeypatch):
    """Losses 1/size in one layer and 0.1/size in the other: slots go to the first until a step costs too many."""
    worth = (1.0, 0.1)

    def loss(model, rows, cache, chunk):
        sizes = [layer.policy.mem_size for layer in cache.compressed_layers]
        return torch.tensor([sum(w / size for w, size in zip(worth, sizes, strict=True) if size < 40)])

    monkeypatch.setattr("lococo.budgets.chunked_nll", loss)
    assert lc.allocate(model, ids, 8, sizes=[4, 8, 12], context=40, chunk=5, buffer=2) == [12, 4]
    worth = (0.1, 1.0)
    assert lc.allocate(model, ids, 8, sizes=[4, 8, 12], context=40, chunk=5, buffer=2) == [4, 12]
    assert lc.allocate(model, ids, 6, sizes=[4, 8, 12], context=40, chunk=5, buffer=2) == [4, 8]


# ---- tuning


def test_tuning_extends_and_comes_back(rows, tmp_path):
    model = build(dtype=torch.float32, max_position_embeddings=16)
    base = copy.deepcopy(model)
    made = heads(model)
    tuned = lc.tune_long_context(model, made, rows, target=48, chunk=8, steps=3, batch_size=2, lr=1e-2, head_factor=2.0)
    assert tuned.factor == 3.0
    inner = unwrapped(tuned.model)
    assert inner.config.max_position_embeddings == 48
    assert inner.config.rope_parameters["rope_type"] == "linear"
    frequencies = [m.inv_freq for m in inner.modules() if hasattr(m, "inv_freq")]
    plain = [m.inv_freq for m in base.modules() if hasattr(m, "inv_freq")]
    torch.testing.assert_close(frequencies[0] * 3, plain[0])
    nll = lc.chunked_nll(inner, rows, lc.LoCoCoCache(inner, made), 8)
    tuned.save(tmp_path)
    again = lc.load_tuned(tmp_path, copy.deepcopy(base))
    other = unwrapped(again.model)
    torch.testing.assert_close(lc.chunked_nll(other, rows, lc.LoCoCoCache(other, again.compressor), 8), nll)
    assert again.softened == tuned.softened
    assert any("norm" in name for name in tuned.softened)
    smaller = build(dtype=torch.float32, max_position_embeddings=16, num_hidden_layers=1)
    with pytest.raises(ValueError, match="made from this model, got a parameter"):
        lc.load_tuned(tmp_path, smaller)


def test_tuning_with_full_attention(rows, tmp_path):
    model = build(dtype=torch.float32)
    tuned = lc.tune_long_context(model, None, rows, target=48, steps=2, batch_size=2, lr=1e-2, accumulation=2)
    assert isinstance(tuned, Tuned)
    assert tuned.factor == 1.0  # the model was made for more
    assert tuned.losses[1] != tuned.losses[0]
    tuned.save(tmp_path)
    assert lc.load_tuned(tmp_path, build(dtype=torch.float32)).compressor is None


def test_tuning_without_peft(monkeypatch, rows):
    monkeypatch.setitem(__import__("sys").modules, "peft", None)
    with pytest.raises(ImportError, match=r"pip install 'lococo\[tune\]'"):
        lc.tune_long_context(build(dtype=torch.float32), None, rows, target=48)


# ---- on disk


def test_heads_round_trip(model, ids, tmp_path):
    made = heads(model, mem_size=[8, 6], n_convs=2, activation="none", alpha_max=0.9, rope_mode="pre")
    path = made.save_pretrained(tmp_path / "heads")
    assert path.suffix == ".safetensors"
    for target in (model, model.config, None):
        again = lc.LoCoCoCompressor.from_pretrained(tmp_path / "heads", target)
        assert again.configs == made.configs
        for name, x in again.state_dict().items():
            assert torch.equal(x, made.state_dict()[name])
    one, two = (lc.chunked_nll(model, ids, lc.LoCoCoCache(model, h), 10) for h in (made, again))
    assert torch.equal(one, two)


def test_heads_of_a_real_size_are_a_few_mb():
    from transformers import LlamaConfig

    config = LlamaConfig(hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3)
    made = lc.LoCoCoCompressor.for_model(config, mem_size=128, device="meta")
    assert sum(p.numel() for p in made[0].parameters()) == 64 * 128 * 21 + 64 + 1
    assert sum(p.numel() for p in made.parameters()) < 5.3e6


@pytest.mark.parametrize("kind", ["lococo", "h2o", "random"])
def test_a_compressed_context_comes_back(model, ids, tmp_path, kind):
    made = heads(model, rope_mode="pre")
    build_cache = {
        "lococo": lambda: lc.LoCoCoCache(model, made, scores="sum", provenance=True),
        "h2o": lambda: lc.H2OCache(model, 8, buffer=2),
        "random": lambda: lc.RandomEvictionCache(model, 8, buffer=2),
    }[kind]
    mask = torch.ones_like(ids)
    mask[1, :4] = 0
    with lc.observe(model), torch.no_grad():
        cache = build_cache()
        model(ids[:, :30], attention_mask=mask[:, :30], **put(model, cache))
        cache.save(tmp_path / "document")
        again = build_cache().restore(tmp_path / "document")
        assert str(again.report()) == str(cache.report())
        for at in (30, 33):
            how = {"attention_mask": mask[:, : at + 3]}
            one, two = (model(ids[:, at : at + 3], **how, **put(model, c)).logits for c in (cache, again))
            assert torch.equal(one, two)
        text = model.generate(ids, attention_mask=mask, max_new_tokens=4, do_sample=False, **put(model, again))
        assert text.shape == (2, 44)
    with pytest.raises(ValueError, match="must be of a cache whose cache is SnapKVCache, got"):
        lc.SnapKVCache(model, 8, 3).restore(tmp_path / "document")
    with pytest.raises(ValueError, match="must hold something to be saved"):
        build_cache().save(tmp_path / "empty")


# ---- rows


def test_rows_move_with_all_they_have(model, ids):
    made = heads(model, rope_mode="pre")
    with lc.observe(model), torch.no_grad():
        mask = torch.ones_like(ids)
        mask[1, :6] = 0
        cache, other = (lc.LoCoCoCache(model, made, scores="sum", provenance=True) for _ in range(2))
        for c in (cache, other):
            model(ids[:, :25], attention_mask=mask[:, :25], **put(model, c))
        cache.reorder_cache(torch.tensor([1, 0]))
        swapped = model(ids.flip(0)[:, 25:], attention_mask=mask.flip(0), **put(model, cache)).logits
        plain = model(ids[:, 25:], attention_mask=mask, **put(model, other)).logits
        torch.testing.assert_close(swapped.flip(0), plain)
        cache.batch_repeat_interleave(2)
        assert cache.compressed_layers[0].keys.shape[0] == 4
        cache.batch_select_indices(torch.tensor([True, False, True, False]))
        layer, there = cache.compressed_layers[1], other.compressed_layers[1]
        for name in ("keys", "values", "scores", "positions", "origins"):
            torch.testing.assert_close(getattr(layer, name).flip(0), getattr(there, name))
        assert layer.lengths[::-1] == there.lengths
        cache.reset()
        assert cache.get_seq_length() == 0
        assert cache.report().ratio == 1.0


def test_beams_equal_a_search_that_reads_everything_again(model, ids):
    """Beam search with reordered rows finds what it finds when each beam's cache is built from scratch."""
    prompt = ids[:1, :20]
    with lc.observe(model), torch.no_grad():
        made = heads(model)
        found = model.generate(
            prompt, num_beams=3, do_sample=False, max_new_tokens=6, return_dict_in_generate=True, output_scores=True,
            **put(model, lc.LoCoCoCache(model, made)),
        )  # fmt: skip
        sequence = found.sequences
        cache, total = lc.LoCoCoCache(model, made), 0.0
        logits = model(prompt, **put(model, cache)).logits
        for at in range(20, sequence.shape[1]):
            total += float(logits[0, -1].log_softmax(-1)[sequence[0, at]])
            logits = model(sequence[:, at : at + 1], **put(model, cache)).logits
        length = sequence.shape[1] - 20
        assert float(found.sequences_scores[0]) == pytest.approx(total / length, rel=1e-4)


def test_provenance_adds_up(model, ids):
    made = heads(model)
    with lc.observe(model), torch.no_grad():
        cache = lc.LoCoCoCache(model, made, provenance=True)
        for start in range(0, 40, 10):
            model(ids[:, start : start + 10], **put(model, cache))
        for origins, layer in zip(cache.provenance(), cache.compressed_layers, strict=True):
            assert origins.shape == (2, 2, layer.keys.shape[2], 40)
            torch.testing.assert_close(origins.sum(-1), torch.ones_like(origins[..., 0]))
            assert (origins[:, :, -10:, -10:] == torch.eye(10)).all()
        first = cache.compressed_layers[0]  # values of the first layer do not depend on what was compressed
        values = lc.H2OCache(model, 64)
        model(ids, **put(model, values))
        mixed = origins_of(cache) @ values.compressed_layers[0].values
        torch.testing.assert_close(mixed, first.values, rtol=1e-5, atol=1e-5)


def origins_of(cache):
    return cache.provenance()[0].double()


# ---- other models


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_families_and_dtypes(ids, family, dtype):
    model = build(family, dtype=dtype)
    made = lc.LoCoCoCompressor.for_model(model, mem_size=8, kernel_size=5, buffer=2)
    mask = torch.ones_like(ids)
    mask[1, :11] = 0
    with lc.observe(model), torch.no_grad():
        for how in ({"do_sample": False}, {"do_sample": True}, {"num_beams": 2, "do_sample": False}):
            cache = lc.LoCoCoCache(model, made)
            torch.manual_seed(0)  # noqa: TID251 -- generate() draws from the global state
            out = model.generate(
                ids, attention_mask=mask, max_new_tokens=8, prefill_chunk_size=16, **how, **put(model, cache)
            )
            assert out.shape == (2, 48)
            assert cache.compressed_layers[0].keys.dtype == dtype
            assert max(cache.report().slots) <= 8 + 2 + 1


def test_mixed_layers(ids):
    """Layers with a sliding window keep their own cache; full-attention layers are compressed."""
    types = ["full_attention", "sliding_attention", "full_attention"]
    model = build(
        "qwen2", num_hidden_layers=3, layer_types=types, use_sliding_window=True, sliding_window=8, max_window_layers=0
    )
    made = heads(model)
    assert made.layers == [0, 2]
    with lc.observe(model), torch.no_grad():
        cache = lc.LoCoCoCache(model, made)
        out = model.generate(ids, max_new_tokens=6, do_sample=False, **put(model, cache))
        assert out.shape == (2, 46)
        assert [type(layer).__name__ for layer in cache.layers] == [
            "CompressedLayer", "DynamicSlidingWindowLayer", "CompressedLayer",
        ]  # fmt: skip
        assert len(cache.report().slots) == 2
        short, plain = lc.LoCoCoCache(model, heads(model, mem_size=48)), None
        ours = model(ids, **put(model, short)).logits
        plain = model(ids).logits
        torch.testing.assert_close(ours, plain)


def test_observing_leaves_no_trace(model, ids):
    hooks = [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()]
    backend = model.config._attn_implementation
    plain = model(ids).logits
    with lc.observe(model), lc.observe(model):
        assert torch.equal(model(ids).logits, plain)
        with pytest.raises(ZeroDivisionError), lc.observe(model):
            1 / 0  # noqa: B018
        model(ids[:, :30], **put(model, lc.H2OCache(model, 8)))
    assert model.config._attn_implementation == backend
    assert [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in model.modules()] == hooks
    assert len(attention_modules(model)) == 2


def test_letters():
    assert letters()("ab")["input_ids"] == [67, 68]
