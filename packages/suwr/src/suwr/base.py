"""What the classifier and the regressor of Section 3 share: fitting, unmasking, explanations, saving."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from offprints.checks import message, require_choice
from offprints.device import pick_device
from offprints.seeding import isolated, rng, spawn
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore[missing-module-attribute]

from suwr import enumeration, saving
from suwr.fitting import RANDOM, History, Plan, Rows, train
from suwr.inference import Unmasked, unmask
from suwr.inputs import Scaling, columns_of, numbers, seed_of, split_rows
from suwr.narrative import Narrative, Session, narrate
from suwr.path import SparsityPath, sweep
from suwr.policy import SequentialPolicy
from suwr.space import Space
from suwr.tree import PolicyTree, grow
from suwr.units import unit_costs, unit_matrix


class SUWREstimator(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """What classifier and regressor share."""

    _kind = "log"
    n_features_in_: int
    feature_names_in_: np.ndarray
    classes_: np.ndarray
    mean_: float
    scale_: float
    seed_: int
    budget_: int
    n_units_: int
    policy_: SequentialPolicy
    history_: History
    _space: Space
    _scaling: Scaling

    def __init__(
        self, max_features: int | None = None, sparsity: float = 0.01,
        groups: Sequence[Sequence[int] | np.ndarray] | None = None, feature_costs: Sequence[float] | None = None,
        step_size: int = 1, hidden: int = 100, layers: int = 3,
        trunk: str = "shared", stop: str = "threshold", loss_scale: float = 10.0, lr: float = 1e-3,
        weight_decay: float = 1e-4, batch_size: int = 1000, max_epochs: int = 300, explore_epochs: int | None = None,
        patience: int | None = 30, validation_fraction: float = 0.2, baseline: str = "mean", step_input: bool = False,
        allow_missing: bool = False, device: str | torch.device = "auto", dtype: str = "float32",
        random_state: int | np.random.RandomState | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.max_features = max_features
        self.sparsity = sparsity
        self.groups = groups
        self.feature_costs = feature_costs
        self.step_size = step_size
        self.hidden = hidden
        self.layers = layers
        self.trunk = trunk
        self.stop = stop
        self.loss_scale = loss_scale
        self.lr = lr
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.explore_epochs = explore_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.baseline = baseline
        self.step_input = step_input
        self.allow_missing = allow_missing
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.input_tags.allow_nan = bool(self.allow_missing)
        return tags

    # ---- fitting

    def _fit(self, X: np.ndarray, y: np.ndarray, prior: np.ndarray) -> Self:
        """Train on checked rows: `y` (n,) numbers, (n,) class indices, or (n, K) probabilities."""
        d = X.shape[1]
        units = unit_matrix(self.groups, d)
        costs = unit_costs(self.feature_costs, len(units))
        self.seed_ = seed_of(self.random_state)
        self._scaling = Scaling.of(X, columns_of(self))
        informative = (units & ~self._scaling.constant).any(axis=1)
        self.budget_ = self._budget(len(units), int(informative.sum()))
        self.n_units_ = len(units)
        device = pick_device(self.device)
        dtype = getattr(torch, self.dtype)
        self._space = Space(
            torch.as_tensor(units), torch.as_tensor(costs, dtype=dtype), torch.as_tensor(informative), self.step_size
        ).to(device)
        plan = self._plan()
        rows, held = split_rows(len(X), y if self._kind == "log" else None, self.validation_fraction, self.seed_)
        with isolated(self.seed_):
            self.policy_ = SequentialPolicy(
                d, len(prior), len(units), self.hidden, self.layers, self.trunk, value=self.baseline == "value",
                step_input=self.step_input, device=device, dtype=dtype,
            )  # fmt: skip
            self.policy_.prior.copy_(torch.as_tensor(prior, dtype=dtype))
            kept = self._rows(X[rows], y[rows], device, dtype)
            watched = self._rows(X[held], y[held], device, dtype) if len(held) else None
            self.history_ = (
                train(self.policy_, kept, watched, self._space, plan, rng(self.seed_, device), bool(self.verbose))
                if self.budget_
                else History()
            )
        self.policy_.eval().requires_grad_(False)
        return self

    def _rows(self, X: np.ndarray, y: np.ndarray, device: torch.device, dtype: torch.dtype) -> Rows:
        x, observed = self._tensors(X, device, dtype)
        target = torch.as_tensor(y, device=device)
        return Rows(x, target.to(dtype) if target.is_floating_point() else target, observed)

    def _plan(self) -> Plan:
        explore = int(RANDOM * self.max_epochs) if self.explore_epochs is None else self.explore_epochs
        return Plan(
            self._kind, self.budget_, self.sparsity, self.loss_scale, self.lr, self.weight_decay, self.batch_size,
            self.max_epochs, explore, self.patience, self.baseline,
        )  # fmt: skip

    def _budget(self, n_units: int, informative: int) -> int:
        if self.max_features is not None and self.max_features > n_units:
            warnings.warn(f"max_features = {self.max_features} is more than there are ({n_units}).", stacklevel=4)
        return min(self.max_features or n_units, n_units, informative)

    def _tensors(
        self, X: np.ndarray, device: torch.device, dtype: torch.dtype
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        x = torch.as_tensor(self._scaling.apply(X), device=device).to(dtype)
        there = ~np.isnan(X)
        return x, None if there.all() else torch.as_tensor(there, device=device)

    # ---- unmasking

    def _checked(self, X: object, fit: bool = False) -> np.ndarray:
        rows = validate_data(
            self, X, reset=fit, dtype=np.float64, ensure_all_finite=False, ensure_min_samples=1 if fit else 0
        )  # fmt: skip
        return numbers(rows, columns_of(self), self.allow_missing, warn=fit)

    def _unmask(self, X: object, record: bool = False, stop: str | None = None) -> Unmasked:
        check_is_fitted(self)
        return self._unmask_rows(self._checked(X), record, stop)

    def _unmask_rows(self, rows: np.ndarray, record: bool = False, stop: str | None = None) -> Unmasked:
        weight = self.policy_.select.weight
        x, observed = self._tensors(rows, weight.device, weight.dtype)
        mode = require_choice("stop", self.stop if stop is None else stop, ("threshold", "sample"))
        draws = None
        if mode == "sample":  # by the place of a row, never by its values: those would leak into the choice
            draws = torch.as_tensor(
                rng(spawn(self.seed_, 1)[0]).random((len(x), self.budget_, 2)), device=weight.device
            )
        return unmask(
            self.policy_, x, self.budget_, space=self._space, stop=mode, observed=observed, uniforms=draws,
            record=record,
        )  # fmt: skip

    def local_support(self, X: object) -> np.ndarray:
        """(n, d) bool: the features of each row that are shown, and that the prediction is made from.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        return self._unmask(X).mask.cpu().numpy()

    def selection_order(self, X: object) -> np.ndarray:
        """(n, T) int: features (or groups) in the order in which they are revealed, padded with -1; T = `budget_`.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        return self._unmask(X).order.cpu().numpy()

    def stop_probabilities(self, X: object) -> np.ndarray:
        """(n, T + 1): probability of stopping in each state that the row passes; NaN in those it never reaches.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        return self._unmask(X).stop_prob.double().cpu().numpy()

    def transform(self, X: object) -> np.ndarray:
        """(n, d): X with NaN where a feature is hidden.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        check_is_fitted(self)
        rows = self._checked(X)
        return np.where(self._unmask_rows(rows).mask.cpu().numpy(), rows, np.nan)

    def explain(self, X: object) -> list[Narrative]:
        """What was looked at in each row, in which order, and what was thought after each step.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`.
        """
        check_is_fitted(self)
        rows = self._checked(X)
        return narrate(self, rows, self._unmask_rows(rows, record=True))

    def session(self) -> Session:
        """Ask for one feature after another, with no full row at hand: exact, as no choice reads a hidden value.

        Raises:
            ValueError: with stop="sample".
        """
        check_is_fitted(self)
        require_choice("stop", self.stop, ("threshold",), hint="A session decides as predict does, without draws.")
        return Session(self)

    # ---- the distribution over masks

    def masks_proba(self, X: object) -> tuple[np.ndarray, np.ndarray]:
        """All masks (M, d) that occur, and (n, M) P(S | x), for up to 12 features or groups.

        With `stop="sample"` the sum over all orders of S (proved leak-free in Section 3); else one mask for each row.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`, or more than 12 units.
        """
        check_is_fitted(self)
        rows = self._checked(X)
        if self.stop == "threshold":
            masks, index = np.unique(self._unmask_rows(rows).mask.cpu().numpy(), axis=0, return_inverse=True)
            return masks, np.eye(len(masks))[index.ravel()]
        weight = self.policy_.select.weight
        if not len(rows):
            return np.zeros((0, rows.shape[1]), dtype=bool), np.zeros((0, 0))
        x, observed = self._tensors(rows, weight.device, weight.dtype)
        masks, proba = enumeration.mask_distribution(self.policy_, x, self.budget_, self._space, observed)
        return masks.cpu().numpy(), proba.double().cpu().numpy()

    def mask_probability(self, X: object, masks: np.ndarray) -> np.ndarray:
        """(n,) P(S_i | x_i) of the i-th mask in the i-th row; with `stop="threshold"` it is 0 or 1.

        Raises:
            TypeError, ValueError: for rows unlike those of `fit`, other masks, or more than 12 units in one.
        """
        check_is_fitted(self)
        rows = self._checked(X)
        masks = np.asarray(masks)
        if masks.shape != rows.shape or masks.dtype != bool:
            raise ValueError(message("masks", f"bool of shape {rows.shape}", f"{masks.dtype} of shape {masks.shape}"))
        if self.stop == "threshold":
            return (self._unmask_rows(rows).mask.cpu().numpy() == masks).all(axis=1).astype(float)
        weight = self.policy_.select.weight
        x, observed = self._tensors(rows, weight.device, weight.dtype)
        wanted = torch.as_tensor(masks, device=weight.device)
        found = enumeration.mask_probability(self.policy_, x, wanted, self.budget_, self._space, observed)
        return found.double().cpu().numpy()

    def sparsity_path(
        self, X: object, y: object, sparsities: Sequence[float], *, test_fraction: float = 0.25
    ) -> SparsityPath:
        """Fit once for each price of a feature; loss and mean number of features on rows that were held out.

        Args:
            X: (n, d).
            y: (n,).
            sparsities: prices, non-negative.
            test_fraction: share of the rows that no fit sees, in (0, 1).

        Raises:
            TypeError, ValueError: for other values.
        """
        return sweep(self, X, y, sparsities, test_fraction)

    def to_tree(self, X: object, max_nodes: int = 10_000) -> PolicyTree:
        """The greedy policy on discrete rows as a decision tree: every state that rows of X reach.

        Raises:
            TypeError, ValueError: for missing values, or more than `max_nodes` states (continuous columns).
        """
        check_is_fitted(self)
        rows = self._checked(X)
        if not len(rows) or np.isnan(rows).any():
            raise ValueError(message("X", "rows without missing values for a tree", "NaN" if len(rows) else "no row"))
        seen = self._unmask_rows(rows, record=True, stop="threshold")
        order, outputs = seen.order.cpu().numpy(), self._readable(seen.outputs)
        units, step = self._space.units.cpu().numpy(), self._space.step
        covered = np.zeros((len(rows), order.shape[1] + 1, rows.shape[1]), dtype=bool)
        for t in range(order.shape[1]):
            covered[:, t + 1] = covered[:, t] | (units[order[:, t]] & (order[:, t] >= 0)[:, None])

        def decide(mask: np.ndarray, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            row = int(members[0])
            t = int(np.flatnonzero((covered[row] == mask).all(axis=1))[0])
            after = min(t + step, order.shape[1])
            new = np.flatnonzero(covered[row, after] & ~mask)
            return outputs[row, t], new

        labels = [str(c) for c in self.classes_] if hasattr(self, "classes_") else None
        return grow(rows, decide, labels, columns_of(self), max_nodes)

    def _readable(self, outputs: torch.Tensor | None) -> np.ndarray:
        raise NotImplementedError

    # ---- keeping

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write `model.safetensors` and `model.json` into a folder: weights, scaling, classes, names, parameters.

        Raises:
            NotFittedError: before `fit`.
        """
        check_is_fitted(self)
        return saving.save(self, Path(folder))

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: str | torch.device = "auto") -> Self:
        """Read what `save_pretrained` wrote; nothing in it is executed.

        Raises:
            FileNotFoundError: if there is nothing.
            ValueError: if it is of another class, method or format.
        """
        return saving.load(cls, Path(folder), device)
