"""Full-batch training as in the paper's appendix A, with everything recorded that its figures show."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from offprints.checks import require_choice, require_kind, require_range, require_same_device, require_shape
from torch import Tensor, nn
from torch.nn import functional as F

from grokking_theory.empirical import eval_mode
from grokking_theory.history import History
from grokking_theory.margins import output_margin
from grokking_theory.model import QuadraticNetwork, regression_head
from grokking_theory.regularizer import LinfRegularizer
from grokking_theory.tasks import Task, require_labels

Callback = Callable[[int, nn.Module], Mapping[str, float] | None]
"""Called with the number of updates done and the model; what it returns becomes columns of the history."""

OptimizerName = Literal["gd", "ngd", "adamw"]

MEASURED = {"step", "train_loss", "test_loss", "train_acc", "test_acc", "linf", "margin"}


def fit(
    model: nn.Module,
    task: Task,
    optimizer: OptimizerName | torch.optim.Optimizer = "adamw",
    *,
    steps: int,
    lr: float = 1e-3,
    weight_decay: float = 0.0,
    linf: float = 0.0,
    every: int = 100,
    callbacks: Sequence[Callback] = (),
    stop: Callable[[Mapping[str, float]], bool] | None = None,
    time_limit: float | None = None,
    loss_tol: float = 0.0,
    eps: float = 0.0,
) -> History:
    """Minimise mean loss + λ ‖θ‖_∞ over the training set by full-batch steps (appendix A).

    The loss is cross-entropy for classification, the square loss of output c for regression.

    Args:
        model: maps (n, 2) pairs to (n, p) outputs; trained in place, on its device, in its dtype.
        task: a `ModularAddition`, or anything with p, kind, train and test.
        optimizer: "gd" θ - η∇; "ngd" θ - η∇/‖∇‖₂ with the norm over all parameters; "adamw" torch's, whose decoupled
            weight decay λ can only converge to stationary points of the loss on ‖θ‖_∞ <= 1/λ; or an optimizer.
        steps: updates to do.
        lr: η (ignored with an optimizer of your own).
        weight_decay: of "adamw".
        linf: λ of the explicit penalty.
        every: updates between evaluations; the first and the last state are evaluated, too.
        callbacks: called after each update and before the first; a step at which one returns metrics is evaluated.
        stop: is shown each evaluation (a mapping of the history's columns) and returns True to end.
        time_limit: seconds after which to end.
        loss_tol: end when the training loss is below.
        eps: added to ‖∇‖₂ in "ngd".

    Returns:
        The history; `stopped` says why training ended.

    Raises:
        TypeError: if the model or the optimizer is of the wrong kind.
        ValueError: if a number is out of range, the training set is empty, a label lies outside [0, p), the model has
            other than p outputs, an optimizer of your own holds none of its parameters, or a callback returns a column
            of `fit` itself.
        FloatingPointError: if the loss is NaN or infinite: names the step, and leaves the model in the last state
            whose loss was finite.
    """
    require_kind("model", model, nn.Module)
    require_range("steps", steps, low=0, integer=True)
    require_range("every", every, low=1, integer=True)
    if time_limit is not None:
        require_range("time_limit", time_limit, low=0)
    for name, number in (("linf", linf), ("loss_tol", loss_tol), ("eps", eps)):
        require_range(name, number, low=0)
    params = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not params:
        raise ValueError("model must have at least one parameter with requires_grad=True, got none.")
    split = _Split.of(task, params[0])
    split.require_outputs(model)
    update = _updater(optimizer, params, lr, weight_decay, eps)
    penalty = LinfRegularizer(params, linf)
    safe = [parameter.detach().clone() for parameter in params]
    rows: list[dict[str, float]] = []
    reason, begun = "", time.monotonic()
    for step in range(steps + 1):
        loss = split.loss(model, *split.train)
        value = float(loss.detach())
        if not math.isfinite(value):
            _copy(safe, params)
            raise FloatingPointError(
                f"the training loss must be finite, got {value} after step {step}. The model holds the last finite "
                "state. Lower lr or alpha."
            )
        if value < loss_tol:
            reason = f"training loss {value:.3g} below loss_tol"
        elif time_limit is not None and time.monotonic() - begun > time_limit:
            reason = f"time limit of {time_limit:g} s"
        metrics = _called(callbacks, step, model)
        row = {"step": float(step), "train_loss": value}
        if metrics or reason or step % every == 0 or step == steps:
            rows.append(row | split.evaluate(model) | metrics)
            reason = reason or ("stop()" if stop is not None and stop(rows[-1]) else "")
        if not reason and step < steps:
            _copy(params, safe)
            reason = update(loss + penalty() if linf else loss)
            if reason and rows[-1]["step"] != step:
                rows.append(row | split.evaluate(model))
        if reason:
            return History.from_rows(rows, f"{reason} at step {step}")
    return History.from_rows(rows, f"did all {steps} steps")


@torch.no_grad()
def _copy(values: Sequence[Tensor], into: Sequence[Tensor]) -> None:
    for value, place in zip(values, into, strict=True):
        place.copy_(value)


def _called(callbacks: Sequence[Callback], step: int, model: nn.Module) -> dict[str, float]:
    columns: dict[str, float] = {}
    for callback in callbacks:
        columns |= callback(step, model) or {}
    if taken := sorted(columns.keys() & MEASURED):
        raise ValueError(f"a callback must not return the columns of fit itself, got {', '.join(taken)}. Rename them.")
    return columns


def _updater(
    optimizer: OptimizerName | torch.optim.Optimizer,
    params: list[nn.Parameter],
    lr: float,
    weight_decay: float,
    eps: float,
) -> Callable[[Tensor], str]:
    """One update from a loss; returns why training cannot go on, or nothing."""
    if isinstance(optimizer, torch.optim.Optimizer):
        own = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        if not own & {id(parameter) for parameter in params}:
            raise ValueError("optimizer must hold parameters of the model, got none of them. Make it from this model.")
        if weight_decay:
            raise ValueError(f"weight_decay must be 0 with an optimizer of your own, got {weight_decay}. Set it there.")
        if isinstance(optimizer, torch.optim.LBFGS):
            raise TypeError("optimizer must step without a closure, got LBFGS.")
        return partial(_torch_step, optimizer)
    require_choice("optimizer", optimizer, ("gd", "ngd", "adamw"), hint="Or pass a torch.optim.Optimizer.")
    require_range("lr", lr, low=0, low_open=True)
    require_range("weight_decay", weight_decay, low=0)
    if optimizer == "adamw":
        return partial(_torch_step, torch.optim.AdamW(params, lr=lr, weight_decay=weight_decay))
    if weight_decay:
        raise ValueError(f"weight_decay must be 0 with optimizer={optimizer!r}, got {weight_decay}. Use 'adamw'.")
    return partial(_descend, params, lr, eps if optimizer == "ngd" else None)


def _torch_step(optimizer: torch.optim.Optimizer, loss: Tensor) -> str:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return ""


def _descend(params: list[nn.Parameter], lr: float, eps: float | None, loss: Tensor) -> str:
    """θ - η∇, or θ - η∇/(‖∇‖₂ + eps) where eps is given."""
    gradients = torch.autograd.grad(loss, params)
    if eps is not None:
        norm = float(torch.stack([gradient.norm() for gradient in gradients]).norm())
        if norm == 0:
            return "the gradient is exactly zero, so normalised descent has no direction,"
        lr = lr / (norm + eps)
    with torch.no_grad():
        for parameter, gradient in zip(params, gradients, strict=True):
            parameter.sub_(gradient, alpha=lr)
    return ""


@dataclass(frozen=True)
class _Split:
    """Training and held-out data on the model's device."""

    p: int
    classes: bool
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    answers: Tensor

    @classmethod
    def of(cls, task: Task, like: Tensor) -> "_Split":
        require_kind("task", task, Task)
        classes = task.kind == "classification"
        moved = []
        for name, (inputs, targets) in (("train", task.train), ("test", task.test)):
            require_labels(f"task.{name} inputs", inputs, task.p)
            columns = 2 if classes else 3
            if inputs.ndim != 2 or inputs.shape[1] != columns:
                raise ValueError(
                    f"task.{name} must have {columns} input columns to be trained, got {tuple(inputs.shape)}."
                )
            if classes:
                require_labels(f"task.{name} labels", targets, task.p)
            moved.append((inputs.to(like.device), targets.to(like.device) if classes else targets.to(like)))
        require_range("training points", len(moved[0][0]), low=1, integer=True)
        require_same_device(model=like, task=moved[0][0])
        points, values = torch.cat([moved[0][0], moved[1][0]]), torch.cat([moved[0][1], moved[1][1]])
        answers = points[values > 0].unique(dim=0)  # regression: the triples whose target is p
        return cls(task.p, classes, moved[0], moved[1], answers)

    @torch.no_grad()
    def require_outputs(self, model: nn.Module) -> None:
        """ValueError unless the model has p outputs for a pair."""
        with eval_mode(model):
            require_shape("model(pairs)", model(self.train[0][:1, :2]), (1, self.p), hint="Give it one output a class.")

    def outputs(self, model: nn.Module, inputs: Tensor) -> Tensor:
        if self.classes:
            return model(inputs)
        return regression_head(model, inputs)

    def loss(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        outputs = self.outputs(model, inputs)
        return F.cross_entropy(outputs, targets) if self.classes else F.mse_loss(outputs, targets)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        """The columns of a history that depend on the model alone."""
        with eval_mode(model):
            return self._columns(model)

    def _columns(self, model: nn.Module) -> dict[str, float]:
        largest = max(float(parameter.abs().amax()) for parameter in model.parameters())
        train, row = self.outputs(model, self.train[0]), {"linf": largest}
        if self.classes:
            row["train_acc"] = float((train.argmax(1) == self.train[1]).double().mean())
            if isinstance(model, QuadraticNetwork) and largest > 0:
                row["margin"] = float(output_margin(train, self.train[1]).amin()) / largest**3
        else:
            row["train_acc"] = _balanced_accuracy(train, self.train[1], self.p)
        if len(self.test[0]):
            test = self.outputs(model, self.test[0])
            row["test_loss"] = float((F.cross_entropy if self.classes else F.mse_loss)(test, self.test[1]))
            if self.classes:
                right = test.argmax(1) == self.test[1]
            else:
                right = model(self.answers[:, :2]).argmax(1) == self.answers[:, 2]
            row["test_acc"] = float(right.double().mean())
        return row


def _balanced_accuracy(outputs: Tensor, targets: Tensor, p: int) -> float:
    right, positive = (outputs - targets).abs() < p / 2, targets > 0
    shares = [right[group].double().mean() for group in (positive, ~positive) if group.any()]
    return float(torch.stack(shares).mean())
