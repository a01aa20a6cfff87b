"""Every check of optimizers, logits processors, caches and graphs.

A good example passes all, one broken on purpose fails exactly that check.
"""

import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
import transformers
from offprints.testing import Conformance
from offprints.testing.conformance import checks_of


def failed(case: type[Conformance]) -> dict[str, str]:
    """The inherited checks that a case fails, and why."""
    found = {}
    for name in checks_of(case):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a warning is an error here is no part of the suite
                getattr(case(), f"test_{name}")()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


# optimizers


class Momentum(torch.optim.Optimizer):
    """v <- m v + g, p <- p - lr v."""

    def __init__(self, params: object, lr: object = 0.05, momentum: float = 0.9, foreach: bool = False) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "foreach": foreach})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.move(p, p.grad, group)

    def move(self, p: torch.Tensor, g: torch.Tensor, group: dict) -> None:
        if g.is_sparse:
            raise ValueError("sparse gradients are not supported. Pass sparse=False to the embedding.")
        v = self.state[p].setdefault("v", torch.zeros_like(p))
        v.mul_(group["momentum"]).add_(g)
        p.sub_(group["lr"] * v)


class GoodOptimizer(Conformance):
    kind = "optimizer"
    variants = ({"foreach": True},)
    optimizer: type[torch.optim.Optimizer] = Momentum

    def make(self, params: object, **options: object) -> torch.optim.Optimizer:
        return self.optimizer(params, **options)

    def reference(self, params: object) -> torch.optim.Optimizer:
        return torch.optim.SGD(params, lr=0.05, momentum=0.9)


class SparseToo(Momentum):
    def move(self, p, g, group):
        super().move(p, g.to_dense() if g.is_sparse else g, group)


class Nesterov(Momentum):
    def move(self, p, g, group):
        super().move(p, g, group)
        p.sub_(1e-3 * group["lr"] * g)


class OtherVariant(Momentum):
    def move(self, p, g, group):
        super().move(p, g, {**group, "lr": group["lr"] * (1.01 if group["foreach"] else 1)})


class OneRateForAll(Momentum):
    def move(self, p, g, group):
        super().move(p, g, {**group, "lr": self.defaults["lr"]})


class StandsStill(Momentum):
    def move(self, p, g, group):
        if len(self.param_groups) == 1:
            super().move(p, g, group)


class NoTensorRate(Momentum):
    def __init__(self, params, lr=0.05, **options):
        if not isinstance(lr, float):
            raise TypeError("lr must be a float")
        super().__init__(params, lr, **options)


class ForgetsState(Momentum):
    def load_state_dict(self, state):
        super().load_state_dict({**state, "state": {}})


class MovesIdle(Momentum):
    def step(self):
        super().step()
        for p in self.param_groups[0]["params"]:
            if p.grad is None:
                p.data.mul_(0.99)


class SparseWrong(Momentum):
    def move(self, p, g, group):
        super().move(p, g.to_dense() * 2 if g.is_sparse else g, group)


class SparseCrashes(Momentum):
    def move(self, p, g, group):
        if g.is_sparse:
            raise RuntimeError("layout!")
        super().move(p, g, group)


class ChangesGrad(Momentum):
    def move(self, p, g, group):
        super().move(p, g, group)
        g.mul_(2)


OPTIMIZERS = {
    "reference": [Nesterov],
    "variants": [OtherVariant],
    "param_groups": [OneRateForAll, StandsStill],
    "tensor_lr": [NoTensorRate],
    "resume": [ForgetsState],
    "missing_grad": [MovesIdle],
    "sparse_grad": [SparseWrong, SparseCrashes],
    "accumulation": [ChangesGrad],
}


@pytest.mark.parametrize("optimizer", [Momentum, SparseToo])
def test_good_optimizers_pass_all(optimizer):
    case = type("Case", (GoodOptimizer,), {"optimizer": optimizer})
    assert set(checks_of(case)) == {*OPTIMIZERS, "quiet", "global_rng", "repeatable"}
    assert failed(case) == {}


@pytest.mark.parametrize(("check", "optimizer"), [(c, o) for c, optimizers in OPTIMIZERS.items() for o in optimizers])
def test_broken_optimizers_fail_exactly_one(check, optimizer):
    assert failed(type("Case", (GoodOptimizer,), {"optimizer": optimizer})).keys() == {check}


# logits processors and caches


class GoodProcessor(Conformance):
    kind = "processor"
    change: Callable = staticmethod(lambda ids, scores: scores / 0.7)

    def make(self) -> transformers.LogitsProcessor:
        change = type(self).change

        class Processor(transformers.LogitsProcessor):
            def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
                return change(input_ids, scores)

        return Processor()


def refuses(rows: int) -> Callable:
    """A processor that fails for a batch of so many rows: 1 greedy, 3 sampling, 5 beams."""

    def change(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if len(ids) == rows:
            raise RuntimeError("not for this batch")
        return scores

    return change


def counts_padding(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    return scores.roll(int((ids[-1] == 0).sum()), 1)


class GoodCache(Conformance):
    kind = "cache"

    def make(self) -> transformers.Cache:
        return transformers.DynamicCache()


PROCESSORS = {"greedy": refuses(1), "sampling": refuses(3), "beam": refuses(5), "left_padding": counts_padding}


@pytest.mark.parametrize("case", [GoodProcessor, GoodCache])
def test_good_processor_and_cache_pass_all(case):
    assert set(checks_of(case)) == {*PROCESSORS, "quiet", "global_rng", "repeatable"}
    assert failed(case) == {}


@pytest.mark.parametrize("check", PROCESSORS)
def test_broken_processors_fail_exactly_one(check):
    assert failed(type("Case", (GoodProcessor,), {"change": staticmethod(PROCESSORS[check])})).keys() == {check}


# graphs


class Smooth:
    """Two rounds of averaging node numbers' degrees over neighbours, in numpy or torch."""

    def __init__(self, rounds: int = 2) -> None:
        self.rounds = rounds

    def get_params(self) -> dict:
        return {"rounds": self.rounds}

    def __call__(self, edges: object, nodes: int) -> object:
        pairs = np.asarray(edges)
        adjacency = np.zeros((nodes, nodes))
        np.add.at(adjacency, (pairs[0], pairs[1]), 1.0)
        degree = adjacency.sum(1)
        values = degree
        for _ in range(self.rounds):
            values = (adjacency @ values + values) / (degree + 1)
        return torch.from_numpy(values) if isinstance(edges, torch.Tensor) else values


class GoodGraph(Conformance):
    kind = "graph"
    framework = "numpy"
    refits = True
    smooth = Smooth

    def make(self) -> Callable:
        return self.smooth()


class TensorGraph(GoodGraph):
    framework = "torch"
    refits = False


class NoEdgesAllowed(Smooth):
    def __call__(self, edges, nodes):
        if not edges.size:
            raise ValueError("edges must not be empty")
        return super().__call__(edges, nodes)


class LosesIsolated(Smooth):
    def __call__(self, edges, nodes):
        return super().__call__(edges, nodes if not edges.size else int(edges.max()) + 1)


class SelfLoopBreaks(Smooth):
    def __call__(self, edges, nodes):
        values = super().__call__(edges, nodes)
        return values * (np.nan if (edges[0] == edges[1]).any() else 1)


class MultiEdgeBreaks(Smooth):
    def __call__(self, edges, nodes):
        assert len(set(map(tuple, edges.T.tolist()))) == edges.shape[1]
        return super().__call__(edges, nodes)


class EmptyBreaks(Smooth):
    def __call__(self, edges, nodes):
        return super().__call__(edges, nodes)[: None if nodes else edges[0][0]]


class SingleBreaks(Smooth):
    def __call__(self, edges, nodes):
        return super().__call__(edges, nodes) / np.float64(nodes - 1 or np.nan)


class UsesNumbers(Smooth):
    def __call__(self, edges, nodes):
        return super().__call__(edges, nodes) + np.arange(nodes)


class KeepsFit(Smooth):
    seen = 0

    def __call__(self, edges, nodes):
        self.seen += 1
        return super().__call__(edges, nodes) * self.seen


GRAPHS = {
    "isolated_nodes": LosesIsolated,
    "self_loops": SelfLoopBreaks,
    "multi_edges": MultiEdgeBreaks,
    "empty_graph": EmptyBreaks,
    "single_node": SingleBreaks,
    "relabelling": UsesNumbers,
    "refit": KeepsFit,
}


def test_good_graphs_pass_all():
    assert set(checks_of(GoodGraph)) == {*GRAPHS, "quiet", "global_rng", "repeatable"}
    picky = type("Case", (GoodGraph,), {"smooth": NoEdgesAllowed})
    assert failed(GoodGraph) == failed(TensorGraph) == failed(picky) == {}


@pytest.mark.parametrize("check", GRAPHS)
def test_broken_graphs_fail_exactly_one(check):
    assert failed(type("Case", (GoodGraph,), {"smooth": GRAPHS[check]})).keys() == {check}
