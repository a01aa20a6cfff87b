"""One contract, many subclasses: a package says how to make a thing and feed it, and inherits every check.

    class TestCompressor(Conformance):
        kind = "module"
        def make(self, **factory): return Compressor(dim=8, slots=4, **factory)
        def inputs(self, gen, **factory): return (torch.randn(2, 5, 8, generator=gen, **factory),)

Each check is a function `check_<name>(case)` in a file of this package and becomes the test `test_<name>`.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from offprints.checks import require_choice
from offprints.seeding import isolated, rng
from offprints.testing.values import is_array, mapped

if TYPE_CHECKING:
    from offprints.testing.solvers import Problem

KINDS: Mapping[str, tuple[str, ...]] = {  # the files that hold the checks; the first one says what an action is
    "module": ("calls", "general", "tensors", "modules"),
    "function": ("calls", "general", "tensors"),
    "optimizer": ("optimizers", "general"),
    "processor": ("generation", "general"),
    "cache": ("generation", "general"),
    "estimator": ("estimators", "general"),
    "graph": ("graphs", "general"),
    "solver": ("solvers", "general"),
}
_APPLIES: dict[Callable, Callable[[type["Conformance"]], bool]] = {}
REFUSAL = (TypeError, ValueError, RuntimeError)


class Conformance:
    """Base of conformance tests; pytest collects its subclasses (named `Test...`), never itself.

    Attributes:
        make: method `make(**factory)`, gives the thing under test. A module takes device= and dtype=, an optimizer's
            `make(params, **options)` its parameters first.
        inputs: method `inputs(gen, **factory)`: a tuple of arguments of one call of a module or function, drawn from a
            generator (torch or numpy) in the given dtype, with two rows or more.
        solve: method `solve(problem)` of a solver, gives an `Outcome`.
        kind: module, function, optimizer, processor, cache, estimator, graph or solver.
        framework: "torch" or "numpy": what inputs and results of a function, graph or solver are made of.
        covers: names of further public classes that this test stands for.
        skip: check -> reason (the card shows it); needs a refusal of the same name.
        refusals: check -> callable that must raise the documented error (TypeError, ValueError or RuntimeError).
        tolerance: of float64 results that should agree, relative to the largest entry.
        autocast_tolerance: of results under CPU autocast to bfloat16, likewise.
        batched: whether the first axis of inputs and outputs is a batch of independent rows.
        length_axis: optional: the axis of a sequence length.
        differentiable: whether outputs follow inputs with a gradient; if not, none may claim one.
        reference: optional hook `reference(thing, *inputs)` (optimizer: `reference(params)`): the literal equations.
        left_pad: optional hook `left_pad(inputs, n)`: the same inputs behind n entries of padding.
        variants: optimizer: options that must not change the result, such as `({"foreach": True},)`.
        accuracy: solver: how near it must come to the least value, of a problem of scale one.
        constrained: solver: whether it takes bounds, so that they can be infeasible.
        refits: graph: whether the thing is an estimator, with `get_params`.
    """

    make: Callable
    inputs: Callable
    solve: Callable
    reference: Callable
    left_pad: Callable
    length_axis: int
    kind: ClassVar[str] = ""
    framework: ClassVar[str] = "torch"
    covers: ClassVar[tuple[str, ...]] = ()
    skip: ClassVar[Mapping[str, str]] = {}
    refusals: ClassVar[Mapping[str, Callable[[], object]]] = {}
    tolerance: ClassVar[float] = 1e-8
    autocast_tolerance: ClassVar[float] = 0.05
    batched: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True
    variants: ClassVar[tuple[Mapping[str, object], ...]] = ()
    accuracy: ClassVar[float] = 1e-3
    constrained: ClassVar[bool] = True
    refits: ClassVar[bool] = False

    def call(self, thing: Callable, *inputs: object) -> object:
        """How it is called; override for another method, or to pass a freshly seeded generator."""
        return thing(*inputs)

    def rows(self, inputs: tuple, which: slice) -> tuple:
        """Some rows of the batch: by default of every array. Override where an argument has no batch axis."""
        return mapped(lambda x: x[which] if is_array(x) else x, inputs)

    def unpad(self, output: object, n: int) -> object:
        """The output without the n entries that `left_pad` put in front (of axis 1)."""
        return mapped(lambda x: x[:, n:], output)

    def problem(self) -> "Problem":
        """Solver: a problem with a known solution; by default a quadratic over a box in three dimensions."""
        from offprints.testing.solvers import quadratic

        return quadratic()

    def prepared(self, dtype: str = "float64", seed: int = 0) -> tuple:
        """A fresh thing (in evaluation mode) and its inputs."""
        torch = import_module("torch") if self.framework == "torch" else None
        factory = {"dtype": getattr(torch or np, dtype)}
        with isolated(0):
            thing = self.make(**factory) if self.kind == "module" else self.make()
        if torch and isinstance(thing, torch.nn.Module):
            thing.eval()
        inputs = self.inputs(rng(seed, "cpu") if torch else rng(seed), **factory)
        if not isinstance(inputs, tuple):
            raise TypeError(f"inputs() must return a tuple of arguments, got {type(inputs).__name__}.")
        return thing, inputs

    def action(self) -> Callable[[], object]:
        """One use of the thing, ready to run: what the checks of noise and randomness watch."""
        return _checks_in(KINDS[self.kind][0]).act(self)

    def __init_subclass__(cls, **options: object) -> None:
        super().__init_subclass__(**options)
        if not cls.kind:
            return
        require_choice("kind", cls.kind, KINDS)
        checks = checks_of(cls)
        for name in (*cls.skip, *cls.refusals):
            require_choice(f"a skipped check of {cls.__name__}", name, checks)
        for name, reason in cls.skip.items():
            if not reason.strip() or name not in cls.refusals:
                raise ValueError(f"{cls.__name__} skips {name!r}: give a reason, and the refused call in `refusals`.")
        for name, check in checks.items():
            if f"test_{name}" in cls.__dict__:
                raise ValueError(f"{cls.__name__} overrides the inherited test_{name}: use `skip` with a reason.")
            setattr(cls, f"test_{name}", _test(name, check))


def when(applies: Callable[[type[Conformance]], bool]) -> Callable[[Callable], Callable]:
    """Mark a check as inherited only by the classes that it applies to."""

    def mark(check: Callable) -> Callable:
        _APPLIES[check] = applies
        return check

    return mark


def needs(hook: str) -> Callable[[Callable], Callable]:
    """Mark a check as inherited only by the classes that have an optional hook."""
    return when(lambda cls: getattr(cls, hook, None) is not None)


def checks_of(cls: type[Conformance]) -> dict[str, Callable[[Conformance], None]]:
    """The checks that a class inherits, by name."""
    files = [file for file in KINDS[cls.kind] if cls.framework == "torch" or file != "tensors"]
    found = {}
    for file in files:
        for name, check in vars(_checks_in(file)).items():
            if name.startswith("check_") and (check not in _APPLIES or _APPLIES[check](cls)):
                found[name.removeprefix("check_")] = check
    return found


def skipped_checks(here: Mapping[str, object] | ModuleType) -> dict[str, dict[str, str]]:
    """Class -> check -> reason of all that the conformance tests of a namespace skip, for the card."""
    return {name: dict(case.skip) for name, case in _cases(here).items() if case.skip}


def assert_all_covered(
    package: ModuleType, here: Mapping[str, object] | ModuleType, exempt: Mapping[str, str] | None = None
) -> None:
    """Demand a conformance test for every public class of a package.

    The class `Compressor` is covered by `TestCompressor`, or by a test whose `covers` names it. Exceptions and
    warnings need none; any other class without behaviour of a kind is named in `exempt` with the reason.

    Raises:
        AssertionError: listing what lacks a test, and exemptions that are stale or give no reason.
    """
    exempt = exempt or {}
    classes = {name: getattr(package, name) for name in package.__all__}
    public = {name for name, c in classes.items() if isinstance(c, type) and not issubclass(c, Exception)}
    cases = _cases(here)
    covered = {name.removeprefix("Test") for name in cases}.union(*(case.covers for case in cases.values()))
    missing = sorted(public - covered - set(exempt))
    stale = sorted(name for name, why in exempt.items() if name not in public - covered or not why.strip())
    assert not missing, f"no conformance test for {', '.join(missing)}"
    assert not stale, f"exempt without need or reason: {', '.join(stale)}"


def _cases(here: Mapping[str, object] | ModuleType) -> dict[str, type[Conformance]]:
    found = vars(here) if isinstance(here, ModuleType) else here
    return {n: c for n, c in found.items() if isinstance(c, type) and issubclass(c, Conformance) and c.kind}


def _checks_in(file: str) -> ModuleType:
    return import_module(f"offprints.testing.{file}")


def _test(name: str, check: Callable[[Conformance], None]) -> Callable[[Conformance], None]:
    def run(self: Conformance) -> None:
        if name not in self.skip:
            return check(self)
        try:
            type(self).refusals[name]()
        except REFUSAL as error:
            said = str(error).strip()
        else:
            raise AssertionError(f"{name!r} is skipped ({self.skip[name]}), but nothing refuses it")
        assert said, f"the refusal of {name!r} says nothing"

    run.__doc__ = check.__doc__
    return run
