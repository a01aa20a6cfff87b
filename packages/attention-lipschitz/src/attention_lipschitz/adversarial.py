"""Tokens at which attention is as sensitive as it can be (Section 3.1 and the adversarial data of Section 5)."""

import math

import numpy as np
import torch
from offprints.checks import require_finite, require_range, require_shape
from torch import Tensor


class NoRealEigenvalueError(ValueError):
    """A has no real eigenvalue, so that the construction from an eigenvector does not exist; use `worst_case`."""


def growth_rate(eigenvalue: float) -> float:
    """γ: −λ of a negative eigenvalue, λ/8 of a positive one."""
    return -eigenvalue if eigenvalue < 0 else eigenvalue / 8


def extreme_direction(A: Tensor | np.ndarray) -> tuple[Tensor, float]:
    """The unit eigenvector u of A whose γ = max(−λ_min, λ_max/8) over real eigenvalues is largest, and its λ.

    Raises:
        NoRealEigenvalueError: if no eigenvalue is real.
        ValueError: if A is not square or not finite.
    """
    matrix = torch.as_tensor(A).detach().double().cpu().numpy()
    require_shape("A", matrix, ("d", "d"))
    require_finite("A", matrix)
    values, vectors = np.linalg.eig(matrix)
    real = np.abs(values.imag) <= 1e-12 * max(1e-300, float(np.abs(values).max(initial=0.0)))
    if not real.any():
        raise NoRealEigenvalueError(
            f"A must have a real eigenvalue for the adversarial tokens, got none among {len(values)}. "
            "Use worst_case, which starts from random tokens."
        )
    rates = np.where(real, [growth_rate(float(value)) for value in values.real], -np.inf)
    best = int(rates.argmax())
    u = vectors[:, best].real
    u = u / np.linalg.norm(u) * (1.0 if u[np.abs(u).argmax()] >= 0 else -1.0)
    return torch.from_numpy(np.ascontiguousarray(u)), float(values[best].real)


def adversarial_tokens(A: Tensor | np.ndarray, n: int, R: float) -> Tensor:
    """(n, d) float64 tokens in B_R at which one head is most sensitive (Section 5, adversarial data).

    With u the eigenvector of `extreme_direction`: (−Ru, Ru, …, Ru) where γ = −λ_min, else (Ru, Ru/2, …, Ru/2). All
    tokens attend to the first one, with probability 1/(1 + (n − 1) e^{−2γR²}).

    Args:
        A: (d, d).
        n: number of tokens, ≥ 1.
        R: radius.

    Raises:
        NoRealEigenvalueError: if A has no real eigenvalue.
        ValueError: if n < 1, R ≤ 0 or A is not square.
    """
    require_range("n", n, low=1, integer=True)
    require_range("R", R, low=0.0, low_open=True)
    if not math.isfinite(R):
        raise ValueError(f"R must be finite, got {R}.")
    u, eigenvalue = extreme_direction(A)
    first, others = (-R, R) if eigenvalue < 0 else (R, R / 2)
    sizes = torch.full((n, 1), float(others), dtype=torch.float64)
    sizes[0] = float(first)
    return sizes * u
