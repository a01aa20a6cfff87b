"""The processor in generate() of several families, its life cycle, and its trace."""

import copy
import html
import json
import pickle  # noqa: TID251 - what users' workers do with a processor
import re

import adaptive_decoding as ad
import numpy as np
import pytest
import torch
import transformers
from adaptive_decoding import _reference as reference
from adaptive_decoding.experiments_models import precise_head
from offprints.seeding import isolated
from transformers import LogitsProcessorList

SIZES = {"vocab_size": 200, "eos_token_id": None, "bos_token_id": None, "pad_token_id": 0}


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            initializer_range=0.5, **SIZES,
        )
    )  # fmt: skip


def gpt2():
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.5, **SIZES)
    )


def neox():
    return transformers.GPTNeoXForCausalLM(
        transformers.GPTNeoXConfig(
            hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, initializer_range=0.5,
            **SIZES,
        )
    )  # fmt: skip


def opt():
    return transformers.OPTForCausalLM(
        transformers.OPTConfig(
            hidden_size=32, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=4,
            init_std=0.5, max_position_embeddings=64, **SIZES,
        )
    )  # fmt: skip


FAMILIES = [llama, gpt2, neox, opt]
PROMPTS = torch.tensor([[0, 0, 5, 9, 13], [3, 4, 8, 6, 7]])


def made(build, dtype=torch.float32):
    with isolated(0):
        return build().to(dtype).eval()


def generate(model, processor, prompts=PROMPTS, new=6, seed=0, **how):
    mask = (prompts != 0).long()
    how = {"do_sample": True, "top_k": 0, "max_new_tokens": new, "pad_token_id": 0} | how
    with isolated(seed):
        return model.generate(prompts, attention_mask=mask, logits_processor=LogitsProcessorList([processor]), **how)


@pytest.mark.parametrize("build", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sampled_tokens_are_candidates(build, dtype):
    model, processor = made(build, dtype), ad.AdaptiveLogitsProcessor(0.01, record=True)
    out = generate(model, processor)
    mask = (out != 0).long()
    mask[:, 5:] = 1
    for step in range(6):
        upto = out[:, : 5 + step]
        places = (mask[:, : 5 + step].cumsum(-1) - 1).clamp(min=0)
        extra = {} if build is opt else {"position_ids": places}
        logits = model(upto, attention_mask=mask[:, : 5 + step], **extra).logits[:, -1].float()
        kept = ad.candidate_mask(logits, 0.008 if dtype == torch.bfloat16 else 0.01 - 1e-6)
        assert kept.gather(1, out[:, 5 + step : 6 + step]).all()
        if dtype == torch.float32:
            assert processor.trace.values("k")[step].tolist() == ad.candidate_mask(logits, 0.01).sum(-1).tolist()


@pytest.mark.parametrize("build", FAMILIES)
def test_a_loop_by_hand_gives_the_same(build):
    model = made(build)
    out = generate(model, ad.AdaptiveLogitsProcessor(0.01), PROMPTS[1:], seed=3)
    ids = PROMPTS[1:]
    with isolated(3), torch.no_grad():
        for _ in range(6):
            logits = model(ids).logits[:, -1].float()
            masked = logits.masked_fill(~ad.candidate_mask(logits, 0.01), -torch.inf)
            ids = torch.cat((ids, torch.multinomial(masked.softmax(-1), 1)), 1)
    assert torch.equal(ids, out)


@pytest.mark.parametrize("build", FAMILIES)
def test_greedy_and_beams(build):
    model = made(build, torch.float64)
    plain = model.generate(PROMPTS, attention_mask=(PROMPTS != 0).long(), do_sample=False, max_new_tokens=6)
    assert torch.equal(generate(model, ad.AdaptiveLogitsProcessor(0.01), do_sample=False, top_k=None), plain)
    processor = ad.AdaptiveLogitsProcessor(torch.tensor([0.01, 0.001]), min_tokens_to_keep=2, record=True)
    beams = generate(model, processor, do_sample=False, num_beams=3, top_k=None)
    assert beams.shape == (2, 11)
    assert processor.trace.rows == 6
    assert (processor.trace.values("k") >= 2).all()
    assert generate(model, processor, num_beams=3).shape == (2, 11)
    assert len(processor.trace) == 6


def test_generate_tempers_and_cuts_after_its_processors():
    model, x = made(llama), PROMPTS[1:]
    out = generate(model, ad.AdaptiveLogitsProcessor(0.02), x, temperature=0.5, seed=5)
    ids = x
    with isolated(5), torch.no_grad():
        for _ in range(6):
            logits = model(ids).logits[:, -1].float()
            masked = logits.masked_fill(~ad.candidate_mask(logits, 0.02), -torch.inf)
            ids = torch.cat((ids, torch.multinomial((masked / 0.5).softmax(-1), 1)), 1)
    assert torch.equal(ids, out)


def test_a_compiled_model():
    model = made(llama)
    plain = generate(model, ad.AdaptiveLogitsProcessor(0.01), seed=1)
    model.forward = torch.compile(model.forward, backend="eager")
    assert torch.equal(generate(model, ad.AdaptiveLogitsProcessor(0.01), seed=1), plain)


def test_a_compiled_rule():
    scores = torch.randn(3, 200, generator=torch.Generator().manual_seed(0)) * 3
    ids = torch.zeros(3, 1, dtype=torch.long)
    torch.compiler.reset()
    rule = torch.compile(lambda x: ad.AdaptiveLogitsProcessor(0.01)(ids, x), backend="eager", fullgraph=True)
    assert torch.equal(rule(scores), ad.AdaptiveLogitsProcessor(0.01)(ids, scores))


def test_the_pipeline(tiny):
    model, tokenizer = tiny
    pipe = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer, device="cpu")
    processor = ad.AdaptiveLogitsProcessor(0.02, record=True)
    with isolated(0):
        found = pipe("hello", logits_processor=[processor], do_sample=True, top_k=0, max_new_tokens=5)
    assert found[0]["generated_text"].startswith("hello")
    assert 1 <= len(processor.trace) <= 5


def test_uniform_sampling_and_keep_all():
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    ids = torch.zeros(1, 1, dtype=torch.long)
    out = ad.AdaptiveLogitsProcessor(0.02, sampling="uniform")(ids, p.log())
    kept = ad.candidate_mask(p.log(), 0.02)
    assert out[kept].unique().tolist() == [0.0]
    assert (out[~kept] == -torch.inf).all()
    flat = torch.zeros(1, 6)
    flat[0, 5] = -torch.inf
    for sampling in ("uniform", "multinomial"):
        processor = ad.AdaptiveLogitsProcessor(0.3, sampling=sampling, flat="keep_all", record=True)
        found = processor(ids, flat)
        assert found[0].tolist() == [0.0] * 5 + [-torch.inf]
        assert processor.trace.values("k").tolist() == [[5]]
        assert processor.trace.values("mass").tolist() == [[1.0]]
        assert processor.trace.values("confidence")[0, 0] == pytest.approx(1 - np.log(5) / np.log(6))
    mixed = torch.stack((torch.zeros(300), torch.cat((torch.tensor([9.0]), torch.zeros(299)))))
    found = ad.AdaptiveLogitsProcessor(0.01, flat="keep_all", vocab_size=200)(ids.repeat(2, 1), mixed)
    assert torch.isfinite(found).sum(-1).tolist() == [200, 1]


def test_filter_value_and_input_kept():
    x = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)) * 3
    before = x.clone()
    out = ad.AdaptiveLogitsProcessor(0.01, filter_value=-50.0)(torch.zeros(2, 1), x)
    mask = ad.candidate_mask(x, 0.01)
    assert torch.equal(x, before)
    assert (out[~mask] == -50).all()
    assert torch.equal(out[mask], x[mask])


def test_epsilon_of_each_row():
    x = torch.randn(4, 500, generator=torch.Generator().manual_seed(0)) * 2
    limits = torch.tensor([1e-3, 1e-2, 5e-2, 0.2])
    out = ad.AdaptiveLogitsProcessor(limits)(torch.zeros(4, 1), x)
    for row, limit in enumerate(limits.tolist()):
        assert torch.equal(torch.isfinite(out[row]), ad.candidate_mask(x[row], limit))
    beams = ad.AdaptiveLogitsProcessor(limits[:2])(torch.zeros(4, 1), x)
    assert torch.equal(torch.isfinite(beams[1]), ad.candidate_mask(x[1], 1e-3))
    assert torch.equal(torch.isfinite(beams[2]), ad.candidate_mask(x[2], 1e-2))


def test_after_a_grammar():
    x = torch.randn(1, 50000, generator=torch.Generator().manual_seed(0))
    allowed = torch.zeros(1, 50000, dtype=torch.bool)
    allowed[0, [3, 70, 900, 4000]] = True
    masked = x.masked_fill(~allowed, -torch.inf)
    out = ad.AdaptiveLogitsProcessor(0.01, count_masked=False)(torch.zeros(1, 1), masked)
    four = masked[allowed].softmax(-1).double().numpy()
    ids = allowed[0].nonzero().flatten()
    assert set(torch.isfinite(out[0]).nonzero().flatten().tolist()) == {int(ids[i]) for i in reference.kept(four, 0.01)}


def test_the_default_top_k_is_warned_of_once():
    x = torch.full((1, 100), -torch.inf)
    x[0, :50] = torch.linspace(0, 3, 50)
    processor = ad.AdaptiveLogitsProcessor()
    with pytest.warns(UserWarning, match="exactly 50 tokens come in: is it a top-k by default"):
        processor(torch.zeros(1, 1), x)
    processor(torch.zeros(1, 1), x)
    ad.AdaptiveLogitsProcessor()(torch.zeros(1, 1), x[:, :50])


# ---- life cycle and trace


def test_a_new_prompt_starts_a_new_trace():
    model, processor = made(llama), ad.AdaptiveLogitsProcessor(0.01, record=True)
    for prompts, new in ((PROMPTS, 4), (PROMPTS, 3), (PROMPTS[:1], 5), (PROMPTS + 1, 1), (PROMPTS + 1, 1)):
        generate(model, processor, prompts, new)
        assert (len(processor.trace), processor.trace.rows) == (new, len(prompts))
        assert processor.trace.prompt_length == 5
    longer = torch.cat((PROMPTS + 1, PROMPTS), 1)  # a second turn after the first prompt, five tokens longer at once
    generate(model, processor, longer, 2)
    assert (len(processor.trace), processor.trace.prompt_length) == (2, 10)


def test_copies_and_pickles():
    processor = ad.AdaptiveLogitsProcessor(torch.tensor([0.01, 0.02]), record=True)
    generate(made(llama), processor)
    others = [copy.deepcopy(processor), pickle.loads(pickle.dumps(processor))]
    for other in others:
        assert np.array_equal(other.trace.values("k"), processor.trace.values("k"))
    x = torch.randn(2, 200, generator=torch.Generator().manual_seed(0))
    wanted = processor(PROMPTS, x)
    assert all(torch.equal(other(PROMPTS, x), wanted) for other in others)


def test_what_a_trace_holds():
    p = torch.tensor([[0.6, 0.3, 0.08, 0.02], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    processor = ad.AdaptiveLogitsProcessor(0.05, record=True)
    ids = torch.tensor([[1, 2], [1, 3]])
    processor(ids, p.log())
    trace = processor.trace
    kept = len(reference.kept(p[0].numpy(), 0.05))
    assert trace.values("k").tolist() == [[kept, 1]]
    assert trace.values("mass")[0].tolist() == pytest.approx([float(p[0, :kept].sum()), 0.25])
    wanted = [reference.confidence(p[0].numpy(), kept), reference.confidence(p[1].numpy(), 1)]
    assert trace.values("confidence")[0].tolist() == pytest.approx(wanted)
    entropy = [-sum(x * np.log(x) for x in row) for row in p.tolist()]
    assert trace.values("entropy")[0].tolist() == pytest.approx(entropy)
    assert trace.records(1)[0] == pytest.approx(
        {"step": 0, "k": 1, "mass": 0.25, "confidence": 0, "entropy": np.log(4)}
    )
    with pytest.raises(ValueError, match="quantity must be one of 'k', 'mass'"):
        trace.values("p")
    with pytest.raises(ValueError, match="row must be an integer between 0 and 1, got 2"):
        trace.records(2)
    assert ad.DecodingTrace().summary()["k"]["per_step"] == []
    assert ad.DecodingTrace().values("k").shape == (0, 0)


def test_summary_leaves_out_what_has_ended(tmp_path):
    processor = ad.AdaptiveLogitsProcessor(0.01, record=True)
    x = torch.randn(2, 40, generator=torch.Generator().manual_seed(0)) * 2
    ids = torch.tensor([[1, 2], [1, 3]])
    for token in ([5, 9], [6, 0], [7, 0]):
        processor(ids, x)
        ids = torch.cat((ids, torch.tensor(token)[:, None]), 1)
    trace = processor.trace
    alive = trace.live(ids, 9)
    assert alive.tolist() == [[True, True], [True, False], [True, False]]
    assert trace.live(ids, [9, 6]).tolist() == [[True, True], [True, False], [False, False]]
    k = trace.values("k")
    found = trace.summary(ids, 9)
    assert found["k"]["mean"] == pytest.approx(k[alive].mean())
    assert found["k"]["std"] == pytest.approx(k[alive].std())
    assert found["k"]["per_step"] == pytest.approx([k[0].mean(), k[1, 0], k[2, 0]])
    assert (found["steps"], found["rows"]) == (3, 2)
    assert trace.summary()["k"]["mean"] == pytest.approx(k.mean())
    with pytest.raises(ValueError, match=r"sequences must be of shape \(2, 5\), got \(2, 4\). Pass what generate"):
        trace.summary(ids[:, 1:], 9)
    saved = json.loads(trace.to_json(tmp_path / "trace.json").read_text())
    assert saved["k"] == k.tolist()
    assert saved["prompt_length"] == 2


def test_heat_views(tiny):
    model, tokenizer = tiny
    batch = tokenizer(["<b>&", "ab"], return_tensors="pt", padding=True, padding_side="left")
    processor = ad.AdaptiveLogitsProcessor(0.02, record=True)
    with isolated(1):
        out = model.generate(
            batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=True, top_k=0, max_new_tokens=8,
            logits_processor=LogitsProcessorList([processor]),
        )  # fmt: skip
    page = processor.trace.to_html(tokenizer, out, 0, "entropy")
    assert "&lt;b&gt;&amp;" in page
    assert "<b>" not in page
    spans = re.findall(r'<span class="t" style="background:rgba\(213,94,0,([\d.]+)\)" title="([^"]*)">', page)
    steps = processor.trace.live(out, 1)[:, 0].sum()
    assert len(spans) == len(processor.trace)
    assert max(float(shade) for shade, _ in spans) == pytest.approx(0.85)
    assert spans[0][1].startswith(f"k {processor.trace.values('k')[0, 0]}, mass ")
    assert processor.trace.to_html(tokenizer, out, 0, eos_token_id=1).count("<span") == steps
    tokens = [html.unescape(t) for t in re.findall(r'title="[^"]*">([^<]*)</span>', page)]
    assert tokens == [tokenizer.decode([t]) for t in out[0, 4:].tolist()]
    lines = processor.trace.to_text(tokenizer, out, 1).splitlines()
    assert len(lines) == len(processor.trace)
    heights = processor.trace.values("k")[:, 1]
    assert lines[int(heights.argmax())].startswith("@")
    assert float(lines[0].split()[1 if lines[0][0] != " " else 0]) == heights[0]


def test_a_head_in_float32_leaves_the_model_as_it_was():
    model = made(llama)
    wanted = model(PROMPTS).logits
    found = precise_head(model)(PROMPTS).logits
    assert found.dtype == torch.float32
    assert (found - wanted).abs().max() < 0.1 * wanted.abs().max()
