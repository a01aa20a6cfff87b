"""Worst-case tokens: ascent on the local constant from the adversarial data of Section 5 and random starts."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from offprints.checks import require_range, require_shape
from offprints.seeding import rng
from torch import Tensor

from attention_lipschitz.adversarial import NoRealEigenvalueError, adversarial_tokens
from attention_lipschitz.blocks import TokenNorm
from attention_lipschitz.core import AttentionHead, AttentionLayer
from attention_lipschitz.measure import LipschitzResult, local_lipschitz


class WorstCase(NamedTuple):
    """Tokens (n, d) and the constant ‖D_X f‖₂ measured there, a lower bound of Lip(f)."""

    tokens: Tensor
    value: float


def worst_case(
    layer: AttentionLayer | AttentionHead,
    n: int,
    R: float,
    steps: int = 50,
    lr: float = 0.1,
    restarts: int = 2,
    *,
    norm: TokenNorm | None = None,
    start: Tensor | None = None,
    seed: int = 0,
) -> WorstCase:
    """Tokens in B_R, or on a norm's image, at which a layer is most sensitive: projected ascent on ‖D_X f‖₂.

    ∇_X σ = ∇_X ⟨u, D_X f[w]⟩ with the singular vectors u, w held fixed; steps of lr · R along it, halved where the
    value falls, each followed by projection. Starts are the adversarial tokens of each head (Section 5) and `restarts`
    random points of norm R; the best 1 + restarts of them are followed. The value is never less than that of the best
    start.

    Args:
        layer: a layer, or a head (unmasked; make it a layer for masked attention).
        n: number of tokens, ≥ 1.
        R: radius of the ball; with `norm` only the length of steps.
        steps: of ascent; 0 gives the best start.
        lr: length of a step, in units of R.
        restarts: number of random starts.
        norm: tokens stay in its image γ ⊙ z + β, ‖z‖ ≤ √d, instead of the ball.
        start: (n, d) a further start, such as real tokens.
        seed: of the random starts.

    Raises:
        ValueError: if n < 1, R ≤ 0, lr ≤ 0 or counts are negative.
    """
    require_range("n", n, low=1, integer=True)
    require_range("R", R, low=0.0, low_open=True)
    require_range("steps", steps, low=0, integer=True)
    require_range("lr", lr, low=0.0, low_open=True)
    require_range("restarts", restarts, low=0, integer=True)
    layer = (layer.layer() if isinstance(layer, AttentionHead) else layer).measured()
    project = _projection(R, None if norm is None else norm.measured(layer.query.dtype))
    tokens = [project(X.to(layer.query)) for X in _starts(layer, n, R, restarts, start, seed)]
    tried = sorted(((local_lipschitz(layer, X, rtol=1e-4), X) for X in tokens), key=lambda pair: -pair[0].value)
    best = WorstCase(tried[0][1], tried[0][0].value)
    for found, X in tried[: 1 + restarts]:
        best = max(best, _climbed(layer, X, found, steps, lr * R, project), key=lambda case: case.value)
    return WorstCase(best.tokens, local_lipschitz(layer, best.tokens).value)


def _starts(layer: AttentionLayer, n: int, R: float, restarts: int, start: Tensor | None, seed: int) -> list[Tensor]:
    found = []
    for h in range(layer.query.shape[0]):
        try:
            found.append(head_tokens(layer, h, n, R))
        except NoRealEigenvalueError:
            continue
    gen = rng(seed)
    for _ in range(max(restarts, 0 if found or start is not None else 1)):
        drawn = torch.from_numpy(gen.standard_normal((n, layer.dim)))
        found.append(R * drawn / torch.linalg.vector_norm(drawn, dim=-1, keepdim=True))
    if start is not None:
        require_shape("start", start, (n, layer.dim))
        found.append(start.detach())
    return found


def head_tokens(layer: AttentionLayer, h: int, n: int, R: float) -> Tensor:
    """The adversarial tokens of head h (Section 5), from the k × k matrix s Q Kᵀ that has A's nonzero eigenvalues.

    Raises:
        NoRealEigenvalueError: if none of them is real.
    """
    Q, K = (weight[h].detach().double().cpu() for weight in (layer.query, layer.key))
    if len(Q) >= layer.dim:
        return adversarial_tokens(layer.scale * K.mT @ Q, n, R)
    small = adversarial_tokens(layer.scale * Q @ K.mT, n, 1.0)  # multiples of an eigenvector w; Kᵀ w is one of A
    lifted = small @ K
    return R * lifted / torch.linalg.vector_norm(lifted, dim=-1).max()


def _projection(R: float, norm: TokenNorm | None) -> Callable[[Tensor], Tensor]:
    if norm is None:
        return lambda X: X * (R / torch.linalg.vector_norm(X, dim=-1, keepdim=True).clamp_min(1e-300)).clamp_max(1.0)
    shift = torch.zeros_like(norm.weight) if norm.bias is None else norm.bias
    inverse = torch.where(norm.weight == 0, 0.0, 1.0 / norm.weight)
    return lambda X: norm.weight * norm.projected((X - shift) * inverse) + shift


def _climbed(
    layer: AttentionLayer,
    X: Tensor,
    found: LipschitzResult,
    steps: int,
    length: float,
    project: Callable[[Tensor], Tensor],
) -> WorstCase:
    value = found.value
    for _ in range(steps):
        slope = constant_gradient(layer, X, found)
        size = float(torch.linalg.vector_norm(slope))
        if not size > 1e-12 * max(value, 1e-300) / length:
            break
        there = project(X + length / size * slope)
        new = local_lipschitz(layer, there, rtol=1e-4)
        if new.value > value:
            X, found, value = there, new, new.value
        else:
            length /= 2
    return WorstCase(X, value)


def constant_gradient(layer: AttentionLayer, X: Tensor, found: LipschitzResult) -> Tensor:
    """(n, d) ∇_X ‖D_X f‖₂ = ∇_X ⟨u, D_X f[w]⟩ for a simple largest singular value (Section 2)."""
    X = X.detach().clone().requires_grad_()
    value = (layer.linearize(X).jvp(found.right.to(X)) * found.left.to(X)).sum()
    return torch.autograd.grad(value, X)[0]


def lipschitz_penalty(layer: AttentionLayer, X: Tensor, *, rtol: float = 1e-3, seed: int = 0) -> Tensor:
    """‖D_X f‖₂ as a scalar to train against, differentiable in X and in the weights of a live layer (Section 2).

    Its gradient is that of ⟨u, D_X f[w]⟩ with the singular vectors held fixed, which is exact where the largest
    singular value is simple.

    Args:
        layer: from `extract_attention(..., live=True)`, or built from your own parameters.
        X: (n, d) tokens; gradients flow into them.
        rtol: tolerance of the singular vectors.
        seed: of their start.

    Raises:
        ValueError: if X is empty or not finite.
    """
    with torch.no_grad():
        found = local_lipschitz(layer, X, rtol=rtol, seed=seed)
    here = layer.linearize(layer._tokens(X))
    return (here.jvp(found.right.to(here.X)) * found.left.to(here.X)).sum().to(X.dtype)
