"""Every check of numpy functions, estimators and solvers.

A good example passes all, one broken on purpose fails exactly that check.
"""

import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from offprints.testing import Conformance, Outcome, Problem
from offprints.testing.conformance import checks_of
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data


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


# numpy functions


@dataclass(frozen=True)
class Moments:
    mean: np.ndarray
    extra: dict
    name: str


class GoodArrays(Conformance):
    kind = "function"
    framework = "numpy"
    length_axis = 1

    def make(self) -> Callable:
        return lambda x, power: Moments(np.tanh(x).mean(1), {"powers": [x.mean(1) ** power]}, "moments")

    def inputs(self, gen: np.random.Generator, **factory: object) -> tuple:
        return gen.normal(size=(3, 5)).astype(factory["dtype"]), 2

    def reference(self, moments: Callable, x: np.ndarray, power: int) -> Moments:
        return Moments(np.tanh(x).sum(1) / np.asarray(x.shape[1], x.dtype), {"powers": [x.mean(1) ** power]}, "moments")


def arrays(function: Callable) -> type[Conformance]:
    """The good case with another function."""
    return type("Arrays", (GoodArrays,), {"make": lambda self: function, "reference": None})


def in_place(x: np.ndarray, power: int) -> np.ndarray:
    result = np.tanh(x)
    x[...] = np.arctanh(result)
    return result.round(6)


def global_draw(x: np.ndarray, power: int) -> np.ndarray:
    np.random.random()
    random.random()
    return np.tanh(x)


ARRAYS = {
    "dtype": lambda x, power: np.tanh(x).astype(np.float64),
    "rows": lambda x, power: x - 1e-4 * x.mean(0) if len(x) else x,
    "empty_batch": lambda x, power: x.reshape(len(x), -1),
    "length_one": lambda x, power: x.mean(1) + (0.0 if x.shape[1] > 1 else np.inf),
    "unmodified": in_place,
    "noncontiguous": lambda x, power: np.frombuffer(memoryview(x).cast("B"), x.dtype).reshape(x.shape) if x.size else x,
    "global_rng": global_draw,
    "nan": lambda x, power: np.nan_to_num(x),
}


def test_good_arrays_pass_all():
    assert failed(GoodArrays) == {}


@pytest.mark.parametrize("check", ARRAYS)
def test_broken_arrays_fail_exactly_one(check):
    assert failed(arrays(ARRAYS[check])).keys() == {check}


def test_numpy_cases_need_no_torch():
    script = (
        "import sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] == 'torch': raise ModuleNotFoundError('no torch here', name=name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "import numpy as np\n"
        "from offprints.testing import Conformance\n"
        "from offprints.testing.conformance import checks_of\n"
        "import offprints.testing.plugin\n"
        "class Case(Conformance):\n"
        "    kind, framework = 'function', 'numpy'\n"
        "    def make(self): return np.tanh\n"
        "    def inputs(self, gen, **factory): return (gen.normal(size=(3, 5)).astype(factory['dtype']),)\n"
        "class Solves(Conformance):\n"
        "    kind = 'solver'\n"
        "for name in checks_of(Case): getattr(Case(), 'test_' + name)()\n"
        "print(len(checks_of(Case)), len(checks_of(Solves)))\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert run.stdout == "9 10\n", run.stderr


# scikit-learn estimators


class Mean(RegressorMixin, BaseEstimator):
    def __init__(self, shrink: float = 0.0) -> None:
        self.shrink = shrink

    def fit(self, X, y):
        X, y = validate_data(self, X, y, y_numeric=True)
        gram = X.T @ X + (self.shrink + 1e-3) * np.eye(X.shape[1])
        self.coef_ = np.linalg.solve(gram, X.T @ y)
        return self

    def predict(self, X):
        check_is_fitted(self)
        return validate_data(self, X, reset=False) @ self.coef_


class Centre(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.mean_ = validate_data(self, X).mean(0)
        return self

    def transform(self, X):
        check_is_fitted(self)
        return validate_data(self, X, reset=False) - self.mean_


class NotSklearn(Mean):
    def __init__(self, shrink: float = 0.0) -> None:
        self.shrink = shrink + 1.0


class TalksAtFit(Mean):
    def fit(self, X, y):
        sys.stderr.write("fitting")
        return super().fit(X, y)


class DrawsAtFit(Mean):
    def fit(self, X, y):
        random.random()
        return super().fit(X, y)


class CountsFits(Mean):
    fits = 0

    def fit(self, X, y):
        super().fit(X, y)
        type(self).fits += 1
        self.coef_ = self.coef_ * (1 + 1e-12 * type(self).fits)
        return self


def estimator(kind: type) -> type[Conformance]:
    """A case for an estimator class."""
    return type("Case", (Conformance,), {"kind": "estimator", "make": lambda self: kind()})


@pytest.mark.parametrize("kind", [Mean, Centre])
def test_good_estimators_pass_all(kind):
    assert failed(estimator(kind)) == {}


@pytest.mark.parametrize(
    ("check", "kind"),
    [("sklearn", NotSklearn), ("quiet", TalksAtFit), ("global_rng", DrawsAtFit), ("repeatable", CountsFits)],
)
def test_broken_estimators_fail_exactly_one(check, kind):
    assert failed(estimator(kind)).keys() == {check}


# solvers


class GoodSolver(Conformance):
    kind = "solver"

    def solve(self, problem: Problem) -> Outcome:
        if (problem.lower > problem.upper).any():
            raise ValueError("lower must be at most upper")
        return self.run(problem)

    def run(self, problem: Problem, **options: float) -> Outcome:
        bounds = list(zip(problem.lower, problem.upper, strict=True))
        tight = {"ftol": 0.0, "gtol": 1e-12} | options
        found = minimize(problem.objective, problem.start, jac=True, bounds=bounds, method="L-BFGS-B", options=tight)
        return Outcome(found.x, float(found.fun), "unbounded" if found.fun < -1e9 else "optimal")


class SaysInfeasible(GoodSolver):
    def solve(self, problem):
        if (problem.lower > problem.upper).any():
            return Outcome(problem.start, np.nan, "infeasible")
        return self.run(problem)


class NeedsNoBounds(GoodSolver):
    """An unconstrained solver, on its own problem."""

    constrained = False

    def problem(self):
        free = np.full(2, np.inf)
        centre = np.array([1.0, -2.0])
        squares = lambda x: (float((x - centre) @ (x - centre)), 2 * (x - centre))  # noqa: E731
        return Problem(squares, -free, free, np.ones(2), centre)


class WrongOnPlain(GoodSolver):
    def run(self, problem, **options):
        found = super().run(problem)
        plain = not problem.start.any() and np.isclose(problem.objective(problem.start)[0], 4.795)
        return found._replace(value=found.value + plain)


class DividesByProgress(GoodSolver):
    def run(self, problem, **options):
        found = super().run(problem)
        progress = problem.objective(problem.start)[0] - found.value
        return found if progress else found._replace(value=np.nan)


class AbsoluteTolerance(GoodSolver):
    def run(self, problem, **options):
        return super().run(problem, gtol=1e-2)


class OwnBox(GoodSolver):
    def run(self, problem, **options):
        found = super().run(problem)
        box = np.clip(found.x, -1.5, 1.5)
        return found if np.isinf(problem.lower).any() else Outcome(box, problem.objective(box)[0])


class ScribblesOnStart(GoodSolver):
    def run(self, problem, **options):
        middle = np.clip(np.zeros(3), problem.lower, problem.upper)
        found = super().run(Problem(problem.objective, problem.lower, problem.upper, middle, problem.solution))
        problem.start[:] = found.x
        return found


class SwapsBounds(GoodSolver):
    def solve(self, problem):
        lower, upper = np.minimum(problem.lower, problem.upper), np.maximum(problem.lower, problem.upper)
        return self.run(Problem(problem.objective, lower, upper, problem.start, problem.solution))


class NeverUnbounded(GoodSolver):
    def run(self, problem, **options):
        return super().run(problem)._replace(status="optimal")


class WrongStatus(GoodSolver):
    def run(self, problem, **options):
        found = super().run(problem)
        return found if found.status == "unbounded" else found._replace(status="iteration limit")


class OutsideOfBox(GoodSolver):
    def run(self, problem, **options):
        found = super().run(problem)
        return found if np.isinf(problem.lower).any() else found._replace(x=found.x + 0.1 * (found.x == problem.upper))


class WrongPoint(GoodSolver):
    def run(self, problem, **options):
        found = super().run(problem)
        return found if np.isinf(problem.lower).any() else found._replace(x=problem.lower + 0.1)


SOLVERS = {
    "optimum": WrongOnPlain,
    "already_optimal": DividesByProgress,
    "scale": AbsoluteTolerance,
    "shift": OwnBox,
    "unmodified": ScribblesOnStart,
    "infeasible": SwapsBounds,
    "unbounded": NeverUnbounded,
}


@pytest.mark.parametrize("case", [GoodSolver, SaysInfeasible, NeedsNoBounds])
def test_good_solvers_pass_all(case):
    assert failed(case) == {}
    assert set(checks_of(GoodSolver)) == {*SOLVERS, "quiet", "global_rng", "repeatable"}


@pytest.mark.parametrize("check", SOLVERS)
def test_broken_solvers_fail_exactly_one(check):
    assert failed(SOLVERS[check]).keys() == {check}


@pytest.mark.parametrize("case", [WrongStatus, OutsideOfBox, WrongPoint])
def test_a_solver_that_is_never_right_fails_wherever_there_is_an_answer(case):
    assert failed(case).keys() == {"optimum", "already_optimal", "scale", "shift"}
