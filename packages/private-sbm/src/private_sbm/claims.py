"""The paper's claims and how each is measured; the runs themselves are in `experiments`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offprints.claims import Method, Runs, Scale, bound, exact, greater, less, monotone, rate, slope, within

from private_sbm import experiments, figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = Method(
    dist="private-sbm",
    title="Differentially Private Exact Recovery for Stochastic Block Models",
    authors="Dung Nguyen, Anil Vullikanti",
    field="Differential privacy",
    summary="Exact communities of a graph under edge differential privacy, or a refusal.",
    venue="ICML 2024",
    arxiv="2406.02644",
    bibtex="""@inproceedings{nguyen2024private,
  title = {Differentially Private Exact Recovery for Stochastic Block Models},
  author = {Nguyen, Dung and Vullikanti, Anil},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series = {PMLR},
  volume = {235},
  year = {2024},
}""",
    deviations=[
        "The distance to instability is bounded by the dual certificate of the semidefinite program instead of the "
        "paper's concentration of a graph: one eigenvalue, a proof for every graph, and never a smaller margin.",
        "The constructions, proofs and private thresholds here were derived from its abstract and introduction: "
        "the constants of its own thresholds may differ, and no numbers of its experiments are quoted.",
        "General model: the trace penalty eta is public. With the best eta of each graph, one graph can have two "
        "partitions with large margins, and which one is released could hang on one edge.",
        "General model: the surplus of a vertex towards other clusters counts in full; it is 1-Lipschitz as it stands.",
        "A certificate counts from lam_2 > 0.001 (general model: margin > 0.1), so that its absence can be proved.",
    ],
)

ABSTRACT = "abstract"
SIZES = (500, 1000, 2000, 4000)


@METHOD.claim(
    "exact-recovery",
    where=f"Asymmetric model ({ABSTRACT})",
    says="Exact recovery iff the exponent eta exceeds 1: six (a, b) with eta from 2.02 down to 0.60, rho = 0.3.",
    expect=[
        rate(("exact_14_3", "graphs"), at_least=0.95),
        rate(("exact_10_2", "graphs"), at_least=0.95),
        rate(("exact_7_2", "graphs"), at_most=0.65),
        rate(("exact_8_3", "graphs"), at_most=0.20),
        monotone([f"share_{a}_{b}" for a, b in experiments.PHASES], "decreasing"),
    ],
    smoke=Scale(seeds=2, n=80, rho=0.3, graphs=2, per_cell=1),
    cpu=Scale(seeds=10, n=300, rho=0.3, graphs=20, per_cell=2),
    full=Scale(seeds=10, n=20_000, rho=0.3, graphs=20, per_cell=2, needs="20 CPU hours"),
)
def exact_recovery(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Graphs (of `graphs`) whose certified labels are the planted ones; series: the same on a grid of (a, b)."""
    return experiments.phases(seed, scale.n, scale.rho, scale.graphs, scale.per_cell)


@METHOD.claim(
    "private-recovery",
    where=f"Private thresholds ({ABSTRACT})",
    says="Recovery under privacy, and thresholds that move with eps: release probability at delta = n^-2.",
    expect=[
        monotone([f"eps_{eps:g}" for eps in experiments.EPS], "increasing"),
        less("eps_0.25", 0.05),
        greater("eps_1", 0.95),
        greater("eps_2", 0.95),
        greater("eps_4", 0.95),
    ],
    smoke=Scale(seeds=2, n=150, a=20, b=2, graphs=1, vertices=(100,)),
    cpu=Scale(seeds=8, n=300, a=30, b=2, graphs=10, vertices=(200, 600, 1200)),
    full=Scale(seeds=8, n=20_000, a=30, b=2, graphs=10, vertices=(2000, 5000), needs="4 CPU hours"),
)
def private_recovery(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Mean over graphs, in closed form; `discrete_`: with discrete noise."""
    return experiments.release(seed, scale.n, scale.a, scale.b, scale.graphs, scale.vertices)


@METHOD.claim(
    "non-private-limit",
    where=ABSTRACT,
    says="As eps grows the thresholds become the non-private ones: at eps = 1000 what is certified is released.",
    expect=[
        within("released_equal", "certified_equal", 0.02),
        within("released_unequal", "certified_unequal", 0.02),
    ],
    smoke=Scale(seeds=2, n=200, graphs=2, eps=1e3),
    cpu=Scale(seeds=8, n=300, graphs=10, eps=1e3),
    full=Scale(seeds=8, n=20_000, graphs=10, eps=1e3, needs="1 CPU hour"),
)
def non_private_limit(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Shares of exactly recovered graphs: equal communities (a, b) = (30, 2), and rho = 0.3 with (14, 3)."""
    return experiments.limit(seed, scale.n, scale.graphs, scale.eps)


@METHOD.claim(
    "sparse-regime",
    where="Introduction",
    says="In the sparse regime the stability mechanism recovers exactly where edge-local randomized response cannot.",
    expect=[
        greater("stability", 0.7),
        greater("stability_discrete", 0.7),
        exact("rr_exact", 0.0),
        exact("laplace_exact", 0.0),
    ],
    smoke=Scale(seeds=2, n=300, a=20, b=2, eps=1.0),
    cpu=Scale(seeds=8, n=1500, a=20, b=2, eps=1.0),
    full=Scale(seeds=8, n=10_000, a=20, b=2, eps=1.0, needs="2 CPU hours, 16 GB"),
)
def sparse_regime(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Probability of an exact release at delta = n^-2; the baselines' best solver, exact or not, and its overlap."""
    return experiments.against_local(seed, scale.n, scale.a, scale.b, scale.eps)


@METHOD.claim(
    "censored",
    where=f"Censored model ({ABSTRACT})",
    says="The censored model is recovered above its threshold: exponent 4, margin about 14.",
    expect=[exact("exact", 1.0), within("margin", 14.0, 3.0)],
    smoke=Scale(seeds=2, n=200, a=10, xi=0.1),
    cpu=Scale(seeds=8, n=1000, a=10, xi=0.1),
    full=Scale(seeds=8, n=100_000, a=10, xi=0.1, needs="2 CPU hours, 16 GB"),
)
def censored(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """One graph a seed."""
    return experiments.censored(seed, scale.n, scale.a, scale.xi)


@METHOD.claim(
    "general",
    where=f"General model ({ABSTRACT})",
    says="Clusters of unequal sizes and outliers are recovered exactly, outliers included, with a positive margin.",
    expect=[exact("exact", 1.0), greater("margin", 0.0)],
    smoke=Scale(seeds=2, n=120, clusters=(60, 40), a=20, b=1),
    cpu=Scale(seeds=8, n=300, clusters=(150, 100), a=40, b=2),
    full=Scale(seeds=8, n=5000, clusters=(2500, 1500), a=40, b=2, needs="1 CPU hour"),
)
def general(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """One graph a seed; `agreement` is the adjusted Rand index."""
    return experiments.general(seed, scale.n, scale.clusters, scale.a, scale.b)


@METHOD.claim(
    "polynomial-time",
    where=ABSTRACT,
    says="Polynomial time: one margin grows no faster than m log n, and takes less than 5 s at n = 4000.",
    expect=[slope({n: f"seconds_{n}" for n in SIZES}, 0.0, 1.4), less("seconds_4000", 5.0)],
    smoke=Scale(seeds=1, vertices=SIZES, scs_sizes=(40,)),
    cpu=Scale(seeds=5, vertices=SIZES, scs_sizes=experiments.SCS_SIZES),
    full=Scale(seeds=5, vertices=(*SIZES, 16_000, 64_000), scs_sizes=experiments.SCS_SIZES, needs="1 CPU hour, 16 GB"),
    tolerance=1e6,
    note="Processor seconds on one thread: they differ from machine to machine.",
)
def polynomial_time(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Solve, certify and read off the margin, for a = 20, b = 2; series: against SCS on small graphs."""
    return experiments.growth(seed, scale.vertices, scale.scs_sizes)


@METHOD.claim(
    "privacy",
    where="Privacy theorem (abstract)",
    says="(eps, delta)-edge privacy for every graph: exact loss over random and adversarial neighbours.",
    expect=[
        *(bound("delta", f"loss_{name}") for name in ("asymmetric", "censored", "relabel", "general")),
        *(bound("one", f"jump_{name}", tol=1e-6) for name in ("asymmetric", "censored", "relabel", "general")),
        *(exact(f"violations_{name}", 0.0) for name in ("asymmetric", "censored", "relabel", "general")),
        *(bound(f"positive_{name}", 0.5) for name in ("asymmetric", "censored", "relabel", "general")),
        *(bound(f"near_{name}", "near_wanted") for name in ("asymmetric", "censored", "relabel", "general")),
    ],
    smoke=Scale(seeds=1, pairs=40, general_pairs=6, samples=0, near=2),
    cpu=Scale(seeds=5, pairs=500, general_pairs=260, samples=500, near=200),
    full=Scale(seeds=20, pairs=5000, general_pairs=1000, samples=100_000, near=200, needs="10 CPU hours"),
    tolerance=1e-3,
)
def privacy(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Worst loss and jump over pairs of neighbours, at eps = 1 and delta = 0.01; and whether enough lie near L = 1."""
    found = experiments.privacy(seed, scale.pairs, scale.general_pairs, scale.samples)
    return found | {"near_wanted": float(scale.near)}


@METHOD.figure(
    "phase",
    needs=["exact-recovery"],
    caption="Share of graphs (n = 300, rho = 0.3) recovered exactly, over a and b; white: eta = 1.",
)
def phase(runs: Mapping[str, Runs]) -> "Figure":
    """Heat map with the threshold."""
    return figures.phase(runs)


@METHOD.figure(
    "release",
    needs=["private-recovery"],
    caption="Release probability against eps at delta = 1 / n^2 for several n (a = 30, b = 2), and asymptotic eps*.",
)
def release(runs: Mapping[str, Runs]) -> "Figure":
    """One line for each n."""
    return figures.release(runs)


@METHOD.figure(
    "runtime",
    needs=["polynomial-time"],
    caption="Processor seconds of one margin against n: this package, and cvxpy + SCS on the same program.",
)
def runtime(runs: Mapping[str, Runs]) -> "Figure":
    """Both axes logarithmic."""
    return figures.runtime(runs)
