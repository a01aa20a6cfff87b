"""Duels: closed-form derivatives and Lanczos against automatic and dense ones and the released power iteration."""

import warnings

import torch
from attention_lipschitz import AttentionLayer, local_lipschitz
from attention_lipschitz.baselines import dense_constant, published_power_iteration
from attention_lipschitz.operators import differentiable_attention
from offprints.seeding import rng

with warnings.catch_warnings():  # torch warns of its own scripting when a forward-mode rule is first used
    warnings.simplefilter("ignore", DeprecationWarning)
    torch.func.jvp(torch.square, (torch.ones(1),), (torch.ones(1),))


class Case:
    """A layer of four heads, width 64, and n tokens; what both sides have at hand beforehand."""

    def __init__(self, n, d=64, heads=4):
        gen = rng(0)
        k = d // heads
        draw = lambda *shape: torch.from_numpy(gen.standard_normal(shape)) / d**0.5  # noqa: E731
        self.layer = AttentionLayer.from_projections(
            draw(heads, k, d), draw(heads, k, d), draw(heads, k, d), draw(heads, d, k), causal=True
        )
        self.X = torch.from_numpy(gen.standard_normal((n, d)))
        self.E = torch.from_numpy(gen.standard_normal((n, d)))
        self.here, self.traced = self.layer.linearize(self.X), None

    def attention(self, X):
        """The same layer as a model has it: fused attention, for peers that differentiate it."""
        one = self.layer
        q, k, v = (X.unsqueeze(0) @ w.mT for w in (one.query, one.key, one.value))
        logits = one.scale * (q @ k.mT)
        logits = logits.masked_fill(~one.mask(len(X)), -torch.inf)
        return ((logits.softmax(-1) @ v) @ one.out.mT).sum(0)


def near(rtol):
    return lambda a, b: abs(a - b) <= rtol * abs(b)


def ours(case, rtol=1e-6):
    return local_lipschitz(case.layer, case.X, rtol=rtol).value


def test_constant(duel):
    """Against the whole Jacobian by reverse mode, and its decomposition."""
    duel(
        sizes=[8, 16, 32],
        make=Case,
        ours=ours,
        peers={"jacrev and SVD": lambda case: dense_constant(case.attention, case.X)},
        same=near(1e-6),
        target={"jacrev and SVD": 50.0},
    )


def test_memory(duel):
    """The same at n d = 3072, for the peak of memory."""
    duel(
        sizes=[48],
        make=Case,
        ours=ours,
        peers={"jacrev and SVD": lambda case: dense_constant(case.attention, case.X)},
        same=near(1e-6),
        target={"jacrev and SVD": 50.0},
    )


def test_power_iteration(duel):
    """Against the released loop with the right tangent, run until it is as accurate: to 1e-4."""
    duel(
        sizes=[16, 32, 64],
        make=Case,
        ours=lambda case: ours(case, 1e-4),
        peers={
            "released power iteration": {
                str(tol): lambda case, tol=tol: published_power_iteration(case.attention, case.X, tol=tol).value
                for tol in (1e-6, 1e-7)
            },
            "power, closed form": lambda case: local_lipschitz(case.layer, case.X, method="power", rtol=1e-7).value,
        },
        same=near(1e-3),
        target={"released power iteration": 2.0, "power, closed form": 1.0},
    )


def test_product(duel):
    """One product with the derivative, cached, against forward mode anew and against its traced linearisation."""

    def linearised(case):
        if case.traced is None:
            with differentiable_attention():  # nor of its traces
                case.traced = torch.func.linearize(case.attention, case.X)[1]
        return case.traced(case.E)

    duel(
        sizes=[64, 256, 1024],
        make=Case,
        ours=lambda case: case.here.jvp(case.E),
        peers={
            "torch.func.jvp": lambda case: torch.func.jvp(case.attention, (case.X,), (case.E,))[1],
            "torch.func.linearize": linearised,
        },
        same=lambda a, b: torch.allclose(a, b, rtol=0, atol=1e-9),
        target={"torch.func.jvp": 3.0, "torch.func.linearize": 1.0},
        growth="n^2",
    )
