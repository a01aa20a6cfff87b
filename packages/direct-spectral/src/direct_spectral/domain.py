"""From positions in any units to angles, with bounds that are fixed once and checks that name the axis."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from offprints.checks import Problems, message, require_kind, require_range

Bounds = Sequence[Sequence[float]]
EDGE = 1e-6
"""Share of an axis's range by which a point may lie outside it: rounding, not an error."""


def values_known(x: torch.Tensor) -> bool:
    """Whether the entries can be looked at: not while torch traces, nor on fake or meta tensors."""
    from torch._subclasses.fake_tensor import FakeTensor

    return not (torch.compiler.is_compiling() or isinstance(x, FakeTensor) or x.is_meta)


def require_floating(name: str, x: object, *, complex_too: bool = False) -> None:
    """Check that it is a tensor of floating-point (or complex) numbers.

    Raises:
        TypeError: if it is not.
    """
    require_kind(name, x, torch.Tensor, hint="Convert it with torch.as_tensor(x, dtype=torch.float32).")
    assert isinstance(x, torch.Tensor)  # for the type checker
    if not (x.dtype.is_floating_point or (complex_too and x.dtype.is_complex)):
        kinds = "floating-point" + (" or complex" if complex_too else "")
        raise TypeError(message(name, f"of a {kinds} dtype", x.dtype, "Convert it with .float()."))


def require_finite_where(name: str, x: torch.Tensor, mask: torch.Tensor | None = None) -> None:
    """Check that every entry is finite; where a mask is False (points that are padding) anything may stand.

    Args:
        name: of the argument.
        x: (..., N, C).
        mask: (..., N), True at points that count.

    Raises:
        ValueError: with the count.
    """
    if not values_known(x):
        return
    bad = ~torch.isfinite(x)
    if mask is not None:
        bad = bad & mask.unsqueeze(-1)
    if bad.any():
        count, where = int(bad.sum()), tuple(bad.nonzero()[0].tolist())
        hint = "Clean the data, or pass validate=False to let them through."
        raise ValueError(
            message(name, "finite", f"{count} NaN or inf of {x.numel()} entries, the first at {where}", hint)
        )


@dataclass(frozen=True)
class Domain:
    """A box that positions lie in, and how it becomes angles (section 3 of the paper).

    θ_i = 2π γ_i (x_i - lo_i) / (hi_i - lo_i). On a periodic axis γ_i = 1 and hi_i - lo_i is the period; on any other
    γ_i = `gap` < 1 keeps the two ends apart, which a Fourier series would otherwise take for one point.

    Attributes:
        bounds: (lo, hi) of each axis, in the units of the positions.
        periodic: of each axis.
        gap: γ of the axes that are not periodic, in (0, 1].
    """

    bounds: tuple[tuple[float, float], ...]
    periodic: tuple[bool, ...]
    gap: float = 0.9

    @staticmethod
    def of(bounds: Bounds, periodic: bool | Sequence[bool], gap: float = 0.9) -> "Domain":
        """A checked domain; one `periodic` stands for all axes.

        Raises:
            TypeError: if a bound is no number, or `periodic` no bool.
            ValueError: if an axis has no extent, or the numbers of axes differ.
        """
        with Problems("cannot make the domain") as problems:
            pairs = [tuple(pair) if isinstance(pair, Sequence) else (pair,) for pair in bounds]
            for axis, pair in enumerate(pairs):
                if len(pair) != 2:
                    problems.add(message(f"bounds[{axis}]", "a pair (lo, hi)", pair))
                    continue
                problems.check(require_range, f"bounds[{axis}][0]", pair[0], low=-math.inf, high=math.inf)
                because = f"above the lower end of axis {axis}"
                problems.check(
                    require_range, f"bounds[{axis}][1]", pair[1], low=pair[0], low_open=True, because=because
                )
            problems.check(require_range, "gap", gap, low=0.0, high=1.0, low_open=True)
            each = tuple(periodic) if isinstance(periodic, Sequence) else (periodic,) * len(pairs)
            if len(each) != len(pairs):
                problems.add(message("periodic", f"one bool, or {len(pairs)} (an axis each)", f"{len(each)}"))
            for axis, flag in enumerate(each):
                problems.check(require_kind, f"periodic[{axis}]", flag, bool)
        return Domain(tuple((float(low), float(high)) for low, high in pairs), each, float(gap))

    @property
    def dim(self) -> int:
        """Number of axes."""
        return len(self.bounds)

    def factors(self) -> list[float]:
        """2π γ_i / (hi_i - lo_i) of each axis: the derivative of angle by position."""
        return [
            2 * math.pi * (1.0 if periodic else self.gap) / (high - low)
            for (low, high), periodic in zip(self.bounds, self.periodic, strict=True)
        ]

    def angles(self, points: torch.Tensor) -> torch.Tensor:
        """θ of points (..., d), in their dtype."""
        low = points.new_tensor([pair[0] for pair in self.bounds])
        return (points - low) * points.new_tensor(self.factors())

    def normalised(self, points: torch.Tensor) -> torch.Tensor:
        """Positions (..., d) scaled to [-1, 1] along each axis."""
        low = points.new_tensor([pair[0] for pair in self.bounds])
        extent = points.new_tensor([high - low for low, high in self.bounds])
        return 2 * (points - low) / extent - 1

    def axis(self, i: int) -> "Domain":
        """The domain of one axis alone."""
        return Domain((self.bounds[i],), (self.periodic[i],), self.gap)

    def require_inside(self, name: str, points: torch.Tensor, mask: torch.Tensor | None = None) -> None:
        """Check that points lie inside along the axes that are not periodic (up to 1e-6 of the range).

        Raises:
            ValueError: naming axis, count and range.
        """
        if not values_known(points) or not points.numel():
            return
        with Problems(f"{name} do not fit the domain") as problems:
            for axis, (low, high) in enumerate(self.bounds):
                if self.periodic[axis]:
                    continue
                x, slack = points.detach()[..., axis], EDGE * (high - low)
                outside = (x < low - slack) | (x > high + slack)
                outside = outside if mask is None else outside & mask
                if outside.any():
                    seen = x[outside]
                    got = (
                        f"{int(outside.sum())} of {x.numel()} points outside, from {seen.min():.6g} to {seen.max():.6g}"
                    )
                    hint = "Fit the bounds on the whole training set (fit_bounds), or name the axis periodic."
                    problems.add(message(f"axis {axis} of {name}", f"between {low:.6g} and {high:.6g}", got, hint))

    def to_config(self) -> dict[str, object]:
        """As JSON values."""
        return {"bounds": [list(pair) for pair in self.bounds], "periodic": list(self.periodic), "gap": self.gap}


def fit_bounds(clouds: torch.Tensor | Iterable[torch.Tensor], margin: float = 0.0) -> tuple[tuple[float, float], ...]:
    """Smallest box around all clouds of a training set: `bounds` for an operator, fitted once, never per batch.

    Args:
        clouds: one tensor (..., d), or an iterable of such, for instance `(sample["points"] for sample in data)`.
        margin: widens each axis at both ends by this share of its range.

    Raises:
        TypeError: if a cloud is no floating-point tensor.
        ValueError: if there is none, they differ in d, hold NaN, or all points share one coordinate (no range).
    """
    require_range("margin", margin, low=0.0)
    low = high = None
    for place, cloud in enumerate([clouds] if isinstance(clouds, torch.Tensor) else clouds):
        require_floating(f"clouds[{place}]", cloud)
        require_finite_where(f"clouds[{place}]", cloud)
        flat = cloud.detach().reshape(-1, cloud.shape[-1]).double().cpu()
        if not len(flat):
            continue
        if low is not None and len(low) != flat.shape[1]:
            raise ValueError(message(f"clouds[{place}]", f"points of {len(low)} coordinates", flat.shape[1]))
        low = flat.amin(0) if low is None or high is None else torch.minimum(low, flat.amin(0))
        high = flat.amax(0) if high is None else torch.maximum(high, flat.amax(0))
    if low is None or high is None:
        raise ValueError(message("clouds", "at least one point", "none"))
    with Problems("cannot fit bounds") as problems:
        for axis, (a, b) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            if not b > a:
                hint = "Give its bounds by hand, or drop the axis."
                problems.add(message(f"axis {axis} of the points", "of some range", f"{a:.6g} at every point", hint))
    extent = margin * (high - low)
    return tuple(zip((low - extent).tolist(), (high + extent).tolist(), strict=True))
