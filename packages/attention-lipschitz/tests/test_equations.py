"""The definitions of the paper and exact facts that follow from them, for the reference and the fast path."""

import math

import attention_lipschitz as al
import numpy as np
import pytest
import torch
from attention_cases import HAND, HAND_TOKENS, draw, head, model_layer, parts
from attention_lipschitz import _reference as ref
from attention_lipschitz.baselines import dense_constant, published_power_iteration, random_directions
from hypothesis import given, settings
from hypothesis import strategies as st

BOTH = pytest.mark.parametrize("causal", [False, True])


def constant(layer, X, **options):
    return al.local_lipschitz(layer, X, rtol=1e-12, **options).value


@BOTH
def test_values_and_derivatives_are_those_of_the_definition(causal):
    for seed in range(4):
        one, X = head(seed, bias=seed % 2 == 0), draw(seed, 5, 4)
        layer = one.layer(causal)
        A, c, V = parts(one)
        assert layer.attention(X)[0].numpy() == pytest.approx(ref.attention(X.numpy(), A, c, causal), abs=1e-13)
        assert layer(X).numpy() == pytest.approx(ref.output(X.numpy(), A, c, V, causal), abs=1e-12)
        jacobian = ref.jacobian(X.numpy(), A, c, V, causal)
        eye = torch.eye(20, dtype=torch.float64)
        columns = torch.stack([layer.jvp(X, e.reshape(5, 4)).flatten() for e in eye], 1)
        assert columns.numpy() == pytest.approx(jacobian, abs=1e-12)
        eye = torch.eye(15, dtype=torch.float64)
        rows = torch.stack([layer.vjp(X, e.reshape(5, 3)).flatten() for e in eye])
        assert rows.numpy() == pytest.approx(jacobian, abs=1e-12)
        assert constant(layer, X) == pytest.approx(ref.local_constant(X.numpy(), A, c, V, causal), rel=1e-10)


@BOTH
def test_derivatives_equal_automatic_ones_and_each_other(causal):
    options = {"frequencies": torch.tensor([0.7], dtype=torch.float64), "rotary_factor": 1.3}
    bias = draw(3, 3, 9, 9)
    for layer in (
        model_layer(0, causal=causal), model_layer(1, causal=causal, **options),
        model_layer(2, causal=causal, logit_bias=bias), model_layer(3, causal=causal, scale=0.21),
    ):  # fmt: skip
        X, E, Y = draw(1, 7, 6), draw(2, 7, 6), draw(4, 7, 6)
        tangent = torch.func.jvp(layer, (X,), (E,))[1]
        pulled = torch.func.vjp(layer, X)[1](Y)[0]
        torch.testing.assert_close(layer.jvp(X, E), tangent, rtol=0, atol=1e-10)
        torch.testing.assert_close(layer.vjp(X, Y), pulled, rtol=0, atol=1e-10)
        assert float((tangent * Y).sum()) == pytest.approx(float((E * pulled).sum()), rel=1e-12)


def test_windows_of_sliding_attention_end_where_they_should():
    layer = model_layer(5, causal=True, window=3)
    P = layer.attention(draw(0, 6, 6))
    distance = torch.arange(6)[:, None] - torch.arange(6)
    assert bool((P[:, (distance < 0) | (distance > 2)] == 0).all())
    assert bool((P[:, (distance >= 0) & (distance <= 2)] > 0).all())


def test_without_logits_the_constant_is_the_norm_of_V():
    V = draw(1, 3, 4)
    one = al.AttentionHead(A=torch.zeros(4, 4, dtype=torch.float64), V=V)
    for n in (1, 2, 7):
        assert constant(one, draw(n, n, 4)) == pytest.approx(float(torch.linalg.matrix_norm(V, 2)), rel=1e-12)


@BOTH
def test_of_one_token_the_constant_is_the_norm_of_V(causal):
    one = head(3, bias=True)
    norm = float(torch.linalg.matrix_norm(one.V, 2))
    assert constant(one.layer(causal), draw(0, 1, 4)) == pytest.approx(norm, rel=1e-12)


def test_permutations_change_nothing_without_a_mask_and_something_with_one():
    one, X, order = head(1), draw(5, 6, 4), [3, 0, 5, 1, 4, 2]
    assert constant(one, X[order]) == pytest.approx(constant(one, X), rel=1e-10)
    masked = one.layer(causal=True)
    assert abs(constant(masked, X[order]) - constant(masked, X)) > 1e-3


def test_tokens_twice_change_nothing():
    one, X = head(2, bias=True), draw(6, 5, 4)
    assert constant(one, X.repeat(3, 1)) == pytest.approx(constant(one, X), rel=1e-10)


@BOTH
def test_a_change_of_basis_changes_nothing(causal):
    one, X = head(4), draw(7, 5, 4)
    U = torch.linalg.qr(draw(8, 4, 4))[0]
    turned = al.AttentionHead(A=U @ one.A @ U.mT, V=one.V @ U.mT)
    assert constant(turned.layer(causal), X @ U.mT) == pytest.approx(constant(one.layer(causal), X), rel=1e-10)


def test_the_constant_scales_with_V_and_ignores_key_and_value_biases():
    one, X = head(5), draw(9, 5, 4)
    assert constant(al.AttentionHead(A=one.A, V=-2.5 * one.V), X) == pytest.approx(2.5 * constant(one, X), rel=1e-12)
    layer, X = model_layer(6), draw(9, 5, 6)
    for name in ("key_bias", "value_bias", "out_bias"):
        assert constant(layer._rebuilt(**{name: None}), X) == pytest.approx(constant(layer, X), rel=1e-10)
    assert abs(constant(layer._rebuilt(query_bias=None), X) - constant(layer, X)) > 1e-3


@pytest.mark.parametrize("shape", [(7, 6), (13, 6)])
def test_three_ways_of_the_largest_singular_value_agree(shape):
    layer, X = model_layer(7, causal=True), draw(1, *shape)
    dense = al.local_lipschitz(layer, X, method="dense")
    exact = float(torch.linalg.matrix_norm(torch.func.jacrev(layer)(X).reshape(X.numel(), -1), 2))
    assert dense.value == pytest.approx(exact, rel=1e-12)
    assert dense_constant(layer, X) == pytest.approx(exact, rel=1e-12)
    for method in ("lanczos", "power"):
        found = al.local_lipschitz(layer, X, method=method, rtol=1e-9, max_iter=5000)
        assert found.converged
        assert found.value == pytest.approx(exact, rel=1e-6)
        assert found.iterations > 0
        assert float(torch.linalg.vector_norm(found.right)) == pytest.approx(1, rel=1e-9)
        assert float(torch.linalg.vector_norm(found.left)) == pytest.approx(1, rel=1e-9)
        moved = layer.jvp(X, found.right)
        assert float((moved * found.left).sum()) == pytest.approx(exact, rel=1e-6)
    assert float(al.local_lipschitz(layer, X, seed=5)) == pytest.approx(exact, rel=1e-6)
    assert random_directions(layer, X, directions=30) <= exact * (1 + 1e-6)
    assert published_power_iteration(layer, X, tol=1e-9).value == pytest.approx(exact, rel=1e-4)
    assert not published_power_iteration(layer, X, tol=1e-12, max_iter=2).converged


def test_the_spectrum_is_that_of_the_whole_jacobian():
    layer, X = model_layer(8), draw(2, 8, 6)
    J = torch.func.jacrev(layer)(X).reshape(48, 48)
    exact = torch.linalg.svdvals(J)
    for k in (1, 5, 47):
        found = al.jacobian_spectrum(layer, X, k)
        assert found.values.shape == (k,)
        torch.testing.assert_close(found.values, exact[:k], rtol=1e-6, atol=1e-9)
        assert found.left.shape == found.right.shape == (k, 8, 6)
        for value, u, w in zip(found.values, found.left, found.right, strict=True):
            torch.testing.assert_close(J @ w.flatten(), value * u.flatten(), rtol=0, atol=1e-5)


def test_many_heads_are_a_sum():
    heads, X = [head(i, out=5) for i in range(3)], draw(3, 6, 4)
    layer = al.AttentionLayer(heads, causal=True)
    triples = [(*parts(one)[:2], one.V.numpy(), one.O.numpy()) for one in heads]
    assert constant(layer, X) == pytest.approx(ref.multi_head_constant(X.numpy(), triples, True), rel=1e-10)
    torch.testing.assert_close(layer(X), sum(one.layer(True)(X) for one in heads))
    whole, by_head = al.local_lipschitz_batch(layer, X[None], rtol=1e-10), al.head_constants(layer, X, rtol=1e-10)
    assert float(whole[0]) == pytest.approx(constant(layer, X), rel=1e-5)
    singles, converged = al.local_lipschitz_batch(layer, torch.stack([X, 2 * X]), by_head=True, rtol=1e-10)
    assert singles.shape == (2, 3)
    assert bool(converged.all())
    assert singles[0].tolist() == pytest.approx([float(one) for one in by_head], rel=1e-5)
    assert [h for h, _ in al.rank_heads(layer, X)] == singles[0].argsort(descending=True).tolist()
    side_by_side = al.AttentionLayer.from_projections(layer.query, layer.key, layer.value, causal=True, scale=1.0)
    expected = torch.cat([al.AttentionHead(A=h.A, V=h.V).layer(True)(X) for h in heads], -1)
    torch.testing.assert_close(side_by_side(X), expected)


def test_heads_come_back_as_they_went_in():
    layer, X = model_layer(12, causal=True), draw(3, 6, 6)
    again = al.AttentionLayer(layer.heads, causal=True)
    assert constant(again, X) == pytest.approx(constant(layer, X), rel=1e-10)
    for h, one in enumerate(layer.heads):
        assert constant(one.layer(causal=True), X) == pytest.approx(constant(layer.head(h), X), rel=1e-10)


def test_the_example_by_hand():
    assert constant(HAND, HAND_TOKENS) == pytest.approx(2.0716341820, abs=1e-9)
    assert constant(HAND.layer(causal=True), HAND_TOKENS) == pytest.approx(2.5085393591, abs=1e-9)
    for causal, exact in ((False, 2.0716341820), (True, 2.5085393591)):
        bound = al.bounds.local(HAND, HAND_TOKENS, causal=causal)
        assert bound == pytest.approx(ref.bound_local(HAND_TOKENS.numpy(), *parts(HAND)[:3], causal), rel=1e-12)
        assert bound >= exact


def test_bounds_by_hand():
    assert al.bounds.general(2, 3.0, 1.0, 1.0) == pytest.approx(46.83, abs=5e-3)
    assert al.bounds.sharp(2, 3.0, 1.0, 1.0) == pytest.approx(23.14, abs=5e-3)
    assert al.bounds.mean_field(0.5, 1.0, 2.0) == pytest.approx(2 * 1.75 * math.exp(0.5), rel=1e-12)
    assert al.bounds.masked_mean_field(0.5, 1.0, 2.0) == pytest.approx(2 * (2 * math.exp(0.5) * 1.5 + 0.25), rel=1e-12)
    assert al.bounds.general(5, 2.0, 0.3, 1.4) == pytest.approx(ref.bound_general(5, 2.0, 0.3, 1.4), rel=1e-12)
    assert al.bounds.mean_field(1.2, 0.3, 1.4) == pytest.approx(ref.bound_mean_field(1.2, 0.3, 1.4), rel=1e-12)
    s = math.exp(2 * (0.3 + 0.2))
    assert al.bounds.sharp(100, 1.0, 0.3, 2.0, norm_c=0.2) == pytest.approx(2 * (math.sqrt(s) * 1.5 + 0.3), rel=1e-12)
    assert al.bounds.sharp(100, 1.0, 0.3, 2.0, norm_c=0.2, causal=True) == pytest.approx(
        2 * (10 * 1.5 + 0.3), rel=1e-12
    )


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000), n=st.integers(1, 8), d=st.integers(1, 5), size=st.floats(0.05, 2.0),
    causal=st.booleans(), bias=st.booleans(),
)  # fmt: skip
def test_every_bound_is_one(seed, n, d, size, causal, bias):
    one, X = head(seed, d=d, d_v=d, size=size, bias=bias), draw(seed + 1, n, d)
    layer = one.layer(causal)
    A, c, V = parts(one)
    exact = ref.local_constant(X.numpy(), A, c, V, causal)
    R = float(torch.linalg.vector_norm(X, dim=-1).max())
    norms = float(np.linalg.norm(A, 2)), float(np.linalg.norm(V, 2)), float(np.linalg.norm(c))
    table = al.bounds.bound_table(layer, n, R)
    slack = 1 + 1e-9
    assert table.sharp == pytest.approx(al.bounds.sharp(n, R, *norms, causal=causal), rel=1e-9)
    for bound in (table.sharp, table.general, table.mean_field, table.masked_mean_field):
        assert exact <= bound * slack
    assert table.best() <= min(table.general, table.sharp) * slack
    assert table.sharp <= min(table.general, table.mean_field) * slack
    assert exact <= al.bounds.local(layer, X) * slack
    assert al.bounds.local(layer, X) == pytest.approx(ref.bound_local(X.numpy(), A, c, V, causal), rel=1e-8)
    delta = 0.1
    ball = al.certified_bound(layer, X, delta)
    assert ball == pytest.approx(ref.bound_ball(X.numpy(), A, c, V, causal, delta), rel=1e-8)
    there = draw(seed + 2, n, d)
    for far in (0.0, 0.5, 1.0):
        Y = X + far * delta * there / torch.linalg.vector_norm(there)
        assert ref.local_constant(Y.numpy(), A, c, V, causal) <= ball * slack


def test_bounds_of_layers_with_positions_hold_too():
    rotary = {"frequencies": torch.tensor([0.9], dtype=torch.float64), "rotary_factor": 1.1}
    for options in (rotary, {"logit_bias": draw(3, 3, 9, 9)}, {}):
        for causal in (False, True):
            layer, X = model_layer(9, causal=causal, **options), draw(4, 6, 6)
            exact = constant(layer, X)
            R = float(torch.linalg.vector_norm(X, dim=-1).max())
            table = al.bounds.bound_table(layer, 6, R, allow_loose=True)
            assert exact <= min(table.best(), al.bounds.local(layer, X)) * (1 + 1e-9)
            ball = al.certified_bound(layer, X, 0.2)
            worst = al.worst_case(layer, 6, R, steps=5, restarts=1, start=X)
            assert worst.value <= table.best() * (1 + 1e-9)
            for seed in range(5):
                E = draw(seed, 6, 6)
                assert constant(layer, X + 0.2 * E / torch.linalg.vector_norm(E)) <= ball * (1 + 1e-9)


def amplified(m, gamma):
    p = 1 / (1 + (m - 1) * math.exp(-2 * gamma))
    return p * (1 + 2 * gamma * (1 - p))


def test_adversarial_tokens_and_the_lower_bound():
    A = torch.diag(torch.tensor([-1.0, 0.5, 0.2], dtype=torch.float64))
    X = al.adversarial_tokens(A, 4, 2.0)
    assert X[:, 0].abs().tolist() == pytest.approx([2.0] * 4)
    assert float(X[0, 0] * X[1, 0]) == pytest.approx(-4)
    assert X[:, 1:].abs().max() < 1e-12
    positive = al.adversarial_tokens(torch.diag(torch.tensor([-0.1, 4.0], dtype=torch.float64)), 3, 2.0)
    assert positive[:, 1].abs().tolist() == pytest.approx([2.0, 1.0, 1.0])
    for eigenvalue in (-1.0, 2.0):
        A = torch.tensor([[eigenvalue, 0.0], [0.0, 0.01]], dtype=torch.float64)
        one = al.AttentionHead(A=A, V=draw(3, 2, 2))
        for causal in (False, True):
            for n in (1, 2, 9, 40):
                value, tokens = al.bounds.lower(n, 1.0, A, one.V, causal=causal)
                exact = constant(one.layer(causal), tokens)
                assert value <= exact * (1 + 1e-9)
                gamma = -eigenvalue if eigenvalue < 0 else eigenvalue / 8
                u = torch.tensor([1.0, 0.0], dtype=torch.float64)
                gain = float(torch.linalg.vector_norm(one.V @ u))
                rest = math.sqrt(1 + sum(amplified(i, gamma) ** 2 for i in range(2, n + 1)))
                expected = gain * (rest if causal else math.sqrt(n - 1) * amplified(n, gamma))
                assert value == pytest.approx(gain if n == 1 else expected, rel=1e-9)


def test_measured_values_of_the_adversarial_data():
    one = al.AttentionHead(A=-torch.eye(1, dtype=torch.float64), V=torch.eye(1, dtype=torch.float64))
    at = lambda n, R, causal=False: constant(one.layer(causal), al.adversarial_tokens(one.A, n, R))  # noqa: E731
    assert at(100, 3.0) == pytest.approx(9.950, abs=1e-3)
    assert [at(n, 1.0) for n in (9, 50, 200)] == pytest.approx([2.944, 2.518, 1.662], abs=2e-3)
    assert [at(n, 1.0, True) for n in (5, 60, 300)] == pytest.approx([2.552, 5.090, 5.568], abs=2e-3)


@BOTH
def test_at_large_radius_attention_is_hard(causal):
    one, X = head(6, size=0.4), draw(11, 6, 4)
    A, _, V = parts(one)
    limit = al.bounds.large_radius_limit(one, X, causal=causal)
    assert limit == pytest.approx(ref.hard_attention_constant(X.numpy(), A, V, causal), rel=1e-10)
    assert limit <= np.linalg.norm(V, 2) * math.sqrt(6) + 1e-12
    gaps = [abs(constant(one.layer(causal), r * X) - limit) for r in (10.0, 100.0, 1000.0)]
    assert gaps[2] <= gaps[0] + 1e-12
    assert gaps[2] < 1e-6 * limit
    several = al.AttentionLayer([head(i, size=0.4, out=4) for i in range(2)], causal=causal)
    assert constant(several, 1000.0 * X) == pytest.approx(al.bounds.large_radius_limit(several, X), rel=1e-6)


@BOTH
def test_the_published_estimate_takes_the_value_for_the_tangent(causal):
    one, X = head(7, bias=True), draw(12, 5, 4)
    expected = ref.published_estimate(X.numpy(), *parts(one), causal)
    assert al.paper_code_estimate(one.layer(causal), X) == pytest.approx(expected, rel=1e-10)
    layer = one.layer(causal)
    u = draw(13, 5, 4)
    primal = torch.func.jvp(layer, (X,), (u / torch.linalg.vector_norm(u),))[0]  # the scripts' index 0
    after_one_step = torch.func.vjp(layer, X)[1](primal)[0]
    assert expected == pytest.approx(math.sqrt(float(torch.linalg.vector_norm(after_one_step))), rel=1e-10)


def test_the_norm_in_front_can_be_folded_in():
    norm = torch.nn.LayerNorm(6).double()
    with torch.no_grad():
        norm.weight.copy_(draw(1, 6))
        norm.bias.copy_(draw(2, 6))
    token_norm = al.TokenNorm.from_module(norm)
    layer, Z = model_layer(10), draw(3, 5, 6)
    Z = token_norm.projected(100 * Z)
    folded = al.bounds.layernorm_fold(layer, token_norm)
    torch.testing.assert_close(folded(Z), layer((Z * norm.weight + norm.bias).detach()), rtol=0, atol=1e-12)
    torch.testing.assert_close(token_norm(draw(4, 5, 6)), norm(draw(4, 5, 6)))
    assert torch.linalg.vector_norm(Z, dim=-1).tolist() == pytest.approx([math.sqrt(6)] * 5, rel=1e-9)
    assert Z.sum(-1).abs().max() < 1e-9
    E, Y, x = draw(5, 5, 6), draw(6, 5, 6), draw(7, 5, 6)
    torch.testing.assert_close(token_norm.jvp(x, E), torch.func.jvp(norm, (x,), (E,))[1])
    torch.testing.assert_close(token_norm.vjp(x, Y), torch.func.vjp(norm, x)[1](Y)[0])
    assert token_norm.radius() >= float(torch.linalg.vector_norm(norm(1e6 * x), dim=-1).detach().max())
    sharp = sum(al.bounds.bound_table(folded, 5, math.sqrt(6)).by_head)
    crude = sum(al.bounds.bound_table(layer, 5, token_norm.radius()).by_head)
    exact = constant(folded, Z)
    assert exact <= sharp * (1 + 1e-9) < crude
    rms = al.TokenNorm(norm.weight.detach(), None, 0.0, "rms")
    torch.testing.assert_close(rms(x), x / x.square().mean(-1, keepdim=True).sqrt() * norm.weight)
    torch.testing.assert_close(rms.jvp(x, E), torch.func.jvp(rms, (x,), (E,))[1])
    with pytest.raises(ValueError, match="folded already"):
        al.bounds.layernorm_fold(folded, token_norm)


@pytest.mark.parametrize("before", [True, False])
def test_blocks_are_attention_with_residual_and_norm(before):
    norm = al.TokenNorm(draw(1, 6), draw(2, 6))
    layer, X = model_layer(11, causal=True), draw(3, 5, 6)
    for block, fn in (
        (al.AttentionBlock(layer, norm, before), lambda Y: Y + layer(norm(Y)) if before else norm(Y + layer(Y))),
        (al.AttentionBlock(layer, None), lambda Y: Y + layer(Y)),
    ):
        torch.testing.assert_close(block(X), fn(X))
        assert constant(block, X) == pytest.approx(dense_constant(fn, X), rel=1e-9)
        assert al.local_lipschitz(block.measured(torch.float32), X.float()).right.dtype == torch.float64
        here = block.linearize(X)
        torch.testing.assert_close(here.value(), fn(X))
        E, Y = draw(4, 5, 6), draw(5, 5, 6)
        torch.testing.assert_close(here.jvp(E), torch.func.jvp(fn, (X,), (E,))[1])
        torch.testing.assert_close(here.vjp(Y), torch.func.vjp(fn, X)[1](Y)[0])
