import sys
from typing import ClassVar

import knowrlm as kr
import numpy as np
import pytest
import torch
from offprints.testing import Conformance, assert_all_covered

SPACE = kr.VariantSpace("ACDEF", [2, 4])


def tokens(gen, rows, length):
    return torch.randint(0, 20, (rows, length), generator=gen)


class TestOneHotEncoder(Conformance):
    kind = "module"
    differentiable = False

    def make(self, **factory):
        return kr.OneHotEncoder(**factory)

    def inputs(self, gen, **factory):
        return (tokens(gen, 4, 5),)

    def reference(self, encoder, codes):
        return torch.nn.functional.one_hot(codes, 20).to(encoder.table.dtype)


class TestKnowledgePolicy(Conformance):
    kind = "module"

    def make(self, **factory):
        return kr.KnowledgePolicy(SPACE, **factory)

    def inputs(self, gen, **factory):
        return (tokens(gen, 4, 5),)

    def reference(self, policy, codes):
        masked = torch.nn.functional.one_hot(torch.tensor([0, 0, 2, 0, 4]), 20).to(policy.reference.dtype)
        masked[[1, 3]] = 0
        features = (torch.nn.functional.one_hot(codes, 20).to(masked.dtype) - masked).flatten(1)
        logits = features @ policy.site_head.weight.t() + policy.site_head.bias
        first, _, norm, last = policy.value_head
        hidden = torch.nn.functional.gelu(features @ first.weight.t() + first.bias)
        hidden = (hidden - hidden.mean(1, keepdim=True)) / (hidden.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
        hidden = hidden * norm.weight + norm.bias
        return logits, (hidden @ last.weight.t() + last.bias).squeeze(1)


class TestRatioPolicy(Conformance):
    kind = "module"
    tolerance = 1e-6

    def make(self, **factory):
        return kr.KnowledgePolicy(SPACE, reference="ratio", **factory)

    def inputs(self, gen, **factory):
        return (tokens(gen, 4, 5),)

    def call(self, policy, codes):
        return policy(codes)[0] / 1000  # one-hot states over a floor of 0.001


class TestEnsemblePredictor(Conformance):
    kind = "estimator"

    def make(self):
        return kr.EnsemblePredictor(["ridge", "bayesian_ridge", "knn"], top=2, folds=2)


class TestPreferentialWalk(Conformance):
    kind = "function"

    def make(self):
        policy, window = kr.KnowledgePolicy(SPACE), [2, 5, 11]

        def walk(own, candidates):
            others = candidates.new_zeros(len(own), 20, own.shape[1])
            others[:, window] = candidates
            allowed = torch.zeros(len(own), 20, dtype=torch.bool, device=own.device)
            allowed[:, window] = True
            return policy.residue_logits(own, others, allowed)[:, window]

        return walk

    def inputs(self, gen, **factory):
        return torch.randn(3, 6, generator=gen, **factory), torch.randn(3, 3, 6, generator=gen, **factory)


@pytest.mark.slow
class TestDefaultEnsemble(Conformance):
    kind = "estimator"

    def make(self):
        return kr.EnsemblePredictor()


class TestUniRep(Conformance):
    kind = "module"
    differentiable = False
    skip: ClassVar = {
        "meta": "its weights come from a file",
        "factory": "its weights come from a file, in float32; .to() moves them",
    }
    refusals: ClassVar = {
        "meta": lambda: kr.load_unirep(7),
        "factory": lambda: kr.load_unirep(7),
    }

    def make(self, **factory):
        gen, arrays = np.random.default_rng(0), {"embedding": np.ones((26, 10)), "dense.w": np.ones((4, 25))}
        for kind, shape in {"x": (10, 16), "h": (4, 16), "mx": (10, 4), "mh": (4, 4)}.items():
            arrays |= {f"mlstm.0.w{kind}": gen.normal(size=shape), f"mlstm.0.g{kind}": np.ones(shape[1])}
        arrays |= {"embedding": gen.normal(size=(26, 10)), "dense.b": np.zeros(25), "mlstm.0.b": np.zeros(16)}
        return kr.UniRep({name: array.astype(np.float32) for name, array in arrays.items()}).to(**factory)

    def inputs(self, gen, **factory):
        return (tokens(gen, 3, 4),)


def test_every_public_class_is_covered():
    data = "plain data, no call to conform"
    exempt = {
        name: data
        for name in (
            "Campaign", "Evaluation", "EvolutionReport", "Landscape", "Library", "PPOConfig", "PlateConstraints",
            "Scales", "Scores", "Substitution", "TrainingLog", "VariantSpace", "WalkSettings",
        )
    }  # fmt: skip
    exempt |= {
        "AminoAcidGraph": "a fixed graph over 20 nodes; see test_equations",
        "ClusterSampler": "a sampler over variants; see test_evolve",
        "DirectedEvolution": "a loop with state; see test_evolve",
        "Ehrlich": "a test function; see test_landscapes",
        "EsmEncoder": "wraps someone else's model; see test_walks",
        "FeatureMap": "a look-up of integers; see test_evolve",
        "MutationEnv": "an environment: gymnasium's check_env; see test_walks",
        "PPO": "a training loop; see test_walks",
        "SlidingWindow": "a state machine; see test_equations",
        "StateBank": "a cache of an encoder; see test_walks",
        "Surrogate": "predictor and features together; see test_evolve",
        "Walks": "an environment; see test_walks",
    }
    assert_all_covered(kr, sys.modules[__name__], exempt)
