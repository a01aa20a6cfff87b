"""Bounds of Lip(f) on tokens in the ball of radius R (Section 3 of the paper), from above and from below.

Throughout a = ‖A‖₂ R² and v = ‖V‖₂. A query bias c adds e = R ‖c‖ wherever the logits' size counts. `general` and
`mean_field` are the paper's; `sharp` and `masked_mean_field` are proved in their docstrings.
"""

import math

import numpy as np
import torch
from offprints.checks import require_range, require_shape
from torch import Tensor

from attention_lipschitz.adversarial import adversarial_tokens, extreme_direction, growth_rate


def _exp(x: float) -> float:
    """eˣ, infinite where it overflows."""
    return math.exp(x) if x < 709.0 else math.inf


def _sizes(R: float, norm_A: float, norm_V: float, norm_c: float) -> tuple[float, float, float]:
    """a, e and v, checked."""
    require_range("R", R, low=0.0, low_open=True, hint="R is the largest token's norm.")
    for name, value in (("norm_A", norm_A), ("norm_V", norm_V), ("norm_c", norm_c)):
        require_range(name, value, low=0.0)
    return float(norm_A) * float(R) ** 2, float(R) * float(norm_c), float(norm_V)


def _times(v: float, factor: float) -> float:
    return 0.0 if v == 0 else v * factor


def general(n: int, R: float, norm_A: float, norm_V: float, norm_c: float = 0.0, causal: bool = False) -> float:
    """Theorem 3.3: Lip ≤ √3 v (a² (4n + 1) + n)^(1/2), masked or not.

    With a query bias a + e takes the place of a: (√n (1 + x) + x)² ≤ 3 (n + n x² + x²), see `sharp`.

    Args:
        n: number of tokens, ≥ 1.
        R: radius of the ball, in units of the tokens.
        norm_A: ‖A‖₂.
        norm_V: ‖V‖₂ (of O V where there is an output projection).
        norm_c: ‖c‖.
        causal: the bound is the same.

    Raises:
        TypeError: if one of them is no number.
        ValueError: if n < 1, R ≤ 0 or a norm is negative.
    """
    require_range("n", n, low=1, integer=True)
    a, e, v = _sizes(R, norm_A, norm_V, norm_c)
    return _times(v, math.sqrt(3.0) * math.hypot((a + e) * math.sqrt(4 * n + 1), math.sqrt(n)))


def mean_field(R: float, norm_A: float, norm_V: float, norm_c: float = 0.0) -> float:
    """Section 3.2: Lip^{W₂}(F) ≤ v (1 + 3a) e^{2a} for measures on B_R, hence for any number of unmasked tokens.

    F sends μ to the push-forward by x ↦ V ∫ y e^{xᵀAᵀy} dμ / ∫ e^{xᵀAᵀy} dμ. Infinite where the exponential overflows.

    Raises:
        ValueError: if R ≤ 0 or a norm is negative.
    """
    a, e, v = _sizes(R, norm_A, norm_V, norm_c)
    return _times(v, (1 + 3 * (a + e)) * _exp(2 * (a + e)))


def sharp(n: int, R: float, norm_A: float, norm_V: float, norm_c: float = 0.0, causal: bool = False) -> float:
    """Lip ≤ v (√s (1 + a + e) + a) with s = min(n, e^{2(a + e)}) unmasked, s = n masked; sharpens Theorem 3.3.

    Row i of D_X f[E] is V Σ_j P_ij (1 + (x_j − m_i) q_iᵀ) E_j plus V Cov_i A E_i, q_i = A x_i + c. By Cauchy-Schwarz in
    P_i the sum has a norm of at most v √s (1 + R max ‖q‖), s the largest column sum of P, as the variance of x_j under
    P_i is at most R²; that variance bounds the second term by v R² ‖A‖. Unmasked P_ij ≤ e^{2(a + e)}/n.

    Raises:
        ValueError: as `general`.
    """
    require_range("n", n, low=1, integer=True)
    a, e, v = _sizes(R, norm_A, norm_V, norm_c)
    s = float(n) if causal else min(float(n), _exp(2 * (a + e)))
    return _times(v, math.sqrt(s) * (1 + a + e) + a)


def masked_mean_field(R: float, norm_A: float, norm_V: float, norm_c: float = 0.0) -> float:
    """Lip of masked attention ≤ v (2 e^{2x} (1 + 2x) + a), x = a + e, for any number of tokens; see Section 4.

    Masked P_ij ≤ e^{2x}/i for j ≤ i, and the averages (1/i) Σ_{j≤i} have norm at most 2 (Hardy's inequality). The paper
    states the like for measures on [0, 1] × R^d with equal first marginals.

    Raises:
        ValueError: as `mean_field`.
    """
    a, e, v = _sizes(R, norm_A, norm_V, norm_c)
    return _times(v, 2 * _exp(2 * (a + e)) * (1 + 2 * (a + e)) + a)


def lower(
    n: int, R: float, A: Tensor | np.ndarray, V: Tensor | np.ndarray | None = None, causal: bool = False
) -> tuple[float, Tensor]:
    """A lower bound of Lip(f) on B_R (Section 3.1: √n is attained), and tokens (n, d) at which it holds.

    With u, γ as in `adversarial_tokens` and p(m) = 1/(1 + (m − 1) e^{−2γR²}):
    unmasked ‖Vu‖ √(n − 1) p(n) (1 + 2γR² (1 − p(n))), masked ‖Vu‖ (1 + Σ_{i=2}^n [p(i) (1 + 2γR² (1 − p(i)))]²)^(1/2):
    the norm of D_X f on a perturbation of the first token along u. Largest near n = 1 + e^{2γR²}.

    Args:
        n: number of tokens, ≥ 1.
        R: radius.
        A: (d, d).
        V: (d_v, d), the identity if None.
        causal: masked or not.

    Raises:
        NoRealEigenvalueError: if A has no real eigenvalue.
        ValueError: if shapes disagree, n < 1 or R ≤ 0.
    """
    tokens = adversarial_tokens(A, n, R)
    a = torch.as_tensor(A, dtype=torch.float64)
    u, eigenvalue = extreme_direction(a)
    v = torch.eye(len(a), dtype=torch.float64) if V is None else torch.as_tensor(V, dtype=torch.float64)
    require_shape("V", v, (None, len(a)))
    gain = float(torch.linalg.vector_norm(v @ u))
    if n == 1:
        return gain, tokens
    return gain * _amplification(n, 2 * growth_rate(eigenvalue) * R**2, causal), tokens


def _amplification(n: int, rate: float, causal: bool) -> float:
    """The factor of ‖Vu‖ in `lower`, for 2γR²."""
    m = np.arange(2, n + 1, dtype=float) if causal else np.array([float(n)])
    p = 1.0 / (1.0 + (m - 1) * math.exp(-min(rate, 745.0)))
    rest = -np.expm1(-np.log1p((m - 1) * math.exp(-min(rate, 745.0))))  # 1 − p, also where p rounds to 1
    terms = p * (1 + rate * rest)
    return float(math.sqrt(1 + (terms**2).sum())) if causal else float(math.sqrt(n - 1) * terms[0])
