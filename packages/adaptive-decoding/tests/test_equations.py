"""Numbers worked out by hand, identities, and the fast path against the literal equations (Section 3)."""

import itertools
import math

import adaptive_decoding as ad
import numpy as np
import pytest
import torch
from adaptive_decoding import _reference as reference
from adaptive_decoding.increments import decisive_deltas
from adaptive_decoding.ranking import ranked
from hypothesis import given, settings
from hypothesis import strategies as st

EIGHT = torch.tensor([0.5, 0.2, 0.1, 0.08, 0.05, 0.03, 0.02, 0.02], dtype=torch.float64)
RULES = ("prefix", "pointwise", "last")


def simplex(seed, n, concentration=0.3):
    return np.random.default_rng(seed).dirichlet(np.full(n, concentration))


def kept_ids(mask):
    return set(mask.nonzero().flatten().tolist())


def test_eight_tokens():
    found = ad.confidence_increments(EIGHT, probs=True).delta
    wanted = [0.198774, 0.047571, 0.011871, 0.010065, 0.003823, 0.000660, 0.0, 0.0]
    assert found.tolist() == pytest.approx(wanted, abs=5e-7)
    assert float(found.sum()) == pytest.approx(0.272765, abs=5e-7)
    entropy = -float((EIGHT * EIGHT.log()).sum())
    assert float(found.sum()) == pytest.approx(1 - entropy / math.log(8), abs=1e-14)
    assert float(ad.confidence(EIGHT, 8, probs=True)) == pytest.approx(0.272765, abs=5e-7)
    assert float(ad.confidence(EIGHT, 0, probs=True)) == 0.0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_two_tokens_of_many(dtype):
    p = torch.zeros(50257, dtype=torch.float64)
    p[[17, 40000]] = torch.tensor([0.6, 0.4], dtype=torch.float64)
    found = ad.confidence_increments(p.log().to(dtype), k_max=3)
    near = 1e-6 if dtype != torch.bfloat16 else 5e-3
    assert found.delta.tolist() == pytest.approx([0.537828, 0.399999, 0.0], abs=near)
    assert found.token_ids[:2].tolist() == [17, 40000]
    for rule in RULES:
        assert kept_ids(ad.candidate_mask(p.log().to(dtype), 0.39, rule=rule)) == {17, 40000}
        assert kept_ids(torch.tensor(np.isfinite(ad.adaptive_filter(p.log().numpy(), 0.39, rule=rule)))) == {17, 40000}


def test_increments_may_rise():
    p = torch.zeros(50257, dtype=torch.float64)
    p[:2] = 0.5
    assert ad.confidence_increments(p, k_max=2, probs=True).delta.tolist() == pytest.approx([0.436, 0.5], abs=5e-4)


@pytest.mark.parametrize("n", [2, 8, 1000])
def test_divergence_form_is_the_definition(n):
    for seed in range(1000 if n < 1000 else 60):
        p = simplex(seed, n)
        wanted = reference.increments(p)
        assert np.abs(reference.increments_kl(p) - wanted).max() < 1e-12
        if seed < 60:
            found = ad.confidence_increments(torch.tensor(p), probs=True).delta.numpy()
            assert np.abs(found - wanted).max() < 1e-12


def test_order_of_tokens_does_not_matter():
    p = torch.tensor(simplex(0, 200))
    turned = torch.tensor(np.random.default_rng(1).permutation(200))
    first, second = (ad.confidence_increments(x, probs=True) for x in (p, p[turned]))
    assert torch.allclose(first.delta, second.delta, rtol=0, atol=1e-15)
    assert torch.equal(first.token_ids, turned[second.token_ids])


def test_uniform():
    x = torch.zeros(2, 300, dtype=torch.float64)
    found = ad.confidence_increments(x)
    assert float(found.delta.abs().max()) <= 1e-12
    assert found.token_ids[0].tolist() == list(range(300))
    for rule, least in itertools.product(RULES, (1, 3)):
        mask = ad.candidate_mask(x, 1e-3, rule=rule, min_tokens_to_keep=least)
        assert kept_ids(mask[1]) == set(range(least))
        assert ad.candidate_mask(x, 1e-3, rule=rule, flat="keep_all", min_tokens_to_keep=least).all()


def test_one_hot():
    x = torch.full((50,), -torch.inf)
    x[7] = 3.0
    found = ad.confidence_increments(x)
    assert found.delta.tolist() == [1.0] + [0.0] * 49
    assert found.token_ids[0] == 7
    assert found.log_tail[0] == -torch.inf


def test_limits_of_epsilon():
    p = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.05, 0.05], dtype=torch.float64)
    for rule in RULES:
        assert kept_ids(ad.candidate_mask(p.log(), 0.0, rule=rule)) == {0, 1, 2, 3}
        assert kept_ids(ad.candidate_mask(p.log(), 1e-9, rule=rule)) == {0, 1, 2, 3}
        assert kept_ids(ad.candidate_mask(p.log(), 0.4, rule=rule)) == {0}


def test_epsilon_zero_by_row():
    p = torch.tensor([[0.4, 0.3, 0.2, 0.1]] * 2, dtype=torch.float64)
    mask = ad.candidate_mask(p.log(), torch.tensor([0.0, 0.05]))
    assert kept_ids(mask[0]) == {0, 1, 2}
    assert kept_ids(mask[1]) == reference.kept(p[1].numpy(), 0.05)
    masked = p.log()
    masked[:, 3] = -torch.inf
    assert kept_ids(ad.candidate_mask(masked, 0.0)[0]) == {0, 1, 2}
    assert kept_ids(ad.candidate_mask(masked, 0.0, count_masked=False)[0]) == {0, 1}


@given(st.integers(0, 10**6), st.sampled_from([3, 20, 400]), st.sampled_from([1e-3, 1e-2, 0.1]))
@settings(max_examples=40, deadline=None)
def test_bounds(seed, n, epsilon):
    p = torch.tensor(simplex(seed, n, 0.2))
    found = ad.confidence_increments(p, probs=True)
    probs, q = found.log_probs.exp(), found.log_probs.exp() / torch.cat((torch.ones(1), found.log_tail[:-1].exp()))
    m = torch.arange(n, 0, -1)
    assert (found.delta >= 0).all()
    assert (found.delta <= probs + 1e-15).all()
    limit = torch.xlogy(probs, m * q) / math.log(n)
    assert (found.delta <= limit + 1e-12).all()
    for k in (1, n // 2, n):
        assert float(found.delta[:k].sum()) == pytest.approx(reference.confidence(p.numpy(), k), abs=1e-12)
        assert float(ad.confidence(p, k, probs=True)) == pytest.approx(reference.confidence(p.numpy(), k), abs=1e-12)
    before = None
    for limit in (epsilon / 4, epsilon, 2 * epsilon):
        for rule in RULES:
            mask = ad.candidate_mask(p.log(), limit, rule=rule)
            extra = mask & (p <= limit)
            assert int(extra.sum()) <= 1  # the one that is kept in any case
            assert int(mask.sum()) <= max(1, 1 / limit)
        smaller = kept_ids(ad.candidate_mask(p.log(), limit))
        assert before is None or smaller <= before
        before = smaller


@pytest.mark.parametrize("size", [7, 1000, 50257, 256000])
def test_no_sort_of_everything_is_needed(size):
    gen = np.random.default_rng(size)
    for scale in (0.5, 3.0):
        x = gen.normal(size=size) * scale
        p = np.exp(x - x.max())
        p /= p.sum()
        if size > 1000:  # the literal loop over all ranks, on the ranks that can pass
            order = np.argsort(-p, kind="stable")
            rest = np.append(np.cumsum(p[order][::-1])[::-1], 0.0)
            f = np.append(rest[:-1] * np.log(rest[:-1] / np.arange(size, 0, -1)), 0.0)
            delta = (p[order] * np.log(p[order]) + np.diff(f)) / math.log(size)
        for epsilon, rule in itertools.product((1e-3, 2e-4), RULES):
            found = kept_ids(ad.candidate_mask(torch.tensor(x), epsilon, rule=rule))
            if size <= 1000:
                wanted = reference.kept(p, epsilon, rule)
            else:
                passed = delta > epsilon
                hits = np.flatnonzero(passed)
                stop = int(np.argmin(passed))
                ranks = {"prefix": range(stop), "pointwise": hits, "last": range(hits[-1] + 1 if len(hits) else 0)}
                wanted = {int(order[k]) for k in ranks[rule]} | {int(order[0])}
            assert found == wanted
            single = kept_ids(ad.candidate_mask(torch.tensor(x, dtype=torch.float32), epsilon, rule=rule))
            assert len(single ^ wanted) <= 1


@pytest.mark.filterwarnings("ignore:min_tokens_to_keep")
@pytest.mark.parametrize("size", [1, 2, 7, 300])
def test_all_three_ways_agree(size):
    gen = np.random.default_rng(size)
    for epsilon, rule, flat, least in itertools.product((0.0, 1e-3, 0.1), RULES, ("top1", "keep_all"), (1, 2)):
        x = gen.normal(size=(4, size)) * gen.choice([0.1, 1, 3])
        x[1] = np.round(x[1])  # ties
        how = {"rule": rule, "flat": flat, "min_tokens_to_keep": least}
        mask = ad.candidate_mask(torch.tensor(x), epsilon, **how)
        assert np.array_equal(np.isfinite(ad.adaptive_filter(x, epsilon, **how)), mask.numpy())
        scores = ad.AdaptiveLogitsProcessor(epsilon, **how)(torch.zeros(4, 1, dtype=torch.long), torch.tensor(x))
        assert torch.equal(torch.isfinite(scores), mask)
        if epsilon > 0 and size > 1:
            for row, values in enumerate(torch.tensor(x).softmax(-1).numpy()):
                if row != 1:
                    assert kept_ids(mask[row]) == reference.kept(values, epsilon, rule, flat, least)


def test_quick_increments_are_the_exact_ones():
    x = torch.tensor(np.random.default_rng(0).normal(size=(3, 500)) * 2)
    order = ranked(x, -1.0, 1)
    quick = decisive_deltas(order, 500)
    assert torch.allclose(quick, ad.confidence_increments(x).delta, rtol=0, atol=1e-14)
    assert torch.equal(quick, decisive_deltas(order, torch.tensor([[500]] * 3)))


def test_increments_are_computed_in_float64():
    x = torch.randn(3, 5000, generator=torch.Generator().manual_seed(0)) * 2
    for k in (5, 5000):
        single, double = (ad.confidence_increments(rows, k_max=k) for rows in (x, x.double()))
        assert torch.equal(single.delta, double.delta)
        assert torch.equal(single.log_tail, double.log_tail)


def test_a_constant_changes_nothing_and_temperature_comes_first():
    x = torch.randn(3, 2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    assert torch.equal(ad.candidate_mask(x), ad.candidate_mask(x + 11.0))
    ids = torch.zeros(3, 1, dtype=torch.long)
    warm = ad.AdaptiveLogitsProcessor(temperature=2.0)(ids, x)
    assert torch.equal(torch.isfinite(warm), ad.candidate_mask(x / 2))
    kept = torch.isfinite(warm)
    assert torch.equal(warm[kept], (x / 2)[kept])
    assert not torch.equal(kept, ad.candidate_mask(x))


def test_batch_and_dtype():
    x = torch.randn(5, 3000, generator=torch.Generator().manual_seed(1)) * 3
    whole = ad.candidate_mask(x)
    assert all(torch.equal(whole[i], ad.candidate_mask(x[i])) for i in range(5))
    delta = ad.confidence_increments(x.double())
    near = (delta.delta - 1e-3).abs().amin() < 1e-6
    assert near or torch.equal(whole, ad.candidate_mask(x.double()))
    assert torch.equal(ad.candidate_mask(x.view(5, 1, 3000))[:, 0], whole)


def test_ties_at_the_edge_are_cut_by_id():
    p = torch.full((1000,), 0.4 / 997, dtype=torch.float64)
    p[[900, 10, 500]] = 0.2
    wanted = ad.confidence_increments(p, probs=True)
    assert wanted.token_ids[:3].tolist() == [10, 500, 900]
    assert ad.confidence_increments(p, k_max=2, probs=True).token_ids.tolist() == [10, 500]
    flat = torch.zeros(1, 400)
    assert kept_ids(ad.candidate_mask(flat, min_tokens_to_keep=2)[0]) == {0, 1}


def test_rules_part_where_increments_dip():
    p = np.array([0.3] + [0.7 / 600] * 600 + [0.0] * 400)
    delta = reference.increments(p)
    epsilon = float(delta[1] + 1e-9)
    sets = {rule: ad.candidate_mask(torch.tensor(p).log(), epsilon, rule=rule) for rule in RULES}
    assert kept_ids(sets["prefix"]) == {0}
    assert {rule: kept_ids(mask) for rule, mask in sets.items()} == {
        rule: reference.kept(p, epsilon, rule) for rule in RULES
    }
    assert int(sets["pointwise"].sum()) > 1
    assert kept_ids(sets["last"]) > kept_ids(sets["prefix"])


def test_size_of_the_vocabulary():
    p = torch.tensor([0.5, 0.3, 0.2, 0.0, 0.0], dtype=torch.float64)
    padded = torch.tensor([0.5, 0.3, 0.2, 0.4, 0.1], dtype=torch.float64).log()
    mask = ad.candidate_mask(padded, 0.01, vocab_size=3)
    assert kept_ids(mask) == reference.kept(p[:3].numpy(), 0.01)
    assert torch.allclose(
        ad.confidence_increments(padded, vocab_size=3).delta,
        torch.tensor(reference.increments(p[:3].numpy())),
    )
    masked = p.log()
    five, three = (ad.candidate_mask(masked, 0.05, count_masked=flag) for flag in (True, False))
    assert kept_ids(five) == reference.kept(p.numpy(), 0.05)
    assert kept_ids(three) == reference.kept(p[:3].numpy(), 0.05)
    assert kept_ids(five) != kept_ids(three)


def test_mirostat_by_hand():
    processor = ad.MirostatLogitsProcessor(tau=1.0, eta=0.5)
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.97, 0.01, 0.01, 0.01]], dtype=torch.float64)
    ids = torch.tensor([[1], [1]])
    first = processor(ids, p.log())
    assert torch.isfinite(first).tolist() == [[True, True, False, False], [True, False, False, False]]
    wanted = [reference.mirostat(2.0, row) for row in p.numpy()]
    assert torch.allclose(first.softmax(-1), torch.tensor(np.array(wanted)))
    processor(torch.tensor([[1, 1], [1, 0]]), p.log())
    surprise = -math.log2(0.3 / 0.8)
    assert processor.mu.tolist() == pytest.approx([2 - 0.5 * (surprise - 1), 2 - 0.5 * (0 - 1)])
    processor(torch.tensor([[1, 1, 3], [1, 0, 0]]), p.log())  # 3 was not kept: the row has ended
    assert processor.mu[0] == pytest.approx(2 - 0.5 * (surprise - 1))
    processor(torch.tensor([[2], [1]]), p.log())
    assert processor.mu.tolist() == [2.0, 2.0]
    processor.reset()
    assert processor.mu is None


def test_mirostat_passes_over_padding():
    processor = ad.MirostatLogitsProcessor(tau=1.0, pad_token_id=0)
    p = torch.tensor([[0.5, 0.3, 0.15, 0.05]])
    processor(torch.tensor([[1]]), p.log())
    processor(torch.tensor([[1, 0]]), p.log())
    assert processor.mu.tolist() == [2.0]


def test_diversity_and_repetition():
    ids = [1, 2, 3, 1, 2, 3]
    assert ad.rep_n(ids, 2) == pytest.approx(100 * (1 - 3 / 5))
    assert ad.rep_n(ids, 3) == pytest.approx(100 * (1 - 3 / 4))
    assert ad.diversity(ids) == pytest.approx(3 / 5 * 3 / 4 * 3 / 3)
    assert ad.diversity(ids) == pytest.approx(reference.diversity(ids))
    assert ad.diversity([5]) == 1.0
    assert ad.rep_n([5], 2) == 0.0


def test_zipf_of_a_power_law():
    texts = [[rank] * (60 // rank) for rank in range(1, 7)]
    assert ad.zipf(texts) == pytest.approx(1.0, abs=0.03)


def test_coherence_by_hand():
    vectors = {"a": [1.0, 0.0], "b": [1.0, 1.0], "c": [0.0, 2.0], "": [0.0, 0.0]}
    embed = lambda texts: np.array([vectors[t] for t in texts])  # noqa: E731
    assert ad.coherence(["a", "a"], ["b", "c"], embed) == pytest.approx(0.5 * 2**-0.5)
    assert ad.coherence(["a"], [""], embed) == 0.0


def test_increments_at_extremes():
    x = torch.tensor([[0.0, -800.0, -900.0], [700.0, 699.0, -700.0]], dtype=torch.float64)
    found = ad.confidence_increments(x)
    assert torch.isfinite(found.delta).all()
    assert found.delta[0, 0] == pytest.approx(1.0)
    huge = torch.tensor([[3e38, -3e38, 0.0]])
    assert kept_ids(ad.candidate_mask(huge)[0]) == {0}
