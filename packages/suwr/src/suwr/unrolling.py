"""Sampled unmasking of a batch, and the loss that trains on it (Section 3, equations 11 and 12)."""

from typing import NamedTuple

import torch
from offprints.checks import require_choice, require_range, require_shape

from suwr.policy import SequentialPolicy, losses
from suwr.space import Space

BASELINES = ("mean", "leave-one-out", "value", "none")


class Rollout(NamedTuple):
    """One unmasking sequence of every row, followed to the budget; T steps, T + 1 states.

    Attributes:
        pred: (n, T + 1, K) outputs at every state.
        stop_prob: (n, T + 1) probabilities p_t of stopping there (equation 11); they sum to 1.
        log_q: (n, T) log probability of what step t + 1 revealed; 0 where nothing was left.
        order: (n, T * step) units in the order of their choice, -1 where nothing was left.
        cost: (n, T + 1) price of what is revealed at every state.
        value: (n, T + 1) of the value head, or None.
        reached: (n, T + 1) bool: whether the state differs from the one before.
    """

    pred: torch.Tensor
    stop_prob: torch.Tensor
    log_q: torch.Tensor
    order: torch.Tensor
    cost: torch.Tensor
    value: torch.Tensor | None
    reached: torch.Tensor


def explored(select: torch.Tensor, left: torch.Tensor, explore: float) -> torch.Tensor:
    """(..., U) q = (1 - eps) softmax(select over what is left) + eps uniform over it; 0 in rows with nothing."""
    some = left.any(dim=-1, keepdim=True)
    q = torch.softmax(select.masked_fill(~left & some, float("-inf")), dim=-1)
    q = torch.where(left, q, torch.zeros_like(q))
    if explore:
        q = (1 - explore) * q + explore * left / left.sum(dim=-1, keepdim=True).clamp_min(1)
    return q


def rollout(
    policy: SequentialPolicy, x: torch.Tensor, budget: int, *, space: Space | None = None, explore: float = 0.0,
    explore_stop: float = 0.0, generator: torch.Generator | None = None, observed: torch.Tensor | None = None,
    greedy: bool = False,
) -> Rollout:  # fmt: skip
    """Unmask `budget` units of every row, without reversion, and remember all that the loss needs.

    At state t the next unit is drawn from q_t = (1 - eps) softmax + eps uniform over the units that are left; the row
    would stop there with sigma(z_t), so that p_t = sigma_t prod over j < t of (1 - sigma_j), and surely at the budget
    or when nothing is left. p_t is then mixed with eps_s / (number of states reached).

    Args:
        policy: the network.
        x: (n, d) on the policy's device; NaN is allowed where not `observed`.
        budget: T, units at most.
        space: units, costs and step; None: single features.
        explore: eps in [0, 1].
        explore_stop: eps_s in [0, 1].
        generator: for the draws, on the device of x; None is refused unless `greedy`.
        observed: (n, d) bool, False where a value is missing; None: all are there.
        greedy: take the largest logit instead of a draw.

    Raises:
        TypeError, ValueError: for other values.
    """
    require_shape("x", x, ("n", policy.n_features))
    require_range("budget", budget, low=0, high=policy.n_units, integer=True)
    require_range("explore", explore, low=0, high=1)
    require_range("explore_stop", explore_stop, low=0, high=1)
    if generator is None and not greedy:
        raise TypeError("generator must be a torch.Generator, got None. Library code draws nothing from global state.")
    space = space or Space.single(policy.n_features, x.device, x.dtype)
    n, steps = len(x), -(-budget // space.step)
    walk = _Walk(x, space, budget, explore, generator, observed)
    trunks, selects = [], []
    for t in range(steps + 1):
        trunks.append(policy.trunks(x, walk.mask))
        if t < steps:
            selects.append(policy.select(trunks[-1][0]))
            walk.step(selects[-1].detach(), min(space.step, budget - t * space.step))
    heads = policy.tops(
        [torch.stack(part, dim=1) for part in zip(*trunks, strict=True)], torch.stack(walk.masks, dim=1)
    )
    reached = torch.stack(walk.reached, dim=1)
    stop = _stop_probabilities(heads.stop, reached)
    if explore_stop:
        stop = (1 - explore_stop) * stop + explore_stop * reached / reached.sum(dim=1, keepdim=True)
    if not steps:
        none = torch.zeros(n, 0, dtype=torch.long, device=x.device)
        return Rollout(
            heads.output, stop, x.new_zeros(n, 0), none, torch.stack(walk.costs, dim=1), heads.value, reached
        )
    log_q = walk.log_q(torch.stack(selects, dim=1))
    order = torch.stack(walk.order, dim=1)
    return Rollout(heads.output, stop, log_q, order, torch.stack(walk.costs, dim=1), heads.value, reached)


class _Walk:
    """Which units are revealed, one after the other; nothing in here carries a gradient but `log_q`."""

    def __init__(
        self, x: torch.Tensor, space: Space, budget: int, explore: float, generator: torch.Generator | None,
        observed: torch.Tensor | None,
    ) -> None:  # fmt: skip
        self.space, self.explore, self.generator, self.observed = space, explore, generator, observed
        self.mask = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        self.masks, self.costs = [self.mask], [torch.zeros(len(x), dtype=x.dtype, device=x.device)]
        self.reached = [torch.ones(len(x), dtype=torch.bool, device=x.device)]
        self.order: list[torch.Tensor] = []
        self.lefts: list[torch.Tensor] = []
        self.steps: list[int] = []

    @torch.no_grad()
    def step(self, select: torch.Tensor, count: int) -> None:
        """Reveal `count` units from the logits of one state."""
        cost, first = self.costs[-1], len(self.order)
        for place in range(self.space.step):
            left = self.space.left(self.mask, self.observed) & (place < count)
            some = left.any(dim=1)
            if self.generator is None:
                unit = select.masked_fill(~left, float("-inf")).argmax(dim=1)
            else:
                q = explored(select, left, self.explore)
                noise = torch.empty_like(q).exponential_(generator=self.generator)
                unit = torch.where(left, q / noise, torch.full_like(q, -1.0)).argmax(dim=1)  # the race draws from q
            reveal = self.space.units[unit] & some[:, None]
            self.mask = self.mask | (reveal if self.observed is None else reveal & self.observed)
            cost = cost + torch.where(some, self.space.costs[unit].to(cost.dtype), torch.zeros_like(cost))
            self.order.append(torch.where(some, unit, torch.full_like(unit, -1)))
            self.lefts.append(left)
        self.masks.append(self.mask)
        self.costs.append(cost)
        self.reached.append(self.order[first] >= 0)

    def log_q(self, select: torch.Tensor) -> torch.Tensor:
        """(n, steps) log probability of what each step revealed, from the logits (n, steps, U) with their gradient."""
        n, steps, _ = select.shape
        left, order = torch.stack(self.lefts, dim=1), torch.stack(self.order, dim=1)
        q = explored(select.repeat_interleave(self.space.step, dim=1), left, self.explore)
        own = q.gather(2, order.clamp_min(0).unsqueeze(2)).squeeze(2)
        log = torch.where(order >= 0, own.clamp_min(torch.finfo(q.dtype).tiny).log(), torch.zeros_like(own))
        return log.reshape(n, steps, self.space.step).sum(dim=2)


def _stop_probabilities(z: torch.Tensor, reached: torch.Tensor) -> torch.Tensor:
    """Equation 11, where the last state that a row reaches takes all that is left."""
    more = torch.cat([reached[:, 1:], torch.zeros_like(reached[:, :1])], dim=1)
    go = torch.where(more, torch.sigmoid(-z), torch.zeros_like(z))
    before = torch.cumprod(torch.cat([torch.ones_like(go[:, :1]), go[:, :-1]], dim=1), dim=1)
    return before * torch.where(more, torch.sigmoid(z), reached.to(z.dtype))


class LossParts(NamedTuple):
    """Attributes: total: what is minimised; expected: J_1, the expected cost; policy: J_2; value: of the value head."""

    total: torch.Tensor
    expected: torch.Tensor
    policy: torch.Tensor
    value: torch.Tensor


def suwr_loss(
    rolled: Rollout, y: torch.Tensor, *, kind: str = "log", sparsity: float = 0.01, loss_scale: float = 10.0,
    baseline: str = "mean",
) -> LossParts:  # fmt: skip
    """Equation 12: J_1 + J_2, with c_t = loss_scale * loss(o_t, y) + sparsity * cost_t.

    J_1 = mean of sum p_t c_t. J_2 = mean of sum over k of log q_k (G_k - b_k) with the cost to go G_k = sum over t >= k
    of p_t c_t, detached. With b = 0 this equals the paper's mean of sum over t of [p_t c_t] log Q_t, Q_t the product of
    q_1 ... q_t; any b_k that does not depend on the k-th choice leaves the expected gradient as it is. The "mean" holds
    the row's own G_k too, which shrinks the gradient by (n - 1) / n; "leave-one-out" does not.

    Args:
        rolled: from `rollout`.
        y: (n,) labels, (n, K) probabilities, or (n,) numbers.
        kind: "log" or "squared".
        sparsity: price of a unit of cost.
        loss_scale: kappa.
        baseline: "mean" over the batch, "leave-one-out", "value" (the value head) or "none".

    Raises:
        TypeError, ValueError: for other values.
    """
    require_choice("kind", kind, ("log", "squared"))
    require_choice("baseline", baseline, BASELINES)
    n, states, _ = rolled.pred.shape
    again = y.repeat_interleave(states, dim=0)
    loss = losses(rolled.pred.reshape(n * states, -1), again, kind).reshape(n, states)
    costs = loss_scale * loss + sparsity * rolled.cost
    weighted = rolled.stop_prob * costs
    expected = weighted.sum(dim=1).mean()
    zero = expected.new_zeros(())
    if states == 1 or n == 0:
        return LossParts(expected, expected, zero, zero)
    to_go = weighted.detach().flip(1).cumsum(1).flip(1)[:, 1:]
    value = zero
    if baseline == "value":
        if rolled.value is None:
            raise ValueError("baseline must be 'mean', 'leave-one-out' or 'none' without a value head, got 'value'.")
        value = (rolled.value[:, :-1] - to_go).square().mean()
        advantage = to_go - rolled.value[:, :-1].detach()
    elif baseline == "mean" or (baseline == "leave-one-out" and n == 1):
        advantage = to_go - to_go.mean(dim=0)
    elif baseline == "leave-one-out":
        advantage = (to_go - to_go.mean(dim=0)) * (n / (n - 1))
    else:
        advantage = to_go
    policy = (rolled.log_q * advantage).sum(dim=1).mean()
    return LossParts(expected + policy + value, expected, policy, value)
