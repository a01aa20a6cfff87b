"""Both decoders, without parameters: the Hermitian product says whether, and in which direction (paper, § decoders)."""

import torch
from offprints.checks import require_choice, require_range, require_shape
from offprints.device import full_precision
from torch import Tensor

from duplex_embed.pairs import NONE
from duplex_embed.products import pair_products

NORMS = ("l2", "l1")
_TARGETS = ((0.0, -1.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (-1.0, 0.0))


def targets(classes: int, like: Tensor) -> Tensor:
    """(classes, 2) points (re, im) of the types reverse, forward, both, none and, in signed graphs, negative."""
    return torch.tensor(_TARGETS[:classes], device=like.device, dtype=like.dtype)


def hermitian_decode(a: Tensor, th: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The modelled entry H_uv = sum_k a_uk a_vk exp(i (th_uk - th_vk)), and the connection strength.

    Args:
        a: (n, d) amplitudes.
        th: (n, d) phases, radians.
        u: (m,) first nodes.
        v: (m,) second nodes.

    Returns:
        re: (m,) sum a a cos(th_u - th_v), the same for (v, u).
        im: (m,) sum a a sin(th_u - th_v), the negative for (v, u).
        conn: (m,) sum a a.
        16-bit inputs are decoded in float32.

    Raises:
        ValueError: if shapes disagree.
    """
    require_shape("a", a, ("n", "d"))
    require_shape("th", th, tuple(a.shape))
    require_shape("u", u, (None,))
    require_shape("v", v, tuple(u.shape))
    with full_precision(a.device):
        if 2 * len(u) < len(a):  # few pairs of many nodes: turn theirs alone
            a, th = (part.index_select(0, torch.cat((u, v))) for part in (a, th))
            u, v = torch.arange(len(a), device=a.device).chunk(2)
        if a.dtype in (torch.float16, torch.bfloat16):
            a, th = a.float(), th.float()
        re, im, conn = pair_products(torch.cat((a * torch.cos(th), a * torch.sin(th), a), 1), u, v)
        return re, im, conn


def type_logits(re: Tensor, im: Tensor, norm: str = "l2", classes: int = 4) -> Tensor:
    """-||(re, im) - t_c|| of each type c, (m, classes); "l1" is what the official evaluation takes.

    Raises:
        ValueError: if the norm is unknown.
    """
    require_choice("norm", norm, NORMS)
    gap = torch.stack((re, im), -1).unsqueeze(-2) - targets(classes, re)
    if norm == "l1":
        return -gap.abs().sum(-1)
    return -(gap.square().sum(-1) + 1e-12).sqrt()  # the root has no gradient at 0


def duplex_loss(
    a: Tensor,
    th: Tensor,
    pairs: Tensor,
    types: Tensor,
    *,
    lam: float = 0.3,
    neg_ratio: float = 1.0,
    norm: str = "l2",
    classes: int = 4,
) -> tuple[Tensor, Tensor]:
    """Direction-aware and connection-aware loss: (cross entropy, lam x binary cross entropy); train on their sum.

    Cross entropy of the types with class weights (1, 1, 1, 1/neg_ratio), logits of `type_logits`; binary cross entropy
    of "any edge" with logit sum_k a_uk a_vk (paper, § decoders).

    Args:
        a: (n, d) amplitudes.
        th: (n, d) phases.
        pairs: (m, 2) node indices.
        types: (m,) types, 0 to classes - 1.
        lam: weight of the connection-aware part.
        neg_ratio: r, non-edges for each edge among the pairs.
        norm: of the distance.
        classes: 4, or 5 in signed graphs.
    """
    require_shape("pairs", pairs, ("m", 2))
    require_shape("types", types, (len(pairs),))
    require_range("neg_ratio", neg_ratio, low=0, low_open=True)
    require_range("lam", lam, low=0)
    re, im, conn = hermitian_decode(a, th, pairs[:, 0], pairs[:, 1])
    weight = torch.ones(classes, device=re.device, dtype=re.dtype)
    weight[NONE] = 1 / neg_ratio
    ce = torch.nn.functional.cross_entropy(type_logits(re, im, norm, classes), types, weight)
    any_edge = (types != NONE).to(conn.dtype)
    return ce, lam * torch.nn.functional.binary_cross_entropy_with_logits(conn, any_edge)
