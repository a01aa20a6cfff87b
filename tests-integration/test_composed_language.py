"""A language model decoded by an adaptive rule through a cache of fixed size, its attention measured on the way."""

import inspect

import numpy as np
import pytest
import torch
from offprints.seeding import isolated
from offprints.testing import offline_lm

adaptive = pytest.importorskip("adaptive_decoding")  # while these are unfinished, UNFINISHED=1 brings them
al = pytest.importorskip("attention_lipschitz")
lococo = pytest.importorskip("lococo")

EPSILON, NEW = 1e-3, 24
LENGTHS = (40, 70, 25, 110)


@pytest.fixture(scope="module")
def lm():
    return offline_lm()


@pytest.fixture(scope="module")
def batch(lm):
    """Four prompts of different lengths, padded on the left."""
    _, tokenizer = lm
    ids = tokenizer(al.documentation(), return_tensors="pt").input_ids[0]
    width = max(LENGTHS)
    rows = torch.zeros(4, width, dtype=torch.long)
    mask = torch.zeros(4, width, dtype=torch.long)
    for i, length in enumerate(LENGTHS):
        rows[i, width - length :], mask[i, width - length :] = ids[1000 * i : 1000 * i + length], 1
    return {"input_ids": rows, "attention_mask": mask}


def name_of_cache(model):
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def decoded(model, heads, inputs, processor, sample):
    cache = lococo.LoCoCoCache(model, heads)
    given = processor.generate_kwargs(model, max_new_tokens=NEW, min_new_tokens=NEW, do_sample=sample)
    with lococo.observe(model), isolated(0):
        out = model.generate(**inputs, **given, **{name_of_cache(model): cache}, pad_token_id=0)
    return out, cache


@pytest.mark.slow
def test_a_left_padded_batch_is_decoded_adaptively_through_a_fixed_cache_and_measured(lm, batch):
    """Controls: each prompt alone, the full cache's bytes, free sampling, and the model's own attention."""
    model, _ = lm
    heads = lococo.LoCoCoCompressor.for_model(model, mem_size=16, local_len=4, buffer=4)
    width = max(LENGTHS)

    # greedy within the rule: padding and neighbours change nothing
    greedy, _ = decoded(model, heads, batch, adaptive.AdaptiveLogitsProcessor(EPSILON), sample=False)
    for i, length in enumerate(LENGTHS):
        alone = {name: x[i : i + 1, width - length :] for name, x in batch.items()}
        single, _ = decoded(model, heads, alone, adaptive.AdaptiveLogitsProcessor(EPSILON), sample=False)
        assert single[0, length:].tolist() == greedy[i, width:].tolist()

    # sampled: every token is one of the candidates that the compressed cache's logits allow; free samples are not
    processor = adaptive.AdaptiveLogitsProcessor(EPSILON, record=True)
    out, cache = decoded(model, heads, batch, processor, sample=True)
    inside, free = replayed(model, heads, batch, out)
    assert inside == 1.0
    assert free < 0.95
    assert cache.memory_bytes() * 4 < cache.report().full_bytes
    assert all(slots <= 16 + 4 + 1 for slots in cache.report().slots)

    # the same activations, measured
    whole = torch.cat((batch["attention_mask"], torch.ones(4, NEW, dtype=torch.long)), 1)
    layer = al.extract_attention(model, 12, check={"input_ids": out[3:4]})
    tokens = al.capture_inputs(model, {"input_ids": out, "attention_mask": whole}, 12)
    assert [len(x) for x in tokens] == [length + NEW for length in LENGTHS]
    for i in (0, 2):
        found = al.local_lipschitz(layer, tokens[i][-32:], rtol=1e-4)
        assert found.converged
        assert 0 < found.value <= al.certified_bound(layer, tokens[i][-32:], 0.0)
        step = 1e-3 * found.right.reshape(-1, tokens[i].shape[1])
        here = tokens[i][-32:].double()
        moved = layer.measured()(here + step) - layer.measured()(here - step)
        assert float(torch.linalg.vector_norm(moved)) / 2e-3 == pytest.approx(found.value, rel=1e-3)


def replayed(model, heads, batch, out):
    """Shares of sampled tokens, and of free samples at the same states, that the rule keeps: one token at a time."""
    cache, width = lococo.LoCoCoCache(model, heads), batch["input_ids"].shape[1]
    gen = torch.Generator().manual_seed(0)
    kept, free = [], []
    with lococo.observe(model), torch.no_grad():
        mask, ids = batch["attention_mask"], batch["input_ids"]
        for place in range(width, out.shape[1]):
            positions = (mask.cumsum(-1) - 1).clamp_min(0)[:, -ids.shape[1] :]
            given = {"input_ids": ids, "attention_mask": mask, "position_ids": positions, name_of_cache(model): cache}
            logits = model(**given, use_cache=True).logits[:, -1].float()
            allowed = torch.from_numpy(np.isfinite(adaptive.adaptive_filter(logits.numpy(), EPSILON)))
            ids = out[:, place : place + 1]
            kept.append(allowed.gather(1, ids))
            free.append(allowed.gather(1, torch.multinomial(logits.softmax(-1), 1, generator=gen)))
            mask = torch.cat((mask, torch.ones(4, 1, dtype=torch.long)), 1)
    return float(torch.cat(kept).float().mean()), float(torch.cat(free).float().mean())
