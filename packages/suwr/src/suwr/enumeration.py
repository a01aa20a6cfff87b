"""The exact distribution over masks of a stochastic policy: P(S | x), summed over all orders of S (Section 3)."""

import torch
from offprints.checks import message, require_shape

from suwr.policy import SequentialPolicy
from suwr.space import Space
from suwr.unrolling import explored

MOST = 12
"""Units up to which all 2^U sets are listed."""


def _parts(
    policy: SequentialPolicy, x: torch.Tensor, mask: torch.Tensor, revealed: int, budget: int, space: Space,
    observed: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(n,) probability of stopping and (n, U) of each next unit, given that it goes on, in a state."""
    heads = policy(x, mask)
    left = space.left(mask, observed)
    must = ~left.any(dim=1) | (revealed >= budget)
    stop = torch.where(must, torch.ones_like(heads.stop), torch.sigmoid(heads.stop))
    return stop, explored(heads.select, left, 0.0)


def _revealed(chosen: int, space: Space, x: torch.Tensor, observed: torch.Tensor | None) -> torch.Tensor:
    columns = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
    for unit in range(len(space.units)):
        if chosen >> unit & 1:
            columns = columns | space.units[unit]
    mask = columns.expand(len(x), -1)
    return mask if observed is None else mask & observed


@torch.no_grad()
def mask_distribution(
    policy: SequentialPolicy, x: torch.Tensor, budget: int, space: Space | None = None,
    observed: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """All masks (M, d), and (n, M) P(S | x) = sum over orders of sigma(z(S)) prod (1 - sigma(z(S_t))) q(i_{t+1} | S_t).

    The sum over orders is a recursion over sets: reach(S + i) += reach(S) (1 - sigma(z(S))) q(i | S). O(2^U) passes.

    Raises:
        TypeError, ValueError: for other shapes, more than 12 units, or a step of more than one unit.
    """
    space = space or Space.single(policy.n_features, x.device, x.dtype)
    _can_list(space, len(space.units))
    require_shape("x", x, ("n", policy.n_features))
    policy.eval()
    reach = {0: x.new_ones(len(x))}
    found: dict[tuple[bool, ...], torch.Tensor] = {}
    for chosen in sorted(range(2 ** len(space.units)), key=lambda s: (s.bit_count(), s)):
        if chosen not in reach or chosen.bit_count() > budget:
            continue
        here, mask = reach.pop(chosen), _revealed(chosen, space, x, observed)
        stop, q = _parts(policy, x, mask, chosen.bit_count(), budget, space, observed)
        for shown in torch.unique(mask, dim=0):
            key, rows = tuple(shown.tolist()), (mask == shown).all(dim=1)
            found[key] = found.get(key, torch.zeros_like(here)) + torch.where(rows, here * stop, torch.zeros_like(here))
        for unit in range(len(space.units)):
            flow = here * (1 - stop) * q[:, unit]
            if not chosen >> unit & 1 and bool((flow > 0).any()):
                after = chosen | 1 << unit
                reach[after] = reach.get(after, torch.zeros_like(here)) + flow
    masks = torch.tensor(sorted(found), dtype=torch.bool, device=x.device).reshape(-1, x.shape[1])
    return masks, torch.stack([found[tuple(mask.tolist())] for mask in masks], dim=1)


@torch.no_grad()
def mask_probability(
    policy: SequentialPolicy, x: torch.Tensor, masks: torch.Tensor, budget: int, space: Space | None = None,
    observed: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """(n,) P(S_i | x_i) of one mask a row, by the same recursion over the subsets of S_i; units must be disjoint.

    Raises:
        TypeError, ValueError: for other shapes, overlapping units, a mask of more than 12, or a step of more than one.
    """
    space = space or Space.single(policy.n_features, x.device, x.dtype)
    require_shape("x", x, ("n", policy.n_features))
    require_shape("masks", masks, tuple(x.shape))
    if bool((space.units.sum(dim=0) > 1).any()):
        raise ValueError(message("units", "disjoint", "overlapping patches", "Use mask_distribution."))
    policy.eval()
    result = x.new_zeros(len(x))
    for shown in torch.unique(masks, dim=0):
        rows = (masks == shown).all(dim=1).nonzero().squeeze(1)
        seen = observed[rows] if observed is not None else None
        kept = [unit for unit in range(len(space.units)) if bool((space.units[unit] & shown).any())]
        _can_list(space, len(kept))
        result[rows] = _of_one(policy, x[rows], shown, kept, budget, space, seen)
    return result


def _of_one(
    policy: SequentialPolicy, x: torch.Tensor, shown: torch.Tensor, kept: list[int], budget: int, space: Space,
    observed: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    whole = sum(1 << unit for unit in kept)
    target = _revealed(whole, space, x, observed)
    if len(kept) > budget:
        return x.new_zeros(len(x))
    reach = {0: x.new_ones(len(x))}
    for bits in sorted(range(2 ** len(kept)), key=lambda s: (s.bit_count(), s)):
        chosen = sum(1 << unit for place, unit in enumerate(kept) if bits >> place & 1)
        here = reach.pop(chosen)
        mask = _revealed(chosen, space, x, observed)
        stop, q = _parts(policy, x, mask, len(kept) if chosen == whole else bits.bit_count(), budget, space, observed)
        if chosen == whole:
            return torch.where((target == shown).all(dim=1), here * stop, torch.zeros_like(here))
        for unit in kept:
            if not chosen >> unit & 1:
                after = chosen | 1 << unit
                reach[after] = reach.get(after, torch.zeros_like(here)) + here * (1 - stop) * q[:, unit]
    raise AssertionError("the whole set is one of its subsets")


def _can_list(space: Space, count: int) -> None:
    if space.step != 1:
        raise ValueError(message("step_size", "1 to list masks", space.step))
    if count > MOST:
        hint = "Use probe_selector, which draws."
        raise ValueError(message("units", f"at most {MOST} to list their sets", count, hint))
