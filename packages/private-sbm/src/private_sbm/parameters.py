"""What the parameters of `PrivateSBM` may be: all of them public (the model's parameters: Section 1 of the paper)."""

from math import inf, log
from typing import TYPE_CHECKING

import numpy as np
from offprints.checks import Problems, require_choice, require_kind, require_range

from private_sbm.mechanism import NOISES, require_delta, require_eps
from private_sbm.penalty import LAMS
from private_sbm.shown import SECRET
from private_sbm.solvers import SOLVERS
from private_sbm.thresholds import MODELS

if TYPE_CHECKING:
    from private_sbm.estimator import PrivateSBM

NEIGHBORS = ("edge", "relabel")


def check(estimator: "PrivateSBM") -> None:
    """Check every parameter, and raise all problems at once.

    Raises:
        TypeError: if lam is neither a name nor a number.
        ValueError: if any is outside of what the class says.
    """
    require_choice("model", estimator.model, MODELS)
    require_kind("lam", estimator.lam, (str, int, float, np.floating))
    with Problems("PrivateSBM") as problems:
        if estimator.partial:
            problems.add(
                "partial must be False: which part of the communities is certified depends on the edges, and "
                "releasing it is not private. Split the vertices by a public rule and fit each part."
            )
        for name, choices in (("neighbor", NEIGHBORS), ("noise", NOISES), ("solver", SOLVERS)):
            problems.check(require_choice, name, getattr(estimator, name), choices)
        problems.check(require_eps, estimator.eps)
        problems.check(require_delta, estimator.delta)
        for name in ("strict", "outliers"):
            problems.check(require_kind, name, getattr(estimator, name), (bool, np.bool_))
        if estimator.random_state is not None:
            problems.check(require_range, SECRET, estimator.random_state, low=0, integer=True)
        if estimator.neighbor == "relabel" and estimator.model != "censored":
            problems.add(f"neighbor must be 'edge' in the {estimator.model} model, got 'relabel': edges have no label.")
        if estimator.model != "censored":
            _check_penalties(estimator, problems)


def _check_penalties(estimator: "PrivateSBM", problems: Problems) -> None:
    """lam, eta, rho, a and b, as far as they are used."""
    problems.check(require_range, "eps_density", estimator.eps_density, low=0, high=inf, low_open=True, high_open=True)
    problems.check(require_range, "exact_limit", estimator.exact_limit, low=0, integer=True)
    if estimator.rho is not None:
        problems.check(require_range, "rho", estimator.rho, low=0, high=1, low_open=True, high_open=True)
    if isinstance(estimator.lam, str):
        problems.check(require_choice, "lam", estimator.lam, LAMS)
    else:
        problems.check(require_range, "lam", estimator.lam, low=0, high=1, low_open=True, high_open=True)
    if isinstance(estimator.eta, str):
        problems.check(require_choice, "eta", estimator.eta, ("auto",))
    else:
        problems.check(require_range, "eta", estimator.eta, low=0, high=inf, low_open=True, high_open=True)
    if estimator.lam == "balanced" and estimator.model == "general" and estimator.rho is None:
        problems.add("rho must be given with lam='balanced' in the general model: the smallest cluster's share.")
    if uses_densities(estimator) and (estimator.a is None or estimator.b is None):
        problems.add("a and b must be given: public model parameters. Or pass lam='noisy-density'.")
    if estimator.a is not None and estimator.b is not None:
        problems.check(require_range, "b", estimator.b, low=0, low_open=True)
        problems.check(require_range, "a", estimator.a, low=estimator.b, low_open=True, because="b")


def uses_densities(estimator: "PrivateSBM") -> bool:
    """Whether lam or eta follow from a and b."""
    if estimator.model == "censored" or estimator.lam == "noisy-density":
        return False
    automatic = estimator.model == "general" and estimator.outliers and estimator.eta == "auto"
    return isinstance(estimator.lam, str) or automatic


def check_size(estimator: "PrivateSBM", n: int) -> None:
    """Check that p = a ln n / n is a probability at this number of vertices, where a is used.

    Raises:
        ValueError: if it exceeds 1.
    """
    if n >= 3 and uses_densities(estimator) and estimator.a is not None and estimator.a * log(n) > n:
        raise ValueError(
            f"a must be at most n / ln n = {n / log(n):.4g} at n = {n} (p = a ln n / n is a probability), "
            f"got {estimator.a:g}. Pass the a of this graph, or lam."
        )
