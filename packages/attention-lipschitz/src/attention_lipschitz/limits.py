"""What is left of the derivative when all tokens are scaled up (Section 3.3 of the paper): hard attention."""

import torch
from offprints.checks import require_finite
from torch import Tensor

from attention_lipschitz.core import AttentionHead, AttentionLayer


def large_radius_limit(layer: AttentionLayer | AttentionHead, X: Tensor, causal: bool = False) -> float:
    """lim_{r→∞} ‖D_{rX} f‖₂ for almost every X: each token attends to argmax_j x_iᵀ Aᵀ x_j alone (Section 3.3).

    The limit is ‖Σ_h hard(P_h) ⊗ O_h V_h‖₂; for one head ‖V‖₂ times the root of the largest number of tokens that
    attend to one, at most ‖V‖₂ √n. Biases of queries, keys and logits vanish beside r².

    Args:
        layer: a layer, or a head.
        X: (n, d) tokens of any scale.
        causal: for a head: masked or not. A layer has its own mask.

    Raises:
        ValueError: if X is empty or not finite.
    """
    from attention_lipschitz.measure import local_lipschitz

    layer = layer.layer(causal) if isinstance(layer, AttentionHead) else layer
    layer = layer.measured()._rebuilt(query_bias=None, key_bias=None, logit_bias=None)
    require_finite("X", X)
    P = layer.linearize(layer._tokens(X)).P  # for the shape and checks; the argmax is taken of the logits
    chosen = _logits(layer, X.to(P.dtype)).argmax(-1)
    hard = torch.zeros_like(P).scatter_(-1, chosen.unsqueeze(-1), 1.0)
    if layer.query.shape[0] == 1 and layer.out is None:
        return float(torch.linalg.matrix_norm(layer.value[0], 2) * hard.sum(-2).max().sqrt())

    def linear(E: Tensor) -> Tensor:
        heads = hard @ (E.unsqueeze(-3) @ layer.value.mT)
        if layer.out is None:
            return heads.transpose(-3, -2).flatten(-2)
        return (heads @ layer.out.mT).sum(-3)

    return float(local_lipschitz(linear, torch.zeros_like(X, dtype=P.dtype), rtol=1e-10))


def _logits(layer: AttentionLayer, X: Tensor) -> Tensor:
    here = layer.linearize(X / X.abs().max().clamp_min(1e-300))
    logits = here.q @ here.k.mT * layer.scale
    seen = layer.mask(X.shape[-2])
    return logits if seen is None else logits.masked_fill(~seen, -torch.inf)
