"""Learned compression: which slots stay, and how a convolution mixes the others (Section 3 of the paper)."""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from offprints.checks import Problems, require_choice, require_range, require_same_device, require_shape
from offprints.device import full_precision
from torch import Tensor, nn

from lococo.plan import Plan, choose, taken, top


@dataclass(frozen=True)
class LoCoCoConfig:
    """Sizes of a compressor (symbols of Section 3).

    Attributes:
        mem_size: M, slots after compression.
        keep_rate: ρ, share of them kept as they are; C = ⌊M (1 − ρ)⌋ are fused.
        local_len: L, of the kept ones, how many are simply the last. 0 in the released code; M/4 does better on text.
        kernel_size: κ, odd.
        n_convs: convolutions in a row.
        width: channels between convolutions, as a multiple of C.
        buffer: β, how many slots more than M a row may hold before it is compressed.
        alpha_init: α at the start; 0 begins exactly as heavy-hitter eviction.
        alpha_max: the largest |α| in use, or None.
        activation: "relu" as in the paper, or "none" (rows of negative outputs stay distinguishable).
        init: "kaiming" (PyTorch's), or "paper": N(0, 1).
        rope_mode: "post" fuses keys as they are cached, with their rotations; "pre" undoes the rotation, fuses, and
            rotates by the weighted mean position.
    """

    mem_size: int = 512
    keep_rate: float = 0.5
    local_len: int | None = None
    kernel_size: int = 21
    n_convs: int = 1
    width: int = 1
    buffer: int = 16
    alpha_init: float = 0.5
    alpha_max: float | None = None
    activation: str = "relu"
    init: str = "kaiming"
    rope_mode: str = "post"

    def __post_init__(self) -> None:
        with Problems("cannot make a LoCoCoConfig") as problems:
            problems.check(require_range, "mem_size", self.mem_size, low=2, integer=True)
            problems.check(require_range, "keep_rate", self.keep_rate, low=0, high=1)
            problems.check(require_range, "kernel_size", self.kernel_size, low=1, integer=True)
            problems.check(require_range, "n_convs", self.n_convs, low=1, integer=True)
            problems.check(require_range, "width", self.width, low=1, integer=True)
            problems.check(require_range, "buffer", self.buffer, low=0, integer=True)
            problems.check(require_range, "alpha_init", self.alpha_init, low=-math.inf, high=math.inf)
            if self.alpha_max is not None:
                problems.check(require_range, "alpha_max", self.alpha_max, low=0)
            problems.check(require_choice, "activation", self.activation, ("relu", "none"))
            problems.check(require_choice, "init", self.init, ("kaiming", "paper"))
            problems.check(require_choice, "rope_mode", self.rope_mode, ("post", "pre"))
            if problems.found:
                return
            if self.kernel_size % 2 == 0:
                problems.add(f"kernel_size must be odd, got {self.kernel_size}. Try {self.kernel_size + 1}.")
            if self.local_len is None:
                object.__setattr__(self, "local_len", min(self.mem_size // 4, self.kept))
            hint = "Lower local_len or raise keep_rate."
            because = f"the {self.kept} slots of {self.mem_size} that are kept as they are"
            problems.check(
                require_range, "local_len", self.local_len, low=0, high=self.kept, integer=True, because=because,
                hint=hint,
            )  # fmt: skip
            if not problems.found and self.local >= self.mem_size:
                problems.add(f"local_len must be less than mem_size, got {self.local} of {self.mem_size}. {hint}")

    @property
    def fused(self) -> int:
        """C: slots that are mixtures."""
        return int(self.mem_size * (1 - self.keep_rate))

    @property
    def kept(self) -> int:
        """M − C: slots that are kept as they are."""
        return self.mem_size - self.fused

    @property
    def local(self) -> int:
        """L as a number."""
        return self.local_len or 0


class ConvCompressor(nn.Module):
    """Compresses the slots of one layer, the same convolution for all its heads (Section 3).

    Of S slots M − C stay as they are: the last L and the highest scores. The others, K', V' (S' × d) in temporal order,
    become C mixtures W* K', W* V' with W* = (1 − α) R + α softmax(ReLU(conv([K' ‖ V']ᵀ))): rows of the softmax run over
    the S' positions, and row r of R selects the r-th, in temporal order, of the C highest scores.

    Args:
        config: the sizes.
        head_dim: d.
        device: of the parameters.
        dtype: of the parameters; mixing weights are at least float32.
        generator: of the initial weights; PyTorch's global one by default.
    """

    def __init__(
        self,
        config: LoCoCoConfig,
        head_dim: int,
        *,
        device: "torch.device | str | None" = None,
        dtype: torch.dtype | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        require_range("head_dim", head_dim, low=1, integer=True)
        self.config, self.head_dim = config, head_dim
        made = {"device": torch.get_default_device() if device is None else device, "dtype": dtype}
        self.alpha = nn.Parameter(torch.full((), float(config.alpha_init), **made))
        inner = [config.fused * config.width] * (config.n_convs - 1)
        sizes = [2 * head_dim, *inner, config.fused] if config.fused else []
        self.convs = nn.ModuleList()
        for channels, out in pairwise(sizes):
            conv = nn.utils.skip_init(nn.Conv1d, channels, out, config.kernel_size, padding="same", **made)
            _initialise(conv, config.init, generator)
            self.convs.append(conv)

    def forward(self, keys: Tensor, values: Tensor, scores: Tensor, valid: Tensor | None = None) -> tuple[Tensor, ...]:
        """Compress, if there are more than M slots.

        Args:
            keys: (b, h, S, d).
            values: (b, h, S, d).
            scores: (b, h, S) attention mass of each slot.
            valid: (b, S) which slots hold tokens; padding stands in front.

        Returns:
            keys and values, (b, h, M, d); as given, if S ≤ M.

        Raises:
            ValueError: if shapes or devices disagree, or a row has padding and no more than M tokens.
        """
        if keys.shape[-2] <= self.config.mem_size:
            self._check(keys, values, scores, valid)
            return keys, values
        plan = self.plan(keys, values, scores, valid)
        joined = plan.apply(torch.cat((keys, values), -1))
        return joined[..., : self.head_dim].contiguous(), joined[..., self.head_dim :].contiguous()

    def plan(self, keys: Tensor, values: Tensor, scores: Tensor, valid: Tensor | None = None) -> Plan:
        """Which slots are kept and how the others are mixed; arguments as of `forward`, S > M.

        Raises:
            ValueError: as `forward` does.
        """
        self._check(keys, values, scores, valid)
        with full_precision(keys.device):
            ranked = scores if valid is None else scores.masked_fill(~valid[:, None], -torch.inf)
            kept, others = choose(ranked, self.config.kept, self.config.local)
            inside = None if valid is None else valid[:, None].expand_as(scores).gather(-1, others)
            weights = self.mixing_weights(taken(keys, others), taken(values, others), ranked.gather(-1, others), inside)
        return Plan(kept, others, weights)

    def mixing_weights(self, keys: Tensor, values: Tensor, scores: Tensor, valid: Tensor | None = None) -> Tensor:
        """W* of the slots that are not kept: (b, h, S', d), (b, h, S', d), (b, h, S'), (b, h, S') -> (b, h, C, S').

        Rows sum to 1. Computed in float32 at least; slots that are not valid weigh 0.
        """
        b, h, length, d = keys.shape
        precise = torch.promote_types(keys.dtype, torch.float32)
        if not self.config.fused:
            return torch.zeros(b, h, 0, length, dtype=precise, device=keys.device)
        x = torch.cat((keys, values), -1).reshape(b * h, length, 2 * d).transpose(1, 2)
        for conv in self.convs:
            if valid is not None:  # zeros before every convolution, as beyond the ends of a row alone
                x = x.masked_fill(~valid.reshape(b * h, 1, length), 0)
            x = conv(x.to(conv.get_parameter("weight").dtype))
            x = torch.relu(x) if self.config.activation == "relu" else x
        x = x.reshape(b, h, self.config.fused, length).to(precise)
        if valid is not None:
            x = x.masked_fill(~valid[:, :, None], -torch.inf)
        chosen = top(scores, self.config.fused)
        alpha = self.used_alpha().to(precise)
        residual = (1 - alpha).expand_as(chosen).unsqueeze(-1)
        return (alpha * torch.softmax(x, -1)).scatter_add(-1, chosen.unsqueeze(-1), residual)

    def used_alpha(self) -> Tensor:
        """α, clamped to [−alpha_max, alpha_max] where the configuration says so."""
        limit = self.config.alpha_max
        return self.alpha if limit is None else self.alpha.clamp(-limit, limit)

    def _check(self, keys: Tensor, values: Tensor, scores: Tensor, valid: Tensor | None) -> None:
        require_shape("keys", keys, ("b", "h", "S", self.head_dim))
        require_shape("values", values, tuple(keys.shape))
        require_shape("scores", scores, tuple(keys.shape[:3]))
        require_same_device(keys=keys, values=values, scores=scores, valid=valid, alpha=self.alpha)
        if valid is None:
            return
        require_shape("valid", valid, (keys.shape[0], keys.shape[2]))
        fake = torch.compiler.is_compiling() or type(valid) is not Tensor
        if not fake and bool((valid.sum(-1) <= self.config.mem_size).any()) and not bool(valid.all()):
            rows = (valid.sum(-1) <= self.config.mem_size).nonzero()[:, 0].tolist()
            raise ValueError(
                f"valid must mark more than {self.config.mem_size} slots (mem_size) in every row, got fewer in rows "
                f"{rows}. Compress those rows later: padding must not be fused."
            )

    def extra_repr(self) -> str:
        """Sizes."""
        c = self.config
        return f"{c.mem_size} slots: {c.kept} kept ({c.local} local), {c.fused} fused"


def _initialise(conv: nn.Module, init: str, generator: torch.Generator | None) -> None:
    weight, bias = conv.get_parameter("weight"), conv.get_parameter("bias")
    if init == "paper":
        nn.init.normal_(weight, generator=generator)
        nn.init.zeros_(bias)
        return
    limit = 1 / math.sqrt(weight.shape[1] * weight.shape[2])  # PyTorch's own for a convolution
    for parameter in (weight, bias):
        nn.init.uniform_(parameter, -limit, limit, generator=generator)
