"""The equations of LoCoCo, written out slot by slot (Section 3: compression by learned convolution).

Everything is for one layer and one row of the batch; loops run over heads, output slots, kernel taps and positions.
"""

import torch
from torch import Tensor


def choose(scores: Tensor, memory: int, fused: int, local: int) -> tuple[list[int], list[int]]:
    """(S,) scores of one head -> slots kept as they are, and the others, both in temporal order.

    Kept: the last `local` slots and, of those before them, the memory − fused − local with the highest scores.
    """
    length = len(scores)
    heavy = memory - fused - local
    early = sorted(range(length - local), key=lambda j: (-float(scores[j]), j))
    kept = sorted(early[:heavy]) + list(range(length - local, length))
    return kept, [j for j in range(length) if j not in kept]


def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """(channels, S') -> (out, S'): y[r, j] = b[r] + Σ_c Σ_t w[r, c, t] x[c, j + t − (κ−1)/2], zero outside."""
    out, channels, kernel = weight.shape
    length, reach = x.shape[1], (kernel - 1) // 2
    y = torch.zeros(out, length, dtype=x.dtype)
    for r in range(out):
        for j in range(length):
            total = bias[r].clone()
            for t in range(kernel):
                at = j + t - reach
                if 0 <= at < length:
                    for c in range(channels):
                        total = total + weight[r, c, t] * x[c, at]
            y[r, j] = total
    return y


def mixing(
    keys: Tensor, values: Tensor, scores: Tensor, convs: list[tuple[Tensor, Tensor]], alpha: Tensor, fused: int
) -> Tensor:
    """(S', d) keys and values and (S',) scores of the others -> W* = (1−α) R + α W, (C, S').

    W is the row-wise softmax of the convolutions, each followed by ReLU; row r of R is 1 at the r-th, in temporal
    order, of the C highest scores.
    """
    x = torch.cat((keys, values), 1).T
    for weight, bias in convs:
        x = torch.clamp(convolve(x, weight, bias), min=0)
    length = x.shape[1]
    best = sorted(sorted(range(length), key=lambda j: (-float(scores[j]), j))[:fused])
    rows = []
    for r in range(fused):
        top = x[r].float() if x.dtype in (torch.float16, torch.bfloat16) else x[r]
        weights = torch.exp(top - top.max())
        weights = weights / weights.sum()
        chosen = torch.zeros_like(weights)
        chosen[best[r]] = 1
        rows.append((1 - alpha) * chosen + alpha * weights)
    return torch.stack(rows) if rows else torch.zeros(0, length, dtype=keys.dtype)


def compress(
    keys: Tensor,
    values: Tensor,
    scores: Tensor,
    convs: list[tuple[Tensor, Tensor]],
    alpha: Tensor,
    memory: int,
    fused: int,
    local: int,
) -> tuple[Tensor, Tensor]:
    """(h, S, d) keys and values, (h, S) scores -> (h, M, d) of each: what is kept, then what is fused."""
    new_keys, new_values = [], []
    for k, v, s in zip(keys, values, scores, strict=True):
        kept, others = choose(s, memory, fused, local)
        weights = mixing(k[others], v[others], s[others], convs, alpha, fused)
        for source, target in ((k, new_keys), (v, new_values)):
            mixed = [
                sum((weights[r, i] * source[j] for i, j in enumerate(others)), torch.zeros(())) for r in range(fused)
            ]
            target.append(torch.stack([source[j] for j in kept] + [x.to(source.dtype) for x in mixed]))
    return torch.stack(new_keys), torch.stack(new_values)


def attention_scores(weights: Tensor, groups: int) -> Tensor:
    """(heads, q, S) attention weights -> (heads / groups, S): s_j = Σ over queries and the heads of a group."""
    heads, queries, slots = weights.shape
    found = torch.zeros(heads // groups, slots, dtype=weights.dtype)
    for head in range(heads):
        for i in range(queries):
            for j in range(slots):
                found[head // groups, j] += weights[head, i, j]
    return found


def rotate(x: Tensor, angle: Tensor) -> Tensor:
    """(d,) a key turned by rotary position embedding: pairs (i, i + d/2) by angle i, (d/2,)."""
    half = len(x) // 2
    found = torch.zeros_like(x)
    for i in range(half):
        c, s = torch.cos(angle[i]), torch.sin(angle[i])
        found[i] = x[i] * c - x[i + half] * s
        found[i + half] = x[i + half] * c + x[i] * s
    return found
