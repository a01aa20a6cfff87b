"""The equations of Guo et al. (2024), Sections 3.1-3.3, written out literally: slow, in plain loops, for tests."""

import math

import numpy as np

Array = np.ndarray


def layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    """LayerNorm of rows: (x - mean) / sqrt(var + eps) * weight + bias (Section 3.1)."""
    out = np.empty_like(x)
    for i, row in enumerate(x):
        out[i] = (row - row.mean()) / math.sqrt(row.var() + eps) * weight + bias
    return out


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """RMSNorm of rows: x / sqrt(mean(x^2) + eps) * weight (Section 3.2)."""
    return np.stack([row / math.sqrt((row**2).mean() + eps) * weight for row in x])


def batch_norm(x: Array, mean: Array, var: Array, gamma: Array, beta: Array, eps: float) -> Array:
    """BN(x)_c = gamma_c (x_c - mu_c) / sqrt(var_c + eps) + beta_c, for rows x (Eq. 1)."""
    out = np.empty_like(x)
    for n in range(x.shape[0]):
        for c in range(x.shape[1]):
            out[n, c] = gamma[c] * (x[n, c] - mean[c]) / math.sqrt(var[c] + eps) + beta[c]
    return out


def batch_statistics(x: Array, mask: Array | None = None) -> tuple[Array, Array, Array]:
    """Mean, biased variance (used in training) and unbiased variance (for the running one) of the rows that count."""
    rows = x if mask is None else np.stack([row for row, keep in zip(x, mask, strict=True) if keep])
    return rows.mean(0), rows.var(0), rows.var(0, ddof=1)


def rep_bn(x: Array, mean: Array, var: Array, gamma: Array, beta: Array, alpha: float, eps: float) -> Array:
    """RepBN(x) = BN(x) + alpha x (Eq. 4)."""
    return batch_norm(x, mean, var, gamma, beta, eps) + alpha * x


def reparameterise(mean: Array, var: Array, gamma: Array, beta: Array, alpha: float, eps: float) -> tuple[Array, Array]:
    """Weights of the one BN that equals RepBN: gamma' = gamma + alpha sigma, beta' = beta + alpha mu (Lemma 4.1)."""
    sigma = np.sqrt(var + eps)
    return gamma + alpha * sigma, beta + alpha * mean


def schedule(t: int, decay: int, warmup: int = 0, r0: float = 1.0) -> float:
    """Weight lambda of the first norm at optimiser step t: 1 in warm-up, then r0 max(0, 1 - s/T) (Eq. 3)."""
    if t < warmup:
        return 1.0
    return r0 * max(0.0, 1 - (t - warmup) / decay)


def linear_attention(q: Array, k: Array, v: Array, eps: float = 1e-6, causal: bool = False) -> Array:
    """Of one head: O_i = sum_j relu(q_i).relu(k_j) v_j / (sum_j relu(q_i).relu(k_j) + eps) (Eq. 6); (N, d) each."""
    q, k = np.maximum(q, 0), np.maximum(k, 0)
    out = np.zeros((len(q), v.shape[1]))
    for i in range(len(q)):
        below = 0.0
        for j in range(len(k) if not causal else i + 1):
            weight = float(q[i] @ k[j])
            out[i] += weight * v[j]
            below += weight
        out[i] /= below + eps
    return out


def depthwise(v: Array, kernel: Array, bias: Array, grid: tuple[int, int]) -> Array:
    """Depthwise convolution with zero padding of the values (N, d) of one head on their grid (Section 3.3)."""
    height, width = grid
    image = v.reshape(height, width, -1)
    half = kernel.shape[-1] // 2
    out = np.zeros_like(image)
    for y in range(height):
        for x in range(width):
            for dy in range(-half, half + 1):
                for dx in range(-half, half + 1):
                    if 0 <= y + dy < height and 0 <= x + dx < width:
                        out[y, x] += kernel[:, dy + half, dx + half] * image[y + dy, x + dx]
            out[y, x] += bias
    return out.reshape(height * width, -1)


def fold_after(weight: Array, bias: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Y = W (a x + b) + d: W' = W diag(a), d' = d + W b (Section 3.2)."""
    return weight @ np.diag(a), bias + weight @ b


def fold_before(weight: Array, bias: Array, a: Array, b: Array) -> tuple[Array, Array]:
    """Y = a (W x + d) + b: W' = diag(a) W, d' = a d + b (Section 3.2)."""
    return np.diag(a) @ weight, a * bias + b
