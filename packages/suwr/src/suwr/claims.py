"""The paper's claims and how each is measured; the runs themselves are in `experiments`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offprints.claims import Method, Runs, Scale, bound, exact, greater, less

from suwr import experiments, figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = Method(
    dist="suwr",
    title="Local Feature Selection without Label or Feature Leakage for Interpretable Machine Learning Predictions",
    authors="Harrie Oosterhuis, Lijun Lyu, Avishek Anand",
    field="Interpretability",
    summary="A few features for every row, a prediction from those alone, and a choice that tells nothing else.",
    venue="ICML 2024",
    arxiv="2407.11778",
    code="GarfieldLyu/SUWR",
    dtype="float32",
    bibtex="""@inproceedings{oosterhuis2024local,
  title = {Local Feature Selection without Label or Feature Leakage for Interpretable Machine Learning Predictions},
  author = {Oosterhuis, Harrie and Lyu, Lijun and Anand, Avishek},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series = {PMLR},
  volume = {235},
  year = {2024},
}""",
    deviations=[
        "The network reads (x * mask, mask); the released code reads x * mask, where a true zero looks hidden.",
        "LayerNorm everywhere; the released separate networks have BatchNorm, which mixes rows.",
        "Where nothing is shown the prediction is the class frequencies (the mean): the optimum there, not learned.",
        "Exploration lasts a share of max_epochs (full for 15 %, faded at 40 %; in the released code 5 % and 65 %); "
        "features cost nothing before it has faded, their full price from 50 % on (in the released code from 10 % on): "
        "at its schedule a product of two features was never found in as many updates as here.",
        "Synthetic sets: 4000 rows, 2500 updates of 128 rows; the paper: 10 000 rows, up to 1000 epochs of batch 1000.",
        "On the synthetic sets ours keeps its learning rate, dropout 0.2 (as released) and a price of 0.02 nats; peers "
        "choose their rate from {0.001, 0.003}, have no dropout (as published) and pay 0.001 nats, where INVASE and "
        "REAL-X are most accurate: at 0.02 INVASE overfits less than anybody, and selects next to nothing.",
        "No numbers of the paper's tables are quoted: it was read in its abstract and public summaries.",
    ],
)

PEERS = ("l2x", "invase", "realx")
SETS = ("syn1", "syn2", "syn3", "syn4", "syn5", "syn6")


@METHOD.claim(
    "front",
    where="Section 2",
    says="A selector that leaks beats the best honest one: XOR, no error from one feature; honest ones have ln 2.",
    expect=[
        exact("coded_loss", 0.0), exact("honest_loss", "ln2", tol=1e-9), exact("feature_nats", "ln2", tol=1e-9),
        exact("label_nats", "ln2", tol=1e-9),
    ],
    smoke=Scale(seeds=1),
    cpu=Scale(seeds=1),
)  # fmt: skip
def front(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Exact numbers; no seed."""
    return experiments.coded()


@METHOD.claim(
    "optimum",
    where="Section 2 (linear program), Section 3",
    says="The program gives the optimum without leakage; trained SUWR comes within 10 % of it (AND toy, d = 6).",
    expect=[
        *(less(f"ratio_{lam:g}", 1.10) for lam in experiments.AND_PRICES),
        *(bound(f"objective_{lam:g}", f"optimum_{lam:g}", tol=1e-6) for lam in experiments.AND_PRICES),
        exact("front_gap", 0.0, tol=1e-6),
    ],
    smoke=Scale(seeds=1, epochs=8),
    cpu=Scale(seeds=5, epochs=2500),
    tolerance=0.05,
    note="Open at the price of 1 by one seed of five, which ends 14 % above; the others reach the optimum itself.",
)
def optimum(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Mean squared error + lam * features over the optimum, at three prices."""
    return experiments.near_optimum(seed, scale.epochs, device)


@METHOD.claim(
    "images",
    where="Section 5 (images)",
    says="A few patches of an image suffice: digits, 3 x 3 patches, a budget of 6.",
    expect=[greater("accuracy", 0.85), less("patches", 5.0)],
    smoke=Scale(seeds=1, epochs=2, data="digits"),
    cpu=Scale(seeds=5, epochs=150, data="digits"),
    full=Scale(seeds=5, epochs=1000, data="mnist", needs="MNIST in the folder SUWR_DATA, one GPU, 1 to 2 hours a seed"),
    tolerance=0.05,
)
def images(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Test accuracy and mean number of patches."""
    run = experiments.mnist if scale.data == "mnist" else experiments.images
    return run(seed, scale.epochs, device)


@METHOD.claim(
    "accuracy",
    where="Section 5 (synthetic sets)",
    says="Accurate at high sparsity: near Bayes on syn1 to syn3; within 0.02 AUC of REAL-X at no more features.",
    expect=[*(greater(f"excess_{name}", 0.9) for name in SETS[:3]), greater("sets_close", 3.5)],
    smoke=Scale(seeds=1, n=300, epochs=2, sets=SETS),
    cpu=Scale(seeds=5, n=4000, epochs=100, sets=SETS),
    full=Scale(seeds=5, n=10_000, epochs=1000, sets=SETS, needs="10 CPU hours"),
    tolerance=0.05,
    note=(
        "The first runs, with the released code's phases, failed on syn1 (no feature shown at any seed); the phases of "
        "training were changed on seeds that no claim uses."
    ),
)
def accuracy(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """(AUC - 1/2) / (Bayes AUC - 1/2); sets of six in which ours is within 0.02 AUC with as many features or fewer."""
    return experiments.accuracy(seed, scale.sets, scale.n, scale.epochs, device)


@METHOD.claim(
    "others-leak",
    where="Section 5 (synthetic sets)",
    says="L2X, INVASE and REAL-X leak: their masks change with what they hide; SUWR's never do (syn4, syn5).",
    expect=[
        *(greater(f"{method}_{name}", 0.05) for method in PEERS for name in ("syn4", "syn5")),
        greater("control_syn4", 0.5), greater("control_syn5", 0.5), exact("suwr_syn4", 0.0), exact("suwr_syn5", 0.0),
    ],
    smoke=Scale(seeds=1, n=300, epochs=2, probes=200, label_rows=0),
    cpu=Scale(seeds=5, n=4000, epochs=100, probes=5000, label_rows=2000),
    full=Scale(seeds=5, n=10_000, epochs=1000, probes=5000, label_rows=4000, needs="4 CPU hours"),
    tolerance=0.1,
)  # fmt: skip
def others_leak(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Leak rates of row-swap probes; control: among rows that hide x11, how often its sign changes the mask."""
    return experiments.leaks(seed, scale.n, scale.epochs, scale.probes, scale.label_rows, device)


@METHOD.claim(
    "no-leak",
    where="Section 3",
    says="SUWR never leaks: no violation in row-swap probes of trained models, no leakage of its own probabilities.",
    expect=[
        *(exact(f"violations_{name}", 0.0) for name in ("digits", "cancer", "syn4")),
        exact("feature_nats", 0.0, tol=1e-6),
    ],
    smoke=Scale(seeds=1, epochs=2, n=300, syn_epochs=2, toy_epochs=8, probes=200),
    cpu=Scale(seeds=5, epochs=150, n=4000, syn_epochs=100, toy_epochs=2500, probes=5000),
    full=Scale(seeds=5, epochs=1000, n=10_000, syn_epochs=1000, toy_epochs=10_000, probes=100_000, needs="2 CPU hours"),
    tolerance=0.1,
)
def no_leak(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Pairs treated differently; L_F in nats."""
    s = scale
    return experiments.no_leak(seed, s.epochs, s.n, s.syn_epochs, s.toy_epochs, s.probes, device)


@METHOD.claim(
    "overfitting",
    where="Section 5",
    says="SUWR overfits less: test minus train log-loss on syn4 and syn5, 1000 rows, no early stopping.",
    expect=[less("suwr", method) for method in PEERS],
    smoke=Scale(seeds=1, n=200, epochs=2),
    cpu=Scale(seeds=5, n=1000, epochs=140),
    full=Scale(seeds=8, n=1000, epochs=1000, needs="4 CPU hours"),
    tolerance=0.1,
)
def overfitting(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Mean over both sets, 1120 updates."""
    return experiments.overfitting(seed, scale.n, scale.epochs, False, device)


@METHOD.claim(
    "overfitting-stopped",
    where="Section 5",
    says="SUWR overfits less where all methods stop early, too: a fifth of the rows chooses the weights.",
    expect=[less("suwr", method) for method in PEERS],
    smoke=Scale(seeds=1, n=200, epochs=2),
    cpu=Scale(seeds=5, n=1000, epochs=140),
    full=Scale(seeds=8, n=1000, epochs=1000, needs="4 CPU hours"),
    tolerance=0.1,
)
def overfitting_stopped(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Mean over both sets."""
    return experiments.overfitting(seed, scale.n, scale.epochs, True, device)


@METHOD.figure(
    "front",
    needs=["optimum"],
    caption="AND toy: loss against features. Below the curve there is leakage only, as of a selector that codes y.",
)
def draw_front(runs: Mapping[str, Runs]) -> "Figure":
    """Both optima, trained models, and the coded selector."""
    return figures.front(runs)


@METHOD.figure(
    "leaks",
    needs=["others-leak"],
    caption="Leak rate of row-swap probes, and label leakage estimated from data (nats), by method.",
)
def draw_leaks(runs: Mapping[str, Runs]) -> "Figure":
    """Bars."""
    return figures.leaks(runs)


@METHOD.figure("digits", needs=["images"], caption="Patches in their order, and what was predicted after each.")
def draw_digits(runs: Mapping[str, Runs]) -> "Figure":
    """A grid of six test images."""
    return figures.digits(runs)
