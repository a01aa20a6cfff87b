"""Which Fourier features a network has learned, and how much of the exact circuit stands."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from offprints.checks import require_finite, require_kind, require_range, require_shape
from torch import Tensor

from grokking_theory.model import QuadraticNetwork


@dataclass(frozen=True)
class FourierSpectrum:
    """Fourier analysis of a quadratic network on Z_p; K = ⌊p/2⌋ + 1 frequencies.

    Attributes:
        energy: (width, K), the share of each neuron's input energy ‖q‖² + ‖r‖² at frequency k; rows sum to 1 (0 for
            a neuron that is zero).
        top_share: the share of the energy of all neurons in its strongest frequencies.
        coefficients: (K,), the weight of cos(2πk(a + b - c)/p) in the network's table; the exact network has 1 for
            k = 0 and p/2, and 2 for the others (k and p - k count together).
        completeness: mean over k >= 1 of coefficient ÷ the exact one, cut to [0, 1]: 0 for no circuit, 1 for all.
    """

    energy: Tensor
    top_share: float
    coefficients: Tensor
    completeness: float


def fourier_spectrum(network: QuadraticNetwork, top: int = 1) -> FourierSpectrum:
    """Measure the circuit of proposition 3.8 in a trained network.

    The table F[a, b, c] is averaged over the p² triples with the same a + b - c ≡ d; a discrete Fourier transform of
    that profile in d gives the coefficients.

    Args:
        network: with finite weights.
        top: frequencies of each neuron that count in `top_share`.

    Raises:
        TypeError: if it is no `QuadraticNetwork`.
        ValueError: if a weight is not finite, or `top` is not between 1 and ⌊p/2⌋ + 1.
    """
    require_kind("network", network, QuadraticNetwork)
    p = network.p
    require_range("top", top, low=1, high=p // 2 + 1, integer=True, because="the number of frequencies")
    W = network.W.detach().double()
    require_finite("W", W)
    require_finite("V", network.V)
    energy = _one_sided_power(W[:, :p]) + _one_sided_power(W[:, p:])
    total = energy.sum(1, keepdim=True)
    share = energy / total.where(total > 0, 1.0)
    strongest = energy.topk(top, dim=1).values.sum()
    z = torch.arange(p, device=W.device)
    d = (z[:, None, None] + z[None, :, None] - z) % p
    table = network.population_table().detach().double()
    profile = torch.zeros(p, dtype=torch.float64, device=W.device).index_add(0, d.flatten(), table.flatten()) / p**2
    weight = _folding(p, W.device)
    coefficients = weight * torch.fft.rfft(profile).real / p
    completeness = (coefficients / weight).clamp(0, 1)[1:].mean()
    top_share = float(strongest / energy.sum()) if strongest > 0 else 0.0
    return FourierSpectrum(share, top_share, coefficients, float(completeness))


def _folding(p: int, device: torch.device) -> Float[Tensor, " K"]:
    """How many of the p frequencies each of the ⌊p/2⌋ + 1 stands for: 2, but 1 for k = 0 and k = p/2."""
    k = torch.arange(p // 2 + 1, device=device)
    return torch.where((k == 0) | (2 * k == p), 1.0, 2.0).double()


def _one_sided_power(rows: Float[Tensor, "h p"]) -> Float[Tensor, "h K"]:
    """|DFT|² with k and p - k added up: sums to p ‖row‖²."""
    spectrum = torch.fft.rfft(rows)
    require_shape("spectrum", spectrum, ("h", rows.shape[1] // 2 + 1))
    return spectrum.abs().square() * _folding(rows.shape[1], rows.device)
