"""The wrapper for smooth functions (Section 1 of the paper): replies are exact data of an L'-smooth convex function."""

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from offprints.checks import require_choice, require_finite, require_range

from inexact_oracle import conic, extension
from inexact_oracle.certificate import Certificate, model_minimum, require_limits
from inexact_oracle.oracle import ConsistentOracle, FirstOrderOracle, InconsistentOracleError
from inexact_oracle.points import Point, Vector
from inexact_oracle.replies import NEW, Reply

EPS = float(np.finfo(np.float64).eps)
MAX_ROUNDS = 20
# An answer of the conic solver may miss the inequalities by this much of the value error: then it is the rounding of an
# ill-conditioned program; beyond that, other replies are tried.
ROUGH = 1e-6
# Errors and smoothness below this would vanish when they are squared.
SMALLEST = 1e-100


class SmoothOracle(ConsistentOracle):
    """Exact first-order data of an L'-smooth convex F, L' = factor * L, from an inexact oracle of an L-smooth convex f.

    Data {(x_i, V_i, s_i)} belongs to an L'-smooth convex function if and only if, for all i and j,

        V_i >= V_j + <s_j, x_i - x_j> + |s_i - s_j|^2 / (2L')            (Taylor, Hendrickx and Glineur 2017).

    A query is answered by the raw (f~, g~) when that fits all past replies, else by the (V, s) that minimises
    |V - f~|/eta_f + |s - g~|/eta_g among those that fit: always possible, since the past extends to some function. With
    e_V = max |V_i - f~_i| + eta_f and e_g = max |s_i - g~_i| + eta_g, the smallest extension obeys
    F <= f + e_V + e_g D + e_g^2 / (2L (factor - 1)), so an algorithm with worst-case error err(T, L') ends with
    f(x) - min f <= err + 2 e_V + e_g D + e_g^2 / (2L (factor - 1)). e_V and e_g are known after the run; no bound on
    them that holds for every T is claimed.

    Args:
        oracle: x (d,) -> (value, gradient (d,)).
        dim: d.
        eta_f: bound on the value error, in units of f.
        eta_g: bound on the 2-norm of the gradient error.
        smoothness: L, the Lipschitz constant of the gradient of f.
        factor: L'/L >= 1. Give algorithms step sizes for L' (`extension_smoothness`).
        diameter: D of the set that the certificate speaks about; by default the spread of the queries, or the reach of
            the box that the certificate is given. It compares with points within that distance of every query.
        slack: accept raw replies that violate an inequality by at most this; recorded in `violation`.
        project: map onto the domain, for solvers that leave it by rounding; replies are exact at project(x).
        average: answers to average at each point (zero-mean errors only); shrinks eta_f and eta_g.
        confidence: probability that all bounds hold when `average` > 1.
        strict: raise `InconsistentOracleError` where otherwise `ConsistencyWarning` is given.

    Raises:
        TypeError: an argument of a wrong kind.
        ValueError: a negative error, a smoothness that is not positive, a factor below 1.
    """

    def __init__(
        self,
        oracle: FirstOrderOracle,
        dim: int,
        eta_f: float,
        eta_g: float,
        smoothness: float,
        factor: float = 2.0,
        diameter: float | None = None,
        slack: float = 0.0,
        project: Callable[[Vector], Vector] | None = None,
        *,
        average: int = 1,
        confidence: float = 0.99,
        strict: bool = False,
    ) -> None:
        require_range("smoothness", smoothness, low=0.0, low_open=True, high=np.inf, high_open=True)
        require_range("factor", factor, low=1.0, high=np.inf, high_open=True)
        require_range("slack", slack, low=0.0, high=np.inf, high_open=True)
        if diameter is not None:
            require_range("diameter", diameter, low=0.0, low_open=True, high=np.inf, high_open=True)
        for name, size in (("eta_f", eta_f), ("eta_g", eta_g), ("smoothness", smoothness)):
            if isinstance(size, (int, float)) and 0.0 < size < SMALLEST:
                raise ValueError(
                    f"{name} must be at least {SMALLEST} when it is not zero, got {size}. Change the units."
                )
        self.smoothness, self.factor, self.slack = float(smoothness), float(factor), float(slack)
        super().__init__(
            oracle,
            dim,
            eta_f,
            eta_g,
            diameter,
            project=project,
            average=average,
            confidence=confidence,
            strict=strict,
            window=None,
        )

    @property
    def extension_smoothness(self) -> float:
        """L' = factor * L: what step sizes must be made for."""
        return self.factor * self.smoothness

    def _clear(self) -> None:
        super()._clear()
        self.violation = 0.0  # largest violation of an interpolation inequality, in units of f
        self._value_shift = self._slope_shift = 0.0  # max |V_i - f~_i|, max |s_i - g~_i|

    # ---- one query

    def _choose(self, point: Vector, raw_f: float, raw_g: Vector) -> Reply:
        if len(self._log) == 0:
            return Reply(raw_f, raw_g, NEW)
        at = point - self._log.origin
        low, high = self._interval(at, raw_g)
        tiny = 16.0 * EPS * (abs(raw_f) + abs(low) + abs(high) + float(np.abs(self._log.values).max()))
        miss = max(low - raw_f, raw_f - high, 0.0)
        if miss <= self.slack + tiny:
            self.violation = max(self.violation, miss)
            return Reply(raw_f, raw_g, NEW)
        self._check_pairs(at, raw_f, raw_g, tiny)
        self.n_solves += 1
        value, grad = self._nearest(at, raw_f, raw_g, miss, tiny)
        low, high = self._interval(at, grad)
        # Given s, any V between the two ends is consistent; rounding may have crossed them.
        value = float(np.clip(value, low, high)) if low <= high else 0.5 * (low + high)
        self.violation = max(self.violation, low - value, value - high)
        return Reply(value, grad, NEW)

    def _interval(self, at: Vector, grad: Vector) -> tuple[float, float]:
        """Values V that fit all past replies when the gradient is `grad`: max of lower and min of upper ends."""
        log = self._log
        steps, bends = at - log.shifted, grad - log.slopes
        bend = np.einsum("ij,ij->i", bends, bends) / (2.0 * self.extension_smoothness)
        low = log.values + np.einsum("ij,ij->i", log.slopes, steps) + bend
        high = log.values + steps @ grad - bend
        return float(low.max()), float(high.min())

    def _units(self, miss: float) -> tuple[float, float]:
        """The units eta_f and eta_g of the program; instead of zero, a small part of what the other amounts to."""
        eta_f, eta_g, smooth = self.eta_f, self.eta_g, self.smoothness
        if eta_f == 0.0 and eta_g == 0.0:
            return miss, float(np.sqrt(2.0 * smooth * miss))
        return max(eta_f, 1e-3 * eta_g**2 / (2.0 * smooth)), max(eta_g, 1e-3 * float(np.sqrt(2.0 * smooth * eta_f)))

    def _nearest(self, at: Vector, raw_f: float, raw_g: Vector, miss: float, tiny: float) -> tuple[float, Vector]:
        """The conic program, by row generation.

        In V = f~ + a v and s = g~ + b w every inequality holds |w|^2 once, so one variable tau >= |w|^2 turns the
        2(t-1) cones into 2(t-1) linear rows and a single cone.
        """
        log = self._log
        unit_f, unit_g = self._units(miss)
        # Corrections are about as large as before: with that as unit, v, w and tau are all of order one.
        a, b = max(unit_f, self._value_shift), max(unit_g, self._slope_shift)
        prices = a / unit_f, b / unit_g
        prices = prices[0] / max(prices), prices[1] / max(prices)
        curve = 2.0 * self.extension_smoothness / b**2
        steps, bends = at - log.shifted, (raw_g - log.slopes) / b
        square = np.einsum("ij,ij->i", bends, bends)
        below = raw_f - log.values - np.einsum("ij,ij->i", log.slopes, steps)
        above = log.values - raw_f + steps @ raw_g
        t = len(log)
        rows = np.empty((2 * t, self.dim + 2))
        rows[:t, 0], rows[t:, 0], rows[:, -1] = curve * a, -curve * a, -1.0
        rows[:t, 1:-1] = -2.0 * bends
        rows[t:, 1:-1] = curve * b * steps - 2.0 * bends
        sides = np.concatenate([square - curve * below, square - curve * above])
        sizes = np.linalg.norm(rows, axis=1)
        rows /= sizes[:, None]
        sides /= sizes
        chosen = sides > -3.0  # near rows; |(v, w, tau)| moves a normalised row by little more
        found = []
        for _ in range(MAX_ROUNDS):
            self.n_conic += 1
            best = conic.nearest_smooth(rows[chosen], sides[chosen], prices)
            if best is None:
                break
            z = best.z[: self.dim + 2].copy()
            value, grad = raw_f + a * z[0], raw_g + b * z[1:-1]
            low, high = self._interval(at, grad)
            z[-1] = z[1:-1] @ z[1:-1]
            broken = (rows @ z < sides - 1e-9) & ~chosen
            if low - high <= tiny + (1e-10 if broken.any() else ROUGH) * a:
                return value, grad
            if not broken.any():
                found.append((value, grad))
                break
            chosen |= broken
        self.n_failures += 1
        return self._fallback(at, raw_f, found, tiny + ROUGH * a)

    def _fallback(
        self, at: Vector, raw_f: float, found: list[tuple[float, Vector]], tolerance: float
    ) -> tuple[float, Vector]:
        """Without an accurate conic program: the best of what it found and of data that are consistent by themselves.

        Those are data of an extension at the query, only further from the raw, and the affine continuation of the
        nearest reply, off by at most its distance times the largest bend: where the programs are ill-conditioned, since
        queries nearly coincide, it is good.
        """
        log = self._log
        ends = [
            find(at, log.shifted, log.values, log.slopes, self.extension_smoothness)
            for find in (extension.smallest, extension.largest)
        ]
        steps = at - log.shifted
        near = int(np.einsum("ij,ij->i", steps, steps).argmin())
        ends.append((float(log.values[near] + log.slopes[near] @ steps[near]), log.slopes[near].copy()))

        def loss(end: tuple[float, Vector]) -> tuple[float, float]:
            low, high = self._interval(at, end[1])
            return max(low - high, tolerance), abs(end[0] - raw_f)

        best = min(found + [end for end in ends if end is not None], key=loss)
        if loss(best)[0] > 1e3 * tolerance:
            raise RuntimeError("no consistent reply was found: the conic solver failed at every formulation.")
        return best

    def _check_pairs(self, at: Vector, raw_f: float, raw_g: Vector, tiny: float) -> None:
        """What every pair of raw answers of an L-smooth convex f obeys; else the declared errors are wrong."""
        log = self._log
        steps = at - log.shifted
        lengths = np.sqrt(np.einsum("ij,ij->i", steps, steps))
        apart = np.linalg.norm(raw_g - log.raw_slopes, axis=1)
        bend = np.maximum(apart - 2.0 * self.eta_g, 0.0) ** 2 / (2.0 * self.smoothness)
        allowed = 2.0 * self.eta_f + self.eta_g * lengths + tiny
        forward = log.raw_values + np.einsum("ij,ij->i", log.raw_slopes, steps) - raw_f
        backward = raw_f - steps @ raw_g - log.raw_values
        excess = np.maximum(forward, backward) + bend - allowed
        worst = int(excess.argmax())
        if excess[worst] > 1e-9 * (abs(raw_f) + float(allowed[worst])):
            reason = f"no convex function with smoothness {self.smoothness:.4g} fits within the declared errors"
            self._contradiction(worst, float(excess[worst]), reason, smoothness=self.smoothness)

    def _record(self, point: Vector, raw_f: float, raw_g: Vector, reply: Reply) -> None:
        self._value_shift = max(self._value_shift, abs(reply.value - raw_f))
        self._slope_shift = max(self._slope_shift, float(np.linalg.norm(reply.grad - raw_g)))
        super()._record(point, raw_f, raw_g, reply)

    # ---- what is known afterwards

    def extension(
        self, y: NDArray[np.float64], kind: Literal["smallest", "largest"] = "smallest"
    ) -> tuple[float, NDArray[np.float64]]:
        """Value and gradient at y (d,) of the smallest or largest L'-smooth convex function through the replies.

        Raises:
            ValueError: an unknown kind, or y of a wrong shape.
            RuntimeError: no query was made yet, or the solver failed.
        """
        require_choice("kind", kind, ("smallest", "largest"))
        y = np.asarray(y, dtype=np.float64)
        if y.shape != (self.dim,):
            raise ValueError(f"y must have shape ({self.dim},), got {y.shape}.")
        require_finite("y", y)
        find = extension.smallest if kind == "smallest" else extension.largest
        with self._lock:
            log = self._log
            if len(log) == 0:
                raise RuntimeError("extension needs at least one query.")
            found = find(y - log.origin, log.shifted, log.values, log.slopes, self.extension_smoothness)
        if found is None:
            raise RuntimeError("the conic solver failed to evaluate the extension.")
        return found

    def model(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """The smallest extension at points x (..., d), in their dtype: one quadratic program each."""
        x = np.asarray(x)
        kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        if x.shape[-1:] != (self.dim,):
            raise ValueError(f"x must have shape (..., {self.dim}), got {x.shape}.")
        values = [self.extension(y)[0] for y in x.reshape(-1, self.dim)]
        return np.array(values, dtype=kind).reshape(x.shape[:-1])

    def check_consistency(self, tol: float | None = None) -> float:
        """Largest violation of the interpolation inequalities over all pairs of replies, in units of f.

        Raises:
            InconsistentOracleError: it exceeds `tol`.
        """
        with self._lock:
            log = self._log
            worst, pair = 0.0, (0, 0)
            for i in range(len(log)):
                bends = log.slopes[i] - log.slopes
                excess = log.offsets + log.slopes @ log.shifted[i] - log.values[i]
                excess += np.einsum("ij,ij->i", bends, bends) / (2.0 * self.extension_smoothness)
                excess[i] = 0.0
                j = int(excess.argmax())
                if excess[j] > worst:
                    worst, pair = float(excess[j]), (i, j)
        if tol is not None and worst > tol:
            raise InconsistentOracleError(*pair, worst, "replies are not exact data of one smooth convex function")
        return worst

    def certificate(
        self,
        x: Point,
        algorithm_error: float = np.inf,
        bounds: tuple[NDArray[np.float64] | float, NDArray[np.float64] | float] | None = None,
    ) -> Certificate:
        """What the run proves about f at x: f(x) - min f <= bound. Queries x if it was not queried.

        Args:
            x: the point that the algorithm returned, (d,).
            algorithm_error: bound on F(x) - min F that the algorithm guarantees on exact data of an L'-smooth function.
                By default none is used, and the bound is the gap between the proved upper and lower value.
            bounds: (lower, upper) limits of a box that the minimum is taken over, for a sharper lower value.

        Transferred bound: algorithm_error + 2 e_V + e_g D + e_g^2 / (2L (factor - 1)), plus the recorded `violation`.
        """
        require_range("algorithm_error", algorithm_error, low=0.0)
        limits = require_limits(bounds, self.dim)
        with self._lock:
            point = self._point(x)[0]
            reply = self._answer(point)
            diameter = self._actual_diameter
            if self.diameter is None and limits is not None:
                # The minimum is over the box, so D reaches from every query to its farthest corner.
                away = np.abs(self._log.view().x[:, None] - np.stack(limits)).max(axis=1)
                diameter = max(diameter, float(np.linalg.norm(away, axis=1).max()))
            e_v, e_g = self.eta_f + self._value_shift, self.eta_g + self._slope_shift
            bend = 0.0 if e_g == 0.0 else np.inf
            if self.factor > 1.0:
                bend = e_g**2 / (2.0 * self.smoothness * (self.factor - 1.0))
            log = self._log
            at = point - log.origin
            box = None if limits is None else (limits[0] - point, limits[1] - point)
            # The cuts alone are below f + e_V + e_g D; they need no smooth extension.
            lowest = model_minimum(log.offsets + log.slopes @ at, log.slopes, diameter, box)
            above = e_v + (0.0 if e_g == 0.0 else e_g * diameter)
            transferred = algorithm_error + e_v + above + bend + self.violation
            return self._certify(transferred, reply.value + e_v, lowest - above, e_v, e_g, diameter)

    # ---- state

    def _config(self) -> dict[str, object]:
        return {**super()._config(), "smoothness": self.smoothness, "factor": self.factor, "slack": self.slack}

    def _counters(self) -> dict[str, object]:
        names = ("violation", "_value_shift", "_slope_shift")
        return {**super()._counters(), **{name: getattr(self, name) for name in names}}
