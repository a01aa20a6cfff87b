"""Kernel lower bounds for any table and any symmetry: a user's own operation, not only modular addition."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import ArrayLike
from offprints.checks import require_finite, require_kind, require_range, require_shape
from torch import Tensor
from torch.nn import functional as F

from grokking_theory.tasks import require_labels

Permutations = Sequence[Sequence[int]]
"""One group element: a permutation of the symbols of each axis."""


class OrbitError(RuntimeError):
    """The orbit of the table is larger than `max_orbit`; use the closed form, or a smaller group."""


def operation_target(op: Int[Tensor, "p p"]) -> Float[Tensor, "p p p"]:
    """The regression target of an operation: p · 1[op(a, b) = c], indexed [a, b, c].

    Raises:
        TypeError: if the table is not of integers.
        ValueError: if it is not square, or an entry lies outside [0, p).
    """
    require_kind("op", op, Tensor)
    p = op.shape[0] if op.ndim else 0
    require_shape("op", op, (p, p))
    require_labels("op", op, p)
    return p * F.one_hot(op.long(), p).double()


@dataclass(frozen=True)
class TableBound:
    """The lower bound of `table_lower_bound`.

    Attributes:
        loss_lb: the bound, with the n dimensions shared by all components.
        separate: the weaker bound that grants each component all n dimensions.
        components: for each set S of axes the squared norm of f_S and its dimension Π_{i in S} (p_i - 1).
    """

    loss_lb: float
    separate: float
    components: dict[tuple[int, ...], tuple[float, int]]


def table_lower_bound(table: ArrayLike | Tensor, n: int) -> TableBound:
    """The least expected mean square loss of permutation-invariant kernel methods on any real table.

    f splits into f_S over sets S of axes: f_S depends on the axes in S only and sums to zero along each of them. The
    f_S of one S span an irreducible representation of S_{p_1} × ... × S_{p_m} of dimension d_S = Π_{i in S} (p_i - 1),
    and no two are equal. So the covariance of the randomly permuted table is ‖f_S‖² / d_S times the identity on
    component S, and n kernel functions catch at most its n largest eigenvalues:

        E L >= Σ_S ‖f_S‖² - (sum of the n largest eigenvalues)  >=  Σ_S ‖f_S‖² max(0, 1 - n / d_S)

    Modular addition has two components, the constant and all axes: this is `kernel_lower_bound` with one of the n
    dimensions spent on the constant.

    Args:
        table: real values of shape (p_1, ..., p_m), each p_i >= 2. They are values to predict: for a table of labels,
            such as that of an operation, take `operation_lower_bound`.
        n: training points, uniform over the cells.

    Raises:
        TypeError: if the table is complex.
        ValueError: if the table has no axis, an axis below 2, or entries that are not finite; or n < 0.
    """
    f = _as_table(table)
    require_range("n", n, low=0, integer=True)
    components = {}
    for size in range(f.ndim + 1):
        for axes in combinations(range(f.ndim), size):
            part = _component(f, axes)
            components[axes] = (float((part**2).mean()), prod(f.shape[i] - 1 for i in axes))
    separate = sum(norm * max(0.0, 1 - n / dim) for norm, dim in components.values())
    left, out_of_reach = n, 0.0
    for norm, dim in sorted(components.values(), key=lambda pair: -pair[0] / pair[1]):
        caught = min(left, dim)
        left -= caught
        out_of_reach += norm * (1 - caught / dim)
    return TableBound(out_of_reach, separate, components)


def _component(f: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """f_S: averaged over the axes outside S, centred along those inside."""
    for axis in range(f.ndim):
        mean = f.mean(axis=axis, keepdims=True)
        f = f - mean if axis in axes else np.broadcast_to(mean, f.shape)
    return f


def _as_table(table: ArrayLike | Tensor) -> np.ndarray:
    f = table.detach().cpu() if isinstance(table, Tensor) else np.asarray(table)
    if f.is_complex() if isinstance(f, Tensor) else np.iscomplexobj(f):
        raise TypeError(f"table must be real, got {f.dtype}.")
    f = f.double().numpy() if isinstance(f, Tensor) else f.astype(np.float64)
    require_range("table.ndim", f.ndim, low=1, integer=True)
    require_range("shortest axis of table", min(f.shape), low=2, integer=True)
    require_finite("table", f)
    return f


def symmetric_generators(shape: Sequence[int]) -> list[Permutations]:
    """Generators of S_{p_1} × ... × S_{p_m}: a transposition and a cycle for each axis."""
    generators: list[Permutations] = []
    for axis, size in enumerate(shape):
        require_range("size of an axis", size, low=2, integer=True)
        swap, cycle = [1, 0, *range(2, size)], [*range(1, size), 0]
        for move in (swap, cycle):
            generators.append([move if i == axis else list(range(other)) for i, other in enumerate(shape)])
    return generators


def orbit_lower_bound(
    table: ArrayLike | Tensor, n: int, generators: Sequence[Permutations], max_orbit: int = 20_000
) -> float:
    """The least expected loss of kernel methods that are equivariant under any group of permutations, by its orbit.

    The tables f ∘ T, T in the group, are the orbit of f. With M = E_T[(f ∘ T)(f ∘ T)ᵀ], n kernel functions catch at
    most the n largest eigenvalues of M, which are those of the Gram matrix of the orbit:

        E L >= Σ_{i > n} λ_i(⟨f ∘ T, f ∘ T'⟩ / |orbit|),    ⟨f, g⟩ the mean of f g over cells

    The group may be smaller than all permutations (say, shifts only): the bound then covers more kernels, and is lower.

    Args:
        table: real values of shape (p_1, ..., p_m).
        n: training points, uniform over the cells.
        generators: of the group; each is one permutation per axis (see `symmetric_generators`).
        max_orbit: the largest orbit that is enumerated.

    Raises:
        ValueError: if a generator is not one permutation per axis; and as `table_lower_bound`.
        OrbitError: if the orbit is larger than `max_orbit`.
    """
    f = _as_table(table)
    require_range("n", n, low=0, integer=True)
    require_range("max_orbit", max_orbit, low=1, integer=True)
    moves = [_checked(generator, f.shape) for generator in generators]
    f = np.ascontiguousarray(f)
    found = {f.tobytes(): f}
    frontier = [f]
    while frontier:
        grown = []
        for member in frontier:
            for move in moves:
                image = np.ascontiguousarray(member[np.ix_(*move)])
                if image.tobytes() not in found:
                    found[image.tobytes()] = image
                    grown.append(image)
        if len(found) > max_orbit:
            raise OrbitError(
                f"the orbit must have at most max_orbit = {max_orbit} tables, got more. Use a smaller group."
            )
        frontier = grown
    orbit = np.stack([member.ravel() for member in found.values()])
    orbit /= np.sqrt(orbit.size)
    small = orbit @ orbit.T if orbit.shape[0] <= orbit.shape[1] else orbit.T @ orbit
    values = np.linalg.eigvalsh(small)[::-1]
    return float(np.clip(values[n:], 0, None).sum())


def _checked(generator: Permutations, shape: tuple[int, ...]) -> list[np.ndarray]:
    if len(generator) != len(shape):
        raise ValueError(f"a generator must have {len(shape)} permutations (one per axis), got {len(generator)}.")
    moves = [np.asarray(move) for move in generator]
    for axis, (move, size) in enumerate(zip(moves, shape, strict=True)):
        if sorted(move.tolist()) != list(range(size)):
            raise ValueError(f"a generator must permute 0..{size - 1} on axis {axis}, got {move.tolist()}.")
    return [move.astype(np.int64) for move in moves]


def operation_lower_bound(op: Int[Tensor, "p p"], n: int) -> float:
    """`table_lower_bound` of the regression target of an operation; about (p - 1)(1 - n/(p-1)³) for addition."""
    return table_lower_bound(operation_target(torch.as_tensor(op)), n).loss_lb
