"""What the paper compares with in Section 5: L2X, INVASE, REAL-X, whose selectors see all of x; global selection."""

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import torch
from offprints.checks import message, require_choice, require_range
from offprints.device import pick_device
from offprints.seeding import isolated
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore[missing-module-attribute]
from torch import nn
from torch.nn import functional as F

from suwr.inputs import Scaling, columns_of, numbers, seed_of, split_rows


def _net(inputs: int, hidden: int, outputs: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, hidden), activation(), nn.Linear(hidden, hidden), activation(), nn.Linear(hidden, outputs)
    )


class _Explainer(ClassifierMixin, BaseEstimator):
    """Fitting, prediction and masks; a subclass says what one update is."""

    lr: float
    hidden: int
    batch_size: int
    max_epochs: int
    patience: int | None
    validation_fraction: float
    weight_decay: float
    device: str
    random_state: int | np.random.RandomState | None

    def fit(self, X: object, y: object) -> Self:
        """Train on (n, d) rows and (n,) labels.

        Raises:
            TypeError, ValueError: for NaN or inf (by column), one class only, or parameters out of range.
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        X = numbers(X, columns_of(self), False, warn=False)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(message("y", "of at least two classes", f"one class, {self.classes_.tolist()[0]!r}"))
        seed = seed_of(self.random_state)
        self._scaling = Scaling.of(X, columns_of(self))
        device = pick_device(self.device)
        rows, held = split_rows(len(X), index, self.validation_fraction, seed)
        x = torch.as_tensor(self._scaling.apply(X), dtype=torch.float32, device=device)
        target = torch.as_tensor(index, device=device)
        with isolated(seed):
            self._nets = self._build(X.shape[1], len(self.classes_)).to(device)
            self._train(x, target, torch.as_tensor(rows), torch.as_tensor(held))
        self._nets.eval().requires_grad_(False)
        return self

    def _check_parameters(self) -> None:
        for name in ("hidden", "batch_size", "max_epochs"):
            require_range(name, getattr(self, name), low=1, integer=True)
        require_range("lr", self.lr, low=0, low_open=True)
        require_range("weight_decay", self.weight_decay, low=0)
        require_range("validation_fraction", self.validation_fraction, low=0, high=1, high_open=True)
        if self.patience is not None:
            require_range("patience", self.patience, low=0, integer=True)

    def _build(self, d: int, k: int) -> nn.ModuleDict:
        raise NotImplementedError

    def _stages(self, d: int) -> Iterator[tuple[list[str], str]]:
        """Names of the networks that one pass trains, and of the loss; one stage unless overridden."""
        yield list(self._nets), "joint"

    def _update(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _train(self, x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor, held: torch.Tensor) -> None:
        self.n_updates_, best = 0, float("nan")
        for names, stage in self._stages(x.shape[1]):
            parameters = [p for name in names for p in self._nets[name].parameters()]
            optimizer = torch.optim.Adam(parameters, lr=self.lr, weight_decay=self.weight_decay)
            best, kept, best_epoch = float("inf"), None, 0
            every = max(1, self.max_epochs // 60)
            for epoch in range(self.max_epochs):
                for part in rows[torch.randperm(len(rows))].split(self.batch_size):
                    loss = self._update(stage, x[part], y[part])
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
                    self.n_updates_ += 1
                if not len(held) or (epoch % every and epoch < self.max_epochs - 1):
                    continue
                value = self._validation(stage, x[held], y[held])
                if value < best:
                    best, best_epoch = value, epoch
                    kept = {name: v.clone() for name, v in self._nets.state_dict().items()}
                if self.patience is not None and epoch - best_epoch >= self.patience:
                    break
            if kept is not None:
                self._nets.load_state_dict(kept)
        self.validation_loss_ = best if len(held) else float("nan")

    @torch.no_grad()
    def _validation(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> float:
        mask = self._mask(x)
        return float(F.cross_entropy(self._nets["predict"](x * mask), y) + self._price(mask))

    def _price(self, mask: torch.Tensor) -> torch.Tensor:
        return mask.new_zeros(())

    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        """(n, d) of 0 and 1, deterministic, from standardised rows."""
        raise NotImplementedError

    def _rows(self, X: object) -> torch.Tensor:
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)
        rows = numbers(rows, columns_of(self), False, warn=False)
        weight = next(self._nets.parameters())
        return torch.as_tensor(self._scaling.apply(rows), dtype=weight.dtype, device=weight.device)

    @torch.no_grad()
    def local_support(self, X: object) -> np.ndarray:
        """(n, d) bool: the selected features.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        return (self._mask(self._rows(X)) > 0).cpu().numpy()

    @torch.no_grad()
    def predict_proba(self, X: object) -> np.ndarray:
        """(n, K) class probabilities from x * mask.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        x = self._rows(X)
        return torch.softmax(self._nets["predict"](x * self._mask(x)).double(), dim=1).cpu().numpy()

    def predict(self, X: object) -> np.ndarray:
        """(n,) labels.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class L2X(_Explainer):
    """Chen et al. 2018: k features of every row, by k Gumbel-softmax draws of temperature tau and their maximum.

    The selector sees all of x, and learns with the predictor: its choice can carry the label.

    Args:
        k: features of every row.
        tau: temperature.
        lr, weight_decay: of Adam.
        hidden: width of both networks, two hidden layers each.
        batch_size, max_epochs, patience, validation_fraction, device, random_state: as in `SUWRClassifier`.
    """

    def __init__(
        self, k: int = 4, tau: float = 0.1, lr: float = 1e-3, weight_decay: float = 1e-4, hidden: int = 100,
        batch_size: int = 1000, max_epochs: int = 300, patience: int | None = None, validation_fraction: float = 0.2,
        device: str = "auto", random_state: int | np.random.RandomState | None = None,
    ) -> None:  # fmt: skip
        self.k = k
        self.tau = tau
        self.lr = lr
        self.weight_decay = weight_decay
        self.hidden = hidden
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_range("k", self.k, low=1, integer=True)
        require_range("tau", self.tau, low=0, low_open=True)

    def _build(self, d: int, k: int) -> nn.ModuleDict:
        return nn.ModuleDict({"select": _net(d, self.hidden, d), "predict": _net(d, self.hidden, k)})

    def _update(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = torch.log_softmax(self._nets["select"](x), dim=1)
        noise = torch.empty(len(x), min(self.k, x.shape[1]), x.shape[1], device=x.device).exponential_().log().neg()
        soft = torch.softmax((logits[:, None] + noise) / self.tau, dim=2).amax(dim=1)
        return F.cross_entropy(self._nets["predict"](x * soft), y)

    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        best = self._nets["select"](x).topk(min(self.k, x.shape[1]), dim=1).indices
        return torch.zeros_like(x).scatter_(1, best, 1.0)


class INVASE(_Explainer):
    """Yoon et al. 2019: each feature with a probability pi_i(x); predictor, baseline of all x, and an actor.

    Actor: (l_predict - l_baseline) sum [m_i log pi_i + (1 - m_i) log(1 - pi_i)] + sparsity ||pi||_1, by REINFORCE. A
    feature is shown where pi_i(x) >= 1/2. The selector sees all of x.

    Args:
        sparsity: price of a feature in nats.
        lr, weight_decay, hidden, batch_size: as in `L2X`.
        max_epochs, patience, validation_fraction, device, random_state: as in `L2X`.
    """

    def __init__(
        self, sparsity: float = 0.1, lr: float = 1e-4, weight_decay: float = 1e-4, hidden: int = 100,
        batch_size: int = 1000, max_epochs: int = 300, patience: int | None = None, validation_fraction: float = 0.2,
        device: str = "auto", random_state: int | np.random.RandomState | None = None,
    ) -> None:  # fmt: skip
        self.sparsity = sparsity
        self.lr = lr
        self.weight_decay = weight_decay
        self.hidden = hidden
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_range("sparsity", self.sparsity, low=0)

    def _build(self, d: int, k: int) -> nn.ModuleDict:
        nets = {"select": _net(d, self.hidden, d, nn.SELU), "predict": _net(d, self.hidden, k, nn.SELU)}
        return nn.ModuleDict(nets | {"baseline": _net(d, self.hidden, k, nn.SELU)})

    def _update(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = self._nets["select"](x)
        pi = torch.sigmoid(logits)
        m = (torch.rand_like(pi) < pi).to(x.dtype)
        shown = F.cross_entropy(self._nets["predict"](x * m), y, reduction="none")
        full = F.cross_entropy(self._nets["baseline"](x), y, reduction="none")
        log_m = -F.binary_cross_entropy_with_logits(logits, m, reduction="none").sum(dim=1)
        actor = ((shown - full).detach() * log_m).mean() + self.sparsity * pi.sum(dim=1).mean()
        return shown.mean() + full.mean() + actor

    def _price(self, mask: torch.Tensor) -> torch.Tensor:
        return self.sparsity * mask.sum(dim=1).mean()

    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        return (self._nets["select"](x) >= 0).to(x.dtype)


class REALX(_Explainer):
    """Jethani et al. 2021: a predictor trained on random masks only, then a selector trained against it.

    The selector minimises cross-entropy + sparsity ||pi||_1 through a straight-through relaxed Bernoulli of temperature
    tau; a feature is shown where pi_i(x) >= 1/2. EVAL-X, a second predictor on random masks, evaluates
    (`evaluate_proba`). The predictor cannot learn the selector's code, but the selector still sees all of x.

    Args:
        sparsity: price of a feature in nats.
        tau: temperature.
        lr, weight_decay, hidden, batch_size: as in `L2X`.
        max_epochs, patience, validation_fraction, device, random_state: as in `L2X`;
            predictor, evaluator and selector get `max_epochs` each.
    """

    def __init__(
        self, sparsity: float = 0.1, tau: float = 0.1, lr: float = 1e-3, weight_decay: float = 1e-4, hidden: int = 100,
        batch_size: int = 1000, max_epochs: int = 300, patience: int | None = None, validation_fraction: float = 0.2,
        device: str = "auto", random_state: int | np.random.RandomState | None = None,
    ) -> None:  # fmt: skip
        self.sparsity = sparsity
        self.tau = tau
        self.lr = lr
        self.weight_decay = weight_decay
        self.hidden = hidden
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_range("sparsity", self.sparsity, low=0)
        require_range("tau", self.tau, low=0, low_open=True)

    def _build(self, d: int, k: int) -> nn.ModuleDict:
        names = {"predict": k, "evaluate": k, "select": d}
        return nn.ModuleDict({name: _net(d, self.hidden, outputs) for name, outputs in names.items()})

    def _stages(self, d: int) -> Iterator[tuple[list[str], str]]:
        yield ["predict"], "predict"
        yield ["evaluate"], "evaluate"
        yield ["select"], "select"

    def _update(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        if stage != "select":
            return F.cross_entropy(self._nets[stage](x * (torch.rand_like(x) < 0.5)), y)
        logits = self._nets["select"](x)
        u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        soft = torch.sigmoid((logits + torch.log(u) - torch.log1p(-u)) / self.tau)
        m = soft + ((soft > 0.5).to(x.dtype) - soft).detach()
        price = self.sparsity * torch.sigmoid(logits).sum(dim=1).mean()
        return F.cross_entropy(self._nets["predict"](x * m), y) + price

    @torch.no_grad()
    def _validation(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> float:
        if stage == "select":
            return super()._validation(stage, x, y)
        fixed = torch.Generator(x.device).manual_seed(0)  # the same masks in every epoch
        shown = torch.rand(x.shape, generator=fixed, device=x.device) < 0.5
        return float(F.cross_entropy(self._nets[stage](x * shown), y))

    def _price(self, mask: torch.Tensor) -> torch.Tensor:
        return self.sparsity * mask.sum(dim=1).mean()

    def _mask(self, x: torch.Tensor) -> torch.Tensor:
        return (self._nets["select"](x) >= 0).to(x.dtype)

    @torch.no_grad()
    def evaluate_proba(self, X: object, masks: np.ndarray) -> np.ndarray:
        """(n, K) EVAL-X: class probabilities from given (n, d) bool masks, by the second predictor.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`, or other masks.
        """
        x = self._rows(X)
        shown = np.asarray(masks)
        if shown.shape != tuple(x.shape) or shown.dtype != bool:
            raise ValueError(message("masks", f"bool of shape {tuple(x.shape)}", f"{shown.dtype} {shown.shape}"))
        known = x * torch.as_tensor(shown, device=x.device)
        return torch.softmax(self._nets["evaluate"](known).double(), dim=1).cpu().numpy()


class GlobalSelector(ClassifierMixin, BaseEstimator):
    """The same features for all rows, and a model refitted on them: leaks nothing, as no choice depends on x.

    Args:
        method: "kbest" (mutual information with y) or "l1" (largest coefficients of an L1 logistic regression).
        k: features.
        estimator: the model; None: logistic regression.
        random_state: of the mutual information and of the model.
    """

    def __init__(
        self, method: str = "kbest", k: int = 4, estimator: BaseEstimator | None = None, random_state: int | None = None
    ) -> None:
        self.method = method
        self.k = k
        self.estimator = estimator
        self.random_state = random_state

    def fit(self, X: object, y: object) -> Self:
        """Choose on (n, d) rows and (n,) labels, then refit.

        Raises:
            TypeError, ValueError: for NaN or inf (by column), one class only, or parameters out of range.
        """
        from sklearn.feature_selection import SelectKBest, mutual_info_classif
        from sklearn.linear_model import LogisticRegression

        require_choice("method", self.method, ("kbest", "l1"))
        require_range("k", self.k, low=1, integer=True)
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite=False)
        X = numbers(X, columns_of(self), False, warn=False)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) < 2:
            raise ValueError(message("y", "of at least two classes", f"one class, {self.classes_.tolist()[0]!r}"))
        self._scaling, k = Scaling.of(X, columns_of(self)), min(self.k, X.shape[1])
        x = self._scaling.apply(X)
        if self.method == "kbest":
            scores = (
                SelectKBest(lambda a, b: mutual_info_classif(a, b, random_state=self.random_state), k=k)
                .fit(x, y)
                .scores_
            )
        else:
            old = LogisticRegression().get_params()["penalty"] == "l2"  # before scikit-learn 1.8 the penalty has a name
            one: dict[str, Any] = {"penalty": "l1"} if old else {"l1_ratio": 1.0}
            sparse = LogisticRegression(**one, solver="saga", C=0.1, max_iter=300, tol=1e-3, random_state=0)
            scores = np.abs(sparse.fit(x, y).coef_).sum(axis=0)
        self.support_ = np.zeros(X.shape[1], dtype=bool)
        self.support_[np.argsort(-scores, kind="stable")[:k]] = True
        model = LogisticRegression(max_iter=1000) if self.estimator is None else clone(self.estimator)
        self.model_ = model.fit(x[:, self.support_], y)
        return self

    def _rows(self, X: object) -> np.ndarray:
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=0)
        return self._scaling.apply(numbers(rows, columns_of(self), False, warn=False))

    def local_support(self, X: object) -> np.ndarray:
        """(n, d) bool: the same in every row.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        return np.tile(self.support_, (len(self._rows(X)), 1))

    def predict_proba(self, X: object) -> np.ndarray:
        """(n, K) class probabilities from the selected features.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        x = self._rows(X)[:, self.support_]
        return self.model_.predict_proba(x) if len(x) else np.zeros((0, len(self.classes_)))

    def predict(self, X: object) -> np.ndarray:
        """(n,) labels.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(axis=1)]
