"""The wrapper for Lipschitz functions: replies are exact data of a growing piecewise-linear function.

Section 1 of the paper: an online instance whose exact first-order data equals the adjusted inexact answers.
"""

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from offprints.checks import require_choice, require_range

from inexact_oracle.certificate import Certificate, model_minimum, require_limits
from inexact_oracle.lift import Program, lift
from inexact_oracle.oracle import ConsistentOracle, FirstOrderOracle, InconsistentOracleError
from inexact_oracle.points import Point, Vector
from inexact_oracle.replies import NEW, OLD, Reply

EPS = float(np.finfo(np.float64).eps)


class LipschitzOracle(ConsistentOracle):
    """Exact first-order data of a convex piecewise-linear F from an (eta_f, eta_g)-oracle of a convex f.

    The oracle at x returns (f~, g~) with |f~ - f(x)| <= eta_f and |g~ - g| <= eta_g for some subgradient g of f at x;
    errors may be adversarial. With the model F(x) = max_i V_i + <s_i, x - x_i> over past replies, a query is answered
    by the model when F(x) >= f~ ("old"), else by (V, g~ + u) with

        max V  s.t.  V <= f~,  |u| <= eta_g,  V <= V_i + <g~ + u, x - x_i> for all i,  [|g~ + u| <= M]        ("new").

    Then at any later time F(x_i) = V_i and s_i is a subgradient of F at x_i for every i; f(x_i) - V_i <= eta_f; and
    F <= f + eta_f + 2 eta_g D on the domain. So any algorithm with worst-case error err(T, M + 2 eta_g) on exact data
    ends with f(x) - min f <= err + 2 eta_f + 2 eta_g D, whatever it is and whatever T (transfer theorem; with
    eta_f = eta and eta_g = eta / D: err + 4 eta).

    Args:
        oracle: x (d,) -> (value, gradient (d,)).
        dim: d.
        eta_f: bound on the value error, in units of f.
        eta_g: bound on the 2-norm of the gradient error, units of f per unit of x.
        diameter: D of the set that queries come from, in units of x; may be infinite when eta_g = 0.
        lipschitz: M, if known: replies then have |s| <= M.
        slack: accept u = 0 when it costs at most this much of V; total error grows by it, most solves vanish.
        solver: "auto" (closed forms for one or two rows, Clarabel for more) or "clarabel" (always, all rows).
        project: map onto the domain, for solvers that leave it by rounding; replies are exact at project(x).
        max_cuts: keep this many replies and one aggregate cut. Replies that fell out are then no longer promised to be
            exact; value and model bounds, and the gap of the certificate, stay true.
        average: answers to average at each point (zero-mean errors only); shrinks eta_f and eta_g.
        confidence: probability that all bounds hold when `average` > 1.
        strict: raise `InconsistentOracleError` where otherwise `ConsistencyWarning` is given.

    Raises:
        TypeError: an argument of a wrong kind.
        ValueError: a negative error, a diameter that is not positive, or an infinite one with eta_g > 0.
    """

    def __init__(
        self,
        oracle: FirstOrderOracle,
        dim: int,
        eta_f: float,
        eta_g: float,
        diameter: float,
        lipschitz: float | None = None,
        slack: float = 0.0,
        solver: Literal["auto", "clarabel"] = "auto",
        project: Callable[[Vector], Vector] | None = None,
        max_cuts: int | None = None,
        *,
        average: int = 1,
        confidence: float = 0.99,
        strict: bool = False,
    ) -> None:
        require_range("diameter", diameter, low=0.0, low_open=True)
        require_range("slack", slack, low=0.0, high=np.inf, high_open=True)
        require_choice("solver", solver, ("auto", "clarabel"))
        if lipschitz is not None:
            require_range("lipschitz", lipschitz, low=0.0, low_open=True)
        if max_cuts is not None:
            require_range("max_cuts", max_cuts, low=1, integer=True)
        self.lipschitz, self.slack, self.solver, self.max_cuts = lipschitz, float(slack), solver, max_cuts
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
            window=max_cuts,
        )
        if not np.isfinite(diameter) and eta_g > 0:
            raise ValueError(f"diameter must be finite when eta_g > 0, got {diameter} and eta_g = {eta_g}.")

    def _clear(self) -> None:
        super()._clear()
        self._value_error = 0.0  # what I2 lost beyond eta_f: slack used, solver shortfalls
        self._slope_error = 0.0  # max |s_i - g~_i| over new replies
        self._size = 0.0  # largest |V|, the scale of rounding
        self._active: tuple[int, ...] = ()
        self._aggregate: tuple[float, Vector] | None = None

    # ---- one query

    def _choose(self, point: Vector, raw_f: float, raw_g: Vector) -> Reply:
        log = self._log
        grad = raw_g if self.lipschitz is None else self._within_lipschitz(raw_g)
        if len(log) == 0:
            return Reply(raw_f, grad, NEW)
        at = point - log.origin
        below, top = self._model_at(at)
        if below >= raw_f:
            self._check_too_high(at, below, raw_f, top)
            return self._repeat(below, top)
        value, shift = self._highest(at, raw_f, grad)
        upper = value  # without room for u, V at u = 0 is the optimum
        # Rounding of <g, x> and of the values: a shortfall this small is none.
        tiny = 16.0 * EPS * (abs(raw_f) + self._size + shift)
        accepted = value >= raw_f - self.slack - tiny
        if not accepted and self._declared[1] > 0.0:
            value, grad, upper = self._solve(at, raw_f, raw_g, grad, value, tiny)
        if not accepted:
            self._check_too_low(at, raw_f, grad, upper, tiny)
        reply = Reply(value, grad, NEW) if value > below else self._repeat(below, top)
        # f(x) - V grows by what the solver missed, but never beyond what is seen against f~.
        missed = np.inf if accepted else self._value_error + max(upper - reply.value, 0.0)
        self._value_error = max(self._value_error, min(missed, raw_f - reply.value))
        return reply

    def _within_lipschitz(self, raw_g: Vector) -> Vector:
        """The projection of g~ onto {|s| <= M}; it is no further from g than g~ is."""
        limit, norm = float(self.lipschitz or np.inf), float(np.linalg.norm(raw_g))
        if norm <= limit:
            return raw_g
        excess = norm - limit
        if excess > self.eta_g + 1e-9 * limit:
            reason = f"|g~| = {norm:.4g} exceeds lipschitz + eta_g"
            self._contradiction(len(self._log), excess, reason, needs=f"it needs eta_g >= {excess:.3g}")
        return raw_g * (limit / norm)

    def _model_at(self, at: Vector) -> tuple[float, int]:
        """F and the row of the cut that attains it; -1 is the aggregate cut."""
        log = self._log
        heights = log.slopes @ at
        heights += log.offsets
        top = int(heights.argmax())
        best = float(heights[top])
        if self._aggregate is not None:
            height = self._aggregate[0] + float(self._aggregate[1] @ at)
            if height > best:
                return height, -1
        return best, top

    def _repeat(self, value: float, top: int) -> Reply:
        if top < 0 and self._aggregate is not None:
            return Reply(value, self._aggregate[1].copy(), OLD)
        return Reply(value, self._log.slopes[top].copy(), OLD)

    def _highest(self, at: Vector, raw_f: float, grad: Vector) -> tuple[float, float]:
        """min(f~, min_i V_i + <grad, x - x_i>), and the size of the products in it."""
        heights = self._log.values - self._log.shifted @ grad
        shift = float(grad @ at)
        return min(raw_f, float(heights.min()) + shift), abs(shift)

    def _solve(
        self, at: Vector, raw_f: float, raw_g: Vector, grad: Vector, value: float, tiny: float
    ) -> tuple[float, Vector, float]:
        """Step 3 with the rows that can bind; V recomputed from the chosen gradient, so consistency is exact."""
        self.n_solves += 1
        log = self._log
        steps = at - log.shifted
        heights = log.values + steps @ raw_g
        lengths = np.sqrt(np.einsum("ij,ij->i", steps, steps))
        reach = self.eta_g * lengths
        rows = np.flatnonzero(heights - reach < raw_f)
        program = Program(
            heights[rows], steps[rows], raw_f, self.eta_g, None if self.lipschitz is None else (raw_g, self.lipschitz)
        )
        warm = tuple(np.flatnonzero(np.isin(rows, self._active)).tolist()) if self._active else ()
        tolerance = tiny + 1e-10 * self.eta_g * float(lengths[rows].max(initial=0.0))
        found = lift(program, grad - raw_g, warm, tolerance, everything=self.solver == "clarabel")
        self.n_conic += found.conic_calls
        self.n_failures += found.failed
        self._active = tuple(int(rows[k]) for k in found.active)
        lifted = raw_g + found.u
        better = self._highest(at, raw_f, lifted)[0]
        if better < value:
            return value, grad, found.upper
        return better, lifted, found.upper

    def _check_too_low(self, at: Vector, raw_f: float, grad: Vector, upper: float, tiny: float) -> None:
        """I2 says that the optimum of step 3 is at least f - eta_f, hence f~ - 2 eta_f."""
        shortfall = raw_f - 2.0 * self.eta_f - self._value_error - upper
        if shortfall <= tiny:
            return
        steps = at - self._log.shifted
        reach = self.eta_g * math.sqrt(np.max(np.einsum("ij,ij->i", steps, steps)))
        if shortfall > 1e-8 * (self.eta_f + reach):  # beyond the solver's tolerance
            worst = int(np.argmin(self._log.values + steps @ grad))
            self._contradiction(worst, shortfall, "no convex function within the declared errors fits")

    def _check_too_high(self, at: Vector, below: float, raw_f: float, top: int) -> None:
        """I3 bounds the model by f + eta_f + 2 eta_g D, hence by f~ + 2 eta_f + 2 eta_g D."""
        excess = below - raw_f - 2.0 * self.eta_f
        if excess <= 1e-9 * (abs(raw_f) + self._size):
            return  # rounding, at the price of a comparison; only a real excess is worth O(td)
        far = self._log.shifted - at
        diameter = max(self._actual_diameter, float(np.sqrt(np.max(np.einsum("ij,ij->i", far, far)))))
        reach = 0.0 if self.eta_g == 0.0 else 2.0 * self.eta_g * diameter
        excess -= reach
        if excess > 1e-9 * (abs(raw_f) + self._size + reach):
            self._contradiction(max(top, 0), excess, "a past cut lies above the declared errors")

    def _record(self, point: Vector, raw_f: float, raw_g: Vector, reply: Reply) -> None:
        if reply.kind == NEW and reply.grad is not raw_g:
            self._slope_error = max(self._slope_error, float(np.linalg.norm(reply.grad - raw_g)))
        self._size = max(self._size, abs(reply.value))
        evicted = self._log.append(point, raw_f, raw_g, reply)
        if evicted is not None:
            self._aggregate = evicted if self._aggregate is None else self._merge(self._aggregate, evicted, point)

    def _merge(self, first: tuple[float, Vector], second: tuple[float, Vector], point: Vector) -> tuple[float, Vector]:
        """The convex combination of two cuts with the largest minimum over the ball of radius D around the query.

        By minimax it keeps the minimum of their maximum there, hence the lower bound that the pair gave.
        """
        centre = point - self._log.origin
        a = np.array([first[0] + first[1] @ centre, second[0] + second[1] @ centre])
        slopes = np.stack([first[1], second[1]])
        weight = _flattest(a, slopes, self._actual_diameter)
        slope = weight * slopes[0] + (1.0 - weight) * slopes[1]
        return float(weight * first[0] + (1.0 - weight) * second[0]), slope

    # ---- what is known afterwards

    def model(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """F at points x (..., d), in their dtype: what the replies are exact data of; -inf before the first query."""
        x = np.asarray(x)
        kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float64)
        x = x.astype(np.float64)
        if x.shape[-1:] != (self.dim,):
            raise ValueError(f"x must have shape (..., {self.dim}), got {x.shape}.")
        with self._lock:
            if len(self._log) == 0:
                return np.full(x.shape[:-1], -np.inf, dtype=kind)
            at = x - self._log.origin
            best = np.max(at @ self._log.slopes.T + self._log.offsets, axis=-1)
            if self._aggregate is not None:
                best = np.maximum(best, at @ self._aggregate[1] + self._aggregate[0])
            return best.astype(kind)

    def check_consistency(self, tol: float | None = None) -> float:
        """Largest violation of F(x_i) = V_i with s_i a subgradient there, over all kept replies (0 when exact).

        Raises:
            InconsistentOracleError: it exceeds `tol`.
        """
        with self._lock:
            log = self._log
            worst, pair = 0.0, (0, 0)
            for start in range(0, len(log), 256):
                rows = slice(start, start + 256)
                excess = log.shifted[rows] @ log.slopes.T + log.offsets - log.values[rows, None]
                k = int(excess.argmax())
                if excess.flat[k] > worst:
                    worst, pair = float(excess.flat[k]), (start + k // len(log), k % len(log))
        if tol is not None and worst > tol:
            raise InconsistentOracleError(*pair, worst, "replies are not exact data of one convex function")
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
            algorithm_error: bound on F(x) - min F that the algorithm guarantees on exact data. By default none is used,
                and the bound is the gap between the proved upper and lower value.
            bounds: (lower, upper) limits of a box that the minimum is taken over, for a sharper lower value.

        Transferred bound: algorithm_error + e_V + eta_f + e_g D, with e_V <= eta_f + slack + shortfalls and
        e_g <= 2 eta_g as computed from the replies (transfer theorem). With `max_cuts` only the gap is used once a
        reply fell out.
        """
        require_range("algorithm_error", algorithm_error, low=0.0)
        limits = require_limits(bounds, self.dim)
        with self._lock:
            point = self._point(x)[0]
            reply = self._answer(point)
            diameter = self._actual_diameter
            e_v, e_g = self.eta_f + self._value_error, self.eta_g + self._slope_error
            above = self.eta_f + (0.0 if e_g == 0.0 else e_g * diameter)
            at = point - self._log.origin
            heights, slopes = self._log.offsets + self._log.slopes @ at, self._log.slopes
            if self._aggregate is not None:
                heights = np.append(heights, self._aggregate[0] + self._aggregate[1] @ at)
                slopes = np.vstack([slopes, self._aggregate[1]])
            box = None if limits is None else (limits[0] - point, limits[1] - point)
            lower = model_minimum(heights, slopes, diameter, box) - above
            upper = reply.value + e_v
            whole = self._log.window is None or self._log.count <= self._log.window
            transferred = algorithm_error + e_v + above if whole else np.inf
            return self._certify(transferred, upper, lower, e_v, e_g, diameter)

    # ---- state

    def _config(self) -> dict[str, object]:
        own = {"lipschitz": self.lipschitz, "slack": self.slack, "solver": self.solver, "max_cuts": self.max_cuts}
        return {**super()._config(), **own}

    def _counters(self) -> dict[str, object]:
        names = ("_value_error", "_slope_error", "_size")
        return {**super()._counters(), **{name: getattr(self, name) for name in names}}

    def _extra_tensors(self) -> dict[str, NDArray[np.float64]]:
        extra = {"active": np.array(self._active, dtype=np.float64)}
        if self._aggregate is not None:
            extra["aggregate"] = np.concatenate([[self._aggregate[0]], self._aggregate[1]])
        return extra

    def _restore_extra(self, tensors: Mapping[str, NDArray[np.float64]]) -> None:
        self._active = tuple(int(row) for row in tensors["active"])
        if "aggregate" in tensors:
            self._aggregate = float(tensors["aggregate"][0]), np.array(tensors["aggregate"][1:])


def _flattest(heights: Vector, slopes: Vector, radius: float) -> float:
    """The w in [0, 1] for which w * cut_0 + (1 - w) * cut_1 has the largest minimum over a ball; heights at its centre.

    The minimum is w a_0 + (1 - w) a_1 - radius |w s_0 + (1 - w) s_1|: concave, with a closed form through the sphere.
    """
    across = slopes[0] - slopes[1]
    size = float(np.linalg.norm(across))
    if size == 0.0:
        return float(heights[0] >= heights[1])
    if not np.isfinite(radius):
        return float(np.clip(-(slopes[1] @ across) / size**2, 0.0, 1.0))
    centre = -(slopes[1] @ across) / size**2
    off = float(np.linalg.norm(slopes[1] + centre * across))
    tilt = (heights[0] - heights[1]) / (radius * size)
    if abs(tilt) >= 1.0:
        return float(tilt > 0.0)
    return float(np.clip(centre + off / size * tilt / np.sqrt(1.0 - tilt**2), 0.0, 1.0))
