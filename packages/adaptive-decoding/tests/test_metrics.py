"""Perplexity, coherence, MAUVE, self-BLEU, the sentence encoder."""

import math

import adaptive_decoding as ad
import numpy as np
import pytest
import torch
import transformers
from adaptive_decoding.distance import feature_mauve
from adaptive_decoding.experiments_models import letters, tiny
from adaptive_decoding.metrics import log_likelihoods

GEN = np.random.default_rng(0)


def test_perplexity_is_that_of_the_tokens_after_the_prompt(tiny):
    model, _ = tiny
    texts = [[40, 41, 42, 43, 44], [50, 51, 52]]
    logs = log_likelihoods(model, texts, [2, 1])
    wanted = []
    for ids, start in zip(texts, (2, 1), strict=True):
        p = model(torch.tensor([ids])).logits[0].detach().log_softmax(-1)
        wanted.append([float(p[i - 1, ids[i]]) for i in range(start, len(ids))])
    for got, values in zip(logs, wanted, strict=True):
        assert got == pytest.approx(values, abs=1e-4)
    flat = [x for values in wanted for x in values]
    assert ad.perplexity(model, texts, [2, 1]) == pytest.approx(math.exp(-np.mean(flat)), rel=1e-4)
    assert ad.perplexity(model, texts[:1], 2) == pytest.approx(math.exp(-np.mean(wanted[0])), rel=1e-4)
    with pytest.raises(ValueError, match="prompt_len of text 1 must be an integer between 1 and 2, got 3"):
        ad.perplexity(model, texts, 3)
    with pytest.raises(ValueError, match="prompt_len must be one number or 2, got 1 numbers"):
        ad.perplexity(model, texts, [1])
    with pytest.raises(ValueError, match="ids must be one text or more"):
        ad.perplexity(model, [], 1)


def test_log_likelihood_coherence(tiny):
    model, tokenizer = tiny
    found = ad.log_likelihood_coherence(model, tokenizer, ["abc", "xyz"], ["de", ""])
    ids = tokenizer("abcde")["input_ids"]
    assert found[0] == pytest.approx(log_likelihoods(model, [ids], 3)[0].mean(), abs=1e-5)
    assert math.isnan(found[1])
    with pytest.raises(ValueError, match="texts must be as many as the 1 prompts, got 2"):
        ad.log_likelihood_coherence(model, tokenizer, ["a"], ["b", "c"])


def test_coherence_is_checked():
    with pytest.raises(ValueError, match="texts must be as many as the 1 prompts"):
        ad.coherence(["a"], [], letters)
    with pytest.raises(ValueError, match="prompts must be one or more"):
        ad.coherence([], [], letters)
    with pytest.raises(ValueError, match=r"embed\(texts\) must be of shape \(2, any\)"):
        ad.coherence(["a", "b"], ["c", "d"], lambda texts: np.zeros((1, 3)))


def test_mauve_of_equal_and_of_different_texts():
    p = GEN.normal(size=(200, 16))
    assert feature_mauve(p, p).score == 1.0
    near, far = (feature_mauve(p, GEN.normal(size=(200, 16)) + shift).score for shift in (0.0, 3.0))
    assert 0 < far < 0.1 < near <= 1
    found = feature_mauve(p, GEN.normal(size=(200, 16)), runs=1, resamples=8)
    assert found.resampled.shape == (8,)
    assert 0 < found.interval[0] <= found.interval[1] <= 1
    again = feature_mauve(p, GEN.normal(size=(150, 16)), runs=1, resamples=2, buckets=5)
    assert again.interval is not None


def test_mauve_is_that_of_the_library():
    from mauve import compute_mauve
    from offprints.seeding import spawn

    p, q = GEN.normal(size=(60, 4)), GEN.normal(size=(60, 4)) + 0.3
    wanted = [compute_mauve(p, q, num_buckets=6, seed=s % 2**31).mauve for s in spawn(7, 3)]
    assert feature_mauve(p, q, runs=3, seed=7).score == pytest.approx(np.mean(wanted))


def test_mauve_of_texts_warns_and_checks():
    texts = ["abc" * i for i in range(1, 13)]
    with pytest.warns(UserWarning, match="MAUVE of fewer than 200 texts says little"):
        assert ad.mauve(texts, texts, letters, runs=1).score == 1.0
    with pytest.raises(ValueError, match="number of q_texts must be an integer at least 2, got 1"):
        ad.mauve(texts, ["a"], letters)
    with pytest.raises(ValueError, match="buckets must be an integer between 2 and 4"):
        feature_mauve(np.eye(4), np.eye(4), buckets=9)
    with pytest.raises(ValueError, match="p must be finite"):
        feature_mauve(np.full((4, 2), np.nan), np.ones((4, 2)))
    with pytest.raises(ValueError, match=r"q must be of shape \(any, 2\)"):
        feature_mauve(np.ones((4, 2)), np.ones((4, 3)))
    for name in ("runs", "resamples"):
        with pytest.raises(ValueError, match=f"{name} must be an integer at least"):
            feature_mauve(np.ones((4, 2)), np.ones((4, 2)), **{name: -1})


def test_self_bleu():
    same = ["the cat sat on the mat today"] * 3
    assert ad.self_bleu(same) == pytest.approx(100.0)
    assert ad.self_bleu(["a b c d e", "f g h i j"]) == pytest.approx(0.0, abs=1e-6)
    assert ad.self_bleu([*same, "x y z"], most=2) == pytest.approx(100.0)
    with pytest.raises(ValueError, match="texts must be an integer at least 2, got 1"):
        ad.self_bleu(["a"])


def test_zipf_needs_two_tokens():
    with pytest.raises(ValueError, match="different tokens must be an integer at least 2, got 1"):
        ad.zipf([[3, 3]])


def test_the_sentence_encoder_pools_over_the_text_alone():
    _, tokenizer = tiny()
    config = transformers.BertConfig(
        vocab_size=97, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16
    )
    model = transformers.BertModel(config).eval()
    encoder = ad.SentenceEncoder(model, tokenizer, max_length=20, batch_size=2)
    found = encoder(["abc", "a much longer text than that", "", "abc"])
    assert found.shape == (4, 16)
    assert np.linalg.norm(found, axis=1) == pytest.approx([1, 1, 0, 1])
    assert np.array_equal(found[0], found[3])
    alone = ad.SentenceEncoder(model, tokenizer)(["abc"])
    assert found[0] == pytest.approx(alone[0], abs=1e-5)
    with torch.no_grad():
        hidden = model(torch.tensor([tokenizer("abc")["input_ids"]])).last_hidden_state[0].mean(0)
    assert alone[0] == pytest.approx((hidden / hidden.norm()).tolist(), abs=1e-5)
    with pytest.raises(TypeError, match="text must be of type str"):
        encoder([3])
    with pytest.raises(ValueError, match="max_length must be an integer at least 1"):
        ad.SentenceEncoder(model, tokenizer, max_length=0)
