"""What can be unmasked, as tensors: shared by training, inference and enumeration (Section 3)."""

from dataclasses import dataclass

import torch

_UNSET = torch.empty(0)


@dataclass(frozen=True, eq=False)
class Space:
    """Units of selection on one device.

    Attributes:
        units: (U, d) bool: the features of a unit.
        costs: (U,) price of a unit.
        usable: (U,) bool: False for units that are never selected.
        step: units that one step reveals.
        members: (U, g) columns of each unit, filled up with the first one; made from `units` where not given.
        real: (U, g) bool: which of `members` are no filling.
        plain: whether unit j is column j.
    """

    units: torch.Tensor
    costs: torch.Tensor
    usable: torch.Tensor
    step: int = 1
    members: torch.Tensor = _UNSET
    real: torch.Tensor = _UNSET
    plain: bool = False

    def __post_init__(self) -> None:
        if self.members is not _UNSET:
            return
        count = self.units.sum(dim=1, keepdim=True)
        order = self.units.to(torch.int8).argsort(dim=1, descending=True, stable=True)
        widest = int(count.max()) if len(self.units) else 0
        place = torch.arange(widest, device=self.units.device)
        real = place < count
        object.__setattr__(self, "real", real)
        object.__setattr__(self, "members", torch.where(real, order[:, :widest], order[:, :1]))
        eye = torch.eye(len(self.units), dtype=torch.bool, device=self.units.device)
        object.__setattr__(
            self, "plain", self.units.shape[0] == self.units.shape[1] and bool((self.units == eye).all())
        )

    @classmethod
    def single(cls, d: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> "Space":
        """Every feature by itself, at a price of 1."""
        every = torch.ones(d, dtype=torch.bool, device=device)
        members = torch.arange(d, device=device)[:, None]
        return cls(
            torch.eye(d, dtype=torch.bool, device=device), every.to(dtype), every, 1, members, every[:, None], True
        )

    def to(self, device: torch.device | str) -> "Space":
        """The same on another device."""
        return Space(self.units.to(device), self.costs.to(device), self.usable.to(device), self.step)

    def left(self, mask: torch.Tensor, observed: torch.Tensor | None = None) -> torch.Tensor:
        """(n, U) bool: units that would still reveal something.

        Args:
            mask: (n, d) bool, what is revealed.
            observed: (n, d) bool, False where a value is missing; None: all are there.
        """
        hidden = ~mask if observed is None else ~mask & observed
        return (hidden if self.plain else (hidden[:, self.members] & self.real).any(dim=2)) & self.usable
