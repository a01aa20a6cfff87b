"""Random heads, layers and tokens that several test files share."""

import numpy as np
import torch
from attention_lipschitz import AttentionHead, AttentionLayer
from offprints.seeding import rng


def draw(seed, *shape):
    return torch.from_numpy(rng(seed).standard_normal(shape))


def head(seed, d=4, d_v=3, size=0.6, bias=False, out=None):
    """One head with a query bias or an output projection where asked for."""
    return AttentionHead(
        A=size * draw(10 * seed, d, d),
        V=draw(10 * seed + 1, d_v, d),
        c=draw(10 * seed + 2, d) if bias else None,
        O=None if out is None else draw(10 * seed + 3, out, d_v),
    )


def model_layer(seed, heads=3, d=6, k=2, causal=False, **options):
    """A layer as models keep it: thin queries and keys, all biases, an output projection."""
    shapes = {"query": (heads, k, d), "key": (heads, k, d), "value": (heads, k, d), "out": (heads, d, k)}
    given = {name: draw(100 * seed + i, *shape) for i, (name, shape) in enumerate(shapes.items())}
    biases = {"query_bias": (heads, k), "key_bias": (heads, k), "value_bias": (heads, k), "out_bias": (d,)}
    given |= {name: draw(100 * seed + 50 + i, *shape) for i, (name, shape) in enumerate(biases.items())}
    return AttentionLayer.from_projections(**(given | {"causal": causal} | options))


def parts(one):
    """(A, c, V) of a head in numpy, as the reference takes them."""
    c = np.zeros(len(one.A)) if one.c is None else one.c.numpy()
    return one.A.numpy(), c, one.map.numpy()


HAND = AttentionHead(
    A=torch.tensor([[0.5, -0.2], [0.1, -0.3]], dtype=torch.float64),
    V=torch.tensor([[1.0, 0.0], [0.5, 2.0]], dtype=torch.float64),
)
HAND_TOKENS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.5]], dtype=torch.float64)
