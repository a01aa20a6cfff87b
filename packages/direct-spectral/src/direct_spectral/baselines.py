"""What section 4 of the paper compares with: Geo-FNO (a learned deformation); and a network that sees single points."""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from offprints.checks import message, require_range
from torch import nn
from torch.nn.functional import gelu

from direct_spectral.basis import FourierBasis
from direct_spectral.blocks import CONV
from direct_spectral.contract import Basis
from direct_spectral.domain import Bounds, Domain
from direct_spectral.latent import LatentGridOperator
from direct_spectral.operator import CloudOperator, Prepared


class Deformation(nn.Module):
    """Learned map of the unit box, ξ = x + x · Δ(x) (the IPHI network of Geo-FNO, Li et al. 2022).

    Features are the position, and in two dimensions angle and radius around the centre; from these 32 linear ones and
    sines and cosines of frequencies π 2^i, i < 8; then three tanh layers of 128.

    Args:
        dim: d.
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(self, dim: int, device: "torch.device | str | None" = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        factory = {"device": device, "dtype": dtype}
        n = dim + 2 if dim == 2 else dim + 1
        self.linear = nn.Linear(n, 32, **factory)
        sizes = [32 + 16 * n, 128, 128, 128]
        self.hidden = nn.ModuleList(nn.Linear(a, b, **factory) for a, b in pairwise(sizes))
        self.out = nn.Linear(128, dim, **factory)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., d) in the unit box to (..., d)."""
        from_centre = x - 0.5
        radius = (from_centre**2).sum(-1, keepdim=True).clamp_min(1e-12).sqrt()
        features = [x, radius]
        if x.shape[-1] == 2:
            features.insert(1, torch.atan2(from_centre[..., 1:], from_centre[..., :1]))
        raw = torch.cat(features, -1)
        angle = (raw.unsqueeze(-1) * (math.pi * 2 ** torch.arange(8, device=x.device, dtype=x.dtype))).flatten(-2)
        v = torch.cat([self.linear(raw), angle.sin(), angle.cos()], -1)
        for layer in self.hidden:
            v = torch.tanh(layer(v))
        return x + x * self.out(v)


class GeoFNO(LatentGridOperator):
    """Geo-FNO (Li et al. 2022): direct transforms at deformed positions, FFT layers on a grid between.

    The first layer takes values at ξ(x) to modes and onto the grid, three FFT layers follow, the last takes modes to
    ξ(x_out). `deformation_penalty` is the option `iphi_reg`, to be added to a loss.

    Args:
        dim: d, from 1 to 3.
        in_channels: C_in.
        out_channels: C_out.
        width: channels inside.
        n_modes: m_i of each axis, or one for all.
        grid: size of the latent grid along each axis, or one for all.
        bounds: (lo, hi) of each axis.
        periodic: of each axis, or of all.
        append_positions: whether positions join the inputs.
        init: of the spectral weights.
        head: channels between the last two linear maps.
        validate: whether to look for NaN and points outside the bounds.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        dim: int,
        in_channels: int,
        out_channels: int,
        width: int = 32,
        n_modes: int | Sequence[int] = 12,
        grid: int | Sequence[int] = 40,
        *,
        bounds: Bounds,
        periodic: bool | Sequence[bool] = False,
        append_positions: bool = True,
        init: str = "uniform",
        head: int = 128,
        validate: bool = True,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_up(dim, in_channels, bounds, periodic, append_positions=append_positions, validate=validate, most=3)
        factory = {"device": device, "dtype": dtype}
        self._add_layers(out_channels, width, n_modes, grid, init, head, **factory)
        self.deformation = Deformation(dim, **factory)
        self.places = nn.ModuleList(CONV[dim](dim, width, 1, **factory) for _ in range(4))
        self.last_place = nn.Linear(dim, width, **factory)

    lasting = False

    def make_basis(self, points: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype) -> "DeformedBasis":
        """The modes at the deformed points; a gradient runs through the positions."""
        return DeformedBasis(self, points, mask, dtype)

    def _fits(self, basis: Basis) -> None:
        if not isinstance(basis, DeformedBasis):
            raise TypeError(
                message("points", "a tensor: the deformation is learned, no basis lasts", type(basis).__name__)
            )

    def positions(self, basis: Basis) -> torch.Tensor:
        """Positions in the unit box."""
        assert isinstance(basis, DeformedBasis)  # _fits has seen to it
        return basis.unit

    def deformation_penalty(self, points: torch.Tensor) -> torch.Tensor:
        """Mean of |ξ(x) - x|² over points, for a loss."""
        unit = ((self.domain.normalised(points) + 1) / 2).to(self.lift.weight.dtype)
        return ((self.deformation(unit) - unit) ** 2).sum(-1).mean()

    def operate(self, inputs: Prepared) -> torch.Tensor:
        """Cloud to grid, grid layers, grid to cloud."""
        assert isinstance(inputs.out, DeformedBasis)  # made above
        s = self.onto_grid(inputs)
        lines = [torch.linspace(0, 1, n, device=s.device, dtype=s.dtype) for n in self.grid]
        places = torch.stack(torch.meshgrid(*lines, indexing="ij")).unsqueeze(0)
        v = gelu(s + self.places[0](places))
        for layer, pointwise, place in zip(self.middle, self.pointwise, list(self.places)[1:], strict=True):
            v = gelu(layer(v) + pointwise(v) + place(places))
        s = self.off_grid(v, inputs.out)
        return self.head(s + self.last_place(inputs.out.unit.to(v.dtype)).transpose(-1, -2))


class DeformedBasis(FourierBasis):
    """The modes of a `GeoFNO` at ξ(x); it knows the positions before the deformation, in the unit box.

    Args:
        model: whose deformation.
        points: (N, d) or (B, N, d).
        mask: (B, N) bool, or None.
        dtype: of the sums.
    """

    def __init__(self, model: GeoFNO, points: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype) -> None:
        self._model = model
        if model.validate:
            FourierBasis(points, 1, model.domain, mask=mask, max_basis_bytes=1)  # for its checks
        clean = points if mask is None else torch.where(mask.unsqueeze(-1), points, points.new_zeros(()))
        self.unit = (model.domain.normalised(clean) + 1) / 2
        own = model.lift.weight.dtype
        box = Domain(((0.0, 1.0),) * model.domain.dim, (True,) * model.domain.dim)
        moved = model.deformation(self.unit.to(own))
        super().__init__(moved, model.n_modes, box, dtype=dtype, mask=mask, validate=False)

    def at(self, points: torch.Tensor, mask: torch.Tensor | None = None, validate: bool = True) -> "DeformedBasis":
        """The same model's modes at other points."""
        return DeformedBasis(self._model, points, mask, self.dtype)


class PointMLP(CloudOperator):
    """A perceptron on the values and position of each point by itself: what a model without neighbours can do.

    Args:
        dim: d.
        in_channels: C_in.
        out_channels: C_out.
        width: channels inside.
        n_layers: hidden layers with residuals.
        bounds: (lo, hi) of each axis.
        periodic: of each axis, or of all.
        append_positions: whether positions join the inputs.
        validate: whether to look for NaN and points outside the bounds.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        dim: int,
        in_channels: int,
        out_channels: int,
        width: int = 128,
        n_layers: int = 4,
        *,
        bounds: Bounds,
        periodic: bool | Sequence[bool] = False,
        append_positions: bool = True,
        validate: bool = True,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_up(
            dim, in_channels, bounds, periodic, append_positions=append_positions, max_basis_bytes=1,
            validate=validate,
        )  # fmt: skip
        require_range("width", width, low=1, integer=True)
        require_range("n_layers", n_layers, low=1, integer=True)
        self.n_modes = (1,) * dim
        factory = {"device": device, "dtype": dtype}
        self._register_scales(out_channels, **factory)
        self.lift = nn.Linear(self.features, width, **factory)
        self.hidden = nn.ModuleList(nn.Linear(width, width, **factory) for _ in range(n_layers))
        self.out = nn.Linear(width, out_channels, **factory)

    def operate(self, inputs: Prepared) -> torch.Tensor:
        """Layer upon layer, at each point.

        Raises:
            ValueError: if outputs are wanted at other points, of which it knows nothing.
        """
        if not inputs.same:
            raise ValueError(message("out_points", "None: nothing is known between points", "other points"))
        v = self.lift(inputs.features)
        for layer in self.hidden:
            v = v + gelu(layer(v))
        return self.out(v)
