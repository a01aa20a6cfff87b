"""Parts of the operators of section 4 of the paper: pointwise maps, the stack of spectral layers, the last maps."""

import torch
from torch import nn
from torch.nn.functional import gelu

from direct_spectral.contract import Basis

CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


class Pointwise(nn.Linear):
    """W v + b at each point: (B, C_in, N) to (B, C_out, N)."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Values at the same points."""
        mixed = self.weight @ input
        return mixed if self.bias is None else mixed + self.bias.unsqueeze(-1)


class Head(nn.Module):
    """Linear, GELU, linear: (B, C, N) to (B, N, C_out)."""

    def __init__(
        self,
        width: int,
        hidden: int,
        out_channels: int,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        self.hidden = nn.Linear(width, hidden, **factory)
        self.out = nn.Linear(hidden, out_channels, **factory)

    def forward(self, v: torch.Tensor) -> torch.Tensor:
        """Outputs at each point."""
        return self.out(gelu(self.hidden(v.transpose(-1, -2))))


def through_layers(
    v: torch.Tensor, spectral: nn.ModuleList, pointwise: nn.ModuleList, basis: Basis, out: Basis, same: bool
) -> torch.Tensor:
    """V ← GELU(W v + b + F⁻¹(R · F(v))) layer upon layer, the last without GELU: (B, C, N) to (B, C, N').

    Args:
        v: values at the points of `basis`.
        spectral: layers, called as `layer(v, basis, out_basis)`.
        pointwise: W and b of each layer; the last may be missing (a query head).
        basis: of the points in.
        out: of the points out, for the last layer.
        same: whether they are the same points; if not, the last W v + b, known at `basis` only, is left out.
    """
    last = len(spectral) - 1
    for i, layer in enumerate(spectral):
        mixed = layer(v, basis, out if i == last else None)
        if i < len(pointwise) and (i < last or same):
            mixed = mixed + pointwise[i](v)
        v = gelu(mixed) if i < last else mixed
    return v
