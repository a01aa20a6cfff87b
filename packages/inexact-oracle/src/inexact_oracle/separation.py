"""The wrapper for sets that are given by an inexact separation oracle (Section 1 of the paper)."""

import os
import threading
import warnings
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offprints import checkpoint
from offprints.checks import require_finite, require_kind, require_range, require_shape

from inexact_oracle import conic
from inexact_oracle.contradictions import ConsistencyWarning, InconsistentOracleError, callers_level
from inexact_oracle.points import Point, Vector, checked_reply, to_float64
from inexact_oracle.saved import METHOD_NAME, require_owner, restore_counters, whole

# Room for the solver's rounding: <s, z_j - x> <= -MARGIN |z_j - x| is asked for, so that <= 0 holds exactly.
MARGIN = 1e-9


class SeparationOracle:
    """Exact separation data of a convex set C' close to C, from an inexact separation oracle of C.

    The oracle answers a point x by None ("feasible": x lies within rho of C) or by a unit vector g~ with
    |g~ - g| <= eta_s for some unit g with <g, y - x> < 0 for all y in C. Replies are consistent at all times: no point
    that was declared feasible is cut off, neither by an earlier nor by a later cut.

    - x violates an earlier cut and is called feasible: the reply is that cut (it separates x from all of C').
    - x is called infeasible: the reply is the unit vector along argmin |s - g~| s.t. <s, z_j - x> <= 0 for every z_j
      declared feasible. For rho = 0 the true g is allowed there, hence |s - g| <= 2 eta_s.
    - no such s exists: x is in the hull of the z_j, hence within rho of C, and is declared feasible.

    So every point whose distance to the outside of C is at least e_s D satisfies every cut, with e_s = max |s - g~| +
    eta_s <= 2 eta_s (the last for rho = 0). For an M-Lipschitz f and a C that holds a ball of radius r >= e_s D,
    optimising over C' instead of C loses at most M e_s D^2 / r (`value_loss`).

    Args:
        oracle: x (d,) -> None or a unit vector (d,).
        dim: d.
        eta_s: bound on |g~ - g|, below 1.
        rho: how far outside of C a point may be that the oracle calls feasible.
        strict: raise `InconsistentOracleError` where otherwise `ConsistencyWarning` is given.

    Raises:
        ValueError: eta_s outside [0, 1), a negative rho.
    """

    def __init__(
        self,
        oracle: Callable[[Vector], NDArray[np.float64] | None],
        dim: int,
        eta_s: float,
        *,
        rho: float = 0.0,
        strict: bool = False,
    ) -> None:
        if not callable(oracle):
            raise TypeError(f"oracle must be callable as oracle(x) -> None or a vector, got {type(oracle).__name__}.")
        require_kind("strict", strict, bool)
        require_range("dim", dim, low=1, integer=True)
        require_range("eta_s", eta_s, low=0.0, high=1.0, high_open=True)
        require_range("rho", rho, low=0.0, high=np.inf, high_open=True)
        self.oracle, self.dim, self.eta_s, self.rho, self.strict = oracle, int(dim), float(eta_s), float(rho), strict
        self._lock, self._process = threading.RLock(), os.getpid()
        self.reset()

    def reset(self) -> None:
        """Forget all answers and counts."""
        self._feasible: list[Vector] = []
        self._cut_points: list[Vector] = []
        self._cuts: list[Vector] = []
        self._known: dict[bytes, int] = {}  # -1 feasible, else the row of the cut
        self.n_queries = self.n_solves = self.n_failures = self.n_inconsistent = 0
        self._shift = 0.0  # max |s - g~|
        self._warned = False

    @property
    def feasible_points(self) -> Vector:
        """Points declared feasible, (m, d)."""
        return np.array(self._feasible).reshape(-1, self.dim)

    @property
    def cuts(self) -> tuple[Vector, Vector]:
        """Unit normals s_k (n, d) and points x_k (n, d): C' = {y : <s_k, y - x_k> <= 0 for all k}."""
        return np.array(self._cuts).reshape(-1, self.dim), np.array(self._cut_points).reshape(-1, self.dim)

    @property
    def slope_error(self) -> float:
        """e_s: every cut is satisfied by all points of C at depth e_s D or more."""
        return self._shift + self.eta_s

    def value_loss(self, lipschitz: float, diameter: float, radius: float) -> float:
        """M e_s D^2 / r: loss of the minimum of an M-Lipschitz function over C' cut down to the deep points of C.

        Infinite when the ball of radius r inside C is not deep enough (r < e_s D): then nothing is proved.
        """
        for name, value in (("lipschitz", lipschitz), ("diameter", diameter), ("radius", radius)):
            require_range(name, value, low=0.0, low_open=name != "lipschitz", high=np.inf, high_open=True)
        depth = self.slope_error * diameter
        return float(lipschitz * depth * diameter / radius) if depth <= radius else np.inf

    def __call__(self, x: Point) -> NDArray[np.float64] | None:
        """None when x is declared feasible, else a unit s with <s, y - x> <= 0 for all declared-feasible y.

        Raises:
            ValueError: x has a wrong shape or is not finite; the oracle returned such a thing (the state is unchanged).
            RuntimeError: called in a process forked from the one that owns the wrapper.
            InconsistentOracleError: in strict mode, when the answers contradict eta_s and rho.
        """
        require_owner(self._process)
        with self._lock:
            point, restore = to_float64(x, self.dim)
            row = self._known.get(point.tobytes())
            if row is None:
                before = vars(self).copy() if self.strict else {}
                try:
                    row = self._answer(point)
                except InconsistentOracleError:
                    vars(self).update(before)  # a refused answer leaves no trace
                    raise
            return None if row < 0 else restore(0.0, self._cuts[row].copy())[1]

    def _answer(self, point: Vector) -> int:
        answer = self.oracle(point.copy())
        raw = None if answer is None else self._unit(answer)
        if raw is None:
            violated = self._violated(point)
            row = self._declare(point) if violated is None else violated
        else:
            normal = self._consistent(point, raw)
            row = self._declare(point) if normal is None else self._cut(point, normal)
            if normal is not None:
                self._shift = max(self._shift, float(np.linalg.norm(normal - raw)))
        self._known[point.tobytes()] = row
        self.n_queries += 1
        return row

    def _unit(self, answer: object) -> Vector:
        _, raw = checked_reply((0.0, answer), self.dim, self.n_queries + 1, "normal")
        size = float(np.linalg.norm(raw))
        if not abs(size - 1.0) <= 1e-6:
            raise ValueError(
                f"oracle returned a normal of length {size:.6g} at query {self.n_queries + 1}, expected 1."
            )
        return raw / size

    def _violated(self, point: Vector) -> int | None:
        """The earlier cut that excludes the point by most, if one does."""
        if not self._cuts:
            return None
        normals, at = self.cuts
        excess = np.einsum("ij,ij->i", normals, point - at)
        row = int(excess.argmax())
        return row if excess[row] > 0.0 else None

    def _declare(self, point: Vector) -> int:
        self._feasible.append(point)
        return -1

    def _cut(self, point: Vector, normal: Vector) -> int:
        self._cuts.append(normal)
        self._cut_points.append(point)
        return len(self._cuts) - 1

    def _consistent(self, point: Vector, raw: Vector) -> Vector | None:
        """The nearest unit normal that keeps every declared-feasible point; None when there is none."""
        if not self._feasible:
            return raw
        away = self.feasible_points - point
        lengths = np.linalg.norm(away, axis=1)
        rows = away / lengths[:, None]
        if (rows @ raw <= 0.0).all():
            return raw
        self.n_solves += 1
        best = conic.nearest_in_cone(raw, rows, MARGIN)
        normal = self._deepest(rows) if best is None else best.z / np.linalg.norm(best.z)
        distance = np.inf if normal is None or best is None else float(np.linalg.norm(best.z - raw))
        if self.rho == 0.0 and distance > self.eta_s + 1e-6:
            self._contradiction(distance - self.eta_s)
        return normal

    def _deepest(self, rows: Vector) -> Vector | None:
        """The unit normal that keeps all points with most room; None when x is in their hull."""
        deepest = conic.lowest_over_ball(np.zeros(len(rows)), rows, None)
        if deepest is None or deepest.z[0] > -10.0 * MARGIN:
            return None
        self.n_failures += 1  # a normal exists, yet the projection did not find it
        return deepest.z[1:] / np.linalg.norm(deepest.z[1:])

    def check_consistency(self) -> float:
        """The largest <s_k, z_j - x_k> over all cuts and declared-feasible points (0 or less when consistent)."""
        with self._lock:
            normals, at = self.cuts
            points = self.feasible_points
        if not len(normals) or not len(points):
            return 0.0
        return float((points @ normals.T - np.einsum("ij,ij->i", normals, at)).max())

    def _contradiction(self, violation: float) -> None:
        reason = "no separating normal within eta_s keeps all points that were called feasible"
        if self.strict:
            raise InconsistentOracleError(self.n_queries, self.n_queries, violation, reason)
        self.n_inconsistent += 1
        if not self._warned:
            self._warned = True
            warnings.warn(f"{reason}: eta_s or rho is too small.", ConsistencyWarning, stacklevel=callers_level())

    def _counters(self) -> dict[str, object]:
        names = ("n_queries", "n_solves", "n_failures", "n_inconsistent", "_shift", "_warned")
        return {name: getattr(self, name) for name in names}

    def save(self, path: str | Path) -> Path:
        """Write all answers (safetensors and a JSON sidecar); returns the file's path."""
        with self._lock:
            normals, at = self.cuts
            known = np.array([np.frombuffer(key) for key in self._known]).reshape(-1, self.dim)
            tensors = {
                "feasible": self.feasible_points,
                "normals": normals,
                "cut_points": at,
                "known": known,
                "rows": np.array(list(self._known.values()), dtype=np.int64),
            }
            config = {
                "wrapper": "SeparationOracle",
                "arguments": {"dim": self.dim, "eta_s": self.eta_s, "rho": self.rho, "strict": self.strict},
                "counters": self._counters(),
            }
            return checkpoint.save(path, tensors, method=METHOD_NAME, version=version(METHOD_NAME), config=config)

    @classmethod
    def load(cls, path: str | Path, oracle: Callable[[Vector], NDArray[np.float64] | None]) -> "SeparationOracle":
        """A wrapper that continues exactly where `save` was called.

        Raises:
            ValueError: the file holds another kind of wrapper, an unknown format, or parts that do not fit together.
        """
        saved = checkpoint.load(path, method=METHOD_NAME)
        if saved.config.get("wrapper") != "SeparationOracle":
            raise ValueError(f"{path} must hold a SeparationOracle, got {saved.config.get('wrapper')}.")
        with whole(path):
            wrapper = cls(oracle, **saved.config["arguments"])  # type: ignore[arg-type]
            wrapper._restore(saved.tensors, saved.config["counters"])  # type: ignore[arg-type]
        return wrapper

    def _restore(self, tensors: Mapping[str, NDArray[np.float64]], counters: object) -> None:
        for name in ("feasible", "normals", "cut_points", "known"):
            require_shape(name, tensors[name], (None, self.dim))
            require_finite(name, tensors[name])
        if len(tensors["normals"]) != len(tensors["cut_points"]):
            raise ValueError("normals and cut_points must have as many rows")
        if not ((tensors["rows"] >= -1) & (tensors["rows"] < len(tensors["normals"]))).all():
            raise ValueError("rows must name a cut, or -1")
        self._feasible = [np.array(row) for row in tensors["feasible"]]
        self._cuts = [np.array(row) for row in tensors["normals"]]
        self._cut_points = [np.array(row) for row in tensors["cut_points"]]
        answers = zip(tensors["known"], tensors["rows"], strict=True)
        self._known = {np.array(point).tobytes(): int(row) for point, row in answers}
        restore_counters(self, self._counters(), counters)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "_process")}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._lock, self._process = threading.RLock(), os.getpid()
