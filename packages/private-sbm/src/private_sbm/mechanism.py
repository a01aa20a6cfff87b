"""The noisy test of the stability mechanism (Section 1 of the paper): release when margin plus noise passes T.

For a margin L that one edge moves by at most 1, with L <= 1 on both sides wherever one edge changes the output,
releasing when L + X > T is (eps, delta)-private for every graph, if P(X > T - 1) <= delta:

    laplace    X ~ Laplace(1 / eps),           T = 1 + ln(1 / (2 delta)) / eps
    discrete   P(X = x) ~ r^|x|, r = e^-eps,   T = ceil(ln(1 / (delta (1 + r))) / eps),   L_int = floor(L)

The discrete form is drawn exactly, in integers, and is free of attacks on floating-point noise.
"""

import secrets
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, floor, inf, log, nextafter

import numpy as np
from offprints.checks import require_choice, require_range

from private_sbm.certificates import ROUNDING

NOISES = ("laplace", "discrete", "opendp")


def require_privacy(eps: float, delta: float) -> None:
    """Check eps > 0 (finite) and 0 < delta < 1.

    Raises:
        TypeError: if one is no number.
        ValueError: if one is outside.
    """
    require_eps(eps)
    require_delta(delta)


def require_eps(eps: float) -> None:
    """Check eps > 0, finite."""
    require_range("eps", eps, low=0, high=inf, low_open=True, high_open=True)


def require_delta(delta: float) -> None:
    """Check 0 < delta < 1."""
    hint = "For pure privacy (delta = 0) use RandomizedResponseSBM." if delta == 0 else ""
    require_range("delta", delta, low=0, high=1, low_open=True, high_open=True, hint=hint)


def threshold_T(eps: float, delta: float, noise: str = "discrete") -> float:
    """T of the equations above, rounded so that P(X > T - 1) <= delta: an integer, in 60 digits, for discrete noise.

    Raises:
        ValueError: if eps <= 0, delta is not in (0, 1), or the noise is unknown.
    """
    require_privacy(eps, delta)
    require_choice("noise", noise, NOISES)
    if noise == "laplace":
        limit = 1.0 + log(1 / (2 * delta)) / eps
        while laplace_tail(limit - 1.0, eps) > delta:  # rounding, of a few units in the last place
            limit = nextafter(limit, inf)
        return limit
    with localcontext() as context:
        context.prec = 60
        e, d = Decimal(float(eps)), Decimal(float(delta))
        bound = -(d * (1 + (-e).exp())).ln() / e
        steps = bound.to_integral_value(rounding="ROUND_CEILING")
    return int(steps)


def usable_margin(margin: float) -> float:
    """The margin less what its numerical error could feign: L / (1 + 2 u) for an error of at most u.

    Two margins that differ by at most 1 + 2 u differ by at most 1 after the division, so floors and ratios stay exact.
    """
    return max(0.0, margin) / (1 + 2 * ROUNDING)


def release_probability(margin: float, eps: float, delta: float, noise: str = "discrete") -> float:
    """P(L + X > T) in closed form; 0 is not implied by L = 0: without a certificate nothing is ever released.

    Discrete: P(X >= m) = r^m / (1 + r) for m >= 0 and 1 - r^(1 - m) / (1 + r) for m <= 0, m = T - floor(L) + 1.

    Raises:
        ValueError: if eps <= 0, delta is not in (0, 1), the margin is negative, or the noise is unknown.
    """
    require_range("margin", margin, low=0)
    limit, value = threshold_T(eps, delta, noise), usable_margin(margin)
    if noise == "laplace":
        return laplace_tail(limit - value, eps)
    return discrete_tail(int(limit) - floor(value) + 1, eps)


def laplace_tail(x: float, eps: float) -> float:
    """P(X > x) for X ~ Laplace(1 / eps)."""
    return 0.5 * exp(-eps * x) if x >= 0 else 1 - 0.5 * exp(eps * x)


def discrete_tail(m: int, eps: float) -> float:
    """P(X >= m) for discrete Laplace noise."""
    r = exp(-eps)
    return exp(-eps * m) / (1 + r) if m >= 0 else 1 - exp(-eps * (1 - m)) / (1 + r)


def released(margin: float, eps: float, delta: float, noise: str, below: Callable[[int], int]) -> bool:
    """One noisy test; `below(k)` draws a uniform integer of 0..k-1."""
    limit, value = threshold_T(eps, delta, noise), usable_margin(margin)
    if noise == "laplace":
        uniform = (below(2**53) + 0.5) / 2**53
        size = -log(uniform) / eps
        return value + (size if below(2) else -size) > limit
    draw = opendp_laplace(eps) if noise == "opendp" else discrete_laplace(eps, below)
    return floor(value) + draw > limit


def opendp_laplace(eps: float) -> int:
    """A draw of the same law by OpenDP's sampler (extra `secure`); it takes no seed.

    Raises:
        ImportError: without opendp.
    """
    try:
        import opendp.prelude as dp
    except ImportError as error:
        raise ImportError('noise="opendp" needs opendp: pip install "private-sbm[secure]".') from error
    dp.enable_features("contrib")
    space = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    return int(dp.m.make_laplace(*space, scale=1.0 / eps)(0))


def integers(seed: int | None) -> Callable[[int], int]:
    """Uniform integers of 0..k-1: from the operating system's entropy, or seeded for experiments only.

    A seed that is known, or is reused on another graph, voids the privacy.
    """
    if seed is None:
        return secrets.randbelow
    gen = np.random.default_rng(seed)

    def below(k: int) -> int:
        while True:  # integers beyond 64 bits, by bytes and rejection
            bits = max(1, (k - 1).bit_length())
            value = int.from_bytes(gen.bytes((bits + 7) // 8), "little") >> (-bits % 8)
            if value < k:
                return value

    return below


def discrete_laplace(eps: float | Fraction, below: Callable[[int], int]) -> int:
    """An exact draw of P(X = x) proportional to e^{-eps |x|}, in integer arithmetic (Canonne, Kamath, Steinke 2020).

    Raises:
        ValueError: if eps <= 0.
    """
    require_range("eps", eps, low=0, low_open=True)
    share = eps if isinstance(eps, Fraction) else Fraction(float(eps))
    while True:
        negative = below(2) == 1
        size = _geometric(share, below)
        if not (negative and size == 0):
            return -size if negative else size


def _geometric(share: Fraction, below: Callable[[int], int]) -> int:
    """P(X = k) proportional to e^{-share k}: a geometric of rate 1 / t, then divided by s (share = s / t)."""
    s, t = share.numerator, share.denominator
    while True:
        u = below(t)
        if _exponential_coin(Fraction(u, t), below):
            break
    v = 0
    while _exponential_coin(Fraction(1), below):
        v += 1
    return (u + t * v) // s


def _exponential_coin(x: Fraction, below: Callable[[int], int]) -> bool:
    """True with probability e^{-x}, 0 <= x <= 1: von Neumann's alternating series."""
    k = 1
    while below(x.denominator * k) < x.numerator:
        k += 1
    return k % 2 == 1
