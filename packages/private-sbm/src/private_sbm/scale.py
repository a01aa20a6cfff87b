"""How long one margin takes at a size: polynomial in Section 1 of the paper, measured."""

import time
from typing import NamedTuple

import numpy as np
from offprints.checks import require_range

from private_sbm import solvers
from private_sbm.certificates import to_margin
from private_sbm.models import asymmetric_sbm
from private_sbm.penalty import tau_penalty


class Timing(NamedTuple):
    """Of one graph drawn from the model.

    Attributes:
        n: vertices.
        edges: edges.
        sample_seconds: drawing the graph.
        seconds: its margin.
        margin: L.
        exact: whether the certified labels are the planted ones.
    """

    n: int
    edges: int
    sample_seconds: float
    seconds: float
    margin: float
    exact: bool


def measure(n: int, a: float = 20.0, b: float = 2.0, rho: float = 0.5, seed: int = 0) -> Timing:
    """Sample an asymmetric block model and time its margin.

    Raises:
        TypeError, ValueError: for n < 3 or parameters that `asymmetric_sbm` refuses.
    """
    require_range("n", n, low=3, integer=True)
    begun = time.perf_counter()
    matrix, truth = asymmetric_sbm(n, rho, a, b, seed, as_sparse=True)
    drawn = time.perf_counter()
    found = solvers.solve(matrix, tau_penalty(n, a, b))
    seconds = time.perf_counter() - drawn
    margin = 0.0 if found.certificate is None else to_margin(found.certificate.lam2, 2.0)
    exact = found.s is not None and bool(np.array_equal(solvers.canonical(found.s), truth))
    return Timing(n, matrix.nnz // 2, drawn - begun, seconds, margin, exact)
