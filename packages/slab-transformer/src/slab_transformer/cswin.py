"""The CSwin body of SLAB-CSwin (Guo et al., 2024, Table 2; Dong et al., CVPR 2022): cross-shaped windows."""

from collections.abc import Sequence
from typing import cast

import torch
from offprints.checks import require_range, require_shape
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import SimplifiedLinearAttention


class StripeAttention(nn.Module):
    """Softmax attention in stripes: half of the heads in vertical, half in horizontal ones; at last in the whole grid.

    The values are added once more, through a depthwise convolution of kernel 3 in each stripe (local enhancement).

    Args:
        dim: Width.
        num_heads: Heads; even unless the stripe is the grid.
        grid: (H, W).
        stripe: Width of a stripe, a divisor of both sides.

    Shape:
        (B, H W, C) -> the same.
    """

    def __init__(self, dim: int, num_heads: int, grid: tuple[int, int], stripe: int) -> None:
        super().__init__()
        height, width = grid
        if height % stripe or width % stripe:
            raise ValueError(f"stripe must divide the grid ({height} x {width}), got {stripe}.")
        whole = stripe == height == width
        if not whole and num_heads % 2:
            raise ValueError(f"num_heads must be even for two directions, got {num_heads}.")
        self.num_heads, self.grid = num_heads, grid
        self.windows = [grid] if whole else [(height, stripe), (stripe, width)]
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        part = dim // len(self.windows)
        self.enhance = nn.ModuleList(nn.Conv2d(part, part, 3, padding=1, groups=part) for _ in self.windows)

    def forward(self, x: Tensor) -> Tensor:
        """Attend over (B, H W, C)."""
        require_shape("input", x, ["B", self.grid[0] * self.grid[1], "C"])
        parts = self.qkv(x).chunk(3, -1)
        count = len(self.windows)
        halves = zip(*(part.chunk(count, -1) for part in parts), strict=True)
        outs = [
            self._stripes(q, k, v, window, conv)
            for (q, k, v), window, conv in zip(halves, self.windows, self.enhance, strict=True)
        ]
        return cast(Tensor, self.proj(torch.cat(outs, -1)))

    def _stripes(self, q: Tensor, k: Tensor, v: Tensor, window: tuple[int, int], conv: nn.Module) -> Tensor:
        heads = self.num_heads // len(self.windows)
        q, k, v = (self._cut(t, window) for t in (q, k, v))
        local = conv(v.transpose(1, 2).unflatten(2, window)).flatten(2).transpose(1, 2)
        q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2) + local
        return self._join(out, window)

    def _cut(self, x: Tensor, window: tuple[int, int]) -> Tensor:
        rows, columns = self.grid[0] // window[0], self.grid[1] // window[1]
        tiles = x.unflatten(1, (rows, window[0], columns, window[1])).transpose(2, 3)
        return tiles.flatten(0, 2).flatten(1, 2)

    def _join(self, x: Tensor, window: tuple[int, int]) -> Tensor:
        rows, columns = self.grid[0] // window[0], self.grid[1] // window[1]
        tiles = x.unflatten(1, window).unflatten(0, (-1, rows, columns)).transpose(2, 3)
        return tiles.flatten(1, 4)


class CSwinBlock(nn.Module):
    """Pre-norm attention and feed-forward, each with a residual."""

    def __init__(self, dim: int, attention: nn.Module) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(dim), attention
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, C) -> the same."""
        x = x + self.attention(self.norm1(x))
        return cast(Tensor, x + self.mlp(self.norm2(x)))


class Downsample(nn.Module):
    """A convolution to half the sides and another width, then a norm."""

    def __init__(self, dim_in: int, dim_out: int, kernel: int, stride: int, padding: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(dim_in, dim_out, kernel, stride, padding)
        self.norm = nn.LayerNorm(dim_out)

    def forward(self, image: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, N, C')."""
        return cast(Tensor, self.norm(self.conv(image).flatten(2).transpose(1, 2)))


class CSwin(nn.Module):
    """CSwin classifier; stages of `linear_stages` have simplified linear attention (Section 5.1).

    Args:
        num_classes: Of the head.
        image_size: Side of the image, a multiple of 32.
        width: Of the first stage; doubles with each.
        depths: Layers of each stage.
        linear_stages: Stages with linear attention.
        stripes: Widths of the stripes of each stage.

    Shape:
        (B, 3, H, W) -> logits (B, num_classes).
    """

    def __init__(
        self,
        num_classes: int = 1000,
        image_size: int = 224,
        width: int = 64,
        depths: Sequence[int] = (1, 2, 21, 1),
        linear_stages: Sequence[int] = (),
        stripes: Sequence[int] = (1, 2, 7, 7),
    ) -> None:
        super().__init__()
        require_range("image_size", image_size, low=32, integer=True)
        if image_size % 32:
            raise ValueError(f"image_size must be a multiple of 32, got {image_size}.")
        self.main_input_name = "pixel_values"
        self.image_size = image_size
        stages, downs = [], [Downsample(3, width, 7, 4, 2)]
        for stage, depth in enumerate(depths):
            dim, side, heads = width * 2**stage, image_size // 2 ** (stage + 2), 2 ** (stage + 1)
            grid = (side, side)
            blocks = [
                CSwinBlock(dim, SimplifiedLinearAttention(dim, heads, grid))
                if stage in linear_stages
                else CSwinBlock(dim, StripeAttention(dim, heads, grid, min(stripes[stage], side)))
                for _ in range(depth)
            ]
            stages.append(nn.Sequential(*blocks))
            if stage + 1 < len(depths):
                downs.append(Downsample(dim, 2 * dim, 3, 2, 1))
        self.downs, self.stages = nn.ModuleList(downs), nn.ModuleList(stages)
        self.norm = nn.LayerNorm(width * 2 ** (len(depths) - 1))
        self.head = nn.Linear(width * 2 ** (len(depths) - 1), num_classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Logits of images (B, 3, H, W)."""
        require_shape("pixel_values", pixel_values, ["B", 3, self.image_size, self.image_size])
        x = pixel_values
        for stage, (down, blocks) in enumerate(zip(self.downs, self.stages, strict=True)):
            x = blocks(down(x))
            if stage + 1 < len(self.stages):
                side = self.image_size // 2 ** (stage + 2)
                x = x.transpose(1, 2).unflatten(2, (side, side))
        return cast(Tensor, self.head(self.norm(x).mean(1)))
