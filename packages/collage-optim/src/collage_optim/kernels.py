"""One AdamW step on one chunk, in place: in the storage type, as the paper has it, or in float32.

Chunks are views (n,) by name: param, grad, exp_avg, exp_avg_sq and, where the mode has them, param_lo, param_lo2,
exp_avg_sq_lo, max_exp_avg_sq and master. `raw` takes the update that was asked for, in float64, when someone measures.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from collage_optim.chunks import Scratch, Views
from collage_optim.mcf import HALF, MCF, from_float, grow_, grow_three_, mul_

COMPENSATED = ("light", "plus", "kahan")


@dataclass(frozen=True)
class Hyper:
    """The numbers of one step (float64): eta, beta_1, beta_2, epsilon, lambda, t, and how decay is applied."""

    lr: float
    betas: tuple[float, float]
    eps: float
    weight_decay: float
    step: int
    mode: str
    decay_style: str = "compact"
    robust: bool = False
    generator: torch.Generator | None = None

    @property
    def step_size(self) -> float:
        """Eta / (1 - beta_1^t)."""
        return self.lr / (1.0 - self.betas[0] ** self.step)

    @property
    def bias2(self) -> float:
        """sqrt(1 - beta_2^t)."""
        return math.sqrt(1.0 - self.betas[1] ** self.step)

    @property
    def decay(self) -> float:
        """Eta lambda."""
        return self.lr * self.weight_decay


def _denominator(c: Views, h: Hyper, second: Tensor, out: Tensor) -> Tensor:
    """sqrt(v) / sqrt(1 - beta_2^t) + epsilon, of the running maximum of v with amsgrad."""
    if "max_exp_avg_sq" in c:
        second = torch.maximum(c["max_exp_avg_sq"], second, out=c["max_exp_avg_sq"])
    return torch.sqrt(second, out=out).div_(h.bias2).add_(h.eps)


def _record(raw: Tensor | None, m: Tensor, denominator: Tensor, param: Tensor, h: Hyper) -> None:
    """Delta = -eta / (1 - beta_1^t) m / denominator - eta lambda theta."""
    if raw is not None:
        raw.copy_(m).div_(denominator.double()).mul_(-h.step_size).sub_(param.double(), alpha=h.decay)


def plain_step(c: Views, h: Hyper, scratch: Scratch, raw: Tensor | None = None) -> None:
    """Operation by operation what torch.optim.AdamW does, in the storage type (mode "plain" with decay apart)."""
    p, g, m, v = c["param"], c["grad"], c["exp_avg"], c["exp_avg_sq"]
    (denominator,) = scratch.like(p, "denominator")
    m.lerp_(g, 1.0 - h.betas[0])
    v.mul_(h.betas[1]).addcmul_(g, g, value=1.0 - h.betas[1])
    _denominator(c, h, v, denominator)
    _record(raw, m, denominator, p, h)
    if h.decay_style == "torch":
        p.mul_(1.0 - h.decay)
    p.addcdiv_(m, denominator, value=-h.step_size)
    if h.decay_style == "hf":
        p.mul_(1.0 - h.decay)


def strict_step(c: Views, h: Hyper, scratch: Scratch, raw: Tensor | None = None) -> None:
    """Algorithm 2, every operation rounded to the storage type; without its low parts in mode "plain"."""
    p, g, m, v = c["param"], c["grad"], c["exp_avg"], c["exp_avg_sq"]
    update, *buffers = scratch.like(p, "update", "u", "t", "w")
    m.mul_(h.betas[0]).add_(g, alpha=1.0 - h.betas[0])
    if h.mode == "plus":
        second = MCF(v, c["exp_avg_sq_lo"])
        mul_(second, from_float(h.betas[1], v.dtype, v.device), scratch=tuple(buffers))
        torch.mul(g, 1.0 - h.betas[1], out=update).mul_(g)  # in this order g^2 does not overflow float16
        grow_(second, update, robust=h.robust, scratch=tuple(buffers))
    else:
        v.mul_(h.betas[1]).addcmul_(g, g, value=1.0 - h.betas[1])
    denominator = _denominator(c, h, v, buffers[0])
    _record(raw, m, denominator, p, h)
    torch.div(m, denominator, out=update).mul_(-h.step_size)
    decay = torch.mul(p, -h.decay, out=buffers[1]) if h.decay else None
    if decay is not None and h.decay_style == "compact":
        update.add_(decay)
        decay = None
    if decay is not None and h.decay_style == "torch":
        kept = scratch.like(p, "kept")[0].copy_(decay)
        _add(c, kept, h, buffers)
    _add(c, update, h, buffers)
    if decay is not None and h.decay_style == "hf":
        _add(c, torch.mul(p, -h.decay, out=update), h, buffers)


def _add(c: Views, update: Tensor, h: Hyper, buffers: list[Tensor]) -> None:
    """The expansion of a parameter, plus an update: grow, Kahan's summation, or grow over three components."""
    if h.mode == "kahan":
        t, total, _ = buffers
        torch.add(update, c["param_lo"], out=t)  # y
        torch.add(c["param"], t, out=total)
        torch.sub(total, c["param"], out=c["param_lo"])
        torch.sub(t, c["param_lo"], out=c["param_lo"]).nan_to_num_(0.0, 0.0, 0.0)
        c["param"].copy_(total)
    elif h.mode == "plain":
        c["param"].add_(update)
    elif "param_lo2" in c:
        grow_three_(c["param"], c["param_lo"], c["param_lo2"], update)
    else:
        grow_(MCF(c["param"], c["param_lo"]), update, robust=h.robust, scratch=tuple(buffers))


def wide_step(c: Views, h: Hyper, scratch: Scratch, raw: Tensor | None = None) -> None:
    """The same stored state, with arithmetic in float32 (float64 for wider parameters) and one rounding at the end.

    For compensated modes x = h + l is updated, then h = RN(x), l = RN(x - h); compact and torch's decay coincide.
    float32 has 24 bits: of an l far below |h| 2^-24, which only the storage type could add to, the rest is lost.
    """
    p = c["param"]
    wide = torch.float32 if p.dtype in HALF else p.dtype
    wide = torch.promote_types(wide, c["exp_avg_sq"].dtype)
    g, t, m, v, x = scratch.like(p, "g", "t", "m", "v", "x", dtype=wide)
    g.copy_(c["grad"])
    m = c["exp_avg"] if c["exp_avg"].dtype == wide else m.copy_(c["exp_avg"])
    m.lerp_(g, 1.0 - h.betas[0])
    v = c["exp_avg_sq"] if c["exp_avg_sq"].dtype == wide else v.copy_(c["exp_avg_sq"])
    if "exp_avg_sq_lo" in c:
        v.add_(t.copy_(c["exp_avg_sq_lo"]))
    v.mul_(h.betas[1]).addcmul_(g, g, value=1.0 - h.betas[1])
    second = v
    if "max_exp_avg_sq" in c:
        second = torch.maximum(t.copy_(c["max_exp_avg_sq"]), v, out=t)
        c["max_exp_avg_sq"].copy_(second)
    denominator = torch.sqrt(second, out=g).div_(h.bias2).add_(h.eps)
    if v is not c["exp_avg_sq"]:
        _split(v, c["exp_avg_sq"], c.get("exp_avg_sq_lo"), t)
    x = c["master"] if "master" in c else x.copy_(p)
    if "param_lo" in c:
        x.add_(t.copy_(c["param_lo"]))
    _record(raw, m, denominator, x, h)
    if h.decay and h.decay_style != "hf":
        x.mul_(1.0 - h.decay)
    x.addcdiv_(m, denominator, value=-h.step_size)
    if h.decay and h.decay_style == "hf":
        x.mul_(1.0 - h.decay)
    if h.mode == "stochastic":
        x = round_stochastically(x, h.generator)
    _split(x, p, c.get("param_lo"), t)
    if m is not c["exp_avg"]:
        c["exp_avg"].copy_(m)


def _split(x: Tensor, high: Tensor, low: Tensor | None, t: Tensor) -> None:
    """H = RN(x) and l = RN(x - h); x is used up."""
    high.copy_(x)
    if low is not None:
        low.copy_(x.sub_(t.copy_(high)).nan_to_num_(0.0, 0.0, 0.0))


def round_stochastically(x: Tensor, generator: torch.Generator | None) -> Tensor:
    """float32 -> the bfloat16 above or below, with probabilities that make the mean x.

    A uniform 16-bit integer is added to the bit pattern and the low 16 bits are cut off.
    """
    noise = torch.randint(0, 1 << 16, x.shape, generator=generator, dtype=torch.int32, device=x.device)
    bits = ((x.view(torch.int32) + noise) & ~0xFFFF).view(torch.float32)
    return torch.where(torch.isfinite(x), bits, x)
