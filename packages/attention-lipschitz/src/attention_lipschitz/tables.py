"""All bounds by radius of a whole layer (Theorem 3.3 and Section 3 of the paper), added up over its heads."""

import math
from dataclasses import asdict, dataclass

import torch

from attention_lipschitz.certificates import Attention, PositionalBoundError
from attention_lipschitz.core import AttentionHead, AttentionLayer
from attention_lipschitz.radius import general, masked_mean_field, mean_field, sharp


@dataclass(frozen=True)
class BoundTable:
    """All upper bounds of a layer on B_R, sums over heads; `inf` where an exponential overflows or none is known.

    Attributes:
        n: number of tokens.
        R: radius.
        general: Theorem 3.3.
        mean_field: Section 3.2, for any number of tokens; infinite for masked attention, where it does not hold.
        sharp: the sharpened Theorem 3.3.
        masked_mean_field: for masked attention of any number of tokens; infinite for unmasked.
        by_head: `sharp` of each head.
    """

    n: int
    R: float
    general: float
    mean_field: float
    sharp: float
    masked_mean_field: float
    by_head: tuple[float, ...]

    def best(self) -> float:
        """The smallest."""
        return min(self.general, self.mean_field, self.sharp, self.masked_mean_field)

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return asdict(self) | {"by_head": list(self.by_head)}


def bound_table(layer: Attention, n: int, R: float, *, causal: bool = False, allow_loose: bool = False) -> BoundTable:
    """The bounds of Section 3 for a layer whose tokens lie in B_R, added up over heads with ‖O_h V_h‖.

    Logits with positions are not x_jᵀ(A x_i + c) for one A. With `allow_loose`, rotary positions are covered by
    ‖A‖ ≤ s ‖K‖ ‖Q‖ and the biases' norms, and logit biases by the bound that holds whatever P is (s = n).

    Args:
        layer: a layer or a head.
        n: number of tokens.
        R: radius of the ball.
        causal: for a head: masked or not.
        allow_loose: see above.

    Raises:
        PositionalBoundError: for rotary positions or logit biases without `allow_loose`.
        ValueError: if n < 1 or R ≤ 0.
    """
    layer = (layer.layer(causal) if isinstance(layer, AttentionHead) else layer).measured()
    if layer.positions != "none" and not allow_loose:
        what = "rotary positions" if layer.positions == "rotary" else "logit biases"
        raise PositionalBoundError(
            f"layer must have logits without positions for the bounds by radius, got {what}. Measure it with "
            "local_lipschitz or certified_bound, or pass allow_loose=True."
        )
    heads = [_head_bounds(layer, h, n, R) for h in range(layer.query.shape[0])]
    summed = [sum(head[i] for head in heads) for i in range(4)]
    return BoundTable(n, float(R), *summed, by_head=tuple(head[2] for head in heads))


def _head_bounds(layer: AttentionLayer, h: int, n: int, R: float) -> tuple[float, float, float, float]:
    """General, mean-field, sharp and masked mean-field bound of one head."""
    norm_V = float(torch.linalg.matrix_norm(layer.maps()[h], 2))
    if layer.positions != "none":
        return _loose_bounds(layer, h, n, R, norm_V)
    A = layer.scale * layer.key[h].mT @ layer.query[h]
    c = None if layer.query_bias is None else layer.scale * layer.query_bias[h] @ layer.key[h]
    norm_A, norm_c = float(torch.linalg.matrix_norm(A, 2)), 0.0 if c is None else float(torch.linalg.vector_norm(c))
    crude, fine = general(n, R, norm_A, norm_V, norm_c), sharp(n, R, norm_A, norm_V, norm_c, causal=layer.causal)
    if not layer.causal:
        return crude, mean_field(R, norm_A, norm_V, norm_c), fine, math.inf
    hardy = math.inf if layer.window is not None else masked_mean_field(R, norm_A, norm_V, norm_c)
    return crude, math.inf, fine, hardy


def _loose_bounds(layer: AttentionLayer, h: int, n: int, R: float, norm_V: float) -> tuple[float, float, float, float]:
    """The same where logits know positions, from x ≥ |logits|, (‖A‖R + ‖c‖) R and the covariance of tokens and keys."""
    Q, K = (float(torch.linalg.matrix_norm(weight[h], 2)) for weight in (layer.query, layer.key))
    b_q, b_k = (0.0 if b is None else float(torch.linalg.vector_norm(b[h])) for b in (layer.query_bias, layer.key_bias))
    x = max(1.0, layer.rotary_factor) ** 2 * layer.scale * (Q * R + b_q) * (K * R + b_k)
    norm_A = x / R**2  # stands for both terms of a + e
    crude = general(n, R, norm_A, norm_V)
    if layer.positions == "bias":  # P may be anything
        return crude, math.inf, sharp(n, R, norm_A, norm_V, causal=True), math.inf
    fine = sharp(n, R, norm_A, norm_V, causal=layer.causal)
    if not layer.causal:
        return crude, mean_field(R, norm_A, norm_V), fine, math.inf
    return crude, math.inf, fine, math.inf if layer.window is not None else masked_mean_field(R, norm_A, norm_V)
