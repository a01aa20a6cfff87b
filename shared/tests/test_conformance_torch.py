"""Every check of modules and functions: a good one passes all, one broken on purpose fails exactly that check."""

import inspect
import sys
import warnings
from collections.abc import Callable
from typing import ClassVar

import pytest
import torch
from offprints.testing import Conformance
from offprints.testing.compiled import compiles, examine
from offprints.testing.conformance import checks_of
from torch import nn


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


class Running(nn.Module):
    """tanh(W m_t) g with m_t the mean of the unmasked x_1..x_t; masks hold any positive integer."""

    def __init__(self, dim: int = 4, device: object = None, dtype: object = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, dim, device=device, dtype=dtype))
        self.gain = nn.Buffer(torch.ones(dim, device=device, dtype=dtype))
        nn.init.uniform_(self.weight, -1, 1)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        keep = (mask[..., None] > 0).to(x.dtype)
        return self.after((x * keep).cumsum(1) / keep.cumsum(1).clamp(min=1), x, mask)

    def after(self, mean: torch.Tensor, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return torch.tanh(mean @ self.weight.T) * self.gain


class Good(Conformance):
    kind = "module"
    length_axis = 1
    module: type[nn.Module] = Running

    def make(self, **factory: object) -> nn.Module:
        return self.module(**factory)

    def inputs(self, gen: torch.Generator, **factory: object) -> tuple:
        return torch.randn(3, 5, 4, generator=gen, **factory), torch.ones(3, 5, dtype=torch.long)

    def reference(self, module: nn.Module, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        steps = [x[:, : t + 1].mean(1) for t in range(x.shape[1])]
        return torch.stack([torch.tanh(m @ module.weight.T) for m in steps], 1) * module.gain

    def left_pad(self, inputs: tuple, n: int) -> tuple:
        x, mask = inputs
        return nn.functional.pad(x, (0, 0, n, 0), value=7.0), nn.functional.pad(mask, (n, 0))


class WrongDtype(Running):
    def after(self, mean, x, mask):
        y = super().after(mean, x, mask)
        return y.double() if x.dtype == torch.float32 else y


class WrongHalf(Running):
    def after(self, mean, x, mask):
        y = super().after(mean, x, mask)
        return y.float() if x.dtype == torch.bfloat16 else y


class HalfPositions(Running):
    def after(self, mean, x, mask):
        positions = torch.arange(1000.0, 1000.0 + x.shape[1], device=x.device, dtype=torch.float32)
        phase = positions[:, None] @ torch.ones(1, x.shape[2], device=x.device)  # rounded to 16 bits under autocast
        return super().after(mean, x, mask) + torch.sin(phase).to(x.dtype) - torch.sin(positions)[:, None].to(x.dtype)


class InfiniteUnderAutocast(Running):
    def after(self, mean, x, mask):
        y = super().after(mean, x, mask)
        return y / 0.0 if torch.is_autocast_enabled("cpu") else y


class Cancelling(Running):
    def after(self, mean, x, mask):
        y = super().after(mean, x, mask)
        return (y + 100.0) - 100.0 if x.dtype == torch.bfloat16 else y


class MixesRows(Running):
    def after(self, mean, x, mask):
        y = super().after(mean, x, mask)
        return y - 1e-7 * y.mean(0)


class NoEmptyBatch(Running):
    def after(self, mean, x, mask):
        return super().after(mean, x, mask).reshape(len(x), -1, 4)


class NoLengthOne(Running):
    def after(self, mean, x, mask):
        return super().after(mean, x, mask) + 0.0 * (1 / (x.shape[1] - 1))


class NanAtLengthOne(Running):
    def after(self, mean, x, mask):
        return super().after(mean, x, mask) * (torch.nan if x.shape[1] == 1 else 1.0)


class IgnoresMask(Running):
    def forward(self, x, mask):
        return super().forward(x, torch.ones_like(mask))


class WantsContiguous(Running):
    def forward(self, x, mask):
        return super().forward(x.view(-1).view(x.shape), mask)


class ChangesInput(Running):
    def after(self, mean, x, mask):
        mask.mul_(2)
        return super().after(mean, x, mask)


class DrawsGlobally(Running):
    def after(self, mean, x, mask):
        torch.rand(1, device=x.device)
        return super().after(mean, x, mask)


class NeverTheSame(Running):
    def __init__(self, **factory):
        super().__init__(**factory)
        self.register_buffer("calls", torch.zeros((), device=factory.get("device")), persistent=False)

    def after(self, mean, x, mask):
        self.calls.add_(1)
        return super().after(mean, x, mask) + 1e-12 * self.calls.to(x.dtype)


class Talks(Running):
    def after(self, mean, x, mask):
        if not torch.compiler.is_compiling():
            sys.stdout.write("after")
        return super().after(mean, x, mask)


class Warns(Running):
    def after(self, mean, x, mask):
        if not torch.compiler.is_compiling():
            warnings.warn("a habit", UserWarning, stacklevel=1)
        return super().after(mean, x, mask)


class MakesOnCpu(Running):
    def after(self, mean, x, mask):
        return super().after(mean, x, mask) + torch.zeros(4, dtype=x.dtype)


class IndexesOnCpu(Running):
    def after(self, mean, x, mask):
        scale = torch.ones(x.shape[1], 1, device=x.device, dtype=x.dtype)
        return super().after(mean, x, mask) * nn.functional.embedding(torch.arange(x.shape[1]), scale)


class AttributeStaysBehind(Running):
    def __init__(self, **factory):
        super().__init__(**factory)
        self.shift = torch.zeros(4, dtype=factory.get("dtype"), device=factory.get("device"))

    def after(self, mean, x, mask):
        return super().after(mean, x, mask) + self.shift


class ReturnsOnCpu(Running):
    def after(self, mean, x, mask):
        return super().after(mean, x, mask).cpu()


class GraphBreak(Running):
    def after(self, mean, x, mask):
        inspect.stack()
        return super().after(mean, x, mask)


class Recompiles(Running):
    calls = 0

    def after(self, mean, x, mask):
        self.calls += 1
        return super().after(mean, x, mask) * (1 if self.calls < 10**6 else 2)


class OtherWhenCompiled(Running):
    def after(self, mean, x, mask):
        return super().after(mean, x, mask) * (1.001 if torch.compiler.is_compiling() else 1)


class Detached(Running):
    def after(self, mean, x, mask):
        return super().after(mean.detach(), x, mask)


class NoGradient(Running):
    def after(self, mean, x, mask):
        return super().after(mean, x, mask).detach()


class BufferOffMeta(Running):
    def __init__(self, **factory):
        super().__init__(**factory)
        self.version = nn.Buffer(torch.ones((), dtype=factory.get("dtype")))


class BufferIgnoresDtype(Running):
    def __init__(self, **factory):
        super().__init__(**factory)
        self.version = nn.Buffer(torch.ones((), device=factory.get("device")))


class ForgetsGain(Running):
    def load_state_dict(self, state, strict=True, assign=False):
        return super().load_state_dict(state | {"gain": self.gain}, strict, assign)


class SharesMemory(Running):
    def __init__(self, **factory):
        super().__init__(**factory)
        self.alias = self.weight


class SharesWhenCopied(Running):
    def __deepcopy__(self, memo):
        twin = type(self)(dtype=self.weight.dtype)
        twin.weight, twin.gain = self.weight, self.gain
        return twin


class CopiesAfresh(Running):
    def __deepcopy__(self, memo):
        return type(self)(dtype=self.weight.dtype)


class HoldsLambda(Running):
    def __init__(self, **factory):
        super().__init__(**factory)
        self.activation = lambda y: y

    def after(self, mean, x, mask):
        return self.activation(super().after(mean, x, mask))


class DropsGrad(Running):
    def after(self, mean, x, mask):
        if not torch.compiler.is_compiling():
            self.zero_grad()
        return super().after(mean, x, mask)


class CountsCalls(Running):
    def __init__(self, **factory):
        super().__init__(**factory)
        self.seen = nn.Buffer(torch.zeros((), dtype=torch.long, device=factory.get("device")))

    def after(self, mean, x, mask):
        self.seen.add_(1)
        return super().after(mean, x, mask)


BROKEN = {
    "dtype": [WrongDtype],
    "bfloat16": [WrongHalf],
    "autocast": [HalfPositions, InfiniteUnderAutocast],
    "low_precision": [Cancelling],
    "rows": [MixesRows],
    "empty_batch": [NoEmptyBatch],
    "length_one": [NoLengthOne, NanAtLengthOne],
    "left_padding": [IgnoresMask],
    "noncontiguous": [WantsContiguous],
    "unmodified": [ChangesInput],
    "global_rng": [DrawsGlobally],
    "repeatable": [NeverTheSame],
    "quiet": [Talks, Warns],
    "device": [MakesOnCpu, IndexesOnCpu, AttributeStaysBehind, ReturnsOnCpu],
    "compile": [GraphBreak, Recompiles, OtherWhenCompiled],
    "gradient": [Detached, NoGradient],
    "meta": [BufferOffMeta],
    "factory": [BufferIgnoresDtype],
    "state_dict": [ForgetsGain],
    "safetensors": [SharesMemory],
    "deepcopy": [SharesWhenCopied, CopiesAfresh],
    "pickle": [HoldsLambda],
    "grads_untouched": [DropsGrad, CountsCalls],
}
for modules in BROKEN.values():
    for module in modules:  # at the top level of this file, where the process that compiles finds them
        globals()[f"{module.__name__}Case"] = type(
            f"{module.__name__}Case", (Good,), {"module": module, "__module__": __name__}
        )


class GoodFunction(Conformance):
    kind = "function"
    function: Callable = staticmethod(lambda x: torch.softmax(x, -1))

    def make(self) -> Callable:
        return self.function

    def inputs(self, gen: torch.Generator, **factory: object) -> tuple:
        return (torch.randn(3, 4, generator=gen, **factory),)


class SwallowsNan(GoodFunction):
    function = staticmethod(lambda x: torch.softmax(torch.nan_to_num(x), -1))


class RefusesNan(GoodFunction):
    @staticmethod
    def function(x: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling() and not isinstance(x, torch._subclasses.FakeTensor) and x.isnan().any():
            raise ValueError("x must be finite")
        return torch.softmax(x, -1)


class Counts(GoodFunction):
    """Indices in and out, no gradient."""

    differentiable = False
    batched = False

    @staticmethod
    def function(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        RefusesNan.function(x)
        return x.argmax(-1), x.shape[1]


class ClaimsGradient(GoodFunction):
    differentiable = False


class TakesGradient(GoodFunction):
    """The gradient of a potential, taken inside: fake CUDA tensors cannot, so the meta device stands in."""

    differentiable = False

    @staticmethod
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda v: (v**3).sum())(x.detach())


class TakesGradientOnCpu(TakesGradient):
    @staticmethod
    def function(x: torch.Tensor) -> torch.Tensor:
        return TakesGradient.function(x) + torch.zeros(4, dtype=x.dtype)


class OneRow(GoodFunction):
    def inputs(self, gen: torch.Generator, **factory: object) -> tuple:
        return (torch.randn(1, 4, generator=gen, **factory),)


class NoTuple(GoodFunction):
    def inputs(self, gen: torch.Generator, **factory: object) -> object:
        return torch.randn(3, 4, generator=gen, **factory)


class Stops(GoodFunction):
    """Data-dependent length: refused by torch.compile, and that is documented."""

    batched = False
    skip: ClassVar = {"compile": "the number of iterations depends on the data"}
    refusals: ClassVar = {"compile": lambda: torch.compile(halve_until_small, fullgraph=True)(torch.ones(2))}

    def make(self) -> Callable:
        return halve_until_small


def halve_until_small(x: torch.Tensor) -> torch.Tensor:
    while not isinstance(x, torch._subclasses.FakeTensor) and x.numel() and x.isfinite().all() and x.abs().max() > 0.1:
        x = x / 2
    return x


def test_good_module_passes_all():
    assert set(checks_of(Good)) == set(BROKEN)
    assert failed(Good) == {}


@pytest.mark.parametrize(("check", "module"), [(c, m) for c, modules in BROKEN.items() for m in modules])
def test_broken_module_fails_exactly_one(check, module):
    assert failed(globals()[f"{module.__name__}Case"]).keys() == {check}


@pytest.mark.parametrize("case", [GoodFunction, RefusesNan, Counts, TakesGradient, Stops])
def test_good_function_passes_all(case):
    assert failed(case) == {}


@pytest.mark.parametrize(
    ("case", "check"),
    [(SwallowsNan, "nan"), (ClaimsGradient, "gradient"), (TakesGradientOnCpu, "device"), (OneRow, "rows")],
)
def test_broken_function_fails_exactly_one(case, check):
    assert failed(case).keys() == {check}


def test_inputs_are_a_tuple():
    with pytest.raises(TypeError, match="must return a tuple"):
        NoTuple().test_dtype()


@pytest.mark.parametrize("module", [MakesOnCpu, IndexesOnCpu, AttributeStaysBehind])
def test_meta_alone_sees_fewer_mixups_than_fake_cuda(module):
    case = globals()[f"{module.__name__}Case"]()
    with pytest.raises((RuntimeError, AssertionError)):
        case.test_device()
    meta = module(device="meta", dtype=torch.float32)
    seen = []
    try:
        meta(torch.empty(3, 5, 4, device="meta"), torch.empty(3, 5, dtype=torch.long, device="meta"))
    except RuntimeError as error:
        seen.append(error)
    assert bool(seen) == (module is not IndexesOnCpu) or module is AttributeStaysBehind


def test_the_compile_check_itself(tmp_path):
    compiles(Good())
    compiles(Counts())
    for module in (GraphBreak, Recompiles, OtherWhenCompiled):
        torch.compiler.reset()
        with pytest.raises((AssertionError, RuntimeError)):
            compiles(globals()[f"{module.__name__}Case"]())
    torch.compiler.reset()
    file = tmp_path / "cases.py"
    file.write_text(
        "import inspect, torch\nfrom offprints.testing import Conformance\n"
        "class Fine(Conformance):\n    kind = 'function'\n"
        "    def make(self): return torch.sin\n"
        "    def inputs(self, gen, **factory): return (torch.randn(2, 3, generator=gen, **factory),)\n"
        "class Breaks(Fine):\n    def make(self): return lambda x: (inspect.stack(), torch.sin(x))[1]\n"
        "class Excused(Breaks):\n    skip = {'compile': 'a reason'}\n    refusals = {'compile': int}\n"
        "class Array(Conformance):\n    kind = 'function'\n    framework = 'numpy'\n"
    )
    found = examine(str(file))
    assert set(found) == {"Fine", "Breaks", "Excused"}
    assert (found["Fine"], found["Excused"]) == ("", "")
    assert "dynamo" in found["Breaks"]


def test_a_file_that_does_not_load_is_told(tmp_path):
    from offprints.testing.compiled import failures

    file = tmp_path / "broken.py"
    file.write_text("raise RuntimeError('no such thing')\n")
    assert "no such thing" in failures(str(file))[""]
