"""Plane-stress elasticity around a hole: linear finite elements on a mapped ring mesh."""

from typing import Any

import numpy as np
import torch
from offprints.checks import message, require_range
from offprints.seeding import rng
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import spsolve


def hole_radius(angle: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """r(θ) = 0.2 + 0.2 sigmoid(1.5 Σ_k (a_k cos kθ + b_k sin kθ) / k): a star-shaped hole, 0.2 < r < 0.4."""
    k = np.arange(1, len(a) + 1)
    wave = ((a[:, None] * np.cos(np.outer(k, angle)) + b[:, None] * np.sin(np.outer(k, angle))) / k[:, None]).sum(0)
    return 0.2 + 0.2 / (1 + np.exp(-1.5 * wave))


def ring_mesh(radius: np.ndarray, n_radial: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (n_angle · n_radial, 2) of the unit square around a hole, and triangles (T, 3), counter-clockwise.

    Node (i, j) at i · n_radial + j lies on the ray of angle 2πi/n_angle, j from the hole to the rim of the square.

    Raises:
        ValueError: if n_angle is no multiple of 8: corners would be cut.
    """
    n = len(radius)
    if n % 8:
        raise ValueError(message("n_angle", "a multiple of 8 (for corners to be nodes)", n))
    require_range("n_radial", n_radial, low=2, integer=True)
    angle = 2 * np.pi * np.arange(n) / n
    direction = np.stack([np.cos(angle), np.sin(angle)], 1)
    rim = 0.5 / np.abs(direction).max(1)
    share = np.linspace(0, 1, n_radial)
    length = radius[:, None] + share * (rim - radius)[:, None]
    nodes = 0.5 + direction[:, None, :] * length[..., None]
    i, j = np.meshgrid(np.arange(n), np.arange(n_radial - 1), indexing="ij")
    a, b = i * n_radial + j, (i + 1) % n * n_radial + j
    lower, upper = np.stack([a, a + 1, b], -1), np.stack([b, a + 1, b + 1], -1)
    return nodes.reshape(-1, 2), np.concatenate([lower.reshape(-1, 3), upper.reshape(-1, 3)])


def solve_plane_stress(
    nodes: np.ndarray,
    triangles: np.ndarray,
    traction: tuple[float, float] = (0.0, 0.1),
    young: float = 1.0,
    poisson: float = 0.3,
) -> tuple[np.ndarray, np.ndarray]:
    """Displacements (n, 2) and von Mises stresses at nodes (n,) of linear elements.

    Nodes at y = 0 are clamped; the traction acts on the edges at y = 1. Nodal stress is the mean over the elements
    around, weighed by area.

    Args:
        nodes: (n, 2) in the unit square.
        triangles: (T, 3), counter-clockwise.
        traction: force per length.
        young: E.
        poisson: ν.

    Raises:
        ValueError: if a triangle has no area, no node is clamped, or no edge is loaded.
    """
    corners = nodes[triangles]
    edge = corners[:, [1, 2, 0]] - corners[:, [2, 0, 1]]
    area = (edge[:, 0, 0] * edge[:, 1, 1] - edge[:, 0, 1] * edge[:, 1, 0]) / 2
    if (area <= 0).any():
        raise ValueError(message("triangles", "counter-clockwise, of some area", f"{int((area <= 0).sum())} others"))
    slope = np.stack([edge[..., 1], -edge[..., 0]], -1) / (2 * area[:, None, None])  # gradients of the hat functions
    strain = np.zeros((len(triangles), 3, 6))
    strain[:, 0, 0::2], strain[:, 1, 1::2] = slope[..., 0], slope[..., 1]
    strain[:, 2, 0::2], strain[:, 2, 1::2] = slope[..., 1], slope[..., 0]
    law = young / (1 - poisson**2) * np.array([[1, poisson, 0], [poisson, 1, 0], [0, 0, (1 - poisson) / 2]])
    local = np.einsum("tki,kl,tlj,t->tij", strain, law, strain, area)
    unknowns = np.stack([2 * triangles, 2 * triangles + 1], -1).reshape(-1, 6)
    rows, columns = np.repeat(unknowns, 6, axis=1).ravel(), np.tile(unknowns, 6).ravel()
    stiffness: Any = csc_matrix((local.ravel(), (rows, columns)), shape=(2 * len(nodes),) * 2)
    free = np.repeat(np.abs(nodes[:, 1]) > 1e-9, 2)
    load = _edge_load(nodes, triangles, np.array(traction))
    if free.all() or not load.any():
        raise ValueError(message("nodes", "clamped ones at y = 0 and loaded edges at y = 1", "none"))
    moved = np.zeros(2 * len(nodes))
    moved[free] = spsolve(stiffness[free][:, free], load[free])
    stress = np.einsum("kl,tli,ti->tk", law, strain, moved[unknowns])
    total, share = np.zeros((len(nodes), 3)), np.zeros(len(nodes))
    np.add.at(total, triangles, (stress * area[:, None])[:, None, :])
    np.add.at(share, triangles, area[:, None])
    x, y, xy = (total / share[:, None]).T
    return moved.reshape(-1, 2), np.sqrt(x**2 - x * y + y**2 + 3 * xy**2)


def _edge_load(nodes: np.ndarray, triangles: np.ndarray, traction: np.ndarray) -> np.ndarray:
    """Half of each loaded edge's force at both of its ends."""
    edges = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    top = edges[(np.abs(nodes[edges, 1] - 1.0) < 1e-9).all(1)]
    length = np.linalg.norm(nodes[top[:, 0]] - nodes[top[:, 1]], axis=1)
    load = np.zeros((len(nodes), 2))
    for end in range(2):
        np.add.at(load, top[:, end], length[:, None] / 2 * traction)
    return load.ravel()


def elasticity(n_samples: int, seed: int, n_angle: int = 32, n_radial: int = 16) -> dict[str, torch.Tensor]:
    """Unit squares with random holes, pulled at the top: positions of nodes → von Mises stress (Elasticity).

    Args:
        n_samples: how many.
        seed: of the holes.
        n_angle: rays of a mesh, a multiple of 8.
        n_radial: nodes on a ray.

    Returns:
        "points" (n, N, 2), "u" (n, N, 0) (the positions alone are the input) and "y" (n, N, 1); float32.
    """
    require_range("n_samples", n_samples, low=1, integer=True)
    gen, angle = rng(seed), 2 * np.pi * np.arange(n_angle) / n_angle
    places, stresses = [], []
    for _ in range(n_samples):
        nodes, triangles = ring_mesh(hole_radius(angle, *gen.standard_normal((2, 5))), n_radial)
        places.append(nodes)
        stresses.append(solve_plane_stress(nodes, triangles)[1])
    points, y = torch.from_numpy(np.stack(places)).float(), torch.from_numpy(np.stack(stresses)).float()
    return {"points": points, "u": points[..., :0], "y": y.unsqueeze(-1)}
