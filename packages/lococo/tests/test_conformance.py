"""The shared contract: the compressor as a module, and the caches in generate()."""

import sys

import lococo as lc
import pytest
import torch
from lococo import _reference as reference
from offprints.testing import Conformance, assert_all_covered
from offprints.testing.generation import _model

SMALL = {"mem_size": 4, "local_len": 1, "buffer": 1}


@pytest.fixture(autouse=True)
def watched():
    with lc.observe(_model()):
        yield


class TestConvCompressor(Conformance):
    kind = "module"

    def make(self, **factory):
        config = lc.LoCoCoConfig(mem_size=4, kernel_size=3, local_len=1)
        made = lc.ConvCompressor(config, 3, **factory)
        return made

    def inputs(self, gen, dtype):
        keys, values = (torch.randn(2, 2, 9, 3, generator=gen, dtype=torch.float64).to(dtype) for _ in range(2))
        order = torch.rand(2, 2, 9, generator=gen).argsort(-1)  # far apart: a finite difference changes no choice
        return keys, values, (order / 8).to(dtype)

    def reference(self, module, keys, values, scores):
        convs = [(layer.weight, layer.bias) for layer in module.convs]
        c = module.config
        rows = [
            reference.compress(k, v, s, convs, module.alpha, c.mem_size, c.fused, c.local)
            for k, v, s in zip(keys, values, scores, strict=True)
        ]
        return tuple(torch.stack(part).detach() for part in zip(*rows, strict=True))


class TestLoCoCoCache(Conformance):
    kind = "cache"

    def make(self):
        heads = lc.LoCoCoCompressor.for_model(_model(), kernel_size=3, dtype=torch.float64, **SMALL)
        return lc.LoCoCoCache(_model(), heads)


class TestBareKeys(Conformance):
    kind = "cache"

    def make(self):
        heads = lc.LoCoCoCompressor.for_model(
            _model(), kernel_size=3, dtype=torch.float64, rope_mode="pre", **SMALL
        )  # fmt: skip
        return lc.LoCoCoCache(_model(), heads, scores="ema", provenance=True)


class TestH2OCache(Conformance):
    kind = "cache"

    def make(self):
        return lc.H2OCache(_model(), 4, buffer=1)


class TestStreamingLLMCache(Conformance):
    kind = "cache"

    def make(self):
        return lc.StreamingLLMCache(_model(), 4, 1, buffer=1, reposition=True)


class TestRandomEvictionCache(Conformance):
    kind = "cache"

    def make(self):
        return lc.RandomEvictionCache(_model(), 4, 1, buffer=1)


class TestSnapKVCache(Conformance):
    kind = "cache"
    covers = ("CompressedCache",)

    def make(self):
        return lc.SnapKVCache(_model(), 4, 2, 3, buffer=1)


def test_every_public_class_is_covered():
    record = "a record without behaviour"
    names = ("CacheReport", "Calibration", "Comparison", "ModelShape", "Perplexity", "Question", "Accuracy")
    exempt = {
        **dict.fromkeys(names, record),
        "LoCoCoCompressor": "a list of ConvCompressor; its own contract is in test_training",
        "LoCoCoConfig": "sizes; what it refuses is in test_errors",
        "Tuned": "a model with adapters; its contract is in test_training",
    }
    assert_all_covered(lc, sys.modules[__name__], exempt)
