"""Decoders by name: transformers' own warpers, contrastive search, common random numbers."""

import adaptive_decoding as ad
import numpy as np
import pytest
import torch
import transformers
from adaptive_decoding import _reference as reference
from adaptive_decoding.decoders import DEFAULTS
from adaptive_decoding.generation import Sampler, continuation_logits, padded, random_numbers

PROMPTS = ["hello there", "ab", "a longer prompt with words", "zz top"]
LIBRARY = {
    "top_k:k=7": transformers.TopKLogitsWarper(7),
    "top_p:p=0.8": transformers.TopPLogitsWarper(0.8),
    "min_p:p=0.1": transformers.MinPLogitsWarper(0.1),
    "typical:p=0.7": transformers.TypicalLogitsWarper(0.7),
    "eta:epsilon=0.01": transformers.EtaLogitsWarper(0.01),
    "epsilon:epsilon=0.02": transformers.EpsilonLogitsWarper(0.02),
    "top_h:h=0.6": transformers.TopHLogitsWarper(0.6),
    "adaptive:epsilon=0.01,rule=last": ad.AdaptiveLogitsProcessor(0.01, rule="last"),
}


@pytest.mark.parametrize("spec", LIBRARY)
def test_processors_are_the_library_s(spec):
    x = torch.randn(3, 90, generator=torch.Generator().manual_seed(0)) * 2
    ids = torch.zeros(3, 1, dtype=torch.long)
    (ours,) = ad.make_decoder(spec).processors()
    assert torch.equal(ours(ids, x), LIBRARY[spec](ids, x))
    warm, ours = ad.make_decoder(spec + ",temperature=2").processors()
    assert torch.equal(ours(ids, warm(ids, x)), LIBRARY[spec](ids, x / 2))


def test_names():
    assert ad.make_decoder("top_p").name == "top_p:p=0.95"
    assert ad.make_decoder(" top_p : p = 0.9 , temperature=0.7").name == "top_p:p=0.9,temperature=0.7"
    assert ad.make_decoder("adaptive:epsilon=1e-3,rule=last").name == "adaptive:epsilon=0.001,rule=last"
    assert ad.make_decoder("contrastive:alpha=0.6,k=5").name == "contrastive:k=5"
    for kind in DEFAULTS:
        made = ad.make_decoder(kind)
        assert ad.make_decoder(made.name) == made
        assert ad.make_decoder(made) is made
        assert made.samples == (kind not in ("greedy", "contrastive"))
    assert ad.make_decoder("top_k").tuned(6.6).parameters["k"] == 7
    assert ad.make_decoder("mirostat:eta=0.2").tuned(2.5).name == "mirostat:tau=2.5,eta=0.2"
    with pytest.raises(ValueError, match="kind must be one of 'adaptive'"):
        ad.make_decoder("greedy").tuned(1.0)
    with pytest.raises(TypeError, match="rule must be a number"):
        ad.make_decoder("adaptive").number("rule")


@pytest.mark.parametrize("spec", DEFAULTS)
def test_batch_does_not_matter(tiny, spec):
    decoder = ad.make_decoder(spec)
    alone, together = (
        ad.continuations(*tiny, PROMPTS, decoder, max_new_tokens=8, seed=3, batch_size=size) for size in (1, 4)
    )
    for a, b in zip(alone, together, strict=True):
        assert a.ids == b.ids
        assert a.log_probs == pytest.approx(b.log_probs, abs=1e-4)
        assert a.k.tolist() == b.k.tolist()
    before = torch.get_rng_state()
    again = ad.continuations(*tiny, PROMPTS, decoder, max_new_tokens=8, seed=3)
    assert [x.text for x in again] == [x.text for x in together]
    assert torch.equal(before, torch.get_rng_state())
    other = ad.continuations(*tiny, PROMPTS, decoder, max_new_tokens=8, seed=4)
    assert ([x.text for x in other] != [x.text for x in together]) == decoder.samples


def test_what_is_told_of_each_step(tiny):
    model, tokenizer = tiny
    decoder = ad.make_decoder("top_k:k=6")
    for prompt, text in zip(
        PROMPTS, ad.continuations(*tiny, PROMPTS, decoder, max_new_tokens=8, exact_length=True), strict=True
    ):
        assert len(text.ids) == len(text.k) == len(text.log_probs) == 8
        ids = torch.tensor([tokenizer(prompt)["input_ids"] + text.ids])
        logits = model(ids).logits[0, -9:-1].float()
        logs = logits.log_softmax(-1)
        assert text.log_probs == pytest.approx(logs.gather(1, ids[0, -8:, None])[:, 0].tolist(), abs=1e-4)
        assert text.k.tolist() == [6] * 8
        logs[:, 1] = -torch.inf  # the end is ruled out
        assert text.mass == pytest.approx(logs.exp().topk(6).values.sum(-1).tolist(), abs=1e-5)
        assert text.text == tokenizer.decode(text.ids, skip_special_tokens=True)


def test_draws_follow_the_distribution():
    p = torch.tensor([0.1, 0.0, 0.6, 0.3])
    rows = 4000
    sampler = Sampler(ad.make_decoder("sampling"), np.random.default_rng(0).random((rows, 1)))
    out = sampler(torch.zeros(rows, 1, dtype=torch.long), p.log().repeat(rows, 1))
    share = (out == 0).double().mean(0)
    assert share.tolist() == pytest.approx(p.tolist(), abs=0.03)
    assert share[1] == 0
    edge = Sampler(ad.make_decoder("sampling"), np.array([[0.0], [0.1], [0.9999999999]]))
    chosen = edge(torch.zeros(3, 1, dtype=torch.long), p.double().log().repeat(3, 1)).argmax(-1)
    assert chosen.tolist() == [0, 2, 3]


def test_random_numbers_depend_on_seed_and_prompt():
    a, b = random_numbers(0, [0, 1, 2], 5), random_numbers(0, [1], 5)
    assert np.array_equal(a[1], b[0])
    assert not np.array_equal(a, random_numbers(1, [0, 1, 2], 5))


def test_texts_end_where_the_model_ends_them(tiny):
    ended = [
        text
        for seed in range(20)
        for text in ad.continuations(*tiny, PROMPTS, ad.make_decoder("sampling"), max_new_tokens=12, seed=seed)
        if len(text.ids) < 12
    ]
    assert ended
    for text in ended:
        assert 1 not in text.ids
        assert len(text.k) == len(text.ids) + 1
        assert len(text.log_probs) == len(text.ids)


def test_prompts_are_checked(tiny):
    greedy = ad.make_decoder("greedy")
    for prompts, kind, message in (
        (["a", ""], ValueError, "prompt 1 must be a text of one token or more, got ''"),
        (["a", "b" * 600], ValueError, r"prompt 1 must be at most 508 tokens, got 600 tokens. .*context is 512"),
        (["a", 3], TypeError, "prompt 1 must be of type str"),
        ("abc", TypeError, "prompts must be a list of texts, got one text"),
        ([], ValueError, "prompts must be a list of one text or more, got none"),
    ):
        with pytest.raises(kind, match=message):
            ad.continuations(*tiny, prompts, greedy, max_new_tokens=4)
    for name in ("max_new_tokens", "batch_size"):
        with pytest.raises(ValueError, match=f"{name} must be an integer at least 1"):
            ad.continuations(*tiny, ["a"], greedy, **{name: 0})


def test_encoders_are_refused(tiny):
    _, tokenizer = tiny
    sizes = {"vocab_size": 97, "d_model": 16, "d_ff": 16, "num_layers": 1, "num_heads": 2, "d_kv": 8}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    with pytest.raises(ValueError, match="model must be decoder only, got an encoder with a decoder"):
        ad.continuations(model, tokenizer, ["a"], ad.make_decoder("greedy"))


def test_contrastive_search_is_its_equation(tiny):
    model, _ = tiny
    ids = torch.tensor([[0, 0, 40, 50, 60], [40, 41, 42, 43, 44]])
    mask = (ids != 0).long()
    out = ad.contrastive_search(model, ids, 4, 0.6, max_new_tokens=5, attention_mask=mask)
    for row, start in ((0, 2), (1, 0)):
        prefix = ids[row, start:].tolist()
        for _ in range(5):
            run = model(torch.tensor([prefix]), output_hidden_states=True)
            past = run.hidden_states[-1][0].double().detach().numpy()
            p, tokens = run.logits[0, -1].softmax(-1).topk(4)
            hidden = [
                model(torch.tensor([[*prefix, token]]), output_hidden_states=True).hidden_states[-1][0, -1]
                for token in tokens.tolist()
            ]
            states = torch.stack(hidden).double().detach().numpy()
            prefix.append(int(tokens[reference.contrastive(p.tolist(), states, past, 0.6)]))
        assert out[row, start:].tolist() == prefix
    greedy = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=5, eos_token_id=None)
    assert torch.equal(ad.contrastive_search(model, ids, alpha=0.0, max_new_tokens=5, attention_mask=mask), greedy)


def test_contrastive_search_ends_rows(tiny):
    model, _ = tiny
    ids = torch.tensor([[40, 41, 42], [50, 51, 52]])
    free = ad.contrastive_search(model, ids, max_new_tokens=6)
    end = int(free[0, 4])
    out = ad.contrastive_search(model, ids, max_new_tokens=6, eos_token_id=end, pad_token_id=0)
    first = free[0, 3:].tolist().index(end)
    assert out[0, 3 : 4 + first].tolist() == free[0, 3 : 4 + first].tolist()
    assert out[0, 4 + first :].tolist() == [0] * (out.shape[1] - 4 - first)
    ends = [end, int(free[1, 3])]
    assert ad.contrastive_search(model, ids, max_new_tokens=6, eos_token_id=ends).shape[1] <= 5


def test_contrastive_search_needs_a_cache(tiny):
    class Stateless(torch.nn.Module):
        def forward(self, input_ids, **other):
            return {"hidden_states": (torch.zeros(1, 3, 2),), "logits": torch.zeros(1, 3, 5), "past_key_values": None}

    with pytest.raises(ValueError, match="model must be one whose cache can be reordered, got NoneType"):
        ad.contrastive_search(Stateless(), torch.tensor([[1, 2, 3]]))


def test_logits_of_continuations(tiny):
    model, _ = tiny
    table, mask = padded([[40, 41, 42, 43], [50, 51, 52]], 0, torch.device("cpu"))
    assert table.tolist() == [[40, 41, 42, 43], [0, 50, 51, 52]]
    found = continuation_logits(model, table, mask, 2)
    assert torch.allclose(found[1], model(torch.tensor([[50, 51, 52]])).logits[0, :2], atol=1e-4)
