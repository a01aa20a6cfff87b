import sys
from typing import ClassVar

import grokking_theory as gt
import torch
from offprints.testing import Conformance, assert_all_covered


def labels(gen, rows, columns, p=5):
    return torch.randint(0, p, (rows, columns), generator=gen)


class TestQuadraticNetwork(Conformance):
    kind = "module"

    def make(self, **factory):
        return gt.QuadraticNetwork(5, 7, **factory)

    def inputs(self, gen, **factory):
        return (labels(gen, 4, 2),)

    def reference(self, network, pairs):
        left, right = network.W[:, :5], network.W[:, 5:]
        rows = [sum(network.V[:, k] * (left[k, a] + right[k, b]) ** 2 for k in range(7)) for a, b in pairs.tolist()]
        return torch.stack(rows)


class TestRegressionHead(TestQuadraticNetwork):
    def inputs(self, gen, **factory):
        return (labels(gen, 4, 3),)

    def call(self, thing, triples):
        return thing.forward_triples(triples)

    def reference(self, network, triples):
        outputs = TestQuadraticNetwork.reference(self, network, triples[:, :2])
        return outputs.gather(1, triples[:, 2:]).squeeze(1)


class TestTinyTransformer(Conformance):
    kind = "module"

    def make(self, **factory):
        return gt.TinyTransformer(5, dim=8, heads=2, mlp=16, **factory)

    def inputs(self, gen, **factory):
        return (labels(gen, 4, 2),)


class TestConstantPredictor(Conformance):
    kind = "module"
    differentiable = False

    def make(self, **factory):
        return gt.ConstantPredictor(5, 1.5, **factory)

    def inputs(self, gen, **factory):
        return (labels(gen, 4, 2),)


class TestKernelRegressor(Conformance):
    kind = "estimator"

    def make(self):
        return gt.KernelRegressor()


class TestRidgeRegressor(Conformance):
    kind = "estimator"

    def make(self):
        return gt.KernelRegressor(ridge=0.1)


class TestLinfRegularizer(Conformance):
    kind = "function"
    batched = False

    def make(self):
        def penalty(*params):
            return gt.LinfRegularizer([x if x.requires_grad else x.requires_grad_() for x in params], 0.5)()

        return penalty

    def inputs(self, gen, **factory):
        return torch.randn(3, 2, generator=gen, **factory), torch.randn(4, generator=gen, **factory)


class TestClosedFormNTK(Conformance):
    kind = "function"
    batched = False
    differentiable = False

    def make(self):
        return gt.quadratic_ntk

    def inputs(self, gen, **factory):
        W, V = torch.randn(7, 10, generator=gen, **factory), torch.randn(5, 7, generator=gen, **factory)
        triples = labels(gen, 4, 3)
        triples[0] = 0  # so that every weight that is made NaN is read
        return W, V, triples, labels(gen, 6, 3)


class TestEmpiricalNTK(Conformance):
    kind = "function"
    batched = False
    differentiable = False
    skip: ClassVar = {
        "compile": "gradients of gradients by torch.func; the result is a diagnostic, not a layer",
        "bfloat16": "computed in float32, with a warning",
    }
    refusals: ClassVar = {
        "compile": lambda: torch.compile(_kernel_of_a_line, fullgraph=True, backend="eager")(torch.ones(2, 3)),
        "bfloat16": lambda: gt.empirical_ntk(torch.nn.Linear(3, 2).bfloat16(), torch.ones(0, 3)),
    }

    def make(self):
        return lambda weight, x: gt.empirical_ntk(_Line(weight), x)

    def inputs(self, gen, **factory):
        return torch.randn(2, 3, generator=gen, **factory), torch.randn(4, 3, generator=gen, **factory)


class TestMargin(Conformance):
    kind = "function"

    def make(self):
        return gt.output_margin

    def inputs(self, gen, **factory):
        return torch.randn(4, 5, generator=gen, **factory), labels(gen, 4, 1).squeeze(1)


class _Line(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight.detach())

    def forward(self, x):
        return torch.tanh(x @ self.weight.t())


def _kernel_of_a_line(x):
    return gt.empirical_ntk(_Line(torch.ones(2, 3)), x)


def test_every_public_class_is_covered():
    data = "plain data, no call to conform"
    exempt = {
        "FourierSpectrum": data,
        "GrokkingReport": data,
        "History": data,
        "LinearizedCurve": data,
        "NTKRecord": data,
        "TableBound": data,
        "ModularAddition": "a data set; see test_tasks",
        "Task": "a protocol",
        "Linearization": "holds a decomposition of someone else's model; see test_regression",
        "NTKTracker": "observes someone else's model; see test_tracker",
    }
    assert_all_covered(gt, sys.modules[__name__], exempt)
