"""How large the errors of an oracle must be: lower bounds from repeated answers and from contradictions.

Beyond the paper, which takes the errors as known (Section 1).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from offprints.checks import require_range
from scipy import sparse

from inexact_oracle import conic
from inexact_oracle.oracle import FirstOrderOracle
from inexact_oracle.points import Vector, checked_reply

Index = NDArray[np.intp]


class ErrorEstimate(NamedTuple):
    """Errors that the data prove: no smaller pair explains them.

    Attributes:
        eta_f: lower bound on the value error.
        eta_g: lower bound on the gradient error (2-norm), on the ray eta_g = ratio * eta_f.
        repeats_f: half the largest range of the values at one point (any eta_g).
        repeats_g: half the largest distance of two gradients at one point (any eta_f); a lower bound for smooth f only,
            since a subgradient may be any of several.
    """

    eta_f: float
    eta_g: float
    repeats_f: float
    repeats_g: float


def estimate_errors(
    oracle: FirstOrderOracle,
    x: NDArray[np.float64],
    reps: int = 2,
    *,
    ratio: float | None = None,
    smoothness: float | None = None,
) -> ErrorEstimate:
    """Query every row of x `reps` times; the smallest errors that make the answers data of a convex function.

    Args:
        oracle: the inexact oracle.
        x: points, (n, d); the program has n (d + 1) unknowns and n^2 rows, so n <= 100 is sensible.
        reps: answers per point.
        ratio: eta_g / eta_f; by default 1 / (largest distance between two points), which makes both weigh the same.
        smoothness: L, if f is known to be L-smooth; its inequalities are then used as well.

    Raises:
        ValueError: x is not (n, d) with n >= 1, or the oracle returned something that is not finite.
    """
    x = np.asarray(x, dtype=np.float64)
    if x.ndim != 2 or len(x) == 0:
        raise ValueError(f"x must have shape (n, d) with n >= 1, got {x.shape}.")
    require_range("reps", reps, low=1, integer=True)
    n, d = x.shape
    values, grads = np.empty((n, reps)), np.empty((n, reps, d))
    for i in range(n):
        for k in range(reps):
            values[i, k], grads[i, k] = checked_reply(oracle(x[i].copy()), d, i * reps + k + 1)
    repeats_f = float(np.max(np.ptp(values, axis=1))) / 2.0
    apart = np.linalg.norm(grads[:, :, None, :] - grads[:, None, :, :], axis=-1)
    if ratio is None:
        spread = float(np.max(np.linalg.norm(x[:, None] - x[None, :], axis=-1)))
        ratio = 1.0 / spread if spread > 0 else 1.0
    fit = smallest_errors(
        np.repeat(x, reps, axis=0), values.ravel(), grads.reshape(-1, d), ratio=ratio, smoothness=smoothness
    )
    return ErrorEstimate(
        max(fit.eta_f, repeats_f), max(fit.eta_g, ratio * repeats_f), repeats_f, float(apart.max()) / 2.0
    )


def smallest_errors(
    x: NDArray[np.float64],
    values: NDArray[np.float64],
    grads: NDArray[np.float64],
    *,
    ratio: float,
    smoothness: float | None = None,
) -> ErrorEstimate:
    """The least eta s.t. |F_i - f~_i| <= eta, |G_i - g~_i| <= ratio * eta and F_i >= F_j + <G_j, x_i - x_j> [+ bend].

    With `smoothness` L, the bend is |G_i - G_j|^2 / (2L) (second-order cones); without, the program is linear but for
    the n gradient balls. Rows at one point share F but not G, since a kink has several subgradients.

    Args:
        x: points, (n, d).
        values: raw values, (n,).
        grads: raw gradients, (n, d).
        ratio: eta_g / eta_f of the ray that is searched; 0 for exact gradients.
        smoothness: L or None.

    Raises:
        ValueError: shapes do not fit; no eta will do (exact gradients that contradict the smoothness).
    """
    x, values, grads = (np.asarray(a, dtype=np.float64) for a in (x, values, grads))
    n, d = x.shape
    if values.shape != (n,) or grads.shape != (n, d):
        raise ValueError(f"values and grads must have shapes ({n},) and ({n}, {d}), got {values.shape}, {grads.shape}.")
    require_range("ratio", ratio, low=0.0, high=np.inf, high_open=True)
    if n == 1:
        return ErrorEstimate(0.0, 0.0, 0.0, 0.0)
    i, j = np.nonzero(~np.eye(n, dtype=bool))
    steps = x[i] - x[j]
    excess = values[j] + np.einsum("ij,ij->i", grads[j], steps) - values[i]
    # Units: contradictions are of size `unit`, gradients of size `unit` / longest step.
    unit = max(float(np.abs(excess).max()), np.finfo(float).tiny)
    slope = unit / max(float(np.linalg.norm(steps, axis=1).max()), np.finfo(float).tiny)
    gain = _convexity_rows(i, j, steps * (slope / unit), n)
    blocks, sides, cones = _error_cones(n, d, ratio * unit / slope)
    if smoothness is None:
        blocks.append(-gain)
        sides.append(-excess / unit)
        cones.append(conic.nonnegative(len(i)))
    else:
        curve = 2.0 * slope / np.sqrt(2.0 * smoothness * unit)
        block, side = _bend_cones(gain, i, j, excess / unit, curve * (grads[i] - grads[j]) / slope, curve, n)
        blocks.append(block)
        sides.append(side)
        cones += [conic.second_order(d + 2)] * len(i)
    best = conic.solve(
        None, np.eye(1, gain.shape[1])[0], sparse.csr_matrix(sparse.vstack(blocks)), np.concatenate(sides), cones
    )
    if best is None:
        raise ValueError(
            f"no errors with eta_g = {ratio:.3g} eta_f explain these answers, or the conic solver failed. "
            "Pass a larger ratio, or fewer points."
        )
    eta = unit * float(best.z[0])
    return ErrorEstimate(max(eta, 0.0), max(ratio * eta, 0.0), 0.0, 0.0)


# The unknowns are z = (eta, F - f~ (n), G - g~ (n d)), in units. Rows below are those of A in b - A z in a cone.


def _convexity_rows(i: Index, j: Index, steps: Vector, n: int) -> sparse.csr_matrix:
    """F_i - F_j - <G_j, x_i - x_j> for the pairs (i, j) as rows on z, (m, 1 + n + n d)."""
    m, d = steps.shape
    pairs = np.arange(m)
    rows = np.concatenate([pairs, pairs, np.repeat(pairs, d)])
    columns = np.concatenate([1 + i, 1 + j, (1 + n + j[:, None] * d + np.arange(d)).ravel()])
    data = np.concatenate([np.ones(m), -np.ones(m), -steps.ravel()])
    return sparse.csr_matrix((data, (rows, columns)), shape=(m, 1 + n + n * d))


def _error_cones(n: int, d: int, ratio: float) -> tuple[list[sparse.csr_matrix], list[Vector], list[object]]:
    """|F_i - f~_i| <= eta as 2n rows, |G_i - g~_i| <= ratio * eta as n second-order cones."""
    nothing = sparse.csr_matrix((n, n * d))
    values = [sparse.hstack([-np.ones((n, 1)), sign * sparse.eye(n), nothing]) for sign in (1.0, -1.0)]
    radius = np.zeros((n * (d + 1), 1))
    radius[:: d + 1] = -ratio
    pick = sparse.vstack([sparse.csr_matrix((1, d)), -sparse.eye(d)])
    balls = sparse.hstack([radius, sparse.csr_matrix((n * (d + 1), n)), sparse.kron(sparse.eye(n), pick)])
    cones = [conic.nonnegative(2 * n)] + [conic.second_order(d + 1)] * n
    blocks = [sparse.csr_matrix(block) for block in (*values, balls)]
    return blocks, [np.zeros(2 * n + n * (d + 1))], cones


def _bend_cones(
    gain: sparse.csr_matrix, i: Index, j: Index, excess: Vector, bends: Vector, curve: float, n: int
) -> tuple[sparse.csr_matrix, Vector]:
    """For each pair |r|^2 <= y, as |(y - 1, 2r)| <= y + 1: y = gain z - excess and 2r = curve (w_i - w_j) + bends."""
    m, d = bends.shape
    twice = np.zeros((d + 2, 1))
    twice[:2] = 1.0
    rows = (np.arange(m)[:, None] * (d + 2) + 2 + np.arange(d)).ravel()
    columns = [(1 + n + k[:, None] * d + np.arange(d)).ravel() for k in (i, j)]
    data = np.repeat([-curve, curve], m * d)
    slopes = sparse.csr_matrix((data, (np.tile(rows, 2), np.concatenate(columns))), shape=(m * (d + 2), gain.shape[1]))
    sides = np.hstack([1.0 - excess[:, None], -1.0 - excess[:, None], bends])
    return slopes - sparse.kron(sparse.eye(m), twice) @ gain, sides.ravel()
