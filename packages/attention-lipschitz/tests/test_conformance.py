"""The shared contract of the modules; every public class is covered or named with a reason."""

import math
import sys

import attention_lipschitz as al
import torch
from offprints.testing import Conformance, assert_all_covered


def drawn(seed, *shape, dtype, device=None):
    """Numbers without a pattern, on any device."""
    steps = torch.arange(math.prod(shape), device=device, dtype=torch.float64).reshape(shape)
    return torch.sin(37.0 * steps + 11.0 * seed + 1).to(dtype)


def layer(dtype=torch.float64, device=None, causal=True):
    heads = [
        al.AttentionHead(
            A=0.3 * drawn(i, 4, 4, dtype=dtype, device=device),
            V=drawn(10 + i, 3, 4, dtype=dtype, device=device),
            c=drawn(20 + i, 4, dtype=dtype, device=device),
            O=drawn(30 + i, 4, 3, dtype=dtype, device=device),
        )
        for i in range(2)
    ]
    return al.AttentionLayer(heads, causal=causal)


class TestAttentionLayer(Conformance):
    kind = "module"
    covers = ("AttentionHead",)

    def make(self, **factory):
        return layer(**factory)

    def inputs(self, gen, **factory):
        return (torch.randn(2, 5, 4, generator=gen, **factory),)

    def reference(self, module, X):
        rows = []
        for x in X:
            total = 0
            for h in range(2):
                A = module.scale * module.key[h].mT @ module.query[h]
                c = module.scale * module.query_bias[h] @ module.key[h]
                means = []
                for i in range(len(x)):
                    weights = torch.softmax(torch.stack([x[j] @ (A @ x[i] + c) for j in range(i + 1)]), 0)
                    means.append(module.out[h] @ (module.value[h] @ (weights @ x[: i + 1])))
                total = total + torch.stack(means)
            rows.append(total)
        return torch.stack(rows)


class TestTokenNorm(Conformance):
    kind = "module"

    def make(self, dtype=torch.float64, device=None):
        return al.TokenNorm(drawn(1, 4, dtype=dtype, device=device), drawn(2, 4, dtype=dtype, device=device))

    def inputs(self, gen, **factory):
        return (torch.randn(2, 5, 4, generator=gen, **factory),)

    def reference(self, module, x):
        centred = x - x.mean(-1, keepdim=True)
        z = centred / (centred.square().mean(-1, keepdim=True) + module.eps).sqrt()
        return module.weight * z + module.bias


class TestAttentionBlock(Conformance):
    kind = "module"

    def make(self, dtype=torch.float64, device=None):
        return al.AttentionBlock(layer(dtype, device), TestTokenNorm().make(dtype, device))

    def inputs(self, gen, **factory):
        return (torch.randn(2, 5, 4, generator=gen, **factory),)

    def reference(self, module, x):
        inner = TestTokenNorm().reference(module.norm, x)
        return x + TestAttentionLayer().reference(module.layer, inner)


def test_every_public_class_is_covered():
    record = "a record without behaviour"
    names = ("BoundTable", "Growth", "LipschitzResult", "Row", "Sinks", "Site", "Spectrum", "Temperature", "WorstCase")
    exempt = {
        **dict.fromkeys(names, record),
        "LipschitzReport": "rows of a scan; what it computes is in test_real_input",
        "Linearization": "the derivative of a layer at one point; test_equations",
        "WordHashTokenizer": "text to ids; test_real_input",
    }
    assert_all_covered(al, sys.modules[__name__], exempt)
