"""Flow around airfoils: incompressible potential flow by linear finite elements on a mapped ring mesh."""

from typing import Any

import numpy as np
import torch
from offprints.checks import message, require_range
from offprints.seeding import rng
from scipy.sparse import csc_matrix
from scipy.sparse.linalg import splu


def naca_section(camber: float, place: float, thickness: float, n_around: int) -> np.ndarray:
    """Outline of a NACA four-digit section of chord 1, (n_around, 2), from the trailing edge over the lower side.

    Nodes are cosine-spaced, the trailing edge is closed and is node 0; counter-clockwise seen from outside reversed,
    that is, clockwise.

    Args:
        camber: largest camber, in chords.
        place: where it lies, in chords.
        thickness: largest thickness, in chords.
        n_around: nodes, even.

    Raises:
        ValueError: if an argument is out of range.
    """
    require_range("camber", camber, low=0, high=0.1)
    require_range("place", place, low=0.1, high=0.9)
    require_range("thickness", thickness, low=0.01, high=0.4)
    require_range("n_around", n_around, low=8, integer=True)
    if n_around % 2:
        raise ValueError(message("n_around", "even", n_around))
    angle = 2 * np.pi * np.arange(n_around) / n_around
    x = (1 + np.cos(angle)) / 2
    poly = 0.2969 * np.sqrt(x) - 0.1260 * x - 0.3516 * x**2 + 0.2843 * x**3 - 0.1036 * x**4
    front = x < place
    line = np.where(
        front,
        camber / place**2 * (2 * place * x - x**2),
        camber / (1 - place) ** 2 * (1 - 2 * place + 2 * place * x - x**2),
    )
    side = np.where(angle <= np.pi, -1.0, 1.0)
    return np.stack([x, line + side * 5 * thickness * poly], 1)


def ring_around(outline: np.ndarray, n_radial: int, radius: float = 5.0) -> tuple[np.ndarray, np.ndarray]:
    """Nodes (n_around · n_radial, 2) between an outline and a circle, and triangles (T, 3); spacing grows outwards."""
    n = len(outline)
    leaving = outline[0] - (outline[1] + outline[-1]) / 2  # the ray of the trailing edge goes on along the section
    angle = np.arctan2(leaving[1], leaving[0]) - 2 * np.pi * np.arange(n) / n  # clockwise, as the outline
    rim = np.array([0.5, 0.0]) + radius * np.stack([np.cos(angle), np.sin(angle)], 1)
    share = (np.exp(3 * np.linspace(0, 1, n_radial)) - 1) / (np.exp(3) - 1)
    nodes = outline[:, None] + share[:, None] * (rim - outline)[:, None]
    i, j = np.meshgrid(np.arange(n), np.arange(n_radial - 1), indexing="ij")
    a, b = i * n_radial + j, (i + 1) % n * n_radial + j
    triangles = np.concatenate(
        [np.stack([a, b, a + 1], -1).reshape(-1, 3), np.stack([b, b + 1, a + 1], -1).reshape(-1, 3)]
    )
    return nodes.reshape(-1, 2), triangles


def potential_flow(nodes: np.ndarray, triangles: np.ndarray, n_radial: int, attack: float) -> np.ndarray:
    """Speed at nodes (n,), in units of the flow far away.

    Stream function: ∇²ψ = 0, ψ = y cos α - x sin α on the rim, constant on the section. The flow with circulation is
    added such that the two elements at the trailing edge have equal speed (Kutta's condition).

    Args:
        nodes: of `ring_around`.
        triangles: of `ring_around`.
        n_radial: of `ring_around`.
        attack: angle α in radians.

    Raises:
        ValueError: if a triangle has no area.
    """
    corners = nodes[triangles]
    edge = corners[:, [1, 2, 0]] - corners[:, [2, 0, 1]]
    area = (edge[:, 0, 0] * edge[:, 1, 1] - edge[:, 0, 1] * edge[:, 1, 0]) / 2
    if (area == 0).any() or (np.sign(area) != np.sign(area[0])).any():
        raise ValueError(message("triangles", "of one orientation, with some area", "others"))
    slope = np.stack([edge[..., 1], -edge[..., 0]], -1) / (2 * area[:, None, None])
    local = np.einsum("tia,tja,t->tij", slope, slope, np.abs(area))
    rows, columns = np.repeat(triangles, 3, axis=1).ravel(), np.tile(triangles, 3).ravel()
    stiffness: Any = csc_matrix((local.ravel(), (rows, columns)), shape=(len(nodes),) * 2)
    place = np.arange(len(nodes)) % n_radial
    section, rim = place == 0, place == n_radial - 1
    free = ~(section | rim)
    known = np.zeros((len(nodes), 2))
    known[rim, 0] = nodes[rim] @ np.array([-np.sin(attack), np.cos(attack)])
    known[section, 1] = 1.0  # the circulating part: one on the section, nothing on the rim
    solver = splu(stiffness[free][:, free])
    stream = known.copy()
    stream[free] = solver.solve(-(stiffness @ known)[free])
    grad = np.einsum("tia,tik->tka", slope, stream[triangles])
    last = len(triangles) // 2 - (n_radial - 1)  # the cells at the trailing edge: two triangles each
    lower, upper = (_mean_of_cell(grad, np.abs(area), cell) for cell in (0, last))
    share = _kutta(upper, lower)
    velocity = grad[:, 0] + share * grad[:, 1]
    total, weight = np.zeros((len(nodes), 2)), np.zeros(len(nodes))
    np.add.at(total, triangles, (velocity * np.abs(area)[:, None])[:, None])
    np.add.at(weight, triangles, np.abs(area)[:, None])
    return np.linalg.norm(total / weight[:, None], axis=1)


def _mean_of_cell(grad: np.ndarray, area: np.ndarray, cell: int) -> np.ndarray:
    """Gradients (2, 2) in a quadrilateral, a row for each flow: means over its two triangles."""
    both = [cell, cell + len(grad) // 2]
    return (grad[both] * area[both, None, None]).sum(0) / area[both].sum()


def _kutta(upper: np.ndarray, lower: np.ndarray) -> float:
    """S with |u_0 + s u_1| = |l_0 + s l_1|, the root of smaller size; along a wall, speeds are |∇ψ|."""
    a = upper[1] @ upper[1] - lower[1] @ lower[1]
    b = 2 * (upper[0] @ upper[1] - lower[0] @ lower[1])
    c = upper[0] @ upper[0] - lower[0] @ lower[0]
    if abs(a) < 1e-10 * (upper[1] @ upper[1]):
        return float(-c / b)
    roots = np.roots([a, b, c])
    return float(roots[np.argmin(np.abs(roots))].real)


def airfoil(
    n_samples: int, seed: int, n_around: int = 44, n_radial: int = 24, around: int = 44, depth: int = 8
) -> dict[str, torch.Tensor]:
    """Random NACA sections at random angles: positions of nodes → speed (Airfoil, here incompressible).

    Args:
        n_samples: how many.
        seed: of sections and angles (α within ±5°).
        n_around: nodes around a section, even.
        n_radial: layers of nodes.
        around: nodes around that are kept, from the trailing edge on.
        depth: layers that are kept, from the section on.

    Returns:
        "points" (n, N, 2), turned by α so that the flow comes along x, "u" (n, N, 0), "y" (n, N, 1); float32.
    """
    require_range("n_samples", n_samples, low=1, integer=True)
    require_range("depth", depth, low=1, high=n_radial, integer=True)
    require_range("around", around, low=1, high=n_around, integer=True)
    gen, places, speeds = rng(seed), [], []
    for _ in range(n_samples):
        outline = naca_section(gen.uniform(0, 0.05), gen.uniform(0.3, 0.6), gen.uniform(0.08, 0.18), n_around)
        attack = gen.uniform(-np.pi / 36, np.pi / 36)
        nodes, triangles = ring_around(outline, n_radial)
        speed = potential_flow(nodes, triangles, n_radial, attack)
        turn = np.array([[np.cos(attack), -np.sin(attack)], [np.sin(attack), np.cos(attack)]])
        window = (slice(around), slice(depth))
        places.append((nodes @ turn).reshape(n_around, n_radial, 2)[window].reshape(-1, 2))
        speeds.append(speed.reshape(n_around, n_radial)[window].ravel())
    points, y = torch.from_numpy(np.stack(places)).float(), torch.from_numpy(np.stack(speeds)).float()
    return {"points": points, "u": points[..., :0], "y": y.unsqueeze(-1)}
