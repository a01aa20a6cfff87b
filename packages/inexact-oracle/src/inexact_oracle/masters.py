"""Mixed-integer linear programs by HiGHS, without the lines that it prints whatever its options say."""

import contextlib
import ctypes
import os
import sys
import tempfile
import threading
from collections.abc import Generator

import numpy as np
from scipy import optimize

from inexact_oracle.points import Vector

_turn = threading.Lock()
# names of C++ classes, and the banner that an instance prints when it is made
_OURS = (b"Highs", b"Running HiGHS", b"Includes third-party software")


def _flush() -> None:
    """Empty the buffers of Python's and of C's standard output into the file that they stand for now."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no such stream, or a closed one
        sys.stdout.flush()
    with contextlib.suppress(AttributeError, OSError):  # no C library by that name
        ctypes.CDLL("ucrtbase" if os.name == "nt" else None).fflush(None)


@contextlib.contextmanager
def without_solver_lines() -> Generator[None, None, None]:
    """Keep lines of HiGHS from standard output; what other threads write there meanwhile comes out afterwards.

    It calls printf, whatever its options say, when it repairs a solution (1.8 to 1.12) or is made (1.16), so only the
    file descriptor can be turned away.
    """
    with _turn:
        _flush()
        try:
            stdout = os.dup(1)
        except OSError:  # there is no standard output
            yield
            return
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), 1)
            try:
                yield
            finally:
                _flush()
                os.dup2(stdout, 1)
                os.close(stdout)
                file.seek(0)
                rest = b"".join(line for line in file if not line.startswith(_OURS))
                while rest:
                    rest = rest[os.write(1, rest) :]


def mixed_integer_minimum(
    slopes: Vector, offsets: Vector, whole: Vector, lower: Vector, upper: Vector
) -> tuple[float, Vector]:
    """min_x max_i <slopes_i, x> + offsets_i over a box, entries with `whole` integer: a proved lower bound, and where.

    Raises:
        RuntimeError: the program was not solved.
    """
    d = slopes.shape[1]
    with without_solver_lines():
        found = optimize.milp(
            np.eye(1, d + 1, d)[0],
            integrality=np.append(whole.astype(int), 0),
            bounds=optimize.Bounds(np.append(lower, -np.inf), np.append(upper, np.inf)),
            constraints=optimize.LinearConstraint(np.hstack([slopes, -np.ones((len(slopes), 1))]), ub=-offsets),
            options={"mip_rel_gap": 0.0},
        )
    if found.x is None:
        raise RuntimeError(f"the master problem was not solved: {found.message}")
    proved = found.mip_dual_bound if whole.any() and found.mip_dual_bound is not None else found.fun
    return float(proved), found.x[:-1]
