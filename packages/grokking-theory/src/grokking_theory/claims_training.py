"""Claims about training: late departure from the kernel, the rich regime, sample complexity."""

from typing import Literal, NamedTuple

import numpy as np
import torch
from offprints.claims import Scale, greater, less, monotone, rate, scaled, slope
from offprints.device import float_dtype, pick_device

from grokking_theory._method import METHOD
from grokking_theory.bounds import kernel_lower_bound
from grokking_theory.claims_theory import KERNELS, kernel_run
from grokking_theory.history import History
from grokking_theory.model import Init, QuadraticNetwork
from grokking_theory.report import grokking_report
from grokking_theory.tasks import ModularAddition, sample_size
from grokking_theory.tracker import NTKTracker
from grokking_theory.train import Callback, fit
from grokking_theory.transformer import TinyTransformer

FULL_GPU = "one GPU with 16 GB, 1 to 3 hours"


class Recipe(NamedTuple):
    """How a run is optimised; the fields are arguments of `fit`."""

    optimizer: Literal["gd", "ngd", "adamw"]
    lr: float
    weight_decay: float = 0.0
    linf: float = 0.0

    def fit(self, model: torch.nn.Module, task: ModularAddition, scale: Scale, *callbacks: Callback) -> History:
        """Train for the steps of a scale; evaluated at its `every`, or at the end."""
        every = getattr(scale, "every", scale.steps)
        return fit(model, task, steps=scale.steps, every=every, callbacks=callbacks, **self._asdict())


ADAMW = Recipe("adamw", lr=1e-3, weight_decay=1.0)
FAST_ADAMW = ADAMW._replace(lr=1e-2)
NORMALISED = Recipe("ngd", lr=10.0, linf=1e-20)  # appendix A, classification
DESCENT = Recipe("gd", lr=1.0, linf=1e-4)  # appendix A, regression
TRANSFORMER = Recipe("gd", lr=0.25, linf=1e-20)  # appendix A


def _network(p: int, width: int, seed: int, device: str, init: Init = "torch", alpha: float = 1.0) -> QuadraticNetwork:
    where = pick_device(device)
    return QuadraticNetwork(p, width, init, alpha, seed=seed, device=where, dtype=float_dtype(where))


def _first(history: History, name: str, threshold: float) -> float:
    """First step at which a column reaches the threshold; twice the last step if it never does."""
    reached = history.step[getattr(history, name) >= threshold]
    return float(reached[0]) if len(reached) else 2 * float(history.step[-1])


@METHOD.claim(
    "grokking",
    where="Figures 1 and 2",
    says="Networks fit as kernels and generalise on leaving that regime, the later the larger their initial weights.",
    expect=[
        *(less(f"fit_step_{a}", 300) for a in ("4", "1", "0.2")),
        less("test_acc_at_fit_4", 0.05),
        greater("test_acc_at_fit_0.2", 0.5),
        *(greater(f"best_test_acc_{a}", 0.97) for a in ("4", "1", "0.2")),
        monotone(["delay_0.2", "delay_1", "delay_4"], "increasing"),
        less("ntk_distance_at_fit_4", "ntk_distance_at_grok_4"),
    ],
    smoke=Scale(seeds=1, p=11, width=44, alphas=(4.0, 1.0, 0.2), steps=60, every=20, init="torch", recipe=ADAMW),
    cpu=Scale(seeds=8, p=23, width=184, alphas=(4.0, 1.0, 0.2), steps=2600, every=50, init="torch", recipe=ADAMW),
    full=Scale(
        seeds=1,
        needs=FULL_GPU,
        p=97,
        width=388,
        alphas=(4.0, 1.0, 0.2),
        steps=100_000,
        every=500,
        init="he",
        recipe=NORMALISED,
    ),
    tolerance=0.05,
    note="Open in one gate: with α = 4 only 3 of 8 seeds reach 97 % test accuracy within 2600 steps (best 95 to 99 %, "
    "all still rising); those with α = 1 and 0.2 all do. On seeds 100-107 the gate is just passed.",
)
def grokking(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Three factors on the initial weights, one split: steps to fit and to 97 % on held-out pairs, kernel drift."""
    task = ModularAddition(scale.p, "classification", sample_size(scale.p, "classification"), seed=seed)
    found: dict[str, float | list[float]] = {}
    for alpha in scale.alphas:
        network = _network(scale.p, scale.width, seed, device, scale.init, alpha)
        tracker = NTKTracker(network, task.train_inputs(64).to(network.W.device), every=scale.every)
        history = scale.recipe.fit(network, task, scale, tracker)
        fitted, grokked = _first(history, "train_acc", 1.0), _first(history, "test_acc", 0.97)
        name = f"{alpha:g}"
        found |= {
            f"fit_step_{name}": fitted,
            f"grok_step_{name}": grokked,
            f"delay_{name}": grokked - fitted,
            f"test_acc_at_fit_{name}": history.at("test_acc", fitted),
            f"best_test_acc_{name}": float(history.test_acc.max()),
            f"final_test_acc_{name}": float(history.test_acc[-1]),
            f"ntk_distance_at_fit_{name}": history.at("ntk_distance", fitted),
            f"ntk_distance_at_grok_{name}": history.at("ntk_distance", grokked),
            f"train_acc_curve_{name}": history.train_acc.tolist(),
            f"test_acc_curve_{name}": history.test_acc.tolist(),
            f"ntk_change_curve_{name}": history.ntk_change.tolist(),
            f"ntk_distance_curve_{name}": history.ntk_distance.tolist(),
            "steps": history.step.tolist(),
        }
    return found


@METHOD.claim(
    "transformer",
    where="Figure 5",
    says="A one-layer transformer shows the same pattern: its kernel is nearer to the initial one at fit than at grok.",
    expect=[
        rate("grokked", at_least=0.25),  # with 8 seeds: at least 5 of 8, or the claim is open
        less("ntk_distance_at_fit", "ntk_distance_at_grok"),
    ],
    smoke=Scale(seeds=1, p=11, dim=16, heads=2, steps=30, every=10, points=8, recipe=ADAMW),
    cpu=Scale(
        seeds=8, p=17, dim=64, heads=4, steps=3000, every=100, points=48,
        recipe=ADAMW._replace(lr=3e-3, weight_decay=3.0),
    ),
    full=Scale(
        seeds=1, needs=FULL_GPU, p=97, dim=128, heads=4, steps=100_000, every=1000, points=256, recipe=TRANSFORMER
    ),
    tolerance=0.1,
    note="All 8 seeds grok, but 1 - cos(Θ_t, Θ_0) is 0.29 to 0.42 at fit already and 0.19 to 0.31 at grok: at its "
    "default initialisation this transformer has left the kernel regime before it fits. The plain ‖Θ_t - Θ_0‖_F of "
    "the paper does grow from fit to grok, in 6 of 8. Earlier runs, same gates: at lr 1e-3 and decay 1 none of 8 seeds "
    "grokked in 3000 steps, at lr 3e-3 two did; lr 3e-3 with decay 3 was then chosen on other seeds.",
)  # fmt: skip
def transformer(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Fit at 99 % training, grok at 95 % lasting test accuracy; where it never groks, the end of training counts."""
    where = pick_device(device)
    task = ModularAddition(scale.p, "classification", sample_size(scale.p, "classification"), seed=seed)
    model = TinyTransformer(scale.p, scale.dim, scale.heads, seed=seed, device=where, dtype=float_dtype(where))
    tracker = NTKTracker(model, task.train_inputs(scale.points).to(where), every=scale.every)
    history = scale.recipe.fit(model, task, scale, tracker)
    report = grokking_report(history, fit=0.99, grok=0.95)
    last = float(history.step[-1])
    fitted, grokked = report.fit_step or last, last if report.grok_step is None else report.grok_step
    return {
        "grokked": float(report.grok_step is not None),
        "fit_step": fitted,
        "grok_step": grokked,
        "test_acc_at_fit": history.at("test_acc", fitted),
        "final_test_acc": float(history.test_acc[-1]),
        "ntk_distance_at_fit": history.at("ntk_distance", fitted),
        "ntk_distance_at_grok": history.at("ntk_distance", grokked),
        "ntk_relative_at_fit": history.at("ntk_relative", fitted),
        "ntk_relative_at_grok": history.at("ntk_relative", grokked),
        "steps": history.step.tolist(),
        "train_acc_curve": history.train_acc.tolist(),
        "test_acc_curve": history.test_acc.tolist(),
        "ntk_change_curve": history.ntk_change.tolist(),
    }


@METHOD.claim(
    "rich-regime",
    where="Theorem 3.6, Figure 3",
    says="Beyond the kernel regime a network learns where every kernel fails; ‖θ‖_∞ stays bounded in p.",
    expect=[
        greater("accuracy", 0.97),
        *(less("loss", scaled(f"{peer}_loss", 0.5)) for peer in ("ntk", "rbf", "linearised")),
        less("loss_over_p", 0.2),
        *(less(f"linf_{size}", 2.0) for size in ("small", "medium", "large")),
        less("linf_large", scaled("linf_small", 1.5)),
    ],
    smoke=Scale(seeds=1, ps=(7, 11, 13), share=0.1, steps=5, recipe=FAST_ADAMW),
    cpu=Scale(seeds=8, ps=(7, 11, 13), share=0.6, steps=4000, recipe=FAST_ADAMW),
    full=Scale(seeds=1, needs=FULL_GPU, ps=(31, 47, 71), share=None, steps=200_000, recipe=DESCENT),
    tolerance=0.05,
    note="At p = 11 the 60 % of triples lie at the threshold: half of the seeds memorise first and generalise only "
    "in part within 4000 steps (the worst one reaches 96 % accuracy after 12000). See rich-regime-13.",
)
def rich_regime(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Three moduli; at the middle one the kernels see the same split."""
    found: dict[str, float | list[float]] = {"ps": [float(p) for p in scale.ps]}
    for size, p in zip(("small", "medium", "large"), scale.ps, strict=True):
        measured = _against_kernels(p, seed, scale, device, peers=size == "medium")
        found |= measured if size == "medium" else {}
        found |= {f"{name}_{size}": measured[name] for name in ("accuracy", "loss", "linf")}
    return found


def _against_kernels(p: int, seed: int, scale: Scale, device: str, peers: bool) -> dict[str, float]:
    """Train the network on regression; with `peers` also two kernels and the network linearised at its start."""
    share = sample_size(p, "regression") if scale.share is None else scale.share
    task = ModularAddition(p, "regression", share, seed=seed)
    network = _network(p, 8 * p, seed, device)
    found = {"kernel_bound": kernel_lower_bound(p, task.n_train)["loss_lb"]}
    if peers:
        found |= {f"{name}_loss": kernel_run(task, kernel)["loss"] for name, kernel in KERNELS.items()}
        found["linearised_loss"] = kernel_run(task, start=network)["loss"]
    scale.recipe.fit(network, task, scale)
    loss = network.population_loss()
    found |= {"accuracy": network.population_accuracy(), "loss": loss, "loss_over_p": loss / p, "linf": network.linf()}
    return found


@METHOD.claim(
    "rich-regime-13",
    where="Theorem 3.6, Figure 3",
    says="The same at p = 13, above the modulus at which 60 % of all triples are only just enough.",
    expect=[
        greater("accuracy", 0.97),
        *(less("loss", scaled(f"{peer}_loss", 0.5)) for peer in ("ntk", "rbf", "linearised")),
        less("loss_over_p", 0.2),
    ],
    smoke=Scale(seeds=1, p=7, share=0.2, steps=5, recipe=FAST_ADAMW),
    cpu=Scale(seeds=8, p=13, share=0.6, steps=4000, recipe=FAST_ADAMW),
    tolerance=0.05,
    note="Added after the first run of rich-regime, with its gates: there p = 11 proved to lie at the threshold "
    "(4 of 8 seeds above 97 %), while at p = 13 all 8 networks had reached accuracy 1.",
)
def rich_regime_13(seed: int, scale: Scale, device: str) -> dict[str, float]:
    """One modulus, with all peers."""
    return _against_kernels(scale.p, seed, scale, device, peers=True)


@METHOD.claim(
    "sample-complexity",
    where="Theorem 4.5, Figure 1 (right)",
    says="Networks need of the order of p^{5/3} samples to classify, kernels p².",
    paper={"exponent": 5 / 3},
    expect=[
        slope({11: "n50_11", 17: "n50_17", 23: "n50_23"}, low=1.2, high=2.0),
        *(less(f"n50_share_{p}", 1.0) for p in (11, 17, 23)),
        *(less(f"kernel_accuracy_{kernel}_{p}", 1 / p) for kernel in KERNELS for p in (11, 17, 23)),
    ],
    smoke=Scale(seeds=1, ps=(11, 17, 23), cells=2, low=0.4, high=0.95, steps=2, recipe=ADAMW),
    cpu=Scale(seeds=5, ps=(11, 17, 23), cells=6, low=0.4, high=0.95, steps=3000, recipe=ADAMW),
    full=Scale(
        seeds=1,
        needs=FULL_GPU,
        ps=(11, 17, 23, 47, 71, 97, 113),
        cells=10,
        low=0.05,
        high=0.95,
        steps=100_000,
        recipe=NORMALISED,
    ),
    tolerance=0.1,
)
def sample_complexity(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """n_50, where final test accuracy crosses 50 % on a geometric grid of n, between cells linearly in log n."""
    found: dict[str, float | list[float]] = {}
    for p in scale.ps:
        grid = [round(share * p**2) for share in np.geomspace(scale.low, scale.high, scale.cells)]
        accuracies, kernels = [], {name: [] for name in KERNELS}
        for n in grid:
            task = ModularAddition(p, "classification", n, seed=seed)
            history = scale.recipe.fit(_network(p, 8 * p, seed, device), task, scale)
            accuracies.append(float(history.test_acc[-1]))
            for name, kernel in KERNELS.items():
                kernels[name].append(kernel_run(task, kernel)["accuracy"])
        n50 = _crossing(np.array(grid, dtype=float), np.array(accuracies), 0.5, p**2)
        found |= {f"n50_{p}": n50, f"n50_share_{p}": n50 / p**2, f"grid_{p}": grid, f"accuracy_curve_{p}": accuracies}
        found |= {f"kernel_accuracy_{name}_{p}": float(np.mean(values)) for name, values in kernels.items()}
    return found


def _crossing(n: np.ndarray, accuracy: np.ndarray, level: float, otherwise: float) -> float:
    """The n at which accuracy first reaches the level; the first n if it starts above, `otherwise` if never."""
    above = np.flatnonzero(accuracy >= level)
    if not len(above):
        return float(otherwise)
    i = int(above[0])
    if i == 0:
        return float(n[0])
    part = (level - accuracy[i - 1]) / (accuracy[i] - accuracy[i - 1])
    return float(np.exp(np.log(n[i - 1]) + part * np.log(n[i] / n[i - 1])))


@METHOD.claim(
    "regression-sample-size",
    where="Theorem 3.6, appendix A.1",
    says="2 p^{2.25} samples suffice the network in regression, here at p = 13 with the best of four weight decays.",
    expect=[greater("best_accuracy", 0.97)],
    smoke=Scale(seeds=1, p=5, steps=5, decays=(0.1, 1.0), recipe=FAST_ADAMW),
    cpu=Scale(seeds=5, p=13, steps=6000, decays=(0.1, 0.5, 1.0, 2.0), recipe=FAST_ADAMW),
    full=Scale(seeds=1, needs=FULL_GPU, p=47, steps=200_000, decays=(0.0,), recipe=DESCENT),
    tolerance=0.1,
    note="Known not to hold at this p: with n = 641 of 2197 triples AdamW memorises, whatever its decay; between 879 "
    "and 1098 triples it begins to generalise. The theorem's rate is asymptotic; the paper's runs start at p = 47.",
)
def regression_sample_size(seed: int, scale: Scale, device: str) -> dict[str, float]:
    """The paper's n for regression at a small p: share of pairs whose largest output is right."""
    task = ModularAddition(scale.p, "regression", sample_size(scale.p, "regression"), seed=seed)
    found = {}
    for decay in scale.decays:
        network = _network(scale.p, 8 * scale.p, seed, device)
        history = scale.recipe._replace(weight_decay=decay).fit(network, task, scale)
        found[f"accuracy_decay_{decay:g}"] = network.population_accuracy()
        found[f"train_loss_decay_{decay:g}"] = float(history.train_loss[-1])
        found[f"linf_decay_{decay:g}"] = network.linf()
    return found | {"best_accuracy": max(value for name, value in found.items() if name.startswith("accuracy"))}
