"""The check of `torch.compile`, in a process of its own: import hooks that check types break tracing."""

import functools
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import torch

from offprints.testing.conformance import Conformance
from offprints.testing.values import assert_close, is_float, leaves, mapped

_CHILD = """
import contextlib, json, sys
from offprints.testing.compiled import examine
with contextlib.redirect_stdout(sys.stderr):
    found = examine(sys.argv[1])
print(json.dumps(found))
"""


@functools.cache
def failures(path: str) -> dict[str, str]:
    """Class -> what went wrong, or "", for all torch modules and functions of a test file; one process for them all.

    A file that cannot be loaded there has its error under the name "".
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    run = subprocess.run([sys.executable, "-c", _CHILD, path], capture_output=True, text=True, env=environment)
    return json.loads(run.stdout) if run.returncode == 0 else {"": f"{path} cannot be loaded alone:\n{run.stderr}"}


def examine(path: str) -> dict[str, str]:
    """Load a test file and try every case of it that does not skip `compile`."""
    module = sys.modules["conformance_cases"] = ModuleType("conformance_cases")
    module.__file__ = path
    exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec"), vars(module))
    found = {}
    for case in list(vars(module).values()):  # tracing adds names of its own
        if isinstance(case, type) and issubclass(case, Conformance) and hasattr(case, "test_compile"):
            found[case.__qualname__] = "" if "compile" in case.skip else _failure(case)
    return found


def compiles(case: Conformance) -> None:
    """Traced whole, values and gradients equal the eager ones, and the second call traces nothing.

    Raises:
        AssertionError: if they differ.
        RuntimeError: of torch, at a graph break or a second tracing.
    """
    thing, inputs = case.prepared()
    traced = torch.compile(lambda *args: case.call(thing, *args), fullgraph=True, backend="eager")
    parameters = list(thing.parameters()) if isinstance(thing, torch.nn.Module) else []
    results = [_values_and_gradients(run, inputs, parameters) for run in (lambda *a: case.call(thing, *a), traced)]
    assert_close(results[1], results[0], case.tolerance, "values and gradients, compiled and eager")
    with torch.compiler.set_stance("fail_on_recompile"):
        _values_and_gradients(traced, case.prepared(seed=1)[1], parameters)


def _failure(case: type[Conformance]) -> str:
    torch.compiler.reset()
    try:
        compiles(case())
    except Exception:
        return traceback.format_exc(limit=-4)
    return ""


def _values_and_gradients(run: Callable, inputs: tuple, parameters: list) -> list:
    inputs = mapped(lambda x: x.detach().clone().requires_grad_() if is_float(x) else x, inputs)
    values = leaves(run(*inputs))
    follow = [x for x in values if getattr(x, "requires_grad", False)]
    wanted = [x for x in leaves(inputs) if is_float(x)] + [p for p in parameters if p.requires_grad]
    if not follow:
        return values
    total = torch.stack([(x.real**2).sum() for x in follow]).sum()
    return [*values, *torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)]
