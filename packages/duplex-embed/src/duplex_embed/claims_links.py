"""Claims about links: low-degree nodes, peers, types, leakage, ablations."""

from offprints.claims import Scale, best, greater

from duplex_embed._method import METHOD
from duplex_embed.evaluation import evaluate
from duplex_embed.experiments import GRAPHS, Sizes, compared, fitted, prefixed, split_of

DUAL = ("svd", "hope", "nerd")
Output = dict[str, float | list[float]]


def sizes_of(scale: Scale) -> Sizes:
    """What the comparisons need of a scale."""
    return Sizes(scale.dim, scale.epochs, scale.nodes)


SCALES = (
    Scale(1, dim=8, epochs=3, nodes=160),
    Scale(5, dim=32, epochs=150, nodes=10_000),
    Scale(5, needs="one GPU, about two hours", dim=128, epochs=3000, nodes=10_000),
)


@METHOD.claim(
    "low-degree",
    where="Abstract, section of experiments",
    says="Nodes without in-edges or out-edges get useful embeddings; source/target embeddings give them a zero vector.",
    expect=[
        *(greater(f"{graph}_duplex_low", 0.68) for graph in GRAPHS),
        *(greater(f"{graph}_duplex_low", best(*(f"{graph}_{m}_low" for m in DUAL)), by=0.15) for graph in GRAPHS),
    ],
    smoke=SCALES[0],
    cpu=SCALES[1],
    full=SCALES[2],
    tolerance=0.05,
    note=(
        "Open in the absolute gates on sympy (mean 0.70, two of five seeds above 0.68) and the citations "
        "(0.70), and in the margin over dual embeddings on the citations. The dual ones are at chance everywhere, "
        "as their missing role is a zero vector, so DUPLEX is ahead at every seed; but with a logistic read-out "
        "of both vectors HOPE reaches 0.83, 0.90 and 0.81, MagNet 0.74, 0.90 and 0.87 (sympy, networkx, "
        "citations; DUPLEX 0.70, 0.88, 0.70)."
    ),
)
def low_degree(seed: int, scale: Scale, device: str) -> Output:
    """Existence AUC of test pairs whose source has no training out-edge or whose target has no training in-edge."""
    found: Output = {}
    for name in GRAPHS:
        found |= prefixed(name, compared(name, seed, sizes_of(scale), device), ("low", "buckets"))
    return found


@METHOD.claim(
    "better-than-dual",
    where="Section of experiments, link prediction",
    says="One complex vector a node predicts existence and direction better than a source and a target vector.",
    expect=[greater("sympy_duplex_ep", "sympy_hope_ep", by=0.02), greater("sympy_duplex_dp", "sympy_hope_dp", by=0.02)],
    smoke=SCALES[0],
    cpu=SCALES[1],
    full=SCALES[2],
    tolerance=0.05,
    note=(
        "Fails against a HOPE whose decay is chosen by the validation pairs: 0.92 and 0.96 where DUPLEX has 0.92 and "
        "0.97, level in existence and 0.01 ahead in direction; the first run, with HOPE at its default decay, was just "
        "at the margin. SVD (0.74, 0.80) and NERD (0.85, 0.90) stay behind; MagNet has 0.95 and 0.98, HOPE with a "
        "logistic read-out 0.94 and 0.976."
    ),
)
def better_than_dual(seed: int, scale: Scale, device: str) -> Output:
    """Existence and direction AUC of all methods on sympy's imports."""
    return prefixed("sympy", compared("sympy", seed, sizes_of(scale), device), ("ep", "dp"))


@METHOD.claim(
    "types",
    where="Section on the decoders",
    says="The decoder without parameters tells the four types of pairs, here as often as they occur.",
    expect=[greater("sympy_duplex_natural", 0.72)],
    smoke=SCALES[0],
    cpu=SCALES[1],
    full=SCALES[2],
    tolerance=0.05,
    note=("Open: 0.74 on average, one of five seeds below 0.72. Trained read-outs are better: MagNet 0.82, HOPE 0.81."),
)
def types(seed: int, scale: Scale, device: str) -> Output:
    """Accuracy over all test pairs, half of which are no edges."""
    return prefixed("sympy", compared("sympy", seed, sizes_of(scale), device), ("natural",))


@METHOD.claim(
    "types-in-equal-numbers",
    where="Section of experiments, four-type classification",
    says="The same with as many pairs of each type, which gives the rare reciprocal pairs a quarter of the weight.",
    expect=[greater("sympy_duplex_type4", 0.72)],
    smoke=SCALES[0],
    cpu=SCALES[1],
    full=SCALES[2],
    tolerance=0.05,
    note=(
        "Open: 0.69 on average, one of five seeds above. The gate supposed the proportions of nature; with equal "
        "numbers a quarter of the pairs are reciprocal, of which training sees three in a hundred. Here the "
        "decoder without parameters is ahead of the trained ones: MagNet 0.62, HOPE with read-out 0.60."
    ),
)
def balanced_types(seed: int, scale: Scale, device: str) -> Output:
    """Accuracy over pairs of three and four types in equal numbers."""
    return prefixed("sympy", compared("sympy", seed, sizes_of(scale), device), ("type3", "type4"))


@METHOD.claim(
    "magnet",
    where="Section of experiments, link prediction",
    says="On sparse graphs DUPLEX is within 0.02 of MagNet with a trained head, and ahead of it on low-degree nodes.",
    expect=[
        *(greater(f"{g}_duplex_ep", f"{g}_magnet_ep", by=-0.02) for g in ("networkx", "cited")),
        *(greater(f"{g}_duplex_low", f"{g}_magnet_low") for g in ("networkx", "cited")),
    ],
    smoke=SCALES[0],
    cpu=SCALES[1],
    full=SCALES[2],
    tolerance=0.05,
    note=(
        "Fails on the citations: MagNet 0.885 and 0.87 (low degrees), DUPLEX 0.70 and 0.70. Cited nodes are cited "
        "because they are cited, which a trained head reads from the degrees; the Hermitian product has to be "
        "learned pair by pair, and the best epoch comes within the first 30, after which it memorises (dropout, "
        "more heads, other inputs and fewer layers change existence by 0.03 at most): the message between two nodes "
        "gives their link away in training, never in a test. Learning in each epoch from links that carry no messages "
        "in it lifted low-degree nodes there and little elsewhere, but took more epochs to start; it is not built "
        "in. On networkx the two are level within the noise of five seeds."
    ),
)
def magnet(seed: int, scale: Scale, device: str) -> Output:
    """All scores of all methods on the two sparse graphs."""
    found: Output = {}
    for name in ("networkx", "cited"):
        every = compared(name, seed, sizes_of(scale), device)
        found |= prefixed(name, every, ("ep", "low", "dp", "type3", "natural"))
    return found


@METHOD.claim(
    "leak",
    where="Section of experiments and the official code",
    says="Letting test edges carry messages, as the official code does, inflates the results.",
    expect=[
        greater("cited_leak_ep", "cited_honest_ep", by=0.05),
        greater("cited_leak_dp", "cited_honest_dp", by=0.03),
    ],
    smoke=SCALES[0],
    cpu=SCALES[1],
    full=SCALES[2],
    tolerance=0.05,
)
def leak(seed: int, scale: Scale, device: str) -> Output:
    """Both protocols on the same split; on sympy's graph 0.03 above the direction AUC would be above 1."""
    found: Output = {}
    for protocol, leaking in (("leak", True), ("honest", False)):
        split = split_of("cited", seed, scale.nodes, leaking)
        report = evaluate(fitted(split, seed, sizes_of(scale), device), split.test)
        found |= {f"cited_{protocol}_ep": report["ep_auc"], f"cited_{protocol}_dp": report["dp_auc"]}
    return found


VARIANTS = {
    "standard": {}, "no_fusion": {"fusion": "none"}, "no_connection_loss": {"lam": 0.0}, "normal": {"init": "normal"},
    "spectral": {"init": "spectral"},
}  # fmt: skip


@METHOD.claim(
    "ablations",
    where="Section of experiments, ablations",
    says="Fusion, the connection-aware loss, the inputs: one left out or exchanged at a time (a report, all above .5).",
    expect=[greater(f"{name}_{score}", 0.5) for name in VARIANTS for score in ("ep", "dp")],
    smoke=SCALES[0],
    cpu=SCALES[1],
    full=SCALES[2],
    tolerance=0.05,
    note=(
        "With the paper's inputs without features, N(0, 1), and with spectral ones the decoder all but collapsed at "
        "one of five seeds each (natural accuracy 0.52 and 0.50): it calls nearly every pair none."
    ),
)
def ablations(seed: int, scale: Scale, device: str) -> Output:
    """Scores of variants on the networkx graph, at one learning rate."""
    split, found = split_of("networkx", seed, scale.nodes), {}
    for name, options in VARIANTS.items():
        report = evaluate(fitted(split, seed, sizes_of(scale), device, **options), split.test, slices=("low",))
        found |= {f"{name}_ep": report["ep_auc"], f"{name}_dp": report["dp_auc"]}
        found[f"{name}_natural"] = report["natural_accuracy"]
    return found
