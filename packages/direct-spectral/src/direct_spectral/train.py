"""Training and evaluation as in the experiments: Adam with L2 in the gradient, step decay, L1 loss in target units."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from offprints.checks import message, require_choice, require_range
from offprints.progress import track

from direct_spectral.contract import compute_dtype
from direct_spectral.functional import relative_l1, relative_l2
from direct_spectral.operator import PointOperator

Loader = Iterable[Mapping[str, torch.Tensor]]
Loss = Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor]


@dataclass
class History:
    """What happened, epoch by epoch.

    Attributes:
        loss: mean training loss.
        error: mean relative L1 error on the validation set, in per cent; empty without one.
        seconds: of training, summed up.
    """

    loss: list[float] = field(default_factory=list)
    error: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


def l1_loss(pred: torch.Tensor, target: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Mean |y - ŷ| over points that count."""
    gap = (pred - target).abs()
    return gap.mean() if mask is None else gap[mask].mean()


def l2_loss(pred: torch.Tensor, target: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    """Mean (y - ŷ)² over points that count."""
    gap = (pred - target).abs() ** 2
    return gap.mean() if mask is None else gap[mask].mean()


def _mean_relative(metric: Callable) -> Loss:
    return lambda pred, target, mask: metric(pred, target, mask).mean() / 100


LOSSES: Mapping[str, Loss] = {
    "l1": l1_loss,
    "l2": l2_loss,
    "relative_l1": _mean_relative(relative_l1),
    "relative_l2": _mean_relative(relative_l2),
}


def predict(model: PointOperator, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The model on a batch: "u", "points", and where given "out_points", "mask", "out_mask"."""
    return model(
        batch["u"], batch["points"], batch.get("out_points"), mask=batch.get("mask"), out_mask=batch.get("out_mask")
    )


def train_operator(
    model: PointOperator,
    train_loader: Loader,
    val_loader: Loader | None = None,
    epochs: int = 50,
    lr: float = 5e-3,
    loss: str | Loss = "l1",
    *,
    weight_decay: float = 0.0,
    schedule: str = "step",
    step: int = 10,
    gamma: float = 0.97,
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer] | None = None,
    penalty: Callable[[PointOperator, Mapping[str, torch.Tensor]], torch.Tensor] | None = None,
    every: int = 1,
) -> History:
    """Train an operator in place (section 4 of the paper: Adam, StepLR, L1).

    Args:
        model: any operator of this package; call `fit_scales` first for data that is not of order one.
        train_loader: yields batches with "u" (B, N, C_in), "points" and "y" (B, N', C_out); re-iterated each epoch.
        val_loader: likewise, for `History.error`.
        epochs: passes.
        lr: largest learning rate.
        loss: "l1", "l2", "relative_l1", "relative_l2", or a function (pred, target, mask) -> scalar.
        weight_decay: of Adam, added to the gradient.
        schedule: "step" (times `gamma` every `step` epochs), "onecycle", "plateau" (halved after 5 epochs without
            progress of the training loss), "constant".
        step: epochs between decays.
        gamma: factor of a decay.
        optimizer: makes the optimizer of the parameters; replaces Adam, lr and weight_decay.
        penalty: added to the loss, such as `lambda model, batch: 1e-2 * model.deformation_penalty(batch["points"])`.
        every: epochs between evaluations.

    Raises:
        ValueError: if an argument is out of range, the loader is empty, or the loss is not finite.
    """
    require_range("epochs", epochs, low=0, integer=True)
    require_range("lr", lr, low=0, low_open=True)
    require_range("every", every, low=1, integer=True)
    require_choice("schedule", schedule, ("step", "onecycle", "plateau", "constant"))
    measure = LOSSES[require_choice("loss", loss, LOSSES)] if isinstance(loss, str) else loss
    make = optimizer or (lambda params: torch.optim.Adam(params, lr=lr, weight_decay=weight_decay))
    stepper = make([p for p in model.parameters() if p.requires_grad])
    plan = _Plan(schedule, stepper, lr, epochs, step, gamma)
    history, spent = History(), 0.0
    for epoch in track(range(epochs), "training"):
        begun = time.perf_counter()
        model.train()
        losses = []
        for batch in _reused(model, train_loader, plan):
            stepper.zero_grad()
            value = measure(predict(model, batch), batch["y"], batch.get("out_mask", batch.get("mask")))
            if penalty is not None:
                value = value + penalty(model, batch)
            value.backward()
            stepper.step()
            plan.after_batch()
            losses.append(value.detach())
        if not losses:
            raise ValueError(message("train_loader", "at least one batch", "none"))
        mean = float(torch.stack(losses).mean())
        if not math.isfinite(mean):
            raise ValueError(message("the loss", "finite", f"{mean} in epoch {epoch}", "Lower lr."))
        plan.after_epoch(mean)
        spent += time.perf_counter() - begun
        history.loss.append(mean)
        history.seconds.append(spent)
        if val_loader is not None and ((epoch + 1) % every == 0 or epoch + 1 == epochs):
            history.error.append(evaluate(model, val_loader)["mean"])
    return history


class _Plan:
    """The learning rate over time."""

    def __init__(
        self, kind: str, optimizer: torch.optim.Optimizer, lr: float, epochs: int, step: int, gamma: float
    ) -> None:
        self.kind, self.optimizer, self.lr, self.epochs = kind, optimizer, lr, epochs
        self.inner: torch.optim.lr_scheduler.LRScheduler | torch.optim.lr_scheduler.ReduceLROnPlateau | None = None
        if kind == "step":
            self.inner = torch.optim.lr_scheduler.StepLR(optimizer, step, gamma)
        elif kind == "plateau":
            self.inner = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=5)

    def begin(self, batches: int) -> None:
        """Learn how many batches an epoch has."""
        if self.kind == "onecycle" and self.inner is None:
            total = max(self.epochs * batches, 1)
            self.inner = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, self.lr, total_steps=total)

    def after_batch(self) -> None:
        if self.kind == "onecycle" and isinstance(self.inner, torch.optim.lr_scheduler.OneCycleLR):
            self.inner.step()

    def after_epoch(self, loss: float) -> None:
        if isinstance(self.inner, torch.optim.lr_scheduler.ReduceLROnPlateau):
            self.inner.step(loss)
        elif self.inner is not None and self.kind == "step":
            self.inner.step()


def _reused(model: PointOperator, loader: Loader, plan: _Plan) -> Iterator[Mapping[str, torch.Tensor]]:
    """The batches; where they all bring the same tensor of shared points, its basis is built once."""
    batches: Iterable = loader if hasattr(loader, "__len__") else list(loader)
    plan.begin(len(batches))  # pyrefly: ignore -- it has a length now
    for batch in batches:
        points = batch["points"]
        shared = (points.ndim == 2 or len(points) == 1) and not points.requires_grad and "mask" not in batch
        if shared and not (model._basis is not None and model._basis.matches(points)) and model.lasting:
            model.precompute(model.make_basis(points, None, compute_dtype(batch["u"].dtype)))
        yield batch


@torch.no_grad()
def evaluate(
    model: PointOperator,
    loader: Loader,
    metric: Callable[[torch.Tensor, torch.Tensor, torch.Tensor | None], torch.Tensor] = relative_l1,
) -> dict[str, float]:
    """Mean and median over samples of the relative L1 error in per cent, or of another metric; the mode is kept.

    Raises:
        ValueError: if the loader is empty.
    """
    training = model.training
    model.eval()
    try:
        errors = [
            metric(predict(model, batch), batch["y"], batch.get("out_mask", batch.get("mask"))) for batch in loader
        ]
    finally:
        model.train(training)
    if not errors:
        raise ValueError(message("loader", "at least one batch", "none"))
    each = torch.cat(errors)
    return {"mean": float(each.mean()), "median": float(each.median())}


@torch.no_grad()
def rollout(
    model: PointOperator, u: torch.Tensor, points: torch.Tensor, steps: int, keep: Sequence[int] | None = None
) -> torch.Tensor:
    """Feed an operator its own output: states after 1..steps applications, (steps, B, N, C).

    Args:
        model: with C_out = C_in, or C_out < C_in: then `keep` says which input channels are constant (forcing).
        u: (B, N, C_in), the first state.
        points: as in a call.
        steps: how many.
        keep: indices of input channels that stay as they are; the outputs are the others, in order.

    Raises:
        ValueError: if outputs and inputs do not fit, or a state is not finite.
    """
    require_range("steps", steps, low=1, integer=True)
    fixed = sorted(keep or ())
    moving = [i for i in range(u.shape[-1]) if i not in fixed]
    state, states = u.clone(), []
    for number in range(steps):
        out = model(state, points)
        if out.shape[-1] != len(moving):
            raise ValueError(message("keep", f"such that {out.shape[-1]} channels move", fixed))
        if not torch.isfinite(torch.view_as_real(out) if out.is_complex() else out).all():
            raise ValueError(message("the state", "finite", f"NaN or inf after step {number + 1}"))
        state = state.clone()
        state[..., moving] = out
        states.append(out)
    return torch.stack(states)
