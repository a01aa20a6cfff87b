"""The shared contract for every public module and function."""

import sys

import slab_transformer as st
import torch
from offprints.testing import Conformance, assert_all_covered
from slab_transformer import _reference as reference
from torch import nn


class TestRepBN(Conformance):
    kind = "module"

    def make(self, **factory):
        norm = st.RepBN(4, **factory)
        if norm.alpha.device.type != "meta":
            with torch.no_grad():
                norm.bn.running_mean.copy_(torch.tensor([0.5, -1.0, 0.0, 2.0]))
                norm.bn.running_var.copy_(torch.tensor([0.5, 1.0, 2.0, 4.0]))
                norm.alpha.fill_(0.75)
        return norm.eval()

    def inputs(self, gen, dtype):
        return (torch.randn(3, 5, 4, generator=gen, dtype=torch.float64).to(dtype),)

    def reference(self, module, x):
        bn = module.bn
        held = [t.detach().double().numpy() for t in (bn.running_mean, bn.running_var, bn.weight, bn.bias)]
        out = reference.rep_bn(x.detach().double().reshape(-1, 4).numpy(), *held, float(module.alpha.detach()), bn.eps)
        return torch.from_numpy(out).reshape(x.shape).to(x.dtype)


class TestPRepBN(Conformance):
    kind = "module"

    def make(self, **factory):
        made = st.PRepBN(nn.LayerNorm(4, **factory), st.RepBN(4, **factory)).eval()
        made.set_lam(0.0)
        return made

    def inputs(self, gen, dtype):
        return (torch.randn(3, 5, 4, generator=gen, dtype=torch.float64).to(dtype),)


class TestChannelAffine(Conformance):
    kind = "module"

    def make(self, **factory):
        return st.ChannelAffine(torch.tensor([1.0, -2.0, 0.5], **factory), torch.tensor([0.0, 1.0, -1.0], **factory))

    def inputs(self, gen, dtype):
        return (torch.randn(3, 5, 3, generator=gen, dtype=torch.float64).to(dtype),)


class TestSimplifiedLinearAttention(Conformance):
    kind = "module"

    def make(self, **factory):
        return st.SimplifiedLinearAttention(32, 2, (2, 3), num_prefix_tokens=1, **factory)

    def inputs(self, gen, dtype):
        return (torch.randn(3, 7, 32, generator=gen, dtype=torch.float64).to(dtype),)


class TestFixedShape(Conformance):
    kind = "module"

    def make(self, **factory):
        return st.FixedShape((5, 3))

    def inputs(self, gen, dtype):
        return (torch.randn(3, 5, 3, generator=gen, dtype=torch.float64).to(dtype),)


def test_every_public_class_is_covered():
    exempt = {
        "ConversionReport": "a record; what it says is in test_convert",
        "FusionReport": "a record; what it says is in test_fusion",
        "PRepBNSchedule": "a counter of steps; its contract is in test_equations",
        "DivergenceMonitor": "watches a schedule; its contract is in test_convert",
        "FeatureBackbone": "a transformers backbone with another output; its contract is in test_convert",
    }
    assert_all_covered(st, sys.modules[__name__], exempt)
