"""The smallest and the largest L'-smooth convex function through given data (Taylor, Hendrickx and Glineur 2017).

    F+(y) = min over the simplex of  L'/2 |y - sum l_i (x_i - s_i/L')|^2 + sum l_i (V_i - |s_i|^2/(2L'))
    F-(y) = max over the simplex of  sum l_i (V_i + <s_i, y - x_i>) + (sum l_i |s_i|^2 - |sum l_i s_i|^2)/(2L')

Both are quadratic programs over the t weights l.
"""

import numpy as np

from inexact_oracle import conic
from inexact_oracle.points import Vector


def largest(y: Vector, x: Vector, v: Vector, s: Vector, smoothness: float) -> tuple[float, Vector] | None:
    """F+(y) and its gradient L'(y - sum l_i (x_i - s_i/L')); None when the solver failed."""
    centres = (x - y) - s / smoothness
    cost = v - np.einsum("ij,ij->i", s, s) / (2.0 * smoothness)
    weights = _weights(np.sqrt(smoothness) * centres, cost)
    if weights is None:
        return None
    away = weights @ centres
    return float(smoothness / 2.0 * (away @ away) + weights @ cost), -smoothness * away


def smallest(y: Vector, x: Vector, v: Vector, s: Vector, smoothness: float) -> tuple[float, Vector] | None:
    """F-(y) and its gradient sum l_i s_i; None when the solver failed."""
    middle = s.mean(axis=0)
    spread = s - middle  # the variance term does not depend on the centre, rounding does
    gain = v + np.einsum("ij,ij->i", s, y - x) + np.einsum("ij,ij->i", spread, spread) / (2.0 * smoothness)
    weights = _weights(spread / np.sqrt(smoothness), -gain)
    if weights is None:
        return None
    mean = weights @ spread
    return float(weights @ gain - mean @ mean / (2.0 * smoothness)), middle + mean


def _weights(points: Vector, cost: Vector) -> Vector | None:
    """The minimiser of |sum l_i p_i|^2/2 + <cost, l> over the simplex."""
    cost = cost - cost.min()
    scale = max(0.5 * float(np.max(np.einsum("ij,ij->i", points, points))), float(cost.max()))
    if scale == 0.0:
        return np.full(len(cost), 1.0 / len(cost))
    best = conic.on_simplex(points / np.sqrt(scale), cost / scale)
    if best is None:
        return None
    weights = np.maximum(best.z[points.shape[1] :], 0.0)
    return weights / weights.sum()
