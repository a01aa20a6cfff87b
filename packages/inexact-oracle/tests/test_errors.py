"""Bad input: each row of the method's table of what must be refused, warned of, or survived."""

import os
import pickle  # noqa: TID251 (wrappers cross to worker processes; nothing is stored)
import sys
import threading
import warnings
from copy import deepcopy

import numpy as np
import pytest
from inexact_oracle import (
    ConsistencyWarning,
    InconsistentOracleError,
    LipschitzOracle,
    SeparationOracle,
    SmoothOracle,
    smallest_errors,
)
from inexact_oracle.algorithms import (
    accelerated_gradient,
    center_of_gravity,
    ellipsoid,
    frank_wolfe,
    kelley,
    level_bundle,
    outer_approximation,
    projected_subgradient,
    scipy_minimize,
)
from inexact_oracle.algorithms.lmo import Box, L1Ball, NuclearBall, Simplex
from inexact_oracle.data import max_affine, quadratic
from inexact_oracle.noise import Adversarial, FiniteDifference, Quantized, Sign, Truncated, Uniform
from inexact_oracle.replay import Replay


def drive(oracle, points):
    for x in points:
        oracle(x)


def square(x):
    return float(x @ x) / 2, x.copy()


def lipschitz(oracle=square, dim=2, **options):
    arguments = {"eta_f": 0.1, "eta_g": 0.05, "diameter": 2.0} | options
    return LipschitzOracle(oracle, dim, **arguments)


# ---- what the oracle returns


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((np.nan, np.zeros(2)), "oracle returned the value nan at query 2"),
        ((np.inf, np.zeros(2)), "oracle returned the value inf at query 2"),
        ((0.0, np.array([np.nan, 0.0])), "gradient with NaN or infinity at query 2"),
        ((0.0, np.array([0.0, -np.inf])), "gradient with NaN or infinity at query 2"),
        ((0.0, np.zeros(3)), r"gradient of shape \(3,\) at query 2, expected \(2,\)"),
        ((0.0, 1.0), r"gradient of shape \(\) at query 2"),
        ((0.0, "ab"), "gradient that is no array of real numbers at query 2"),
        (("x", np.zeros(2)), "value that is no number at query 2"),
        ((np.zeros(2), np.zeros(2)), "value that is no number at query 2"),
        (np.zeros(2)[0], "oracle returned float64 at query 2"),
        ((0.0, np.zeros(2), 1), "oracle returned tuple at query 2"),
    ],
)
@pytest.mark.parametrize("make", [lipschitz, lambda o: SmoothOracle(o, 2, 0.1, 0.1, 1.0)], ids=["lipschitz", "smooth"])
def test_bad_answers_change_nothing(make, answer, message):
    answers = iter([(0.0, np.zeros(2)), answer, (0.5, np.array([1.0, 0.0]))])
    oracle = make(lambda x: next(answers))
    oracle(np.zeros(2))
    with pytest.raises(ValueError, match=message):
        oracle(np.array([1.0, 0.0]))
    assert oracle.n_queries == len(oracle.replies.V) == 1
    assert oracle(np.array([1.0, 0.0]))[0] == 0.5
    assert oracle.n_queries == 2


def test_answers_are_copied():
    shared = np.ones(2)
    oracle = lipschitz(lambda x: (0.0, shared))
    _, grad = oracle(np.zeros(2))
    shared[:] = 7.0
    grad[:] = 9.0
    assert np.array_equal(oracle.grad(np.zeros(2)), np.ones(2))
    assert np.array_equal(oracle.replies.raw_g[0], np.ones(2))


# ---- contradictions


def concave(x):
    return -float(x @ x), -2.0 * x


def steep(x):
    return 0.0, np.array([5.0, 0.0])  # constant values with a slope: no convex function


@pytest.mark.parametrize("oracle", [concave, steep])
@pytest.mark.parametrize("kind", ["lipschitz", "smooth"])
def test_nonconvex_objective_warns_once_with_the_smallest_errors_and_never_certifies(oracle, kind):
    def make(**options):
        if kind == "lipschitz":
            return LipschitzOracle(oracle, 2, 0.01, 0.01, 2.0, **options)
        return SmoothOracle(oracle, 2, 0.01, 0.01, 2.0, diameter=2.0, **options)

    points = 0.9 * np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    wrapper = make()
    with pytest.warns(ConsistencyWarning, match=r"last \d answers alone need eta_f >= [\d.]+[1-9]") as caught:
        drive(wrapper, points)
    assert len(caught) == 1
    assert wrapper.n_inconsistent >= 1
    certificate = wrapper.certificate(points[0], algorithm_error=0.0)
    assert not certificate.valid
    assert certificate.bound == np.inf
    assert certificate.lower == -np.inf
    strict = make(strict=True)
    with pytest.raises(InconsistentOracleError) as error:
        drive(strict, points)
    assert error.value.violation > 0
    assert error.value.i < error.value.j == strict.n_queries
    assert len(strict.replies.V) == strict.n_queries  # nothing of the refused query was kept


def test_smallest_errors_named_in_the_warning_silence_it():
    points = [np.array([t]) for t in (-0.8, 0.8, 0.0)]
    data = [concave(x) for x in points]
    fit = smallest_errors(np.array(points), np.array([v for v, _ in data]), np.array([g for _, g in data]), ratio=0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapper = LipschitzOracle(concave, 1, 1.01 * fit.eta_f, 1.01 * fit.eta_g, 2.0)
        for x in points:
            wrapper(x)
    assert wrapper.n_inconsistent == 0


def test_gradients_beyond_the_lipschitz_constant():
    wrapper = lipschitz(lambda x: (0.0, np.array([3.0, 4.0])), lipschitz=2.0)
    with pytest.warns(ConsistencyWarning, match="exceeds lipschitz.*needs eta_g >= 3"):
        _, grad = wrapper(np.zeros(2))
    assert grad == pytest.approx([1.2, 1.6])
    with pytest.raises(InconsistentOracleError, match="exceeds lipschitz"):
        lipschitz(lambda x: (0.0, np.array([3.0, 4.0])), lipschitz=2.0, strict=True)(np.zeros(2))


def test_check_consistency_names_the_pair():
    wrapper = lipschitz()
    wrapper(np.zeros(2))
    wrapper(np.ones(2) * 0.5)
    assert wrapper.check_consistency(1e-12) <= 1e-12
    wrapper._log._values[0] -= 1.0  # as if a reply had been tampered with
    wrapper._log._offsets[0] -= 1.0
    assert wrapper.check_consistency() == pytest.approx(0.75)  # 0.25 - 0.5 - (-1)
    with pytest.raises(InconsistentOracleError, match="queries 0 and 1"):
        wrapper.check_consistency(1e-6)


# ---- the diameter


@pytest.mark.parametrize("kind", ["lipschitz", "smooth"])
def test_queries_beyond_the_diameter_warn_once_and_the_bound_uses_the_real_one(kind):
    f = quadratic(2, 1.0, 0)
    wrapper = (
        LipschitzOracle(f, 2, 0.1, 0.05, 2.0)
        if kind == "lipschitz"
        else SmoothOracle(f, 2, 0.1, 0.05, 1.0, diameter=2.0)
    )
    wrapper(np.zeros(2))
    wrapper(np.array([2.0, 0.0]))
    before = wrapper.certificate(np.zeros(2), 0.0)
    assert before.diameter == 2.0
    with pytest.warns(UserWarning, match="further than the declared diameter") as caught:
        drive(wrapper, [np.array([-2.0, 0.0]), np.array([-4.0, 0.0])])
    assert len(caught) == 1
    after = wrapper.certificate(np.zeros(2), 0.0)
    assert after.diameter == pytest.approx(6.0)
    assert wrapper.spread == pytest.approx(6.0)


def test_smooth_certificate_without_a_diameter_speaks_of_the_spread():
    wrapper = SmoothOracle(quadratic(2, 1.0, 0), 2, 0.1, 0.05, 1.0)
    wrapper(np.zeros(2))
    wrapper(np.array([0.3, 0.4]))
    assert wrapper.certificate(np.zeros(2), 0.0).diameter == pytest.approx(0.5)


def test_infinite_diameter_is_allowed_with_exact_gradients_only():
    f = max_affine(1, 4, 0)
    wrapper = LipschitzOracle(lambda x: (f(x)[0] + 0.01 * np.sin(9 * x[0]), f(x)[1]), 1, 0.01, 0.0, np.inf)
    for t in np.linspace(-50, 50, 40):
        wrapper(np.array([t]))
    assert wrapper.check_consistency() <= 1e-12 * 100
    certificate = wrapper.certificate(np.array([0.0]), algorithm_error=0.5)
    assert certificate.bound == pytest.approx(0.5 + 0.02, abs=1e-3)
    assert certificate.lower == -np.inf
    boxed = wrapper.certificate(np.array([0.0]), bounds=(-50.0, 50.0))
    assert -np.inf < boxed.lower <= min(f(np.array([t]))[0] for t in np.linspace(-50, 50, 2000))
    with pytest.raises(ValueError, match="diameter must be finite when eta_g > 0"):
        LipschitzOracle(f, 1, 0.0, 0.1, np.inf)


# ---- solver failure


def test_solver_failure_falls_back_counts_and_loosens_the_certificate(monkeypatch):
    f = max_affine(3, 8, 1)
    points = np.random.default_rng(0).uniform(-0.3, 0.3, (40, 3))

    def run(broken):
        with monkeypatch.context() as patch:
            if broken:
                patch.setattr("inexact_oracle.conic.largest_minimum", lambda *a: None)
            wrapper = LipschitzOracle(Adversarial(f, 0.1, 0.05, "alternate", 5), 3, 0.1, 0.05, 2.0, solver="clarabel")
            for x in points:
                wrapper(x)
        return wrapper

    whole, broken = run(False), run(True)
    assert whole.n_failures == 0
    assert broken.n_failures == broken.n_solves > 0
    assert broken.check_consistency() <= 1e-12
    seen = broken.replies
    worst = max(f(x)[0] - v for x, v in zip(seen.x, seen.V, strict=True))
    certificate = broken.certificate(points[0], 0.0)
    assert worst <= certificate.e_V + 1e-12
    assert certificate.e_V > whole.certificate(points[0], 0.0).e_V
    assert np.array_equal(seen.s[seen.kind == "new"], seen.raw_g[seen.kind == "new"])


def test_smooth_solver_failure_replies_an_extension(monkeypatch):
    f = quadratic(3, 10.0, 0)
    wrapper = SmoothOracle(Sign(f, 0.05, 0.02, 1), 3, 0.05, 0.02, 1.0)
    monkeypatch.setattr("inexact_oracle.conic.nearest_smooth", lambda *a: None)
    for x in np.random.default_rng(0).uniform(-0.3, 0.3, (25, 3)):
        wrapper(x)
    assert wrapper.n_failures == wrapper.n_solves > 0
    assert wrapper.check_consistency() <= 1e-6
    monkeypatch.setattr("inexact_oracle.conic.on_simplex", lambda *a: None)
    with pytest.raises(RuntimeError, match="failed to evaluate the extension"):
        wrapper.extension(np.zeros(3))
    count = wrapper.n_queries
    with pytest.raises(RuntimeError, match="no consistent reply"):
        drive(wrapper, np.random.default_rng(1).uniform(-0.3, 0.3, (25, 3)))
    assert len(wrapper.replies.V) == wrapper.n_queries >= count


# ---- kinds of x


@pytest.mark.parametrize("kind", [np.float32, np.float16])
@pytest.mark.parametrize(
    "make", [lipschitz, lambda: SmoothOracle(square, 2, 0.0, 0.0, 1.0)], ids=["lipschitz", "smooth"]
)
def test_low_precision_in_low_precision_out_float64_inside(make, kind):
    wrapper = make()
    x = np.array([0.5, -0.25], dtype=kind)
    value, grad = wrapper(x)
    assert type(value) is kind
    assert grad.dtype == kind
    assert wrapper.replies.x.dtype == wrapper.replies.V.dtype == np.float64
    again, _ = wrapper(x.astype(np.float64))
    assert isinstance(again, float)
    assert wrapper.n_queries == 1


def test_lists_integers_and_strided_points_are_one_query():
    wrapper = lipschitz()
    strided = np.stack([np.array([1.0, 0.0])] * 2, axis=1)[:, 0]
    for x in ([1, 0], np.array([1, 0]), np.array([1.0, -0.0]), strided):
        assert wrapper(x)[0] == 0.5
    assert wrapper.n_queries == 1


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.zeros(3), ValueError, r"x must have shape \(2,\), got \(3,\)"),
        (np.zeros((2, 1)), ValueError, "x must have shape"),
        (np.array([np.nan, 0.0]), ValueError, "x must be finite"),
        (np.array([1j, 0.0]), TypeError, "x must hold real numbers"),
        (0.0, ValueError, "x must have shape"),
    ],
)
@pytest.mark.parametrize(
    "make",
    [lipschitz, lambda: SmoothOracle(square, 2, 0.1, 0.1, 1.0), lambda: SeparationOracle(lambda x: None, 2, 0.1)],
    ids=["lipschitz", "smooth", "separation"],
)
def test_bad_points(make, x, error, message):
    with pytest.raises(error, match=message):
        make()(x)


def test_nearly_equal_points_do_no_harm():
    f = max_affine(2, 6, 0)
    for make in (
        lambda: LipschitzOracle(Sign(f, 0.1, 0.05, 1), 2, 0.1, 0.05, 2.0),
        lambda: SmoothOracle(Sign(quadratic(2, 3.0, 0), 0.1, 0.05, 1), 2, 0.1, 0.05, 1.0),
    ):
        wrapper = make()
        for k in range(12):
            wrapper(np.array([0.3, 0.1]) + 1e-12 * k)
            wrapper(np.array([0.3 + 1e-15 * k, -0.1]))
        seen = wrapper.replies
        assert np.isfinite(seen.V).all()
        assert np.abs(seen.s - seen.raw_g).max() < 1e3
        assert wrapper.check_consistency() <= 1e-6


def test_one_dimension_one_query():
    wrapper = LipschitzOracle(lambda x: (abs(float(x[0])), np.sign(x)), 1, 0.0, 0.0, np.inf)
    assert wrapper(np.array([2.0])) == (2.0, [1.0])
    assert wrapper.certificate(np.array([2.0]), 0.0).bound == 0.0


# ---- one query per point, threads, processes


def test_fun_and_grad_share_their_query():
    calls = []
    wrapper = lipschitz(lambda x: calls.append(1) or square(x))
    x = np.array([0.5, 0.5])
    assert wrapper.fun(x) == 0.25
    assert np.array_equal(wrapper.grad(x), x)
    assert wrapper.fun_and_grad(x)[0] == 0.25
    assert len(calls) == wrapper.n_queries == 1
    wrapper.reset()
    wrapper.fun(x)
    assert len(calls) == 2
    assert wrapper.n_queries == 1


def test_threads_are_served_one_after_the_other():
    f, inside = max_affine(3, 8, 0), []

    def slow(x):
        inside.append(1)
        assert len(inside) == 1
        value = f(x)
        threading.Event().wait(0.001)
        inside.pop()
        return value

    wrapper = LipschitzOracle(slow, 3, 0.1, 0.05, 4.0)
    points = np.random.default_rng(0).uniform(-1, 1, (40, 3))
    threads = [threading.Thread(target=lambda k=k: [wrapper(x) for x in points[k::4]]) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrapper.n_queries == 40
    assert wrapper.check_consistency() <= 1e-12


def test_another_process_is_refused(monkeypatch):
    wrapper = lipschitz()
    wrapper(np.zeros(2))
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="belongs to another process"):
        wrapper(np.ones(2))


@pytest.mark.parametrize("copy", [deepcopy, lambda w: pickle.loads(pickle.dumps(w))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("kind", ["lipschitz", "smooth", "separation"])
def test_copies_are_independent(copy, kind):
    make = {
        "lipschitz": lipschitz,
        "smooth": lambda: SmoothOracle(square, 2, 0.1, 0.1, 1.0),
        "separation": lambda: SeparationOracle(normal, 2, 0.1),
    }[kind]
    wrapper = make()
    wrapper(np.array([0.5, 0.0]))
    other = copy(wrapper)
    other(np.array([0.1, 0.0]))
    assert (wrapper.n_queries, other.n_queries) == (1, 2)


def normal(x):
    return np.array([1.0, 0.0])


# ---- project


def test_project_takes_rounding_off_and_refuses_more():
    wrapper = lipschitz(project=lambda x: np.clip(x, -1.0, 1.0))
    x = np.array([1.0 + 1e-12, 0.0])
    assert wrapper(x)[0] == 0.5
    assert wrapper(np.array([1.0, 0.0]))[0] == 0.5
    assert wrapper.n_queries == 1
    assert wrapper.certificate(x, 0.0).valid
    with pytest.raises(ValueError, match="up to rounding, got a point 0.5 outside"):
        wrapper(np.array([1.5, 0.0]))


# ---- arguments


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"eta_f": -0.1}, ValueError, "eta_f must be at least 0"),
        ({"eta_g": -1.0}, ValueError, "eta_g must be at least 0"),
        ({"eta_f": np.nan}, ValueError, "eta_f"),
        ({"eta_f": "1"}, TypeError, "eta_f"),
        ({"diameter": 0.0}, ValueError, "diameter must be greater than 0"),
        ({"diameter": -1.0}, ValueError, "diameter"),
        ({"dim": 0}, ValueError, "dim"),
        ({"dim": 1.5}, TypeError, "dim"),
        ({"lipschitz": 0.0}, ValueError, "lipschitz"),
        ({"slack": -1.0}, ValueError, "slack"),
        ({"solver": "mosek"}, ValueError, "solver must be one of 'auto', 'clarabel'"),
        ({"max_cuts": 0}, ValueError, "max_cuts"),
        ({"average": 0}, ValueError, "average"),
        ({"confidence": 1.0}, ValueError, "confidence"),
        ({"oracle": 3}, TypeError, "oracle must be callable"),
    ],
)
def test_lipschitz_arguments(options, error, message):
    with pytest.raises(error, match=message):
        lipschitz(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"smoothness": 0.0}, "smoothness"),
        ({"factor": 0.9}, "factor"),
        ({"slack": -1.0}, "slack"),
        ({"diameter": np.inf}, "diameter"),
    ],
)
def test_smooth_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        SmoothOracle(square, 2, 0.1, 0.1, **({"smoothness": 1.0} | options))


def test_smooth_without_room_has_no_transferred_bound():
    wrapper = SmoothOracle(square, 2, 0.1, 0.1, 1.0, factor=1.0, diameter=2.0)
    wrapper(np.zeros(2))
    certificate = wrapper.certificate(np.zeros(2), 0.0)
    assert certificate.bound == pytest.approx(certificate.value_upper - certificate.lower)
    with pytest.raises(RuntimeError, match="at least one query"):
        SmoothOracle(square, 2, 0.1, 0.1, 1.0).extension(np.zeros(2))
    with pytest.raises(ValueError, match="y must have shape"):
        wrapper.extension(np.zeros(3))
    with pytest.raises(ValueError, match="kind must be one of"):
        wrapper.extension(np.zeros(2), "middle")
    for model in (wrapper.model, lipschitz().model):
        with pytest.raises(ValueError, match=r"x must have shape \(..., 2\)"):
            model(np.zeros(3))
    assert lipschitz().model(np.zeros((4, 2))).tolist() == [-np.inf] * 4


@pytest.mark.parametrize(("eta_s", "rho"), [(1.0, 0.0), (-0.1, 0.0), (0.1, -1.0)])
def test_separation_arguments(eta_s, rho):
    with pytest.raises(ValueError, match=r"eta_s|rho"):
        SeparationOracle(normal, 2, eta_s, rho=rho)


def test_separation_answers():
    with pytest.raises(TypeError, match="callable"):
        SeparationOracle(None, 2, 0.1)
    wrapper = SeparationOracle(lambda x: np.array([2.0, 0.0]), 2, 0.1)
    with pytest.raises(ValueError, match="normal of length 2"):
        wrapper(np.zeros(2))
    assert wrapper.n_queries == 0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kelley(square, (-np.inf, 1.0), dim=2), "bounds must be finite"),
        (lambda: kelley(square, (1.0, -1.0), dim=2), "lower <= upper"),
        (lambda: kelley(square, (-1.0, 1.0), 0, dim=2), "T must be"),
        (lambda: level_bundle(square, (-1.0, 1.0), level=1.0, dim=2), "level"),
        (lambda: kelley(square, (-1.0, 1.0), dim=2, solver="simplex"), "solver must be"),
        (lambda: center_of_gravity(square, (-1.0, 1.0), 5, samples=0, dim=2), "samples"),
        (lambda: ellipsoid(square, np.zeros(2), np.inf, 5), "radius"),
        (lambda: ellipsoid(square, np.zeros(2), 1.0, 5, separation=lambda x: np.array([1.0, 0.0])), "made no query"),
        (lambda: projected_subgradient(square, [np.nan], 1.0, 5), "x0 must be a finite vector"),
        (lambda: projected_subgradient(square, np.zeros(2), 1.0, 5, lipschitz=0.0), "lipschitz"),
        (lambda: accelerated_gradient(square, np.zeros(2), 5), "smoothness must be given"),
        (lambda: outer_approximation(square, [0, 2], (-1, 1)), "vector of 0 and 1"),
        (lambda: outer_approximation(square, [1, 0], (0.2, 0.8)), "leave an integer"),
        (lambda: Box([0.0, 1.0], [1.0, 0.0]), "lower <= upper"),
        (lambda: Simplex(0), "dim"),
        (lambda: L1Ball(2, 0.0), "radius"),
        (lambda: NuclearBall((2, 2), 1.0)(np.zeros(3)), "grad must have shape"),
        (lambda: Simplex(2)(np.array([np.nan, 0.0])), "grad must be finite"),
        (lambda: Adversarial(square, 0.1, 0.1, "sideways"), "mode must be one of"),
        (lambda: Uniform(square, -0.1, 0.1), "eta_f"),
        (lambda: Quantized(square, 2, 60, 1.0, 1.0), "bits"),
        (lambda: Quantized(square, 2, 8, 0.0, 1.0), "value_range"),
        (lambda: Quantized(square, 2, 8, 1.0, 0.0), "grad_range"),
        (lambda: Quantized(square, 2, 8, 1.0, 1.0)(np.array([3.0, 0.0])), "to be quantised"),
        (lambda: Truncated(lambda x, y: (0, x, y), np.zeros(1), 3, mu=2.0, smoothness=1.0, coupling=1, radius=1), "mu"),
        (lambda: FiniteDifference(lambda x: 0.0, 2, 0.0, 1.0), "h must be"),
        (lambda: Replay(np.zeros((3, 2)), np.zeros(2), np.zeros((3, 2))), "must have shapes"),
        (lambda: smallest_errors(np.zeros((3, 2)), np.zeros(2), np.zeros((3, 2)), ratio=1.0), "must have shapes"),
    ],
)
def test_arguments_of_algorithms_and_oracles(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda o: scipy_minimize(o, np.zeros(2)),
        lambda o: accelerated_gradient(o, np.zeros(2), 3, smoothness=1.0),
        lambda o: frank_wolfe(o, Simplex(2), 3),
    ],
    ids=["scipy", "accelerated", "frank-wolfe"],
)
def test_smooth_algorithms_warn_about_the_piecewise_linear_wrapper(call):
    with pytest.warns(UserWarning, match="Use SmoothOracle"):
        call(lipschitz(diameter=10.0))


def test_naive_noise_makes_bounds_cross_and_the_wrapper_does_not():
    f = max_affine(4, 10, 3)
    noisy = Adversarial(f, 0.05, 0.05, "alternate", 9)
    naive = kelley(noisy, (-0.5, 0.5), 60, dim=4)
    assert naive.status == "crossed"
    assert naive.lower > naive.value
    wrapped = kelley(LipschitzOracle(Adversarial(f, 0.05, 0.05, "alternate", 9), 4, 0.05, 0.05, 2.0), (-0.5, 0.5), 60)
    assert wrapped.status in ("converged", "budget")
    assert wrapped.lower <= wrapped.value + 1e-6


def test_a_missing_solver_is_named_with_the_command_that_adds_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    with pytest.raises(ImportError, match=r'pip install "inexact-oracle\[highs\]"'):
        kelley(square, (-1.0, 1.0), dim=2, solver="highspy")
