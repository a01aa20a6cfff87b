"""The margin of a graph in one call, without privacy (Section 1 of the paper: distance to instability, from below)."""

from collections.abc import Sequence

import numpy as np
from offprints.checks import require_choice, require_range

from private_sbm import solvers
from private_sbm.certificates import to_margin
from private_sbm.general import solve_general
from private_sbm.graphs import adjacency
from private_sbm.thresholds import MODELS


def margin(
    A: object,
    lam: float,
    *,
    model: str = "asymmetric",
    neighbor: str = "edge",
    eta: float | None = None,
    solver: str = "staircase",
    exact_limit: int = 300,
) -> tuple[float, np.ndarray | None]:
    """L(A) and the certified labels: NOT differentially private, never publish either.

    L = lam_2 / 2 (censored under "relabel": lam_2 / 4) of the certified partition, general: the least of its terms,
    always less the floor of what counts as certified; 0 and None where there is no certificate.

    Args:
        A: graph, as in `PrivateSBM.fit`.
        lam: penalty; 0 in the censored model.
        model: "asymmetric", "general" or "censored".
        neighbor: "edge" or "relabel".
        eta: trace penalty of the general model; None: without outliers.
        solver: see `solvers.solve`.
        exact_limit: general model: up to how many vertices SCS decides absence.

    Raises:
        TypeError, ValueError: for an unknown model or neighbour relation, a negative penalty, or no undirected graph.
    """
    require_choice("model", model, MODELS)
    require_choice("neighbor", neighbor, ("edge", "relabel") if model == "censored" else ("edge",))
    require_range("lam", lam, low=0)
    require_range("exact_limit", exact_limit, low=0, integer=True)
    if eta is not None:
        require_range("eta", eta, low=0, low_open=True)
    a, _ = adjacency(A, signed=model == "censored")
    if a.shape[0] < 3:
        return 0.0, None
    if model == "general":
        found = solve_general(a, lam, eta, exact_limit)
        return (0.0, None) if found.certificate is None else (found.certificate.margin, found.labels)
    solved = solvers.solve(a, 0.0 if model == "censored" else lam, solver)
    if solved.s is None or solved.certificate is None:
        return 0.0, None
    return to_margin(solved.certificate.lam2, 4.0 if neighbor == "relabel" else 2.0), solvers.canonical(solved.s)


def sweep(A: object, lams: Sequence[float], signed: bool = False) -> list[float]:
    """L(A) at each penalty, every solve started from the last factor: NOT differentially private.

    Over eps nothing needs to be solved again: the margin does not depend on it (`release_probability`).

    Raises:
        TypeError, ValueError: as `margin`.
    """
    a, _ = adjacency(A, signed=signed)
    found, factor = [], None
    for lam in lams:
        require_range("lam", lam, low=0)
        solved = solvers.solve(a, lam, v0=factor)
        factor = solved.v
        found.append(0.0 if solved.certificate is None else to_margin(solved.certificate.lam2, 2.0))
    return found
