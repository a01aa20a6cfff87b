"""Which slots are kept, which are mixed, and the linear map that carries anything from old slots to new ones."""

from dataclasses import dataclass

import torch
from torch import Tensor


def top(scores: Tensor, count: int) -> Tensor:
    """(…, S) -> (…, count) the places of the highest scores, in temporal order; of equal scores the earlier ones.

    The r-th row of the residual R of Section 3 is 1 at the r-th of these places.
    """
    order = torch.sort(scores, dim=-1, descending=True, stable=True).indices
    return order[..., :count].sort(-1).values


def choose(scores: Tensor, kept: int, local: int) -> tuple[Tensor, Tensor]:
    """(…, S) -> (…, kept) and (…, S − kept) places, in temporal order: kept as they are, and the others (Section 3).

    Kept are the last `local` places and the kept − local highest scores before them.
    """
    length = scores.shape[-1]
    if local:
        last = torch.arange(length, device=scores.device) >= length - local
        scores = scores.masked_fill(last, torch.inf)
    order = torch.sort(scores, dim=-1, descending=True, stable=True).indices
    return order[..., :kept].sort(-1).values, order[..., kept:].sort(-1).values


@dataclass(frozen=True)
class Plan:
    """From S old slots to the new ones, as Section 3 orders them: kept slots first, then mixtures.

    Attributes:
        kept: (b, h, kept) places.
        others: (b, h, S') places.
        weights: (b, h, C, S') of the mixtures over the others; None where there are none.
    """

    kept: Tensor
    others: Tensor | None
    weights: Tensor | None

    def apply(self, x: Tensor) -> Tensor:
        """(b, h, S) or (b, h, S, n) -> the same at the new slots, in the dtype of x."""
        flat = x.ndim == 3
        wide = x.unsqueeze(-1) if flat else x
        found = taken(wide, self.kept)
        if self.weights is not None and self.others is not None and self.weights.shape[-2]:
            mixed = torch.matmul(self.weights, taken(wide, self.others).to(self.weights.dtype))
            found = torch.cat((found, mixed.to(x.dtype)), -2)
        return found.squeeze(-1) if flat else found

    def matrix(self, length: int) -> Tensor:
        """(b, h, new, S): the map itself, S = length."""
        eye = torch.eye(length, device=self.kept.device)
        return self.apply(eye.expand(*self.kept.shape[:2], length, length))


def taken(x: Tensor, places: Tensor) -> Tensor:
    """(…, S, n) at (…, k) places -> (…, k, n)."""
    return x.gather(-2, places.unsqueeze(-1).expand(*places.shape, x.shape[-1]))
