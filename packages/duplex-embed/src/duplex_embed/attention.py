"""Weighted graph attention, many heads at once, as one operation with its own gradient.

For message e = (u -> v), head k and channel c(k):  s = left_ku + right_kv,  alpha_e = softmax over the messages into v
of LeakyReLU_0.2(s),  out_kv = sum_e alpha_ke w_c(k)e h_ku.  The weights stand behind the softmax: their sign counts.
Sums over messages are sparse products on the CPU; nothing of size (messages, width) is held.
"""

import functools
import warnings

import torch
from offprints.device import full_precision
from torch import Tensor

from duplex_embed.messages import Messages

SLOPE = 0.2
"""Of the leaky ReLU on the scores."""


@functools.cache
def _announce() -> None:
    """Let torch say once that its sparse rows are in beta, where nobody hears it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = torch.ones(1, dtype=torch.int64)
        torch.sparse_csr_tensor(torch.tensor([0, 1]), 0 * one, one.float(), (1, 1), check_invariants=False)


def _rows(indptr: Tensor, columns: Tensor, values: Tensor, width: int) -> Tensor:
    _announce()
    return torch.sparse_csr_tensor(indptr, columns, values, (len(indptr) - 1, width), check_invariants=False)


def _product(indptr: Tensor, rows: Tensor, columns: Tensor, values: Tensor, dense: Tensor) -> Tensor:
    """Sparse (r, c) times dense (c, o), where `rows` ascend."""
    if dense.device.type == "cpu":
        return _rows(indptr, columns, values, len(dense)) @ dense
    out = dense.new_zeros(len(indptr) - 1, dense.shape[1])
    return out.index_add_(0, rows, dense[columns] * values[:, None])


def _dots(indptr: Tensor, rows: Tensor, columns: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """left_r . right_c of every (row, column) of the pattern: (E,)."""
    if left.device.type == "cpu" and len(rows):
        pattern = _rows(indptr, columns, left.new_zeros(len(rows)), len(right))
        return torch.sparse.sampled_addmm(pattern, left, right.t(), beta=0.0).values()
    return (left[rows] * right[columns]).sum(1)


def _at(values: Tensor, places: Tensor) -> Tensor:
    """(K, n) values at (E,) places: (K, E)."""
    return values.gather(1, places.expand(len(values), -1))


def _segment(values: Tensor, indptr: Tensor, rows: Tensor, how: str) -> Tensor:
    """Sum or maximum of (K, E) values over the messages of each row: (K, rows)."""
    if values.device.type in ("cpu", "cuda") and len(rows):
        reduce = torch.segment_reduce
        return torch.stack([reduce(v.contiguous(), how, offsets=indptr, axis=0, unsafe=True) for v in values])
    out = values.new_full((len(values), len(indptr) - 1), 0.0 if how == "sum" else -torch.inf)
    return out.scatter_reduce_(1, rows.expand_as(values), values, "sum" if how == "sum" else "amax")


def _wide(x: Tensor) -> Tensor:
    """16-bit numbers are summed in 32."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


@torch.library.custom_op("duplex_embed::attend", mutates_args=())
def attend(
    left: Tensor,
    right: Tensor,
    h: Tensor,
    weight: Tensor,
    indptr: Tensor,
    src: Tensor,
    dst: Tensor,
    back_indptr: Tensor,
    back_dst: Tensor,
    back_order: Tensor,
) -> tuple[Tensor, Tensor]:
    """The operation; see the module.

    Args:
        left: (K, senders) scores of senders.
        right: (K, receivers) scores of receivers.
        h: (K, senders, o) what is sent.
        weight: (C, E) message weights of C channels; head k is of channel k // (K / C).
        indptr: and the rest: the fields of `Messages`.
        src: senders.
        dst: receivers.
        back_indptr: transposed rows.
        back_dst: transposed columns.
        back_order: transposed order.

    Returns:
        out (K, receivers, o) and alpha (K, E).
    """
    with full_precision(h.device):
        wide = _wide(h)
        score = torch.nn.functional.leaky_relu(_at(_wide(left), src) + _at(_wide(right), dst), SLOPE)
        top = _segment(score, indptr, dst, "max")
        alpha = score.sub_(_at(top, dst)).exp_()
        alpha.div_(_at(_segment(alpha, indptr, dst, "sum"), dst))
        values = alpha * _per_head(weight, alpha)
        out = torch.stack([_product(indptr, dst, src, v, x) for v, x in zip(values, wide, strict=True)])
    return out.to(h.dtype), alpha


def _per_head(weight: Tensor, alpha: Tensor) -> Tensor:
    """Weights of each head, (K, E)."""
    return weight.to(alpha.dtype).repeat_interleave(len(alpha) // len(weight), 0)


@attend.register_fake
def _(
    left: Tensor,
    right: Tensor,
    h: Tensor,
    weight: Tensor,
    indptr: Tensor,
    src: Tensor,
    dst: Tensor,
    back_indptr: Tensor,
    back_dst: Tensor,
    back_order: Tensor,
) -> tuple[Tensor, Tensor]:
    wide = torch.float32 if h.dtype in (torch.float16, torch.bfloat16) else h.dtype
    return h.new_empty(len(h), right.shape[1], h.shape[2]), left.new_empty(len(h), len(src), dtype=wide)


@torch.library.custom_op("duplex_embed::attend_backward", mutates_args=())
def attend_backward(
    grad: Tensor,
    left: Tensor,
    right: Tensor,
    h: Tensor,
    alpha: Tensor,
    weight: Tensor,
    indptr: Tensor,
    src: Tensor,
    dst: Tensor,
    back_indptr: Tensor,
    back_dst: Tensor,
    back_order: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of left, right and h.

    With g the gradient of out: dh_u = sum over messages from u of alpha w g_v;  d alpha_e = w_e g_v . h_u;
    d score_e = alpha_e (d alpha_e - sum_f alpha_f d alpha_f), times the slope of the leaky ReLU.
    """
    with full_precision(h.device):
        g, wide, scale = _wide(grad).contiguous(), _wide(h), _per_head(weight, alpha)
        back_src = torch.repeat_interleave(back_indptr.diff(), output_size=len(src))
        turned = _at(alpha * scale, back_order)
        dh = torch.stack([_product(back_indptr, back_src, back_dst, v, x) for v, x in zip(turned, g, strict=True)])
        dalpha = torch.stack([_dots(indptr, dst, src, a, b) for a, b in zip(g, wide, strict=True)])
        dalpha.mul_(scale).mul_(alpha)
        dscore = dalpha.addcmul_(alpha, _at(_segment(dalpha, indptr, dst, "sum"), dst), value=-1)
        positive = _at(_wide(left), src) + _at(_wide(right), dst) > 0
        dscore = torch.where(positive, dscore, SLOPE * dscore)
        dright = _segment(dscore, indptr, dst, "sum")
        dleft = _segment(_at(dscore, back_order), back_indptr, back_src, "sum")
    return dleft.to(left.dtype), dright.to(right.dtype), dh.to(h.dtype)


@attend_backward.register_fake
def _(
    grad: Tensor,
    left: Tensor,
    right: Tensor,
    h: Tensor,
    alpha: Tensor,
    weight: Tensor,
    indptr: Tensor,
    src: Tensor,
    dst: Tensor,
    back_indptr: Tensor,
    back_dst: Tensor,
    back_order: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(left), torch.empty_like(right), torch.empty_like(h)


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    left, right, h, *rest = inputs
    ctx.mark_non_differentiable(output[1])  # type: ignore[missing-attribute]
    ctx.save_for_backward(left, right, h, output[1], *rest)  # type: ignore[missing-attribute]


def _gradient(ctx: torch.autograd.function.FunctionCtx, grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    return (*attend_backward(grad, *ctx.saved_tensors), *(None,) * 7)  # type: ignore[missing-attribute]


attend.register_autograd(_gradient, setup_context=_keep)


def attention(left: Tensor, right: Tensor, h: Tensor, messages: Messages) -> Tensor:
    """Out (K, receivers, o); see the module.

    Args:
        left: (K, senders).
        right: (K, receivers).
        h: (K, senders, o).
        messages: E messages with weights of C channels, K a multiple of C.
    """
    m = messages
    fields = (m.weight, m.indptr, m.src, m.dst, m.back_indptr, m.back_dst, m.back_order)
    return attend(left, right, h, *fields)[0]
