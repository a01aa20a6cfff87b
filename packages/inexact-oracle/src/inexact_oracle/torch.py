"""Adapter to torch optimisers that call a closure (small models only); torch is imported when it is used."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
from offprints.checks import require_range

from inexact_oracle.lipschitz import LipschitzOracle
from inexact_oracle.points import Vector
from inexact_oracle.smooth import SmoothOracle

if TYPE_CHECKING:
    from torch import Tensor

# Every query keeps a float64 gradient and scans all of them: more parameters are another job than this package's.
MAX_PARAMETERS = 2000


class WrappedClosure:
    """A closure whose loss and gradients are consistent replies; `oracle` is the wrapper, with its certificate."""

    def __init__(
        self,
        closure: "Callable[[], Tensor]",
        params: "Iterable[Tensor]",
        *,
        eta_f: float,
        eta_g: float,
        smoothness: float | None = None,
        diameter: float | None = None,
        strict: bool = False,
    ) -> None:
        self._closure, self._params = closure, [p for p in params if p.requires_grad]
        dim = sum(p.numel() for p in self._params)
        require_range("number of parameters", dim, low=1, high=MAX_PARAMETERS, integer=True)
        if smoothness is not None:
            self.oracle: SmoothOracle | LipschitzOracle = SmoothOracle(
                self._evaluate, dim, eta_f, eta_g, smoothness, diameter=diameter, strict=strict
            )
        elif diameter is not None:
            self.oracle = LipschitzOracle(self._evaluate, dim, eta_f, eta_g, diameter, strict=strict)
        else:
            raise ValueError("smoothness or diameter must be given, got neither. L-BFGS needs smoothness.")

    def flat(self) -> Vector:
        """All parameters as one float64 vector (d,)."""
        return np.concatenate([p.detach().cpu().double().numpy().ravel() for p in self._params])

    def _write(self, x: Vector) -> None:
        import torch

        start = 0
        with torch.no_grad():
            for p in self._params:
                p.copy_(torch.as_tensor(x[start : start + p.numel()]).reshape(p.shape))
                start += p.numel()

    def _evaluate(self, x: Vector) -> tuple[float, Vector]:
        import torch

        self._write(x)
        with torch.enable_grad():
            loss = self._closure()
            # Gradients are taken here and not by the closure, so that p.grad holds nothing but replies.
            grads = torch.autograd.grad(loss, self._params)
        return float(loss.detach()), np.concatenate([g.detach().cpu().double().numpy().ravel() for g in grads])

    def __call__(self) -> "Tensor":
        """Write the replied gradient into every p.grad and return the replied loss."""
        import torch

        value, grad = self.oracle.fun_and_grad(self.flat())
        start = 0
        for p in self._params:
            piece = torch.as_tensor(grad[start : start + p.numel()], dtype=p.dtype, device=p.device)
            p.grad = piece.reshape(p.shape)
            start += p.numel()
        return torch.as_tensor(value, dtype=self._params[0].dtype)


def wrap_closure(
    closure: "Callable[[], Tensor]",
    params: "Iterable[Tensor]",
    *,
    eta_f: float,
    eta_g: float,
    smoothness: float | None = None,
    diameter: float | None = None,
    strict: bool = False,
) -> WrappedClosure:
    """A closure for `torch.optim.LBFGS(...).step(...)` whose answers are exact for some convex function.

    Args:
        closure: computes and returns the scalar loss at the current parameters (no zero_grad, no backward).
        params: the parameters; their flattening is x (d,), d <= 2000.
        eta_f: bound on the error of the loss.
        eta_g: bound on the 2-norm of the gradient error.
        smoothness: L of the loss: uses `SmoothOracle` (line searches need it).
        diameter: D of the set of parameters; alone, it selects `LipschitzOracle`.
        strict: raise instead of warning when no convex loss explains the answers.

    Raises:
        ValueError: more than 2000 parameters, none, or neither smoothness nor diameter.
    """
    return WrappedClosure(
        closure, params, eta_f=eta_f, eta_g=eta_g, smoothness=smoothness, diameter=diameter, strict=strict
    )
