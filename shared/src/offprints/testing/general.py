"""Checks of every kind: an action is silent, leaves the global random states alone, and can be repeated."""

import io
import random
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout

import numpy as np

from offprints.testing.conformance import Conformance
from offprints.testing.values import assert_same, copied


def check_quiet(case: Conformance) -> None:
    """Nothing printed, no warning."""
    action, output = case.action(), io.StringIO()
    with warnings.catch_warnings(record=True) as caught, redirect_stdout(output), redirect_stderr(output):
        warnings.simplefilter("always")
        action()
    assert not output.getvalue(), f"printed {output.getvalue()!r}"
    assert not caught, f"warned: {caught[0].message}"


def check_global_rng(case: Conformance) -> None:
    """The global random states of python, numpy and torch stay where they were."""
    action, before = case.action(), _states()
    action()
    moved = [name for name, state in _states().items() if not np.array_equal(state, before[name])]
    assert not moved, f"the global random state of {', '.join(moved)} moved: pass a generator"


def check_repeatable(case: Conformance) -> None:
    """The same call (with an equally seeded generator) gives the same result to the bit, once more and made afresh."""
    action = case.action()
    first = copied(action())
    assert_same(action(), first, "two equal calls")
    assert_same(case.action()(), first, "two equal calls, of two things made alike")


def _states() -> dict[str, np.ndarray]:
    _, keys, position, *_ = np.random.get_state(legacy=True)
    states = {"python": np.array(random.getstate()[1]), "numpy": np.append(keys, position)}
    torch = sys.modules.get("torch")
    return states | ({"torch": torch.get_rng_state().numpy().copy()} if torch else {})
