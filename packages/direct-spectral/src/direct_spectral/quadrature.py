"""Weights q_j of the forward sum û_k = Σ_j q_j u_j e^{-ik·θ_j}: means, cell areas, least squares.

With q = 1/N (the paper) the sum over scattered points is a Monte-Carlo estimate of the Fourier integral; areas of
Voronoi cells make it a quadrature rule, and least squares recovers band-limited fields exactly.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from offprints.checks import message, require_finite
from offprints.device import float_dtype, full_precision

from direct_spectral.domain import Domain, values_known
from direct_spectral.waves import count, partners, tables

if TYPE_CHECKING:
    from scipy.spatial import Voronoi

RULES = ("mean", "voronoi", "lstsq")
QUADRATURE_HINT = "Or pass the weights themselves."
RIM = 1e-6
"""Points on the rim are moved in by this share of the range, lest they coincide with their own mirror image."""


def mean_weights(points: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor | float:
    """1/N, or 1/(number of points that count) at those and 0 elsewhere; (..., N)."""
    if mask is None:
        return 1.0 / max(points.shape[-2], 1)
    kept = mask.to(dtype)
    return kept / kept.sum(-1, keepdim=True).clamp_min(1)


def user_weights(weights: torch.Tensor, points: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Given weights, checked: (N,) or (B, N), of sum 1, not negative; zero where masked.

    Raises:
        ValueError: if the shape, a value, or a sum is wrong.
    """
    if tuple(weights.shape) not in {tuple(points.shape[:-1]), tuple(points.shape[-2:-1])}:
        raise ValueError(message("quadrature", f"weights of shape {tuple(points.shape[:-1])}", tuple(weights.shape)))
    require_finite("quadrature", weights)
    if mask is not None:
        weights = torch.where(mask, weights, 0)
    if values_known(weights) and weights.numel():
        sums, least = weights.detach().sum(-1), weights.detach().min()
        if least < 0 or (sums - 1).abs().max() > 1e-3:
            got = f"sums from {sums.min():.6g} to {sums.max():.6g}, least weight {least:.3g}"
            raise ValueError(message("quadrature", "weights of sum 1, none negative", got, "Divide by their sum."))
    return weights


def cell_areas(points: torch.Tensor, domain: Domain, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Shares of the domain that are nearest to each point (Voronoi cells), (..., N) of sum 1; no gradient.

    Cells wrap around along periodic axes and end at the bounds along others. In one dimension this is the trapezoid
    rule on the circle. Points that coincide share one cell.

    Args:
        points: (N, d) or (B, N, d), d from 1 to 3.
        domain: bounds and periodicity.
        mask: (..., N), False at padding, which gets weight 0.

    Raises:
        ValueError: if d is above 3.
    """
    if domain.dim > 3:
        raise ValueError(message("points", "of at most 3 coordinates (for Voronoi cells)", domain.dim))
    kept = torch.ones(points.shape[:-1], dtype=torch.bool, device=points.device) if mask is None else mask
    unit = (domain.normalised(points.detach().to(float_dtype(points.device))) + 1) / 2
    extents = [high - low for low, high in domain.bounds]
    return _areas(unit, kept.expand(points.shape[:-1]), extents, list(domain.periodic))


@torch.library.custom_op("direct_spectral::cell_areas", mutates_args=())
def _areas(unit: torch.Tensor, mask: torch.Tensor, extents: list[float], periodic: list[bool]) -> torch.Tensor:
    flat, kept = unit.reshape(-1, *unit.shape[-2:]).cpu().numpy(), mask.reshape(-1, unit.shape[-2]).cpu().numpy()
    shares = np.zeros(kept.shape)
    for row, (cloud, which) in enumerate(zip(flat, kept, strict=True)):
        if which.any():
            shares[row, which] = _cloud_areas(cloud[which], np.array(extents), periodic)
    return torch.from_numpy(shares).to(unit.dtype).reshape(unit.shape[:-1]).to(unit.device)


@_areas.register_fake
def _(unit: torch.Tensor, mask: torch.Tensor, extents: list[float], periodic: list[bool]) -> torch.Tensor:
    return unit.new_empty(unit.shape[:-1])


def _cloud_areas(unit: np.ndarray, extents: np.ndarray, periodic: list[bool]) -> np.ndarray:
    """Areas of one cloud (N, d) in the unit box."""
    wrap = np.array(periodic)
    rim = RIM if unit.shape[1] > 1 else 0.0
    inside = np.where(wrap, unit % 1.0, np.clip(unit, rim, 1.0 - rim))
    distinct, place, copies = np.unique(inside, axis=0, return_inverse=True, return_counts=True)
    place = place.reshape(-1)
    areas = _interval(distinct[:, 0], periodic[0]) if unit.shape[1] == 1 else _box(distinct, extents, periodic)
    return areas[place] / copies[place]


def _interval(x: np.ndarray, periodic: bool) -> np.ndarray:
    """Half the gaps to both neighbours; `x` is sorted."""
    if periodic:
        gaps = np.diff(np.append(x, x[0] + 1.0))
        return (gaps + np.roll(gaps, 1)) / 2
    middles = np.concatenate([[0.0], (x[1:] + x[:-1]) / 2, [1.0]])
    return np.diff(middles)


def _box(unit: np.ndarray, extents: np.ndarray, periodic: list[bool]) -> np.ndarray:
    """Voronoi cells in the box: mirror images across its faces (copies, where periodic) make every cell finite."""
    from scipy.spatial import Voronoi  # not at import: it takes a while

    images = [unit]
    for axis, wrapped in enumerate(periodic):
        grown = list(images)
        for image in images:
            for side in (-1.0, 1.0):
                other = image.copy()
                other[:, axis] = other[:, axis] + side if wrapped else (side + 1.0) - other[:, axis]
                grown.append(other)
        images = grown
    diagram = Voronoi(np.concatenate(images) * extents)
    return _volumes(diagram, len(unit)) / np.prod(extents)


def _volumes(diagram: "Voronoi", n: int) -> np.ndarray:
    """Volume of each of the first n cells: cones over its facets, from the point that the cell belongs to."""
    found = np.zeros(n)
    dim = diagram.points.shape[1]
    for (a, b), corners in zip(diagram.ridge_points, diagram.ridge_vertices, strict=True):
        if (a >= n and b >= n) or -1 in corners:
            continue
        face = diagram.vertices[corners]
        height = np.linalg.norm(diagram.points[a] - diagram.points[b]) / 2
        content = height * _content(face) / dim
        for cell in (a, b):
            if cell < n:
                found[cell] += content
    return found


def _content(face: np.ndarray) -> float:
    """Length of a segment, or area of a planar polygon with corners in order."""
    if face.shape[1] == 2:
        return float(np.linalg.norm(face[1] - face[0]))
    edges = face[1:] - face[0]
    return float(np.linalg.norm(np.cross(edges[:-1], edges[1:]).sum(0)) / 2)


def sphere_areas(xyz: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Areas of spherical Voronoi cells of unit vectors (..., N, 3), (..., N) of sum 4π; no gradient.

    Raises:
        ValueError: if fewer than four distinct points count.
    """
    kept = torch.ones(xyz.shape[:-1], dtype=torch.bool, device=xyz.device) if mask is None else mask
    return _sphere(xyz.detach().to(float_dtype(xyz.device)), kept.expand(xyz.shape[:-1]))


@torch.library.custom_op("direct_spectral::sphere_areas", mutates_args=())
def _sphere(xyz: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    from scipy.spatial import SphericalVoronoi

    flat, kept = xyz.reshape(-1, *xyz.shape[-2:]).cpu().numpy(), mask.reshape(-1, xyz.shape[-2]).cpu().numpy()
    areas = np.zeros(kept.shape)
    for row, (cloud, which) in enumerate(zip(flat, kept, strict=True)):
        distinct, place, copies = np.unique(cloud[which].round(12), axis=0, return_inverse=True, return_counts=True)
        if len(distinct) < 4:
            raise ValueError(message("points", "at least 4 distinct ones (for Voronoi cells)", len(distinct)))
        distinct = distinct / np.linalg.norm(distinct, axis=1, keepdims=True)
        cells = SphericalVoronoi(distinct, radius=1.0).calculate_areas()
        place = place.reshape(-1)
        areas[row, which] = cells[place] / copies[place]
    return torch.from_numpy(areas).to(xyz.dtype).reshape(xyz.shape[:-1]).to(xyz.device)


@_sphere.register_fake
def _(xyz: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return xyz.new_empty(xyz.shape[:-1])


def require_enough(points: torch.Tensor, needed: int, mask: torch.Tensor | None) -> None:
    """Check that least squares has points enough, and none twice.

    Raises:
        ValueError: if N < `needed`, or two points coincide.
    """
    n = points.shape[-2]
    if mask is not None and values_known(mask) and mask.numel():
        n = int(mask.sum(-1).min())
    if n < needed:
        hint = "Keep fewer modes, or use quadrature='voronoi'."
        raise ValueError(message("points", f"at least {needed} (twice the kept modes, for lstsq)", n, hint))
    if not values_known(points):
        return
    for row, cloud in enumerate(points.detach().reshape(-1, *points.shape[-2:])):
        which = slice(None) if mask is None else mask.expand(points.shape[:-1]).reshape(-1, points.shape[-2])[row]
        seen = cloud[which]
        twice = len(seen) - len(torch.unique(seen, dim=0))
        if twice:
            hint = "Drop the duplicates: the least-squares system would weigh them twice."
            raise ValueError(message("points", "distinct (for lstsq)", f"{twice} duplicates in cloud {row}", hint))


def pseudo_inverse(theta: torch.Tensor, n_modes: tuple[int, ...], mask: torch.Tensor | None) -> torch.Tensor:
    """V⁺, (..., 2M, N): packed coefficients of the band-limited real field that is nearest to values at the points.

    The unknowns are the real ones: of k and -k, both kept where k_d = 0, one stands for the pair.
    """
    table = tables(theta, n_modes, float_dtype(theta.device, torch.float64))
    m, pairs = count(n_modes), partners(n_modes)
    chosen = [k for k, other in enumerate(pairs) if other < 0 or k <= other]
    double = torch.tensor([2.0 if pairs[k] != k else 1.0 for k in chosen], dtype=table.dtype, device=table.device)
    alone = [k for k in chosen if pairs[k] < 0 and k % n_modes[-1] == 0]  # unpaired waves enter once, not doubled
    for k in alone:
        double[chosen.index(k)] = 1.0
    columns = torch.tensor(chosen + [m + k for k in chosen if pairs[k] != k], device=table.device)
    factor = torch.cat([double, double[[pairs[k] != k for k in chosen]]])
    design = (table[..., columns, :] * factor.unsqueeze(-1)).transpose(-1, -2)
    if mask is not None:
        design = design * mask.unsqueeze(-1).to(design.dtype)
    eye = torch.eye(design.shape[-2], dtype=design.dtype, device=design.device).expand(*design.shape[:-2], -1, -1)
    with full_precision(theta.device):
        solved = torch.linalg.lstsq(design, eye).solution
    if mask is not None:
        solved = solved * mask.unsqueeze(-2).to(solved.dtype)
    return _unfolded(solved, chosen, pairs, m)


def _unfolded(solved: torch.Tensor, chosen: list[int], pairs: list[int], m: int) -> torch.Tensor:
    """All 2M rows from the unknowns: the partner of a chosen wave has the same cosine part and the opposite sine."""
    rows, signs = [-1] * (2 * m), [1.0] * (2 * m)
    sines = [k for k in chosen if pairs[k] != k]
    for place, k in enumerate(chosen):
        rows[k] = place
        if pairs[k] >= 0:
            rows[pairs[k]] = place
    for place, k in enumerate(sines, start=len(chosen)):
        rows[m + k] = place
        if pairs[k] >= 0:
            rows[m + pairs[k]], signs[m + pairs[k]] = place, -1.0
    zero = torch.zeros_like(solved[..., :1, :])
    padded = torch.cat([solved, zero], -2)  # -1 takes the row of zeros: the sine of k = 0
    return padded[..., torch.tensor(rows, device=solved.device), :] * solved.new_tensor(signs).unsqueeze(-1)
