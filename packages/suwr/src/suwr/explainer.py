"""Fitting, prediction and masks of the explainers that Section 5 compares with; `baselines` says what each learns."""

from collections.abc import Iterator
from typing import Self

import numpy as np
import torch
from offprints.checks import message, require_range
from offprints.device import pick_device
from offprints.seeding import isolated
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore[missing-module-attribute]
from torch import nn
from torch.nn import functional as F

from suwr.inputs import Scaling, columns_of, numbers, seed_of, split_rows


def two_hidden(inputs: int, hidden: int, outputs: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """A network with two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, hidden), activation(), nn.Linear(hidden, hidden), activation(), nn.Linear(hidden, outputs)
    )


class Explainer(ClassifierMixin, BaseEstimator):
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

    def _stages(self) -> Iterator[tuple[list[str], str]]:
        """Names of the networks that one pass trains, and of the loss; one stage unless overridden."""
        yield list(self._nets), "joint"

    def _update(self, stage: str, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError

    def _train(self, x: torch.Tensor, y: torch.Tensor, rows: torch.Tensor, held: torch.Tensor) -> None:
        self.n_updates_, best = 0, float("nan")
        for names, stage in self._stages():
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
