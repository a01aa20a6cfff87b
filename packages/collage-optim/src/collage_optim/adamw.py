"""AdamW whose weights and second moments may be sums of two 16-bit floats (Algorithm 2)."""

from collections.abc import Iterable
from typing import Literal

import numpy as np
import torch
from offprints.checks import require_choice, require_range
from torch import Tensor

from collage_optim import fused
from collage_optim.base import Group, Step, refuse_coupled
from collage_optim.expansions import Expansions
from collage_optim.kernels import Hyper, plain_step, strict_step, wide_step
from collage_optim.mcf import HALF, from_float

Mode = Literal["plain", "light", "plus", "fp32_states", "fp32_master", "kahan", "stochastic"]
MODES: tuple[Mode, ...] = ("plain", "light", "plus", "fp32_states", "fp32_master", "kahan", "stochastic")


class CollageAdamW(Expansions):
    """AdamW for weights in bfloat16 or float16 that loses no update.

    One step on theta with gradient g (Algorithm 2; everything in theta's type):
    m <- beta_1 m + (1 - beta_1) g;
    v <- beta_2 v + (1 - beta_2) g^2; mode "plus": (v, dv) <- Grow(Mul((v, dv), beta_2), (1 - beta_2) g^2);
    Delta = -eta / (1 - beta_1^t) m / (sqrt(v) / sqrt(1 - beta_2^t) + eps) - eta lambda theta;
    (theta, dtheta) <- Grow((theta, dtheta), Delta). The model reads theta; dtheta lives in the optimizer.

    | mode | weights | m, v | bytes per parameter with a 16-bit gradient |
    |---|---|---|---|
    | "plain" | 16 | 16 | 8 |
    | "light" | 16 + 16 | 16 | 10 |
    | "plus" | 16 + 16 | 16, 16 + 16 | 12 |
    | "fp32_states" | 16 | 32 | 12 |
    | "fp32_master" | 16 + 32 | 32 | 16 |
    | "kahan" (compensated sum, not renormalised) | 16 + 16 | 16 | 10 |
    | "stochastic" (stochastic rounding of weights, bfloat16) | 16 | 16 | 8 |

    Args:
        params: parameters or groups; a group may have a mode and settings of its own. float32 and float64 work too.
        lr: eta >= 0, a number or a 0-d tensor.
        betas: (beta_1, beta_2) in [0, 1).
        eps: added to the root of v.
        weight_decay: lambda, decoupled.
        mode: see the table.
        decay_style: "compact" (part of Delta, as in the paper), "torch" (before the step) or "hf" (after it); the
            latter two go through Grow as well, so that they are not lost.
        robust: two_sum instead of fast_two_sum for h + c: exact for updates larger than the weight too. Of no effect in
            float32 arithmetic.
        components: 3 keeps a third component of the weights (updates below |theta| 2^-17; 2 bytes more).
        math: "strict" rounds every operation to the storage type (the paper); "fp32" computes in float32 and rounds
            what it stores: faster, and at least as exact. Of no effect on float32 and float64 parameters.
        foreach: False handles each parameter by itself; otherwise small ones share a chunk (but in mode "stochastic",
            where draws go by parameter). The result is the same.
        maximize: go up instead of down.
        amsgrad: divide by the running maximum of (the leading part of) v.
        capturable: keep the step on the device and read nothing back, for CUDA graphs (16 bits, math="fp32"); each
            parameter is then handled by itself.
        compile: one fused kernel by torch.compile (16 bits, math="fp32"; the first step compiles).
        nonfinite: what a NaN or inf gradient does: "propagate" (as in torch), "skip" the step (counted in `skipped`),
            or "raise" before anything changes.
        low_dtype: torch.float8_e4m3fn or float8_e5m2 to keep dtheta in 8 bits, in units of theta's last place; updates
            below a sixteenth (an eighth) of dtheta may then be lost.
        seed: of stochastic rounding; a run that is resumed draws what the whole one draws.

    Raises:
        ValueError: a setting out of its range.
        TypeError: parameters that are not floating.
        RuntimeError: complex parameters.
    """

    modes = MODES
    marks = ("betas",)

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[Group],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        *,
        mode: Mode = "plus",
        decay_style: Literal["compact", "torch", "hf"] = "compact",
        robust: bool = False,
        components: Literal[2, 3] = 2,
        math: Literal["strict", "fp32"] = "strict",
        foreach: bool | None = None,
        maximize: bool = False,
        amsgrad: bool = False,
        capturable: bool = False,
        compile: bool = False,
        nonfinite: Literal["propagate", "skip", "raise"] = "propagate",
        low_dtype: torch.dtype | None = None,
        seed: int = 0,
    ) -> None:
        settings = dict(
            lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, mode=mode, decay_style=decay_style, robust=robust,
            components=components, math=math, foreach=foreach, maximize=maximize, amsgrad=amsgrad,
            capturable=capturable, compile=compile, nonfinite=nonfinite, low_dtype=low_dtype, seed=seed,
        )  # fmt: skip
        super().__init__(params, settings)

    def _check_settings(self, group: Group) -> None:
        super()._check_settings(group)
        require_choice("decay_style", group["decay_style"], ("compact", "torch", "hf"))
        if not isinstance(group["betas"], tuple | list) or len(group["betas"]) != 2:
            raise ValueError(f"betas must be two numbers, got {group['betas']!r}.")
        for name, beta in zip(("beta_1", "beta_2"), group["betas"], strict=True):
            require_range(name, beta, low=0.0, high=1.0, high_open=True)
        require_range("eps", group["eps"], low=0.0)
        require_range("weight_decay", group["weight_decay"], low=0.0)
        require_range("seed", group["seed"], low=0, integer=True)
        if group["compile"] or group["capturable"]:
            which = "compile" if group["compile"] else "capturable"
            if group["math"] != "fp32" or group["mode"] not in fused.MODES or group["amsgrad"] or group["low_dtype"]:
                raise ValueError(
                    f'{which}=True needs math="fp32", one of the modes {", ".join(fused.MODES)}, no amsgrad and no '
                    "low_dtype: a compiler deletes the error terms of the strict operations."
                )

    def _check_parameter(self, group: Group, p: Tensor) -> None:
        super()._check_parameter(group, p)
        if group["mode"] == "stochastic" and p.dtype != torch.bfloat16:
            raise TypeError(f'mode "stochastic" rounds to bfloat16, got a parameter of {p.dtype}.')
        if (group["compile"] or group["capturable"]) and p.dtype not in HALF:
            raise TypeError(f"compile=True and capturable=True are for 16-bit parameters, got one of {p.dtype}.")
        if p.dtype in HALF and group["betas"][0] >= 0.996 and "wide" not in self._names(group).values():
            self._warn(
                "beta_1", f"beta_1 = {group['betas'][0]} is nearly 1 in 16 bits, and m stays a plain float there."
            )

        narrow = p.dtype == torch.float16 and "wide" not in self._names(group).values()
        if narrow and from_float(group["eps"], torch.float16).hi == 0.0:
            self._warn(
                "float16",
                f"eps = {group['eps']} is 0 in float16, and so is (1 - beta_2) g^2 of small gradients (below 0.008 for "
                "beta_2 = 0.999): steps are then far too large, or NaN. Keep the loss scale in the gradients, on which "
                'Adam does not depend, and in eps; or use mode "fp32_states" or "fp32_master", or bfloat16.',
            )

    def _check_state(self, group: Group, old: Group, saved: dict[int, dict[str, Tensor]]) -> None:
        if "mode" not in old:
            refuse_coupled(old, decoupled=True)
        super()._check_state(group, old, saved)

    def _names(self, group: Group) -> dict[str, str]:
        mode = group["mode"]
        moments = "wide" if mode in ("fp32_states", "fp32_master") else "param"
        names = {"exp_avg": moments, "exp_avg_sq": moments}
        if mode in ("light", "plus", "kahan"):
            names["param_lo"] = "low"
        if group["components"] == 3:
            names["param_lo2"] = "param"
        if mode == "plus":
            names["exp_avg_sq_lo"] = "param"
        if mode == "fp32_master":
            names["master"] = "wide"
        if group["amsgrad"]:
            names["max_exp_avg_sq"] = moments
        return names

    def _wide(self, group: Group, p: Tensor) -> bool:
        wide = group["math"] == "fp32" and p.dtype in HALF
        return wide or group["mode"] in ("fp32_states", "fp32_master", "stochastic")

    def _ready(self, group: Group, p: Tensor) -> None:
        if group["compile"]:
            fused.compiled(fused.BACKEND, p.device.type, p.dtype)

    def _kernel(self, group: Group, number: int, step: Tensor, p: Tensor) -> Step:
        capturable, mode = group["capturable"], group["mode"]
        generator = None
        if mode == "stochastic":
            entropy = np.random.SeedSequence([group["seed"], int(step), number])
            generator = torch.Generator(p.device).manual_seed(int(entropy.generate_state(1, np.uint64)[0]) >> 1)
        h = Hyper(
            lr=0.0 if capturable else float(group["lr"]),
            betas=(float(group["betas"][0]), float(group["betas"][1])),
            eps=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            step=1 if capturable else int(step),
            mode=mode,
            decay_style=group["decay_style"],
            robust=group["robust"],
            generator=generator,
        )
        if capturable or group["compile"]:
            k = fused.capturable_numbers(h, step, group["lr"]) if capturable else fused.numbers(h, p.device)
            function = fused.fused_step
            if group["compile"]:
                function = fused.compiled(fused.BACKEND, p.device.type, p.dtype)
            return lambda c, raw: fused.run(function, c, k, raw)
        if self._wide(group, p):
            chosen = wide_step
        else:
            chosen = plain_step if mode == "plain" and h.decay_style != "compact" else strict_step
        return lambda c, raw: chosen(c, h, self._scratch, raw)
