"""The shared contract, for every public class."""

import sys

import numpy as np
import pytest
import suwr
import torch
from offprints.testing import Conformance, assert_all_covered
from offprints.testing.fake import on_fake_cuda

QUICK = {"hidden": 16, "lr": 0.05, "batch_size": 64, "random_state": 0, "device": "cpu"}


class TestSUWRClassifier(Conformance):
    kind = "estimator"

    def make(self):
        return suwr.SUWRClassifier(max_features=2, max_epochs=15, **QUICK)


class TestSUWRRegressor(Conformance):
    kind = "estimator"

    def make(self):
        return suwr.SUWRRegressor(max_features=2, max_epochs=15, **QUICK)


@pytest.mark.slow
class TestL2X(Conformance):
    kind = "estimator"

    def make(self):
        return suwr.L2X(k=2, max_epochs=30, **QUICK)


@pytest.mark.slow
class TestINVASE(Conformance):
    kind = "estimator"

    def make(self):
        return suwr.INVASE(sparsity=0.01, max_epochs=30, **QUICK)


@pytest.mark.slow
class TestREALX(Conformance):
    kind = "estimator"

    def make(self):
        return suwr.REALX(sparsity=0.01, max_epochs=30, **QUICK)


class TestGlobalSelector(Conformance):
    kind = "estimator"

    def make(self):
        return suwr.GlobalSelector(method="kbest", k=2, random_state=0)


class TestSequentialPolicy(Conformance):
    kind = "module"

    def make(self, **factory):
        return suwr.SequentialPolicy(4, 3, hidden=8, value=True, **factory)

    def inputs(self, gen, **factory):
        x = torch.randn(5, 4, generator=gen, **factory)
        mask = torch.rand(5, 4, generator=gen) < 0.6
        mask[0] = False
        mask[1] = True
        return x, mask

    def call(self, thing, x, mask):
        return tuple(thing(x, mask))


def test_rollout_stays_on_its_device():
    """On fake CUDA tensors: no CPU tensor is made or mixed inside."""
    net = suwr.SequentialPolicy(3, 2, hidden=8).eval()

    def run(move, device):
        rolled = suwr.rollout(move(net), move(torch.zeros(4, 3)), 2, greedy=True)
        return suwr.suwr_loss(rolled, move(torch.zeros(4, dtype=torch.long))).total

    on_fake_cuda(run)


RECORDS = {
    "Abstention": "a threshold on a fitted classifier; see test_beyond",
    "Certificate": "a record of two rows",
    "DiscreteProblem": "an exact solver of its own kind of problem; see test_equations",
    "ExactLeakage": "a named tuple of numbers",
    "LabelLeakage": "a named tuple of numbers",
    "LeakageReport": "a record of two tests",
    "Narrative": "a record of one row",
    "Patches": "a tuple of index arrays",
    "PolicyTree": "a record of a policy; see test_equations",
    "ProbeReport": "a record of a test",
    "Rollout": "a named tuple of tensors",
    "Session": "a conversation with a fitted estimator; see test_beyond",
    "Solution": "a record of an optimum; see test_equations",
    "Space": "a record of tensors; see test_policy",
    "SparsityPath": "a record of fits",
    "Synthetic": "a named tuple of arrays",
    "TopK": "wraps someone else's attributions; see test_leakage",
    "Unmasked": "a named tuple of tensors",
}


def test_every_public_class_is_covered():
    assert_all_covered(suwr, sys.modules[__name__], RECORDS)


def test_patches_keep_their_kind():
    assert isinstance(suwr.image_patches((2, 2), 1), tuple)
    assert np.concatenate(suwr.image_patches((2, 2), 1)).tolist() == [0, 1, 2, 3]
