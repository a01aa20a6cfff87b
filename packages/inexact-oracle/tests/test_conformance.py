"""The shared contract, for every public class."""

import inexact_oracle
import numpy as np
from inexact_oracle import LipschitzOracle, Replay, SeparationOracle, SmoothOracle, algorithms
from inexact_oracle.algorithms import Box, L1Ball, NuclearBall, Simplex, ellipsoid, kelley, level_bundle
from offprints.testing import Conformance, Outcome, assert_all_covered


class TestLipschitzOracle(Conformance):
    """As a solver: Kelley's method sees nothing but its replies."""

    kind = "solver"

    def solve(self, problem):
        oracle = LipschitzOracle(problem.objective, len(problem.start), 0.0, 0.0, np.inf)
        oracle(problem.start)
        result = kelley(oracle, (problem.lower, problem.upper), 200, tol=0.0)
        return Outcome(result.x, result.value)


class TestSmoothOracle(Conformance):
    """As a solver: the level bundle method sees nothing but its replies."""

    kind = "solver"

    def solve(self, problem):
        slopes = [problem.objective(problem.start + e)[1] for e in np.vstack([np.zeros(3), np.eye(3)])]
        smoothness = max(float(np.linalg.norm(s - slopes[0])) for s in slopes[1:]) or 1.0
        oracle = SmoothOracle(problem.objective, len(problem.start), 0.0, 0.0, smoothness)
        result = level_bundle(oracle, (problem.lower, problem.upper), 60, tol=1e-5 * smoothness, x0=problem.start)
        return Outcome(result.x, result.value)


class TestSeparationOracle(Conformance):
    """As a solver: the ellipsoid method sees the box through its replies only."""

    kind = "solver"

    def solve(self, problem):
        def outside(x):
            excess = np.maximum(x - problem.upper, problem.lower - x)
            row = int(excess.argmax())
            if excess[row] <= 0:
                return None
            return np.eye(len(x))[row] * (1.0 if x[row] > problem.upper[row] else -1.0)

        radius = float(np.linalg.norm(problem.upper - problem.lower))
        centre = problem.lower + 0.5 * (problem.upper - problem.lower) if np.isfinite(radius) else problem.start
        oracle = SeparationOracle(outside, len(centre), 0.0)
        result = ellipsoid(problem.objective, centre, radius, 300, separation=oracle)
        return Outcome(result.x, result.value)


class TestModel(Conformance):
    """The function that the replies are exact data of."""

    kind = "function"
    framework = "numpy"

    def make(self):
        oracle = LipschitzOracle(lambda x: (float(np.abs(x).sum()), np.sign(x)), 3, 0.1, 0.1, 4.0)
        for x in np.eye(3):
            oracle(x)
        return oracle.model

    def inputs(self, gen, dtype):
        return (gen.standard_normal((4, 3)).astype(dtype),)


class TestExtension(Conformance):
    """The smallest smooth function through the replies."""

    kind = "function"
    framework = "numpy"
    tolerance = 1e-6

    def make(self):
        oracle = SmoothOracle(lambda x: (float(x @ x) / 2, x.copy()), 3, 0.1, 0.1, 1.0)
        for x in np.eye(3):
            oracle(x)
        return oracle.model

    def inputs(self, gen, dtype):
        return (gen.standard_normal((4, 3)).astype(dtype),)


class MinimisesLinear(Conformance):
    """Linear minimisation: one vector in, one out."""

    framework = "numpy"
    batched = False

    def inputs(self, gen, dtype):
        return (gen.standard_normal(6).astype(dtype),)


class TestSimplex(MinimisesLinear):
    kind = "function"

    def make(self):
        return Simplex(6, 2.0)


class TestL1Ball(MinimisesLinear):
    kind = "function"

    def make(self):
        return L1Ball(6, 2.0)


class TestBox(MinimisesLinear):
    kind = "function"

    def make(self):
        return Box(-np.ones(6), 2 * np.ones(6))


class TestNuclearBall(MinimisesLinear):
    kind = "function"

    def make(self):
        return NuclearBall((2, 3), 2.0)


class TestReplay(Conformance):
    """Recorded answers at recorded points."""

    kind = "function"
    framework = "numpy"
    batched = False

    def make(self):
        x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32).astype(float)
        return Replay(x, np.arange(2.0), x)

    def inputs(self, gen, dtype):
        return (np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32).astype(dtype)[0],)


RECORDS = {
    "Certificate": "a named tuple of numbers",
    "ErrorEstimate": "a named tuple of numbers",
    "FirstOrderOracle": "a protocol without code",
    "Replies": "a named tuple of arrays",
}


def test_every_public_class_is_covered():
    assert_all_covered(inexact_oracle, globals(), exempt=RECORDS)
    results = {"History": "a named tuple of arrays", "Result": "a named tuple of arrays"}
    assert_all_covered(algorithms, globals(), exempt=results)
