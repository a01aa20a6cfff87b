"""The exact checks: decoder, Hermitian matrix, messages, attention, encoder, against literal equations."""

import math

import duplex_embed as dx
import numpy as np
import pytest
import torch
from duplex_embed import _reference as reference
from duplex_embed.attention import attention
from duplex_embed.encoder import DualGATEncoder, DualGATLayer
from duplex_embed.graph import as_graph
from duplex_embed.messages import index_messages, message_edges, message_graph
from duplex_embed.pairs import BOTH, FORWARD, NONE, REVERSE
from duplex_embed.splits import oriented
from hypothesis import given, settings
from hypothesis import strategies as st
from offprints.seeding import rng

FOUR = [(0, 1), (1, 2), (2, 1), (1, 3)]
EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20)
float64 = {"dtype": torch.float64}


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=rng(seed, "cpu"), **float64)


def all_pairs(n):
    return torch.tensor([(u, v) for u in range(n) for v in range(n) if u != v])


def graph_of(edges, n=7):
    return as_graph(torch.tensor(edges).t(), num_nodes=n)


@given(EDGES)
@settings(max_examples=30, deadline=None)
def test_hermitian_matrix_is_the_literal_one(edges):
    found = dx.hermitian_adjacency(graph_of(edges)).toarray()
    np.testing.assert_array_equal(found, reference.hermitian(edges, 7).numpy())
    np.testing.assert_array_equal(found, found.conj().T)


def test_hermitian_matrix_has_its_four_kinds_of_entry():
    h = dx.hermitian_adjacency([(0, 1), (1, 2), (2, 1), (3, 3), (0, 1), (0, 4)]).toarray()
    assert h[0, 1] == 1j
    assert h[1, 0] == -1j
    assert h[1, 2] == h[2, 1] == 1
    assert h[0, 2] == h[3, 3] == 0


@given(EDGES)
@settings(max_examples=30, deadline=None)
def test_messages_are_the_literal_ones(edges):
    index, weight, _ = message_edges(graph_of(edges))
    found = {(u, v): (a, b) for (u, v), a, b in zip(index.t().tolist(), *weight.tolist(), strict=True)}
    assert found == reference.messages(edges, 7)
    assert len(found) == index.shape[1]


def test_messages_of_the_four_node_graph():
    """One-way 0->1 and 1->3, both ways 1-2; by hand."""
    index, weight, _ = message_edges(as_graph(FOUR))
    found = {(u, v): (a, b) for (u, v), a, b in zip(index.t().tolist(), *weight.tolist(), strict=True)}
    assert found == {
        (0, 0): (1, 1), (1, 1): (1, 1), (2, 2): (1, 1), (3, 3): (1, 1), (0, 1): (1, 1), (1, 0): (1, -1),
        (1, 2): (1, 0), (2, 1): (1, 0), (1, 3): (1, 1), (3, 1): (1, -1),
    }  # fmt: skip


@given(EDGES)
@settings(max_examples=25, deadline=None)
def test_an_exact_embedding_of_every_graph_exists(edges):
    graph = graph_of(edges)
    found = dx.spectral_ham(graph)
    pairs = all_pairs(7)
    re, im, _ = dx.hermitian_decode(found.amplitude, found.phase, *pairs.t())
    h = reference.hermitian(edges, 7)[pairs[:, 0], pairs[:, 1]]
    torch.testing.assert_close(torch.complex(re, im), h, atol=1e-12, rtol=0)
    types = dx.pair_types(graph.edge_index, pairs, 7)
    assert torch.equal(found.logits(pairs).argmax(1), types)


def test_the_leading_eigenvectors_are_the_same_sparse_and_dense(monkeypatch):
    graph = dx.datasets.directed_sbm(n=60, seed=3, p=0.2)
    dense = dx.spectral_ham(graph, 4)
    monkeypatch.setattr("duplex_embed.spectral.DENSE", 0)
    lanczos = dx.spectral_ham(graph, 4)
    pairs = all_pairs(60)[:200]
    for ours, theirs in zip(
        dx.hermitian_decode(lanczos.amplitude, lanczos.phase, *pairs.t()),
        dx.hermitian_decode(dense.amplitude, dense.phase, *pairs.t()), strict=True,
    ):  # fmt: skip
        torch.testing.assert_close(ours, theirs, atol=1e-8, rtol=1e-8)


def test_a_truncated_spectral_embedding_is_the_nearest_of_its_rank():
    graph = dx.datasets.directed_sbm(n=30, seed=1, p=0.3)
    h = dx.hermitian_adjacency(graph).toarray()
    values = np.linalg.eigvalsh(h)
    shift = max(0.0, -values[0])
    found = dx.spectral_ham(graph, 5)
    x = found.amplitude.numpy() * np.exp(1j * found.phase.numpy())
    gap = np.linalg.norm(h + shift * np.eye(30) - x @ x.conj().T)
    assert gap == pytest.approx(np.linalg.norm((values + shift)[:-5]), rel=1e-9)


def test_decoder_and_loss_are_the_literal_ones():
    a, th, pairs = normal(5, 3), normal(5, 3, seed=1), all_pairs(5)
    types = torch.arange(len(pairs)) % 4
    re, im, conn = dx.hermitian_decode(a, th, *pairs.t())
    for row, (u, v) in enumerate(pairs.tolist()):
        assert complex(re[row], im[row]) == pytest.approx(reference.decode(a, th, u, v))
        assert float(conn[row]) == pytest.approx(float(a[u] @ a[v]))
    ce, bce = dx.duplex_loss(a, th, pairs, types, lam=0.3, neg_ratio=2.0)
    literal = reference.loss(a, th, [tuple(p) for p in pairs.tolist()], types.tolist(), 2.0, 0.3)
    assert float(ce + bce) == pytest.approx(literal)


def test_targets_are_the_entries_of_h():
    logits = dx.type_logits(torch.tensor([0.0, 0.0, 1.0, 0.0]), torch.tensor([-1.0, 1.0, 0.0, 0.0]))
    assert logits.argmax(1).tolist() == [REVERSE, FORWARD, BOTH, NONE]
    torch.testing.assert_close(logits[3], torch.tensor([-1.0, -1.0, -1.0, -1e-6]), atol=1e-6, rtol=0)
    far = dx.type_logits(torch.tensor([3.0]), torch.tensor([4.0]))[0, NONE]
    assert float(far) == pytest.approx(-5)
    assert float(dx.type_logits(torch.tensor([3.0]), torch.tensor([4.0]), "l1")[0, NONE]) == pytest.approx(-7)


@pytest.mark.parametrize("m", [3, 7000])
def test_many_pairs_of_few_nodes_and_few_pairs_of_many(m):
    """Chunks, repeated nodes, and nodes that stand in no pair: values and gradients of the plain formula."""
    n, d = 40, 12  # 7281 pairs to a chunk of 12 numbers three times
    pairs = torch.from_numpy(np.random.default_rng(0).integers(0, n, (2 * m, 2)))
    u, v = pairs[pairs[:, 0] != pairs[:, 1]].t()
    a, th = normal(n, d).requires_grad_(), normal(n, d, seed=1).requires_grad_()
    turn, product = th[u] - th[v], a[u] * a[v]
    plain = (product * turn.cos()).sum(1), (product * turn.sin()).sum(1), product.sum(1)
    found = dx.hermitian_decode(a, th, u, v)
    factors = [normal(len(u), seed=k) for k in range(3)]
    results = []
    for parts in (plain, found):
        total = sum((part * factor).sum() for part, factor in zip(parts, factors, strict=True))
        results.append(torch.autograd.grad(total, (a, th)))
    for ours, theirs in zip((*found, *results[1]), (*plain, *results[0]), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_swapping_a_pair_swaps_forward_and_reverse():
    a, th, pairs = normal(6, 4), normal(6, 4, seed=1), all_pairs(6)
    there = dx.hermitian_decode(a, th, *pairs.t())
    back = dx.hermitian_decode(a, th, *pairs.flip(1).t())
    assert torch.equal(back[0], there[0])
    assert torch.equal(back[1], -there[1])
    found = dx.Embedding(a, th)
    ahead, turned = found.predict_edges(pairs), found.predict_edges(pairs.flip(1))
    np.testing.assert_allclose(turned[:, [FORWARD, REVERSE, BOTH, NONE]], ahead[:, [REVERSE, FORWARD, BOTH, NONE]])


def test_gauge_freedom_of_phases_and_signs():
    a, th, pairs = normal(6, 4), normal(6, 4, seed=1), all_pairs(6)
    wanted = dx.hermitian_decode(a, th, *pairs.t())
    for found in (
        dx.hermitian_decode(a, th + normal(4, seed=2), *pairs.t()),
        dx.hermitian_decode(a * torch.tensor([1, -1, -1, 1]), th, *pairs.t()),
    ):
        for ours, theirs in zip(found, wanted, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_source_and_target_vectors_have_the_products_of_the_decoder():
    found = dx.Embedding(normal(6, 4), normal(6, 4, seed=1))
    source, target = found.to_source_target()
    u, v = all_pairs(6).t()
    re, im, _ = dx.hermitian_decode(found.amplitude, found.phase, u, v)
    torch.testing.assert_close((source[u] * target[v]).sum(1), im)
    torch.testing.assert_close((target[u] * target[v]).sum(1), re)


def literal_layer(layer, x, edges, n):
    weights = reference.messages(edges, n)
    rows = []
    for channel, blocks in ((0, (0, 1)), (1, (2, 3))) if layer.fuse else ((0, (0,)), (1, (1,))):
        chosen = {edge: pair[channel] for edge, pair in weights.items()}
        total = 0
        for b in blocks:
            heads = [
                reference.attention(
                    x[layer.sources[b]], layer.weight[b, h], layer.att_src[b, h], layer.att_dst[b, h],
                    torch.zeros(layer.out_dim, **float64), chosen,
                )
                for h in range(layer.heads)
            ]  # fmt: skip
            joined = torch.cat(heads, 1) if layer.concat else torch.stack(heads).mean(0)
            total = total + joined + layer.bias[b]
        rows.append(total)
    return torch.stack(rows)


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("concat", [True, False])
def test_the_layer_is_the_literal_one(fuse, concat):
    edges = [(0, 1), (1, 2), (2, 1), (1, 3), (4, 0), (4, 1)]
    layer = DualGATLayer(3, 4, heads=2, concat=concat, fuse=fuse, generator=rng(0, "cpu"), **float64)
    with torch.no_grad():
        layer.bias.copy_(normal(*layer.bias.shape))
    x, messages = normal(2, 6, 3), message_graph(as_graph(torch.tensor(edges).t(), num_nodes=6))
    torch.testing.assert_close(layer(x, messages), literal_layer(layer, x, edges, 6))


def test_which_channel_feeds_which():
    """With the phase input at 0 the amplitudes of an unfused layer do not move; of a fused one they do."""
    messages = message_graph(as_graph(FOUR))
    x = normal(2, 4, 3)
    other = torch.stack((x[0], 2 * x[1]))
    for fuse in (False, True):
        layer = DualGATLayer(3, 4, fuse=fuse, generator=rng(0, "cpu"), **float64)
        assert torch.equal(layer(x, messages)[0], layer(other, messages)[0]) is not fuse


def test_unit_weights_give_the_attention_of_torch_geometric():
    from torch_geometric.nn import GATConv

    index, _, _ = message_edges(dx.datasets.directed_sbm(n=20, p=0.3))
    ours = dx.WeightedGATConv(5, 4, heads=3, generator=rng(0, "cpu"), **float64)
    theirs = GATConv(5, 4, heads=3, add_self_loops=False).double()
    with torch.no_grad():
        theirs.lin.weight.copy_(ours.weight.t())
        theirs.att_src.copy_(ours.att_src)
        theirs.att_dst.copy_(ours.att_dst)
    x = normal(20, 5)
    assert (ours(x, index) - theirs(x, index)).abs().max() < 1e-14


def test_the_message_passing_layer_and_the_fast_one_agree():
    graph = dx.datasets.directed_sbm(n=20, p=0.3)
    index, weight, _ = message_edges(graph)
    layer = DualGATLayer(5, 4, heads=3, generator=rng(1, "cpu"), **float64)
    x = normal(2, 20, 5)
    found = layer(x, message_graph(graph))
    for channel in (0, 1):
        conv = dx.WeightedGATConv(5, 4, heads=3, **float64)
        with torch.no_grad():
            conv.weight.copy_(layer.weight[channel].permute(1, 0, 2).reshape(5, 12))
            conv.att_src.copy_(layer.att_src[channel][None])
            conv.att_dst.copy_(layer.att_dst[channel][None])
        torch.testing.assert_close(conv(x[channel], index, weight[channel].double()), found[channel])


def test_reversing_every_edge_turns_the_phase_weights():
    edges = [(0, 1), (1, 2), (2, 1), (1, 3), (4, 0)]
    there, ahead, _ = message_edges(as_graph(edges))
    back, turned, _ = message_edges(as_graph([(v, u) for u, v in edges]))
    order = {tuple(e): i for i, e in enumerate(back.t().tolist())}
    for column, (u, v) in enumerate(there.t().tolist()):
        a, b = ahead[:, column], turned[:, order[u, v]]
        assert a[0] == b[0]
        assert b[1] == (a[1] if u == v else -a[1])
    pairs = all_pairs(5)
    types = dx.pair_types(as_graph(edges).edge_index, pairs, 5)
    mirror = dx.pair_types(as_graph([(v, u) for u, v in edges]).edge_index, pairs, 5)
    assert torch.equal(mirror, torch.tensor([1, 0, 2, 3])[types])


def test_only_self_loops_speak_of_phase_where_all_edges_go_both_ways():
    index, weight, _ = message_edges(as_graph([(0, 1), (1, 0), (1, 2), (2, 1)]))
    loops = index[0] == index[1]
    assert (weight[1][loops] == 1).all()
    assert (weight[1][~loops] == 0).all()


def encoder(**options):
    return DualGATEncoder(3, 4, hidden=6, heads=2, generator=rng(0, "cpu"), **float64, **options).eval()


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_relabelling_nodes_permutes_the_embedding(layers):
    model, order = encoder(layers=layers), torch.tensor([3, 0, 2, 1, 4])
    graph = as_graph(torch.tensor(FOUR).t(), num_nodes=5)
    x = normal(2, 5, 3)
    renamed = as_graph(order[graph.edge_index], num_nodes=5)
    moved = torch.empty_like(x)
    moved[:, order] = x
    found = model.run(moved, [message_graph(renamed)])
    torch.testing.assert_close(found[:, order], model.run(x, [message_graph(graph)]))


@pytest.mark.parametrize(
    ("layers", "fuse_at", "fused"), [(3, None, 1), (2, None, 0), (2, 1, 1), (1, None, 0), (4, None, 2)]
)
def test_where_the_channels_are_fused(layers, fuse_at, fused):
    model = encoder(layers=layers, fuse_at=fuse_at)
    assert [layer.fuse for layer in model.layers] == [at == fused for at in range(layers)]
    assert [layer.in_dim for layer in model.layers] == [3] + [6] * (layers - 1)
    assert [layer.width for layer in model.layers] == [6] * (layers - 1) + [4]


def test_inference_in_chunks_is_the_forward_pass():
    graph = dx.datasets.directed_sbm(n=23, p=0.3)
    model, x, messages = encoder(), normal(2, 23, 3), message_graph(graph)
    whole = model.run(x, [messages])
    for chunk in (1, 7, 23, 100):
        torch.testing.assert_close(model.infer(x, messages, chunk), whole)


def test_gradient_of_decoder_and_loss_also_where_the_distance_is_zero():
    pairs, types = all_pairs(4), torch.arange(12) % 4
    start = normal(4, 2).requires_grad_(), normal(4, 2, seed=1).requires_grad_()
    total = lambda a, th: sum(dx.duplex_loss(a, th, pairs, types))  # noqa: E731
    assert torch.autograd.gradcheck(total, start)
    zero = torch.zeros(4, 2, **float64, requires_grad=True)
    total(zero, zero.detach().clone().requires_grad_()).backward()
    assert torch.isfinite(zero.grad).all()
    re = torch.zeros(1, **float64, requires_grad=True)
    dx.type_logits(re, re)[0, NONE].backward()
    assert re.grad == 0


def test_gradient_of_the_attention():
    graph = dx.datasets.directed_sbm(n=8, p=0.4)
    m = message_graph(graph).to("cpu", torch.float64)
    values = normal(4, 8), normal(4, 8, seed=1), normal(4, 8, 3, seed=2)
    inputs = tuple(x.requires_grad_() for x in values)
    assert torch.autograd.gradcheck(lambda *x: attention(*x, m), inputs)


def test_attention_of_a_receiver_without_messages_is_zero():
    m = index_messages(torch.tensor([[0, 1], [1, 1]]), torch.ones(2, 2, **float64), 3)
    inputs = tuple(x.requires_grad_() for x in (normal(2, 3), normal(2, 3, seed=1), normal(2, 3, 2, seed=2)))
    assert torch.autograd.gradcheck(lambda *x: attention(*x, m), inputs)
    assert (attention(*inputs, m)[:, [0, 2]] == 0).all()
    none = index_messages(torch.empty(2, 0, dtype=torch.int64), torch.ones(2, 0, **float64), 3)
    assert (attention(*inputs, none) == 0).all()


def test_attention_survives_large_scores():
    m = message_graph(as_graph(FOUR)).to("cpu", torch.float64)
    out = attention(1e4 * normal(2, 4), normal(2, 4), normal(2, 4, 3), m)
    assert torch.isfinite(out).all()


def test_weights_are_drawn_xavier_normal_with_gain_root_two():
    layer = DualGATLayer(200, 100, heads=2, generator=rng(0, "cpu"))
    assert float(layer.weight.detach().std()) == pytest.approx(math.sqrt(2) * math.sqrt(2 / (200 + 200)), rel=0.02)
    assert float(layer.att_src.detach().std()) == pytest.approx(math.sqrt(2) * math.sqrt(2 / (200 + 100)), rel=0.1)
    assert (layer.bias == 0).all()


def test_half_of_the_one_way_pairs_are_turned_around():
    pairs = torch.stack((torch.arange(1000), torch.arange(1000) + 1), 1)
    types = torch.where(torch.arange(1000) < 900, FORWARD, BOTH)
    found, kinds = oriented(pairs, types, rng(0))
    turned = kinds == REVERSE
    assert 400 < int(turned.sum()) < 500
    assert torch.equal(found[turned], pairs[turned].flip(1))
    assert torch.equal(found[~turned], pairs[~turned])
    assert (kinds[900:] == BOTH).all()


def test_sixteen_bit_embeddings_are_decoded_in_32():
    a = normal(4, 3).bfloat16()
    assert all(x.dtype == torch.float32 for x in dx.hermitian_decode(a, a, *all_pairs(4).t()))
