"""U-FNO with direct transforms at both ends: cloud, grid with a U-Net branch, cloud (U-FNO-DSE; section 4)."""

from collections.abc import Sequence

import torch
from offprints.checks import message, require_range
from torch import nn
from torch.nn.functional import gelu

from direct_spectral.basis import MAX_BASIS_BYTES
from direct_spectral.blocks import CONV, Pointwise
from direct_spectral.domain import Bounds
from direct_spectral.latent import LatentGridOperator
from direct_spectral.operator import Prepared

TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORM = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}


class UNet(nn.Module):
    """Convolutions of kernel 3 with strides 2, 2, 1, 2, 1, transposed ones of kernel 4 back up, skips between.

    (B, C, n_1, …, n_d) to the same shape; every n_i is a multiple of 8. BatchNorm and LeakyReLU(0.1) after each.

    Args:
        channels: C.
        dim: d, from 1 to 3.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if d is above 3.
    """

    def __init__(
        self, channels: int, dim: int, device: "torch.device | str | None" = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        require_range("dim", dim, low=1, high=3, integer=True)
        factory = {"device": device, "dtype": dtype}

        def down(stride: int) -> nn.Sequential:
            conv = CONV[dim](channels, channels, 3, stride, 1, bias=False, **factory)
            return nn.Sequential(conv, NORM[dim](channels, **factory), nn.LeakyReLU(0.1))

        def up(c: int) -> nn.Sequential:
            return nn.Sequential(TRANSPOSED[dim](c, channels, 4, 2, 1, **factory), nn.LeakyReLU(0.1))

        self.down1 = down(2)
        self.down2 = nn.Sequential(down(2), down(1))
        self.down3 = nn.Sequential(down(2), down(1))
        self.up2, self.up1, self.up0 = up(channels), up(2 * channels), up(2 * channels)
        self.out = CONV[dim](2 * channels, channels, 3, 1, 1, **factory)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The same shape."""
        one = self.down1(x)
        two = self.down2(one)
        three = self.down3(two)
        two = torch.cat([two, self.up2(three)], 1)
        one = torch.cat([one, self.up1(two)], 1)
        return self.out(torch.cat([x, self.up0(one)], 1))


class UFNODSE(LatentGridOperator):
    """U-FNO on any points: direct transform onto a latent grid, three grid layers, direct transform off it.

    The outer layers act on points of different number at their ends, so their pointwise branch is W s of the spectral
    output s itself: s + W s. The middle ones are s + W v on the grid, the last two of them with a U-Net branch U(v).
    Outputs at any `out_points` are the same function.

    Args:
        dim: d, from 1 to 3.
        in_channels: C_in.
        out_channels: C_out.
        width: channels inside.
        n_modes: m_i of each axis, or one for all.
        grid: size of the latent grid along each axis, or one for all; multiples of 8, at least 2 m_i.
        bounds: (lo, hi) of each axis.
        periodic: of each axis, or of all.
        gap: see `Domain`.
        quadrature: "mean", "voronoi" or "lstsq".
        norm: "forward", "backward" or "ortho".
        append_positions: whether positions join the inputs.
        init: of the spectral weights.
        head: channels between the last two linear maps.
        backend: of the direct transforms.
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
        grid: int | Sequence[int] = 32,
        *,
        bounds: Bounds,
        periodic: bool | Sequence[bool] = False,
        gap: float = 0.9,
        quadrature: str = "mean",
        norm: str = "forward",
        append_positions: bool = True,
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
            append_positions=append_positions, backend=backend, max_basis_bytes=max_basis_bytes, validate=validate,
            most=3,
        )  # fmt: skip
        factory = {"device": device, "dtype": dtype}
        self._add_layers(out_channels, width, n_modes, grid, init, head, **factory)
        for axis, n in enumerate(self.grid):
            if n % 8:
                raise ValueError(message(f"grid[{axis}]", "a multiple of 8 (three halvings)", n))
        self.ends = nn.ModuleList([CONV[dim](width, width, 1, **factory), Pointwise(width, width, **factory)])
        self.unets = nn.ModuleList(UNet(width, dim, **factory) for _ in range(2))

    def operate(self, inputs: Prepared) -> torch.Tensor:
        """Cloud to grid, grid layers, grid to cloud."""
        s = self.onto_grid(inputs)
        v = gelu(s + self.ends[0](s))
        for i, (layer, pointwise) in enumerate(zip(self.middle, self.pointwise, strict=True)):
            s = layer(v) + pointwise(v)
            v = gelu(s + self.unets[i - 1](v) if i else s)
        s = self.off_grid(v, inputs.out)
        return self.head(s + self.ends[1](s))
