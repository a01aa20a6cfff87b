"""The equations of the paper written out, one loop a sum: slow, obvious, and independent of the rest of the package."""

import math

import numpy as np


def distance(x: np.ndarray, y: np.ndarray) -> float:
    """d(a, b) = Σ_s |x_{a,s} − x_{b,s}| over scales."""
    return sum(abs(float(p) - float(q)) for p, q in zip(x, y, strict=True))


def ranks(distances: np.ndarray) -> list[list[int]]:
    """R[b | a] for every a (rows): 1 … n − 1 by d(a, ·), n for a itself; ties in order."""
    n = len(distances)
    table = []
    for a in range(n):
        others = sorted((b for b in range(n) if b != a), key=lambda b, a=a: (distances[a][b], b))
        row = [n] * n
        for place, b in enumerate(others, 1):
            row[b] = place
        table.append(row)
    return table


def window(rewards: list[float]) -> list[tuple[int, int]]:
    """The ends of the sliding window after each reward of one walk."""
    low, high, stalled, before, found = 0, 6, 0, None, []
    for reward in rewards:
        if before is None:
            pass
        elif reward > before:
            stalled = 0
            low, high = max(low - 1, 0), max(high - 1, 6)
        else:
            stalled += 1
            if stalled >= 2:
                low, high = min(low + 1, 14), min(high + 1, 20)
        before = reward
        found.append((low, high))
    return found


def preference(own: np.ndarray, candidates: list[np.ndarray], temperature: float) -> list[float]:
    """P(b) ∝ exp(cos(h, h_b) / τ)."""

    def cosine(x: np.ndarray, y: np.ndarray) -> float:
        return float(x @ y) / math.sqrt(float(x @ x)) / math.sqrt(float(y @ y))

    weights = [math.exp(cosine(own, other) / temperature) for other in candidates]
    return [weight / sum(weights) for weight in weights]


def advantages(
    reward: list[float], value: list[float], following: list[float], ended: list[bool], gamma: float, lam: float
) -> list[float]:
    """Â_t = Σ_l (γ λ)^l δ_{t+l} up to the end of the walk, δ_t = r_t + γ V'_t − V_t."""
    found = []
    for t in range(len(reward)):
        total, weight = 0.0, 1.0
        for s in range(t, len(reward)):
            total += weight * (reward[s] + gamma * following[s] - value[s])
            weight *= gamma * lam
            if ended[s]:
                break
        found.append(total)
    return found


def clipped(ratio: float, advantage: float, epsilon: float) -> float:
    """min(r Â, clip(r, 1 − ε, 1 + ε) Â)."""
    return min(ratio * advantage, max(1 - epsilon, min(1 + epsilon, ratio)) * advantage)


def ndcg(truth: list[float], predicted: list[float]) -> float:
    """DCG of the predicted order over that of the true one (no ties in the predictions)."""

    def gain(order: list[int]) -> float:
        return sum(truth[i] / math.log2(place + 2) for place, i in enumerate(order))

    everyone = range(len(truth))
    return gain(sorted(everyone, key=lambda i: -predicted[i])) / gain(sorted(everyone, key=lambda i: -truth[i]))


def grantham(c: float, p: float, v: float) -> float:
    """D = 50.723 √(1.833 Δc² + 0.1018 Δp² + 0.000399 Δv²)."""
    return 50.723 * math.sqrt(1.833 * c * c + 0.1018 * p * p + 0.000399 * v * v)


def linear(weights: np.ndarray, intercept: float, variant: tuple[int, ...]) -> float:
    """w₀ + Σ_j w_j[a_j]."""
    return intercept + sum(float(weights[j][a]) for j, a in enumerate(variant))
