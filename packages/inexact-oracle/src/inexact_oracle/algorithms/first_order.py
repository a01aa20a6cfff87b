"""Gradient methods: projected subgradient, accelerated gradient, Frank-Wolfe, and the solvers of scipy."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from offprints.checks import require_range
from scipy import optimize

from inexact_oracle.algorithms.result import (
    Recorder,
    Result,
    check_budget,
    start_point,
    warn_if_piecewise_linear,
)
from inexact_oracle.oracle import FirstOrderOracle
from inexact_oracle.points import Vector


class LinearMinimizer(Protocol):
    """argmin <g, v> over a convex set, and a point of the set to start from."""

    def __call__(self, grad: NDArray[np.float64]) -> NDArray[np.float64]:
        """A minimiser (d,) of <grad, v>."""
        ...

    def start(self) -> NDArray[np.float64]:
        """Any point of the set."""
        ...


def projected_subgradient(
    oracle: FirstOrderOracle,
    x0: ArrayLike,
    radius: float,
    T: int,
    *,
    lipschitz: float | None = None,
    project: Callable[[Vector], Vector] | None = None,
) -> Result:
    """Step x <- P(x - step * s) for T queries; returns the best point.

    The step is R / (M sqrt(T)), with |s_t| in place of M when M is unknown. For exact data of an M-Lipschitz convex
    function, a minimiser within R of x0 and either step: best value - minimum <= M R / sqrt(T).

    Args:
        oracle: x (d,) -> (value, subgradient).
        x0: start and centre of the ball, (d,).
        radius: R, of the ball around x0 that holds a minimiser.
        T: queries.
        lipschitz: M, or None.
        project: projection onto the domain; by default onto the ball.

    Raises:
        ValueError: T < 1, radius <= 0.
    """
    centre, steps = start_point(x0), check_budget(T)
    require_range("radius", radius, low=0.0, low_open=True, high=np.inf, high_open=True)
    if lipschitz is not None:
        require_range("lipschitz", lipschitz, low=0.0, low_open=True)
    ask, x = Recorder(oracle), centre.copy()
    for _ in range(steps):
        _, grad = ask(x)
        size = float(np.linalg.norm(grad))
        if size == 0.0:
            ask.bound(ask.value)  # a zero subgradient proves the minimum
            return ask.result("converged")
        x = x - radius / ((lipschitz or size) * np.sqrt(steps)) * grad
        if project is not None:
            x = project(x)
        else:
            away = x - centre
            x = centre + away * min(1.0, radius / max(float(np.linalg.norm(away)), np.finfo(float).tiny))
    return ask.result("budget")


def _smoothness(oracle: FirstOrderOracle, given: float | None) -> float:
    value = given if given is not None else getattr(oracle, "extension_smoothness", None)
    if value is None:
        raise ValueError("smoothness must be given for an oracle that is no SmoothOracle, got None.")
    return float(require_range("smoothness", value, low=0.0, low_open=True, high=np.inf, high_open=True))


def accelerated_gradient(
    oracle: FirstOrderOracle,
    x0: ArrayLike,
    T: int,
    *,
    smoothness: float | None = None,
    project: Callable[[Vector], Vector] | None = None,
) -> Result:
    """Nesterov's method (FISTA form) for T gradient steps, and one last query at the point returned.

    For exact data of a convex L'-smooth function: value - minimum <= 2 L' |x0 - x*|^2 / (T + 1)^2.

    Args:
        oracle: x (d,) -> (value, gradient).
        x0: start, (d,).
        T: gradient steps.
        smoothness: L' for the step 1/L'; by default what a SmoothOracle says (2L, not L).
        project: projection onto the domain, or None.

    Raises:
        ValueError: T < 1, or no smoothness is known.
    """
    warn_if_piecewise_linear(oracle, "accelerated_gradient")
    x, steps, ask = start_point(x0), check_budget(T), Recorder(oracle)
    step, y, momentum = 1.0 / _smoothness(oracle, smoothness), x, 1.0
    for _ in range(steps):
        _, grad = ask(y)
        after = y - step * grad
        if project is not None:
            after = project(after)
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        y = after + (momentum - 1.0) / following * (after - x)
        if project is not None:
            y = project(y)
        x, momentum = after, following
    value, _ = ask(x)
    return ask.result("budget", x, value)


def frank_wolfe(
    oracle: FirstOrderOracle,
    lmo: LinearMinimizer,
    T: int,
    *,
    x0: ArrayLike | None = None,
    tol: float = 0.0,
) -> Result:
    """Step x <- x + 2/(t+2) (v - x), v = lmo(gradient): projection-free, T queries; returns the last point queried.

    For exact data of a convex L'-smooth function on a set of diameter D: value - minimum <= 2 L' D^2 / (T + 1), and the
    linear model at every point gives the lower bound value + <s, v - x>.

    Args:
        oracle: x (d,) -> (value, gradient).
        lmo: linear minimisation over the set.
        T: queries.
        x0: start in the set; by default the lmo's own.
        tol: stop when value - lower bound is at most this.

    Raises:
        ValueError: T < 1.
    """
    warn_if_piecewise_linear(oracle, "frank_wolfe")
    steps, ask = check_budget(T), Recorder(oracle)
    x = start_point(lmo.start() if x0 is None else x0)
    status, value = "budget", np.inf
    for t in range(steps):
        value, grad = ask(x)
        vertex = lmo(grad)
        ask.bound(value + float(grad @ (vertex - x)))
        if value - ask.lower <= tol:
            status = "converged"
            break
        if t + 1 < steps:
            x = x + 2.0 / (t + 2.0) * (vertex - x)
    return ask.result(status, x, value)


def scipy_minimize(
    oracle: FirstOrderOracle,
    x0: ArrayLike,
    *,
    method: str = "L-BFGS-B",
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
    options: dict[str, float | int | bool] | None = None,
) -> Result:
    """`scipy.optimize.minimize(..., jac=True)`; `status` is "success: ..." or "failure: ..." with scipy's words.

    Args:
        oracle: x (d,) -> (value, gradient).
        x0: start, (d,).
        method: any method of scipy that uses gradients.
        bounds: (lower, upper) of a box, or None.
        options: handed to scipy.

    The value returned is the reply at the solver's last point.
    """
    warn_if_piecewise_linear(oracle, "scipy_minimize")
    start, ask = start_point(x0), Recorder(oracle)
    limits = None
    if bounds is not None:
        limits = optimize.Bounds(*(np.broadcast_to(np.asarray(b, dtype=np.float64), start.shape) for b in bounds))
    found = optimize.minimize(ask, start, jac=True, method=method, bounds=limits, options=options)
    x = np.asarray(found.x, dtype=np.float64)
    return ask.result(f"{'success' if found.success else 'failure'}: {found.message}", x, float(found.fun))
