"""Claims about theorems: the exact network, interpolation, and what kernels cannot do. Seconds each."""

from collections.abc import Callable

import numpy as np
import torch
from offprints.claims import Scale, bound, exact, greater, less
from offprints.device import in_chunks, pick_device
from offprints.seeding import rng

from grokking_theory._method import METHOD
from grokking_theory.bounds import interpolation_width, kernel_lower_bound, singular_width
from grokking_theory.construct import fourier_construction, verify_construction
from grokking_theory.kernels import quadratic_ntk
from grokking_theory.margins import normalized_margin
from grokking_theory.model import QuadraticNetwork
from grokking_theory.regression import KernelRegressor
from grokking_theory.tasks import Kind, ModularAddition

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
        W, V = fourier_construction(p)
        errors.append(verify_construction(W.to(where), V.to(where), p))
        linf.append(QuadraticNetwork(p, 8 * p, device=where).load_weights(W, V).linf())
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
    return _kernel_losses("regression", seed, scale)


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
    return _kernel_losses("classification", seed, scale)


def _kernel_losses(kind: Kind, seed: int, scale: Scale) -> dict[str, float | list[float]]:
    found, train_errors = {}, []
    for share in scale.shares:
        task = ModularAddition(scale.p, kind, share / 100, seed=seed)
        found[f"bound_{share}"] = kernel_lower_bound(scale.p, task.n_train, kind)["loss_lb"]
        for name, kernel in KERNELS.items():
            run = kernel_run(task, kernel)
            found[f"loss_{name}_{share}"] = run["loss"]
            train_errors.append(run["train_error"])
            if kind == "classification":
                found[f"accuracy_{name}_{share}"] = run["accuracy"]
    return found | {"worst_train_error": max(train_errors)}


def kernel_run(task: ModularAddition, kernel: str = "", start: QuadraticNetwork | None = None) -> dict[str, float]:
    """Interpolate the training set by a kernel: training error, population loss, accuracy on held-out pairs.

    With `start` (regression only) the kernel is the empirical NTK of that network, fitted to what its outputs lack:
    the network linearised there and trained to the end. For regression, accuracy is the share of all pairs whose
    largest output is right.
    """
    classes = task.kind == "classification"
    (x, y), (everything, targets) = ((a.numpy(), b.numpy()) for a, b in (task.train, task.population()))
    if classes:
        y, targets = np.eye(task.p)[y], np.eye(task.p)[targets]
    fitted = KernelRegressor(kernel if start is None else _ntk_of(start)).fit(x, y - _outputs(start, x))
    guesses = in_chunks(fitted.predict, everything, 4096) + _outputs(start, everything)
    train_error = float(np.mean((fitted.predict(x) + _outputs(start, x) - y) ** 2))
    loss = float(((guesses - targets) ** 2).reshape(task.size, -1).sum(1).mean())
    if classes:
        held_out, labels = (part.numpy() for part in task.test)
        right = fitted.predict(held_out).argmax(1) == labels
    else:
        table, answers = (values.reshape((task.p,) * 3) for values in (guesses, targets))
        right = table.argmax(2) == answers.argmax(2)
    return {"loss": loss, "train_error": train_error, "accuracy": float(right.mean())}


def _outputs(network: QuadraticNetwork | None, triples: np.ndarray) -> np.ndarray | float:
    if network is None:
        return 0.0
    with torch.no_grad():
        return network.forward_triples(torch.as_tensor(triples, device=network.W.device)).cpu().numpy()


def _ntk_of(network: QuadraticNetwork) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    W, V = network.W.detach().clone(), network.V.detach().clone()

    def kernel(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        t1, t2 = (torch.as_tensor(part, device=W.device) for part in (left, right))
        return quadratic_ntk(W, V, t1, t2, max_bytes=1 << 36).cpu().numpy()

    return kernel
