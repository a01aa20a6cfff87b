"""Effective descent quality: what of each update arrived in the stored weights (section 3)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from types import TracebackType

import torch
from offprints.checks import require_choice, require_kind, require_range, require_shape
from torch import Tensor

from collage_optim.base import Collage
from collage_optim.mcf import HALF, MCF


def edq(raw: Tensor, before: Tensor, after: Tensor) -> tuple[float, float]:
    """(EDQ, EDQ ratio) of one tensor: <after - before, raw> / ||raw|| and the same over ||raw||^2.

    EDQ is a length and equals ||raw|| when nothing is lost; the ratio is then 1, whatever the scale. Both are NaN for
    raw = 0.

    Args:
        raw: the update that was asked for, any shape.
        before: stored values before the update.
        after: and after it.

    Raises:
        TypeError: other than tensors.
        ValueError: shapes that differ.
    """
    for name, tensor in (("raw", raw), ("before", before), ("after", after)):
        require_kind(name, tensor, Tensor)
    require_shape("before", before, tuple(raw.shape))
    require_shape("after", after, tuple(raw.shape))
    raw = raw.double()
    inner, square = float((raw * (after.double() - before.double())).sum()), float(raw.square().sum())
    if square == 0.0:
        return float("nan"), float("nan")
    return inner / square**0.5, inner / square


@dataclass(frozen=True)
class PrecisionReport:
    """One step: `edq` (length), `edq_ratio` (1: nothing lost), share of updates that changed nothing, low parts.

    `visible_lost` is the share of updates that changed nothing of what the model reads: what mode "plain" would lose.
    """

    step: int
    edq: float
    edq_ratio: float
    lost_fraction: float
    low_norm: float
    low_edq: float
    visible_lost: float
    groups: dict[int, "PrecisionReport"] = field(default_factory=dict)

    def as_dict(self) -> dict[str, float]:
        """The numbers, without those of single groups, for a logger."""
        return {name: value for name, value in asdict(self).items() if name not in ("groups", "step")}

    @property
    def recommended_mode(self) -> str:
        """What suits this training: "plain" if less than 1 % of the updates leave h as it was, else "plus"."""
        return "plain" if self.visible_lost < 0.01 else "plus"


@dataclass
class _Sums:
    inner: float = 0.0
    square: float = 0.0
    low_inner: float = 0.0
    low_square: float = 0.0
    lost: int = 0
    unseen: int = 0
    count: int = 0

    def report(self, step: int, groups: dict[int, PrecisionReport]) -> PrecisionReport:
        length = self.square**0.5
        nan = float("nan")
        return PrecisionReport(
            step=step,
            edq=self.inner / length if length else nan,
            edq_ratio=self.inner / self.square if length else nan,
            lost_fraction=self.lost / self.count if self.count else 0.0,
            low_norm=self.low_square**0.5,
            low_edq=self.low_inner / length if length else nan,
            visible_lost=self.unseen / self.count if self.count else 0.0,
            groups=groups,
        )


class PrecisionMonitor:
    """Measures every `every`-th step of an optimizer of this package; costs nothing once detached.

    With raw updates Delta and effective ones (differences of stored values), sums over all tensors of a group:
    EDQ = <effective, Delta> / ||Delta||; lost_fraction = #{Delta != 0, effective = 0} / #parameters; low_norm is
    ||dtheta||, low_edq the share of the EDQ that the low parts carry.

    Args:
        optimizer: `CollageAdamW` or `CollageSGD`.
        groups: numbers of the groups to measure; all by default.
        view: "expansion" (stored values are h + l, or the master copy) or "visible" (what the model reads, h).
        every: measure each that many steps.

    Raises:
        TypeError: another optimizer.
        ValueError: an unknown view or group, every < 1.
    """

    def __init__(
        self, optimizer: Collage, groups: Sequence[int] | None = None, view: str = "expansion", every: int = 1
    ) -> None:
        require_kind("optimizer", optimizer, Collage)
        require_choice("view", view, ("expansion", "visible"))
        require_range("every", every, low=1, integer=True)
        known = range(len(optimizer.param_groups))
        for number in groups or ():
            require_choice("a group", number, known)
        self.optimizer, self.groups, self.view, self.every = optimizer, groups, view, every
        self.last: PrecisionReport | None = None
        self.history: list[PrecisionReport] = []
        self._step, self._sums = 0, dict[int, _Sums]()
        optimizer._observers.append(self)

    def begin(self) -> bool:
        """A step begins; whether it is to be measured."""
        self._step += 1
        self._sums = {}
        return self._step % self.every == 0

    def chunk(self, group: int, before: MCF, after: MCF, raw: Tensor) -> None:
        """One chunk was updated; all arguments float64."""
        if self.groups is not None and group not in self.groups:
            return
        sums = self._sums.setdefault(group, _Sums())
        low = after.lo - before.lo
        moved = seen = after.hi - before.hi
        if self.view == "expansion":
            moved = moved + low
        sums.inner += float((moved * raw).sum())
        sums.square += float(raw.square().sum())
        sums.low_inner += float((low * raw).sum())
        sums.low_square += float(after.lo.square().sum())
        sums.lost += int(((raw != 0) & (moved == 0)).sum())
        sums.unseen += int(((raw != 0) & (seen == 0)).sum())
        sums.count += raw.numel()

    def end(self) -> None:
        """The step is over: `last` is its report."""
        total = _Sums()
        for sums in self._sums.values():
            for name, value in vars(sums).items():
                setattr(total, name, getattr(total, name) + value)
        groups = {number: sums.report(self._step, {}) for number, sums in self._sums.items()}
        self.last = total.report(self._step, groups)
        self.history.append(self.last)

    def detach(self) -> None:
        """Stop measuring."""
        if self in self.optimizer._observers:
            self.optimizer._observers.remove(self)

    def __enter__(self) -> "PrecisionMonitor":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()


@dataclass(frozen=True)
class Suggestion:
    """What to expect of a 16-bit training: betas that round to 1, tensors that lose updates, and a mode."""

    rounding_betas: tuple[str, ...]
    lost_by_tensor: dict[str, float]
    lost_fraction: float
    mode: str


@torch.no_grad()
def suggest(
    model: torch.nn.Module, lr: float, betas: tuple[float, float] = (0.9, 0.999), dtype: torch.dtype = torch.bfloat16
) -> Suggestion:
    """Before training: which updates of size lr would vanish, as Adam's are about that large.

    theta + Delta rounds back to theta if |Delta| < ulp(theta) / 2: the share of such weights, by tensor. Mode: "plus"
    when beta_2 rounds to 1 (v would never decay), "light" when more than 1 % of the updates vanish, else "plain".

    Args:
        model: its parameters in any floating type.
        lr: eta > 0.
        betas: beta_1, beta_2.
        dtype: torch.bfloat16 or torch.float16, the type to train in.

    Raises:
        ValueError: lr <= 0, or another type.
    """
    require_range("lr", lr, low=0.0, low_open=True)
    require_choice("dtype", dtype, HALF)
    rounding = tuple(
        name
        for name, beta in zip(("beta_1", "beta_2"), betas, strict=True)
        if float(torch.tensor(beta, dtype=torch.float64).to(dtype)) == 1.0
    )
    lost, total, by_tensor = 0.0, 0, {}
    for name, p in model.named_parameters():
        theta = p.to(dtype)
        gone = float(((theta.double().abs() - lr).to(dtype) == theta.abs()).sum()) if p.numel() else 0.0
        by_tensor[name] = gone / max(p.numel(), 1)
        lost, total = lost + gone, total + p.numel()
    share = lost / max(total, 1)
    mode = "plus" if "beta_2" in rounding else "light" if share > 0.01 else "plain"
    return Suggestion(rounding, by_tensor, share, mode)
