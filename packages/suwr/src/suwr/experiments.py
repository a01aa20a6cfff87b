"""The runs behind the claims. Trained models are shared between claims of one process; each follows from its seed."""

import math
import os
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from offprints.claims import MissingResource
from offprints.seeding import spawn
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split

from suwr.baselines import INVASE, L2X, REALX
from suwr.data import load_digits_grouped, load_idx, make_and_toy, make_syn
from suwr.enumeration import mask_distribution
from suwr.estimators import SUWRClassifier, SUWRRegressor
from suwr.exact import DiscreteProblem
from suwr.measures import exact_leakage
from suwr.probes import probe_selector
from suwr.surrogates import label_leakage
from suwr.units import image_patches

Metrics = dict[str, float | Sequence[float]]
METHODS = ("l2x", "invase", "realx")
BATCH, BUDGET, K = 128, 6, 4
PRICE, SCALE = 0.2, 10.0  # 0.02 nats a feature
PEER_PRICE = 0.001  # nats: what makes INVASE and REAL-X most accurate; at 0.02 they select next to nothing
RATES = (1e-3, 3e-3)
AND_PRICES = (0.2, 0.5, 1.0)
FRONT = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0)


def _ours(seed: int, epochs: int, device: str, **options: Any) -> SUWRClassifier:
    given: dict[str, Any] = {
        "max_features": BUDGET,
        "sparsity": PRICE,
        "loss_scale": SCALE,
        "batch_size": BATCH,
        "max_epochs": epochs,
    }
    return SUWRClassifier(**(given | {"patience": None, "random_state": seed, "device": device} | options))


def _peer(method: str, seed: int, epochs: int, rate: float, device: str, **options: Any) -> L2X | INVASE | REALX:
    common: dict[str, Any] = {
        "lr": rate,
        "batch_size": BATCH,
        "max_epochs": epochs,
        "random_state": seed,
        "device": device,
        **options,
    }
    if method == "l2x":
        return L2X(k=K, **common)
    return (INVASE if method == "invase" else REALX)(sparsity=PEER_PRICE, **common)


def _draw(name: str, n: int, seed: int):
    train, test = spawn(seed, 2)
    return make_syn(name, n, seed=train), make_syn(name, 4000, seed=test)


@lru_cache(maxsize=64)
def fitted(
    method: str, name: str, n: int, epochs: int, seed: int, device: str
) -> SUWRClassifier | L2X | INVASE | REALX:
    """A model on a synthetic set; peers take the learning rate of least validation loss, ours its default.

    A fifth of the rows chooses the weights, for all methods alike.
    """
    data, _ = _draw(name, n, seed)
    if method == "suwr":
        return _ours(seed, epochs, device).fit(data.X, data.y)
    models = [_peer(method, seed, epochs, rate, device).fit(data.X, data.y) for rate in RATES]
    return min(models, key=lambda model: model.validation_loss_)


def _probed(model: Any, X: np.ndarray, probes: int) -> float:
    return probe_selector(model, X, n_probes=probes).leak_rate


# ---- no leak


@lru_cache(maxsize=16)
def _digits(seed: int, epochs: int, device: str) -> tuple[SUWRClassifier, np.ndarray, np.ndarray]:
    X, y, patches = load_digits_grouped()
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y)
    model = _ours(seed, epochs, device, groups=patches, sparsity=0.5, lr=2e-3)
    return model.fit(X, y), X_test, y_test


@lru_cache(maxsize=64)
def _and_toy(lam: float, seed: int, epochs: int, device: str) -> SUWRRegressor:
    """All 64 rows in every batch; the price in units of the variance of y, which the regressor measures loss in."""
    X, y = make_and_toy(6)
    model = SUWRRegressor(
        sparsity=lam / float(np.var(y)), loss_scale=1.0, batch_size=64, max_epochs=epochs, explore_epochs=epochs // 4,
        validation_fraction=0.0, lr=2e-3, random_state=seed, device=device,
    )  # fmt: skip
    return model.fit(X, y)


def no_leak(seed: int, epochs: int, n: int, syn_epochs: int, toy_epochs: int, probes: int, device: str) -> Metrics:
    """Violations among row-swap probes of three trained models; L_F of a toy model from its own mask probabilities."""
    digits, images, _ = _digits(seed, epochs, device)
    data: Any = load_breast_cancer()
    X = np.asarray(data.data)
    cancer = _ours(seed, 60, device).fit(X, data.target)
    syn, (_, test) = fitted("suwr", "syn4", n, syn_epochs, seed, device), _draw("syn4", n, seed)
    found: Metrics = {
        f"violations_{name}": probes * _probed(model, rows, probes)
        for name, model, rows in (("digits", digits, images), ("cancer", cancer, X), ("syn4", syn, test.X))
    }
    found["features_digits"] = float(digits.local_support(images).sum(axis=1).mean())
    found["features_cancer"] = float(cancer.local_support(X).sum(axis=1).mean())
    toy = _and_toy(AND_PRICES[0], seed, toy_epochs, device)
    rows, labels = make_and_toy(6)
    x, _ = toy._tensors(rows.astype(float), torch.device(device), torch.float32)
    masks, proba = mask_distribution(toy.policy_, x, toy.budget_, toy._space)
    table = proba.double().cpu().numpy()
    p_y = np.eye(4)[np.sqrt(labels).astype(int)]
    leaked = exact_leakage(rows, np.ones(64), p_y, table / table.sum(axis=1, keepdims=True), masks.cpu().numpy())
    return found | {"feature_nats": leaked.feature, "label_nats": leaked.label, "worst_gap": leaked.worst_gap}


# ---- the others leak


def _control(model: Any, X: np.ndarray) -> tuple[float, float]:
    """Among rows whose x11 is hidden: how often flipping its sign changes the mask; and their share."""
    masks, flipped = model.local_support(X), X.copy()
    flipped[:, 10] *= -1
    hidden = ~masks[:, 10]
    changed = (model.local_support(flipped) != masks).any(axis=1)
    return float(changed[hidden].mean()) if hidden.any() else 0.0, float(hidden.mean())


def leaks(seed: int, n: int, epochs: int, probes: int, label_rows: int, device: str) -> Metrics:
    """Row-swap leak rates and control-flow rates on syn4 and syn5; estimated L_Y on syn4."""
    found: Metrics = {}
    for name in ("syn4", "syn5"):
        _, test = _draw(name, n, seed)
        rates = []
        for method in ("suwr", *METHODS):
            model = fitted(method, name, n, epochs, seed, device)
            found[f"{method}_{name}"] = _probed(model, test.X, probes)
            control, hidden = _control(model, test.X)
            found[f"{method}_{name}_control"], found[f"{method}_{name}_x11_hidden"] = control, hidden
            if method != "suwr":
                rates.append(control)
            if name == "syn4" and label_rows:
                rows = slice(0, label_rows)
                estimate = label_leakage(model, test.X[rows], test.y[rows], folds=2, n_bootstrap=200)
                found[f"{method}_label_nats"] = estimate.gap
        found[f"control_{name}"] = max(rates)
    return found


# ---- optima


def coded() -> Metrics:
    """XOR of two of three bits: a selector that codes the label, against the best one without leakage."""
    X = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)])
    y = X[:, 0] ^ X[:, 1]
    masks = np.eye(3, dtype=bool)[:2]
    table = np.eye(2)[y]
    leaked = exact_leakage(X, np.ones(8), np.eye(2)[y], table, masks)
    honest = DiscreteProblem.from_arrays(X, y, loss="log", max_features=1).solve_lp(0.0)
    posterior = np.array([y[(masks[k] == masks[y]).all(axis=1)].mean() for k in (0, 1)])  # P(y = 1 | S)
    sure = np.clip(np.column_stack([1 - posterior, posterior])[y, y], 1e-300, 1.0)
    return {
        "coded_loss": float(-np.log(sure).mean()), "honest_loss": honest.loss, "ln2": math.log(2),
        "coded_features": 1.0, "feature_nats": leaked.feature, "label_nats": leaked.label,
    }  # fmt: skip


def near_optimum(seed: int, epochs: int, device: str) -> Metrics:
    """Objectives of trained models on the AND toy against the optima; series: the fronts."""
    X, y = make_and_toy(6)
    problem = DiscreteProblem.from_arrays(X, y)
    found: Metrics = {}
    points = []
    for lam in AND_PRICES:
        model = _and_toy(lam, seed, epochs, device)
        loss, count = float(np.mean((model.predict(X) - y) ** 2)), float(model.local_support(X).sum(axis=1).mean())
        best = problem.solve_sequential(lam).objective
        found |= {f"objective_{lam:g}": loss + lam * count, f"optimum_{lam:g}": best}
        found[f"ratio_{lam:g}"] = (loss + lam * count) / best
        points += [count, loss]
    lp, dp = problem.pareto(FRONT, "lp"), problem.pareto(FRONT, "sequential")
    found["front_gap"] = max(abs(a.objective - b.objective) for a, b in zip(lp, dp, strict=True))
    for name, front in (("lp", lp), ("dp", dp)):
        found[f"{name}_features"] = [point.n_features for point in front]
        found[f"{name}_loss"] = [point.loss for point in front]
    coded_masks = np.eye(6, dtype=bool)[np.sqrt(y).astype(int)]  # one feature, chosen by y
    codes = coded_masks @ (2 ** np.arange(6))
    left = sum(float(((y[codes == code] - y[codes == code].mean()) ** 2).sum()) for code in np.unique(codes))
    return found | {"trained": points, "coded": [float(coded_masks.sum(axis=1).mean()), left / len(y)]}


# ---- overfitting


def overfitting(seed: int, n: int, epochs: int, stop: bool, device: str) -> Metrics:
    """Test minus train log-loss, mean over syn4 and syn5; peers at their rate of least test loss, ours at its default.

    Without early stopping all rows train, for `epochs`; with it a fifth of them chooses the weights.
    """
    options: dict[str, Any] = {"validation_fraction": 0.2 if stop else 0.0}
    gaps: dict[str, list[float]] = {}
    for name in ("syn4", "syn5"):
        data, test = _draw(name, n, seed)
        for method in ("suwr", *METHODS):
            models = (
                [_ours(seed, epochs, device, **options)]
                if method == "suwr"
                else [_peer(method, seed, epochs, rate, device, **options) for rate in RATES]
            )
            tried = []
            for model in models:
                model.fit(data.X, data.y)
                losses = [log_loss(part.y, model.predict_proba(part.X)) for part in (test, data)]
                tried.append((losses[0], losses[0] - losses[1]))
            loss, gap = min(tried)
            gaps.setdefault(method, []).append(gap)
            gaps.setdefault(f"{method}_test", []).append(loss)
    return {name: float(np.mean(values)) for name, values in gaps.items()}


# ---- accuracy at few features


def accuracy(seed: int, sets: Sequence[str], n: int, epochs: int, device: str) -> Metrics:
    """AUC, features, TPR and FDR (in percent) of ours and REAL-X, and the Bayes AUC."""
    found: Metrics = {}
    close = 0
    for name in sets:
        _, test = _draw(name, n, seed)
        bayes = roc_auc_score(test.y, test.p_y[:, 1])
        scores = {}
        for method in ("suwr", "realx"):
            model = fitted(method, name, n, epochs, seed, device)
            masks = model.local_support(test.X)
            auc, count = roc_auc_score(test.y, model.predict_proba(test.X)[:, 1]), float(masks.sum(axis=1).mean())
            hits = (masks & test.ground_truth).sum(axis=1)
            scores[method] = (auc, count)
            found |= {f"{method}_{name}_auc": auc, f"{method}_{name}_features": count}
            found[f"{method}_{name}_tpr"] = float((100 * hits / (test.ground_truth.sum(axis=1) + 1e-8)).mean())
            wrong = masks.sum(axis=1) - hits
            found[f"{method}_{name}_fdr"] = float((100 * wrong / (masks.sum(axis=1) + 1e-8)).mean())
        found[f"bayes_{name}_auc"] = bayes
        found[f"excess_{name}"] = (scores["suwr"][0] - 0.5) / (bayes - 0.5)
        close += scores["suwr"][0] >= scores["realx"][0] - 0.02 and scores["suwr"][1] <= scores["realx"][1]
    return found | {"sets_close": float(close)}


# ---- images


def images(seed: int, epochs: int, device: str) -> Metrics:
    """Accuracy and mean number of patches on digits; series: six test images, their patches and what was thought."""
    model, X, y = _digits(seed, epochs, device)
    order, shown = model.selection_order(X), slice(0, 6)
    steps = [narrative.steps for narrative in model.explain(X[shown])]
    guesses = np.full((6, BUDGET + 1), -1.0)
    for i, told in enumerate(steps):
        guesses[i, : len(told)] = [float(np.argmax(step.prediction)) for step in told]
    return {
        "accuracy": float(model.score(X, y)), "patches": float((order >= 0).sum(axis=1).mean()),
        "pixels": float(model.local_support(X).sum(axis=1).mean()), "image": X[shown].ravel().tolist(),
        "order": order[shown].ravel().astype(float).tolist(), "guess": guesses.ravel().tolist(),
        "label": y[shown].astype(float).tolist(),
    }  # fmt: skip


def mnist(seed: int, epochs: int, device: str, load: Callable[[Path], np.ndarray] = load_idx) -> Metrics:
    """The paper's images: width 200, depth 8, 3 x 3 patches, a budget of 50; files in the folder that SUWR_DATA names.

    Raises:
        MissingResource: without the files.
    """
    folder = Path(os.environ.get("SUWR_DATA", "data"))
    parts = {}
    for part in ("train", "t10k"):
        for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"):
            files = [folder / f"{part}-{kind}{suffix}" for suffix in ("", ".gz")]
            there = next((file for file in files if file.exists()), None)
            if there is None:
                raise MissingResource(
                    f"{files[0]} or {files[1].name} of MNIST is not there: set SUWR_DATA to its folder"
                )
            parts[part, kind[:6]] = load(there)
    X, X_test = (parts[part, "images"].reshape(len(parts[part, "images"]), -1) / 255.0 for part in ("train", "t10k"))
    y, y_test = parts["train", "labels"], parts["t10k", "labels"]
    side = parts["train", "images"].shape[1:]
    model = SUWRClassifier(
        max_features=min(50, X.shape[1]), sparsity=0.2, groups=image_patches((int(side[0]), int(side[1])), 3),
        hidden=200, layers=8, max_epochs=epochs, random_state=seed, device=device,
    ).fit(X, y)  # fmt: skip
    patches = float((model.selection_order(X_test) >= 0).sum(axis=1).mean())
    return {"accuracy": float(model.score(X_test, y_test)), "patches": patches}
