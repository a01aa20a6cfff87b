"""The log of replies: arrays that grow by doubling, or a window of fixed size with one aggregate cut."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from offprints.checks import require_finite, require_shape

from inexact_oracle.points import Vector

NEW, OLD = 0, 1
KINDS = ("new", "old")


class Reply(NamedTuple):
    """One answer: value V, subgradient s and whether it added a cut (`NEW`) or repeats one of the model (`OLD`)."""

    value: float
    grad: Vector
    kind: int


class Replies(NamedTuple):
    """All kept replies in the order of the queries.

    `x` (t, d) points, `V` (t,) and `s` (t, d) the consistent replies, `raw_f` (t,) and `raw_g` (t, d) what the oracle
    said, `kind` (t,) "new" or "old" (section 1 of the method card).
    """

    x: NDArray[np.float64]
    V: NDArray[np.float64]
    s: NDArray[np.float64]
    raw_f: NDArray[np.float64]
    raw_g: NDArray[np.float64]
    kind: NDArray[np.str_]


class ReplyLog:
    """Rows (x_i, V_i, s_i, raw) with amortised O(d) append; rows are relative to the first point for conditioning.

    With `window` set, the oldest row is overwritten once `window` rows are kept; `append` then returns the cut
    (offset, slope) that left, so that the owner can fold it into an aggregate.
    """

    def __init__(self, dim: int, window: int | None = None) -> None:
        self.dim, self.window = dim, window
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.origin: Vector = np.zeros(self.dim)
        self.count = self.size = 0  # replies ever appended, and kept
        self.newest: Vector = np.zeros(self.dim)  # the last point, relative to the first one
        self._index: dict[bytes, int] = {}
        self._allocate(min(16, self.window or 16))

    def _allocate(self, capacity: int) -> None:
        d = self.dim
        self._points, self._shifted, self._slopes, self._raw_g = (np.empty((capacity, d)) for _ in range(4))
        self._values, self._offsets, self._raw_f = (np.empty(capacity) for _ in range(3))
        self._kinds = np.empty(capacity, dtype=np.int8)

    def _grow(self) -> None:
        capacity = 2 * len(self._values)
        if self.window is not None:
            capacity = min(capacity, self.window)
        for name in ("_points", "_shifted", "_slopes", "_raw_g", "_values", "_offsets", "_raw_f", "_kinds"):
            old = getattr(self, name)
            new = np.empty((capacity, *old.shape[1:]), dtype=old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    def __len__(self) -> int:
        return self.size

    @property
    def shifted(self) -> Vector:
        """Points relative to the first one, (t, d)."""
        return self._shifted[: self.size]

    @property
    def slopes(self) -> Vector:
        """Replied subgradients s_i, (t, d)."""
        return self._slopes[: self.size]

    @property
    def values(self) -> Vector:
        """Replied values V_i, (t,)."""
        return self._values[: self.size]

    @property
    def offsets(self) -> Vector:
        """V_i - <s_i, x_i - origin>, (t,): cut i is offsets[i] + <s_i, x - origin>."""
        return self._offsets[: self.size]

    @property
    def raw_values(self) -> Vector:
        """Raw values, (t,)."""
        return self._raw_f[: self.size]

    @property
    def raw_slopes(self) -> Vector:
        """Raw gradients, (t, d)."""
        return self._raw_g[: self.size]

    def find(self, point: Vector) -> int | None:
        """Row of exactly this point, if it is kept."""
        return self._index.get(point.tobytes())

    def reply(self, row: int) -> Reply:
        """The stored answer of a row."""
        return Reply(float(self._values[row]), self._slopes[row].copy(), int(self._kinds[row]))

    def append(self, point: Vector, raw_f: float, raw_g: Vector, reply: Reply) -> tuple[float, Vector] | None:
        """Store one reply; returns the cut that fell out of the window, if one did."""
        if self.count == 0:
            self.origin = point.copy()
        evicted = None
        if self.window is not None and self.count >= self.window:
            row = self.count % self.window
            evicted = float(self._offsets[row]), self._slopes[row].copy()
            del self._index[self._points[row].tobytes()]
        else:
            row = self.count
            if row == len(self._values):
                self._grow()
        shifted = self.newest = point - self.origin
        self._points[row], self._shifted[row], self._slopes[row], self._raw_g[row] = point, shifted, reply.grad, raw_g
        self._values[row], self._raw_f[row], self._kinds[row] = reply.value, raw_f, reply.kind
        self._offsets[row] = reply.value - reply.grad @ shifted
        self._index[point.tobytes()] = row
        self.count += 1
        self.size += evicted is None
        return evicted

    def _order(self) -> NDArray[np.intp]:
        size = len(self)
        start = self.count % size if size and self.count > size else 0
        return (np.arange(size) + start) % max(size, 1)

    def view(self) -> Replies:
        """Copies of all kept rows, oldest first."""
        order = self._order()
        return Replies(
            self._points[order],
            self._values[order],
            self._slopes[order],
            self._raw_f[order],
            self._raw_g[order],
            np.array([KINDS[k] for k in self._kinds[order]], dtype=np.str_),
        )

    def tensors(self) -> dict[str, NDArray[np.float64] | NDArray[np.int64]]:
        """Everything that `restore` needs, as arrays."""
        order = self._order()
        return {
            "x": self._points[order],
            "V": self._values[order],
            "s": self._slopes[order],
            "raw_f": self._raw_f[order],
            "raw_g": self._raw_g[order],
            "kind": self._kinds[order].astype(np.int64),
            "origin": self.origin,
        }

    def restore(self, tensors: dict[str, NDArray[np.float64]], count: int) -> None:
        """Fill the log from `tensors`; `count` replies were made in all.

        Raises:
            KeyError: an array is missing.
            ValueError: shapes do not fit, values are not finite, or the count does not go with the rows.
        """
        self.clear()
        size = len(tensors["V"])
        wide, long = ("x", "s", "raw_g"), ("V", "raw_f", "kind")
        shapes = {**dict.fromkeys(wide, (size, self.dim)), **dict.fromkeys(long, (size,)), "origin": (self.dim,)}
        for name, shape in shapes.items():
            require_shape(name, tensors[name], shape)
            require_finite(name, tensors[name])
        if size != (count if self.window is None else min(count, self.window)):
            raise ValueError(f"{size} rows are kept, which does not go with a count of {count}")
        if size:
            # The rows go back to the slots they came from, so that a window keeps turning at the same place.
            self.count, self.size = count - size, size
            while len(self._values) < size:
                self._grow()
            self.origin = np.array(tensors["origin"])
            for k in range(size):
                row = self.count if self.window is None else self.count % self.window
                shifted = tensors["x"][k] - self.origin
                self._points[row], self._shifted[row] = tensors["x"][k], shifted
                self._slopes[row], self._raw_g[row] = tensors["s"][k], tensors["raw_g"][k]
                self._values[row], self._raw_f[row] = tensors["V"][k], tensors["raw_f"][k]
                self._kinds[row] = tensors["kind"][k]
                self._offsets[row] = tensors["V"][k] - tensors["s"][k] @ shifted
                self._index[np.array(tensors["x"][k]).tobytes()] = row
                self.count += 1
