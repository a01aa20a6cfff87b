"""When two states are alike: the paper's φ_sim (Section 3, step 3) and one that looks further ahead."""

from collections.abc import Callable, Mapping

import numpy as np
from offprints.checks import require_finite, require_shape

Edges = list[dict[int, int]]
"""State -> letter -> successor, or passes."""
Similarity = Callable[[Mapping[str, int], Mapping[str, int]], float]
"""A similarity of one's own: next-tag counts of two states ("⊣" for the end of a turn) -> number in [0, 1]."""

SLACK = 1e-9
"""How far below a floor a value must be to be given up: far above rounding."""


def paper_similarity(counts: np.ndarray, other: np.ndarray) -> np.floating:
    """φ_sim(q, q') = Σ_t n(t) n'(t) / (Σ_t n(t) · Σ_t n'(t)), the similarity of Section 3, step 3.

    The chance that a random next letter of q and one of q' are the same; φ(q, q) = Σ p(t)² is not 1. Zero where one
    has no letters.

    Args:
        counts: (letters,) n(t) = |I(δ(q, t))|, dialogues behind each next letter of q; 0 where there is none.
        other: (letters,) the same of q'.

    Returns:
        A number in [0, 1], in the dtype of the input.

    Raises:
        TypeError: if they are no arrays.
        ValueError: if the shapes differ, or an entry is negative or not finite.
    """
    require_shape("counts", counts, ("letters",))
    require_shape("other", other, counts.shape)
    for name, array in (("counts", counts), ("other", other)):
        require_finite(name, array)
        if (array < 0).any():
            raise ValueError(f"{name} must not be negative, got {array.min()}. They count dialogues.")
    total = counts.sum() * other.sum()
    return counts @ other / total if total > 0 else total * 0


def lookahead(
    q: int, other: int, depth: int, children: Edges, counts: Edges, norms: list[int], memo: dict, floor: float = 0.0
) -> float | None:
    """φ_k(q, q') = cos(n_q, n_q') · Σ_t w_t φ_{k-1}(δ(q,t), δ(q',t)) / Σ_t w_t over shared letters t.

    w_t = min(n_q(t), n_q'(t)); φ_0 = 1; two states without letters are equal, one without differs from one with.
    It replaces the one-step φ_sim of Section 3, step 3, which takes stages for one another that share their answers.

    `norms` holds Σ_t n(t)² of each state.

    Returns:
        φ_depth, or None as soon as it is certain to lie below `floor`: what is not summed up yet counts as 1.
    """
    if depth == 0:
        return 1.0
    key = (q, other, depth)
    if key in memo:
        return memo[key]
    a, b = counts[q], counts[other]
    if not a or not b:
        return float(not a and not b)
    small, large = (a, b) if len(a) <= len(b) else (b, a)
    shared = [(t, n, large[t]) for t, n in small.items() if t in large]
    if not shared:
        return 0.0
    dot = sum([n * m for _, n, m in shared])
    cos = dot / (norms[q] * norms[other]) ** 0.5
    if cos < floor - SLACK:
        return None
    value, rest = 0.0, sum([min(n, m) for _, n, m in shared])
    total, ahead, behind = rest, children[q], children[other]
    for letter, n, m in shared:
        weight = min(n, m)
        rest -= weight
        need = (floor * total / cos - value - rest) / weight
        part = lookahead(ahead[letter], behind[letter], depth - 1, children, counts, norms, memo, need)
        if part is None:
            return None
        value += weight * part
        if cos * (value + rest) / total < floor - SLACK:
            return None
    memo[key] = cos * value / total
    return memo[key]
