import sys

import duplex_embed as dx
import torch
from duplex_embed import _reference as reference
from duplex_embed.graph import as_graph
from duplex_embed.messages import index_messages, message_edges, message_graph
from offprints.seeding import rng
from offprints.testing import Conformance, assert_all_covered

RING = as_graph(torch.tensor([[0, 1, 2, 3, 4, 1, 0], [1, 2, 3, 4, 0, 3, 2]]))
EDGES, WEIGHT, _ = message_edges(RING)
SIGNS = WEIGHT.long()  # -1, 0 and 1: data of the graph, to which no gradient flows


def features(gen, factory, rows=5, columns=3):
    return torch.randn(rows, columns, generator=gen, **factory)


class TestDualGATEncoder(Conformance):
    kind = "module"
    batched = False  # rows are nodes of one graph
    covers = ("DualGATLayer",)

    def make(self, **factory):
        return dx.DualGATEncoder(3, 4, hidden=6, heads=2, **factory)

    def inputs(self, gen, **factory):
        return features(gen, factory), features(gen, factory), EDGES, SIGNS

    def call(self, thing, x_am, x_ph, edges, signs):
        return thing(x_am, x_ph, edges, *signs.to(x_am.dtype))


class TestDualGATLayer(Conformance):
    kind = "module"
    batched = False

    def make(self, **factory):
        return dx.DualGATLayer(3, 4, fuse=True, **factory)

    def inputs(self, gen, **factory):
        return torch.randn(2, 5, 3, generator=gen, **factory), EDGES, SIGNS

    def call(self, thing, x, edges, signs):
        return thing(x, index_messages(edges, signs.to(x.dtype), 5))

    def reference(self, layer, x, edges, signs):
        known = reference.messages([tuple(edge) for edge in RING.edge_index.t().tolist()], 5)
        rows = []
        for channel in (0, 1):
            chosen = {edge: pair[channel] for edge, pair in known.items()}
            blocks = range(2 * channel, 2 * channel + 2)
            parts = (layer.weight[:, 0], layer.att_src[:, 0], layer.att_dst[:, 0], layer.bias)
            rows.append(
                sum(reference.attention(x[layer.sources[b]], *(part[b] for part in parts), chosen) for b in blocks)
            )
        return torch.stack(rows)


class TestWeightedGATConv(Conformance):
    kind = "module"
    batched = False

    def make(self, **factory):
        return dx.WeightedGATConv(3, 4, heads=2, **factory)

    def inputs(self, gen, **factory):
        return features(gen, factory), EDGES, SIGNS[1]

    def call(self, thing, x, edges, signs):
        return thing(x, edges, signs.to(x.dtype))


class TestEncoderOnGraphs(Conformance):
    kind = "graph"

    def make(self):
        return dx.DualGATEncoder(2, 3, layers=2, generator=rng(0, "cpu"), dtype=torch.float64).eval()

    def call(self, thing, edges, nodes):
        graph = as_graph(edges, num_nodes=nodes)
        x = torch.stack(graph.degrees(), 1).double().expand(2, -1, -1)
        return thing.infer(x, message_graph(graph).to("cpu", torch.float64)).transpose(0, 1)


class TestSpectralGraphs(Conformance):
    """Products of the exact embedding do not depend on the gauge; their sums over a row stand for each node."""

    kind = "graph"

    def make(self):
        return dx.spectral_ham

    def call(self, thing, edges, nodes):
        found = thing(as_graph(edges, num_nodes=nodes))
        x = torch.polar(found.amplitude, found.phase)
        h = x @ x.conj().t()
        h = h - torch.diag(torch.diag(h))
        return torch.view_as_real(h.sum(1))


class TestHermitianDecode(Conformance):
    kind = "function"
    batched = False
    skip = {"bfloat16": "decoded in float32, as sums of products in 16 bits would lose the sign of im"}
    refusals = {"bfloat16": lambda: dx.hermitian_decode(torch.zeros(2, 2).bfloat16(), torch.zeros(2), *EDGES[:, :1])}

    def make(self):
        return dx.hermitian_decode

    def inputs(self, gen, **factory):
        return features(gen, factory), features(gen, factory), EDGES[0][:9], EDGES[1][:9]


class TestTypeLogits(Conformance):
    kind = "function"

    def make(self):
        return dx.type_logits

    def inputs(self, gen, **factory):
        return torch.randn(6, generator=gen, **factory), torch.randn(6, generator=gen, **factory)


class TestDuplexLoss(Conformance):
    kind = "function"
    batched = False
    skip = {"bfloat16": "computed in float32, see hermitian_decode"}
    refusals = {"bfloat16": lambda: dx.duplex_loss(torch.zeros(2, 2).bfloat16(), torch.zeros(2), EDGES, EDGES)}

    def make(self):
        return dx.duplex_loss

    def inputs(self, gen, **factory):
        pairs = torch.tensor([(u, v) for u in range(5) for v in range(5) if u != v])
        return features(gen, factory), features(gen, factory), pairs, torch.arange(20) % 4


def test_every_public_class_is_covered():
    data = "plain data, no call to conform"
    drawn = "trains on pairs that are drawn by node number; its graphs, clones and pickles are in test_"
    exempt = {
        "DUPLEX": f"{drawn}model",
        "DUPLEXClassifier": f"{drawn}classifier",
        "EmbeddingClassifier": f"{drawn}classifier",
        "Embedding": "holds two tensors; see test_equations and test_model",
        "Graph": data,
        "History": data,
        "LinkReport": data,
        "LinkSplit": data,
        "NeighborSampler": "draws index sets; see test_sampling",
        "Neighborhood": data,
        "NodeSplit": data,
        "PairSet": data,
    }
    assert_all_covered(dx, sys.modules[__name__], exempt)
