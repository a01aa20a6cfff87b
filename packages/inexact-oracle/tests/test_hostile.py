"""What a hostile user tried: each case must be refused by name, or answered rightly, with the state unchanged."""

import ctypes
import json
import os
import sys
import warnings

import numpy as np
import pytest
from inexact_oracle import (
    ConsistencyWarning,
    InconsistentOracleError,
    LipschitzOracle,
    SeparationOracle,
    SmoothOracle,
    conic,
    lift,
    masters,
)
from inexact_oracle.algorithms import (
    center_of_gravity,
    ellipsoid,
    kelley,
    level_bundle,
    outer_approximation,
    projected_subgradient,
)
from inexact_oracle.data import max_affine, quadratic
from inexact_oracle.noise import Adversarial
from safetensors import safe_open
from safetensors.numpy import load_file, save_file


def square(x):
    return float(x @ x) / 2, x.copy()


def drive(oracle, points):
    for x in points:
        oracle(x)


def disc(x):
    return None if x @ x <= 1 else x / np.linalg.norm(x)


def lipschitz(oracle=square, **options):
    return LipschitzOracle(oracle, 2, **({"eta_f": 0.01, "eta_g": 0.01, "diameter": 6.0} | options))


def smooth(oracle=square, **options):
    return SmoothOracle(oracle, 2, **({"eta_f": 0.01, "eta_g": 0.01, "smoothness": 1.0} | options))


def separation(oracle=disc, **options):
    return SeparationOracle(oracle, 2, 0.01, **options)


both = pytest.mark.parametrize("make", [lipschitz, smooth])
POINTS = np.random.default_rng(3).uniform(-1.0, 1.0, (12, 2))


def state(wrapper):
    """Everything but the lock, with arrays as bytes."""
    kept = {name: value for name, value in vars(wrapper).items() if name not in ("_lock", "_log", "_asked")}
    return repr(kept), repr(wrapper.replies) if hasattr(wrapper, "replies") else repr(wrapper.cuts)


# ---- numbers that are none


@both
@pytest.mark.parametrize(
    "x",
    [
        np.ma.array([1.0, 2.0], mask=[False, True]),
        ["1", "2"],
        [True, False],
        [1j, 2.0],
        np.array([1.0, 2.0], dtype=object),
    ],
    ids=["masked", "texts", "truths", "complex", "objects"],
)
def test_points_of_other_kinds(make, x):
    with pytest.raises(TypeError, match="x must hold real numbers"):
        make()(x)


@both
def test_entries_whose_square_overflows(make):
    huge = np.array([1e160, 0.0])
    with pytest.raises(ValueError, match="beyond 1e154"):
        make()(huge)
    oracle = make(lambda x: (0.0, huge))
    with pytest.raises(ValueError, match="at query 1, or an entry beyond 1e154"):
        oracle(np.zeros(2))
    assert oracle.n_queries == 0


@both
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (("1.0", np.zeros(2)), "no number at query 1: '1.0'"),
        ((np.complex128(1 + 1j), np.zeros(2)), "no number at query 1"),
        ((1.0, np.array([1j, 0.0])), "gradient that is no array of real numbers at query 1"),
        ((1.0, ["1", "2"]), "gradient that is no array of real numbers at query 1"),
        ((1.0, np.ma.array([1.0, 2.0], mask=[False, True])), "gradient that is no array of real numbers at query 1"),
    ],
)
def test_answers_of_other_kinds(make, answer, message):
    oracle = make(lambda x: answer)
    with pytest.raises(ValueError, match=message):
        oracle(np.zeros(2))
    assert oracle.n_queries == 0


@pytest.mark.parametrize("answer", [True, False, np.ones(3), np.array([np.nan, 0.0])])
def test_a_separation_oracle_answers_none_or_a_normal(answer):
    with pytest.raises(ValueError, match="oracle returned a normal"):
        separation(lambda x: answer)(np.zeros(2))


@pytest.mark.parametrize(
    "run",
    [
        lambda o: kelley(o, (-1, 1), 3, dim=2),
        lambda o: center_of_gravity(o, (-1, 1), 3, dim=2),
        lambda o: projected_subgradient(o, np.ones(2), 1.0, 3),
    ],
)
def test_algorithms_refuse_nan_from_an_oracle_without_wrapper(run):
    answers = iter([(0.5, np.ones(2)), (np.nan, np.ones(2))])
    with pytest.raises(ValueError, match="value nan at query 2"):
        run(lambda x: next(answers))


# ---- arguments


@both
@pytest.mark.parametrize("result", [np.zeros(1), 1.0, np.array([np.nan, 0.0]), None])
def test_a_projection_returns_a_finite_point(make, result):
    oracle = make(project=lambda x: result)
    with pytest.raises(ValueError, match=r"project must return a finite vector \(2,\)"):
        oracle(np.zeros(2))


@pytest.mark.parametrize("make", [lipschitz, smooth, separation])
def test_kinds_of_options(make):
    with pytest.raises(TypeError, match="strict"):
        make(strict="no")
    with pytest.raises(TypeError, match="oracle must be callable"):
        make(3)
    if make is not separation:
        with pytest.raises(TypeError, match="project must be callable"):
            make(project=3)


@pytest.mark.parametrize("name", ["eta_f", "eta_g", "smoothness"])
def test_units_that_vanish_when_squared(name):
    with pytest.raises(ValueError, match=f"{name} must be .* Change the units"):
        smooth(**{name: 1e-200})
    scale = 1e-90
    noisy = Adversarial(lambda x: (scale * square(x)[0], scale * x), 0.01 * scale, 0.01 * scale, "alternate", 0)
    oracle = smooth(noisy, eta_f=0.01 * scale, eta_g=0.01 * scale, smoothness=scale)
    for x in POINTS:
        oracle(x)
    assert oracle.n_solves > 0
    assert oracle.check_consistency() <= 1e-9 * scale


def test_an_infinite_slack_would_accept_everything():
    with pytest.raises(ValueError, match="slack"):
        lipschitz(slack=np.inf)
    with pytest.raises(ValueError, match="slack"):
        smooth(slack=np.inf)


@both
@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"algorithm_error": np.nan}, ValueError, "algorithm_error"),
        ({"algorithm_error": -1.0}, ValueError, "algorithm_error"),
        ({"algorithm_error": "small"}, TypeError, "algorithm_error"),
        ({"bounds": (1.0, -1.0)}, ValueError, "lower <= upper"),
        ({"bounds": (np.nan, 1.0)}, ValueError, "lower <= upper"),
        ({"bounds": (np.zeros(3), 1.0)}, ValueError, r"vectors \(2,\), got shapes \(3,\)"),
        ({"bounds": (0.0,)}, TypeError, r"a pair \(lower, upper\)"),
        ({"bounds": 1.0}, TypeError, r"a pair \(lower, upper\)"),
    ],
)
def test_certificates_of_nonsense(make, options, error, message):
    oracle = make()
    with pytest.raises(error, match=message):
        oracle.certificate(np.zeros(2), **options)
    assert oracle.n_queries == 0


@both
def test_boxes_of_certificates_may_be_scalar_or_half_infinite(make):
    oracle = make(lambda x: (-float(x.sum()), -np.ones(2)), diameter=4.0)
    whole = oracle.certificate(np.zeros(2), bounds=(-1.0, 1.0))
    assert oracle.certificate(np.zeros(2), bounds=(np.full(2, -1.0), [1.0])) == whole
    # -x_1 - x_2 less eta_f + eta_g D, over the box and over the ball of radius D
    assert whole.lower == pytest.approx(-2.0 - 0.05, abs=1e-6)
    assert oracle.certificate(np.zeros(2), bounds=(-1.0, np.inf)).lower == pytest.approx(-4 * 2**0.5 - 0.05, abs=1e-6)
    assert oracle.certificate(np.zeros(2), bounds=(-np.inf, 0.5)).lower == pytest.approx(-1.0 - 0.05, abs=1e-6)


def test_smooth_certificate_over_a_box_reaches_its_corners():
    """One query far from the minimum, no declared diameter: the spread is 0, the box is not."""
    oracle = smooth(eta_f=0.01, eta_g=0.02)
    x = np.array([1.0, 0.5])
    certificate = oracle.certificate(x, bounds=(-1.0, 2.0))
    assert certificate.diameter == pytest.approx(np.hypot(2.0, 1.5))
    assert certificate.bound >= square(x)[0]
    # the cut 0.625 + <x, y - x> at the corner (-1, -1), less both errors: eta_f below, eta_g D
    assert certificate.lower == pytest.approx(0.625 - 2.0 - 0.75 - 0.01 - 0.02 * 2.5, abs=1e-6)
    exact = smooth(eta_f=0.01, eta_g=0.0)
    assert exact.certificate(x, 0.0, bounds=(-np.inf, np.inf)).bound == pytest.approx(0.02)
    assert oracle.certificate(x, bounds=(-np.inf, np.inf)).bound == np.inf


@pytest.mark.parametrize("method", [kelley, level_bundle])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bounds": (np.zeros(3), 1.0)}, r"vectors \(2,\), got shapes \(3,\)"),
        ({"bounds": (-1, 1), "x0": [np.nan, 0.0]}, "x0 must be a finite vector"),
        ({"bounds": (-1, 1), "x0": [0.0, 0.0, 0.0]}, r"x0 must have shape \(2,\)"),
    ],
)
def test_starts_and_boxes_that_do_not_fit(method, options, message):
    with pytest.raises(ValueError, match=message):
        method(square, T=3, dim=2, **options)


@pytest.mark.parametrize("method", [kelley, level_bundle])
def test_a_start_outside_of_the_box_is_moved_into_it(method):
    asked = []
    method(lambda x: (asked.append(x.copy()), square(x))[1], (-1, 1), 1, x0=[3.0, 0.5], dim=2)
    assert asked[0].tolist() == [1.0, 0.5]


# ---- what is left when there is nothing left


def test_localisation_says_when_nothing_is_left():
    found = center_of_gravity(square, (1.0, 1.0), 5, dim=2)
    assert (found.status, found.nquery) == ("converged", 1)
    slope = np.array([1e-200, 0.0])
    found = ellipsoid(lambda x: (1.0, slope), np.zeros(2), 1e-120, 50, tol=0.0)
    assert found.status == "converged"
    assert found.nquery < 50


# ---- refused answers leave no trace


@pytest.mark.parametrize("make", [lipschitz, smooth, separation])
def test_strict_mode_leaves_no_trace(make):
    gen = np.random.default_rng(0)
    if make is separation:
        turn = iter([None, *[np.array([1.0, 0.0])] * 11])
        oracle = separation(lambda x: next(turn), strict=True)
    else:
        oracle = make(lambda x: (gen.normal(), gen.normal(size=2)), strict=True)
    refused = 0
    for x in POINTS[np.argsort(-POINTS[:, 0])]:
        before = state(oracle)
        try:
            oracle(x)
        except InconsistentOracleError:
            refused += 1
            assert state(oracle) == before
    assert refused >= 5


@pytest.mark.parametrize("make", [lipschitz, smooth])
def test_warnings_name_the_line_of_the_caller(make):
    oracle = make(lambda x: (-float(x @ x), -2.0 * x))
    ask = [lambda: oracle(POINTS[0]), lambda: oracle.fun(POINTS[1]), lambda: oracle.certificate(POINTS[2])]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in ask:
            call()
    assert [warning.category for warning in caught] == [ConsistencyWarning]
    assert caught[0].filename == __file__


def test_the_errors_that_a_warning_names_keep_the_declared_ratio():
    oracle = lipschitz(lambda x: (-float(x @ x), -2.0 * x), eta_f=0.01, eta_g=0.003)
    with pytest.warns(ConsistencyWarning) as caught:
        drive(oracle, POINTS)
    eta_f, eta_g = (float(part.split()[0].rstrip(".")) for part in str(caught[0].message).split(">= ")[1:])
    assert eta_f > 0.01
    assert eta_g == pytest.approx(0.3 * eta_f, rel=0.01)


def test_separation_warnings_name_the_line_of_the_caller():
    turn = iter([None, np.array([1.0, 0.0])])
    oracle = separation(lambda x: next(turn))
    oracle(np.array([0.5, 0.0]))
    with pytest.warns(ConsistencyWarning) as caught:
        oracle(np.array([-0.5, 0.0]))
    assert caught[0].filename == __file__


def test_a_fork_of_the_separation_wrapper_is_refused(monkeypatch):
    wrapper = separation()
    wrapper(np.ones(2))
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)
    with pytest.raises(RuntimeError, match="belongs to another process"):
        wrapper(np.zeros(2))


# ---- tiny and inaccurate programs


@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e-60])
def test_two_rows_in_any_unit_of_length(unit):
    """Rows 0.4 + <u, (1, 1)> and 0.5 + <u, (-1, 2)>, target 5, |u| <= 1: both rows equal, on the sphere."""
    heights, steps = unit * np.array([0.4, 0.5]), unit * np.array([[1.0, 1.0], [-1.0, 2.0]])
    u, value = lift._two_rows(heights, steps, 5.0 * unit, 1.0)
    assert u @ u == pytest.approx(1.0)
    assert (heights + steps @ u) / unit == pytest.approx(np.full(2, value / unit))
    others = np.random.default_rng(0).standard_normal((2000, 2))
    others /= np.linalg.norm(others, axis=1, keepdims=True)
    assert (heights + others @ steps.T).min(axis=1).max() <= value * (1 + 1e-9)


def test_an_inaccurate_conic_answer_is_noticed(monkeypatch):
    """The solver stops early at a point that misses its rows: the reply is taken from elsewhere, and counted."""
    f = quadratic(2, 30.0, 5)
    oracle = smooth(Adversarial(f, 0.01, 0.01, "alternate", 1), diameter=4.0)
    for x in POINTS[:8]:
        oracle(x)
    solves, failures = oracle.n_solves, oracle.n_failures
    assert solves > 0
    accurate = conic.nearest_smooth

    def early(rows, sides, prices):
        best = accurate(rows, sides, prices)
        z = best.z.copy()
        z[1:3] += 2.0
        return best._replace(z=z)

    monkeypatch.setattr(conic, "nearest_smooth", early)
    for x in POINTS[8:]:
        oracle(x)
    assert oracle.n_failures - failures == oracle.n_solves - solves > 0
    assert oracle.check_consistency() <= 1e-7


def test_a_reply_next_to_a_known_point_needs_no_solver(monkeypatch):
    f = quadratic(2, 30.0, 5)
    oracle = smooth(Adversarial(f, 0.01, 0.01, "alternate", 1), diameter=4.0)
    oracle(POINTS[0])
    oracle(POINTS[1])
    monkeypatch.setattr(conic, "nearest_smooth", lambda *a: None)
    monkeypatch.setattr(conic, "on_simplex", lambda *a: None)
    failures = oracle.n_failures
    value, grad = oracle(POINTS[1] + 1e-13)
    assert oracle.n_failures == failures + 1
    assert value == pytest.approx(oracle.replies.V[1], abs=1e-12)
    assert np.array_equal(grad, oracle.replies.s[1])
    assert oracle.check_consistency() <= 1e-12


@pytest.mark.parametrize("gap", [1e-9, 1e-13, 1e-16])
def test_smooth_replies_of_a_line_search_that_stands_still(gap):
    """An adversary that alternates, asked again and again at points that nearly coincide."""
    f = quadratic(4, 30.0, 5)
    oracle = SmoothOracle(Adversarial(f, 0.01, 0.0025, "alternate", 1), 4, 0.01, 0.0025, 1.0, diameter=4.0)
    gen = np.random.default_rng(0)
    for x in gen.uniform(-1, 1, (6, 4)):
        oracle(x)
    for _ in range(40):
        oracle(f.centre + gap * gen.standard_normal(4))
    assert oracle.check_consistency() <= 1e-6
    assert np.abs(oracle.replies.s).max() < 10.0


# ---- files


def tampered(path, edit_config=None, edit_arrays=None):
    """The saved file with its header or arrays changed."""
    arrays = load_file(path)
    with safe_open(path, "np") as file:
        header = dict(file.metadata())
    content = json.loads(header["offprints"])
    if edit_config:
        edit_config(content["config"])
    if edit_arrays:
        edit_arrays(arrays)
    header["offprints"] = json.dumps(content)
    other = path.with_name("tampered.safetensors")
    save_file(arrays, other, metadata=header)
    return other


@pytest.mark.parametrize("make", [lipschitz, smooth, separation])
@pytest.mark.parametrize(
    "edit",
    [
        lambda c: c.pop("counters"),
        lambda c: c["counters"].pop("n_queries"),
        lambda c: c["counters"].update(fun=3),
        lambda c: c["arguments"].update(dim=3),
        lambda c: c["arguments"].update(colour="red"),
    ],
    ids=["counters", "one counter", "an attribute", "dim", "an argument"],
)
def test_headers_that_do_not_fit(tmp_path, make, edit):
    oracle = make()
    for x in 2 * POINTS:
        oracle(x)
    path = tampered(oracle.save(tmp_path / "saved"), edit_config=edit)
    with pytest.raises(ValueError, match=r"tampered.safetensors must hold a whole saved wrapper, got .*[^.]\.$"):
        type(oracle).load(path, oracle.oracle)


@pytest.mark.parametrize(
    ("make", "name", "change"),
    [
        (lipschitz, "V", lambda a: a.__setitem__(0, np.nan)),
        (lipschitz, "x", None),
        (smooth, "s", lambda a: np.ascontiguousarray(a[:3])),
        (smooth, "origin", lambda a: np.zeros(3)),
        (separation, "rows", lambda a: a + 100),
        (separation, "rows", lambda a: a[:2].copy()),
        (separation, "cut_points", lambda a: np.ascontiguousarray(a[:1])),
        (separation, "feasible", lambda a: np.full_like(a, np.inf)),
        (separation, "known", None),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, make, name, change):
    oracle = make()
    for x in 2 * POINTS:
        oracle(x)

    def edit(arrays):
        if change is None:
            del arrays[name]
        elif (changed := change(arrays[name])) is not None:
            arrays[name] = changed

    path = tampered(oracle.save(tmp_path / "saved"), edit_arrays=edit)
    with pytest.raises(ValueError, match="must hold a whole saved wrapper"):
        type(oracle).load(path, oracle.oracle)


@pytest.mark.parametrize("window", [None, 5])
def test_a_count_that_does_not_go_with_the_rows(tmp_path, window):
    oracle = lipschitz(max_cuts=window)
    for x in POINTS:
        oracle(x)
    path = oracle.save(tmp_path / "saved")
    assert LipschitzOracle.load(path, square).replies.V.tolist() == oracle.replies.V.tolist()
    with pytest.raises(ValueError, match="does not go with a count of 3"):
        LipschitzOracle.load(tampered(path, edit_config=lambda c: c.update(count=3)), square)


# ---- silence


def test_mixed_integer_solves_print_nothing(capfd):
    """A run in which HiGHS 1.12 prints lines of its own."""
    f, diameter = max_affine(5, 12, 4337341518007986616), 6 * 5**0.5
    noisy = Adversarial(f, 0.05, 0.05 / diameter, "rotate", 8696373557026637152)
    oracle = LipschitzOracle(noisy, 5, 0.05, 0.05 / diameter, diameter)
    found = outer_approximation(oracle, [1, 1, 0, 0, 0], (-3, 3), 150)
    ctypes.CDLL(None).fflush(None)
    assert found.nquery > 5
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(os.name != "posix", reason="needs the C library by its POSIX name")
def test_only_the_solvers_lines_are_kept_back(capfd):
    library, write = ctypes.CDLL(None), lambda text: sys.stdout.write(text + "\n")
    write("before")
    with masters.without_solver_lines():
        library.printf(b"HighsMipSolverData::transformNewIntegerFeasibleSolution tmpSolver.run();\n")
        library.printf(b"from C\n")
        write("from another thread")
    write("after")
    sys.stdout.flush()
    assert set(capfd.readouterr().out.split("\n")) == {"before", "from C", "from another thread", "after", ""}


def test_output_comes_back_after_a_failure(capfd):
    with pytest.raises(KeyError), masters.without_solver_lines():
        raise KeyError
    os.write(1, b"still here\n")
    assert capfd.readouterr().out == "still here\n"


def test_without_standard_output_masters_are_solved_all_the_same(monkeypatch):
    def closed(number):
        raise OSError("bad file descriptor")

    monkeypatch.setattr(os, "dup", closed)
    found = outer_approximation(square, [1, 0], (-2, 3), 40)
    assert found.value == pytest.approx(0.0, abs=1e-6)


def test_masters_that_were_not_solved_are_named(monkeypatch):
    class Failed:
        x, message = None, "out of luck"

    monkeypatch.setattr(masters.optimize, "milp", lambda *a, **k: Failed())
    with pytest.raises(RuntimeError, match="out of luck"):
        outer_approximation(square, [1, 0], (-2, 3), 40)
