"""The equations: literal numbers first, then the fast path against the literal reference."""

import math

import numpy as np
import pytest
import slab_transformer as st
import torch
from slab_transformer import _reference as reference
from slab_transformer.statistics import masked_batch_norm
from torch import nn


def f64(*shape, gen):
    return torch.randn(*shape, generator=gen, dtype=torch.float64)


def trained_norm(channels, gen, alpha=0.7):
    norm = st.RepBN(channels, dtype=torch.float64)
    with torch.no_grad():
        norm.bn.weight.copy_(f64(channels, gen=gen))
        norm.bn.bias.copy_(f64(channels, gen=gen))
        norm.bn.running_mean.copy_(f64(channels, gen=gen))
        norm.bn.running_var.copy_(f64(channels, gen=gen).exp())
        norm.alpha.fill_(alpha)
    return norm.eval()


def parts(norm):
    bn = norm.bn
    return [t.detach().numpy() for t in (bn.running_mean, bn.running_var, bn.weight, bn.bias)] + [
        float(norm.alpha.detach()),
        bn.eps,
    ]


def test_reparameterisation_in_literal_numbers():
    """gamma 2, beta 1, mu 3, sigma 2, alpha 0.5 give gamma' 3, beta' 2.5, a 1.5, b -2 (Lemma 4.1)."""
    one = np.ones(1)
    gamma, beta = reference.reparameterise(3 * one, 4 * one, 2 * one, one, 0.5, 0.0)
    assert (gamma[0], beta[0]) == (3.0, 2.5)
    norm = st.RepBN(1, eps=1e-30, dtype=torch.float64)
    with torch.no_grad():
        norm.bn.weight.fill_(2.0)
        norm.bn.bias.fill_(1.0)
        norm.bn.running_mean.fill_(3.0)
        norm.bn.running_var.fill_(4.0)
        norm.alpha.fill_(0.5)
    a, b = norm.affine()
    assert (a.item(), b.item()) == (1.5, -2.0)
    plain = norm.to_batchnorm()
    assert (plain.weight.item(), plain.bias.item()) == (3.0, 2.5)


def test_one_batch_norm_equals_repbn(gen):
    norm = trained_norm(5, gen)
    x = f64(3, 4, 5, gen=gen)
    literal = reference.rep_bn(x.reshape(-1, 5).numpy(), *parts(norm))
    a, b = norm.affine()
    plain = norm.to_batchnorm()(x.reshape(-1, 5))
    for got in (norm(x).reshape(-1, 5), (a * x + b).reshape(-1, 5), plain):
        assert np.abs(got.detach().numpy() - literal).max() < 1e-14


def test_training_uses_batch_statistics_and_moves_the_running_ones(gen):
    norm = trained_norm(5, gen).train()
    x = f64(3, 4, 5, gen=gen)
    rows = x.reshape(-1, 5).numpy()
    mean, biased, unbiased = reference.batch_statistics(rows)
    old_mean, old_var, gamma, beta, alpha, eps = (np.copy(p) for p in parts(norm))
    out = norm(x).detach().reshape(-1, 5).numpy()
    assert np.abs(out - reference.rep_bn(rows, mean, biased, gamma, beta, alpha, eps)).max() < 1e-13
    assert np.abs(norm.bn.running_mean.numpy() - (0.9 * old_mean + 0.1 * mean)).max() < 1e-14
    assert np.abs(norm.bn.running_var.numpy() - (0.9 * old_var + 0.1 * unbiased)).max() < 1e-14


@pytest.mark.parametrize(
    ("warmup", "expected"), [(0, [1, 0.75, 0.5, 0.25, 0, 0]), (2, [1, 1, 1, 0.75, 0.5, 0.25, 0, 0])]
)
def test_lambda_in_literal_numbers(warmup, expected):
    assert [reference.schedule(t, 4, warmup) for t in range(len(expected))] == expected
    model = nn.Sequential(st.PRepBN(nn.LayerNorm(3), st.RepBN(3)))
    schedule = st.PRepBNSchedule(model, decay_steps=4, warmup_steps=warmup)
    seen = []
    for _ in expected:
        seen.append((schedule.lam, model[0].lam))
        schedule.step()
    assert seen == [(value, value) for value in expected]
    assert schedule.finished
    assert model[0].finished


def test_statistics_do_not_move_in_warm_up(gen):
    norm = st.PRepBN(nn.LayerNorm(3), st.RepBN(3))
    schedule = st.PRepBNSchedule(nn.Sequential(norm), decay_steps=4, warmup_steps=2)
    x = torch.randn(4, 3, generator=gen)
    for tracked in (0, 0, 1, 2):
        out = norm(x)
        assert norm.rep.bn.num_batches_tracked == tracked
        if tracked == 0:
            assert torch.equal(out, norm.norm1(x))
        schedule.step()


@pytest.mark.parametrize("lam", [1.0, 0.6, 0.25])
def test_mixture_against_the_reference(lam, gen):
    norm = st.PRepBN(nn.LayerNorm(4, dtype=torch.float64), st.RepBN(4, alpha_init=0.3, dtype=torch.float64))
    with torch.no_grad():
        norm.norm1.weight.copy_(f64(4, gen=gen))
        norm.norm1.bias.copy_(f64(4, gen=gen))
        norm.rep.bn.weight.copy_(f64(4, gen=gen))
    norm.set_lam(lam)
    x = f64(7, 4, gen=gen)
    mean, var, _ = reference.batch_statistics(x.numpy())
    first = reference.layer_norm(x.numpy(), norm.norm1.weight.detach().numpy(), norm.norm1.bias.detach().numpy(), 1e-5)
    second = reference.rep_bn(x.numpy(), mean, var, norm.rep.bn.weight.detach().numpy(), np.zeros(4), 0.3, 1e-5)
    lam = float(norm.lam)
    assert np.abs(norm(x).detach().numpy() - (lam * first + (1 - lam) * second)).max() < 1e-13


def test_ends_of_the_schedule(gen):
    """alpha 0 is progressive LN to BN; r0 = 0 is RepBN; T = inf stays LN in training."""
    x = torch.randn(6, 3, generator=gen)
    norm = st.PRepBN(nn.LayerNorm(3), st.RepBN(3, alpha_init=0.0))
    norm.set_lam(0.5)
    expected = 0.5 * nn.LayerNorm(3)(x) + 0.5 * nn.BatchNorm1d(3)(x)
    torch.testing.assert_close(norm(x), expected)
    model = nn.Sequential(st.PRepBN(nn.LayerNorm(3), st.RepBN(3)))
    st.PRepBNSchedule(model, decay_steps=4, r0=0.0)
    torch.testing.assert_close(model(x), st.RepBN(3)(x), rtol=0, atol=0)
    schedule = st.PRepBNSchedule(model, decay_steps=math.inf)
    for _ in range(5):
        torch.testing.assert_close(model(x), nn.LayerNorm(3)(x), rtol=0, atol=0)
        assert schedule.step() == 1.0


def test_norm1_is_not_computed_once_lambda_is_zero(gen):
    class Counted(nn.LayerNorm):
        calls = 0

        def forward(self, x):
            Counted.calls += 1
            return super().forward(x)

    norm = st.PRepBN(Counted(3), st.RepBN(3))
    norm.set_lam(0.0)
    norm(torch.randn(6, 3, generator=gen))
    assert Counted.calls == 0
    norm.set_lam(0.1)
    norm(torch.randn(6, 3, generator=gen))
    assert Counted.calls == 1


def test_cosine_schedule_and_resuming():
    model = nn.Sequential(st.PRepBN(nn.LayerNorm(3), st.RepBN(3)))
    schedule = st.PRepBNSchedule(model, decay_steps=4, r0=0.8, shape="cosine")
    for step in range(4):
        assert schedule.lam == pytest.approx(0.8 * 0.5 * (1 + math.cos(math.pi * step / 4)))
        if step == 2:
            state = schedule.state_dict()
        schedule.step()
    other = st.PRepBNSchedule(model, decay_steps=9)
    other.load_state_dict(state)
    assert other.lam == pytest.approx(0.4)
    assert model[0].lam == pytest.approx(0.4)


def test_default_decay_is_four_fifths_of_all_steps():
    model = nn.Sequential(st.PRepBN(nn.LayerNorm(3), st.RepBN(3)))
    assert st.PRepBNSchedule(model, total_steps=1000).decay_steps == 800
    # a warm-up so long that this would pass the end is cut: lambda must reach 0 within the training
    assert st.PRepBNSchedule(model, total_steps=1000, warmup_steps=300).decay_steps == 700


@pytest.mark.parametrize(("dtype", "tol"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize(("n", "m"), [(9, 9), (70, 11), (3, 50)])
def test_both_association_orders_agree(dtype, tol, n, m, gen):
    q = torch.randn(2, 3, n, 8, generator=gen, dtype=dtype)
    k, v = (torch.randn(2, 3, m, 8, generator=gen, dtype=dtype) for _ in range(2))
    one, two = (st.linear_attention(q, k, v, order=order) for order in ("kv", "qk"))
    assert (one - two).abs().max() < tol
    literal = reference.linear_attention(*(t[1, 2].double().numpy() for t in (q, k, v)))
    assert np.abs(one[1, 2].double().numpy() - literal).max() < tol


def test_the_cheaper_order_is_taken():
    from slab_transformer.attention import cheaper_order

    assert cheaper_order(196, 196, 32, 32) == "kv"
    assert cheaper_order(16, 16, 32, 32) == "qk"
    assert cheaper_order(32, 32, 32, 32) == "qk"  # equal products


def test_invariances_of_linear_attention(gen):
    q, k, v = (f64(2, 2, 12, 4, gen=gen) for _ in range(3))
    out = st.linear_attention(q, k, v)
    order = torch.randperm(12, generator=gen)
    torch.testing.assert_close(st.linear_attention(q, k[:, :, order], v[:, :, order]), out, rtol=0, atol=1e-12)
    torch.testing.assert_close(st.linear_attention(q, 7.5 * k, v), out, rtol=0, atol=1e-4)
    tiny = st.linear_attention(q, k, v, eps=1e-14)
    torch.testing.assert_close(st.linear_attention(q, 7.5 * k, v, eps=1e-14), tiny, rtol=0, atol=1e-12)


def test_one_token_and_equal_keys(gen):
    q, k, v = (f64(1, 2, 1, 4, gen=gen).abs() for _ in range(3))
    torch.testing.assert_close(st.linear_attention(q, k, v, eps=1e-15), v)
    q, v = f64(1, 2, 6, 4, gen=gen).abs(), f64(1, 2, 6, 4, gen=gen)
    k = f64(1, 2, 1, 4, gen=gen).abs().expand(-1, -1, 6, -1)
    torch.testing.assert_close(st.linear_attention(q, k, v, eps=1e-15), v.mean(2, keepdim=True).expand_as(v))


def test_a_query_without_positive_entries_gives_zero(gen):
    q, k, v = (f64(1, 1, 3, 4, gen=gen) for _ in range(3))
    q[:, :, 1] = -1.0
    out = st.linear_attention(q, k, v)
    assert torch.equal(out[:, :, 1], torch.zeros(1, 1, 4, dtype=torch.float64))
    assert out.isfinite().all()


@pytest.mark.parametrize("n", [1, 63, 64, 65, 150])
def test_causal_form_against_the_loop(n, gen):
    q, k, v = (f64(1, 2, n, 4, gen=gen) for _ in range(3))
    out = st.linear_attention(q, k, v, causal=True)
    literal = reference.linear_attention(*(t[0, 1].numpy() for t in (q, k, v)), causal=True)
    assert np.abs(out[0, 1].numpy() - literal).max() < 1e-11


def test_key_padding_is_as_if_it_were_not_there(gen):
    q, k, v = (f64(2, 2, 8, 4, gen=gen) for _ in range(3))
    mask = torch.tensor([[1] * 5 + [0] * 3, [1] * 8], dtype=torch.bool)
    k[0, :, 5:] = torch.nan
    out = st.linear_attention(q, k, v, key_padding_mask=mask)
    torch.testing.assert_close(out[:1], st.linear_attention(q[:1], k[:1, :, :5], v[:1, :, :5]))


@pytest.mark.parametrize("prefix", [0, 2])
def test_attention_module_against_the_reference(prefix, gen):
    grid = (3, 5)
    module = st.SimplifiedLinearAttention(8, 2, grid, num_prefix_tokens=prefix, dtype=torch.float64)
    with torch.no_grad():
        module.position.copy_(f64(1, 15 + prefix, 8, gen=gen))
    x = f64(1, 15 + prefix, 8, gen=gen)
    q, k, v = module.q(x)[0], (module.k(x) + module.position)[0], module.v(x)[0]
    kernel, bias = module.dwc.weight[:, 0].detach().numpy(), module.dwc.bias.detach().numpy()
    heads = []
    for head in range(2):
        cut = slice(4 * head, 4 * head + 4)
        one = [t[:, cut].detach().numpy() for t in (q, k, v)]
        out = reference.linear_attention(*one)
        out[prefix:] += reference.depthwise(one[2][prefix:], kernel, bias, grid)
        heads.append(out)
    expected = module.proj(torch.from_numpy(np.concatenate(heads, 1)))
    torch.testing.assert_close(module(x)[0], expected, rtol=0, atol=1e-12)


def test_spatial_reduction_makes_fewer_keys(gen):
    module = st.SimplifiedLinearAttention(8, 2, (4, 6), sr_ratio=2, dtype=torch.float64)
    x = f64(2, 24, 8, gen=gen)
    assert module.position.shape == (1, 6, 8)
    tokens = module.norm(module.sr(x.transpose(1, 2).reshape(2, 8, 4, 6)).flatten(2).transpose(1, 2))
    q, k, v = (t.reshape(2, -1, 2, 4).transpose(1, 2) for t in (module.q(x), module.k(tokens), module.v(tokens)))
    out = st.linear_attention(q, k, v)
    values = nn.functional.interpolate(v.transpose(-1, -2).reshape(4, 4, 6), size=24, mode="linear")
    out = out + module.dwc(values.reshape(4, 4, 4, 6)).reshape(2, 2, 4, 24).transpose(-1, -2)
    expected = module.proj(out.transpose(1, 2).reshape(2, 24, 8))
    torch.testing.assert_close(module(x), expected, rtol=0, atol=1e-12)


def test_resizing_keeps_a_constant_position_term(gen):
    module = st.SimplifiedLinearAttention(8, 2, (4, 4), num_prefix_tokens=1)
    with torch.no_grad():
        module.position.fill_(0.5)
        module.position[:, 0] = 3.0
    module.resize_grid((6, 8))
    assert module.position.shape == (1, 49, 8)
    torch.testing.assert_close(module.position[:, 1:], torch.full((1, 48, 8), 0.5))
    assert (module.position[:, 0] == 3.0).all()
    assert module(torch.randn(1, 49, 8, generator=gen)).shape == (1, 49, 8)


def test_gradients(gen):
    norm = trained_norm(3, gen).train()
    x = f64(5, 3, gen=gen).requires_grad_()
    weights = (norm.alpha, norm.bn.weight, norm.bn.bias)
    assert torch.autograd.gradcheck(lambda t, *_: norm(t), (x, *weights))
    plain = nn.BatchNorm1d(3, dtype=torch.float64)
    plain.load_state_dict(norm.bn.state_dict())
    found = torch.autograd.grad(norm(x).tanh().sum(), (x, *weights))
    composed = plain(x) + norm.alpha * x
    wanted = torch.autograd.grad(composed.tanh().sum(), (x, norm.alpha, plain.weight, plain.bias))
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=1e-12)
    for (name, one), (_, two) in zip(norm.bn.named_buffers(), plain.named_buffers(), strict=True):
        if name != "num_batches_tracked":  # the check of gradients ran it often, with about the same input
            assert one.shape == two.shape
    mask = torch.tensor([True, True, False, True, True])
    assert torch.autograd.gradcheck(lambda t: norm(t, mask), (x,))
    q, k, v = (f64(1, 2, 5, 3, gen=gen).requires_grad_() for _ in range(3))
    for options in ({"order": "kv"}, {"order": "qk"}, {"causal": True}):
        assert torch.autograd.gradcheck(lambda *t, o=options: st.linear_attention(*t, **o), (q, k, v))


def test_masked_statistics_equal_those_of_the_compacted_rows(gen):
    x = f64(4, 6, 3, gen=gen)
    mask = torch.rand(4, 6, generator=gen) > 0.4
    one, two = (st.RepBN(3, alpha_init=0.4, dtype=torch.float64) for _ in range(2))
    x[~mask] = 1e6
    out = one(x, mask)
    expected = two(x[mask])
    torch.testing.assert_close(out[mask], expected, rtol=0, atol=1e-12)
    assert torch.equal(out[~mask], x[~mask])  # passed through
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        torch.testing.assert_close(getattr(one.bn, name), getattr(two.bn, name))


def test_masked_statistics_with_cumulative_average(gen):
    one, two = (nn.BatchNorm1d(3, momentum=None, dtype=torch.float64) for _ in range(2))
    for _ in range(3):
        x = f64(7, 3, gen=gen)
        mask = torch.arange(7) < 5
        masked_batch_norm(x, mask, one)
        two(x[:5])
    torch.testing.assert_close(one.running_var, two.running_var)
    torch.testing.assert_close(one.running_mean, two.running_mean)
