"""One run of every claim: problem, noise, naive run, wrapped run, and what the theorem says about it.

The noise is drawn independently of the problem (two streams spawned from the seed), and everything is reported in units
of eta: eta_f = eta, eta_g = eta / D.
"""

from collections.abc import Callable

import numpy as np
from offprints.seeding import rng, spawn

from inexact_oracle import algorithms
from inexact_oracle.algorithms import Result
from inexact_oracle.algorithms.cuts import MASTER_TOLERANCE
from inexact_oracle.data import (
    MaxAffine,
    NoisySeparation,
    Polytope,
    breast_cancer,
    max_affine,
    quadratic,
)
from inexact_oracle.lipschitz import LipschitzOracle
from inexact_oracle.noise import Adversarial, Noisy, Sign, Uniform
from inexact_oracle.oracle import FirstOrderOracle
from inexact_oracle.points import Vector
from inexact_oracle.separation import SeparationOracle
from inexact_oracle.smooth import SmoothOracle

Metrics = dict[str, float | list[float]]
MODES = ("alternate", "up", "rotate", "lookahead")
HORIZONS = (50, 200, 800)
CURVES = ("subgradient", "kelley", "level", "ellipsoid")
NONSMOOTH = ("subgradient", "kelley", "level", "ellipsoid", "gravity", "milp")


def ball_points(count: int, dim: int, gen: np.random.Generator) -> Vector:
    """Uniform points of the unit ball, (count, dim)."""
    x = gen.standard_normal((count, dim))
    return x * gen.random((count, 1)) ** (1.0 / dim) / np.linalg.norm(x, axis=1, keepdims=True)


# ---- piecewise linear


def transfer(seed: int, dim: int, pieces: int, queries: int, points: int) -> Metrics:
    """Projected subgradient on the unit ball (D = 2) under each adversary; the worst of each measure."""
    eta, (first, second) = 0.05, spawn(seed, 2)
    f = max_affine(dim, pieces, first)
    best, others = f.minimum_on_ball(1.0), ball_points(points, dim, rng(second))
    values = (others @ f.a.T + f.b).max(axis=1)
    rows = []
    for mode in MODES:
        oracle = LipschitzOracle(Adversarial(f, eta, eta / 2.0, mode, second), dim, eta, eta / 2.0, 2.0)
        result = algorithms.projected_subgradient(oracle, np.zeros(dim), 1.0, queries)
        seen = oracle.replies
        truth = (seen.x @ f.a.T + f.b).max(axis=1)
        rows.append(
            (
                oracle.check_consistency() / float(np.abs(seen.V).max()),
                float((truth - seen.V).max()) / eta,
                float((oracle.model(others) - values).max()) / eta,
                (f(result.x)[0] - best) / eta,
            )
        )
    worst = np.max(rows, axis=0)
    return {
        "inconsistency": worst[0],
        "rounding": 1e-12,
        "value_gap": worst[1],
        "declared": 1.0,
        "model_gap": worst[2],
        "model_limit": 3.0,
        "error": worst[3],
        "theorem": (f.lipschitz + eta) / (np.sqrt(queries) * eta) + 4.0,
    }


def growth(seed: int, dim: int, pieces: int, shrink: int) -> Metrics:
    """max(f - V) / eta, the worst over adversaries, for longer and longer runs."""
    eta, (first, second) = 0.05, spawn(seed, 2)
    f = max_affine(dim, pieces, first)
    found: Metrics = {"declared": 1.0}
    for horizon in HORIZONS:
        gaps = []
        for mode in MODES:
            oracle = LipschitzOracle(Adversarial(f, eta, eta / 2.0, mode, second), dim, eta, eta / 2.0, 2.0)
            algorithms.projected_subgradient(oracle, np.zeros(dim), 1.0, horizon // shrink)
            seen = oracle.replies
            gaps.append(float(((seen.x @ f.a.T + f.b).max(axis=1) - seen.V).max()) / eta)
        found[f"value_gap_{horizon}"] = max(gaps)
    return found


Run = Callable[[FirstOrderOracle], Result]


def _nonsmooth(dim: int, queries: int) -> dict[str, tuple[Run, Callable[[MaxAffine], float]]]:
    """Name -> (algorithm on sets inside the unit ball, minimum of a MaxAffine over the same set)."""
    side, centre = 1.0 / np.sqrt(dim), np.zeros(dim)
    kinds = np.eye(1, dim, dtype=int)[0]
    on_ball = lambda f: f.minimum_on_ball(1.0)  # noqa: E731
    on_box = lambda f: f.minimum_on_box(-side, side)  # noqa: E731
    on_lattice = lambda f: f.minimum_on_box(-side, side, kinds)  # noqa: E731
    box = (-side, side)
    return {
        "subgradient": (lambda o: algorithms.projected_subgradient(o, centre, 1.0, queries), on_ball),
        "kelley": (lambda o: algorithms.kelley(o, box, queries, dim=dim), on_box),
        "level": (lambda o: algorithms.level_bundle(o, box, queries, dim=dim), on_box),
        "ellipsoid": (lambda o: algorithms.ellipsoid(o, centre, 1.0, queries), on_ball),
        "gravity": (lambda o: algorithms.center_of_gravity(o, box, queries // 2, dim=dim), on_box),
        "milp": (lambda o: algorithms.outer_approximation(o, kinds, box, queries), on_lattice),
    }


def every_algorithm(seed: int, dim: int, pieces: int, queries: int) -> Metrics:
    """f(x) - min f and its bound F(x) - min F + 4 eta, at the adversary where they are closest; curves for one."""
    eta, (first, second) = 0.05, spawn(seed, 2)
    f = max_affine(dim, pieces, first)
    found: Metrics = {}
    for name, (run, minimum) in _nonsmooth(dim, queries).items():
        best, tightest = minimum(f), np.inf
        for mode in MODES:
            oracle = LipschitzOracle(Adversarial(f, eta, eta / 2.0, mode, second), dim, eta, eta / 2.0, 2.0)
            result = run(oracle)
            seen = oracle.replies
            model = MaxAffine(seen.s, seen.V - np.einsum("ij,ij->i", seen.s, seen.x))
            error = (f(result.x)[0] - best) / eta
            limit = (float(oracle.model(result.x)) - minimum(model)) / eta + 4.0
            if limit - error < tightest:
                tightest, found[f"error_{name}"], found[f"bound_{name}"] = limit - error, error, limit
        if name in CURVES:
            noisy = [Adversarial(f, eta, eta / 2.0, "alternate", second) for _ in range(2)]
            wrapped = LipschitzOracle(noisy[1], dim, eta, eta / 2.0, 2.0)
            for kind, oracle in (("naive", noisy[0]), ("wrapped", wrapped), ("exact", f)):
                found[f"{name}_{kind}"] = error_curve(run, oracle, f, best, queries, eta)
    return found


def error_curve(
    run: Run,
    oracle: FirstOrderOracle,
    f: FirstOrderOracle,
    best: float,
    queries: int,
    eta: float,
) -> list[float]:
    """True error / eta of the point that the algorithm holds best (by the replies), query by query."""
    held, errors = np.inf, []

    def watched(x: Vector) -> tuple[float, Vector]:
        nonlocal held
        value, grad = oracle(x)
        if value < held or not errors:
            held = value
            errors.append((f(x)[0] - best) / eta)
        else:
            errors.append(errors[-1])
        return value, grad

    run(watched)
    return (errors + [errors[-1]] * queries)[:queries]


def cutting_planes(seed: int, dim: int, pieces: int, queries: int) -> Metrics:
    """Kelley on [-1, 1]^d and outer approximation on [-3, 3]^d with two integers; eta_g = eta / D of each box."""
    eta, (first, second) = 0.05, spawn(seed, 2)
    f = max_affine(dim, pieces, first)
    kinds = (np.arange(dim) < 2).astype(int)
    found: Metrics = {"trials": float(len(MODES)), "four": 4.0}
    for name, side in (("kelley", 1.0), ("milp", 3.0)):
        diameter = 2.0 * side * float(np.sqrt(dim))
        best = f.minimum_on_box(-side, side, kinds if name == "milp" else None)
        crossed, errors = {"naive": 0, "wrapped": 0}, []
        for mode in MODES:
            noisy = Adversarial(f, eta, eta / diameter, mode, second)
            naive = _cut(name, noisy, kinds, side, queries)
            noisy = Adversarial(f, eta, eta / diameter, mode, second)
            wrapped = _cut(name, LipschitzOracle(noisy, dim, eta, eta / diameter, diameter), kinds, side, queries)
            crossed["naive"] += naive.status == "crossed"
            crossed["wrapped"] += wrapped.lower > wrapped.value + MASTER_TOLERANCE * (1.0 + abs(wrapped.value))
            left = max(wrapped.value - wrapped.lower, 0.0)
            errors.append((f(wrapped.x)[0] - best - left) / eta)
            if name == "kelley" and mode == "alternate":
                for kind, result in (("naive", naive), ("wrapped", wrapped)):
                    found[f"{kind}_upper"] = ((result.history.upper - best) / eta).tolist()
                    found[f"{kind}_lower"] = ((result.history.lower - best) / eta).tolist()
        found[f"{name}_naive_crossed"] = float(crossed["naive"])
        found[f"{name}_wrapped_crossed"] = float(crossed["wrapped"])
        found[f"{name}_error"] = max(errors)
    return found


def _cut(name: str, oracle: FirstOrderOracle, kinds: Vector, side: float, queries: int) -> Result:
    if name == "kelley":
        return algorithms.kelley(oracle, (-side, side), queries, dim=len(kinds))
    return algorithms.outer_approximation(oracle, kinds, (-side, side), queries)


# ---- smooth


def _noises(f: FirstOrderOracle, eta: float, eta_g: float, seed: int) -> dict[str, Noisy]:
    """Two zero-mean and two adversarial kinds of noise."""
    return {
        "uniform": Uniform(f, eta, eta_g, seed),
        "sign": Sign(f, eta, eta_g, seed),
        "alternate": Adversarial(f, eta, eta_g, "alternate", seed),
        "lookahead": Adversarial(f, eta, eta_g, "lookahead", seed),
    }


def solver(method: str, seed: int, dim: int, condition: float, problems: int) -> Metrics:
    """A solver of scipy on quadratics over [-1, 1]^d from a corner: the worst of four noises, mean over problems."""
    eta, diameter = 1e-3, 2.0 * float(np.sqrt(dim))
    start, eta_g = -np.ones(dim), 1e-3 / 2.0
    naive, wrapped, successes = [], [], 0
    for stream in spawn(seed, problems):
        first, second = spawn(stream, 2)
        f = quadratic(dim, condition, first)
        errors: dict[str, list[float]] = {"naive": [], "wrapped": []}
        for name, noisy in _noises(f, eta, eta_g, second).items():
            result = algorithms.scipy_minimize(noisy, start, method=method, bounds=(-1.0, 1.0))
            if result.status.startswith("success"):
                successes += 1
                errors["naive"].append(f(result.x)[0] / eta)
            again = _noises(f, eta, eta_g, second)[name]
            oracle = SmoothOracle(again, dim, eta, eta_g, 1.0, diameter=diameter)
            result = algorithms.scipy_minimize(oracle, start, method=method, bounds=(-1.0, 1.0))
            errors["wrapped"].append(f(result.x)[0] / eta)
        naive.append(max(errors["naive"], default=0.0))
        wrapped.append(max(errors["wrapped"]))
    return {
        "naive": float(np.mean(naive)),
        "wrapped": float(np.mean(wrapped)),
        "naive_max": max(naive),
        "wrapped_max": max(wrapped),
        "naive_success": successes / (4.0 * problems),
    }


def accelerated(seed: int, dim: int, condition: float, steps: int) -> Metrics:
    """Accelerated gradient through the wrapper at step 1/(2L), against the same on the exact function."""
    eta, (first, second) = 1e-3, spawn(seed, 2)
    f = quadratic(dim, condition, first)
    start = np.ones(dim)
    diameter = 2.0 * float(np.linalg.norm(start - f.centre))
    exact = algorithms.accelerated_gradient(f, start, steps, smoothness=2.0).value
    rows = []
    for noisy in _noises(f, eta, eta / diameter, second).values():
        oracle = SmoothOracle(noisy, dim, eta, eta / diameter, 1.0, diameter=diameter)
        result = algorithms.accelerated_gradient(oracle, start, steps)
        seen = oracle.replies
        shift = float(np.abs(seen.V - seen.raw_f).max()) / eta
        rows.append((oracle.check_consistency(), shift, f(result.x)[0] / eta))
    worst = np.max(rows, axis=0)
    noisy, again = (_noises(f, eta, eta / diameter, second)["sign"] for _ in range(2))
    wrapped = SmoothOracle(again, dim, eta, eta / diameter, 1.0, diameter=diameter)
    run = lambda o: algorithms.accelerated_gradient(o, start, steps, smoothness=2.0)  # noqa: E731
    curves = {
        f"accelerated_{kind}": error_curve(run, asked, f, 0.0, steps, eta)
        for kind, asked in (("naive", noisy), ("wrapped", wrapped), ("exact", f))
    }
    return {
        **curves,
        "interpolation": worst[0],
        "interpolation_limit": 1e-5,
        "value_shift": worst[1],
        "three": 3.0,
        "error": worst[2],
        "exact_error": exact / eta,
        "error_limit": 5.0 * exact / eta + 1.0,
    }


def projection_free(seed: int, steps: int, radius: float) -> Metrics:
    """Frank-Wolfe on the breast-cancer logistic loss (L = 1), over the simplex and the l1 ball of the same radius."""
    eta, f = 1e-2, breast_cancer()
    found: Metrics = {"twelve": 12.0}
    for name, lmo in (("simplex", algorithms.Simplex(30, radius)), ("l1", algorithms.L1Ball(30, radius))):
        exact = algorithms.frank_wolfe(f, lmo, 3000)
        eta_g = eta / lmo.diameter
        noisy = [Sign(f, eta, eta_g, seed) for _ in range(3)]
        oracle = SmoothOracle(noisy[0], 30, eta, eta_g, 1.0, diameter=lmo.diameter)
        result = algorithms.frank_wolfe(oracle, lmo, steps)
        theorem = 2.0 * oracle.extension_smoothness * lmo.diameter**2 / (steps + 2.0)
        certificate = oracle.certificate(result.x, theorem)
        bend = certificate.e_g**2 / (2.0 * oracle.smoothness)
        terms = 2.0 * certificate.e_V + certificate.e_g * lmo.diameter + bend
        # The lower bound of the long exact run stands for min f, so the error is not understated.
        found[f"error_{name}"] = (f(result.x)[0] - exact.lower) / eta
        found[f"bound_{name}"] = (theorem + terms) / eta
        found[f"certificate_{name}"] = (certificate.bound - theorem) / eta
        run = lambda o, lmo=lmo: algorithms.frank_wolfe(o, lmo, steps, tol=-1.0)  # noqa: E731
        wrapped = SmoothOracle(noisy[1], 30, eta, eta_g, 1.0, diameter=lmo.diameter)
        for kind, asked in (("naive", noisy[2]), ("wrapped", wrapped), ("exact", f)):
            found[f"{name}_{kind}"] = error_curve(run, asked, f, exact.lower, steps, eta)
    return found


# ---- sets


def separation(seed: int, dim: int, rows: int, steps: int) -> Metrics:
    """The ellipsoid method on a linear function over {Ax <= b} in the unit ball, normals off by eta_s."""
    eta, margin, (first, second) = 0.01, 1e-4, spawn(seed, 2)
    gen = rng(first)
    a = gen.standard_normal((rows, dim))
    body = Polytope(a / np.linalg.norm(a, axis=1, keepdims=True), gen.uniform(0.3, 0.6, rows))
    goal = gen.standard_normal(dim)
    goal /= np.linalg.norm(goal)
    oracle = NoisySeparation(body, eta, margin, second)
    wrapper = SeparationOracle(oracle, dim, eta, rho=oracle.rho(1.0))
    linear = MaxAffine(goal[None], np.zeros(1))
    result = algorithms.ellipsoid(linear, np.zeros(dim), 1.0, steps, separation=wrapper)
    inner = float(body.b.min())
    # What the cuts lose, and what the method has left over the set that they leave (it holds a ball of radius `room`).
    room = inner - 2.0 * wrapper.slope_error
    left = 2.0 / room * float(np.exp(-steps / (2.0 * dim * (dim + 1.0))))
    inside = ball_points(4000, dim, gen)
    depth = np.minimum((body.b - inside @ body.a.T).min(axis=1), 1.0 - np.linalg.norm(inside, axis=1))
    normals, at = wrapper.cuts
    cut_off = (inside @ normals.T > np.einsum("ij,ij->i", normals, at)).any(axis=1)
    return {
        "depth": float(max(depth[cut_off].max(initial=0.0), 0.0)),
        "depth_limit": 2.0 * wrapper.slope_error,
        "zero": 0.0,
        "excluded": max(wrapper.check_consistency(), 0.0),
        "rho": oracle.rho(1.0),
        "violation": body.distance(result.x),
        "loss": max(result.value - body.minimum(goal, 1.0), 0.0),
        "allowed_loss": wrapper.value_loss(1.0, 2.0, inner) + left,
        "cut_error": wrapper.slope_error,
    }
