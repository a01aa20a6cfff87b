"""Sampled unmasking of a batch, and the loss that trains on it (Section 3, equations 11 and 12)."""

from typing import NamedTuple

import torch
from offprints.checks import require_choice, require_range, require_shape

from suwr.policy import Heads, SequentialPolicy, losses
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
    """(n, U) q = (1 - eps) softmax(select over what is left) + eps uniform over what is left; 0 in rows with nothing."""
    q = torch.softmax(select.masked_fill(~left, float("-inf")), dim=1)
    q = torch.where(left, q, torch.zeros_like(q))
    if explore:
        q = (1 - explore) * q + explore * left / left.sum(dim=1, keepdim=True).clamp_min(1)
    return q


def rollout(
    policy: SequentialPolicy, x: torch.Tensor, budget: int, *, space: Space | None = None, explore: float = 0.0,
    explore_stop: float = 0.0, generator: torch.Generator | None = None, observed: torch.Tensor | None = None,
    greedy: bool = False,
) -> Rollout:  # fmt: skip
    """Unmask `budget` units of every row, without reversion, and remember all that the loss needs.

    At state t the next unit is drawn from q_t = (1 - eps) softmax + eps uniform over the units that are left; the row
    would stop there with sigma(z_t), so that p_t = sigma_t prod over j < t of (1 - sigma_j), and surely at the budget or
    when nothing is left. p_t is then mixed with eps_s / (number of states reached).

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
    mask = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
    cost = torch.zeros(n, dtype=x.dtype, device=x.device)
    fresh = torch.ones(n, dtype=torch.bool, device=x.device)
    heads: list[Heads] = []
    log_q, orders, costs, reached = [], [], [cost], [fresh]
    for t in range(steps + 1):
        said = policy(x, mask)
        heads.append(said)
        if t == steps:
            break
        count = min(space.step, budget - t * space.step)
        mask, chosen, log, cost = _advance(said.select, x, mask, cost, space, count, explore, generator, observed)
        log_q.append(log)
        orders.append(chosen)
        costs.append(cost)
        reached.append(chosen[:, 0] >= 0)
    arrived = torch.stack(reached, dim=1)
    stop = _stop_probabilities(torch.stack([said.stop for said in heads], dim=1), arrived)
    if explore_stop:
        stop = (1 - explore_stop) * stop + explore_stop * arrived / arrived.sum(dim=1, keepdim=True)
    values = [said.value for said in heads if said.value is not None]
    return Rollout(
        torch.stack([said.output for said in heads], dim=1),
        stop,
        torch.stack(log_q, dim=1) if log_q else x.new_zeros(n, 0),
        torch.cat(orders, dim=1) if orders else torch.zeros(n, 0, dtype=torch.long, device=x.device),
        torch.stack(costs, dim=1),
        torch.stack(values, dim=1) if values else None,
        arrived,
    )


def _stop_probabilities(z: torch.Tensor, reached: torch.Tensor) -> torch.Tensor:
    """Equation 11, where the last state that a row reaches takes all that is left."""
    more = torch.cat([reached[:, 1:], torch.zeros_like(reached[:, :1])], dim=1)
    go = torch.where(more, torch.sigmoid(-z), torch.zeros_like(z))
    before = torch.cumprod(torch.cat([torch.ones_like(go[:, :1]), go[:, :-1]], dim=1), dim=1)
    return before * torch.where(more, torch.sigmoid(z), reached.to(z.dtype))


def _advance(
    select: torch.Tensor, x: torch.Tensor, mask: torch.Tensor, cost: torch.Tensor, space: Space, count: int,
    explore: float, generator: torch.Generator | None, observed: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """One step: `count` units, one after the other, from the logits of one state."""
    log = torch.zeros(len(x), dtype=x.dtype, device=x.device)
    chosen = torch.full((len(x), space.step), -1, dtype=torch.long, device=x.device)
    for place in range(count):
        left = space.left(mask, observed)
        some = left.any(dim=1)
        q = explored(select, left, explore)
        if generator is None:
            unit = select.masked_fill(~left, float("-inf")).argmax(dim=1)
        else:
            safe = torch.where(some[:, None], q.detach(), torch.ones_like(q))
            noise = torch.empty_like(safe).exponential_(generator=generator)
            unit = (safe / noise).argmax(dim=1)  # the exponential race draws from q
        own = q.gather(1, unit[:, None]).squeeze(1)
        log = log + torch.where(some, own.clamp_min(torch.finfo(q.dtype).tiny).log(), torch.zeros_like(own))
        reveal = space.units[unit] & some[:, None]
        mask = mask | (reveal if observed is None else reveal & observed)
        cost = cost + torch.where(some, space.costs[unit].to(cost.dtype), torch.zeros_like(cost))
        chosen[:, place] = torch.where(some, unit, torch.full_like(unit, -1))
    return mask, chosen, log, cost


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

    J_1 = mean of sum p_t c_t. J_2 = mean of sum over k of log q_k (G_k - b_k) with the cost to go G_k = sum over t >= k of
    p_t c_t, detached. With b = 0 this equals the paper's mean of sum over t of [p_t c_t] log Q_t, Q_t the product of
    q_1 ... q_t; any b_k that does not depend on the k-th choice leaves the expected gradient as it is.

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
    loss = torch.stack([losses(rolled.pred[:, t], y, kind) for t in range(states)], dim=1)
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
