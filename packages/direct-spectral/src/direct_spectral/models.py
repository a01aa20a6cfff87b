"""Neural operators on clouds: FNO and F-FNO with direct transforms (FNO-DSE, F-FNO-DSE; section 4 of the paper)."""

from collections.abc import Sequence

import torch
from offprints.checks import require_choice, require_range
from torch import nn
from torch.nn.functional import gelu

from direct_spectral.basis import MAX_BASIS_BYTES, FourierBasis
from direct_spectral.blocks import Head, Pointwise, through_layers
from direct_spectral.contract import Basis
from direct_spectral.domain import Bounds
from direct_spectral.layers import DirectSpectralConv, FactorizedSpectralConv
from direct_spectral.operator import CloudOperator, Prepared
from direct_spectral.waves import require_modes


class FNODSE(CloudOperator):
    """Fourier neural operator on any points: v ← GELU(W v + b + F⁻¹(R_k · F(v)_k)), n_layers times.

    Args:
        dim: d, coordinates of a point.
        in_channels: C_in of the values (positions not counted).
        out_channels: C_out.
        width: channels inside.
        n_modes: m_i of each axis, or one for all.
        n_layers: spectral layers; the last has no GELU.
        bounds: (lo, hi) of each axis, fixed for good (`fit_bounds` on the training set), so that no sample's output
            depends on its batch.
        periodic: of each axis, or of all.
        gap: see `Domain`.
        quadrature: "mean" (the paper), "voronoi" or "lstsq"; weights of your own come with a basis.
        norm: "forward", "backward" or "ortho".
        append_positions: whether positions join the inputs.
        query_head: whether the last layer does without its pointwise branch, also in training, so that outputs at
            other points are the same function.
        init: of the spectral weights: "uniform" (released code) or "normal".
        head: channels between the last two linear maps.
        backend: of the transforms, see `FourierBasis`.
        max_basis_bytes: see `FourierBasis`.
        validate: whether to look for NaN and points outside the bounds.
        device: of the parameters.
        dtype: of the parameters. In 16 bits the sums over points still run in float32.

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
        n_layers: int = 4,
        *,
        bounds: Bounds,
        periodic: bool | Sequence[bool] = False,
        gap: float = 0.9,
        quadrature: str = "mean",
        norm: str = "forward",
        append_positions: bool = True,
        query_head: bool = False,
        init: str = "uniform",
        head: int = 128,
        backend: str = "direct",
        max_basis_bytes: int = MAX_BASIS_BYTES,
        validate: bool = True,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_up(
            dim, in_channels, bounds, periodic, gap=gap, quadrature=quadrature, norm=norm,
            append_positions=append_positions, query_head=query_head, backend=backend,
            max_basis_bytes=max_basis_bytes, validate=validate,
        )  # fmt: skip
        require_range("width", width, low=1, integer=True)
        require_range("n_layers", n_layers, low=1, integer=True)
        self.n_modes = require_modes(n_modes, dim)
        factory = {"device": device, "dtype": dtype}
        self._register_scales(out_channels, **factory)
        self.lift = nn.Linear(self.features, width, **factory)
        layers = [DirectSpectralConv(width, width, self.n_modes, init, **factory) for _ in range(n_layers)]
        self.spectral = nn.ModuleList(layers)
        skips = n_layers - query_head
        self.pointwise = nn.ModuleList(Pointwise(width, width, **factory) for _ in range(skips))
        self.head = Head(width, head, out_channels, **factory)

    def operate(self, inputs: Prepared) -> torch.Tensor:
        """Lift, spectral layers, head."""
        v = self.lift(inputs.features).transpose(-1, -2)
        v = through_layers(v, self.spectral, self.pointwise, inputs.basis, inputs.out, inputs.same)
        return self.head(v)


class FFNODSE(CloudOperator):
    """Factorised Fourier neural operator on any points: v ← v + W_2 GELU(W_1 Σ_i F_i⁻¹ R^{(i)} F_i v).

    Arguments as in `FNODSE`; every axis has weights of its own, and waves 0..m_i-1. With `query_head` the last layer
    is without its residual.

    Args:
        dim: d.
        in_channels: C_in.
        out_channels: C_out.
        width: channels inside.
        n_modes: m_i of each axis, or one for all.
        n_layers: layers.
        bounds: (lo, hi) of each axis.
        periodic: of each axis, or of all.
        gap: see `Domain`.
        quadrature: "mean" or "voronoi".
        norm: "forward", "backward" or "ortho".
        append_positions: whether positions join the inputs.
        query_head: see above.
        init: of the spectral weights.
        expansion: channels between W_1 and W_2, in widths.
        head: channels between the last two linear maps.
        max_basis_bytes: see `FourierBasis`.
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
        n_layers: int = 4,
        *,
        bounds: Bounds,
        periodic: bool | Sequence[bool] = False,
        gap: float = 0.9,
        quadrature: str = "mean",
        norm: str = "forward",
        append_positions: bool = True,
        query_head: bool = False,
        init: str = "uniform",
        expansion: int = 2,
        head: int = 128,
        max_basis_bytes: int = MAX_BASIS_BYTES,
        validate: bool = True,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self._set_up(
            dim, in_channels, bounds, periodic, gap=gap, quadrature=quadrature, norm=norm,
            append_positions=append_positions, query_head=query_head,
            max_basis_bytes=max_basis_bytes, validate=validate,
        )  # fmt: skip
        require_range("width", width, low=1, integer=True)
        require_range("n_layers", n_layers, low=1, integer=True)
        require_range("expansion", expansion, low=1, integer=True)
        require_choice("quadrature", quadrature, ("mean", "voronoi"), hint="Least squares does not factorise.")
        self.n_modes = require_modes(n_modes, dim)
        factory = {"device": device, "dtype": dtype}
        self._register_scales(out_channels, **factory)
        self.lift = nn.Linear(self.features, width, **factory)
        self.spectral = nn.ModuleList(
            FactorizedSpectralConv(width, width, self.n_modes, init, **factory) for _ in range(n_layers)
        )
        self.widen = nn.ModuleList(Pointwise(width, expansion * width, **factory) for _ in range(n_layers))
        self.narrow = nn.ModuleList(Pointwise(expansion * width, width, **factory) for _ in range(n_layers))
        self.head = Head(width, head, out_channels, **factory)

    def make_basis(self, points: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype) -> FourierBasis:
        """Angles and weights of the points; the layers use the waves along each axis only."""
        return FourierBasis(
            points, 1, self.domain, quadrature=self.quadrature, dtype=dtype, mask=mask, validate=self.validate,
            **self.options,
        )  # fmt: skip

    def _fits(self, basis: Basis) -> None:
        if getattr(basis, "domain", None) != self.domain:
            super()._fits(basis)

    def operate(self, inputs: Prepared) -> torch.Tensor:
        """Lift, layers along the axes, head."""
        axes = [inputs.basis.along(i, m) for i, m in enumerate(self.n_modes)]
        outs = axes if inputs.same else [inputs.out.along(i, m) for i, m in enumerate(self.n_modes)]
        v = self.lift(inputs.features).transpose(-1, -2)
        last = len(self.spectral) - 1
        for i, (layer, widen, narrow) in enumerate(zip(self.spectral, self.widen, self.narrow, strict=True)):
            step = narrow(gelu(widen(layer(v, axes, outs if i == last else None))))
            v = step if i == last and (self.query_head or not inputs.same) else v + step
        return self.head(v)
