"""Jacobians as linear maps: a closed-form one for attention layers, forward and reverse mode for any other callable.

Both sides of the paper's local constant, the largest singular value of D_X f (Section 2), need only D_X f[E] and its
transpose.
"""

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager

import torch
from offprints.checks import require_finite, require_kind
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention_lipschitz.blocks import AttentionBlock
from attention_lipschitz.core import AttentionHead, AttentionLayer

Map = AttentionLayer | AttentionBlock | AttentionHead | Callable[[Tensor], Tensor]


@contextmanager
def differentiable_attention() -> Generator[None, None, None]:
    """The fused attention kernels have no forward-mode rule: the plain one is used where a model calls them."""
    with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
        # torch warns of what it does itself: its forward-mode rules are scripted, its traces hold constants
        warnings.filterwarnings("ignore", "`torch.jit.script", DeprecationWarning)
        warnings.filterwarnings("ignore", "Attempted to insert a get_attr Node", UserWarning)
        yield


class Jacobian:
    """D_X f as a pair of products, counted.

    Args:
        fn: what is differentiated.
        X: (n, d), or whatever a callable takes.
        dtype: of the computation.

    Attributes:
        X: the point, in `dtype`.
        value: f(X).
        products: how often J or Jᵀ was applied.

    Raises:
        TypeError: if `fn` is neither a layer, a head nor callable, or X no floating-point tensor.
        ValueError: if X or f(X) is not finite, or X is empty.
    """

    def __init__(self, fn: Map, X: Tensor, dtype: torch.dtype | None) -> None:
        require_kind("X", X, Tensor)
        if not X.dtype.is_floating_point:
            raise TypeError(f"X must be a floating-point tensor, got {X.dtype}. Pass embeddings, not token ids.")
        require_finite("X", X)
        if X.numel() == 0:
            raise ValueError(f"X must hold one token or more, got shape {tuple(X.shape)}.")
        self.products = 0
        if isinstance(fn, AttentionHead):
            fn = fn.layer()
        if isinstance(fn, AttentionLayer | AttentionBlock):
            layer = fn.measured(dtype)
            self.X = X.detach().to(layer.query.dtype)
            here = layer.linearize(self.X)
            self.value, self._jvp, self._vjp = here.value(), here.jvp, here.vjp
        elif callable(fn):
            self.X = X.detach() if dtype is None else X.detach().to(dtype)
            with differentiable_attention():
                self.value, self._jvp = linearized(fn, self.X)
                pull = torch.func.vjp(fn, self.X)[1]
            self._vjp = lambda y: pull(y)[0]
        else:
            raise TypeError(f"fn must be an AttentionLayer, an AttentionHead or a callable, got {type(fn).__name__}.")
        require_finite("f(X)", self.value)

    def jvp(self, E: Tensor) -> Tensor:
        """J E, of the shape of f(X)."""
        self.products += 1
        with torch.no_grad():
            return self._jvp(E)

    def vjp(self, Y: Tensor) -> Tensor:
        """Jᵀ Y, of the shape of X."""
        self.products += 1
        with torch.no_grad():
            return self._vjp(Y)

    def matrix(self) -> Tensor:
        """(outputs, inputs) J, one column after the other."""
        size = self.X.numel()
        eye = torch.eye(size, dtype=self.X.dtype, device=self.X.device)
        return torch.stack([self.jvp(row.reshape(self.X.shape)).flatten() for row in eye], dim=1)


def linearized(fn: Callable[[Tensor], Tensor], X: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """f(X) and E ↦ J E: traced once where that is possible, else evaluated anew with each product."""
    try:
        return torch.func.linearize(fn, X)
    except (
        RuntimeError,
        NotImplementedError,
        AssertionError,
    ):  # a callable that cannot be traced, such as one with hooks

        def again(E: Tensor) -> Tensor:
            with differentiable_attention():
                return torch.func.jvp(fn, (X,), (E,))[1]

        return fn(X).detach(), again
