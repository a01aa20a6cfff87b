"""Turning keys that carry a rotary position embedding to another position.

Keys are cached after their rotation (Section 3), so that mixtures fuse keys of different rotations; to fuse them
without, or to move them, they are turned by the difference of two positions.
"""

import torch
from torch import Tensor


def turned(keys: Tensor, by: Tensor, frequencies: Tensor) -> Tensor:
    """Keys moved by a number of positions, which may be negative and need not be whole.

    Pair (i, i + r/2) of the first r = 2 · len(frequencies) dimensions turns by the angle `by` · frequencies[i].

    Args:
        keys: (…, d).
        by: (…) positions, broadcast over keys.
        frequencies: (r/2,).
    """
    angle = by.to(torch.float32).unsqueeze(-1) * frequencies.to(keys.device)
    precise = torch.promote_types(keys.dtype, torch.float32)
    cos, sin = angle.cos().to(precise), angle.sin().to(precise)
    half = len(frequencies)
    x = keys.to(precise)
    one, two, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat((one * cos - two * sin, two * cos + one * sin, rest), -1).to(keys.dtype)
