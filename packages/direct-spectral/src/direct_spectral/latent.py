"""Operators with a regular grid inside (section 4 of the paper): direct transforms onto it and off it, FFTs between."""

from collections.abc import Sequence

import torch
from offprints.checks import require_range
from torch import nn

from direct_spectral.blocks import CONV, Head
from direct_spectral.contract import Basis
from direct_spectral.layers import (
    DirectSpectralConv,
    GridSpectralConv,
    grid_analyse,
    grid_synthesise,
    mix,
    require_fine,
)
from direct_spectral.operator import CloudOperator, Prepared
from direct_spectral.waves import require_modes


class LatentGridOperator(CloudOperator):
    """A lift, a spectral layer from the cloud to a grid, three FFT layers, one from the grid to the cloud, a head."""

    def _add_layers(
        self,
        out_channels: int,
        width: int,
        n_modes: int | Sequence[int],
        grid: int | Sequence[int],
        init: str,
        head: int,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        """After `_set_up`."""
        dim, factory = self.domain.dim, {"device": device, "dtype": dtype}
        require_range("width", width, low=1, integer=True)
        self.n_modes, self.grid = require_modes(n_modes, dim), require_modes(grid, dim)
        require_fine(self.grid, self.n_modes)
        self._register_scales(out_channels, **factory)
        self.lift = nn.Linear(self.features, width, **factory)
        self.into = DirectSpectralConv(width, width, self.n_modes, init, **factory)
        self.onto = DirectSpectralConv(width, width, self.n_modes, init, **factory)
        self.middle = nn.ModuleList(GridSpectralConv(width, width, self.n_modes, init, **factory) for _ in range(3))
        self.pointwise = nn.ModuleList(CONV[dim](width, width, 1, **factory) for _ in range(3))
        self.head = Head(width, head, out_channels, **factory)

    def onto_grid(self, inputs: Prepared) -> torch.Tensor:
        """F⁻¹(R_k · F(v)_k) on the grid, (B, C, n_1, …, n_d), of the lifted features v at the points."""
        v = self.lift(inputs.features).transpose(-1, -2)
        packed = mix(inputs.basis.analyse(v), self.into.weight)
        return grid_synthesise(packed, self.n_modes, self.grid).to(v.dtype)

    def off_grid(self, v: torch.Tensor, out: Basis) -> torch.Tensor:
        """F⁻¹(R_k · F(v)_k) at points, (B, C, N'), of values v on the grid."""
        return out.synthesise(mix(grid_analyse(v, self.n_modes), self.onto.weight)).to(v.dtype)
