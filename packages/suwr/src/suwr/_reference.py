"""The paper's equations written out literally, slow and obvious. Imports nothing of its own package."""

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

State = tuple[int, ...]
"""The revealed features in the order in which they were revealed."""


def subsets(d: int) -> list[tuple[int, ...]]:
    """All subsets of range(d), the empty one first."""
    return [s for size in range(d + 1) for s in itertools.combinations(range(d), size)]


# ---- leakage: definitions of Section 2


def feature_leakage(X: np.ndarray, p: np.ndarray, proba: Callable[[tuple[int, ...], np.ndarray], float]) -> float:
    """Sum over x, S of p(x) pi(S|x) log [pi(S|x) / pi(S|x_S)], pi(S|x_S) = E[pi(S|x') | x'_S = x_S]."""
    total = 0.0
    for x, weight in zip(X, p, strict=True):
        for S in subsets(X.shape[1]):
            own = proba(S, x)
            if own == 0:
                continue
            same = [i for i in range(len(X)) if all(X[i, j] == x[j] for j in S)]
            mean = sum(p[i] * proba(S, X[i]) for i in same) / sum(p[i] for i in same)
            total += weight * own * math.log(own / mean)
    return total


def label_leakage(
    X: np.ndarray, p: np.ndarray, p_y: np.ndarray, proba: Callable[[tuple[int, ...], np.ndarray], float]
) -> float:
    """E over x_S, S of KL(p(y | x_S, S) || p(y | x_S))."""
    total = 0.0
    for S in subsets(X.shape[1]):
        for values in {tuple(x[list(S)]) for x in X}:
            same = [i for i in range(len(X)) if tuple(X[i, list(S)]) == values]
            prior = np.sum([p[i] * p_y[i] for i in same], axis=0) / sum(p[i] for i in same)
            joint = sum(p[i] * proba(S, X[i]) for i in same)
            if joint == 0:
                continue
            posterior = np.sum([p[i] * proba(S, X[i]) * p_y[i] for i in same], axis=0) / joint
            total += joint * sum(a * math.log(a / b) for a, b in zip(posterior, prior, strict=True) if a > 0)
    return total


# ---- optima for a known distribution


def cell_loss(p: Sequence[float], y: np.ndarray, loss: str) -> float:
    """Least expected loss in a cell: variance of y; entropy, or error of the likeliest class, of rows of p(y)."""
    w = np.asarray(p) / np.sum(p)
    if loss == "squared":
        return float(w @ y**2 - (w @ y) ** 2)
    mean = w @ y
    if loss == "log":
        return float(-sum(q * math.log(q) for q in mean if q > 0))
    return float(1 - mean.max())


def best_sequential(X: np.ndarray, p: np.ndarray, y: np.ndarray, lam: float, loss: str = "squared") -> float:
    """V(S, x_S) = min{l(S, x_S) + lam |S|, min over i of E[V(S + i, x_{S + i}) | x_S]}, at S = {}."""

    def value(rows: list[int], S: frozenset[int]) -> float:
        stop = cell_loss([p[i] for i in rows], y[rows], loss) + lam * len(S)
        options = [stop]
        for j in set(range(X.shape[1])) - S:
            total = 0.0
            for v in {X[i, j] for i in rows}:
                part = [i for i in rows if X[i, j] == v]
                total += sum(p[i] for i in part) * value(part, S | {j})
            options.append(total / sum(p[i] for i in rows))
        return min(options)

    return value(list(range(len(X))), frozenset())


def best_without_leakage(X: np.ndarray, p: np.ndarray, y: np.ndarray, lam: float, loss: str = "squared") -> float:
    """The linear program over pi(S | x_S), dense: min sum p(x) pi(S|x_S) [l + lam |S|], sum over S of pi(S|x_S) = 1."""
    from scipy.optimize import linprog

    variables: dict[tuple, list[int]] = {}
    for S in subsets(X.shape[1]):
        for i in range(len(X)):
            variables.setdefault((S, tuple(X[i, list(S)])), []).append(i)
    costs, rows = [], np.zeros((len(X), len(variables)))
    for column, ((S, _), members) in enumerate(variables.items()):
        weights = [p[i] for i in members]
        costs.append(sum(weights) * (cell_loss(weights, y[members], loss) + lam * len(S)))
        rows[members, column] = 1.0
    return float(linprog(costs, A_eq=rows, b_eq=np.ones(len(X)), bounds=(0, None), method="highs").fun)


# ---- SUWR: Section 3, one row at a time


def stopping(stop: Sequence[float]) -> list[float]:
    """Equation 11: p_t = sigma_t prod over j < t of (1 - sigma_j), and p_T = prod over j < T of (1 - sigma_j)."""
    p, left = [], 1.0
    for sigma in stop[:-1]:
        p.append(left * sigma)
        left *= 1 - sigma
    return [*p, left]


def mask_probability(
    stop: Callable[[frozenset[int]], float],
    select: Callable[[frozenset[int]], Sequence[float]],
    S: Sequence[int],
    budget: int,
) -> float:
    """P(S | x): sum over the orders of S of stop(S) prod over t of (1 - stop(S_t)) q(i_{t+1} | S_t).

    Args:
        stop: revealed set -> probability of stopping there.
        select: revealed set -> (d,) probabilities of the next feature.
        S: the mask.
        budget: T; at |S| = T it stops surely.
    """
    if len(S) > budget:
        return 0.0
    total = 0.0
    for order in itertools.permutations(S):
        product = 1.0
        for t, feature in enumerate(order):
            state = frozenset(order[:t])
            product *= (1 - stop(state)) * select(state)[feature]
        total += product * (1.0 if len(S) == budget else stop(frozenset(S)))
    return total


def loss_parts(p: np.ndarray, costs: np.ndarray, log_q: np.ndarray) -> tuple[float, float]:
    """Equation 12 for one row: J_1 = sum p_t c_t, and J_2 = sum p_t c_t log Q_t with Q_t = prod over j <= t of q_j.

    Args:
        p: (T + 1,) probabilities of stopping.
        costs: (T + 1,) kappa loss + lambda t.
        log_q: (T,) log probabilities of the features that were chosen.
    """
    first = sum(p[t] * costs[t] for t in range(len(p)))
    second = sum(p[t] * costs[t] * sum(log_q[:t]) for t in range(len(p)))
    return float(first), float(second)


def predict_rows(
    heads: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, float]], X: np.ndarray, budget: int
) -> tuple[np.ndarray, np.ndarray]:
    """Row by row: stop where sigma(z) >= 1/2, else reveal the feature of largest logit; (n, d) masks, (n, K) outputs.

    Args:
        heads: (x with 0 where hidden, mask) -> selection logits (d,), prediction (K,), stop logit.
        X: (n, d).
        budget: T.
    """
    masks, outputs = [], []
    for x in X:
        mask, output = np.zeros(len(x), dtype=bool), np.empty(0)
        for t in range(budget + 1):
            select, output, z = heads(np.where(mask, x, 0.0), mask)
            if z >= 0 or t == budget or mask.all():
                break
            mask[int(np.argmax(np.where(mask, -np.inf, select)))] = True
        masks.append(mask)
        outputs.append(output)
    return np.array(masks), np.array(outputs)
