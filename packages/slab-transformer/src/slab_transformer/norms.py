"""The norms of Guo et al. (2024), Sections 3.1-3.2: RepBN (Eq. 4), PRepBN (Eq. 3) and the affine map left of them."""

import warnings
from typing import cast

import torch
from offprints.checks import require_finite, require_kind, require_range, require_shape
from torch import Tensor, nn
from torch.nn import functional as F

from .statistics import masked_batch_norm, rep_batch_norm

_HALF = (torch.float16, torch.bfloat16)


class RepBN(nn.Module):
    """BatchNorm with a scaled shortcut: RepBN(x) = BN(x) + alpha x (Eq. 4).

    Channels come last, statistics are over every other position. Outside training it is computed as the one BatchNorm
    that it equals (Lemma 4.1: gamma' = gamma + alpha sigma, beta' = beta + alpha mu). `bn` is a real
    `torch.nn.BatchNorm1d`, so that `SyncBatchNorm.convert_sync_batchnorm` finds it (on GPUs). With `sync` statistics
    are over all ranks of the default process group, on any device.

    Args:
        num_features: C, the size of the last axis.
        eps: Added to the variance.
        momentum: Weight of a new batch in the running statistics; None for their average over all batches.
        alpha_init: First value of alpha; 1 for vision, 0 for language models in the paper's settings.
        gamma_init: First value of gamma.
        device: Where the parameters live.
        dtype: Of the parameters.

    Shape:
        (..., C) -> (..., C), rank two or more.

    Raises:
        ValueError: Another number of channels; in training, fewer than two positions to take statistics of.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        alpha_init: float = 1.0,
        gamma_init: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        require_range("num_features", num_features, low=1, integer=True)
        require_range("eps", eps, low=0.0, low_open=True)
        if momentum is not None:
            require_range("momentum", momentum, low=0.0, high=1.0, low_open=True)
        self.bn = nn.BatchNorm1d(num_features, eps=eps, momentum=momentum, device=device, dtype=dtype)
        nn.init.constant_(self.bn.weight, gamma_init)
        self.alpha = nn.Parameter(torch.full((1,), float(alpha_init), device=device, dtype=dtype))
        self.sync = False  # `convert(..., sync=True)` sets it
        self.layer_name = "RepBN"  # `convert` writes the qualified name here, for messages

    @property
    def num_features(self) -> int:
        """C, the number of channels."""
        return self.bn.num_features

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalise x (..., C); in training positions where `mask` (...), True = real, is False stay as they are.

        Outside training the mask changes nothing: the map is the same for all positions.
        """
        require_shape("input", x, ["...", self.num_features])
        work = x.float() if x.dtype in _HALF else x
        if not self.training and not self.bn.training:
            return self._evaluate(work).to(x.dtype)
        rows = work.reshape(-1, self.num_features)
        out = self._train(rows, mask)
        return out.reshape(x.shape).to(x.dtype)

    def _train(self, rows: Tensor, mask: Tensor | None) -> Tensor:
        synced = self.sync or isinstance(self.bn, nn.SyncBatchNorm)
        if mask is None and not synced and rows.shape[0] < 2:
            raise ValueError(
                f"{self.layer_name}: a batch must hold at least 2 positions in training, got {rows.shape[0]} "
                f"(input of {rows.shape[0]} x {self.num_features}). Its variance is not defined: pass a larger batch."
            )
        alpha = self.alpha.to(rows.dtype)
        if mask is None and not self.sync and rows.dtype == self.bn.weight.dtype:
            return rep_batch_norm(rows, alpha, self.bn)
        out = torch.addcmul(masked_batch_norm(rows, mask, self.bn, self.layer_name, sync=synced), alpha, rows)
        return out if mask is None else torch.where(mask.reshape(-1, 1), out, rows)

    def _evaluate(self, x: Tensor) -> Tensor:
        bn = self.bn
        mean, var, gamma, beta = (t.to(x.dtype) for t in (bn.running_mean, bn.running_var, bn.weight, bn.bias))
        alpha = self.alpha.to(x.dtype)
        rows = x.reshape(-1, self.num_features)
        out = F.batch_norm(
            rows, mean, var, gamma + alpha * torch.sqrt(var + bn.eps), beta + alpha * mean, eps=bn.eps, training=False
        )
        return out.reshape(x.shape)

    def affine(self) -> tuple[Tensor, Tensor]:
        """The map x -> a x + b it is outside training: a = gamma/sigma + alpha, b = beta - gamma mu/sigma (Lemma 4.1).

        Returns:
            a and b in float64, of shape (C,).

        Raises:
            ValueError: Statistics or weights that are not finite.
        """
        bn = self.bn
        with torch.no_grad():
            mean, var, gamma, beta, alpha = (
                t.detach().double() for t in (bn.running_mean, bn.running_var, bn.weight, bn.bias, self.alpha)
            )
            sigma = torch.sqrt(var + bn.eps)
            a, b = gamma / sigma + alpha, beta - gamma * mean / sigma
        hint = "The norm saw NaN or infinite activations."
        require_finite(f"scale of {self.layer_name}", a, hint=hint)
        require_finite(f"shift of {self.layer_name}", b, hint=hint)
        return a, b

    def to_batchnorm(self) -> nn.BatchNorm1d:
        """The BatchNorm1d, in eval mode, that equals this norm: gamma' and beta' of Lemma 4.1, same statistics."""
        old = self.bn
        made = nn.BatchNorm1d(
            self.num_features, old.eps, old.momentum, device=old.weight.device, dtype=old.weight.dtype
        )
        with torch.no_grad():
            sigma = torch.sqrt(old.running_var.double() + old.eps)
            alpha = self.alpha.double()
            made.weight.copy_(old.weight.double() + alpha * sigma)
            made.bias.copy_(old.bias.double() + alpha * old.running_mean.double())
            made.running_mean.copy_(old.running_mean)
            made.running_var.copy_(old.running_var)
            made.num_batches_tracked.copy_(old.num_batches_tracked)
        return made.eval()

    def extra_repr(self) -> str:
        """The name of the layer, where one is known."""
        return "" if self.layer_name == "RepBN" else f"at {self.layer_name}"


class PRepBN(nn.Module):
    """Progressive norm: PRepBN(x) = lambda Norm1(x) + (1 - lambda) RepBN(x) in training, RepBN(x) in eval (Eq. 3).

    A new norm has lambda = 1. In warm-up (`hold()`) only Norm1 runs and the statistics do not move; at lambda = 0 only
    RepBN runs. `PRepBNSchedule` sets lambda, once for each optimiser step, for all norms of a model.

    Args:
        norm1: The norm to leave: LayerNorm, or any RMSNorm.
        rep: The RepBN to arrive at.

    Shape:
        (..., C) -> (..., C).
    """

    def __init__(self, norm1: nn.Module, rep: RepBN) -> None:
        super().__init__()
        require_kind("norm1", norm1, nn.Module)
        require_kind("rep", rep, RepBN)
        self.norm1 = norm1
        self.rep = rep
        self.mask: Tensor | None = None  # set by `padding_mask` for the time of a forward; (...) of bool, True = real
        self.watched = False  # `DivergenceMonitor` has the distance of the branches kept
        self.divergence: Tensor | None = None
        self._holding = False
        self._done = False
        self.register_buffer("_lam", torch.ones((), device=rep.alpha.device, dtype=rep.alpha.dtype))

    @property
    def lam(self) -> float:
        """Lambda, the weight of Norm1 in training."""
        return float(self._lam)

    @property
    def finished(self) -> bool:
        """Whether lambda has come down to 0, so that Norm1 is no longer used."""
        return self._done

    def set_lam(self, lam: float) -> None:
        """Set lambda, between 0 and 1, and end the warm-up; raises ValueError outside."""
        require_range("lam", lam, low=0.0, high=1.0)
        self._lam.fill_(lam)
        self._holding = False
        self._done = lam == 0.0

    def hold(self) -> None:
        """Warm-up: the output is Norm1(x), and RepBN is not run."""
        self._lam.fill_(1.0)
        self._holding, self._done = True, False

    def forward(self, x: Tensor) -> Tensor:
        """The mixture at the present lambda; in eval mode RepBN(x), with a warning while lambda > 0."""
        if not self.training or self._done:
            if not self._done and not torch.compiler.is_compiling() and not self.rep.bn.training:
                warnings.warn(
                    "evaluated before the schedule of PRepBN has finished: eval mode uses the BatchNorm branch alone, "
                    "which is hardly trained yet.",
                    UserWarning,
                    stacklevel=2,
                )
            return self.rep(x, self.mask)
        if self._holding:
            return cast(Tensor, self.norm1(x))
        lam = self._lam.to(x.dtype)
        first, second = self.norm1(x), self.rep(x, self.mask)
        if self.watched:
            self.divergence = divergence(first, second, self.mask)
        return lam * first + (1 - lam) * second

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs) -> None:
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        if prefix + "_lam" in state_dict:
            self._done = bool(state_dict[prefix + "_lam"] == 0)


def divergence(first: Tensor, second: Tensor, mask: Tensor | None) -> Tensor:
    """Mean |Norm1(x) - RepBN(x)| / mean |Norm1(x)| over the positions that count (Eq. 3's two branches)."""
    first, second = first.detach(), second.detach()
    if mask is not None:
        first, second = first[mask], second[mask]
    return (first - second).abs().mean() / first.abs().mean().clamp_min(1e-12)


class ChannelAffine(nn.Module):
    """What is left of a RepBN that no linear layer can take in: x -> a x + b by channel, no statistics (Section 3.2).

    Args:
        a: Scale, of shape (C,).
        b: Shift, of shape (C,).

    Shape:
        (..., C) -> (..., C).
    """

    def __init__(self, a: Tensor, b: Tensor) -> None:
        super().__init__()
        require_shape("a", a, ["C"])
        require_shape("b", b, [a.shape[0]])
        require_finite("a", a)
        require_finite("b", b)
        self.a = nn.Parameter(a.detach().clone())
        self.b = nn.Parameter(b.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """One multiply-add for each entry of x (..., C)."""
        require_shape("input", x, ["...", self.a.shape[0]])
        return torch.addcmul(self.b.to(x.dtype), self.a.to(x.dtype), x)
