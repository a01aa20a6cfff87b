"""Neighbour sampling: complete without a limit, within it otherwise, the same as a plain loop."""

import duplex_embed as dx
import numpy as np
import pytest
import torch
from duplex_embed.messages import IN, OUT, RECIPROCAL, message_edges, message_graph
from duplex_embed.sampling import _choose
from offprints.seeding import rng

GRAPH = dx.datasets.directed_sbm(n=60, p=0.3, q=0.15, seed=0)
BACK = dx.as_graph(torch.cat((GRAPH.edge_index, GRAPH.edge_index[:, :60].flip(0)), 1), num_nodes=60)


@pytest.fixture
def model():
    return dx.DualGATEncoder(3, 4, layers=3, generator=rng(0, "cpu"), dtype=torch.float64).eval()


@pytest.mark.parametrize("fanout", [None, (60, 60), [(60, 60)] * 3])
def test_full_fan_out_is_the_full_graph(model, fanout):
    x = torch.randn(2, 60, 3, generator=rng(1, "cpu"), dtype=torch.float64)
    whole = model.run(x, [message_graph(BACK)])
    seeds = torch.tensor([5, 17, 2])
    near = dx.NeighborSampler(BACK, 3, fanout).sample(seeds, rng(0))
    assert near.nodes[: near.seeds].tolist() == seeds.tolist()
    messages = [m.to("cpu", torch.float64) for m in near.messages]
    torch.testing.assert_close(model.run(x[:, near.nodes], messages), whole[:, seeds])


def test_draws_are_real_messages_within_the_limits():
    index, weight, kind = message_edges(BACK)
    known = {
        (u, v): (int(k), tuple(w)) for (u, v), k, w in zip(index.t().tolist(), kind, weight.t().tolist(), strict=True)
    }
    near = dx.NeighborSampler(BACK, 1, (2, 4)).sample(torch.arange(60), rng(0))
    (m,) = near.messages
    pairs = list(zip(near.nodes[m.src].tolist(), near.nodes[m.dst].tolist(), strict=True))
    assert len(set(pairs)) == len(pairs)
    for pair, w in zip(pairs, m.weight.t().tolist(), strict=True):
        assert known[pair][1] == tuple(w)
    for v in range(60):
        mine = [known[pair][0] for pair in pairs if pair[1] == v]
        every = [k for (_, receiver), (k, _) in known.items() if receiver == v]
        assert (v, v) in pairs
        for one, most in ((IN, 2), (OUT, 4)):
            assert mine.count(one) <= most
            assert mine.count(one) + mine.count(RECIPROCAL) >= min(most, every.count(one) + every.count(RECIPROCAL))


def test_every_neighbour_is_drawn_equally_often():
    star = dx.as_graph(torch.stack((torch.arange(1, 11), torch.zeros(10, dtype=torch.int64))), num_nodes=11)
    sampler, generator, counts = dx.NeighborSampler(star, 1, (3, 3)), rng(0), np.zeros(11)
    for _ in range(2000):
        near = sampler.sample(torch.tensor([0]), generator)
        counts[near.nodes[near.messages[0].src].numpy()] += 1
    assert counts[0] == 2000
    assert counts[1:].sum() == 6000
    np.testing.assert_allclose(counts[1:], 600, atol=90)


def test_floyd_draws_without_replacement_from_the_range():
    start, count = np.array([0, 100, 200]), np.array([2, 5, 50])
    for seed in range(50):
        found = _choose(start, count, 5, rng(seed), np.zeros_like(start))
        assert len(np.unique(found)) == len(found) == 12
        assert set(found[found < 100]) == {0, 1}
        assert set(found[(found >= 100) & (found < 200)]) == {100, 101, 102, 103, 104}
        last = found[found >= 200]
        assert ((last >= 200) & (last < 250)).all()
        assert len(last) == 5


def test_equal_generators_draw_equally():
    sampler = dx.NeighborSampler(BACK, 2, (2, 2))
    first, second, other = (sampler.sample(torch.tensor([1, 2]), rng(s)).nodes for s in (0, 0, 1))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_a_neighbourhood_for_torch_geometric():
    near = dx.NeighborSampler(BACK, 2, (2, 2)).sample(torch.tensor([4, 9]), rng(0))
    data = near.to_pyg()
    assert data.batch_size == 2
    assert data.n_id[:2].tolist() == [4, 9]
    assert data.edge_index.shape[1] == len(data.edge_attr)
    assert int(data.edge_index.max()) < data.num_nodes


def test_wrong_fan_outs():
    for fanout, text in (((0, 3), "fanout must be"), ([(1, 2)], "one for each of 2 layers")):
        with pytest.raises(ValueError, match=text):
            dx.NeighborSampler(BACK, 2, fanout)
    with pytest.raises(ValueError, match="layers"):
        dx.NeighborSampler(BACK, 0)
    with pytest.raises(ValueError, match="generator"):
        dx.NeighborSampler(BACK, 1, (2, 2)).sample(torch.tensor([0]))
