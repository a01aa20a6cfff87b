"""The explicit ℓ∞ penalty of the paper, for any training loop."""

from collections.abc import Iterable
from math import inf

import torch
from jaxtyping import Float
from offprints.checks import require_range, require_same_device
from torch import Tensor


class LinfRegularizer:
    """λ ‖θ‖_∞ = λ · max over all entries of all parameters of |θ_i| (section 3, appendix A), a term to add to any loss.

        penalty = LinfRegularizer(model.parameters(), strength=1e-4)
        loss = criterion(model(x), y) + penalty()

    The sub-gradient is λ · sign(θ_i) at the largest entry and 0 elsewhere. Where several entries are equally large,
    autograd of `amax` splits it: evenly over the tensors that hold one, then evenly inside each; every such choice is
    a sub-gradient. A tensor that is shared by two layers counts once.

    Args:
        params: the parameters, for instance `model.parameters()`; those without `requires_grad` are left out.
        strength: λ >= 0.

    Raises:
        TypeError: if an entry of `params` is no tensor.
        ValueError: if there is no parameter to train, λ is negative or not finite, or the parameters lie on several
            devices.
    """

    def __init__(self, params: Iterable[Tensor], strength: float = 1.0) -> None:
        require_range("strength", strength, low=0, high=inf, high_open=True)
        self.strength = strength
        self.params = []
        for parameter in params:
            if not isinstance(parameter, Tensor):
                raise TypeError(f"params must hold tensors, got {type(parameter).__name__}. Pass model.parameters().")
            if parameter.requires_grad and parameter.numel() and not any(parameter is seen for seen in self.params):
                self.params.append(parameter)
        if not self.params:
            raise ValueError("params must hold at least one parameter with requires_grad=True, got none.")
        require_same_device(**{f"params[{i}]": parameter for i, parameter in enumerate(self.params)})

    def norm(self) -> Float[Tensor, ""]:
        """‖θ‖_∞ as a differentiable scalar."""
        return torch.stack([parameter.abs().amax() for parameter in self.params]).amax()

    def __call__(self) -> Float[Tensor, ""]:
        """λ ‖θ‖_∞ as a differentiable scalar."""
        return self.strength * self.norm()
