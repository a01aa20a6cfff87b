"""BatchNorm whose statistics leave padding out and are summed over ranks (Guo et al., 2024, Section 3.2)."""

import torch
import torch.distributed as dist
from torch import Tensor, nn


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
