"""Training: sampled rollouts, exploration that fades, a price of features that warms up, early stopping (Section 3)."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from offprints.progress import track

from suwr.inference import unmask
from suwr.policy import SequentialPolicy, losses
from suwr.space import Space
from suwr.unrolling import rollout, suwr_loss

EXPLORE, EXPLORE_STOP = 0.05, 0.1
"""What is left of the exploration at the end, of features and of stopping."""
RANDOM, FADED, PRICED = 0.5, 0.7, 0.8
"""Shares of the epochs: until the first features are chosen at random, until the second their exploration has come down
to that; then stopping is learned, and from the third on features cost their full price.

The released code asks for the full price while nearly all choices are still random (epoch 100 of 1000; 650 for the
exploration). Where single features tell nothing, as in a product of two, stopping at once is then the best that the
policy can do, and it never learns to choose. So here the outputs learn from random masks first, then the policy learns
where to look, stopping anywhere alike, and only then when it has seen enough.
"""


@dataclass(frozen=True)
class Plan:
    """How to train; the fields are the estimators' arguments."""

    kind: str
    budget: int
    sparsity: float
    loss_scale: float = 10.0
    lr: float = 1e-3
    weight_decay: float = 1e-4
    batch_size: int = 1000
    max_epochs: int = 300
    explore_epochs: int = 50
    patience: int | None = 100
    baseline: str = "mean"

    def schedule(self, epoch: int) -> tuple[float, float, float]:
        """Exploration of features and of stopping, and the price of a feature, in an epoch.

        That of features is 1 for `explore_epochs` and falls geometrically to 0.05 at `faded`; from there to `priced`
        that of stopping falls from 1 to 0.1 and the price rises linearly to `sparsity`.
        """
        chosen = (epoch - self.explore_epochs) / max(1, self.faded - self.explore_epochs)
        warm = min(1.0, max(0.0, (epoch - self.faded) / max(1, self.priced - self.faded)))
        return EXPLORE ** min(1.0, max(0.0, chosen)), EXPLORE_STOP**warm, warm * self.sparsity

    @property
    def faded(self) -> int:
        """Epoch at which the exploration of features has faded, and that of stopping and the price begin to move."""
        return max(self.explore_epochs, round(FADED * self.max_epochs))

    @property
    def priced(self) -> int:
        """Epoch from which on features cost their full price."""
        return self.faded + round((PRICED - FADED) * self.max_epochs)


@dataclass
class History:
    """One entry an evaluated epoch.

    Attributes:
        epoch: which one.
        cost: loss_scale * loss + sparsity * price of the deployed (greedy) policy on the validation rows, or, where
            there are none, of the last training batch in expectation.
        n_units: mean number of units that the deployed policy reveals there, or the expected number in the batch.
        best: the epoch whose weights were kept.
        updates: optimiser steps in all.
    """

    epoch: list[int] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    n_units: list[float] = field(default_factory=list)
    best: int = 0
    updates: int = 0


@dataclass(frozen=True, eq=False)
class Rows:
    """Data on the device: x (n, d), y, and which values are there (None: all)."""

    x: torch.Tensor
    y: torch.Tensor
    observed: torch.Tensor | None = None

    def take(self, index: torch.Tensor) -> "Rows":
        """Some of the rows."""
        return Rows(self.x[index], self.y[index], None if self.observed is None else self.observed[index])


def train(
    policy: SequentialPolicy, data: Rows, validation: Rows | None, space: Space, plan: Plan,
    generator: torch.Generator, verbose: bool = False,
) -> History:  # fmt: skip
    """Train `policy` in place by Adam and keep the weights that are best on the validation rows.

    Dropout draws from the global generator: call it inside `offprints.seeding.isolated`.
    """
    optimizer = torch.optim.Adam(policy.parameters(), lr=plan.lr, weight_decay=plan.weight_decay)
    history, best, kept, cost, count = History(), float("inf"), None, 0.0, 0.0
    every = max(1, plan.max_epochs // 60)
    epochs: Iterable[int] = range(plan.max_epochs)
    for epoch in track(epochs, "suwr", plan.max_epochs) if verbose else epochs:
        policy.train()
        explore, explore_stop, price = plan.schedule(epoch)
        for index in torch.randperm(len(data.x), generator=generator, device=data.x.device).split(plan.batch_size):
            batch = data.take(index)
            rolled = rollout(
                policy, batch.x, plan.budget, space=space, explore=explore, explore_stop=explore_stop,
                generator=generator, observed=batch.observed,
            )  # fmt: skip
            parts = suwr_loss(
                rolled, batch.y, kind=plan.kind, sparsity=price, loss_scale=plan.loss_scale, baseline=plan.baseline
            )
            optimizer.zero_grad(set_to_none=True)
            parts.total.backward()
            optimizer.step()
            history.updates += 1
            if validation is None:
                units = (rolled.stop_prob * rolled.reached.to(rolled.stop_prob.dtype).cumsum(dim=1)).sum(dim=1) - 1
                cost, count = float(parts.expected.detach()), float(units.mean().detach())
        if epoch % every and epoch < plan.max_epochs - 1:
            continue
        policy.eval()
        if validation is not None:
            cost, count = deployed_cost(policy, validation, space, plan)
        history.epoch.append(epoch)
        history.cost.append(cost)
        history.n_units.append(count)
        if validation is None:
            history.best = epoch
        elif cost < best:
            best, kept, history.best = cost, copy.deepcopy(policy.state_dict()), epoch
        ready = max(history.best, plan.priced)
        if validation is not None and plan.patience is not None and epoch - ready >= plan.patience:
            break
    policy.eval()
    if kept is not None:
        policy.load_state_dict(kept)
    return history


def deployed_cost(policy: SequentialPolicy, rows: Rows, space: Space, plan: Plan) -> tuple[float, float]:
    """Mean cost, and mean number of units, of the greedy policy: what early stopping watches."""
    seen = unmask(policy, rows.x, plan.budget, space=space, observed=rows.observed)
    chosen = seen.order >= 0
    price = (space.costs[seen.order.clamp_min(0)] * chosen).sum(dim=1)
    cost = plan.loss_scale * losses(seen.output, rows.y, plan.kind) + plan.sparsity * price
    return float(cost.mean()), float(chosen.sum(dim=1).to(cost.dtype).mean())
