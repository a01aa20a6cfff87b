"""What all operators of section 4 of the paper share: inputs prepared, bases built once or per call, state on disk."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self

import torch
from offprints import checkpoint
from offprints.checks import message, require_choice, require_range, require_same_device
from offprints.device import float_dtype
from torch import nn

from direct_spectral import backends
from direct_spectral._version import DIST, VERSION
from direct_spectral.basis import MAX_BASIS_BYTES, NORMS, FourierBasis
from direct_spectral.contract import Basis, compute_dtype
from direct_spectral.domain import Bounds, Domain, require_finite_where, require_floating
from direct_spectral.lattice import LatticeBasis
from direct_spectral.quadrature import RULES


class Prepared(NamedTuple):
    """Inputs of one forward pass: features, the bases in and out, and whether they are the same points."""

    features: torch.Tensor  # (B, N, C_in [+ d])
    basis: Basis
    out: Basis
    same: bool
    mask: torch.Tensor | None
    complex: bool


class PointOperator(nn.Module):
    """Base of operators from values at points to values at points: `forward(u, points, out_points, mask)`.

    Subclasses say how a basis is made of points, what positions they append, and how features become outputs.
    """

    append_positions: bool
    in_channels: int
    validate: bool
    query_head: bool
    in_mean: torch.Tensor
    in_std: torch.Tensor
    out_mean: torch.Tensor
    out_std: torch.Tensor
    config: Mapping[str, object]
    lasting = True  # whether a basis can outlive a step of training
    _basis: Basis | None = None
    _told = False

    def __new__(cls, *args: object, **options: object) -> Self:
        """Notes the arguments, as they are what `save_pretrained` writes."""
        self = super().__new__(cls)
        bound = inspect.signature(cls.__init__).bind(self, *args, **options)
        bound.apply_defaults()
        kept = {name: value for name, value in bound.arguments.items() if name not in ("self", "device", "dtype")}
        object.__setattr__(self, "config", kept)
        return self

    def __getnewargs_ex__(self) -> tuple[tuple, dict]:
        """For copies and pickles."""
        return (), dict(self.config)

    def _register_scales(
        self, out_channels: int, device: "torch.device | str | None" = None, dtype: torch.dtype | None = None
    ) -> None:
        """Buffers for `fit_scales`, at first without effect."""
        require_range("out_channels", out_channels, low=1, integer=True)
        for name, n, start in (
            ("in_mean", self.in_channels, 0.0), ("in_std", self.in_channels, 1.0),
            ("out_mean", out_channels, 0.0), ("out_std", out_channels, 1.0),
        ):  # fmt: skip
            self.register_buffer(name, torch.full((n,), start, device=device, dtype=dtype))

    def fit_scales(self, u: torch.Tensor, y: torch.Tensor, mask: torch.Tensor | None = None) -> Self:
        """Take mean and standard deviation of each channel of training inputs and targets into the operator.

        From then on it works on (u - mean) / std inside, and gives outputs in the units of y.

        Args:
            u: (n, N, C_in), real or complex.
            y: (n, N', C_out).
            mask: (n, N) bool, True at points that count; needs y at the same points.

        Raises:
            ValueError: if channels differ, or there is nothing to average.
        """
        for name, x in (("in", u), ("out", y)):
            x = torch.view_as_real(x).flatten(-2) if x.is_complex() else x
            mean, std = getattr(self, f"{name}_mean"), getattr(self, f"{name}_std")
            flat = x.flatten(0, -2) if mask is None else x[mask]
            if flat.shape != (len(flat), len(mean)) or not len(flat):
                raise ValueError(message(f"{name}puts", f"of {len(mean)} channels, not empty", tuple(x.shape)))
            wide = flat.to(_double(flat))
            spread = ((wide - wide.mean(0)) ** 2).mean(0).sqrt()
            mean.copy_(wide.mean(0))
            std.copy_(torch.where(spread > 0, spread, 1.0))
        return self

    def make_basis(self, points: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype) -> Basis:
        """The basis of these points in this dtype."""
        raise NotImplementedError

    def positions(self, basis: Basis) -> torch.Tensor:
        """Positions as features, (N, p) or (B, N, p), of order one."""
        raise NotImplementedError

    def operate(self, inputs: Prepared) -> torch.Tensor:
        """Features to outputs (B, N', C_out)."""
        raise NotImplementedError

    def precompute(self, basis: Basis | None) -> Self:
        """Keep a basis: it serves every call that names no points, or the very tensor it was made from.

        None forgets it. Nothing of it enters the `state_dict`.
        """
        if basis is not None and not isinstance(basis, Basis):
            raise TypeError(message("basis", "a basis, such as FourierBasis(points, ...)", type(basis).__name__))
        if basis is not None:
            self._fits(basis)
        object.__setattr__(self, "_basis", basis)
        return self

    def _fits(self, basis: Basis) -> None:
        """Check that a basis keeps the modes of this operator."""

    def forward(
        self,
        u: torch.Tensor,
        points: torch.Tensor | Basis | None = None,
        out_points: torch.Tensor | None = None,
        mask: torch.Tensor | None = None,
        out_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Values (B, N', C_out) at `out_points`, or at `points`.

        Args:
            u: (B, N, C_in) real, or complex with its real and imaginary parts as channels (the output then is
                complex too).
            points: (N, d), (1, N, d) or (B, N, d); a basis; or None, for the one that was precomputed.
            out_points: (N', d) or (B, N', d), or None. The last layer's pointwise branch knows values at `points` only
                and is left out for others: train with `query_head=True` what is to be asked elsewhere.
            mask: (B, N) bool, True at points that count; what stands at the others changes nothing.
            out_mask: likewise for `out_points`.

        Raises:
            TypeError: for integer tensors, or a float dtype that is not that of the parameters.
            ValueError: for NaN or inf, points outside the bounds, wrong shapes, or different devices.
        """
        inputs = self._prepare(u, points, out_points, mask, out_mask)
        y = self.operate(inputs) * self.out_std + self.out_mean
        rows = mask if inputs.same else out_mask
        if rows is not None:
            y = torch.where(rows.unsqueeze(-1), y, 0)
        if inputs.complex:
            y = torch.view_as_complex(y.unflatten(-1, (-1, 2)).contiguous())
        return y

    def _prepare(
        self,
        u: torch.Tensor,
        points: torch.Tensor | Basis | None,
        out_points: torch.Tensor | None,
        mask: torch.Tensor | None,
        out_mask: torch.Tensor | None,
    ) -> Prepared:
        u, packed = self._checked(u, mask)
        if isinstance(points, torch.Tensor):
            require_same_device(u=u, points=points, mask=mask)
        basis = self._basis_for(points, u, mask)
        if basis.n_points != u.shape[1]:
            raise ValueError(message("u", f"of shape (B, {basis.n_points}, {self.in_channels})", tuple(u.shape)))
        u = (u - self.in_mean) / self.in_std
        if mask is not None:
            u = torch.where(mask.unsqueeze(-1), u, 0)
        if self.append_positions:
            where = self.positions(basis).to(u.dtype)
            u = torch.cat([u, where.expand(len(u), -1, -1)], -1)
        same = out_points is None or out_points is points
        if same and out_mask is not None and out_points is None:
            raise ValueError(message("out_mask", "given with out_points only", "no out_points"))
        out = basis
        if not same:
            require_floating("out_points", out_points)
            require_same_device(u=u, out_points=out_points, out_mask=out_mask)
            out = basis.at(out_points, out_mask, self.validate)
            if not out.shared and len(out_points) != len(u):
                raise ValueError(message("out_points", f"a batch of {len(u)}, as u", len(out_points)))
            self._tell_once()
        return Prepared(u, basis, out, same, mask, packed)

    def _checked(self, u: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, bool]:
        """Real values (B, N, C_in), and whether they were complex."""
        require_floating("u", u, complex_too=True)
        packed = u.is_complex()
        if packed:
            u = torch.view_as_real(u.resolve_conj()).flatten(-2)
        if u.ndim != 3 or u.shape[-1] != self.in_channels:
            hint = "Real and imaginary parts count as two channels." if packed else ""
            raise ValueError(message("u", f"of shape (B, N, {self.in_channels})", tuple(u.shape), hint))
        if mask is not None and (mask.dtype != torch.bool or mask.shape != u.shape[:2]):
            got = f"{tuple(mask.shape)} of {mask.dtype}"
            raise ValueError(message("mask", f"of shape {tuple(u.shape[:2])} and dtype bool", got))
        if self.validate:
            require_finite_where("u", u, mask)
        own = next(self.parameters()).dtype
        if u.dtype != own and not torch.is_autocast_enabled(u.device.type):
            hint = "Convert the values with .to(dtype), or the model."
            raise TypeError(message("u", f"of {own}, as the parameters", u.dtype, hint))
        return u, packed

    def _basis_for(self, points: torch.Tensor | Basis | None, u: torch.Tensor, mask: torch.Tensor | None) -> Basis:
        kept = self._basis
        if isinstance(points, Basis):
            self._fits(points)
            return points
        if points is None:
            if kept is None:
                raise ValueError(message("points", "given, or a basis precomputed", "neither"))
            if mask is not None and getattr(kept, "mask", None) is None:
                raise ValueError(message("mask", "given to the basis that is precomputed", "a mask for the call"))
            if kept.device != u.device or (u.dtype == torch.float64 and kept.dtype != torch.float64):
                kept = kept.to(u.device, max(kept.dtype, compute_dtype(u.dtype), key=lambda dtype: dtype.itemsize))
                object.__setattr__(self, "_basis", kept)  # moved once, not at every call
            return kept
        require_floating("points", points)
        if kept is not None and mask is None and kept.matches(points) and kept.dtype == compute_dtype(u.dtype):
            return kept
        if points.ndim == 3 and points.shape[0] not in (1, len(u)):
            raise ValueError(message("points", f"a batch of {len(u)} (as u), or of 1", points.shape[0]))
        return self.make_basis(points, mask, compute_dtype(u.dtype))

    def _tell_once(self) -> None:
        if self.query_head or self._told or torch.compiler.is_compiling():
            return
        object.__setattr__(self, "_told", True)
        warnings.warn(
            "The last layer's pointwise branch is left out at out_points: build and train with query_head=True "
            "what is to be evaluated away from its inputs.", UserWarning, stacklevel=4,
        )  # fmt: skip

    def save_pretrained(self, folder: str | Path) -> Path:
        """Write `model.safetensors` and `model.json` (the constructor's arguments) into a folder; the former's path."""
        state: Mapping[str, object] = self.state_dict()
        tensors = {name: x for name, x in state.items() if isinstance(x, torch.Tensor)}  # neuralop adds more
        config = {"class": type(self).__name__, "arguments": dict(self.config)}
        return checkpoint.save(Path(folder) / "model", tensors, method=DIST, version=VERSION, config=config)

    @classmethod
    def from_pretrained(cls, folder: str | Path, device: "torch.device | str | None" = None) -> Self:
        """The operator that `save_pretrained` wrote, in evaluation mode, in the dtype it had.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if it is of another class, or damaged.
        """
        found = checkpoint.load(Path(folder) / "model", method=DIST, device=device, framework="torch")
        name = found.config.get("class")
        if name != cls.__name__:
            raise ValueError(
                message(str(folder), f"a checkpoint of {cls.__name__}", name, f"Use {name}.from_pretrained.")
            )
        arguments = found.config["arguments"]
        assert isinstance(arguments, dict)  # JSON that save_pretrained wrote
        tensors = {name: x for name, x in found.tensors.items() if isinstance(x, torch.Tensor)}
        dtype = next((x.dtype for x in tensors.values() if x.is_floating_point()), None)
        model = cls(**arguments, device=device, dtype=dtype)
        lacking = model.load_state_dict(tensors, strict=False)
        if wrong := [*lacking.unexpected_keys, *(name for name in lacking.missing_keys if "_metadata" not in name)]:
            raise ValueError(message(str(folder), "a whole checkpoint", f"tensors missing or too many: {wrong}"))
        return model.eval()


def _double(x: torch.Tensor) -> torch.dtype:
    return float_dtype(x.device, torch.float64)


class CloudOperator(PointOperator):
    """Operators on clouds in a box: bounds, periodicity, quadrature and backend of their Fourier bases."""

    n_modes: tuple[int, ...]

    def _set_up(
        self,
        dim: int,
        in_channels: int,
        bounds: Bounds,
        periodic: bool | Sequence[bool],
        *,
        gap: float = 1.0,
        quadrature: str = "mean",
        norm: str = "forward",
        append_positions: bool = True,
        query_head: bool = True,
        backend: str = "direct",
        max_basis_bytes: int = MAX_BASIS_BYTES,
        validate: bool = True,
        most: int | None = None,
    ) -> None:
        """Check and keep what a cloud's basis is made of; `most` is the largest d that the operator knows."""
        require_range("dim", dim, low=1, high=most, integer=True)
        self.domain = Domain.of(bounds, periodic, gap)
        if self.domain.dim != dim:
            raise ValueError(message("bounds", f"of {dim} axes (dim)", self.domain.dim))
        least = 0 if append_positions else 1  # positions alone may be the input
        self.in_channels = int(require_range("in_channels", in_channels, low=least, integer=True))
        self.append_positions, self.query_head, self.validate = append_positions, query_head, validate
        require_choice("norm", norm, NORMS)
        require_choice("backend", backend, backends.NAMES)
        require_choice("quadrature", quadrature, RULES)
        self.options = {"norm": norm, "backend": backend, "max_basis_bytes": max_basis_bytes}
        self.quadrature = quadrature

    @property
    def features(self) -> int:
        """Channels of the lifted features: C_in, and d where positions are appended."""
        return self.in_channels + self.domain.dim * self.append_positions

    def make_basis(self, points: torch.Tensor, mask: torch.Tensor | None, dtype: torch.dtype) -> FourierBasis:
        """The Fourier basis of these points in this dtype."""
        return FourierBasis(
            points, self.n_modes, self.domain, quadrature=self.quadrature, dtype=dtype, mask=mask,
            validate=self.validate, **self.options,
        )  # fmt: skip

    def positions(self, basis: Basis) -> torch.Tensor:
        """Positions scaled to [-1, 1]."""
        if isinstance(basis, FourierBasis):
            factors = basis.theta.new_tensor(self.domain.factors())
            low = basis.theta.new_tensor([pair[0] for pair in self.domain.bounds])
            return self.domain.normalised(basis.theta / factors + low)
        assert isinstance(basis, LatticeBasis)  # _fits has seen to it
        return self.domain.normalised(basis.points())

    def _fits(self, basis: Basis) -> None:
        modes, domain = getattr(basis, "n_modes", None), getattr(basis, "domain", None)
        if modes != self.n_modes:
            raise ValueError(message("basis", f"of modes {self.n_modes}, as the operator", modes))
        if domain != self.domain:
            raise ValueError(message("basis", f"on {self.domain}, as the operator", domain))
