"""What a learned network has to beat: predictors that look at nothing."""

import torch
from jaxtyping import Float, Int
from offprints.checks import require_finite, require_range
from torch import Tensor, nn


class ConstantPredictor(nn.Module):
    """Gives one value for every output: 0 has population loss p, 1 (the best) has p - 1 (theorem 3.4).

    It has no trainable weights, so it has no NTK and cannot be fitted. The interface is that of `QuadraticNetwork`.

    Args:
        p: outputs.
        value: what they are.
        device: where the value lies.
        dtype: of the value.

    Raises:
        ValueError: if p < 2 or the value is not finite.
    """

    value: Tensor

    def __init__(
        self, p: int, value: float = 0.0, device: str | torch.device | None = None, dtype: torch.dtype = torch.float64
    ) -> None:
        super().__init__()
        require_range("p", p, low=2, integer=True)
        require_finite("value", value)
        self.p = p
        self.register_buffer("value", torch.full((), value, device=device, dtype=dtype))

    def forward(self, pairs: Int[Tensor, "batch 2"]) -> Float[Tensor, "batch p"]:
        """The value, p times for each pair."""
        return self.value.expand(len(pairs), self.p)

    def forward_triples(self, triples: Int[Tensor, "batch 3"]) -> Float[Tensor, " batch"]:
        """The value, once for each triple."""
        return self.value.expand(len(triples))

    def population_loss(self) -> float:
        """Mean of (value - p · 1[a + b ≡ c])² over all triples: ((p - 1) value² + (p - value)²) / p."""
        value = float(self.value)
        return ((self.p - 1) * value**2 + (self.p - value) ** 2) / self.p
