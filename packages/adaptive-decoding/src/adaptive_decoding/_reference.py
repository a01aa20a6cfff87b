"""The equations written out, slow and obvious: Section 3 of the paper, and of the decoders that it is compared with.

Probability vectors are numpy arrays in float64; tokens are their indices.
"""

import math
from collections.abc import Sequence

import numpy as np


def _plogp(p: float) -> float:
    return p * math.log(p) if p > 0 else 0.0


def ranking(p: np.ndarray) -> np.ndarray:
    """Tokens from the most to the least probable; of equal ones the lower id comes first."""
    return np.argsort(-p, kind="stable")


def confidence(p: np.ndarray, k: int, n: int | None = None) -> float:
    """Conf_k = 1 − H_k / ln n with H_k = −Σ_{i≤k} p_i ln p_i − R_k ln(R_k / (n − k)), R_k = Σ_{i>k} p_i."""
    n = n or len(p)
    q = p[ranking(p)]
    rest = float(np.sum(q[k:][::-1]))
    entropy = -sum(_plogp(float(x)) for x in q[:k])
    if rest > 0:
        entropy -= rest * math.log(rest / (n - k))
    return 1.0 - entropy / math.log(n)


def increments(p: np.ndarray, n: int | None = None) -> np.ndarray:
    """ΔConf_k for k = 1, …, len(p): [p_k ln p_k + R_k ln(R_k/(n−k)) − R_{k−1} ln(R_{k−1}/(n−k+1))] / ln n."""
    n = n or len(p)
    q = p[ranking(p)]
    rest = np.append(np.cumsum(q[::-1])[::-1], 0.0)  # rest[k] = R_k, summed from the small end
    found = []
    for k in range(1, len(q) + 1):
        now = rest[k] * math.log(rest[k] / (n - k)) if rest[k] > 0 else 0.0
        before = rest[k - 1] * math.log(rest[k - 1] / (n - k + 1)) if rest[k - 1] > 0 else 0.0
        found.append((_plogp(q[k - 1]) + now - before) / math.log(n))
    return np.array(found)


def increments_kl(p: np.ndarray) -> np.ndarray:
    """The same as R_{k−1} KL(Bern(q_k) ‖ Bern(1/m)) / ln n with q_k = p_k / R_{k−1} and m = n − k + 1."""
    n, q = len(p), p[ranking(p)]
    rest = np.append(np.cumsum(q[::-1])[::-1], 0.0)
    found = []
    for k in range(1, n + 1):
        m, before = n - k + 1, rest[k - 1]
        if before <= 0 or m == 1:
            found.append(0.0)
            continue
        a, b = q[k - 1] / before, rest[k] / before
        kl = (a * math.log(a * m) if a > 0 else 0.0) + (b * math.log(b * m / (m - 1)) if b > 0 else 0.0)
        found.append(before * kl / math.log(n))
    return np.array(found)


def kept(
    p: np.ndarray, epsilon: float, rule: str = "prefix", flat: str = "top1", min_tokens: int = 1, n: int | None = None
) -> set[int]:
    """The candidate set.

    Admit tokens in order of probability while ΔConf_k > ε (prefix), or each such one (pointwise), or all up to the last
    such one (last). If none is admitted: the first `min_tokens` (top1), or all (keep_all). None without probability.
    """
    order, passed = ranking(p), increments(p, n) > epsilon
    if rule == "prefix":
        count = 0
        while count < len(p) and passed[count]:
            count += 1
        ranks = set(range(count))
    elif rule == "pointwise":
        ranks = set(np.flatnonzero(passed).tolist())
    else:
        hits = np.flatnonzero(passed)
        ranks = set(range(int(hits[-1]) + 1)) if len(hits) else set()
    if not ranks and flat == "keep_all":
        ranks = {k for k in range(len(p)) if p[order[k]] > 0}
    ranks |= {k for k in range(min(min_tokens, len(p))) if p[order[k]] > 0}
    return {int(order[k]) for k in ranks}


def mirostat(surprise_limit: float, p: np.ndarray) -> np.ndarray:
    """Version 2 (Basu et al., 2021): tokens with −log2 p ≤ μ, one at least, renormalised."""
    keep = np.array([x > 0 and -math.log2(x) <= surprise_limit for x in p])
    if not keep.any():
        keep[np.argmax(p)] = True
    return np.where(keep, p, 0.0) / p[keep].sum()


def contrastive(p: Sequence[float], hidden: np.ndarray, past: np.ndarray, alpha: float) -> int:
    """The argmax over candidates v of (1 − α) p(v) − α max_j cos(h_v, h_j) (Su et al., 2022)."""

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))

    scores = [(1 - alpha) * p[v] - alpha * max(cosine(hidden[v], h) for h in past) for v in range(len(p))]
    return int(np.argmax(scores))


def diversity(ids: Sequence[int]) -> float:
    """Π_{n=2..4} (different n-grams / n-grams); a text without any n-gram counts as 1 there."""
    product = 1.0
    for n in (2, 3, 4):
        grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
        product *= len(set(grams)) / len(grams) if grams else 1.0
    return product
