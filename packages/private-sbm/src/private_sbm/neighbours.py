"""Neighbouring graphs for an audit: random ones, and ones on the way to where a certificate breaks.

Neighbours differ in one edge (Section 1 of the paper); under `relabel` also in one label.
"""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from private_sbm.certificates import certificate, to_margin
from private_sbm.general import general_certificate
from private_sbm.graphs import Matrix

NEAR = (0.5, 1.5)
TRIES = 10
EXHAUSTIVE = 24
WALKS = 20
"""At most as many walks for each pair wanted: most walks of the general model end before they come near margin 1."""


class Setting(NamedTuple):
    """What margins an audit is about.

    Attributes:
        model: "asymmetric", "general" or "censored".
        n: vertices of the graphs that are made.
        lam: penalty.
        eta: trace penalty, or None.
        step: how much one step moves lam_2: 2, or 4 under "relabel".
        outliers: whether graphs are made with outliers.
    """

    model: str
    n: int
    lam: float
    eta: float | None
    step: float
    outliers: bool


class Pair(NamedTuple):
    """Two neighbours (n, n), and the margin of the first as its planted partition has it."""

    first: Matrix
    second: Matrix
    margin: float


def planted_margin(setting: Setting, a: np.ndarray, labels: np.ndarray) -> float:
    """The margin of a given partition, 0 where it is not certified: a lower bound on that of the graph."""
    return float(planted_margins(setting, a[None], labels)[0])


def planted_margins(setting: Setting, graphs: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The same for many graphs (count, n, n) at once."""
    if setting.model == "general":
        found = [general_certificate(a, setting.lam, labels, setting.eta).margin for a in graphs]
        return np.maximum(0.0, found)
    n, s = len(labels), 1.0 - 2.0 * labels
    dual = setting.lam - graphs
    dual[:, range(n), range(n)] += s * (graphs @ s) - setting.lam * s * s.sum()
    lift = np.abs(dual).sum(axis=2).max() + 1.0
    lam2 = np.linalg.eigvalsh(dual + (lift / n) * np.outer(s, s))[:, 0]
    return np.array([to_margin(float(value), setting.step) for value in lam2])


def planted(
    setting: Setting, gen: np.random.Generator, purity: float, equal: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """A dense graph with communities: an edge disagrees with its planted place with probability 1 - purity."""
    n = setting.n
    if setting.model == "general":
        out = int(gen.integers(1, max(2, n // 6))) if setting.outliers else 0
        first = (n - out) // 2
        labels = np.repeat([0, 1, -1], [first, n - out - first, out])
        same = (labels[:, None] == labels) & (labels[:, None] >= 0)
    else:
        cut = n // 2 if equal else int(gen.integers(n // 2 - n // 8, n // 2 + n // 8 + 1))
        labels = (np.arange(n) >= cut).astype(np.int64)
        same = labels[:, None] == labels
    wrong = gen.random((n, n)) > purity
    if setting.model == "censored":
        a = np.where(same, 1.0, -1.0) * np.where(wrong, -1.0, 1.0) * (gen.random((n, n)) < 0.8)
    else:
        a = (same ^ wrong).astype(float)
    a = np.triu(a, 1)
    return a + a.T, labels


def weakened(setting: Setting, a: np.ndarray, labels: np.ndarray, gen: np.random.Generator) -> np.ndarray:
    """Two vertices keep few neighbours, of their own side: an edge between them may undo the certificate.

    So few that each has a surplus near 2, along directions that hardly overlap with the rest: one wrong edge moves
    lam_2 by nearly 2, from just below 2 to below 0.
    """
    a = a.copy()
    pull = setting.lam * (len(labels) - 2 * int(labels.sum()))  # what the sizes of the sides take off d on side 0
    for side in (0, 1):
        members = np.flatnonzero(labels == side)
        i, others = members[0], members[1:]
        a[i, :] = a[:, i] = 0.0
        wanted = int(gen.integers(2, 4)) + round(pull if side == 0 else -pull)
        kept = gen.choice(others, min(max(wanted, 1), len(others)), replace=False)
        a[i, kept] = a[kept, i] = 1.0
    return a


def flipped(setting: Setting, a: np.ndarray, gen: np.random.Generator) -> np.ndarray:
    """A neighbour: one random pair changed."""
    i, j = gen.choice(len(a), 2, replace=False)
    options = changed(setting, a, int(i), int(j))
    return options[int(gen.integers(len(options)))]


def changed(setting: Setting, a: np.ndarray, i: int, j: int) -> list[np.ndarray]:
    """All neighbours of a graph that differ from it in the pair {i, j}."""
    if setting.model != "censored":
        values = [1.0 - a[i, j]]
    elif a[i, j] == 0:
        values = [-1.0, 1.0]
    else:
        values = [0.0, -a[i, j]] if setting.step == 4.0 else [0.0]
    found = []
    for value in values:
        other = a.copy()
        other[i, j] = other[j, i] = value
        found.append(other)
    return found


def suspects(setting: Setting, a: np.ndarray, labels: np.ndarray) -> list[tuple[int, int]]:
    """Pairs whose change lowers the planted margin most, to first order.

    A step against s at {i, j} lowers lam_2 by (u_i - s_i s_j u_j)^2, u its eigenvector. In the general model: the pairs
    of the vertex with the fewest edges into its cluster.
    """
    n = len(a)
    if setting.model == "general":
        inside = np.where(labels >= 0, (a * (labels[:, None] == labels)).sum(axis=1), np.inf)
        weak = int(inside.argmin())
        return [(weak, int(j)) for j in np.flatnonzero((labels == labels[weak]) & (a[weak] > 0))[:TRIES]]
    s = 1.0 - 2.0 * labels
    vec, sides = certificate(a, setting.lam, s).vec, np.outer(s, s)
    possible = a * sides > -1 if setting.model == "censored" else (a > 0) == (sides > 0)
    drop = np.where(possible, (vec[:, None] - sides * vec) ** 2, -1.0)
    drop[np.tril_indices(n)] = -1.0
    top = np.argpartition(drop, -TRIES, axis=None)[-TRIES:]
    return [(int(i), int(j)) for i, j in zip(*np.unravel_index(top, drop.shape), strict=True)]


def worst_flip(
    setting: Setting, a: np.ndarray, labels: np.ndarray, margin: float, gen: np.random.Generator
) -> np.ndarray:
    """The neighbour whose planted margin is least: of all where the margin is near 1, else of a few."""
    n = len(a)
    if n > EXHAUSTIVE:
        options = [other for i, j in suspects(setting, a, labels) for other in changed(setting, a, i, j)]
    elif NEAR[0] <= margin <= NEAR[1]:
        options = [other for i in range(n) for j in range(i) for other in changed(setting, a, i, j)]
    else:
        options = [flipped(setting, a, gen) for _ in range(TRIES)]
    options = options or [flipped(setting, a, gen)]
    return options[int(planted_margins(setting, np.stack(options), labels).argmin())]


def walk(setting: Setting, gen: np.random.Generator) -> list[Pair]:
    """Successive neighbours from a planted graph, mostly downhill, until the certificate breaks."""
    least = 0.97 if setting.model == "general" else 0.9
    weak = setting.model != "general" and gen.random() < 0.5
    a, labels = planted(setting, gen, float(gen.uniform(least, 1.0)), equal=weak and setting.n > EXHAUSTIVE)
    if weak:
        a = weakened(setting, a, labels, gen)
    margin, found = planted_margin(setting, a, labels), []
    for _ in range(6 * setting.n):
        other = worst_flip(setting, a, labels, margin, gen) if gen.random() < 0.8 else flipped(setting, a, gen)
        found.append(Pair(sparse.csr_array(a), sparse.csr_array(other), margin))
        if margin == 0:
            break
        a, margin = other, planted_margin(setting, other, labels)
    return found


def make_pairs(setting: Setting, count: int, gen: np.random.Generator) -> list[Pair]:
    """`count` pairs: two fifths near margin 1, two fifths above, the rest random graphs; from as many walks as needed.

    Where walks do not lead above, more near 1 take their place, then random graphs.
    """
    near: list[Pair] = []
    above: list[Pair] = []
    quota = 2 * count // 5
    for _ in range(WALKS * count):
        if len(near) >= quota and len(near) + len(above) >= 2 * quota:
            break
        for pair in walk(setting, gen):
            if NEAR[0] <= pair.margin <= NEAR[1]:
                near.append(pair)
            elif pair.margin > NEAR[1] and len(above) < quota and gen.random() < 0.3:
                above.append(pair)
    near = [near[i] for i in gen.permutation(len(near))[: 2 * quota - len(above)]]
    rest = []
    while len(near) + len(above) + len(rest) < count:
        a, _ = planted(setting, gen, float(gen.uniform(0.5, 1.0)))
        rest.append(Pair(sparse.csr_array(a), sparse.csr_array(flipped(setting, a, gen)), 0.0))
    return [*near, *above, *rest]
