"""The paper's claims and how each is measured; the runs themselves are in the `experiments` modules."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offprints.claims import Method, Runs, Scale, exact, greater, less, monotone, rate, slope

from attention_lipschitz import experiments_models, experiments_theory, figures
from attention_lipschitz.experiments_theory import Metrics

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = Method(
    dist="attention-lipschitz",
    title="How Smooth Is Attention?",
    authors="Valérie Castin, Pierre Ablin, Gabriel Peyré",
    field="Theory of transformers",
    summary="Measure, bound and certify how much a transformer's attention can amplify a perturbation of its tokens.",
    venue="ICML 2024",
    arxiv="2312.14820",
    code="vcastin/how-smooth-is-attention",
    bibtex="""@inproceedings{castin2024smooth,
  title = {How Smooth Is Attention?},
  author = {Castin, Val{\\'e}rie and Ablin, Pierre and Peyr{\\'e}, Gabriel},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series = {PMLR},
  volume = {235},
  pages = {5817--5840},
  year = {2024},
}""",
    dtype="float64",
    deviations=[
        "The released scripts take the first output of torch.func.jvp, which is the value f(X), for the tangent; "
        "what they print is no Lipschitz constant. It is here as estimator='paper_code', beside the constant itself.",
        "compute_bound of the released code lacks the factor √3 of Theorem 3.3 and is no bound; it is not shipped.",
        "Theorem 3.3's constant was re-proved; that of the mean-field bound was recalled and re-proved; for masked "
        "attention a bound by Hardy's inequality stands in for the paper's, which is stated for another distance.",
        "Attention alone, with its output projection, where the scripts for BERT measure residual and norm as well "
        "(scope='block' does).",
        "Random GPT-2 and BERT read Python's own documentation, words hashed to ids; pretrained BERT and GPT-2 were "
        "not run. A byte GPT trained on the spot stands in for a trained model.",
        "In real layers the derivative is computed from extracted weights with an explicit mask and checked against "
        "the model's own output.",
    ],
)

GPT2_SMALL = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 128}
GPU = "one GPU, less than an hour"


@METHOD.claim(
    "bounds",
    where="Theorem 3.3, Section 3.2",
    says="The constant is below √3 v (a² (4n + 1) + n)^½ and below a bound free of n; sharper ones hold too.",
    expect=[exact("violations", 0.0, tol=0.0)],
    smoke=Scale(seeds=1, cases=6),
    cpu=Scale(seeds=5, cases=40),
    full=Scale(seeds=20, cases=1000, needs="1 CPU hour"),
    tolerance=0.5,
)
def bounds_claim(seed: int, scale: Scale, device: str) -> Metrics:
    """Random heads and tokens, n ≤ 12, d ≤ 6, with and without mask, against dense decompositions."""
    return experiments_theory.random_heads(seed, scale.cases)


@METHOD.claim(
    "looseness",
    where="beyond the paper",
    says="There the bounds are small factors above the constant: local 3, sharp 6, ball 10, Theorem 3.3 20.",
    expect=[
        less("ratio_local", 3.0), less("ratio_sharp", 6.0), less("ratio_ball", 10.0), less("ratio_general", 20.0),
    ],
    smoke=Scale(seeds=1, cases=6),
    cpu=Scale(seeds=5, cases=40),
    tolerance=0.5,
    note="In the first run these gates were part of the claim bounds. Bounds by radius grow with a = ‖A‖R², large "
    "for tokens and weights of order one; the local bound, which knows the tokens, stays within a factor of 2.",
)  # fmt: skip
def looseness(seed: int, scale: Scale, device: str) -> Metrics:
    """Medians of bound over constant."""
    return experiments_theory.random_heads(seed, scale.cases)


TIGHT = (5, 10, 30, 100, 300)
SIZES = {"radii": (1.0, 2.0, 3.0), "lengths": (*TIGHT, 200)}
TIGHT_GATES = [
    slope({n: f"L_3_{n}" for n in TIGHT}, 0.45, 0.55),
    monotone([f"L_1_{n}" for n in (30, 100, 200, 300)], "decreasing"),
    exact("violations", 0.0, tol=0.0),
    less("looseness", 1.6),
]


@METHOD.claim(
    "tight",
    where="Section 3.1",
    says="√n is attained for reasonable n (adversarial tokens), then the constant stops growing.",
    expect=TIGHT_GATES,
    smoke=Scale(seeds=2, values="rotation", **SIZES),
    cpu=Scale(seeds=5, values="rotation", **SIZES),
    tolerance=0.02,
)
def tight(seed: int, scale: Scale, device: str) -> Metrics:
    """A with least eigenvalue −1 in a random basis, V a rotation; constants over ‖Vu‖."""
    return experiments_theory.adversarial_growth(seed, scale.radii, scale.lengths, scale.values, causal=False)


@METHOD.claim(
    "tight-any-values",
    where="Section 3.1",
    says="The same with a random V.",
    expect=TIGHT_GATES,
    smoke=Scale(seeds=2, values="random", **SIZES),
    cpu=Scale(seeds=5, values="random", **SIZES),
    tolerance=0.02,
    note="The first run of tight and masked was this one, open: it had not divided by ‖Vu‖, which differs between "
    "seeds, and a random V can amplify another direction more than u, which the lower bound does not count.",
)
def tight_any_values(seed: int, scale: Scale, device: str) -> Metrics:
    """Directions that V amplifies more than u make the lower bound loose."""
    return experiments_theory.adversarial_growth(seed, scale.radii, scale.lengths, scale.values, causal=False)


@METHOD.claim(
    "masked",
    where="Section 4",
    says="Masked attention behaves likewise, but keeps growing slowly.",
    expect=[
        slope({n: f"L_3_{n}" for n in TIGHT}, 0.45, 0.55),
        monotone([f"L_1_{n}" for n in (30, 100, 200, 300)], "increasing"),
        slope({n: f"L_1_{n}" for n in (100, 200, 300)}, 0.0, 0.15),
        exact("violations", 0.0, tol=0.0),
    ],
    smoke=Scale(seeds=2, values="rotation", **SIZES),
    cpu=Scale(seeds=5, values="rotation", **SIZES),
    tolerance=0.02,
)
def masked(seed: int, scale: Scale, device: str) -> Metrics:
    """The same, masked."""
    return experiments_theory.adversarial_growth(seed, scale.radii, scale.lengths, scale.values, causal=True)


@METHOD.claim(
    "published-curve",
    where="Section 5 (random GPT-2)",
    says="On text the released estimate grows as 0.445 n^¼ on a random GPT-2; the Lipschitz constant hardly grows.",
    paper={"exponent": 0.25, "coefficient": 0.445},
    expect=[
        greater("exponent", 0.20), less("exponent", 0.30), greater("coefficient", 0.4005), less("coefficient", 0.4895),
        less("exact_exponent", 0.15), exact("unconverged", 0.0, tol=0.0),
    ],
    smoke=Scale(seeds=1, layer=1, lengths=(2, 8, 32), samples=2, size=GPT2_SMALL),
    cpu=Scale(seeds=5, layer=6, lengths=(2, 8, 32, 96), samples=4, size={}),
    full=Scale(seeds=10, layer=6, lengths=tuple(range(2, 99, 2)), samples=10, size={}, needs=GPU),
    tolerance=0.05,
)  # fmt: skip
def published_curve(seed: int, scale: Scale, device: str) -> Metrics:
    """Layer 6 of GPT-2 as published, in its size, with random weights."""
    s = scale
    return experiments_models.published_curve(seed, s.layer, s.lengths, s.samples, s.size, device)


@METHOD.claim(
    "adversarial-and-real",
    where="Section 5",
    says="At adversarial tokens the constant of random GPT-2 and BERT grows about as √n, on real text it does not.",
    expect=[greater(f"adversarial_{family}", f"real_{family}", by=0.15) for family in ("gpt2", "bert")],
    smoke=Scale(seeds=1, layer=1, lengths=(2, 8, 32), samples=1, size=GPT2_SMALL),
    cpu=Scale(seeds=5, layer=6, lengths=(2, 8, 32, 96), samples=2, size={}),
    full=Scale(seeds=10, layer=6, lengths=tuple(range(2, 503, 20)), samples=10, size={}, needs=GPU),
    tolerance=0.05,
    note="Open for GPT-2: the constant grows at every seed, with exponents from 0.18 to 0.45 where text has 0.09. What "
    "the seeds differ in was not looked into. BERT passes.",
)
def adversarial_and_real(seed: int, scale: Scale, device: str) -> Metrics:
    """Exponents of n, R = 100, tokens made for head 0."""
    s = scale
    return experiments_models.planted_and_real(seed, s.layer, s.lengths, s.samples, s.size, device)


@METHOD.claim(
    "trained",
    where="Section 5 (pretrained and random)",
    says="Training makes attention more sensitive.",
    expect=[greater("trained", "random"), *(greater(f"trained_{n}", f"random_{n}") for n in (8, 32, 128))],
    smoke=Scale(seeds=1, lengths=(8, 32, 128), samples=1, steps=2, width=16),
    cpu=Scale(seeds=5, lengths=(8, 32, 128), samples=4, steps=300, width=128),
    full=Scale(seeds=5, lengths=(8, 32, 128), samples=10, steps=20_000, width=256, needs="one GPU, 1 hour"),
    tolerance=0.2,
)
def trained(seed: int, scale: Scale, device: str) -> Metrics:
    """Both layers of a byte GPT, before and after training."""
    s = scale
    return experiments_models.trained_and_random(seed, s.lengths, s.samples, s.steps, s.width, device)


@METHOD.claim(
    "large-radius",
    where="Section 3.3",
    says="Scaled up, almost all tokens lead to hard attention: the constant converges, below v √n.",
    expect=[
        exact("violations", 0.0, tol=0.0),
        less("gap_1000", 1e-6),
        monotone(["gap_10", "gap_100", "gap_1000"], "decreasing"),
    ],
    smoke=Scale(seeds=1, cases=6),
    cpu=Scale(seeds=5, cases=40),
    tolerance=0.5,
)
def large_radius(seed: int, scale: Scale, device: str) -> Metrics:
    """‖D_{rX} f‖ at r = 10, 100, 1000 against the limit."""
    return experiments_theory.hard_attention(seed, scale.cases)


@METHOD.claim(
    "worst-case",
    where="beyond the paper",
    says="Ascent on the constant finds tokens worse than the adversarial ones in most random layers.",
    expect=[rate(("improved", "layers"), at_least=0.8)],
    smoke=Scale(seeds=1, layers=2, n=5, steps=3),
    cpu=Scale(seeds=5, layers=20, n=8, steps=20),
    tolerance=0.1,
)
def worst(seed: int, scale: Scale, device: str) -> Metrics:
    """By 1 % or more, three heads, masked or not."""
    return experiments_theory.ascent(seed, scale.layers, scale.n, scale.steps)


@METHOD.figure(
    "growth",
    needs=["published-curve", "adversarial-and-real"],
    caption="Left: the released estimate grows as n^(1/4), the constant does not. Right: adversarial and real tokens.",
)
def draw_growth(runs: Mapping[str, Runs]) -> "Figure":
    """Both estimators, adversarial and real data."""
    return figures.growth(runs)


@METHOD.figure(
    "radius", needs=["tight", "masked"], caption="The constant at adversarial tokens between its bounds, by radius."
)
def draw_radius(runs: Mapping[str, Runs]) -> "Figure":
    """Bounds against R."""
    return figures.radius(runs)


@METHOD.figure("heads", needs=["trained"], caption="Median constant of each head of a byte GPT, random and trained.")
def draw_heads(runs: Mapping[str, Runs]) -> "Figure":
    """Heat maps."""
    return figures.heads(runs)
