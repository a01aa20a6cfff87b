"""What a run proves about the user's own function: the transfer theorem (Section 1 of the paper), from the replies."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from inexact_oracle import conic
from inexact_oracle.points import Vector


class Certificate(NamedTuple):
    """f(x) - min f <= `bound`, from the replies alone.

    Attributes:
        bound: the smaller of the transferred bound (algorithm_error plus the error terms) and `value_upper - lower`;
            infinite when not valid.
        value_upper: f(x) is at most this.
        lower: min f over all y within `diameter` of every query (and the box, when given) is at least this.
        e_V: value error of the replies, max_i f(x_i) - V_i <= e_V (declared error plus recorded shortfalls).
        e_g: gradient error of the replies, max_i |s_i - g_i| <= e_g.
        diameter: D used; the larger of the declared one and the spread of the queries.
        valid: False when the replies contradict the declared errors: then nothing is proved.
        confidence: probability that the bounds hold; 1 unless answers were averaged.
    """

    bound: float
    value_upper: float
    lower: float
    e_V: float
    e_g: float
    diameter: float
    valid: bool
    confidence: float


def require_limits(
    bounds: tuple[NDArray[np.float64] | float, NDArray[np.float64] | float] | None, dim: int
) -> tuple[Vector, Vector] | None:
    """(lower, upper) of a box as vectors (d,), each side scalar or (d,) and perhaps infinite; None stays None.

    Raises:
        TypeError: bounds is no pair.
        ValueError: a side has another shape or holds NaN, or lower > upper somewhere.
    """
    if bounds is None:
        return None
    if not isinstance(bounds, (tuple, list)) or len(bounds) != 2:
        raise TypeError(f"bounds must be a pair (lower, upper), got {bounds!r}.")
    lower, upper = (np.asarray(side, dtype=np.float64) for side in bounds)
    if not {lower.shape, upper.shape} <= {(), (1,), (dim,)}:
        raise ValueError(f"bounds must be two scalars or vectors ({dim},), got shapes {lower.shape}, {upper.shape}.")
    if not (lower <= upper).all():
        raise ValueError(f"bounds must have lower <= upper in every entry, got {bounds!r}.")
    return np.broadcast_to(lower, (dim,)).copy(), np.broadcast_to(upper, (dim,)).copy()


def model_minimum(heights: Vector, slopes: Vector, radius: float, box: tuple[Vector, Vector] | None = None) -> float:
    """A lower bound on min_y max_i heights_i + <slopes_i, y> over |y| <= radius, and lower <= y <= upper.

    Args:
        heights: values of the cuts at the centre, (t,).
        slopes: their gradients, (t, d).
        radius: of the ball; may be infinite, then only a zero slope or the box bounds the model.
        box: limits of y relative to the centre, or None.

    Returns:
        The dual objective of a second-order cone program; -inf when no bound was found.
    """
    if box is not None and not np.isfinite(radius):
        reach = np.maximum(np.abs(box[0]), np.abs(box[1]))
        radius = float(np.linalg.norm(reach)) if np.isfinite(reach).all() else radius
    if not np.isfinite(radius):
        flat = ~slopes.any(axis=1)
        return float(heights[flat].max()) if flat.any() else -np.inf
    if radius == 0.0:
        return float(heights.max())
    top = float(heights.max())
    scale = max(float(np.abs(slopes).max()) * radius, np.finfo(float).tiny)
    limits = None if box is None else (box[0] / radius, box[1] / radius)
    best = conic.lowest_over_ball((heights - top) / scale, slopes * (radius / scale), limits)
    # The dual objective is a bound up to the solver's tolerance, which is taken off.
    return -np.inf if best is None else top + scale * (best.dual - 1e-9)
