"""A plain training loop with the schedule of lambda (Guo et al., 2024, Section 5.1)."""

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from .norms import PRepBN
from .schedule import PRepBNSchedule


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Weights decay; alpha, gamma, beta and all other vectors do not."""
    decayed = [p for p in model.parameters() if p.requires_grad and p.dim() > 1]
    plain = [p for p in model.parameters() if p.requires_grad and p.dim() <= 1]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.0}]


def train(
    model: nn.Module,
    batches: Iterable[object],
    loss: Callable[[nn.Module, object], Tensor],
    steps: int,
    lr: float,
    weight_decay: float = 0.05,
    warmup: int = 0,
    clip: float = 5.0,
    final_lr: float | None = None,
    schedule: PRepBNSchedule | None = None,
) -> list[float]:
    """AdamW with linear warm-up, and a cosine to `final_lr` where given; lambda follows its schedule, a step each.

    Returns:
        The loss of each step.
    """
    optimizer = torch.optim.AdamW(parameter_groups(model, weight_decay), lr=lr, betas=(0.9, 0.999))
    if schedule is None and any(isinstance(module, PRepBN) for module in model.modules()):
        schedule = PRepBNSchedule(model)
    losses = []
    model.train()
    for step, batch in zip(range(steps), batches, strict=False):
        rate = lr * min(1.0, (step + 1) / max(1, warmup))
        if final_lr is not None and step >= warmup:
            share = (step - warmup) / max(1, steps - warmup)
            rate = final_lr + (lr - final_lr) * 0.5 * (1 + math.cos(math.pi * share))
        for group in optimizer.param_groups:
            group["lr"] = rate
        value = loss(model, batch)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        if schedule is not None:
            schedule.step()
        losses.append(float(value.detach()))
    model.eval()
    return losses
