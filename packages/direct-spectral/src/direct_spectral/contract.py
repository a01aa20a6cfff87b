"""What layers ask of a basis (section 3 of the paper): values at points to packed coefficients, and back.

A complex coefficient α - iβ travels as the real pair (α, β), "packed", so that every transform is a real product.
"""

import copy
import warnings

import torch
from offprints.checks import message

from direct_spectral.domain import require_floating


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over points run: float64 for float64, float32 for all that is shorter."""
    return torch.float64 if dtype in (torch.float64, torch.complex128) else torch.float32


class Basis:
    """What layers ask of a basis: values at points to packed coefficients, and back.

    Attributes:
        shared: whether one set of points serves every sample of a batch.
        dtype: of the sums.
        source: the tensor of points it was made from; `matches` recognises it.
    """

    shared: bool
    dtype: torch.dtype
    source: torch.Tensor | None = None
    _version: int = -1

    def analyse(self, u: torch.Tensor) -> torch.Tensor:
        """Packed coefficients (B, C, K) of real values u (B, C, N)."""
        raise NotImplementedError

    def synthesise(self, packed: torch.Tensor) -> torch.Tensor:
        """Values (B, C, N) of packed coefficients (B, C, K)."""
        raise NotImplementedError

    def at(self, points: torch.Tensor, mask: torch.Tensor | None = None, validate: bool = True) -> "Basis":
        """The same functions at other points, for synthesis there."""
        raise NotImplementedError

    def along(self, axis: int, m: int) -> "Basis":
        """The waves 0..m-1 along one axis."""
        raise NotImplementedError

    @property
    def n_points(self) -> int:
        """N."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        raise NotImplementedError

    def to(self, device: "torch.device | str | None" = None, dtype: torch.dtype | None = None) -> "Basis":
        """A copy on another device or in another floating-point dtype; itself where nothing changes."""
        dtype = self.dtype if dtype is None else compute_dtype(dtype)
        where = self.device if device is None else torch.device(device)
        if dtype == self.dtype and where == self.device:
            return self
        moved = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                keep = name == "source" or name in self._exact or not value.is_floating_point()
                setattr(moved, name, value.to(where) if keep else value.to(where, dtype))
            elif isinstance(value, Basis):
                setattr(moved, name, value.to(where, dtype))
            elif isinstance(value, list) and value and isinstance(value[0], Basis):
                setattr(moved, name, [part.to(where, dtype) for part in value])
        moved.dtype = dtype
        return moved

    _exact: tuple[str, ...] = ()

    def remember(self, source: torch.Tensor) -> None:
        """Note which tensor of points this is the basis of, as it stands now."""
        self.source = source
        self._version = -1 if torch.compiler.is_compiling() or source.is_inference() else source._version

    def matches(self, points: torch.Tensor) -> bool:
        """Whether `points` is the very tensor this was made from, and was not written to since."""
        if points is not self.source or torch.compiler.is_compiling() or self._version < 0:
            return False
        return points._version == self._version

    def check_values(self, u: torch.Tensor) -> torch.Tensor:
        """Values (B, C, N) in the dtype of the sums.

        Raises:
            TypeError: if they are integers, or wider than the basis.
            ValueError: if shape or device differ.
        """
        require_floating("values", u)
        if u.ndim != 3 or u.shape[-1] != self.n_points:
            raise ValueError(message("values", f"of shape (B, C, {self.n_points})", tuple(u.shape)))
        return self._fitting(u)

    def _fitting(self, x: torch.Tensor) -> torch.Tensor:
        if x.device != self.device:
            hint = f"Move it: basis.to({str(x.device)!r})."
            raise ValueError(message("basis", f"on {x.device}, where the values are", self.device, hint))
        if x.dtype == torch.float64 and self.dtype != torch.float64:
            hint = "Build it with dtype=torch.float64."
            raise TypeError(message("basis", "of float64 for values of float64", self.dtype, hint))
        return x.to(self.dtype)


def product(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """(B, C, n) times a matrix (n, k) or (B, n, k): one product for all rows where the matrix is shared."""
    if matrix.ndim == 2:
        return (x.reshape(-1, x.shape[-1]) @ matrix).reshape(*x.shape[:-1], matrix.shape[-1])
    if x.shape[0] != matrix.shape[0]:
        raise ValueError(message("values", f"a batch of {matrix.shape[0]}, as the basis", x.shape[0]))
    return x @ matrix


def transposed_product(x: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """(B, C, n) times the transpose of a matrix (k, n) or (B, k, n)."""
    return product(x, matrix.transpose(-1, -2))


def pack(c: torch.Tensor) -> torch.Tensor:
    """Complex coefficients (..., M) as real ones (..., 2M): (Re c, -Im c)."""
    return torch.cat([c.real, -c.imag], -1)


def unpack(packed: torch.Tensor) -> torch.Tensor:
    """Real coefficients (..., 2M) as complex ones (..., M): α - iβ."""
    alpha, beta = packed.chunk(2, -1)
    return torch.complex(alpha.contiguous(), -beta.contiguous())


def warn_aliasing(points: str, m: int, stacklevel: int) -> None:
    """Say that there are fewer points than modes; Python shows a warning once for each place it comes from."""
    text = f"{points} for {m} modes: waves are aliased onto each other. Keep fewer modes."
    warnings.warn(text, UserWarning, stacklevel=stacklevel + 1)
