"""Neural operator on the sphere from scattered points (SFNO-DSE; section 4 of the paper)."""

from typing import Literal

import torch
from offprints.checks import message, require_choice, require_range
from torch import nn

from direct_spectral.blocks import Head, Pointwise, through_layers
from direct_spectral.contract import Basis
from direct_spectral.layers import SphericalSpectralConv
from direct_spectral.operator import PointOperator, Prepared
from direct_spectral.quadrature import QUADRATURE_HINT, RULES
from direct_spectral.sphere import Coordinates, SphericalBasis, to_xyz


class SFNODSE(PointOperator):
    """Spherical neural operator on scattered points: v ← GELU(W v + b + Y (R_lm · Y^T w v)), n_layers times.

    With `weight="degree"`, `append_positions=False` and scalar inputs it commutes with rotations of the sphere.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        width: channels inside.
        lmax: L, the number of degrees.
        n_layers: spectral layers; the last has no GELU.
        weight: a real matrix for each (l, m) ("full", the paper), or each l ("degree"), a complex one for each pair
            (l, ±m) ("complex").
        quadrature: "mean" (points uniform on the sphere), "voronoi" or "lstsq"; weights of your own come with a basis.
        coordinates: "thetaphi", "lonlat" or "xyz".
        units: of the angles, "radians" or "degrees".
        append_positions: whether unit vectors join the inputs.
        query_head: see `FNODSE`.
        init: of the spectral weights.
        head: channels between the last two linear maps.
        validate: whether to look for NaN.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        width: int = 128,
        lmax: int = 22,
        n_layers: int = 5,
        *,
        weight: Literal["full", "degree", "complex"] = "full",
        quadrature: str = "mean",
        coordinates: Literal["thetaphi", "lonlat", "xyz"] = "thetaphi",
        units: str = "radians",
        append_positions: bool = False,
        query_head: bool = False,
        init: str = "uniform",
        head: int = 128,
        validate: bool = True,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = int(require_range("in_channels", in_channels, low=1, integer=True))
        require_range("width", width, low=1, integer=True)
        require_range("n_layers", n_layers, low=1, integer=True)
        self.coordinates: Coordinates = require_choice("coordinates", coordinates, ("thetaphi", "lonlat", "xyz"))
        require_choice("units", units, ("radians", "degrees"))
        require_choice("quadrature", quadrature, RULES, hint=QUADRATURE_HINT)
        self.units, self.quadrature, self.lmax = units, quadrature, lmax
        self.append_positions, self.query_head, self.validate = append_positions, query_head, validate
        factory = {"device": device, "dtype": dtype}
        self._register_scales(out_channels, **factory)
        self.lift = nn.Linear(in_channels + 3 * append_positions, width, **factory)
        layers = [SphericalSpectralConv(width, width, lmax, weight, init, **factory) for _ in range(n_layers)]
        self.spectral = nn.ModuleList(layers)
        skips = n_layers - query_head
        self.pointwise = nn.ModuleList(Pointwise(width, width, **factory) for _ in range(skips))
        self.head = Head(width, head, out_channels, **factory)

    def make_basis(self, points: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype) -> SphericalBasis:
        """Harmonics at these points."""
        return SphericalBasis(
            points, self.lmax, self.quadrature, self.coordinates, self.units, dtype, mask, self.validate
        )

    def positions(self, basis: Basis) -> torch.Tensor:
        """Unit vectors."""
        assert isinstance(basis, SphericalBasis)  # _fits has seen to it
        return to_xyz(basis.thetaphi)

    def _fits(self, basis: Basis) -> None:
        if not isinstance(basis, SphericalBasis) or basis.lmax != self.lmax:
            found = getattr(basis, "lmax", type(basis).__name__)
            raise ValueError(message("basis", f"a SphericalBasis of {self.lmax} degrees", found))

    def operate(self, inputs: Prepared) -> torch.Tensor:
        """Lift, spectral layers, head."""
        v = self.lift(inputs.features).transpose(-1, -2)
        v = through_layers(v, self.spectral, self.pointwise, inputs.basis, inputs.out, inputs.same)
        return self.head(v)
