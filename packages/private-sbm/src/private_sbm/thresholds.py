"""Closed-form thresholds: which densities and eps suffice as n grows (recovery conditions: Section 1 of the paper).

With X ~ Poisson(x ln n) and Y ~ Poisson(y ln n) independent, P(X - Y <= c ln n) = n^{-I(x, y, c) + o(1)}, c <= x - y.
Recovery succeeds with probability to 1 when the exponent of the model exceeds 1, at c = 0 without privacy and at
c = 2 gamma / eps with (eps, n^-gamma)-privacy. The private constants follow from the margin of this package; those
of the paper may differ.
"""

from collections.abc import Callable
from math import inf, log, sqrt

from offprints.checks import require_choice, require_range
from scipy import optimize

MODELS = ("asymmetric", "general", "censored")


def tau(a: float, b: float) -> float:
    """(a - b) / (ln a - ln b); a where they are equal."""
    return a if a == b else (a - b) / (log(a) - log(b))


def rate(x: float, y: float, c: float) -> float:
    """I(x, y, c) = x (1 - 1/theta) + y (1 - theta) - c ln theta, theta = (-c + sqrt(c^2 + 4 x y)) / (2 y).

    Zero at c = x - y and above, (sqrt x - sqrt y)^2 at c = 0; with y = 0 the exponent of P(X <= c ln n), inf for c < 0.

    Raises:
        ValueError: if x <= 0 or y < 0.
    """
    require_range("x", x, low=0, low_open=True)
    require_range("y", y, low=0)
    if c >= x - y:
        return 0.0
    if y == 0:
        return inf if c < 0 else x - c + (c * log(c / x) if c > 0 else 0.0)
    theta = (-c + sqrt(c * c + 4 * x * y)) / (2 * y) if c <= 0 else 2 * x / (c + sqrt(c * c + 4 * x * y))
    return x * (1 - 1 / theta) + y * (1 - theta) - c * log(theta)


def upper_rate(y: float, c: float) -> float:
    """Exponent of P(Y >= c ln n), Y ~ Poisson(y ln n): y - c + c ln(c / y) for c > y, else 0."""
    return 0.0 if c <= y else y - c + c * log(c / y)


def _require_model(a: float, b: float) -> None:
    require_range("b", b, low=0, low_open=True)
    require_range("a", a, low=b, low_open=True, because="b: communities are denser inside")


def asymmetric_exponent(rho: float, a: float, b: float, c: float = 0.0, lam: float | None = None) -> float:
    """eta(c) = min{I(rho a, (1 - rho) b, t (2 rho - 1) + c), I((1 - rho) a, rho b, t (1 - 2 rho) + c)}, t = tau(a, b).

    eta(0) is the Chernoff-Hellinger divergence, and (sqrt a - sqrt b)^2 / 2 at rho = 1/2.

    Args:
        rho: size of a community over n.
        a: n p / ln n inside communities.
        b: n q / ln n across, less than a.
        c: surplus that each vertex must have, over ln n.
        lam: another penalty than tau ln n / n, in units of ln n / n.

    Raises:
        ValueError: if rho is not between 0 and 1, or not 0 < b < a.
    """
    require_range("rho", rho, low=0, high=1, low_open=True, high_open=True)
    _require_model(a, b)
    t = tau(a, b) if lam is None else lam
    return min(rate(rho * a, (1 - rho) * b, t * (2 * rho - 1) + c), rate((1 - rho) * a, rho * b, t * (1 - 2 * rho) + c))


def censored_exponent(a: float, xi: float, c: float = 0.0) -> float:
    """eta_c(c) = I(a (1 - xi), a xi, c); at c = 0 it is a (sqrt(1 - xi) - sqrt xi)^2.

    Args:
        a: n p / ln n of observed pairs.
        xi: probability that a label is flipped, in [0, 1/2).
        c: surplus that each vertex must have, over ln n.

    Raises:
        ValueError: if a <= 0 or xi is outside.
    """
    require_range("a", a, low=0, low_open=True)
    require_range("xi", xi, low=0, high=0.5, high_open=True)
    return rate(a * (1 - xi), a * xi, c)


def general_exponent(
    rho_min: float, a: float, b: float, c: float = 0.0, slack: float | None = None, lam: float | None = None
) -> float:
    """eta_g = rho_min (a - t ln(e a / t)) = rho_min (b - t ln(e b / t)) at c = 0, t = tau(a, b).

    With a surplus: the smaller of the exponents of P(Poisson(rho_min a ln n) <= (rho_min t + c) ln n) and
    P(Poisson(rho_min b ln n) >= (rho_min t - slack) ln n). Without outliers this is only sufficient.

    Args:
        rho_min: size of the smallest cluster over n.
        a: n p / ln n inside clusters.
        b: n q / ln n elsewhere, less than a.
        c: inner surplus h that every vertex must have, over ln n.
        slack: outer surplus r that every vertex must have, over ln n; c by default.
        lam: another penalty than tau ln n / n, in units of ln n / n.

    Raises:
        ValueError: if rho_min is not in (0, 1], or not 0 < b < a.
    """
    require_range("rho_min", rho_min, low=0, high=1, low_open=True)
    _require_model(a, b)
    t = tau(a, b) if lam is None else lam
    slack = c if slack is None else slack
    inner = rate(rho_min * a, 0.0, rho_min * t + c)
    return min(inner, upper_rate(rho_min * b, rho_min * t - slack))


def private_threshold(
    model: str,
    *,
    gamma: float = 2.0,
    a: float,
    b: float | None = None,
    rho: float = 0.5,
    xi: float | None = None,
    outliers: bool = True,
) -> float:
    """The smallest eps for which (eps, n^-gamma)-private recovery succeeds as n grows; inf where none does.

    Release needs L > ln(n^gamma) / eps. Asymmetric: eta(c) > 1 and c < tau - b at c = 2 gamma / eps, so
    eps* = 2 gamma / min(c*, tau - b) with eta(c*) = 1. Censored: the same with eta_c, or c = 4 gamma / eps under
    `neighbor="relabel"` (twice the result). General: inner surplus 2 gamma / eps (3 gamma / eps with outliers, at the
    best eta), outer gamma / eps.

    Args:
        model: "asymmetric", "general" or "censored".
        gamma: delta = n^-gamma.
        a: n p / ln n.
        b: n q / ln n (not for the censored model).
        rho: size of a community over n; of the smallest cluster in the general model.
        xi: probability of a flipped label (censored model).
        outliers: whether the general model has outliers.

    Raises:
        ValueError: for an unknown model, parameters outside their ranges, or a missing b or xi.
    """
    require_choice("model", model, MODELS)
    require_range("gamma", gamma, low=0, low_open=True)
    if model == "censored":
        if xi is None:
            raise ValueError("xi must be given for the censored model, got None.")
        widest = a * (1 - 2 * xi)
        return _smallest(lambda u: censored_exponent(a, xi, 2 * u), widest / 2, gamma)
    if b is None:
        raise ValueError(f"b must be given for the {model} model, got None.")
    if model == "asymmetric":
        return _smallest(lambda u: asymmetric_exponent(rho, a, b, 2 * u), (tau(a, b) - b) / 2, gamma)
    inner = 3 if outliers else 2
    return _smallest(lambda u: general_exponent(rho, a, b, inner * u, u), rho * a, gamma)


def _smallest(exponent: Callable[[float], float], widest: float, gamma: float) -> float:
    """The ratio gamma / u for the largest u = gamma / eps with exponent(u) >= 1, at most `widest`."""
    if exponent(0.0) <= 1:
        return inf
    if exponent(widest) >= 1:
        return gamma / widest
    return gamma / _root(lambda u: exponent(u) - 1, widest)


def _root(f: Callable[[float], float], widest: float) -> float:
    return float(optimize.brentq(f, 0.0, widest, xtol=1e-13))  # type: ignore[arg-type]


def predicted_surplus(exponent: Callable[[float], float], widest: float) -> float:
    """The c with exponent(c) = 1, at most `widest`, 0 where exponent(0) <= 1: the least surplus over ln n to expect."""
    if exponent(0.0) <= 1 or widest <= 0:
        return 0.0
    if exponent(widest) >= 1:
        return widest
    return _root(lambda c: exponent(c) - 1, widest)


def delta_exponent(delta: float, n: int) -> float:
    """The gamma with delta = n^-gamma."""
    return -log(delta) / log(n)
