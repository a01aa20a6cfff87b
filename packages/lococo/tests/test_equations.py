"""The paper's equations: numbers by hand, identities, and the fast path against the literal one."""

import itertools

import lococo as lc
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from lococo import _reference as reference
from lococo.attention import causal, weigh
from lococo.host import inverse_frequencies
from lococo.plan import choose, top
from lococo.rope import turned
from lococo_tiny import build, put
from torch import nn
from transformers import DynamicCache


def conv(mem=6, dim=3, seed=0, dtype=torch.float64, **sizes):
    config = lc.LoCoCoConfig(mem_size=mem, kernel_size=sizes.pop("kernel_size", 3), **sizes)
    gen = torch.Generator().manual_seed(seed)
    return lc.ConvCompressor(config, dim, dtype=dtype, generator=gen)


def data(b=2, h=2, s=13, d=3, seed=0, dtype=torch.float64):
    gen = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(b, h, s, d, generator=gen, dtype=dtype) for _ in range(2))
    return keys, values, torch.rand(b, h, s, generator=gen, dtype=dtype)


def literal(module, keys, values, scores):
    c = module.config
    convs = [(layer.weight, layer.bias) for layer in module.convs]
    rows = [
        reference.compress(k, v, s, convs, module.used_alpha(), c.mem_size, c.fused, c.local)
        for k, v, s in zip(keys, values, scores, strict=True)
    ]
    return tuple(torch.stack(part) for part in zip(*rows, strict=True))


def test_hand_example():
    """d = 1, S' = 3, conv 0: W is uniform; K' = (1, 2, 6), C = 1, s' = (0, 0, 1), α = ½ gives ½·6 + ½·3 = 4.5."""
    module = conv(mem=2, dim=1, keep_rate=0.5, local_len=0)
    nn.init.zeros_(module.convs[0].weight)
    nn.init.zeros_(module.convs[0].bias)
    keys = torch.tensor([1.0, 2, 6]).double().view(1, 1, 3, 1)
    scores = torch.tensor([0.0, 0, 1]).double().view(1, 1, 3)
    weights = module.mixing_weights(keys, keys, scores)
    assert weights.flatten().tolist() == pytest.approx([1 / 6, 1 / 6, 2 / 3])
    assert float((weights @ keys).detach().flatten()) == pytest.approx(4.5)
    k = [[1.0], [2.0], [6.0]]
    zero = [(torch.zeros(1, 2, 3), torch.zeros(1))]
    mixed = reference.mixing(torch.tensor(k), torch.tensor(k), torch.tensor([0.0, 0, 1]), zero, torch.tensor(0.5), 1)
    assert float((mixed @ torch.tensor(k)).flatten()) == pytest.approx(4.5)


def test_a_convolution_by_hand():
    """κ = 3, weights (1, 2, 4): y_j = x_{j−1} + 2 x_j + 4 x_{j+1}, zero outside."""
    x = torch.tensor([[1.0, 10, 100]])
    assert reference.convolve(x, torch.tensor([[[1.0, 2, 4]]]), torch.tensor([0.5])).tolist() == [[42.5, 421.5, 210.5]]


@pytest.mark.parametrize(
    "sizes",
    [
        {}, {"local_len": 0}, {"local_len": 2, "n_convs": 2, "width": 2}, {"keep_rate": 0.0, "local_len": 0},
        {"keep_rate": 1.0}, {"kernel_size": 7, "alpha_init": 1.3}, {"alpha_init": 3.0, "alpha_max": 0.7},
        {"init": "paper"},
    ],
)  # fmt: skip
def test_fast_equals_literal(sizes):
    module = conv(dim=2, **sizes)
    inputs = data(d=2)
    for ours, theirs in zip(module(*inputs), literal(module, *inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


@settings(max_examples=8, deadline=None)
@given(
    mem=st.integers(2, 7),
    extra=st.integers(1, 6),
    rate=st.floats(0, 1),
    local=st.integers(0, 7),
    seed=st.integers(0, 99),
)
def test_fast_equals_literal_everywhere(mem, extra, rate, local, seed):
    kept = mem - int(mem * (1 - rate))
    module = conv(mem=mem, dim=2, keep_rate=rate, local_len=min(local, kept, mem - 1), seed=seed)
    inputs = data(b=1, h=1, s=mem + extra, d=2, seed=seed)
    inputs[2].mul_(4).round_()  # with ties
    for ours, theirs in zip(module(*inputs), literal(module, *inputs), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_without_activation_negative_rows_differ():
    module = conv(activation="none")
    inputs = data()
    with torch.no_grad():
        module.convs[0].bias.fill_(-50.0)
    relu = conv(activation="relu")
    relu.load_state_dict(module.state_dict())
    flat = relu.plan(*inputs).weights
    spread = module.plan(*inputs).weights
    others = inputs[0].shape[2] - module.config.kept
    assert torch.allclose(flat.min(-1).values, torch.full_like(flat[..., 0], 0.5 / others))  # W uniform
    assert (spread.min(-1).values < 0.5 / others - 1e-3).all()


def test_choice_by_hand():
    scores = torch.tensor([5.0, 1, 4, 4, 0, 2])
    assert top(scores, 3).tolist() == [0, 2, 3]
    kept, others = choose(scores, 3, 2)
    assert (kept.tolist(), others.tolist()) == ([0, 4, 5], [1, 2, 3])
    assert reference.choose(scores, 4, 1, 2) == ([0, 4, 5], [1, 2, 3])


def test_alpha_zero_is_heavy_hitters():
    """α = 0: the memory is exactly the top M by score, with local slots the last L and the top M − L of the others."""
    keys, values, scores = data()
    for local in (0, 2):
        module = conv(alpha_init=0.0, local_len=local)
        found = module(keys, values, scores)[0].sort(2).values
        kept = choose(scores, 6, local)[0]
        wanted = keys.gather(2, kept.unsqueeze(-1).expand(-1, -1, -1, 3)).sort(2).values
        assert (found - wanted).abs().max() <= 1e-6


def test_rows_are_averages():
    """W* ≥ 0 for 0 ≤ α ≤ 1, rows sum to 1, a constant value is preserved."""
    keys, values, scores = data()
    for alpha in (0.0, 0.3, 1.0, -0.5, 1.5):
        module = conv(alpha_init=alpha)
        weights = module.plan(keys, values, scores).weights
        assert (weights.sum(-1) - 1).abs().max() <= 1e-6
        assert (weights >= 0).all() or not 0 <= alpha <= 1
        constant = torch.full_like(values, 2.5)
        assert (module(keys, constant, scores)[1] - 2.5).abs().max() <= 1e-6


def test_keep_rates_at_the_ends():
    keys, values, scores = data()
    all_kept = conv(keep_rate=1.0, local_len=0)
    assert not all_kept.convs
    wanted = keys.gather(2, top(scores, 6).unsqueeze(-1).expand(-1, -1, -1, 3))
    assert torch.equal(all_kept(keys, values, scores)[0], wanted)
    plan = conv(keep_rate=0.0, local_len=0).plan(keys, values, scores)
    assert plan.kept.shape[-1] == 0
    assert plan.weights.shape[-2:] == (6, 13)


def test_rows_and_heads_permute():
    module, (keys, values, scores) = conv(), data(b=3, h=3)
    whole = module(keys, values, scores)
    for dim in (0, 1):
        order = torch.tensor([2, 0, 1])
        turned_round = module(*(x.index_select(dim, order) for x in (keys, values, scores)))
        for a, b in zip(whole, turned_round, strict=True):
            torch.testing.assert_close(a.index_select(dim, order), b, rtol=0, atol=1e-12)


def test_local_slots_survive_to_the_bit():
    module, (keys, values, scores) = conv(local_len=2), data()
    new_keys, new_values = module(keys, values, scores)
    kept = module.config.kept
    assert torch.equal(new_keys[:, :, kept - 2 : kept], keys[:, :, -2:])
    assert torch.equal(new_values[:, :, kept - 2 : kept], values[:, :, -2:])


def test_gradcheck():
    module, (keys, values, scores) = conv(mem=4, dim=2), data(b=1, s=8, d=2)
    parameters = list(module.parameters())
    keys.requires_grad_()
    values.requires_grad_()
    assert torch.autograd.gradcheck(lambda *_: module(keys, values, scores), (keys, values, *parameters))
    assert module.alpha.grad is None


@pytest.mark.parametrize("convs", [1, 2])
def test_padding_is_never_fused(convs):
    """A row behind padding gives what it gives alone; what stands in the padding does not matter."""
    module, (keys, values, scores) = conv(local_len=1, n_convs=convs), data(b=2, s=14)
    valid = torch.ones(2, 14, dtype=torch.bool)
    valid[1, :5] = False
    keys[1, :, :5], values[1, :, :5], scores[1, :, :5] = 1e4, -1e4, 1e4
    both = module(keys, values, scores, valid)
    alone = module(keys[1:, :, 5:], values[1:, :, 5:], scores[1:, :, 5:])
    for a, b in zip(both, alone, strict=True):
        torch.testing.assert_close(a[1:], b)
    plan = module.plan(keys, values, scores, valid)
    others = valid[:, None].expand(2, 2, 14).gather(-1, plan.others)
    assert (plan.weights[~others[:, :, None].expand_as(plan.weights)] == 0).all()


def test_scores_by_hand_and_in_blocks(monkeypatch):
    gen = torch.Generator().manual_seed(0)
    query = torch.randn(2, 6, 5, 4, generator=gen, dtype=torch.float64)
    key, value = (torch.randn(2, 2, 9, 4, generator=gen, dtype=torch.float64) for _ in range(2))
    mask = causal(5, 9, key.device)
    repeated = key.repeat_interleave(3, 1)
    logits = (query @ repeated.transpose(-1, -2) * 0.5).masked_fill(~mask, -torch.inf)
    weights = logits.softmax(-1)
    wanted = torch.stack([reference.attention_scores(w, 3) for w in weights])
    out = weights @ value.repeat_interleave(3, 1)
    for block in (256, 2):
        monkeypatch.setattr("lococo.attention.BLOCK", block)
        for given_mask in (mask, None, torch.zeros(1, 1, 5, 9).double().masked_fill(~mask, -1e30)):
            got, mass = weigh(query, key, value, given_mask, 0.5, None)
            torch.testing.assert_close(got, out)
            torch.testing.assert_close(mass, wanted)
    real = torch.tensor([[False, True, True, True, True], [True] * 5])
    _, mass = weigh(query, key, None, mask, 0.5, real)
    torch.testing.assert_close(mass[0], reference.attention_scores(weights[0, :, 1:], 3))


def test_rotation_by_hand():
    gen = torch.Generator().manual_seed(0)
    x, frequencies = torch.randn(6, generator=gen, dtype=torch.float64), torch.tensor([1.0, 0.1])
    for by in (-3.0, 2.5):
        head = reference.rotate(x[:4], by * frequencies)
        torch.testing.assert_close(
            turned(x, torch.tensor(by), frequencies), torch.cat((head, x[4:])), rtol=1e-6, atol=1e-6
        )
    back = turned(turned(x, torch.tensor(7.0), frequencies), torch.tensor(-7.0), frequencies)
    torch.testing.assert_close(back, x, rtol=1e-6, atol=1e-6)


# ---- in a model


def caches(model, mem=8, buffer=4, dtype=torch.float64):
    heads = lc.LoCoCoCompressor.for_model(model, mem_size=mem, kernel_size=5, local_len=2, buffer=buffer, dtype=dtype)
    pre = lc.LoCoCoCompressor.for_model(
        model, mem_size=mem, kernel_size=5, local_len=2, buffer=buffer, dtype=dtype, rope_mode="pre"
    )
    return {
        "lococo": lambda: lc.LoCoCoCache(model, heads),
        "lococo ema": lambda: lc.LoCoCoCache(model, heads, scores="ema", score_window=3),
        "lococo pre": lambda: lc.LoCoCoCache(model, pre, scores="sum"),
        "h2o": lambda: lc.H2OCache(model, mem, buffer=buffer),
        "heavy": lambda: lc.H2OCache(model, mem, 0, buffer=buffer),
        "streaming": lambda: lc.StreamingLLMCache(model, mem, buffer=buffer),
        "streaming moved": lambda: lc.StreamingLLMCache(model, mem, reposition=True, buffer=buffer),
        "random": lambda: lc.RandomEvictionCache(model, mem, buffer=buffer),
        "snapkv": lambda: lc.SnapKVCache(model, mem, 3, 3, buffer=buffer),
    }


NAMES = ("lococo", "lococo ema", "lococo pre", "h2o", "heavy", "streaming", "streaming moved", "random", "snapkv")


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
def test_short_contexts_equal_the_full_cache_to_the_bit(ids, backend):
    model = build(attn_implementation=backend)
    with lc.observe(model), torch.no_grad():
        for name in ("lococo", "streaming"):
            ours, theirs = caches(model)[name](), DynamicCache(config=model.config)
            for part in (ids[:, :7], ids[:, 7:11], ids[:, 11:12]):
                assert torch.equal(model(part, **put(model, ours)).logits, model(part, **put(model, theirs)).logits)


@pytest.mark.parametrize("name", NAMES)
def test_slots_are_bounded(model, ids, name):
    with lc.observe(model), torch.no_grad():
        cache = caches(model)[name]()
        for start in range(0, 40, 5):
            model(ids[:, start : start + 5], **put(model, cache))
            assert all(slots <= 8 + 4 + 5 for slots in cache.report().slots)
            assert cache.get_seq_length() == start + 5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_eager_equals_sdpa(ids, name, family):
    mask = torch.ones_like(ids)
    mask[1, :9] = 0
    found = []
    for backend in ("eager", "sdpa"):
        model = build(family, attn_implementation=backend)
        cache = caches(model)[name]()
        with lc.observe(model), torch.no_grad():
            logits = [
                model(ids[:, a:b], attention_mask=mask[:, :b], **put(model, cache)).logits
                for a, b in itertools.pairwise((0, 12, 17, 30, 31, 32, 33, 34, 35, 36, 40))
            ]
        found.append(torch.cat(logits, 1))
    gap = (found[0] - found[1])[mask.bool()].abs().max() / found[1].abs().max()
    assert gap <= 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_left_padding_changes_nothing(model, ids, name):
    """A row behind padding compresses when it would alone, and fuses the same tokens."""
    with lc.observe(model), torch.no_grad():
        for pads in (3, 13):
            mask = torch.ones_like(ids)
            mask[1, :pads] = 0
            together, alone = caches(model)[name](), caches(model)[name]()
            cut = pads + 9  # the first call ends at the same token in both
            spots = (mask.cumsum(1) - 1).clamp(min=0)
            more = {"attention_mask": mask[:, :cut], "position_ids": spots[:, :cut]}
            first = model(ids[:, :cut], **more, **put(model, together)).logits
            second = model(ids[1:, pads:cut], **put(model, alone)).logits
            torch.testing.assert_close(first[1:, pads:], second)
            for at in range(cut, 40, 2):
                more = {"attention_mask": mask[:, : at + 2], "position_ids": spots[:, at : at + 2]}
                first = model(ids[:, at : at + 2], **more, **put(model, together)).logits
                second = model(ids[1:, at : at + 2], **put(model, alone)).logits
                torch.testing.assert_close(first[1:], second)


def test_grouped_heads_equal_repeated_heads(ids):
    """9/3 and 4/1 heads: repeating KV heads to multi-head attention, with equal scores, gives the same output."""
    for heads, groups in ((9, 3), (4, 1)):
        b, s, d = 2, 12, 4
        keys, values, scores = data(b=b, h=groups, s=s, d=d)
        module = conv(dim=d)
        few = module(keys, values, scores)
        times = heads // groups
        many = module(*(x.repeat_interleave(times, 1) for x in (keys, values, scores)))
        for a, c in zip(few, many, strict=True):
            torch.testing.assert_close(a.repeat_interleave(times, 1), c)
        size = {"num_attention_heads": heads, "num_key_value_heads": groups, "hidden_size": heads * 4}
        model = build(**size)
        with lc.observe(model), torch.no_grad():
            cache = caches(model)["lococo"]()
            lc.chunked_nll(model, ids, cache, 10)
            assert cache.compressed_layers[0].keys.shape[:2] == (2, groups)


def test_tokens_and_chunks_agree_before_compression(model, ids):
    with lc.observe(model), torch.no_grad():
        one, two = caches(model)["lococo"](), caches(model)["lococo"]()
        whole = model(ids[:, :12], **put(model, one)).logits
        single = torch.cat([model(ids[:, i : i + 1], **put(model, two)).logits for i in range(12)], 1)
        torch.testing.assert_close(whole, single)


def test_greedy_equals_a_loop(model, ids):
    with lc.observe(model), torch.no_grad():
        for name in NAMES:
            text = model.generate(ids, max_new_tokens=12, do_sample=False, **put(model, caches(model)[name]()))
            cache, tokens = caches(model)[name](), ids
            logits = model(tokens, **put(model, cache)).logits
            for _ in range(12):
                tokens = torch.cat((tokens, logits[:, -1:].argmax(-1)), 1)
                logits = model(tokens[:, -1:], **put(model, cache)).logits
            assert torch.equal(text, tokens)


def test_evictions_are_what_they_say(model, ids):
    """The tokens that stay, read from the provenance: sinks and window, the last half, the heaviest, any."""
    held = {}
    with lc.observe(model), torch.no_grad():
        for name, cache in {
            "streaming": lc.StreamingLLMCache(model, 8, 3, buffer=0, provenance=True),
            "h2o": lc.H2OCache(model, 8, buffer=0, provenance=True),
            "heavy": lc.H2OCache(model, 8, 0, buffer=0, scores="last", provenance=True),
            "random": lc.RandomEvictionCache(model, 8, 2, buffer=0, provenance=True),
        }.items():
            model(ids[:, :20], **put(model, cache))
            mass = cache.compressed_layers[0].scores
            model(ids[:, 20:21], **put(model, cache))
            stay = [{int(t) for t in row.argmax(-1)[:8]} for row in cache.provenance()[0].flatten(0, 1)]
            held[name] = stay, None if mass is None else mass.flatten(0, 1)
    assert all(tokens == {0, 1, 2, *range(15, 20)} for tokens in held["streaming"][0])
    assert all({16, 17, 18, 19} <= tokens for tokens in held["h2o"][0])
    assert all({18, 19} <= tokens for tokens in held["random"][0])
    assert len({tuple(sorted(tokens)) for tokens in held["random"][0][:2]}) == 2
    for tokens, mass in zip(*held["heavy"], strict=True):
        assert tokens == set(mass.topk(8).indices.tolist())
    for tokens, mass in zip(*held["h2o"], strict=True):
        assert tokens == {16, 17, 18, 19, *mass[:16].topk(4).indices.tolist()}


def test_streaming_moves_sinks_to_the_window(model, ids):
    """After the eviction of e tokens the sinks carry the rotation of positions that are e higher."""
    with lc.observe(model), torch.no_grad():
        plain, moved = (lc.StreamingLLMCache(model, 8, 3, buffer=0, reposition=flag) for flag in (False, True))
        for cache in (plain, moved):
            model(ids[:, :20], **put(model, cache))
        before = plain.compressed_layers[0].keys[:, :, :3].clone()
        for cache in (plain, moved):
            model(ids[:, 20:21], **put(model, cache))
        assert torch.equal(plain.compressed_layers[0].keys[:, :, :3], before)
        frequencies = inverse_frequencies(model)
        wanted = turned(before, torch.full(before.shape[:3], 12.0), frequencies)
        torch.testing.assert_close(moved.compressed_layers[0].keys[:, :, :3], wanted)
        torch.testing.assert_close(moved.compressed_layers[0].keys[:, :, 3:], plain.compressed_layers[0].keys[:, :, 3:])


def test_fusing_without_rotation(model, ids):
    """rope_mode="pre": α = 1 and equal weights put the mean of the unrotated keys at the mean position."""
    heads = lc.LoCoCoCompressor.for_model(
        model, mem_size=2, keep_rate=0.5, local_len=1, alpha_init=1.0, buffer=0, rope_mode="pre", dtype=torch.float64
    )
    for parameter in heads.parameters():
        if parameter.ndim:
            nn.init.zeros_(parameter)
    with lc.observe(model), torch.no_grad():
        cache = lc.LoCoCoCache(model, heads)
        model(ids[:, :10], **put(model, cache))
        layer = cache.compressed_layers[0]
        old, frequencies = layer.keys.clone(), inverse_frequencies(model)
        model(ids[:, 10:11], **put(model, cache))
        bare = turned(old, -torch.arange(10.0).expand(2, 2, 10), frequencies)
        wanted = turned(bare[:, :, :9].mean(2), torch.full((2, 2), 4.0), frequencies)
        torch.testing.assert_close(layer.keys[:, :, 1], wanted)
        assert layer.positions[0, 0].tolist() == [9.0, 4.0, 10.0]


def test_scores_are_kept_as_asked(model, ids):
    """Last forgets, "sum" adds up, "ema" fades with every query."""
    mass = {}
    with lc.observe(model), torch.no_grad():
        for scores in ("last", "sum", "ema"):
            cache = lc.H2OCache(model, 4, 1, buffer=0, scores=scores)
            layer = cache.compressed_layers[0]
            model(ids[:, :3], **put(model, cache))
            first = layer.scores
            model(ids[:, 3:5], **put(model, cache))
            mass[scores] = (first, layer.scores)
    padded = nn.functional.pad(mass["sum"][0], (0, 2))
    assert mass["last"][0] is None  # nothing to compress yet, so nothing was computed
    torch.testing.assert_close(mass["sum"][1], padded + mass["last"][1])
    torch.testing.assert_close(mass["ema"][1], 0.9**2 * padded + mass["last"][1])
    torch.testing.assert_close(mass["last"][1].sum(-1), torch.full((2, 2), 4.0).double())  # 2 queries, 2 heads a group
