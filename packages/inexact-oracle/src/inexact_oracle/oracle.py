"""What all wrappers share: the inexact oracle (Section 1 of the paper), one locked query per point, saved state."""

import math
import os
import threading
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray
from offprints import checkpoint
from offprints.checks import require_kind, require_range

from inexact_oracle.averaging import hoeffding_radius
from inexact_oracle.certificate import Certificate
from inexact_oracle.contradictions import ConsistencyWarning, InconsistentOracleError, callers_level
from inexact_oracle.points import Point, Vector, all_finite, checked_reply, to_float64
from inexact_oracle.replies import Replies, Reply, ReplyLog
from inexact_oracle.saved import METHOD_NAME, require_owner, restore_counters, whole

# A point further than this (relative) from its projection did not leave the domain by rounding.
PROJECTION_SLACK = 1e-6


class FirstOrderOracle(Protocol):
    """Anything that answers a point x (d,) with (f(x), a subgradient (d,)), exactly or not."""

    def __call__(self, x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        """Value and subgradient at x."""
        ...


class ConsistentOracle:
    """Base of the wrappers: turns an inexact oracle into one whose replies are exact for some convex function.

    One query is made per distinct point, so `fun` and `grad` may be called separately; a lock serves threads one after
    the other. Subclasses choose the reply (`_choose`) and state what follows from it (`certificate`).
    """

    def __init__(
        self,
        oracle: FirstOrderOracle,
        dim: int,
        eta_f: float,
        eta_g: float,
        diameter: float | None,
        *,
        project: Callable[[Vector], Vector] | None,
        average: int,
        confidence: float,
        strict: bool,
        window: int | None,
    ) -> None:
        if not callable(oracle):
            raise TypeError(f"oracle must be callable as oracle(x) -> (value, gradient), got {type(oracle).__name__}.")
        if project is not None and not callable(project):
            raise TypeError(f"project must be callable as project(x) -> x, got {type(project).__name__}.")
        require_kind("strict", strict, bool)
        require_range("dim", dim, low=1, integer=True)
        require_range("eta_f", eta_f, low=0.0, high=np.inf, high_open=True)
        require_range("eta_g", eta_g, low=0.0, high=np.inf, high_open=True)
        require_range("average", average, low=1, integer=True)
        require_range("confidence", confidence, low=0.0, high=1.0, low_open=True, high_open=True)
        if diameter is not None:
            require_range("diameter", diameter, low=0.0, low_open=True)
        self.oracle, self.dim, self.diameter = oracle, int(dim), diameter
        self.project, self.average, self.confidence, self.strict = project, int(average), float(confidence), strict
        self._declared = float(eta_f), float(eta_g)
        self._log = ReplyLog(self.dim, window)
        self._lock, self._process = threading.RLock(), os.getpid()
        self._clear()

    # ---- what a solver calls

    def __call__(self, x: Point) -> tuple[float, Vector]:
        """Value and subgradient at x: the exact first-order data of a convex function close to the user's."""
        return self.fun_and_grad(x)

    def fun_and_grad(self, x: Point) -> tuple[float, Vector]:
        """Reply (V, s) at x (d,), in the dtype of x.

        Raises:
            ValueError: x has a wrong shape or is not finite; the oracle returned such a thing (the state is unchanged).
            RuntimeError: called in a process forked from the one that owns the wrapper.
            InconsistentOracleError: in strict mode, when no convex function explains the replies.
        """
        with self._lock:
            point, restore = self._point(x)
            reply = self._answer(point)
        return restore(reply.value, reply.grad)

    def fun(self, x: Point) -> float:
        """The value V of the reply at x; shares its query with `grad`."""
        return self.fun_and_grad(x)[0]

    def grad(self, x: Point) -> Vector:
        """The subgradient s of the reply at x; shares its query with `fun`."""
        return self.fun_and_grad(x)[1]

    # ---- what is known afterwards

    @property
    def replies(self) -> Replies:
        """All kept replies, in the order of the queries."""
        with self._lock:
            return self._log.view()

    @property
    def eta_f(self) -> float:
        """Value error of what the wrapper sees: as declared, or shrunk by averaging (at the last query)."""
        return self._declared[0] * self._shrink

    @property
    def eta_g(self) -> float:
        """Gradient error (2-norm) of what the wrapper sees."""
        return self._declared[1] * self._shrink

    def reset(self) -> None:
        """Forget all replies and counts."""
        with self._lock:
            self._log.clear()
            self._clear()

    # ---- one query

    def _clear(self) -> None:
        self.n_queries = self.n_solves = self.n_conic = self.n_failures = self.n_inconsistent = 0
        self.spread = 0.0  # largest known distance between two queries
        self._shrink = 1.0 if self.average == 1 else hoeffding_radius(self.average, self.confidence, 0)
        self._reach = 0.0  # largest known distance from the first query
        self._warned: set[str] = set()
        self._asked: tuple[Vector, float, Vector] = (np.zeros(self.dim), 0.0, np.zeros(self.dim))

    def _point(self, x: Point) -> tuple[Vector, Callable[[float, Vector], tuple[float, Vector]]]:
        require_owner(self._process)
        point, restore = to_float64(x, self.dim)
        if self.project is not None:
            inside = np.asarray(self.project(point.copy()), dtype=np.float64)
            if inside.shape != point.shape or not all_finite(inside):
                raise ValueError(f"project must return a finite vector ({self.dim},), got {inside}.")
            outside = float(np.linalg.norm(inside - point))
            if outside > PROJECTION_SLACK * (1.0 + np.linalg.norm(point)):
                raise ValueError(
                    f"x must lie in the domain up to rounding, got a point {outside:.3g} outside. "
                    "The reply at its projection would not be exact data at x."
                )
            point = inside + 0.0
        return point, restore

    def _answer(self, point: Vector) -> Reply:
        row = self._log.find(point)
        if row is not None:
            return self._log.reply(row)
        raw_f, raw_g = self._ask(point)
        self._asked = point, raw_f, raw_g
        before = vars(self).copy() if self.strict else {}
        try:
            reply = self._choose(point, raw_f, raw_g)
        except InconsistentOracleError:
            vars(self).update(before)  # a refused answer leaves no trace
            raise
        self._record(point, raw_f, raw_g, reply)
        self.n_queries += 1
        self._watch_spread()
        if self.average > 1:
            self._shrink = hoeffding_radius(self.average, self.confidence, self.n_queries)
        return Reply(reply.value, reply.grad.copy(), reply.kind)

    def _ask(self, point: Vector) -> tuple[float, Vector]:
        value, grad = checked_reply(self.oracle(point.copy()), self.dim, self.n_queries + 1)
        if self.average == 1:
            return value, grad
        for _ in range(self.average - 1):
            more, slope = checked_reply(self.oracle(point.copy()), self.dim, self.n_queries + 1)
            value, grad = value + more, grad + slope
        return value / self.average, grad / self.average

    def _choose(self, point: Vector, raw_f: float, raw_g: Vector) -> Reply:
        raise NotImplementedError

    def _record(self, point: Vector, raw_f: float, raw_g: Vector, reply: Reply) -> None:
        self._log.append(point, raw_f, raw_g, reply)

    def _watch_spread(self) -> None:
        """Keep the largest distance between two queries; O(d) while all lie within D/2 of the first one."""
        declared = self.diameter
        at = self._log.newest
        self._reach = max(self._reach, math.sqrt(at @ at))
        if declared is not None and 2.0 * self._reach <= declared:
            return
        far = self._log.shifted - at
        self.spread = max(self.spread, math.sqrt(np.max(np.einsum("ij,ij->i", far, far))))
        if declared is not None and self.spread > declared * (1.0 + 1e-9):
            self._warn_once(
                "diameter",
                f"queries lie {self.spread:.4g} apart, further than the declared diameter {declared:.4g}; "
                "bounds use the larger one.",
                UserWarning,
            )

    @property
    def _actual_diameter(self) -> float:
        return self.spread if self.diameter is None else max(self.diameter, self.spread)

    def _certify(
        self, transferred: float, upper: float, lower: float, e_v: float, e_g: float, diameter: float
    ) -> Certificate:
        valid = self.n_inconsistent == 0
        return Certificate(
            bound=float(min(transferred, upper - lower)) if valid else np.inf,
            value_upper=float(upper) if valid else np.inf,
            lower=float(lower) if valid else -np.inf,
            e_V=float(e_v),
            e_g=float(e_g),
            diameter=float(diameter),
            valid=valid,
            confidence=1.0 if self.average == 1 else self.confidence,
        )

    # ---- contradictions

    def _contradiction(
        self, i: int, violation: float, reason: str, *, needs: str | None = None, smoothness: float | None = None
    ) -> None:
        """The query in hand contradicts row i. Strict: raise before anything is stored; else count, and warn once.

        The warning says what would explain the answers: `needs`, or by default the smallest errors of the latest ones.
        """
        if self.strict:
            raise InconsistentOracleError(i, self.n_queries, violation, reason)
        self.n_inconsistent += 1
        if "consistency" not in self._warned:
            self._warn_once("consistency", f"{reason}; {needs or self._needs(smoothness)}.", ConsistencyWarning)

    def _needs(self, smoothness: float | None) -> str:
        from inexact_oracle.estimate import smallest_errors

        view, (point, raw_f, raw_g) = self._log.view(), self._asked
        x = np.vstack([view.x[-40:], point])
        values, grads = np.append(view.raw_f[-40:], raw_f), np.vstack([view.raw_g[-40:], raw_g])
        ratio = self._declared[1] / self._declared[0] if self._declared[0] > 0 else 1.0
        try:
            fit = smallest_errors(x, values, grads, ratio=ratio, smoothness=smoothness)
        except ValueError as error:
            return f"what they need is not known: {error}"
        return f"the last {len(x)} answers alone need eta_f >= {fit.eta_f:.3g} and eta_g >= {fit.eta_g:.3g}"

    def _warn_once(self, topic: str, message: str, kind: type[UserWarning]) -> None:
        if topic not in self._warned:
            self._warned.add(topic)
            warnings.warn(message, kind, stacklevel=callers_level())

    # ---- state

    def _config(self) -> dict[str, object]:
        """Constructor arguments as JSON values."""
        return {
            "dim": self.dim,
            "eta_f": self._declared[0],
            "eta_g": self._declared[1],
            "diameter": None if self.diameter is None else repr(float(self.diameter)),
            "average": self.average,
            "confidence": self.confidence,
            "strict": self.strict,
        }

    def _counters(self) -> dict[str, object]:
        names = ("n_queries", "n_solves", "n_conic", "n_failures", "n_inconsistent", "spread", "_reach", "_shrink")
        return {name: getattr(self, name) for name in names}

    def save(self, path: str | Path) -> Path:
        """Write all replies and counts (safetensors and a JSON sidecar); returns the file's path.

        The oracle itself and `project` are code, so `load` is given them again.
        """
        with self._lock:
            config = {
                "wrapper": type(self).__name__,
                "arguments": self._config(),
                "count": self._log.count,
                "counters": self._counters(),
                "warned": sorted(self._warned),
            }
            tensors = {**self._log.tensors(), **self._extra_tensors()}
            return checkpoint.save(path, tensors, method=METHOD_NAME, version=version(METHOD_NAME), config=config)

    @classmethod
    def load(
        cls, path: str | Path, oracle: FirstOrderOracle, *, project: Callable[[Vector], Vector] | None = None
    ) -> Self:
        """A wrapper that continues exactly where `save` was called.

        Raises:
            ValueError: the file holds another kind of wrapper, an unknown format, or parts that do not fit together.
        """
        saved = checkpoint.load(path, method=METHOD_NAME)
        config = saved.config
        if config.get("wrapper") != cls.__name__:
            raise ValueError(f"{path} must hold a {cls.__name__}, got {config.get('wrapper')}. Load it by that class.")
        tensors: Mapping[str, NDArray[np.float64]] = saved.tensors  # type: ignore[assignment]
        with whole(path):
            arguments = dict(config["arguments"])  # type: ignore[call-overload]
            if isinstance(arguments["diameter"], str):
                arguments["diameter"] = float(arguments["diameter"])
            wrapper = cls(oracle, project=project, **arguments)
            wrapper._log.restore(dict(tensors), int(config["count"]))  # type: ignore[call-overload]
            restore_counters(wrapper, wrapper._counters(), config["counters"])
            wrapper._warned = set(config["warned"])  # type: ignore[call-overload]
            wrapper._restore_extra(tensors)
        return wrapper

    def _extra_tensors(self) -> dict[str, NDArray[np.float64]]:
        return {}

    def _restore_extra(self, tensors: Mapping[str, NDArray[np.float64]]) -> None:
        pass

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_process")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock, self._process = threading.RLock(), os.getpid()
