"""A small Llama whose norms are turned into BatchNorm, trained, folded away, and decoded through a fixed cache."""

import copy

import pytest
import torch
from offprints.seeding import isolated, rng
from transformers import LlamaConfig, LlamaForCausalLM

adaptive = pytest.importorskip("adaptive_decoding")  # while these are unfinished, UNFINISHED=1 brings them
al = pytest.importorskip("attention_lipschitz")
lococo = pytest.importorskip("lococo")
slab = pytest.importorskip("slab_transformer")

STEPS, CONTEXT, NEW = 150, 48, 24


def llama():
    config = LlamaConfig(
        vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, bos_token_id=0, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    with isolated(0):
        return LlamaForCausalLM(config).eval()


def batches(text, count, seed):
    ids, gen = al.byte_ids(text), rng(seed, "cpu")
    for _ in range(count):
        starts = torch.randint(0, len(ids) - CONTEXT, (16,), generator=gen)
        yield ids[starts[:, None] + torch.arange(CONTEXT)]


def trained(model, text, after_step=lambda: None):
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    model.train()
    for rows in batches(text, STEPS, seed=1):
        model(input_ids=rows, labels=rows).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        after_step()
    return model.eval()


@torch.no_grad()
def loss(model, text):
    return float(sum(model(input_ids=rows, labels=rows).loss for rows in batches(text, 8, seed=2)) / 8)


def decoded(model, batch):
    heads = lococo.LoCoCoCompressor.for_model(model, mem_size=12, local_len=3, buffer=4)
    cache = lococo.LoCoCoCache(model, heads)
    processor = adaptive.AdaptiveLogitsProcessor(1e-3, record=True)
    given = processor.generate_kwargs(model, max_new_tokens=NEW, min_new_tokens=NEW)
    with lococo.observe(model), isolated(0):
        out = model.generate(**batch, **given, **{lococo.host.cache_argument(model): cache}, pad_token_id=0)
    assert max(cache.report().slots) <= 12 + 4 + 1
    return out


def test_a_converted_llama_is_trained_folded_and_decoded_as_before_it_was_folded():
    """Controls: the same model with its own norms, trained alike; and the converted model before folding."""
    text = al.documentation()
    learn, held = text[:400_000], text[400_000:]
    plain = trained(llama(), learn)
    model = llama()
    with isolated(0):
        slab.convert(model, total_steps=STEPS)
    schedule = slab.PRepBNSchedule(model)
    untrained = loss(llama(), held)
    trained(model, learn, schedule.step)
    assert schedule.finished
    slab.recalibrate(model, [{"input_ids": rows} for rows in batches(learn, 10, seed=3)])
    assert loss(model, held) < 1.1 * loss(plain, held) < 0.75 * untrained

    example = {"input_ids": next(batches(held, 1, seed=4))}
    fused = slab.fuse(copy.deepcopy(model), example=example)
    assert slab.verify_fusion(model, fused, example).max_abs_error < 1e-3
    assert not [name for name, m in fused.named_modules() if isinstance(m, slab.PRepBN)]

    ids = al.byte_ids(held)
    rows, mask = torch.zeros(4, 60, dtype=torch.long), torch.zeros(4, 60, dtype=torch.long)
    for i, length in enumerate((20, 60, 35, 48)):  # padded on the left
        rows[i, 60 - length :], mask[i, 60 - length :] = ids[1000 * i : 1000 * i + length], 1
    batch = {"input_ids": rows, "attention_mask": mask}
    assert torch.equal(decoded(fused, batch), decoded(model, batch))

    # what folding does to the norm in front, attention answers: its constant in the new coordinates still is one
    layer = al.extract_attention(fused, 1, check=example)
    tokens = al.capture_inputs(fused, example, 1)[0]
    found = al.local_lipschitz(layer, tokens)
    assert 0 < found.value <= al.certified_bound(layer, tokens, 0.0)
