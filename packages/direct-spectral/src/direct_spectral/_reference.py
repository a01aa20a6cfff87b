"""The sums of the method written out, slow and obvious; the tests compare everything else with them.

Nothing of the package is imported here. Complex arithmetic, one exponential for every mode and point.
"""

import itertools
import math

import torch


def angles(points: torch.Tensor, bounds: list, periodic: list, gap: float = 0.9) -> torch.Tensor:
    """θ_i = 2π γ_i (x_i - lo_i) / (hi_i - lo_i), γ_i = 1 on a periodic axis and `gap` on another."""
    columns = []
    for i, (low, high) in enumerate(bounds):
        gamma = 1.0 if periodic[i] else gap
        columns.append(2 * math.pi * gamma * (points[..., i] - low) / (high - low))
    return torch.stack(columns, -1)


def wave_vectors(n_modes: tuple) -> list:
    """All kept k: FFT order 0..m-1, -m..-1 on every axis but the last, 0..m-1 there."""
    axes = [[*range(m), *range(-m, 0)] for m in n_modes[:-1]] + [list(range(n_modes[-1]))]
    return list(itertools.product(*axes))


def forward(u: torch.Tensor, theta: torch.Tensor, n_modes: tuple, weights: torch.Tensor | None = None) -> torch.Tensor:
    """û_k = Σ_j q_j u_j exp(-i k·θ_j); u (C, N), theta (N, d), q = 1/N."""
    n = theta.shape[0]
    q = torch.full((n,), 1 / n, dtype=theta.dtype) if weights is None else weights
    rows = []
    for k in wave_vectors(n_modes):
        phase = theta @ torch.tensor(k, dtype=theta.dtype)
        rows.append(((q * u) * torch.exp(-1j * phase)).sum(-1))
    return torch.stack(rows, -1)


def inverse(c: torch.Tensor, theta: torch.Tensor, n_modes: tuple) -> torch.Tensor:
    """u(θ) = Σ_k h_k Re(c_k exp(i k·θ)), h_k = 1 where the last wave number is 0, else 2."""
    total = torch.zeros(*c.shape[:-1], theta.shape[0], dtype=theta.dtype)
    for place, k in enumerate(wave_vectors(n_modes)):
        phase = theta @ torch.tensor(k, dtype=theta.dtype)
        h = 1.0 if k[-1] == 0 else 2.0
        total = total + h * (c[..., place, None] * torch.exp(1j * phase)).real
    return total


def spectral_layer(v: torch.Tensor, theta: torch.Tensor, n_modes: tuple, weight: torch.Tensor) -> torch.Tensor:
    """F⁻¹(R_k · F(v)_k): v (C, N), weight (M, C, C_out) complex."""
    coefficients = forward(v, theta, n_modes)
    mixed = torch.stack([coefficients[:, k] @ weight[k] for k in range(weight.shape[0])], -1)
    return inverse(mixed, theta, n_modes)


def full_complex_layer(v: torch.Tensor, theta: torch.Tensor, n_modes: tuple, weight: torch.Tensor) -> torch.Tensor:
    """The same layer with the whole complex spectrum, k and -k both, as a complex matrix: how it is usually written.

    v (B, C, N), theta (N, d), weight (M, C, C_out) complex: for -k its conjugate stands.
    """
    ks = torch.tensor(wave_vectors(n_modes), dtype=theta.dtype)
    matrix = torch.exp(-1j * (ks @ theta.t()))
    plus = torch.einsum("bcn,mn->bcm", v.to(matrix.dtype), matrix) / theta.shape[0]
    minus = torch.einsum("bcn,mn->bcm", v.to(matrix.dtype), matrix.conj()) / theta.shape[0]
    h = torch.where(ks[:, -1] == 0, 1.0, 2.0).to(theta.dtype) / 2
    plus = torch.einsum("bcm,mco->bom", plus, weight) * h
    minus = torch.einsum("bcm,mco->bom", minus, weight.conj()) * h
    both = torch.einsum("bom,mn->bon", plus, matrix.conj()) + torch.einsum("bom,mn->bon", minus, matrix)
    return both.real


def real_harmonic(degree: int, order: int, theta: float, phi: float) -> float:
    """Orthonormal real Y_lm by its definition: associated Legendre polynomials as sums over binomials."""
    m = abs(order)
    x = math.cos(theta)
    total = 0.0
    for k in range(m, degree + 1):  # Rodrigues: P_l^m = (1-x²)^{m/2} 2^l Σ_k k!/(k-m)! x^{k-m} C(l,k) C((l+k-1)/2, l)
        upper = (degree + k - 1) / 2
        choose = math.prod(upper - i for i in range(degree)) / math.factorial(degree)
        total += math.factorial(k) / math.factorial(k - m) * x ** (k - m) * math.comb(degree, k) * choose
    legendre = math.sin(theta) ** m * 2**degree * total  # without the Condon-Shortley sign
    norm = math.sqrt((2 * degree + 1) / (4 * math.pi) * math.factorial(degree - m) / math.factorial(degree + m))
    if order > 0:
        return math.sqrt(2) * norm * legendre * math.cos(m * phi)
    if order < 0:
        return math.sqrt(2) * norm * legendre * math.sin(m * phi)
    return norm * legendre
