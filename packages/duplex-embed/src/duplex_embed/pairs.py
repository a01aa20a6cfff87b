"""Pairs of nodes: checked, looked up among sorted keys, and their types (paper, § decoders)."""

import numpy as np
import torch
from offprints.checks import require_shape

REVERSE, FORWARD, BOTH, NONE, NEGATIVE = range(5)
"""Types of a pair (u, v): only v->u, only u->v, both ways, no edge; and, in signed graphs, an edge of negative sign."""
TYPE_NAMES = ("reverse", "forward", "both", "none", "negative")


def require_pairs(pairs: object, num_nodes: int) -> torch.Tensor:
    """(m, 2) int64 node indices, checked.

    Raises:
        TypeError: if they are not integers.
        ValueError: if the shape is another, an index is out of range, or u = v.
    """
    found = torch.as_tensor(pairs if isinstance(pairs, torch.Tensor | np.ndarray) else np.asarray(pairs)).cpu()
    found = found.reshape(0, 2) if found.numel() == 0 else found
    require_shape("pairs", found, (None, 2))
    if found.numel() and (found.is_floating_point() or found.dtype == torch.bool):
        raise TypeError(f"pairs must hold node indices (integers), got {found.dtype}.")
    found = found.long()
    if found.numel() and not 0 <= int(found.min()) <= int(found.max()) < num_nodes:
        raise ValueError(f"pairs must lie in [0, {num_nodes}), got {int(found.min())} to {int(found.max())}.")
    same = (found[:, 0] == found[:, 1]).nonzero()
    if len(same):
        node = int(found[same[0, 0], 0])
        raise ValueError(f"pairs must be of two different nodes, got ({node}, {node}) at row {int(same[0, 0])}.")
    return found


def pair_types(edge_index: torch.Tensor, pairs: torch.Tensor, num_nodes: int | None = None) -> torch.Tensor:
    """Type of each pair (u, v): 0 only v->u, 1 only u->v, 2 both, 3 none (paper, § decoders).

    Args:
        edge_index: (2, E) edges.
        pairs: (m, 2) node indices.
        num_nodes: n, by default the least that holds all.
    """
    least = max([int(t.max()) + 1 for t in (edge_index, pairs) if t.numel()], default=1)
    n = least if num_nodes is None else num_nodes
    known = np.unique(edge_index[0].numpy() * n + edge_index[1].numpy())
    u, v = pairs.numpy().T
    there, back = is_member(known, u * n + v), is_member(known, v * n + u)
    return torch.from_numpy(np.select([there & back, there, back], [BOTH, FORWARD, REVERSE], NONE))


def is_member(known: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """(m,) booleans: which keys are among the known ones, which ascend."""
    return known[places(known, keys)] == keys if len(known) else np.zeros(len(keys), bool)


def places(known: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Where each key would stand, at most the last place; asked for in ascending order, which spares the caches."""
    order, at = np.argsort(keys), np.empty(len(keys), np.int64)
    at[order] = np.searchsorted(known, keys[order])
    return np.minimum(at, max(len(known) - 1, 0))
