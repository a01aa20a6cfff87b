"""Rotary position embeddings: queries and keys turned by an angle that grows with the position.

The paper's attention (Section 2) has no positions in its logits; models with them are measured exactly all the same.
"""

import torch
from torch import Tensor


class Rotation:
    """R_i of positions 0…n−1: the first r entries, paired (t, t + r/2), turn by i · frequency_t; the rest stays.

    Args:
        frequencies: (r/2,) angles per position.
        n: number of positions.
        factor: what the rotated entries are multiplied by (1 but for some long-context models).
        dtype: of cos and sin.
    """

    def __init__(self, frequencies: Tensor, n: int, factor: float, dtype: torch.dtype) -> None:
        angles = torch.arange(n, device=frequencies.device).to(dtype)[:, None] * frequencies.to(dtype)
        self.cos, self.sin = factor * angles.cos(), factor * angles.sin()  # (n, r/2)

    def __call__(self, x: Tensor, back: bool = False) -> Tensor:
        """R x of (..., n, k); `back` gives the transpose Rᵀ x."""
        half = self.cos.shape[-1]
        one, two, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        sin = -self.sin if back else self.sin
        return torch.cat([one * self.cos - two * sin, two * self.cos + one * sin, rest], dim=-1)

    def towards_keys(self, q: Tensor) -> Tensor:
        """(..., n, n, k) vectors R_jᵀ q_i of rotated queries q (..., n, k), by i and j."""
        half = self.cos.shape[-1]
        one, two, rest = (
            part[..., :, None, :] for part in (q[..., :half], q[..., half : 2 * half], q[..., 2 * half :])
        )
        turned = [one * self.cos + two * self.sin, two * self.cos - one * self.sin]
        return torch.cat([*turned, rest.expand(*turned[0].shape[:-1], rest.shape[-1])], dim=-1)

    def one_back(self, x: Tensor, i: int) -> Tensor:
        """R_iᵀ x of vectors x (..., k) by the one position i."""
        half = self.cos.shape[-1]
        one, two, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
        cos, sin = self.cos[i], self.sin[i]
        return torch.cat([one * cos + two * sin, two * cos - one * sin, rest], dim=-1)
