"""Duels: one dual layer, the whole encoder, neighbourhoods."""

import warnings

import duplex_embed as dx
import numpy as np
import torch
from duplex_embed.encoder import DualGATLayer
from duplex_embed.messages import index_messages, message_edges, message_graph
from offprints.seeding import isolated, rng

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch_geometric.nn import GATConv
    from torch_geometric.utils import k_hop_subgraph

WIDTH = 64


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


def graph(edges):
    """About nine edges a node, as in sympy's imports."""
    return dx.datasets.random_dag(edges // 9, 9.0, seed=0)


# ---- one layer of both channels, forward and backward; with weights of 1, which is all that GATConv knows

LAYER = DualGATLayer(WIDTH, WIDTH, generator=rng(0, "cpu"))
with isolated(0):
    CONVS = [GATConv(WIDTH, WIDTH, add_self_loops=False) for _ in range(2)]
    OURS = [dx.WeightedGATConv(WIDTH, WIDTH) for _ in range(2)]
with torch.no_grad():
    for channel in (0, 1):
        CONVS[channel].lin.weight.copy_(LAYER.weight[channel, 0].t())
        OURS[channel].weight.copy_(LAYER.weight[channel, 0])
        for module in (CONVS[channel], OURS[channel]):
            module.att_src.copy_(LAYER.att_src[channel][None])
            module.att_dst.copy_(LAYER.att_dst[channel][None])


def layer_data(edges):
    found = graph(edges)
    index, weight, _ = message_edges(found)
    plain = index_messages(index, torch.ones_like(weight), found.num_nodes)
    x = torch.randn(2, found.num_nodes, WIDTH, generator=rng(1, "cpu"))
    return x, index, plain


def both_ways(run, x):
    x = x.detach().clone().requires_grad_()
    out = run(x)
    (gradient,) = torch.autograd.grad(out.square().sum(), x)
    return out.detach(), gradient


def same_ways(ours, theirs):
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * float(b.abs().max()))


def pair_of(modules):
    return lambda data: both_ways(lambda x: torch.stack([m(x[c], data[1]) for c, m in enumerate(modules)]), data[0])


def test_dual_layer(duel):
    duel(
        sizes=[3_400, 13_600, 54_400],
        make=layer_data,
        ours=lambda data: both_ways(lambda x: LAYER(x, data[2]), data[0]),
        peers={"two torch_geometric GATConv": pair_of(CONVS), "two MessagePassing layers": pair_of(OURS)},
        same=same_ways,
        target={"two torch_geometric GATConv": {13_600: 1.5, 54_400: 1.5}, "two MessagePassing layers": 1.5},
        growth="n",
    )


# ---- three layers with fusion on a whole graph, without gradients: four times the edges, four times the time

ENCODER = dx.DualGATEncoder(16, 16, generator=rng(0, "cpu")).eval()
PARTS = [[dx.WeightedGATConv(16, 16) for _ in layer.sources] for layer in ENCODER.layers]
with torch.no_grad():
    for layer, convs in zip(ENCODER.layers, PARTS, strict=True):
        for block, conv in enumerate(convs):
            conv.weight.copy_(layer.weight[block, 0])
            conv.att_src.copy_(layer.att_src[block][None])
            conv.att_dst.copy_(layer.att_dst[block][None])


def encoder_data(edges):
    found = graph(edges)
    index, weight, _ = message_edges(found)
    x = torch.randn(2, found.num_nodes, 16, generator=rng(1, "cpu"))
    return x, index, weight, message_graph(found)


@torch.no_grad()
def by_message_passing(data):
    x, index, weight, _ = data
    for at, convs in enumerate(PARTS):
        if len(convs) == 2:
            x = torch.stack([convs[c](x[c], index, weight[c]) for c in (0, 1)])
        else:
            a = convs[0](x[0], index, weight[0]) + convs[1](x[1], index, weight[0])
            x = torch.stack((a, convs[2](x[1], index, weight[1]) + convs[3](x[0], index, weight[1])))
        x = torch.relu(x) if at < len(PARTS) - 1 else x
    return x


def test_encoder(duel):
    duel(
        sizes=[13_600, 54_400, 217_600],
        make=encoder_data,
        ours=lambda data: ENCODER.infer(data[0], data[3]),
        peers={"torch_geometric MessagePassing": by_message_passing},
        same=close,
        target={"torch_geometric MessagePassing": 1.5},
        growth="n",
    )


# ---- what three layers need of a few nodes


def sampling_data(edges):
    found = graph(edges)
    index, _, kind = message_edges(found)
    heard = [[[] for _ in range(found.num_nodes)] for _ in range(2)]
    for (u, v), k in zip(index.t().tolist(), kind.tolist(), strict=True):
        if k < 3:
            heard[int(k == 2)][v].append(u)
    seeds = torch.from_numpy(rng(2).permutation(found.num_nodes)[:4096].copy())
    return seeds, dx.NeighborSampler(found, 1, (5, 5)), heard, index, dx.NeighborSampler(found, 2)


def node_by_node(data):
    """The sampler as one would write it: one node, one direction at a time."""
    generator, picked = rng(3), []
    for v in data[0].tolist():
        picked.append((v, v))
        for side in data[2]:
            near = side[v]
            chosen = near if len(near) <= 5 else generator.choice(near, 5, replace=False).tolist()
            picked += [(u, v) for u in chosen]
    place = {v: at for at, v in enumerate(data[0].tolist())}  # the numbers that a layer works with
    local = [(place.setdefault(u, len(place)), place[v]) for u, v in picked]
    nodes = torch.tensor(list(place))
    return nodes[torch.tensor(local).t()]


def sampled(data):
    near = data[1].sample(data[0], rng(3))
    return torch.stack((near.nodes[near.messages[0].src], near.nodes[near.messages[0].dst]))


def test_sampling(duel):
    """Draws differ by nature; how many messages are drawn does not."""
    duel(
        sizes=[54_400, 217_600, 870_400],
        make=sampling_data,
        ours=sampled,
        peers={"loop over nodes": node_by_node},
        quality=(lambda data, found: float(found.shape[1]), lambda ours, theirs: ours == theirs),
        target={"loop over nodes": 20.0},
        growth="1",
    )


def whole_neighbourhood(data):
    return data[4].sample(data[0][:32]).nodes.sort().values


def by_k_hops(data):
    return k_hop_subgraph(data[0][:32], 2, data[3], num_nodes=data[4].num_nodes)[0].sort().values


def test_full_neighbourhood(duel):
    duel(
        sizes=[54_400, 217_600, 870_400],
        make=sampling_data,
        ours=whole_neighbourhood,
        peers={"torch_geometric k_hop_subgraph": by_k_hops},
        same=lambda ours, theirs: np.testing.assert_array_equal(ours, theirs),
        target={"torch_geometric k_hop_subgraph": 1.0},
    )
