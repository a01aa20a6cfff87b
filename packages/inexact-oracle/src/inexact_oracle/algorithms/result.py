"""What every algorithm takes and returns."""

import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from offprints.checks import require_range

from inexact_oracle.lipschitz import LipschitzOracle
from inexact_oracle.oracle import FirstOrderOracle
from inexact_oracle.points import Vector, checked_reply


class History(NamedTuple):
    """Per query: the replied value, the best one so far, and the best lower bound so far (-inf: none)."""

    values: NDArray[np.float64]
    upper: NDArray[np.float64]
    lower: NDArray[np.float64]


class Result(NamedTuple):
    """The point returned, its replied value, a lower bound on the minimum that the replies imply, and how it ended.

    `status` is "converged" (the algorithm's own test was met, or its cuts leave nothing thicker than rounding),
    "budget" (all queries were spent), "crossed" (the lower bound is above the upper one, which exact data exclude), or
    what a third-party solver said.
    """

    x: NDArray[np.float64]
    value: float
    lower: float
    nquery: int
    status: str
    history: History


class Recorder:
    """Counts and records the queries of one run and keeps the best point."""

    def __init__(self, oracle: FirstOrderOracle) -> None:
        self.oracle = oracle
        self.x: Vector | None = None
        self.value, self.lower = np.inf, -np.inf
        self._values: list[float] = []
        self._lower: list[float] = []

    def __call__(self, x: Vector) -> tuple[float, Vector]:
        """Query, and remember.

        Raises:
            ValueError: the oracle returned something else than a finite value and gradient (d,).
        """
        value, grad = checked_reply(self.oracle(x), len(x), self.queries + 1)
        self._values.append(value)
        self._lower.append(self.lower)
        if value < self.value or self.x is None:
            self.value, self.x = value, np.array(x, dtype=np.float64)
        return value, grad

    def bound(self, lower: float) -> None:
        """A lower bound on the minimum, as implied by the replies so far."""
        self.lower = max(self.lower, float(lower))
        if self._lower:
            self._lower[-1] = self.lower

    @property
    def queries(self) -> int:
        """How many queries were made."""
        return len(self._values)

    def result(self, status: str, x: Vector | None = None, value: float | None = None) -> Result:
        """The run so far; the best point unless another one is given."""
        values = np.array(self._values, dtype=np.float64)
        history = History(values, np.minimum.accumulate(values), np.array(self._lower, dtype=np.float64))
        point = self.x if x is None else x
        if point is None:
            raise ValueError("the algorithm made no query, so it has no result.")
        return Result(
            np.array(point), self.value if value is None else value, self.lower, self.queries, status, history
        )


def start_point(x0: ArrayLike) -> Vector:
    """A float64 copy of x0 (d,)."""
    x = np.array(x0, dtype=np.float64)
    if x.ndim != 1 or not len(x) or not np.isfinite(x).all():
        raise ValueError(f"x0 must be a finite vector (d,) with d >= 1, got shape {x.shape}.")
    return x


def start_in_box(x0: ArrayLike | None, lower: Vector, upper: Vector) -> Vector:
    """x0 moved into the box, or its centre."""
    if x0 is None:
        return 0.5 * (lower + upper)
    x = start_point(x0)
    if x.shape != lower.shape:
        raise ValueError(f"x0 must have shape {lower.shape}, got {x.shape}.")
    return np.clip(x, lower, upper)


def check_budget(queries: int) -> int:
    """T as a positive integer."""
    require_range("T", queries, low=1, integer=True)
    return int(queries)


def box(bounds: tuple[ArrayLike, ArrayLike], dim: int | None, oracle: FirstOrderOracle) -> tuple[Vector, Vector]:
    """(lower, upper) as vectors (d,); d from `dim`, the oracle's `dim`, or the bounds themselves."""
    lower, upper = (np.asarray(side, dtype=np.float64) for side in bounds)
    size = dim or getattr(oracle, "dim", None) or max(lower.size, upper.size)
    if not {lower.shape, upper.shape} <= {(), (1,), (size,)}:
        raise ValueError(f"bounds must be two scalars or vectors ({size},), got shapes {lower.shape}, {upper.shape}.")
    lower, upper = np.broadcast_to(lower, (size,)).copy(), np.broadcast_to(upper, (size,)).copy()
    if not (np.isfinite(lower).all() and np.isfinite(upper).all() and (lower <= upper).all()):
        raise ValueError("bounds must be finite with lower <= upper in every entry: cutting planes start from a box.")
    return lower, upper


def warn_if_piecewise_linear(oracle: object, name: str) -> None:
    """Algorithms whose theory needs smoothness inherit nothing from a piecewise-linear function."""
    if isinstance(oracle, LipschitzOracle):
        warnings.warn(
            f"{name} needs a smooth function, but LipschitzOracle replies data of a piecewise-linear one: "
            "no guarantee carries over. Use SmoothOracle and step sizes for its extension_smoothness.",
            UserWarning,
            stacklevel=3,
        )
