"""What users bring: a simulator in low precision, a truncated inner solve, recorded answers, a real data set."""

import subprocess
import sys

import numpy as np
import pytest
from inexact_oracle import LipschitzOracle, SmoothOracle, replay, write_replies
from inexact_oracle.algorithms import L1Ball, frank_wolfe, kelley, outer_approximation, scipy_minimize
from inexact_oracle.data import breast_cancer, max_affine, unit_commitment
from inexact_oracle.noise import Quantized, Sign


def test_logistic_regression_in_half_precision():
    """The loss of a real data set, computed in float16; SLSQP reaches the float64 optimum to within the certificate."""
    exact = breast_cancer()
    x16, y16 = exact.rows.astype(np.float16), exact.labels.astype(np.float16)

    def half(w):
        margin = (y16 * (x16 @ w.astype(np.float16))).astype(np.float16)
        weight = (-y16 / (np.float16(1) + np.exp(np.minimum(margin, np.float16(11))))).astype(np.float16)
        loss = np.log1p(np.exp(-margin.astype(np.float32))).mean()
        return float(loss), (x16.T.astype(np.float32) @ weight.astype(np.float32)).astype(np.float64) / len(y16)

    probes = np.random.default_rng(0).uniform(-1, 1, (40, 30))
    eta_f = 2 * max(abs(half(w)[0] - exact(w)[0]) for w in probes)
    eta_g = 2 * max(float(np.linalg.norm(half(w)[1] - exact(w)[1])) for w in probes)
    assert 0 < eta_f < 0.01
    oracle = SmoothOracle(half, 30, eta_f, eta_g, 1.0, diameter=2 * np.sqrt(30))
    found = scipy_minimize(oracle, np.zeros(30), method="SLSQP", bounds=(-1.0, 1.0), options={"maxiter": 60})
    best = scipy_minimize(exact, np.zeros(30), bounds=(-1.0, 1.0), options={"maxiter": 3000, "ftol": 1e-14})
    certificate = oracle.certificate(found.x, bounds=(-1.0, 1.0))
    assert certificate.valid
    assert certificate.lower <= best.value <= exact(found.x)[0] <= certificate.value_upper
    assert exact(found.x)[0] - best.value <= certificate.bound


def test_sparse_logistic_regression_by_frank_wolfe_on_eight_bits():
    exact = breast_cancer()
    noisy = Quantized(exact, 30, 12, 8.0, 2.0)
    ball = L1Ball(30, 4.0)
    oracle = SmoothOracle(noisy, 30, noisy.eta_f, noisy.eta_g, 1.0, diameter=ball.diameter)
    result = frank_wolfe(oracle, ball, 25)
    theorem = 2 * 2.0 * ball.diameter**2 / 26
    best = frank_wolfe(exact, ball, 4000)
    certificate = oracle.certificate(result.x, theorem)
    assert exact(result.x)[0] - best.value <= certificate.bound
    assert np.count_nonzero(result.x) <= 25


def test_unit_commitment_with_a_noisy_cost_keeps_its_bounds_apart():
    f = unit_commitment(3, 0)
    exact = outer_approximation(f, [1] * 3 + [0] * 3, (np.zeros(6), np.ones(6)), 300)
    noisy = Sign(f, 0.02, 0.005, 1)
    oracle = LipschitzOracle(noisy, 6, 0.02, 0.005, np.sqrt(6))
    result = outer_approximation(oracle, [1] * 3 + [0] * 3, (np.zeros(6), np.ones(6)), 300)
    assert result.status == "converged"
    assert result.lower <= result.value + 1e-6
    assert f(result.x)[0] - exact.value <= 2 * 0.02 + 2 * 0.005 * np.sqrt(6) + 1e-5


def test_recorded_answers_are_certified_afterwards(tmp_path):
    """A run that is over: its log in a CSV file, fed to a wrapper, gives the same replies and the same certificate."""
    f = max_affine(3, 8, 2)
    live = LipschitzOracle(Sign(f, 0.05, 0.02, 4), 3, 0.05, 0.02, 4.0)
    result = kelley(live, (-1.0, 1.0), 40)
    path = write_replies(tmp_path / "run.csv", live.replies)
    recorded = replay(path)
    assert recorded.dim == 3
    again = LipschitzOracle(recorded, 3, 0.05, 0.02, 4.0)
    for x in recorded.points:
        again(x)
    for a, b in zip(live.replies, again.replies, strict=True):
        assert np.array_equal(a, b)
    assert again.certificate(result.x) == live.certificate(result.x)
    assert f(result.x)[0] - f.minimum_on_box(-1.0, 1.0) <= again.certificate(result.x, bounds=(-1, 1)).bound


def test_repeated_rows_are_answered_in_turn(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("x0,f,g0\n0.0,1.0,2.0\n\n0.0,3.0,4.0\n-0.0,5.0,6.0\n1.0,7.0,8.0\n")
    oracle = replay(path)
    answers = [oracle(np.array([0.0])) for _ in range(4)]
    assert [value for value, _ in answers] == [1.0, 3.0, 5.0, 1.0]
    assert len(oracle.points) == 2
    averaged = LipschitzOracle(oracle, 1, 0.1, 0.1, 2.0, average=3)
    oracle(np.array([0.0]))
    oracle(np.array([0.0]))
    assert averaged(np.array([0.0])) == (3.0, [4.0])
    with pytest.raises(ValueError, match="one of the 2 recorded points"):
        oracle(np.array([0.5]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: header must be"),
        ("x0,f,h0\n", "line 1: header must be x0,...,f,g0,..., got 'x0,f,h0'"),
        ("x0,f,g0\n1,2\n", "line 2: expected 3 fields, got 2"),
        ("x0,f,g0\n1,2,3\n1,oops,3\n", "line 3, field f: expected a finite number, got 'oops'"),
        ("x0,f,g0\n1,2,nan\n", "line 2, field g0: expected a finite number"),
    ],
)
def test_files_are_refused_by_file_line_and_field(tmp_path, text, message):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match="bad.csv") as error:
        replay(path)
    assert message in str(error.value)


def test_nothing_of_the_package_imports_torch_or_an_optional_library():
    """All modules, in a fresh interpreter where these imports fail."""
    code = """
import sys, pkgutil, importlib
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "cvxpy", "sklearn", "matplotlib"}:
            raise ImportError(f"{name} must not be imported")
sys.meta_path.insert(0, Refuse())
import inexact_oracle
for module in pkgutil.walk_packages(inexact_oracle.__path__, "inexact_oracle."):
    importlib.import_module(module.name)
import numpy as np
oracle = inexact_oracle.LipschitzOracle(lambda x: (float(abs(x).sum()), np.sign(x)), 2, 0.1, 0.1, 2.0)
oracle(np.ones(2)); oracle.certificate(np.ones(2))
assert "torch" not in sys.modules
print("clean")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "clean", done.stderr
