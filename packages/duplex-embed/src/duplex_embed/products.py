"""The three sums of the Hermitian product over many pairs, as one operation with its own gradient.

With z_u = [a cos th, a sin th, a] of a node, re_uv = c_u . c_v + s_u . s_v, im_uv = s_u . c_v - c_u . s_v and
conn_uv = a_u . a_v. Pairs are worked off in chunks that stay in the caches: nothing of size (pairs, width) is held.
"""

import torch
from offprints.device import full_precision
from torch import Tensor

_CPU, _ELSEWHERE = 2**18, 2**26
"""Numbers gathered at a time: half a mebibyte or two of a cache, and what an accelerator needs to be busy."""


def _chunks(z: Tensor, u: Tensor, v: Tensor) -> "zip[tuple[Tensor, Tensor]]":
    size = max((_CPU if z.device.type == "cpu" else _ELSEWHERE) // max(z.shape[1], 1), 1)
    return zip(u.split(size), v.split(size), strict=True)


@torch.library.custom_op("duplex_embed::pair_products", mutates_args=())
def pair_products(z: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """(3, m): re, im and conn.

    Args:
        z: (n, 3 d); see the module.
        u: (m,) first nodes.
        v: (m,) second nodes.
    """
    d, out, at = z.shape[1] // 3, z.new_empty(3, len(u)), 0
    with full_precision(z.device):
        for first, second in _chunks(z, u, v):
            zu, zv = z.index_select(0, first), z.index_select(0, second)
            re, im, conn = out[:, at : at + len(first)]
            both = zu * zv
            torch.sum(both[:, : 2 * d], 1, out=re)
            torch.sum(both[:, 2 * d :], 1, out=conn)
            # one subtraction of two rounded products: turning the pair around changes the sign and nothing else
            torch.sum(zu[:, d : 2 * d] * zv[:, :d] - zu[:, :d] * zv[:, d : 2 * d], 1, out=im)
            at += len(first)
    return out


@pair_products.register_fake
def _(z: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return z.new_empty(3, len(u))


@torch.library.custom_op("duplex_embed::pair_products_backward", mutates_args=())
def pair_products_backward(grad: Tensor, z: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Gradient of z, (n, 3 d).

    With r, i, k the gradients of re, im, conn: dc_u = r c_v - i s_v, ds_u = r s_v + i c_v, da_u = k a_v, and for v the
    same with u's numbers and -i.
    """
    d, found, at = z.shape[1] // 3, torch.zeros_like(z), 0
    with full_precision(z.device):
        for first, second in _chunks(z, u, v):
            r, i, k = grad[:, at : at + len(first), None]
            for mine, other, turn in ((first, second, i), (second, first, -i)):
                c, s, a = z.index_select(0, other).split(d, 1)
                found.index_add_(0, mine, torch.cat((r * c - turn * s, r * s + turn * c, k * a), 1))
            at += len(first)
    return found


@pair_products_backward.register_fake
def _(grad: Tensor, z: Tensor, u: Tensor, v: Tensor) -> Tensor:
    return torch.empty_like(z)


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)  # type: ignore[missing-attribute]


def _gradient(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
    return pair_products_backward(grad, *ctx.saved_tensors), None, None  # type: ignore[missing-attribute]


pair_products.register_autograd(_gradient, setup_context=_keep)
