"""The equations written out literally, slow and obvious; tests compare the fast path with them.

Kerger, Molinaro, Jiang and Basu (ICML 2024) for the piecewise-linear extension; Taylor, Hendrickx and Glineur (2017)
for the interpolation of smooth convex functions. The conic programs are stated in cvxpy, which the tests bring along.
"""

from collections.abc import Sequence

import numpy as np

Array = np.ndarray


def _optimum(objective: object, rules: Sequence[object]) -> float:
    import cvxpy as cp

    problem = cp.Problem(objective, list(rules))  # type: ignore
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    return float(np.asarray(problem.value, dtype=float))


def _at_optimum(variable: object) -> Array:
    return np.asarray(variable.value, dtype=float)  # type: ignore[attr-defined]


def piecewise_linear(y: Array, x: Array, v: Array, s: Array) -> float:
    """F(y) = max_i V_i + <s_i, y - x_i>."""
    return max(float(v[i] + s[i] @ (y - x[i])) for i in range(len(v)))


def piecewise_linear_violation(x: Array, v: Array, s: Array) -> float:
    """max_{i,j} V_j + <s_j, x_i - x_j> - V_i: zero when the replies are exact data of one convex function."""
    pairs = [v[j] + s[j] @ (x[i] - x[j]) - v[i] for i in range(len(v)) for j in range(len(v))]
    return max(float(p) for p in pairs)


def smooth_violation(x: Array, v: Array, s: Array, smoothness: float) -> float:
    """max_{i,j} V_j + <s_j, x_i - x_j> + |s_i - s_j|^2 / (2L') - V_i: at most zero when an L'-smooth F exists."""
    pairs = [
        v[j] + s[j] @ (x[i] - x[j]) + (s[i] - s[j]) @ (s[i] - s[j]) / (2 * smoothness) - v[i]
        for i in range(len(v))
        for j in range(len(v))
    ]
    return max(float(p) for p in pairs)


def best_value(
    point: Array,
    raw_f: float,
    raw_g: Array,
    x: Array,
    v: Array,
    eta_g: float,
    lipschitz: float | None = None,
) -> float:
    """Max V s.t. V <= f~, |u| <= eta_g, V <= V_i + <g~ + u, x_t - x_i> for i < t, and |g~ + u| <= M if M is known."""
    import cvxpy as cp

    value, u = cp.Variable(), cp.Variable(len(point))
    rules = [value <= raw_f, cp.norm(u) <= eta_g]
    rules += [value <= v[i] + (raw_g + u) @ (point - x[i]) for i in range(len(v))]
    if lipschitz is not None:
        rules.append(cp.norm(raw_g + u) <= lipschitz)
    return _optimum(cp.Maximize(value), rules)


def lipschitz_reply(
    point: Array,
    raw_f: float,
    raw_g: Array,
    past: Sequence[tuple[Array, float, Array]],
    eta_g: float,
) -> tuple[str, float, Array | None]:
    """One query of the piecewise-linear wrapper: its kind, its value and (for repeats and old cuts) its subgradient."""
    if not past:
        return "new", raw_f, raw_g
    x, v, s = (np.array([entry[k] for entry in past]) for k in range(3))
    for i in range(len(v)):
        if np.array_equal(x[i], point):
            return "repeat", float(v[i]), s[i]
    heights = [float(v[i] + s[i] @ (point - x[i])) for i in range(len(v))]
    top = int(np.argmax(heights))
    if heights[top] >= raw_f:
        return "old", heights[top], s[top]
    best = best_value(point, raw_f, raw_g, x, v, eta_g)
    if best <= heights[top]:
        return "old", heights[top], s[top]
    return "new", best, None


def smooth_reply(
    point: Array,
    raw_f: float,
    raw_g: Array,
    x: Array,
    v: Array,
    s: Array,
    eta_f: float,
    eta_g: float,
    smoothness: float,
) -> tuple[float, float, Array]:
    """Min p/eta_f + q/eta_g s.t. |V - f~| <= p, |s - g~| <= q and the 2(t-1) inequalities: the optimum, V and s."""
    import cvxpy as cp

    # The unknowns in units of the errors, and every inequality divided by eta_f: the same program, well scaled.
    value, slope, p, q = cp.Variable(), cp.Variable(len(point)), cp.Variable(), cp.Variable()
    rules = [cp.abs(value) <= p, cp.norm(slope) <= q]
    for i in range(len(v)):
        step = point - x[i]
        bend = cp.sum_squares((raw_g - s[i] + eta_g * slope) / np.sqrt(2 * smoothness * eta_f))
        rules += [
            (raw_f - v[i] - s[i] @ step) / eta_f + value >= bend,
            (v[i] - raw_f + raw_g @ step) / eta_f + (eta_g / eta_f) * (step @ slope) - value >= bend,
        ]
    best = _optimum(cp.Minimize(p + q), rules)
    return best, raw_f + eta_f * float(_at_optimum(value)), raw_g + eta_g * _at_optimum(slope)


def largest_extension(y: Array, x: Array, v: Array, s: Array, smoothness: float) -> float:
    """Min over the simplex of L'/2 |y - sum l_i (x_i - s_i/L')|^2 + sum l_i (V_i - |s_i|^2 / (2L'))."""
    import cvxpy as cp

    weights = cp.Variable(len(v), nonneg=True)
    centres = x - s / smoothness
    heights = v - np.sum(s * s, axis=1) / (2 * smoothness)
    cost = smoothness / 2 * cp.sum_squares(y - weights @ centres) + weights @ heights
    return _optimum(cp.Minimize(cost), [cp.sum(weights) == 1])


def smallest_extension(y: Array, x: Array, v: Array, s: Array, smoothness: float) -> float:
    """Max over the simplex of sum l_i (V_i + <s_i, y - x_i>) + (sum l_i |s_i|^2 - |sum l_i s_i|^2) / (2L')."""
    import cvxpy as cp

    weights = cp.Variable(len(v), nonneg=True)
    heights = v + np.sum(s * (y - x), axis=1) + np.sum(s * s, axis=1) / (2 * smoothness)
    gain = weights @ heights - cp.sum_squares(weights @ s) / (2 * smoothness)
    return _optimum(cp.Maximize(gain), [cp.sum(weights) == 1])


def consistent_normal(normal: Array, point: Array, feasible: Array) -> Array:
    """The unit vector along argmin |s - g~| s.t. <s, z_j - x> <= 0 for every point z_j declared feasible."""
    import cvxpy as cp

    s = cp.Variable(len(point))
    _optimum(cp.Minimize(cp.sum_squares(s - normal)), [(feasible - point) @ s <= 0])
    return _at_optimum(s) / float(np.linalg.norm(_at_optimum(s)))
