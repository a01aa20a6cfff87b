"""The exact embedding that always exists, from eigenvectors of H (paper, § Hermitian adjacency matrix)."""

import numpy as np
import torch
from offprints.checks import require_range
from offprints.seeding import rng
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh

from duplex_embed.embedding import Embedding
from duplex_embed.graph import as_graph, hermitian_adjacency

DENSE = 400
"""Up to this many nodes, or for half of the spectrum, the matrix is decomposed whole."""


def spectral_ham(data: object, dim: int | None = None) -> Embedding:
    """Amplitudes and phases whose products are H off its diagonal: X = U sqrt(L + c I) for H = U L U*.

    c = max(0, -lambda_min), so that H + c I is positive semidefinite; the diagonal, which no pair asks for, takes c.
    With dim < n the top eigenvectors of H + c I are kept, which is the best approximation of that rank.

    Args:
        data: a graph of any kind, n nodes.
        dim: d; n by default, which is exact (error of the order 1e-15).

    Returns:
        float64 embedding; each eigenvector is turned such that the entry of largest size has phase 0.

    Raises:
        ValueError: if `dim` is below 1.
    """
    graph = as_graph(data)
    n = graph.num_nodes
    dim = n if dim is None else int(require_range("dim", dim, low=1, integer=True))
    kept = min(dim, n)
    if n == 0:
        return Embedding(torch.zeros(0, dim, dtype=torch.float64), torch.zeros(0, dim, dtype=torch.float64))
    h = hermitian_adjacency(graph).astype(np.complex128)
    if n <= DENSE or kept > n // 2:
        values, vectors = eigh(h.toarray())
        least = values[0]
        values, vectors = values[n - kept :], vectors[:, n - kept :]  # type: ignore[bad-index]
    else:
        start = rng(0).normal(size=n)
        least = eigsh(h, k=1, which="SA", return_eigenvectors=False, v0=start)[0]
        values, vectors = eigsh(h, k=kept, which="LA", v0=start)
    order = np.argsort(-values)  # type: ignore[unsupported-operation]
    values, vectors = values[order], vectors[:, order]
    x = vectors * np.sqrt(np.maximum(values + max(0.0, -least), 0.0))
    top = x[np.abs(x).argmax(0), np.arange(kept)]
    x = x * np.where(top == 0, 1, np.conj(top) / np.maximum(np.abs(top), 1e-300))
    x = np.concatenate((x, np.zeros((n, dim - kept))), axis=1)
    return Embedding(torch.from_numpy(np.abs(x)), torch.from_numpy(np.angle(x)), graph.names)
