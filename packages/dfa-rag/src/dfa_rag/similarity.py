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
    factor = 1.0
    while depth:
        a, b = counts[q], counts[other]
        if len(b) == 1:
            ((letter, _),) = b.items()
            n = a.get(letter)
            if n is None:
                return 0.0
            if len(a) > 1:  # one shared letter: its weight cancels, and the count of the state without another
                factor *= n / norms[q] ** 0.5
                if factor < floor - SLACK:
                    return None
            q, other, depth = children[q][letter], children[other][letter], depth - 1
            continue
        if not a or not b:
            return factor * (not a and not b)
        found = _over_letters(q, other, depth, children, counts, norms, memo, floor / factor)
        return None if found is None else factor * found
    return factor


def _over_letters(
    q: int, other: int, depth: int, children: Edges, counts: Edges, norms: list[int], memo: dict, floor: float
) -> float | None:
    """The sum of `lookahead` over the shared letters of two states, the heaviest first."""
    known = memo.get((q, other, depth))
    if known is not None:
        return known
    a, b = counts[q], counts[other]
    shared = [(n if n < a[t] else a[t], n * a[t], t) for t, n in b.items() if t in a]
    if not shared:
        return 0.0
    cos = sum([product for _, product, _ in shared]) / (norms[q] * norms[other]) ** 0.5
    if cos < floor - SLACK:
        return None
    shared.sort(reverse=True)
    value, rest = 0.0, sum([weight for weight, _, _ in shared])
    total, ahead, behind = rest, children[q], children[other]
    for weight, _, letter in shared:
        rest -= weight
        need = (floor * total / cos - value - rest) / weight
        part = lookahead(ahead[letter], behind[letter], depth - 1, children, counts, norms, memo, need)
        if part is None:
            return None
        value += weight * part
        if cos * (value + rest) / total < floor - SLACK:
            return None
    memo[q, other, depth] = cos * value / total
    return memo[q, other, depth]
