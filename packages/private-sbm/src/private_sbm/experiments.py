"""The runs behind the claims: each returns numbers for one seed."""

import time
from collections.abc import Callable, Sequence

import numpy as np
from offprints.claims import MissingResource
from offprints.seeding import spawn
from sklearn.metrics import adjusted_rand_score

from private_sbm import exact
from private_sbm.auditing import audit
from private_sbm.baselines import RandomizedResponseSBM, SpectralLaplaceSBM
from private_sbm.estimator import PrivateSBM
from private_sbm.margins import margin
from private_sbm.models import asymmetric_sbm, censored_sbm, general_sbm
from private_sbm.penalty import tau_penalty

Metrics = dict[str, float | Sequence[float]]
PHASES = ((14, 3), (10, 2), (9, 2), (8, 2), (7, 2), (8, 3))
GRID_A = (4, 6, 8, 10, 12, 14, 16)
GRID_B = (1, 2, 3, 4, 5)
EPS = (0.25, 0.5, 1.0, 2.0, 4.0)
CURVE = tuple(np.geomspace(0.1, 4.0, 25).tolist())
SCS_SIZES = (40, 60, 80, 100)


def recovered(n: int, rho: float, a: float, b: float, seed: int) -> tuple[float, bool]:
    """Margin, and whether the certified labels are the planted ones."""
    graph, truth = asymmetric_sbm(n, rho, a, b, seed, as_sparse=True)
    value, labels = margin(graph, tau_penalty(n, a, b))
    return value, labels is not None and bool(np.array_equal(labels, truth))


def phases(seed: int, n: int, rho: float, graphs: int, per_cell: int) -> Metrics:
    """Exact recovery at the six (a, b) of the claim; series: the same on a grid."""
    seeds = spawn(seed, graphs)
    out: Metrics = {"graphs": float(graphs)}
    for a, b in PHASES:
        hits = float(sum(recovered(n, rho, a, b, s)[1] for s in seeds))
        out |= {f"exact_{a}_{b}": hits, f"share_{a}_{b}": hits / graphs}
    cells = []
    for b in GRID_B:
        for a in GRID_A:
            cell = [recovered(n, rho, a, b, s)[1] for s in seeds[:per_cell]] if a > b else []
            cells.append(float(np.mean(cell)) if cell else 0.0)
    out["grid"] = cells
    return out


def release(seed: int, n: int, a: float, b: float, graphs: int, sizes: Sequence[int]) -> Metrics:
    """Mean release probability at delta = n^-2 for each eps; series: its curve over eps at several sizes."""
    out: Metrics = {}
    for size in dict.fromkeys([n, *sizes]):
        runs = [recovered(size, 0.5, a, b, s) for s in spawn(seed, graphs)]
        for noise in ("laplace", "discrete"):
            curve = [_chance(runs, eps, size, noise) for eps in (CURVE if noise == "laplace" else ())]
            if curve:
                out[f"curve_{size}"] = curve
            if size == n:
                mark = "" if noise == "laplace" else "discrete_"
                out.update({f"{mark}eps_{eps:g}": _chance(runs, eps, n, noise) for eps in EPS})
    return out


def _chance(runs: Sequence[tuple[float, bool]], eps: float, n: int, noise: str) -> float:
    """Mean over graphs of the probability that the planted labels are released."""
    tester = PrivateSBM(eps=eps, delta=n**-2.0, noise=noise)
    return float(np.mean([tester.tail(value) if right else 0.0 for value, right in runs]))


def limit(seed: int, n: int, graphs: int, eps: float) -> Metrics:
    """Released and certified share at a huge eps, for equal communities and for rho = 0.3."""
    out: Metrics = {}
    for name, rho, a, b in (("equal", 0.5, 30, 2), ("unequal", 0.3, 14, 3)):
        runs = [recovered(n, rho, a, b, s) for s in spawn(seed, graphs)]
        out[f"certified_{name}"] = float(np.mean([right for _, right in runs]))
        out[f"released_{name}"] = _chance(runs, eps, n, "laplace")
    return out


def against_local(seed: int, n: int, a: float, b: float, eps: float) -> Metrics:
    """One graph: probability of an exact release, and what the noisy-graph baselines recover at the same eps."""
    graph, truth = asymmetric_sbm(n, 0.5, a, b, seed, as_sparse=True)
    value, right = recovered(n, 0.5, a, b, seed)
    out: Metrics = {
        f"stability{mark}": _chance([(value, right)], eps, n, noise)
        for mark, noise in (("", "laplace"), ("_discrete", "discrete"))
    }
    best, overlap = 0.0, 0.0
    for solver in ("sdp", "spectral"):
        found = RandomizedResponseSBM(eps, a=a, b=b, solver=solver, random_state=seed).fit(graph).labels_
        agreed = float(np.mean(found == truth))
        best = max(best, float(agreed in (0.0, 1.0)))
        overlap = max(overlap, 2 * max(agreed, 1 - agreed) - 1)
    noisy = SpectralLaplaceSBM(eps, random_state=seed).fit(graph).labels_
    out |= {"rr_exact": best, "rr_overlap": overlap}
    out["laplace_exact"] = float(float(np.mean(noisy == truth)) in (0.0, 1.0))
    return out


def censored(seed: int, n: int, a: float, xi: float) -> Metrics:
    """Exact recovery and margin of one censored graph."""
    graph, truth = censored_sbm(n, a, xi, seed, as_sparse=True)
    value, labels = margin(graph, 0.0, model="censored")
    return {"exact": float(labels is not None and np.array_equal(labels, truth)), "margin": value}


def general(seed: int, n: int, sizes: Sequence[int], a: float, b: float) -> Metrics:
    """Exact recovery, outliers included, and margin of one graph; eta and lam are public."""
    graph, truth = general_sbm(n, sizes, a, b, seed, as_sparse=True)
    found = PrivateSBM("general", a=a, b=b, rho=min(sizes) / n, outliers=sum(sizes) < n).evidence(graph)
    right = found.labels is not None and np.array_equal(found.labels, truth)
    return {"exact": float(right), "margin": found.margin, "agreement": _agreement(found.labels, truth)}


def _agreement(labels: np.ndarray | None, truth: np.ndarray) -> float:
    return 0.0 if labels is None else float(adjusted_rand_score(truth, labels))


def growth(seed: int, sizes: Sequence[int], scs_sizes: Sequence[int]) -> Metrics:
    """Processor seconds of one margin at each size (the least of three); series: the same by SCS at small sizes."""
    out: Metrics = {}
    for n in sizes:
        graph, _ = asymmetric_sbm(n, 0.5, 20, 2, seed, as_sparse=True)
        out[f"seconds_{n}"] = min(_seconds(lambda g=graph, n=n: margin(g, tau_penalty(n, 20, 2))) for _ in range(3))
    if not exact.available():
        raise MissingResource('cvxpy and scs draw the comparison: pip install "private-sbm[repro]"')
    small = {n: asymmetric_sbm(n, 0.5, 8, 2, seed, as_sparse=True)[0] for n in scs_sizes}
    exact.elliptope_matrix(small[scs_sizes[0]], tau_penalty(scs_sizes[0], 8, 2), 1e-2)  # imports, once
    out["ours_small"] = [_seconds(lambda g=g, n=n: margin(g, tau_penalty(n, 8, 2))) for n, g in small.items()]
    out["scs_small"] = [
        _seconds(lambda g=g, n=n: exact.elliptope_matrix(g, tau_penalty(n, 8, 2), 1e-6)) for n, g in small.items()
    ]
    return out


def _seconds(run: Callable[[], object]) -> float:
    begun = time.process_time()
    run()
    return time.process_time() - begun


def privacy(seed: int, pairs: int, general_pairs: int, samples: int) -> Metrics:
    """Audits of the three models at delta = 0.01: worst over models of loss / delta and of a margin's jump."""
    settings = {
        "asymmetric": PrivateSBM(lam=0.5, eps=1.0, delta=0.01, noise="laplace"),
        "censored": PrivateSBM("censored", eps=1.0, delta=0.01),
        "relabel": PrivateSBM("censored", eps=1.0, delta=0.01, neighbor="relabel"),
        "general": PrivateSBM("general", lam=0.45, eta=2.5, eps=1.0, delta=0.01),
    }
    out: Metrics = {"delta": 0.01, "one": 1.0, "eps": 1.0}
    for name, mechanism in settings.items():
        report = audit(mechanism, general_pairs if name == "general" else pairs, samples=samples, seed=seed)
        out |= {f"loss_{name}": report.exact_loss, f"jump_{name}": report.max_jump}
        out |= {f"violations_{name}": float(sum(report.violations.values())), f"eps_{name}": report.eps_lower_bound}
        out |= {f"near_{name}": float(report.near), f"positive_{name}": report.positive / report.pairs}
    return out
