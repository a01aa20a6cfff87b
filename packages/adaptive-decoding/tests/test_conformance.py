"""The shared contract: functions of logits, and logits processors in generate()."""

import sys

import adaptive_decoding as ad
import numpy as np
import torch
from adaptive_decoding import _reference as reference
from offprints.testing import Conformance, assert_all_covered


def logits(gen, rows, size, dtype):
    return (3 * torch.randn(rows, size, generator=gen, dtype=torch.float64)).to(dtype)


class TestConfidenceIncrements(Conformance):
    kind = "function"
    differentiable = False

    def make(self):
        return lambda x: ad.confidence_increments(x).delta.to(x.dtype)

    def inputs(self, gen, dtype):
        return (logits(gen, 3, 40, dtype),)

    def reference(self, thing, x):
        rows = [reference.increments(row) for row in x.softmax(-1).double().numpy()]
        return torch.tensor(np.array(rows)).to(x.dtype)


class TestConfidence(Conformance):
    kind = "function"
    differentiable = False

    def make(self):
        return lambda x: ad.confidence(x, 7).to(x.dtype)

    def inputs(self, gen, dtype):
        return (logits(gen, 3, 40, dtype),)


class TestCandidateMask(Conformance):
    kind = "function"
    differentiable = False

    def make(self):
        return ad.candidate_mask

    def inputs(self, gen, dtype):
        return (logits(gen, 3, 200, dtype),)


class TestProcessorAsFunction(Conformance):
    """One call of the processor, which also has to trace: in a compiled graph everything is ranked."""

    kind = "function"
    differentiable = False

    def make(self):
        return ad.AdaptiveLogitsProcessor(0.01, filter_value=-100.0, temperature=1.5)

    def inputs(self, gen, dtype):
        return (logits(gen, 3, 200, dtype),)

    def call(self, thing, scores):
        return thing(torch.zeros(len(scores), 2, dtype=torch.long, device=scores.device), scores)


class TestRecordedRule(TestProcessorAsFunction):
    def make(self):
        return ad.AdaptiveLogitsProcessor(
            0.01, rule="last", flat="keep_all", sampling="uniform", filter_value=-100.0, record=True, count_masked=False
        )


class TestAdaptiveFilter(Conformance):
    kind = "function"
    framework = "numpy"

    def make(self):
        return lambda x: ad.adaptive_filter(x, 0.01, filter_value=-100.0)

    def inputs(self, gen, dtype):
        return ((3 * gen.standard_normal((3, 60))).astype(dtype),)


class TestAdaptiveLogitsProcessor(Conformance):
    kind = "processor"

    def make(self):
        return ad.AdaptiveLogitsProcessor(0.01, record=True)


class TestMirostatLogitsProcessor(Conformance):
    kind = "processor"

    def make(self):
        return ad.MirostatLogitsProcessor()


def test_every_public_class_is_covered():
    record = "a record without behaviour"
    names = ("Answered", "Calibration", "Continuation", "Estimate", "Increments", "MauveScore", "Prompt", "Question")
    exempt = {
        **dict.fromkeys((*names, "ReasoningReport", "Recorded"), record),
        "Decoder": "names and builds processors; its contract is in test_decoders",
        "DecoderReport": "a table; its contract is in test_compare",
        "DecodingTrace": "a record that is shown; its contract is in test_processor",
        "SentenceEncoder": "takes texts; its contract is in test_metrics",
    }
    assert_all_covered(ad, sys.modules[__name__], exempt)
