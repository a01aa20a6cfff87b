"""Which public penalties lam and eta to use (Section 1 of the paper: the model's parameters are public).

Asymmetric and general model: lam = tau(a, b) ln n / n is threshold-tight. `balanced` maximises the margin that the
exponents predict instead; `noisy-density` needs no parameters and spends some eps on a noisy count of the edges.
"""

from collections.abc import Callable
from functools import lru_cache
from math import log, sqrt

import numpy as np
from offprints.checks import require_range

from private_sbm.mechanism import discrete_laplace
from private_sbm.thresholds import asymmetric_exponent, predicted_surplus, rate, tau, upper_rate

LAMS = ("tau", "balanced", "noisy-density")


def tau_penalty(n: int, a: float, b: float) -> float:
    """tau(a, b) ln n / n."""
    return tau(a, b) * log(n) / n


def predicted_asymmetric(t: float, rho: float, a: float, b: float) -> float:
    """Least surplus over ln n to expect at lam = t ln n / n: eta(c) = 1, at most t - b. The margin is half of it."""
    return predicted_surplus(lambda c: asymmetric_exponent(rho, a, b, c, lam=t), t - b)


def predicted_general(t: float, rho: float, a: float, b: float) -> tuple[float, float]:
    """Least inner and outer surplus over ln n to expect at lam = t ln n / n, for a smallest cluster of rho n."""
    inner = predicted_surplus(lambda c: rate(rho * a, 0.0, rho * t + c), rho * (a - t))
    outer = predicted_surplus(lambda c: upper_rate(rho * b, rho * t - c), rho * (t - b))
    return inner, outer


def noise_level(n: int, b: float) -> float:
    """2 sqrt(b ln n): about the norm of the noise among outliers and between clusters."""
    return 2 * sqrt(b * log(n))


def predicted_margin(model: str, n: int, t: float, rho: float, a: float, b: float, outliers: bool) -> float:
    """L to expect at lam = t ln n / n, at the eta of `trace_penalty`."""
    if model == "asymmetric":
        return predicted_asymmetric(t, rho, a, b) * log(n) / 2
    inner, outer = (surplus * log(n) for surplus in predicted_general(t, rho, a, b))
    if not outliers:
        return min(inner / 2, outer)
    eta = trace_penalty(n, t, rho, a, b)
    return max(0.0, min(inner - eta, (eta - noise_level(n, b)) / 2, outer))


@lru_cache(maxsize=64)
def balanced_penalty(model: str, n: int, rho: float, a: float, b: float, outliers: bool) -> float:
    """The lam in (q, p) of the greatest predicted margin, on a grid of 399 (the first of equals beyond tau)."""
    grid = b + (a - b) * np.arange(1, 400) / 400
    values = np.array([predicted_margin(model, n, t, rho, a, b, outliers) for t in grid])
    best = grid[values >= values.max() - 1e-9]
    return float(best[np.abs(best - tau(a, b)).argmin()]) * log(n) / n


def trace_penalty(n: int, t: float, rho: float | None, a: float, b: float) -> float:
    """eta: where h - eta = (eta - noise) / 2 for the predicted h; 3 sqrt(b ln n) while rho is unknown."""
    if rho is None:
        return 1.5 * noise_level(n, b)
    inner = predicted_general(t, rho, a, b)[0] * log(n)
    return max((2 * inner + noise_level(n, b)) / 3, 1.5 * noise_level(n, b))


def noisy_density(edges: int, n: int, eps: float, below: Callable[[int], int]) -> float:
    """(edges + discrete Laplace noise of 1 / eps) over the number of pairs, within [1, pairs - 1] / pairs: eps-private.

    Raises:
        ValueError: if eps <= 0.
    """
    require_range("eps_density", eps, low=0, low_open=True)
    pairs = n * (n - 1) // 2
    return min(max(edges + discrete_laplace(eps, below), 1), max(pairs - 1, 1)) / max(pairs, 1)
