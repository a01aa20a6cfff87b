"""Checks of torch optimizers, on a small least-squares problem."""

import copy
from collections.abc import Callable

import torch

from offprints.seeding import rng
from offprints.testing.conformance import Conformance, needs, when
from offprints.testing.values import assert_close, assert_same, copied

Parameters = list[torch.nn.Parameter]


def act(case: Conformance) -> Callable[[], object]:
    """Six steps from the same start."""
    return lambda: _trained(case.make)


@needs("reference")
def check_reference(case: Conformance) -> None:
    """The steps are those of the literal equations."""
    assert_close(_trained(case.make), _trained(case.reference), case.tolerance, "optimizer and reference")


@when(lambda case: bool(case.variants))
def check_variants(case: Conformance) -> None:
    """Fast and plain variants take the same steps."""
    for options in case.variants:
        assert_close(_trained(case.make, **options), _trained(case.make), case.tolerance, f"with {options} and without")


def check_param_groups(case: Conformance) -> None:
    """Each group has its own learning rate: 0 holds its parameters, the others move."""
    start, parameters = _parameters(), _parameters()
    groups = [{"params": parameters[:1], "lr": 0.0}, {"params": parameters[1:]}]
    _steps(case.make(groups), parameters)
    assert_same(parameters[0], start[0], "a parameter at learning rate 0")
    assert not torch.equal(parameters[1], start[1]), "the group with the default learning rate stands still"


def check_tensor_lr(case: Conformance) -> None:
    """A learning rate may be a tensor."""
    tensor = _trained(case.make, lr=torch.tensor(0.01, dtype=torch.float64))
    assert_close(tensor, _trained(case.make, lr=0.01), case.tolerance, "lr as a tensor and as a number")


def check_resume(case: Conformance) -> None:
    """Three steps, a new optimizer from the `state_dict`, three steps: as six without a break."""
    parameters = _parameters()
    first = case.make(parameters)
    _steps(first, parameters, 3)
    state = copy.deepcopy(first.state_dict())
    again = [torch.nn.Parameter(p.detach().clone()) for p in parameters]
    second = case.make(again)
    second.load_state_dict(state)
    _steps(second, again, 3)
    assert_same(again, _trained(case.make), "resumed and uninterrupted")


def check_missing_grad(case: Conformance) -> None:
    """A parameter without a gradient is passed over."""
    idle = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    parameters = _parameters()
    _steps(case.make([idle, *parameters]), parameters)
    assert (idle == 1).all(), "a parameter without a gradient moved"


def check_sparse_grad(case: Conformance) -> None:
    """A sparse gradient is used as the dense one would be, or refused by an error that says sparse."""
    results = []
    for sparse in (False, True):
        table = torch.nn.Embedding.from_pretrained(torch.ones(4, 2).double(), freeze=False, sparse=sparse)
        optimizer = case.make(list(table.parameters()))
        table(torch.tensor([1, 3])).square().sum().backward()
        try:
            optimizer.step()
        except (RuntimeError, ValueError, TypeError) as error:
            if not sparse or "sparse" not in str(error):
                raise
            return
        results.append(table.weight)
    assert_close(results[1], results[0], case.tolerance, "a sparse and the dense gradient")


def check_accumulation(case: Conformance) -> None:
    """Two backward passes before a step count as their sum, and the step leaves `grad` as it was."""
    results = []
    for parts in (1, 2):
        parameters = _parameters()
        optimizer = case.make(parameters)
        for _ in range(parts):
            (_loss(parameters) / parts).backward()
        before = copied([p.grad for p in parameters])
        optimizer.step()
        assert_same([p.grad for p in parameters], before, "grad before and after a step")
        results.append(parameters)
    assert_close(results[1], results[0], case.tolerance, "accumulated and summed gradients")


def _parameters() -> Parameters:
    gen = rng(0, "cpu")
    return [torch.nn.Parameter(torch.randn(shape, generator=gen, dtype=torch.float64)) for shape in ((4, 3), (3,))]


def _loss(parameters: Parameters) -> torch.Tensor:
    weight, bias = parameters
    gen = rng(1, "cpu")
    x, y = (torch.randn(shape, generator=gen, dtype=torch.float64) for shape in ((8, 4), (8, 3)))
    return (x @ weight + bias - y).square().mean()


def _steps(optimizer: torch.optim.Optimizer, parameters: Parameters, steps: int = 6) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        _loss(parameters).backward()
        optimizer.step()


def _trained(make: Callable[..., torch.optim.Optimizer], **options: object) -> Parameters:
    parameters = _parameters()
    _steps(make(parameters, **options), parameters)
    return parameters
