"""Duels: the closed-form NTK, the forward pass by gathers, and the empirical NTK in blocks."""

import grokking_theory as gt
import torch
from offprints.seeding import rng
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn import functional as F


def close(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-10)


# ---- the closed form, at the size of the paper's figure for p = 23

NETWORK = gt.QuadraticNetwork(23, 184)
PARAMS = {name: value.detach() for name, value in NETWORK.named_parameters()}


class Head(torch.nn.Module):
    """The regression head as one would write it: what generic tools differentiate."""

    def __init__(self):
        super().__init__()
        self.W, self.V = NETWORK.W, NETWORK.V

    def forward(self, triples):
        a, b, c = triples.unbind(1)
        return ((self.W.t()[a] + self.W.t()[23 + b]).square() * self.V[c]).sum(1)


HEAD = Head()


def one_output(params, triple):
    return functional_call(HEAD, params, (triple[None],))[0]


def gram(gradients):
    rows = torch.cat([value.flatten(1) for value in gradients.values()], 1)
    return rows @ rows.t()


def loop(triples):
    rows = []
    for triple in triples:
        found = torch.autograd.grad(HEAD(triple[None])[0], [HEAD.W, HEAD.V])
        rows.append(torch.cat([value.flatten() for value in found]))
    rows = torch.stack(rows)
    return rows @ rows.t()


def test_closed_form_ntk(duel):
    duel(
        sizes=[250, 500, 1000],
        make=lambda n: torch.randint(0, 23, (n, 3), generator=rng(n, "cpu")),
        ours=lambda x: gt.quadratic_ntk(NETWORK.W, NETWORK.V, x),
        peers={
            "torch.func vmap(jacrev)": lambda x: gram(vmap(jacrev(one_output), (None, 0))(PARAMS, x)),
            "torch.func vmap(grad)": lambda x: gram(vmap(grad(one_output), (None, 0))(PARAMS, x)),
            "loop of autograd.grad": loop,
        },
        same=close,
        target={
            "torch.func vmap(jacrev)": {500: 20.0},
            "torch.func vmap(grad)": {500: 20.0},
            "loop of autograd.grad": {500: 10.0},
        },
        growth="n^2",
    )


# ---- the forward pass at p = 97, width 8p

WIDE = gt.QuadraticNetwork(97, 776)
W_ROWS = WIDE.W.detach().t().contiguous()  # prepared for the peers, outside the clock
V_ROWS = WIDE.V.detach()


def triples_and_one_hots(n):
    triples = torch.randint(0, 97, (n, 3), generator=rng(n, "cpu"))
    inputs = F.one_hot(triples[:, :2], 97).flatten(1).double()
    return triples, inputs, F.one_hot(triples[:, 2], 97).double(), triples[:, :2] + torch.tensor([0, 97])


@torch.no_grad()
def gathered(data):
    return WIDE.forward_triples(data[0])


def one_hot_products(data):
    return ((data[1] @ W_ROWS).square() * (data[2] @ V_ROWS)).sum(1)


def embedding_bag(data):
    return (F.embedding_bag(data[3], W_ROWS, mode="sum").square() * F.embedding(data[0][:, 2], V_ROWS)).sum(1)


def test_regression_forward(duel):
    duel(
        sizes=[1000, 4000, 16000],
        make=triples_and_one_hots,
        ours=gathered,
        peers={"one-hot products": one_hot_products, "torch embedding_bag": embedding_bag},
        same=close,
        target={"one-hot products": 5.0, "torch embedding_bag": 1.0},
        growth="n",
    )


@torch.no_grad()
def classified(data):
    return WIDE(data[0][:, :2])


def test_classification_forward(duel):
    """The product with V is common to all sides and bounds the ratio."""
    duel(
        sizes=[1000, 4000, 9409],
        make=triples_and_one_hots,
        ours=classified,
        peers={
            "one-hot products": lambda data: (data[1] @ W_ROWS).square() @ V_ROWS.t(),
            "torch embedding_bag": lambda data: F.embedding_bag(data[3], W_ROWS, mode="sum").square() @ V_ROWS.t(),
        },
        same=close,
        target={"one-hot products": 1.5, "torch embedding_bag": 1.0},
        growth="n",
    )


# ---- any model: the kernel in blocks

TRANSFORMER = gt.TinyTransformer(17, dim=64)
WEIGHTS = {name: value.detach() for name, value in TRANSFORMER.named_parameters()}


def first_logit(params, pair):
    return functional_call(TRANSFORMER, params, (pair[None],))[0, 0]


def transformer_loop(pairs):
    rows = []
    for pair in pairs:
        found = torch.autograd.grad(TRANSFORMER(pair[None])[0, 0], list(TRANSFORMER.parameters()))
        rows.append(torch.cat([value.flatten() for value in found]))
    rows = torch.stack(rows)
    return rows @ rows.t()


def test_empirical_ntk(duel):
    duel(
        sizes=[32, 64, 128],
        make=lambda n: torch.randint(0, 17, (n, 2), generator=rng(n, "cpu")),
        ours=lambda x: gt.empirical_ntk(TRANSFORMER, x, chunk=128),
        peers={
            "torch.func vmap(jacrev)": lambda x: gram(vmap(jacrev(first_logit), (None, 0))(WEIGHTS, x)),
            "loop of autograd.grad": transformer_loop,
        },
        same=close,
        target={"torch.func vmap(jacrev)": 0.9, "loop of autograd.grad": 1.5},
        growth="n^2",
    )
