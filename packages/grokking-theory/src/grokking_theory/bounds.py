"""The paper's theorems as numbers: lower bounds for kernels, upper bounds for networks of small ‖θ‖_∞.

Everything here is either a *certificate* (holds as it stands, with its constant) or a *rate* (right up to a constant
that the paper does not give; named so).
"""

import warnings
from fractions import Fraction
from math import ceil, floor, inf, log, sqrt
from typing import Literal, TypedDict

from offprints.checks import require_choice, require_range

from grokking_theory.tasks import Kind


class KernelBound(TypedDict):
    """What `kernel_lower_bound` returns."""

    loss_lb: float
    trivial_zero: float
    trivial_const: float
    fraction: float
    informative: bool


class Certificate(TypedDict):
    """What `certificate` returns."""

    value: float
    vacuous: bool
    rademacher: float


class Rate(TypedDict):
    """What `pac_bayes_rate` returns."""

    value: float
    applicable: bool


def kernel_lower_bound(
    p: int, n: int, kind: Kind = "regression", m: int = 3, kernel: Literal["invariant", "any"] = "invariant"
) -> KernelBound:
    """The least expected population loss of every permutation-equivariant kernel method (theorems 3.4, 3.5 and 4.3).

    The paper proves E L >= L(0)/2 below some multiple of p^m points. This is the same argument with its constant:
    the target is 1 + f_⊥, f_⊥ lies in an irreducible representation of the symmetry group, of dimension (p - 1)^m
    and with ‖f_⊥‖² = p - 1; n kernel functions span n dimensions, and a random permutation puts the target anywhere:

        regression      E L >= (p - 1) · max(0, 1 - n / (p - 1)^m)
        classification  E L >= (1 - 1/p) · max(0, 1 - n / (p - 1)^{m-1})    square loss, summed over the p outputs

    It holds for every p >= 2 and n. Consequence: E L >= p/2 for regression while n <= (p - 1)² (p - 2) / 2.

    Args:
        p: the modulus.
        n: training points, drawn uniformly, with or without replacement.
        kind: "regression" or "classification".
        m: variables of the regression problem; classification has the m - 1 summands as inputs.
        kernel: "invariant" for a fixed kernel that is invariant under permutations (classification: K = α I + β J,
            which spans p - 1 dimensions a point beside the constant). "any" also covers a p × p matrix kernel that is
            random and equivariant in law only, such as the NTK of a random finite network: p dimensions a point. For
            regression both are the same.

    Returns:
        loss_lb; the population loss of the zero predictor and of the best constant one; fraction of f_⊥ that stays
        out of reach; informative, whether the bound is above 0.

    Raises:
        TypeError: if p, n or m is no integer.
        ValueError: if p < 2, n < 0, m < 2, or a choice is unknown.
    """
    require_range("p", p, low=2, integer=True)
    require_range("n", n, low=0, integer=True)
    require_range("m", m, low=2, integer=True)
    require_choice("kernel", kernel, ("invariant", "any"))
    trivial = trivial_losses(p, kind)
    caught = Fraction(int(n) * _dimensions_a_point(p, kind, kernel), (int(p) - 1) ** int(m))
    fraction = max(0.0, float(1 - caught))
    return KernelBound(
        loss_lb=trivial["constant"] * fraction,
        trivial_zero=trivial["zero"],
        trivial_const=trivial["constant"],
        fraction=fraction,
        informative=fraction > 0,
    )


def trivial_losses(p: int, kind: Kind) -> dict[str, float]:
    """Population loss of predicting 0, and of the best constant: p and p - 1 (regression), 1 and 1 - 1/p."""
    require_range("p", p, low=2, integer=True)
    require_choice("kind", kind, ("regression", "classification"))
    return {"zero": float(p), "constant": p - 1.0} if kind == "regression" else {"zero": 1.0, "constant": 1 - 1 / p}


def min_samples_kernel(
    p: int, kind: Kind, target_loss: float, m: int = 3, kernel: Literal["invariant", "any"] = "invariant"
) -> int:
    """The least n at which `kernel_lower_bound` does not exclude the loss: no kernel method gets there with fewer.

    n = ⌈d (1 - target_loss / constant loss)⌉, d the dimension in the bound.

    Raises:
        ValueError: if the target loss is negative; and as `kernel_lower_bound`.
    """
    require_range("target_loss", target_loss, low=0)
    full = kernel_lower_bound(p, 0, kind, m, kernel)["loss_lb"]
    if target_loss >= full:
        return 0
    dimension, a_point = (int(p) - 1) ** int(m), _dimensions_a_point(p, kind, kernel)
    n = ceil(Fraction(dimension, a_point) * (1 - Fraction(float(target_loss)) / Fraction(full)))
    if n > 2**53:  # beyond the resolution of the loss as a float
        return n
    if kernel_lower_bound(p, n - 1, kind, m, kernel)["loss_lb"] <= target_loss:  # a loss is rounded, n is not
        return n - 1
    return n + (kernel_lower_bound(p, n, kind, m, kernel)["loss_lb"] > target_loss)


def _dimensions_a_point(p: int, kind: Kind, kernel: str) -> int:
    """How many dimensions one training point adds to the span of the kernel functions."""
    if kind == "regression":
        return 1
    return int(p) if kernel == "any" else int(p) - 1


def interpolation_width(
    n: int, rho_c: int, delta: float = 0.05, init: Literal["uniform", "torch"] | tuple[float, float] = "uniform"
) -> int:
    """The width above which the eNTK at initialisation fits any labels with probability 1 - δ (theorem 3.1).

        h > 4 (s_W⁴ / σ_W⁴) ρ_c log(n / δ)         uniform entries: s_W⁴ / σ_W⁴ = 9, so 36 ρ_c log(n / δ)

    Args:
        n: training points.
        rho_c: how many of them share the most frequent c: `ModularAddition.rho_c`.
        delta: probability of failure.
        init: "uniform" or "torch" (uniform on a symmetric interval), or (s_W, σ_W): the bound on |W| and the standard
            deviation of its entries. A Gaussian has no bound: the theorem does not cover it.

    Returns:
        The least integer width that the theorem covers.

    Raises:
        ValueError: if a number is out of range, or the init unbounded.
    """
    require_range("n", n, low=1, integer=True)
    require_range("rho_c", rho_c, low=1, high=n, integer=True, because="n")
    require_range("delta", delta, low=0, high=1, low_open=True, high_open=True)
    if isinstance(init, tuple):
        if len(init) != 2:
            raise ValueError(f"init must be a pair (s_W, sigma_W), got {len(init)} numbers.")
        spread, deviation = init
        require_range("sigma_W", deviation, low=0, low_open=True)
        require_range("s_W", spread, low=deviation, hint="A bound cannot lie below the standard deviation.")
        ratio = (spread / deviation) ** 4
    else:
        require_choice("init", init, ("uniform", "torch"), hint="A Gaussian init is unbounded; pass (s_W, sigma_W).")
        ratio = 9.0
    return floor(4 * ratio * rho_c * log(n / delta)) + 1


def singular_width(p: int, n: int) -> int:
    """The largest width at which the eNTK on n points must be singular (theorem 3.1); 0 if none.

    h < n / (3p), since rank K <= 3ph.
    """
    require_range("p", p, low=2, integer=True)
    require_range("n", n, low=1, integer=True)
    return ceil(n / (3 * p)) - 1


def _warn_narrow(p: int, width: int) -> None:
    if width < 8 * p:
        warnings.warn(
            f"width {width} is below 8p = {8 * p}: the theorem is stated for at least that "
            "(an exact solution exists from 4p - 3 on).",
            stacklevel=3,
        )


def min_linf(p: int, width: int) -> float:
    """The paper's bound on the least ‖θ‖_∞ of an exact solution: ⌊h / 8p⌋^{-1/3}, by copies of proposition 3.8.

    Infinite below 8p, where the statement says nothing; `fourier_construction` reaches 4^{-1/3} times this.
    """
    require_range("p", p, low=2, integer=True)
    require_range("width", width, low=1, integer=True)
    return (width // (8 * p)) ** (-1 / 3) if width >= 8 * p else inf


def rich_upper_rate(p: int, width: int, linf: float, n: int, delta: float = 0.05, constant: float = 1.0) -> float:
    """A rate, not a certificate: population loss of an interpolating network with ‖θ‖_∞ <= R (proposition 3.7).

        L <= C (R⁶ h² / n) (p log³ n + log 1/δ)

    C is universal and not given; with R the least possible and h >= 8p this is theorem 3.6.

    Args:
        p: the modulus.
        width: hidden neurons h; below 8p a warning is given.
        linf: R.
        n: training points.
        delta: probability of failure.
        constant: C.

    Raises:
        ValueError: if a number is out of range.
    """
    _require_sizes(p, width, n)
    require_range("linf", linf, low=0)
    require_range("delta", delta, low=0, high=1, low_open=True, high_open=True)
    require_range("constant", constant, low=0, low_open=True)
    _warn_narrow(p, width)
    return float(constant * _cube(linf) * _cube(linf) * width**2 / n * (p * log(n) ** 3 + log(1 / delta)))


def rademacher_linf(p: int, width: int, linf: float, n: int) -> float:
    """A bound on the Rademacher complexity of {g : ‖θ‖_∞ <= R, width h} on n points, with its constant.

        (4 + 2√6) h R³ √(p ln 2 / n)

    (q + r)² = q² + r² + 2qr makes three classes, each multilinear in the weights of a neuron; their suprema lie at
    the 2^{2p}, 2^{2p} and 2^{3p} corners, and Massart's lemma counts those.

    Raises:
        ValueError: if a number is out of range.
    """
    _require_sizes(p, width, n)
    require_range("linf", linf, low=0)
    return float((4 + 2 * sqrt(6)) * width * _cube(linf) * sqrt(p * log(2) / n))


def certificate(p: int, width: int, linf: float, n: int, delta: float = 0.05, empirical: float = 0.0) -> Certificate:
    """A bound on the expectation of any loss φ in [0, 1] that is 1/p-Lipschitz in the output, with probability 1 - δ.

        E φ <= empirical mean + (2/p) · rademacher_linf + √(ln(1/δ) / 2n)

    for instance φ = min(1, |g - y| / p). Training points are independent and uniform; R is fixed before they are seen.

    Args:
        p: the modulus.
        width: hidden neurons h; below 8p a warning is given.
        linf: R.
        n: training points.
        delta: probability of failure.
        empirical: mean of φ on the training points.

    Returns:
        value; vacuous, whether it is at least 1 and so says nothing; and the complexity term.

    Raises:
        ValueError: if a number is out of range.
    """
    require_range("delta", delta, low=0, high=1, low_open=True, high_open=True)
    require_range("empirical", empirical, low=0, high=1)
    complexity = rademacher_linf(p, width, linf, n)
    _warn_narrow(p, width)
    value = float(empirical + 2 / p * complexity + sqrt(log(1 / delta) / (2 * n)))
    return Certificate(value=value, vacuous=value >= 1, rademacher=complexity)


def pac_bayes_rate(
    p: int,
    width: int,
    n: int,
    margin: float,
    linf: float,
    delta: float = 0.05,
    empirical: float = 0.0,
    constant: float = 1.0,
) -> Rate:
    """A rate, not a certificate: 0-1 error of a network with margin γ and ‖θ‖_∞ = r (theorem 4.6, logarithms dropped).

        L_0 <= L_γ(train) + C √(p/n) (h² / (γ / r³))^{1/3}      if γ / r³ >= √h and h > 4 log(2/δ)

    Args:
        p: the modulus.
        width: hidden neurons h.
        n: training points.
        margin: γ > 0.
        linf: r > 0.
        delta: probability of failure.
        empirical: L_γ(train), the share of training points with margin at most γ (see `margin_loss`).
        constant: C, which the paper does not give.

    Returns:
        value, and whether the two conditions hold (up to the logarithms).

    Raises:
        ValueError: if a number is out of range.
    """
    _require_sizes(p, width, n)
    for name, number in (("margin", margin), ("linf", linf), ("constant", constant)):
        require_range(name, number, low=0, low_open=True)
    require_range("delta", delta, low=0, high=1, low_open=True, high_open=True)
    require_range("empirical", empirical, low=0, high=1)
    normalized = float(margin) / _cube(linf) if _cube(linf) else inf
    spread = (width**2 / normalized) ** (1 / 3) if normalized else inf
    value = float(empirical + constant * sqrt(p / n) * spread)
    return Rate(value=value, applicable=normalized >= sqrt(width) and width > 4 * log(2 / delta))


def max_margin_rate(p: int, n: int, constant: float = 1.0) -> float:
    """A rate, not a certificate: 0-1 error at a normalised margin of order p and width of order p (theorem 4.5).

    L_0 <= C √(p^{5/3} / n)
    """
    _require_sizes(p, 1, n)
    require_range("constant", constant, low=0, low_open=True)
    return constant * sqrt(p ** (5 / 3) / n)


def misclassification_bound(loss: float, p: int) -> float:
    """Share of pairs whose largest output is wrong, from the regression loss: at most 2L / p (proposition E.7)."""
    require_range("loss", loss, low=0)
    require_range("p", p, low=2, integer=True)
    return min(1.0, 2 * loss / p)


def _require_sizes(p: int, width: int, n: int) -> None:
    require_range("p", p, low=2, integer=True)
    require_range("width", width, low=1, integer=True)
    require_range("n", n, low=1, integer=True)


def _cube(value: float) -> float:
    return float(value) * float(value) * float(value)  # ** raises where a product is inf
