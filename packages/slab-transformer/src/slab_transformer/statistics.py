"""BatchNorm whose statistics leave padding out and are summed over ranks (Guo et al., 2024, Section 3.2)."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F


def masked_batch_norm(
    rows: Tensor, mask: Tensor | None, bn: nn.Module, name: str = "BatchNorm", sync: bool = False
) -> Tensor:
    """BatchNorm of rows (M, C) in training, with statistics of the rows where mask (M,) is True, over all ranks.

    The same as BN of the compacted rows: mean and biased variance normalise, the unbiased variance goes to the running
    statistics (Eq. 1). Ranks are joined with `sync`, where a process group is there.

    Raises:
        ValueError: A mask of another size, or fewer than two rows that count.
    """
    if mask is not None and mask.numel() != rows.shape[0]:
        raise ValueError(
            f"{name}: the padding mask must hold one entry for each position ({rows.shape[0]}), got {mask.numel()}."
        )
    keep = None if mask is None else mask.reshape(-1, 1).to(rows.dtype)
    real = rows if keep is None else torch.where(keep > 0, rows, 0.0)  # padding may hold NaN
    count = rows.new_tensor([rows.shape[0]]) if keep is None else keep.sum().reshape(1)
    join = sync and dist.is_available() and dist.is_initialized()
    mean, var, count = _moments(real, keep, count, bn if join else None)
    if not torch.compiler.is_compiling() and float(count) < 2:
        raise ValueError(
            f"{name}: a batch must hold at least 2 positions in training that are not padding, got {int(count)}."
        )
    _update(bn, mean.detach(), var.detach() * (count / (count - 1)))
    scale = bn.weight.to(rows.dtype) * torch.rsqrt(var + bn.eps)
    return (real - mean) * scale + bn.bias.to(rows.dtype)


def rep_batch_norm(rows: Tensor, alpha: Tensor, bn: nn.Module) -> Tensor:
    """RepBN of rows (M, C) in training (Eq. 4): BN with the batch's statistics plus alpha times the rows.

    On a CPU in one pass after the statistics, as the one BatchNorm that it equals for this batch (Lemma 4.1);
    elsewhere, and for a BatchNorm of another class, as BatchNorm and a multiply-add.
    """
    fused = rows.device.type == "cpu" and type(bn) is nn.BatchNorm1d and bn.training
    if not fused or torch.compiler.is_compiling():
        return bn(rows).addcmul(rows, alpha)
    with torch.no_grad():
        mean, var = torch.batch_norm_update_stats(rows, None, None, 0.0)  # both of this batch, the variance biased
        _update(bn, mean, var * (rows.shape[0] / (rows.shape[0] - 1)))
    return _OneBatchNorm.apply(rows, bn.weight, bn.bias, alpha, mean, var, bn.eps)


class _OneBatchNorm(torch.autograd.Function):
    """(gamma + alpha sigma) (x - mu) / sigma + beta + alpha mu, with mu and sigma of x (Lemma 4.1)."""

    @staticmethod
    def forward(ctx, rows, gamma, beta, alpha, mean, var, eps):
        ctx.save_for_backward(rows, gamma, alpha, mean, var)
        ctx.eps = eps
        sigma = torch.sqrt(var + eps)
        return F.batch_norm(rows, mean, var, gamma + alpha * sigma, beta + alpha * mean, False, 0.0, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        rows, gamma, alpha, mean, var = ctx.saved_tensors
        grad = grad.contiguous()
        of_x, of_gamma, of_beta = torch.ops.aten.native_batch_norm_backward(
            grad, rows, gamma, None, None, mean, torch.rsqrt(var + ctx.eps), True, ctx.eps, [True, True, True]
        )
        of_alpha = torch.vdot(grad.flatten(), rows.flatten()).reshape(1)
        return of_x.addcmul_(grad, alpha), of_gamma, of_beta, of_alpha, None, None, None


def _moments(real: Tensor, keep: Tensor | None, count: Tensor, sync: nn.Module | None) -> tuple[Tensor, Tensor, Tensor]:
    sums = real.sum(0)
    if sync is not None:
        both = _all_sum(torch.cat([sums, count]), sync)
        sums, count = both[:-1], both[-1:].detach()
    mean = sums / count
    off = real - mean
    if keep is not None:
        off = off * keep
    squares = (off * off).sum(0)  # about the mean: no cancellation
    if sync is not None:
        squares = _all_sum(squares, sync)
    return mean, squares / count, count


class _AllSum(torch.autograd.Function):
    """Sum over ranks whose gradient is summed over ranks too, as that of every rank's loss flows into it."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        out = x.clone()
        dist.all_reduce(out, group=group)
        return out

    @staticmethod
    def backward(ctx, grad):
        out = grad.clone()
        dist.all_reduce(out, group=ctx.group)
        return out, None


def _all_sum(x: Tensor, bn: nn.Module) -> Tensor:
    return _AllSum.apply(x, getattr(bn, "process_group", None))


@torch.no_grad()
def _update(bn: nn.Module, mean: Tensor, var: Tensor) -> None:
    bn.num_batches_tracked.add_(1)
    weight = 1.0 / bn.num_batches_tracked.to(mean.dtype) if bn.momentum is None else bn.momentum
    for running, new in ((bn.running_mean, mean), (bn.running_var, var)):
        running.add_(weight * (new.to(running.dtype) - running))
