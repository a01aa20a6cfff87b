"""The paper's equations written out literally, slow and obvious. Tests hold the fast path against this file.

Everything works on plain numpy arrays: W = [Q R] is (h, 2p), V is (p, h), a point is a triple (a, b, c).
"""

import itertools
import math

import numpy as np


def output(W: np.ndarray, V: np.ndarray, a: int, b: int, c: int) -> float:
    """g(theta; (a, b, c)) = sum_k V_ck (Q_ka + R_kb)^2 (section 2)."""
    h, p = W.shape[0], V.shape[0]
    return float(sum(V[c, k] * (W[k, a] + W[k, p + b]) ** 2 for k in range(h)))


def table(W: np.ndarray, V: np.ndarray) -> np.ndarray:
    """All outputs, indexed [a, b, c]."""
    p = V.shape[0]
    return np.array([[[output(W, V, a, b, c) for c in range(p)] for b in range(p)] for a in range(p)])


def gradient(W: np.ndarray, V: np.ndarray, a: int, b: int, c: int) -> np.ndarray:
    """The gradient of `output` in all entries of W, then of V, flattened."""
    h, p = W.shape[0], V.shape[0]
    in_w, in_v = np.zeros_like(W), np.zeros_like(V)
    for k in range(h):
        hidden = W[k, a] + W[k, p + b]
        in_w[k, a] += 2 * V[c, k] * hidden
        in_w[k, p + b] += 2 * V[c, k] * hidden
        in_v[c, k] += hidden**2
    return np.concatenate([in_w.ravel(), in_v.ravel()])


def ntk(W: np.ndarray, V: np.ndarray, left: list[list[int]], right: list[list[int]]) -> np.ndarray:
    """K(x, x') = <grad g(x), grad g(x')>."""
    rows = np.array([gradient(W, V, *x) for x in left])
    columns = np.array([gradient(W, V, *x) for x in right])
    return rows @ columns.T


def expected_ntk(x: tuple[int, ...], y: tuple[int, ...], kappa: float, sigma: float, sigma_v: float = 0.0) -> float:
    """Proposition B.3, case by case, per neuron; plus the part of the gradient in W when V has variance sigma_v^2."""
    (a, b, c), (a2, b2, c2) = x, y
    if c != c2:
        return 0.0
    same_a, same_b = a == a2, b == b2
    if same_a and same_b:  # E (q + r)^4 = 2 kappa sigma^4 + 6 sigma^4
        in_v, in_hidden, shared = 2 * kappa + 6, 2.0, 2
    elif same_a or same_b:  # E (q + r)^2 (q + r')^2 = kappa sigma^4 + 3 sigma^4
        in_v, in_hidden, shared = kappa + 3, 1.0, 1
    else:
        in_v, in_hidden, shared = 4.0, 0.0, 0
    return in_v * sigma**4 + shared * 4 * sigma_v**2 * in_hidden * sigma**2


def target(p: int, m: int = 3) -> np.ndarray:
    """Y = p if a_1 + ... + a_{m-1} = a_m (mod p), else 0, on all p^m points."""
    y = np.zeros((p,) * m)
    for x in itertools.product(range(p), repeat=m):
        y[x] = p if sum(x[:-1]) % p == x[-1] else 0
    return y


def fourier_network(p: int) -> tuple[np.ndarray, np.ndarray]:
    """Proposition 3.8: eight neurons for each of the p frequencies, row by row."""
    rows, heads = [], []
    z = np.arange(p)
    for k in range(p):
        omega = 2 * math.pi * k / p
        cos, sin = np.cos(omega * z), np.sin(omega * z)
        for q, r, head in [
            (cos, cos, cos / 4), (cos, -cos, -cos / 4), (sin, sin, -cos / 4), (sin, -sin, cos / 4),
            (sin, cos, sin / 4), (sin, -cos, -sin / 4), (cos, sin, sin / 4), (cos, -sin, -sin / 4),
        ]:  # fmt: skip
            rows.append(np.concatenate([q, r]))
            heads.append(head)
    return np.array(rows), np.array(heads).T


def linf(W: np.ndarray, V: np.ndarray) -> float:
    """The largest absolute entry of W and V."""
    return max(max(abs(float(entry)) for entry in matrix.ravel()) for matrix in (W, V))


def margins(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """q(x) = f_y - max over y' other than y of f_{y'} (section 4)."""
    rows = []
    for row, label in zip(logits, labels, strict=True):
        rows.append(row[label] - max(value for other, value in enumerate(row) if other != label))
    return np.array(rows)


def projections(f: np.ndarray) -> dict[tuple[int, ...], np.ndarray]:
    """F split into its components f_S: f_S depends on the axes in S only and sums to zero along each of them.

    f_S = sum over T inside S of (-1)^{|S| - |T|} (the mean of f over all axes outside T): inclusion-exclusion.
    """
    axes = range(f.ndim)
    parts = {}
    for size in range(f.ndim + 1):
        for S in itertools.combinations(axes, size):
            part = np.zeros_like(f, dtype=float)
            for inner in range(size + 1):
                for T in itertools.combinations(S, inner):
                    outside = tuple(axis for axis in axes if axis not in T)
                    part += (-1) ** (size - inner) * (f.mean(axis=outside, keepdims=True) if outside else f)
            parts[S] = part
    return parts


def lower_bound(p: int, n: int, m: int = 3) -> float:
    """(p - 1) max(0, 1 - n / (p - 1)^m): the part of the target that n kernel functions cannot reach."""
    return (p - 1) * max(0.0, 1 - n / (p - 1) ** m)
