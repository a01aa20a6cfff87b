"""Momentum SGD whose weights grow as those of Algorithm 2: sums of two 16-bit floats."""

from collections.abc import Iterable
from typing import Literal

import torch
from offprints.checks import require_range
from torch import Tensor

from collage_optim.base import Group, Step
from collage_optim.chunks import Views
from collage_optim.expansions import Expansions
from collage_optim.mcf import HALF, MCF, grow_, grow_three_


class CollageSGD(Expansions):
    """SGD with momentum; weights grow as in `CollageAdamW`.

    g <- g + lambda theta; b <- mu b + (1 - tau) g (b = g at the first step); d = g + mu b (Nesterov) or b;
    (theta, dtheta) <- Grow((theta, dtheta), -eta d), as torch.optim.SGD in mode "plain".

    Args:
        params: parameters or groups.
        lr: eta >= 0, a number or a 0-d tensor.
        momentum: mu >= 0.
        dampening: tau.
        weight_decay: lambda, part of the gradient as in torch.
        nesterov: Nesterov's momentum; needs momentum > 0 and no dampening.
        mode: "plain", "light" (16 + 16 bits of weights) or "fp32_master".
        math: "strict" or "fp32", see `CollageAdamW`.
        robust: see `CollageAdamW`.
        components: 3 keeps a third component of the weights.
        foreach: False handles each parameter by itself.
        maximize: go up instead of down.
        nonfinite: "propagate", "skip" or "raise".
        low_dtype: an 8-bit type for dtheta.

    Raises:
        ValueError: a setting out of its range.
        TypeError: parameters that are not floating.
        RuntimeError: complex parameters.
    """

    modes = ("plain", "light", "fp32_master")
    marks = ("momentum",)

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        mode: Literal["plain", "light", "fp32_master"] = "light",
        math: Literal["strict", "fp32"] = "strict",
        robust: bool = False,
        components: Literal[2, 3] = 2,
        foreach: bool | None = None,
        maximize: bool = False,
        nonfinite: Literal["propagate", "skip", "raise"] = "propagate",
        low_dtype: torch.dtype | None = None,
    ) -> None:
        settings = dict(
            lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay, nesterov=nesterov, mode=mode,
            math=math, robust=robust, components=components, foreach=foreach, maximize=maximize, nonfinite=nonfinite,
            low_dtype=low_dtype,
        )  # fmt: skip
        super().__init__(params, settings)

    def _check_settings(self, group: Group) -> None:
        super()._check_settings(group)
        for name in ("momentum", "weight_decay"):
            require_range(name, group[name], low=0.0)
        require_range("dampening", group["dampening"])
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise ValueError("nesterov=True needs momentum > 0 and dampening 0.")

    def _names(self, group: Group) -> dict[str, str]:
        names = {}
        if group["momentum"]:
            names["momentum_buffer"] = "wide" if group["mode"] == "fp32_master" else "param"
        if group["mode"] == "light":
            names["param_lo"] = "low"
        if group["components"] == 3:
            names["param_lo2"] = "param"
        if group["mode"] == "fp32_master":
            names["master"] = "wide"
        return names

    def _wide(self, group: Group, p: Tensor) -> bool:
        return group["mode"] == "fp32_master" or (group["math"] == "fp32" and p.dtype in HALF)

    def _kernel(self, group: Group, number: int, step: Tensor, p: Tensor) -> Step:
        first, rate = int(step) == 1, float(group["lr"])
        work = torch.promote_types(p.dtype, torch.float32) if self._wide(group, p) else p.dtype
        return lambda c, raw: self._chunk(c, raw, group, rate, first, work)

    def _chunk(self, c: Views, raw: Tensor | None, group: Group, rate: float, first: bool, work: torch.dtype) -> None:
        p = c["param"]
        d, u, t, w = self._scratch.like(p, "direction", "u", "t", "w", dtype=work)
        value = c.get("master", p)
        d.copy_(c["grad"])
        if group["weight_decay"]:
            d.add_(value, alpha=group["weight_decay"])
        if group["momentum"]:
            buffer = c["momentum_buffer"]
            held = buffer if buffer.dtype == work else t.copy_(buffer)
            if first:
                held.copy_(d)
            else:
                held.mul_(group["momentum"]).add_(d, alpha=1.0 - group["dampening"])
            buffer.copy_(held)
            d = d.add_(held, alpha=group["momentum"]) if group["nesterov"] else d.copy_(held)
        if raw is not None:
            raw.copy_(d).mul_(-rate)
        if "master" in c:
            p.copy_(c["master"].add_(d, alpha=-rate))
        elif "param_lo" not in c:
            p.copy_(u.copy_(p).add_(d, alpha=-rate))
        elif work != p.dtype:
            u.copy_(p).add_(t.copy_(c["param_lo"])).add_(d, alpha=-rate)
            p.copy_(u)
            c["param_lo"].copy_(u.sub_(t.copy_(p)).nan_to_num_(0.0, 0.0, 0.0))
        elif "param_lo2" in c:
            grow_three_(p, c["param_lo"], c["param_lo2"], d.mul_(-rate))
        else:
            grow_(MCF(p, c["param_lo"]), d.mul_(-rate), robust=group["robust"], scratch=(u, t, w))
