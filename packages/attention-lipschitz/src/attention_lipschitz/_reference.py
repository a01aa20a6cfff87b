"""The paper's definitions written out, slow and obvious, in numpy and float64.

Section 2: for tokens X = (x_1, ..., x_n), f(X)_i = V sum_j P_ij x_j with P_i = softmax_j(x_j^T (A x_i + c)), where
A = K^T Q / sqrt(k) and c = K^T b_q / sqrt(k); masked attention takes the softmax over j <= i. The local Lipschitz
constant at X is the largest singular value of the Jacobian of f at X, in the Frobenius norm of R^{n x d}.
"""

import numpy as np


def attention(x: np.ndarray, a: np.ndarray, c: np.ndarray, causal: bool) -> np.ndarray:
    """(n, n) matrix P, row by row."""
    n = len(x)
    p = np.zeros((n, n))
    for i in range(n):
        seen = i + 1 if causal else n
        logits = np.array([x[j] @ (a @ x[i] + c) for j in range(seen)])
        weights = np.exp(logits - logits.max())
        p[i, :seen] = weights / weights.sum()
    return p


def output(x: np.ndarray, a: np.ndarray, c: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """(n, d_out) values f(X)_i = V sum_j P_ij x_j."""
    p = attention(x, a, c, causal)
    return np.array([v @ sum(p[i, j] * x[j] for j in range(len(x))) for i in range(len(x))])


def jacobian(x: np.ndarray, a: np.ndarray, c: np.ndarray, v: np.ndarray, causal: bool) -> np.ndarray:
    """(n d_out, n d) Jacobian, block by block.

    (D_X f[e])_i = V (sum_j P_ij e_j + Cov_i A e_i + sum_j P_ij (x_j - m_i) (A x_i + c)^T e_j),
    m_i = sum_j P_ij x_j, Cov_i = sum_j P_ij (x_j - m_i)(x_j - m_i)^T.
    """
    n, d = x.shape
    p = attention(x, a, c, causal)
    blocks = np.zeros((n, v.shape[0], n, d))
    for i in range(n):
        m = sum(p[i, j] * x[j] for j in range(n))
        cov = sum(p[i, j] * np.outer(x[j] - m, x[j] - m) for j in range(n))
        for j in range(n):
            blocks[i, :, j, :] += v @ (p[i, j] * (np.eye(d) + np.outer(x[j] - m, a @ x[i] + c)))
        blocks[i, :, i, :] += v @ cov @ a
    return blocks.reshape(n * v.shape[0], n * d)


def local_constant(x: np.ndarray, a: np.ndarray, c: np.ndarray, v: np.ndarray, causal: bool) -> float:
    """Largest singular value of the Jacobian at X."""
    return float(np.linalg.norm(jacobian(x, a, c, v, causal), 2))


def multi_head_constant(
    x: np.ndarray, heads: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]], causal: bool
) -> float:
    """The same of f^MH = sum_h O_h f^(h), for heads (A, c, V, O)."""
    return float(np.linalg.norm(sum(jacobian(x, a, c, o @ v, causal) for a, c, v, o in heads), 2))


def hard_attention_constant(x: np.ndarray, a: np.ndarray, v: np.ndarray, causal: bool) -> float:
    """Lim ||D_{rX} f|| for r to infinity: ||V|| times the root of the largest number of tokens that attend to one.

    Each attends to j = argmax_j x_i^T A^T x_j.
    """
    n = len(x)
    chosen = [max(range(i + 1 if causal else n), key=lambda j: x[j] @ a @ x[i]) for i in range(n)]
    return float(np.linalg.norm(v, 2) * np.sqrt(max(chosen.count(j) for j in range(n))))


def bound_general(n: int, r: float, norm_a: float, norm_v: float) -> float:
    """Theorem 3.3: sqrt(3) ||V|| (||A||^2 R^4 (4n + 1) + n)^(1/2), on tokens in the ball of radius R."""
    return float(np.sqrt(3) * norm_v * np.sqrt(norm_a**2 * r**4 * (4 * n + 1) + n))


def bound_mean_field(r: float, norm_a: float, norm_v: float) -> float:
    """Section 3.2: ||V|| (1 + 3 ||A|| R^2) e^(2 ||A|| R^2), for any number of tokens, unmasked."""
    return float(norm_v * (1 + 3 * norm_a * r**2) * np.exp(2 * norm_a * r**2))


def bound_local(x: np.ndarray, a: np.ndarray, c: np.ndarray, v: np.ndarray, causal: bool) -> float:
    """||V|| ||P|| + max_i ||V Cov_i A|| + ||B||, B_ij = P_ij ||V (x_j - m_i)|| ||A x_i + c||."""
    n = len(x)
    p = attention(x, a, c, causal)
    b = np.zeros((n, n))
    covariances = []
    for i in range(n):
        m = p[i] @ x
        covariances.append(np.linalg.norm(v @ sum(p[i, j] * np.outer(x[j] - m, x[j] - m) for j in range(n)) @ a, 2))
        for j in range(n):
            b[i, j] = p[i, j] * np.linalg.norm(v @ (x[j] - m)) * np.linalg.norm(a @ x[i] + c)
    return float(np.linalg.norm(v, 2) * np.linalg.norm(p, 2) + max(covariances) + np.linalg.norm(b, 2))


def bound_ball(x: np.ndarray, a: np.ndarray, c: np.ndarray, v: np.ndarray, causal: bool, delta: float) -> float:
    """For every Y with ||Y - X||_F <= delta: ||V|| (sqrt(s) (1 + rho q) + rho^2 ||A||)."""
    n = len(x)
    p = attention(x, a, c, causal)
    norm_a = np.linalg.norm(a, 2)
    upper = np.zeros((n, n))
    for i in range(n):
        change = [
            delta * (np.linalg.norm(a.T @ x[j]) + np.linalg.norm(a @ x[i] + c)) + norm_a * delta**2 for j in range(n)
        ]
        most = max(change[: i + 1] if causal else change)
        for j in range(n):
            upper[i, j] = min(1.0, p[i, j] * np.exp(change[j] + most))
    s = min(n, upper.sum(axis=0).max())
    diameter = max(np.linalg.norm(y - z) for y in x for z in x)
    rho = min(max(np.linalg.norm(y) for y in x) + delta, (diameter + 2 * delta) / np.sqrt(2))
    q = max(np.linalg.norm(a @ y + c) for y in x) + norm_a * delta
    return float(np.linalg.norm(v, 2) * (np.sqrt(s) * (1 + rho * q) + rho**2 * norm_a))


def published_estimate(x: np.ndarray, a: np.ndarray, c: np.ndarray, v: np.ndarray, causal: bool) -> float:
    """What the released scripts return, sqrt(||J^T f(X)||): the value f(X) where the tangent J u was meant."""
    value = output(x, a, c, v, causal).ravel()
    return float(np.sqrt(np.linalg.norm(jacobian(x, a, c, v, causal).T @ value)))
