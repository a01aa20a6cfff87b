"""Claims about theorems: the exact network, interpolation, and what kernels cannot do. Seconds each."""

import numpy as np
import torch
from offprints.claims import Scale, bound, exact, greater, less
from offprints.device import pick_device
from offprints.seeding import rng

from grokking_theory._method import METHOD
from grokking_theory.bounds import interpolation_width, kernel_lower_bound, singular_width
from grokking_theory.construct import fourier_construction, verify_construction
from grokking_theory.kernels import quadratic_ntk
from grokking_theory.margins import normalized_margin
from grokking_theory.model import QuadraticNetwork
from grokking_theory.regression import KernelRegressor
from grokking_theory.tasks import ModularAddition

KERNELS = {"ntk": "expected_ntk", "rbf": "onehot_rbf"}


@METHOD.claim(
    "construction",
    where="Proposition 3.8",
    says="A network of width 8p solves modular addition exactly with ‖θ‖_∞ ≤ 1; m copies of it do with m^{-1/3}.",
    expect=[
        exact("error", 0.0, tol=1e-10),
        exact("linf", 1.0, tol=1e-12),
        exact("linf_balanced", 4 ** (-1 / 3), tol=1e-12),
        exact("linf_of_8_copies", 4 ** (-1 / 3) / 2, tol=1e-12),
        exact("margin_over_4p", 1.0, tol=1e-9),
    ],
    smoke=Scale(seeds=1, largest=5),
    cpu=Scale(seeds=1, largest=23),
)
def construction(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Every p up to the largest; the worst of each quantity."""
    where, errors, linf, balanced, copied, margins = pick_device(device), [], [], [], [], []
    for p in range(2, scale.largest + 1):
        plain = [weight.to(where) for weight in fourier_construction(p)]
        errors.append(verify_construction(*plain, p))
        linf.append(QuadraticNetwork(p, 8 * p, device=where).load_weights(*plain).linf())
        network = QuadraticNetwork(p, 8 * p, device=where).load_weights(*fourier_construction(p, balanced=True))
        balanced.append(network.linf())
        pairs, labels = ModularAddition(p, n_train=1.0).train
        margins.append(normalized_margin(network, (pairs.to(where), labels.to(where))) / (4 * p))
        W, V = fourier_construction(p, balanced=True, copies=8)
        errors.append(verify_construction(W.to(where), V.to(where), p))
        copied.append(QuadraticNetwork(p, 64 * p, device=where).load_weights(W, V).linf())
    return {
        "error": max(errors),
        "linf": max(linf),
        "linf_balanced": max(balanced),
        "linf_of_8_copies": max(copied),
        "margin_over_4p": min(margins),
        "errors": errors,
    }


@METHOD.claim(
    "interpolation",
    where="Theorem 3.1",
    says="The eNTK at initialisation is singular for h < n/(3p) and interpolates any labels from h of order n/p on.",
    expect=[
        less("rank_at_3", 100),
        less("rank_at_6", 100),
        bound("limit_at_3", "rank_at_3", ceiling=1.5),
        bound("limit_at_6", "rank_at_6", ceiling=1.5),
        exact("rank_at_10", 100, tol=0),
        exact("rank_at_20", 100, tol=0),
        less("label_error_at_20", 1e-6),
        greater("least_eigenvalue_at_theorem", 0.0),
    ],
    smoke=Scale(seeds=1, p=5, n=100, widths=(3, 6, 10, 20)),
    cpu=Scale(seeds=8, p=5, n=100, widths=(3, 6, 7, 10, 20)),
)
def interpolation(seed: int, scale: Scale, device: str) -> dict[str, float]:
    """Rank of the kernel on n triples by width, and the error on random labels."""
    where = pick_device(device)
    task = ModularAddition(scale.p, "regression", scale.n, seed=seed)
    triples = task.train_inputs().to(where)
    labels = rng(seed).normal(size=scale.n)
    found = {"singular_up_to": float(singular_width(scale.p, scale.n))}
    for width in scale.widths:
        network = QuadraticNetwork(scale.p, width, "uniform", seed=seed, device=where)
        kernel = quadratic_ntk(network.W, network.V, triples)
        found[f"rank_at_{width}"] = float(torch.linalg.matrix_rank(kernel, hermitian=True))
        found[f"limit_at_{width}"] = float(min(3 * scale.p * width, scale.n))
        precomputed = kernel.cpu().numpy()
        fitted = KernelRegressor(lambda a, b, K=precomputed: K).fit(triples.cpu().numpy(), labels)
        found[f"label_error_at_{width}"] = float(np.abs(fitted.predict(triples.cpu().numpy()) - labels).max())
    width = interpolation_width(scale.n, task.rho_c)
    network = QuadraticNetwork(scale.p, width, "uniform", seed=seed, device=where)
    spectrum = torch.linalg.eigvalsh(quadratic_ntk(network.W, network.V, triples))
    return found | {"theorem_width": float(width), "least_eigenvalue_at_theorem": float(spectrum[0] / spectrum[-1])}


@METHOD.claim(
    "kernel-regression",
    where="Theorem 3.4",
    says="No equivariant kernel learns the regression task from fewer than a constant times p³ samples.",
    expect=[
        less("worst_train_error", 1e-8),
        *(greater(f"loss_{kernel}_20", 5.5) for kernel in KERNELS),  # p/2, for n <= (p - 1)² (p - 2)/2 = 450
        *(
            bound(f"bound_{share}", f"loss_{kernel}_{share}", ceiling=5, kind="lower")
            for kernel in KERNELS
            for share in (20, 50)
        ),
        *(greater(f"loss_{kernel}_{share}", f"bound_{share}") for kernel in KERNELS for share in (20, 50, 80)),
    ],
    smoke=Scale(seeds=1, p=5, shares=(20, 50, 80)),
    cpu=Scale(seeds=8, p=11, shares=(20, 50, 80)),
)
def kernel_regression(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Interpolating kernel regression on shares of all p³ triples: population loss against the bound."""
    return _kernel_losses(ModularAddition, "regression", seed, scale)


@METHOD.claim(
    "kernel-classification",
    where="Theorem 4.3",
    says="No equivariant kernel learns the classification task from fewer than a constant times p² samples.",
    expect=[
        less("worst_train_error", 1e-8),
        *(
            bound(f"bound_{share}", f"loss_{kernel}_{share}", ceiling=10, kind="lower")
            for kernel in KERNELS
            for share in (20, 50, 80)
        ),
        *(less(f"accuracy_{kernel}_{share}", 1 / 23) for kernel in KERNELS for share in (20, 50, 80)),
    ],
    smoke=Scale(seeds=1, p=5, shares=(20, 50, 80)),
    cpu=Scale(seeds=8, p=23, shares=(20, 50, 80)),
)
def kernel_classification(seed: int, scale: Scale, device: str) -> dict[str, float | list[float]]:
    """Kernel regression on one-hot labels: population loss summed over outputs, accuracy on held-out pairs."""
    return _kernel_losses(ModularAddition, "classification", seed, scale)


def _kernel_losses(task_of: type[ModularAddition], kind: str, seed: int, scale: Scale) -> dict[str, float | list[float]]:
    found, train_errors = {}, []
    for share in scale.shares:
        task = task_of(scale.p, kind, share / 100, seed=seed)
        found[f"bound_{share}"] = kernel_lower_bound(scale.p, task.n_train, kind)["loss_lb"]
        for name, kernel in KERNELS.items():
            run = kernel_run(task, kernel)
            found[f"loss_{name}_{share}"] = run["loss"]
            train_errors.append(run["train_error"])
            if kind == "classification":
                found[f"accuracy_{name}_{share}"] = run["accuracy"]
    return found | {"worst_train_error": max(train_errors)}


def kernel_run(task: ModularAddition, kernel: str) -> dict[str, float]:
    """Interpolate the training set by a kernel: training error, population loss, accuracy on held-out pairs.

    For regression, accuracy is the share of all pairs whose largest output is right.
    """
    one_hot = np.eye(task.p)
    (x, y), (everything, targets) = ((a.numpy(), b.numpy()) for a, b in (task.train, task.population()))
    if task.kind == "classification":
        y, targets = one_hot[y], one_hot[targets]
    fitted = KernelRegressor(kernel).fit(x, y)
    guesses = fitted.predict(everything)
    errors = (guesses - targets) ** 2
    train_errors = (fitted.predict(x) - y) ** 2
    if task.kind == "classification":
        held_out, labels = (part.numpy() for part in task.test)
        accuracy = float((fitted.predict(held_out).argmax(1) == labels).mean())
        return {"loss": float(errors.sum(1).mean()), "train_error": float(train_errors.mean()), "accuracy": accuracy}
    table, answers = (values.reshape((task.p,) * 3).argmax(2) for values in (guesses, targets))
    accuracy = float((table == answers).mean())
    return {"loss": float(errors.mean()), "train_error": float(train_errors.mean()), "accuracy": accuracy}
