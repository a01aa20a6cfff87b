"""Simplified linear attention (Guo et al., 2024, Section 3.3, Eq. 6): ReLU kernels and a depthwise convolution of V."""

from typing import cast

import torch
from offprints.checks import require_range, require_shape
from torch import Tensor, nn
from torch.nn import functional as F

_CHUNK = 64  # positions whose products are formed at once in the causal form


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    key_padding_mask: Tensor | None = None,
    causal: bool = False,
    eps: float = 1e-6,
    order: str | None = None,
) -> Tensor:
    """O_i = relu(q_i) (sum_j relu(k_j) v_j^T) / (relu(q_i) . sum_j relu(k_j) + eps) for every head (Eq. 6).

    The sums are taken in float32 or wider, whatever the input. A query with no positive entry gives 0.

    Args:
        q: Queries (B, h, N, c).
        k: Keys (B, h, M, c).
        v: Values (B, h, M, d).
        key_padding_mask: (B, M) of bool, True = real; others count as if they were not there.
        causal: Position i sees positions up to i only (N = M), by prefix sums over chunks.
        eps: Added to the denominator.
        order: "kv" (sum k v^T first, O(N c d)), "qk" (scores first, O(N M)), or None for the cheaper.

    Returns:
        (B, h, N, d) in the dtype of q.

    Raises:
        ValueError: Shapes that do not fit, an unknown order, or causal with N != M.
    """
    require_shape("q", q, ["B", "h", "N", "c"])
    batch, heads, length, width = q.shape
    require_shape("k", k, [batch, heads, "M", width])
    require_shape("v", v, [batch, heads, k.shape[2], "d"])
    require_range("eps", eps, low=0.0, low_open=True)
    if order not in (None, "kv", "qk"):
        raise ValueError(f'order must be "kv", "qk" or None, got {order!r}.')
    if causal and length != k.shape[2]:
        raise ValueError(f"causal attention needs as many keys as queries, got {k.shape[2]} and {length}.")
    out_type = q.dtype
    with torch.autocast(q.device.type, enabled=False):
        wide = torch.promote_types(out_type, torch.float32)
        q, k, v = torch.relu(q.to(wide)), torch.relu(k.to(wide)), v.to(wide)
        if key_padding_mask is not None:
            require_shape("key_padding_mask", key_padding_mask, [batch, k.shape[2]])
            keep = key_padding_mask.to(torch.bool)[:, None, :, None]
            k, v = torch.where(keep, k, 0.0), torch.where(keep, v, 0.0)
        if causal:
            return _causal(q, k, v, eps).to(out_type)
        if order is None:
            order = cheaper_order(length, k.shape[2], width, v.shape[3])
        below = q @ k.sum(2, keepdim=True).transpose(-1, -2) + eps
        above = q @ (k.transpose(-1, -2) @ v) if order == "kv" else (q @ k.transpose(-1, -2)) @ v
        return (above / below).to(out_type)


def cheaper_order(n_q: int, n_k: int, c: int, d: int) -> str:
    """The order "kv" iff N_q N_k (c + d) > c d (N_q + N_k), the products that each association needs (Section 3.3)."""
    return "kv" if n_q * n_k * (c + d) > c * d * (n_q + n_k) else "qk"


def _causal(q: Tensor, k: Tensor, v: Tensor, eps: float) -> Tensor:
    length = q.shape[2]
    short = -length % _CHUNK
    q, k, v = (F.pad(t, (0, 0, 0, short)).unflatten(2, (-1, _CHUNK)) for t in (q, k, v))
    products, keys = k.transpose(-1, -2) @ v, k.sum(-2, keepdim=True)
    before = products.cumsum(2) - products  # of all earlier chunks
    keys_before = keys.cumsum(2) - keys
    scores = torch.tril(q @ k.transpose(-1, -2))
    above = q @ before + scores @ v
    below = q @ keys_before.transpose(-1, -2) + scores.sum(-1, keepdim=True)
    return (above / (below + eps)).flatten(2, 3)[:, :, :length]


class SimplifiedLinearAttention(nn.Module):
    """Linear attention with a learned position term on the keys and a depthwise convolution of V (Section 3.3, Eq. 6).

    q, k, v = x W; k <- k + P; per head O (see `linear_attention`), plus DWC(V), a depthwise convolution over the grid
    with the same d filters for all heads; then the output projection. No softmax, no scale, no dropout.

    Args:
        dim: C, the model width.
        num_heads: h; d = C/h.
        grid: (H, W), the tokens' grid, prefix tokens not counted.
        kernel_size: Of the convolution (odd).
        qkv_bias: Whether the projections of q, k, v have a bias.
        num_prefix_tokens: Tokens before the grid (class token): part of the sums, without a convolution term.
        sr_ratio: PVT's spatial reduction: keys and values from a conv with this kernel and stride, then a norm; V is
            interpolated back to the grid for the convolution.
        device: Where the parameters live.
        dtype: Of the parameters.

    Shape:
        (B, prefix + H W, C) -> the same.

    Raises:
        ValueError: C is no multiple of h, another number of tokens than the grid has, or an even kernel.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        grid: tuple[int, int],
        kernel_size: int = 5,
        qkv_bias: bool = True,
        num_prefix_tokens: int = 0,
        sr_ratio: int = 1,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_range("dim", dim, low=1, integer=True)
        require_range("num_heads", num_heads, low=1, integer=True)
        require_range("kernel_size", kernel_size, low=1, integer=True)
        require_range("num_prefix_tokens", num_prefix_tokens, low=0, integer=True)
        require_range("sr_ratio", sr_ratio, low=1, integer=True)
        if dim % num_heads:
            raise ValueError(f"dim must be a multiple of num_heads ({num_heads}), got {dim}.")
        if kernel_size % 2 == 0:
            raise ValueError(f"kernel_size must be odd, so that the grid keeps its size, got {kernel_size}.")
        height, width = _check_grid(grid)
        if height % sr_ratio or width % sr_ratio:
            raise ValueError(f"grid must be a multiple of sr_ratio ({sr_ratio}) on both sides, got {height} x {width}.")
        factory = {"device": device, "dtype": dtype}
        self.dim, self.num_heads, self.grid = dim, num_heads, (height, width)
        self.num_prefix_tokens, self.sr_ratio, self.kernel_size = num_prefix_tokens, sr_ratio, kernel_size
        self.q = nn.Linear(dim, dim, bias=qkv_bias, **factory)
        self.k = nn.Linear(dim, dim, bias=qkv_bias, **factory)
        self.v = nn.Linear(dim, dim, bias=qkv_bias, **factory)
        self.proj = nn.Linear(dim, dim, **factory)
        head = dim // num_heads
        self.dwc = nn.Conv2d(head, head, kernel_size, padding=kernel_size // 2, groups=head, **factory)
        keys = (height // sr_ratio) * (width // sr_ratio) + num_prefix_tokens
        self.position = nn.Parameter(torch.zeros(1, keys, dim, **factory))
        self.sr: nn.Module | None = None
        self.norm: nn.Module | None = None
        if sr_ratio > 1:
            self.sr = nn.Conv2d(dim, dim, sr_ratio, sr_ratio, **factory)
            self.norm = nn.LayerNorm(dim, **factory)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Attend; `key_padding_mask` (B, keys) of bool, True = real, takes positions out of keys and values."""
        height, width = self.grid
        expected = height * width + self.num_prefix_tokens
        require_shape("input", x, ["B", "N", self.dim])
        if x.shape[1] != expected:
            raise ValueError(
                f"input must hold {expected} tokens ({height} x {width} and {self.num_prefix_tokens} before them), "
                f"got {x.shape[1]}. Use resize_grid for another image size."
            )
        q, source = self.q(x), self._reduce(x)
        k, v = self.k(source) + self.position.to(source.dtype), self.v(source)
        q, k, v = (t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for t in (q, k, v))
        out = linear_attention(q, k, v, key_padding_mask=key_padding_mask)
        if key_padding_mask is not None:
            v = torch.where(key_padding_mask.to(torch.bool)[:, None, :, None], v, 0.0)
        out = out + self.convolve(v).to(out.dtype)
        return cast(Tensor, self.proj(out.transpose(1, 2).flatten(2).to(v.dtype)))

    def _reduce(self, x: Tensor) -> Tensor:
        if self.sr is None or self.norm is None:
            return x
        prefix = self.num_prefix_tokens
        image = x[:, prefix:].transpose(1, 2).unflatten(2, self.grid)
        tokens = self.sr(image).flatten(2).transpose(1, 2)
        return cast(Tensor, self.norm(torch.cat([x[:, :prefix], tokens], 1) if prefix else tokens))

    def convolve(self, v: Tensor) -> Tensor:
        """DWC(V): the depthwise convolution of the values (B, h, keys, d), as (B, h, N, d); zero for prefix tokens."""
        batch, heads, _, head = v.shape
        height, width = self.grid
        prefix, ratio = self.num_prefix_tokens, self.sr_ratio
        values = v[:, :, prefix:].transpose(-1, -2).flatten(0, 1)
        if ratio > 1:
            values = F.interpolate(values, size=height * width, mode="linear")
        out = self.dwc(values.reshape(batch * heads, head, height, width))
        out = out.reshape(batch, heads, head, height * width).transpose(-1, -2)
        return F.pad(out, (0, 0, prefix, 0)) if prefix else out

    def resize_grid(self, grid: tuple[int, int]) -> None:
        """Change the grid; the position term of the grid's tokens is resized by bicubic interpolation.

        Raises:
            ValueError: A grid that is no multiple of `sr_ratio`.
        """
        height, width = _check_grid(grid)
        ratio, prefix = self.sr_ratio, self.num_prefix_tokens
        if height % ratio or width % ratio:
            raise ValueError(f"grid must be a multiple of sr_ratio ({ratio}) on both sides, got {height} x {width}.")
        old = self.position.detach()
        image = old[:, prefix:].transpose(1, 2).unflatten(2, (self.grid[0] // ratio, self.grid[1] // ratio))
        wide = torch.promote_types(image.dtype, torch.float32)
        new = F.interpolate(image.to(wide), (height // ratio, width // ratio), mode="bicubic", align_corners=False)
        tokens = new.to(old.dtype).flatten(2).transpose(1, 2)
        self.position = nn.Parameter(torch.cat([old[:, :prefix], tokens], 1), self.position.requires_grad)
        self.grid = (height, width)

    def extra_repr(self) -> str:
        """Sizes."""
        return f"dim={self.dim}, num_heads={self.num_heads}, grid={self.grid}, sr_ratio={self.sr_ratio}"


def _check_grid(grid: tuple[int, int]) -> tuple[int, int]:
    if not isinstance(grid, (tuple, list)) or len(grid) != 2:
        raise TypeError(f"grid must be a pair (height, width), got {grid!r}.")
    for side in grid:
        require_range("grid", side, low=1, integer=True)
    return int(grid[0]), int(grid[1])
