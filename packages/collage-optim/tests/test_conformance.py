import sys
from typing import ClassVar

import collage_optim
import torch
from collage_optim import CollageAdamW, CollageSGD, _reference, from_float
from offprints.testing import Conformance, assert_all_covered

VARIANTS = ({"foreach": True}, {"foreach": False}, {"math": "fp32"}, {"robust": True})


class Literal(torch.optim.Optimizer):
    """The reference as an optimizer."""

    def __init__(self, params, mode):
        super().__init__(params, {})
        self.mode = mode

    @torch.no_grad()
    def step(self):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state.update({name: torch.zeros_like(p) for name in ("m", "v", "low", "v_low")}, t=0)
            state["t"] += 1
            tensors = {"theta": p, **{name: state[name] for name in ("m", "v", "low", "v_low")}}
            settings = {"lr": 0.01, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.1}
            beta2 = from_float(0.999, p.dtype)
            _reference.adamw_step(tensors, p.grad, state["t"], mode=self.mode, beta2=beta2, **settings)


class TestPlus(Conformance):
    kind = "optimizer"
    mode = "plus"
    covers = ("CollageAdamW",)
    variants: ClassVar = VARIANTS

    def make(self, params, **options):
        return CollageAdamW(params, **({"lr": 0.01, "weight_decay": 0.1, "mode": self.mode} | options))

    def reference(self, params):
        return Literal(params, self.mode)


class TestLight(TestPlus):
    mode = "light"


class TestPlain(TestPlus):
    mode = "plain"


class TestMasterWeights(Conformance):
    kind = "optimizer"
    variants: ClassVar = VARIANTS

    def make(self, params, **options):
        return CollageAdamW(params, **({"lr": 0.01, "mode": "fp32_master"} | options))

    def reference(self, params):
        return torch.optim.AdamW(params, lr=0.01, foreach=False)


class TestKahan(Conformance):
    kind = "optimizer"
    variants: ClassVar = VARIANTS

    def make(self, params, **options):
        return CollageAdamW(params, **({"lr": 0.01, "mode": "kahan"} | options))

    def reference(self, params):
        return torch.optim.AdamW(params, lr=0.01, foreach=False)


class TestSGD(Conformance):
    kind = "optimizer"
    covers = ("CollageSGD",)
    variants: ClassVar = VARIANTS

    def make(self, params, **options):
        return CollageSGD(params, **({"lr": 0.01, "momentum": 0.9, "nesterov": True} | options))

    def reference(self, params):
        return torch.optim.SGD(params, lr=0.01, momentum=0.9, nesterov=True, foreach=False)


def test_every_public_class_is_covered():
    data = "plain data, no call to conform"
    exempt = {
        "MCF": data,
        "PrecisionReport": data,
        "Suggestion": data,
        "PrecisionMonitor": "observes an optimizer; see test_metrics",
    }
    assert_all_covered(collage_optim, sys.modules[__name__], exempt)
