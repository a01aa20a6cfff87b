"""What happens to the slots of a layer that holds too many: learned fusion, and the baselines it is compared with.

All share one interface, so that a comparison changes nothing else (Section 4: full cache, H2O, StreamingLLM).
"""

import torch
from offprints.checks import Problems, require_choice, require_range
from offprints.seeding import rng, spawn
from torch import Tensor

from lococo.compressor import ConvCompressor
from lococo.plan import Plan, choose
from lococo.rope import turned

SCORES = ("last", "sum", "ema")


class Policy:
    """Compresses more than M + β slots of a row to M.

    Args:
        mem_size: M.
        buffer: β.
        scores: what the score of a slot is: the attention mass of the "last" forward (the paper's released code), its
            "sum" over all of them (H2O), "ema": a sum that forgets by `decay` with every query; or "none".
        decay: of "ema".
        window: only the last so many queries of a forward count, or None.
    """

    needs_positions = False
    priorities: "Priorities | None" = None

    def __init__(
        self, mem_size: int, buffer: int, scores: str = "none", decay: float = 0.9, window: int | None = None
    ) -> None:
        with Problems(f"cannot make a {type(self).__name__}") as problems:
            problems.check(require_range, "mem_size", mem_size, low=2, integer=True)
            problems.check(require_range, "buffer", buffer, low=0, integer=True)
            problems.check(require_choice, "scores", scores, (*SCORES, "none"))
            problems.check(require_range, "decay", decay, low=0, high=1, low_open=True)
            if window is not None:
                problems.check(require_range, "score_window", window, low=1, integer=True)
        self.mem_size, self.buffer, self.scores, self.decay, self.window = mem_size, buffer, scores, decay, window

    @property
    def limit(self) -> int:
        """M + β: a row that holds more is compressed before the next tokens come."""
        return self.mem_size + self.buffer

    def compress(
        self, keys: Tensor, values: Tensor, scores: Tensor, valid: Tensor | None, positions: Tensor | None
    ) -> tuple[Plan, Tensor]:
        """The plan, and the new keys.

        Args:
            keys: (b, h, S, d).
            values: (b, h, S, d).
            scores: (b, h, S).
            valid: (b, S) or None for all; padding stands in front.
            positions: (b, h, S), where `needs_positions`.
        """
        kept, _ = self.kept(scores if valid is None else scores.masked_fill(~valid[:, None], -torch.inf), valid)
        plan = Plan(kept, None, None)
        return plan, plan.apply(keys)

    def kept(self, scores: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """Places that are kept (and the others), of (b, h, S) scores that are −inf at padding."""
        raise NotImplementedError


class HeavyHitters(Policy):
    """The M − L highest scores and the last L (H2O; the baseline of Section 4)."""

    def __init__(self, mem_size: int, local_len: int, buffer: int, scores: str, window: int | None = None) -> None:
        super().__init__(mem_size, buffer, scores, window=window)
        require_range("local_len", local_len, low=0, high=mem_size, integer=True, because="mem_size")
        self.local_len = local_len

    def kept(self, scores: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """By score."""
        return choose(scores, self.mem_size, self.local_len)


class Pooled(HeavyHitters):
    """As SnapKV chooses: mass of the last w queries, smoothed over neighbouring slots, and the last w slots."""

    def __init__(self, mem_size: int, window: int, pool: int, buffer: int) -> None:
        require_range("pool", pool, low=1, integer=True)
        if pool % 2 == 0:
            raise ValueError(f"pool must be odd, got {pool}. Try {pool + 1}.")
        require_range("window", window, low=1, high=mem_size, high_open=True, integer=True, because="mem_size")
        super().__init__(mem_size, window, buffer, "ema", window)
        self.decay, self.pool = 1 - 1 / window if window > 1 else 0.5, pool

    def kept(self, scores: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """By score, averaged over `pool` neighbours; slots beyond the ends and padding count as 0."""
        flat = scores.masked_fill(scores == -torch.inf, 0.0)
        smooth = torch.nn.functional.avg_pool1d(flat, self.pool, 1, (self.pool - 1) // 2)
        return super().kept(smooth.masked_fill(scores == -torch.inf, -torch.inf), valid)


class SinksAndWindow(Policy):
    """The first tokens and the last ones (StreamingLLM; the baseline of Section 4).

    With `frequencies` the first tokens move up to the window at every eviction, so that distances are those within the
    cache, as in StreamingLLM's own code.
    """

    def __init__(self, mem_size: int, sinks: int, buffer: int, frequencies: Tensor | None = None) -> None:
        super().__init__(mem_size, buffer)
        require_range("sinks", sinks, low=0, high=mem_size, high_open=True, integer=True, because="mem_size")
        self.sinks, self.frequencies = sinks, frequencies

    def kept(self, scores: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """By place: the first ones that are no padding, and the last."""
        length = scores.shape[-1]
        place = torch.arange(length, device=scores.device)
        first = 0 if valid is None else (length - valid.sum(-1))[:, None, None]
        sink = (place >= first) & (place < first + self.sinks)
        ranked = torch.where(sink, torch.inf, place.to(torch.float32)).expand_as(scores)
        ranked = ranked.masked_fill(scores == -torch.inf, -torch.inf)
        return choose(ranked, self.mem_size, 0)

    def compress(
        self, keys: Tensor, values: Tensor, scores: Tensor, valid: Tensor | None, positions: Tensor | None
    ) -> tuple[Plan, Tensor]:
        """As every policy; with `frequencies` the sinks move up by the number of slots that go."""
        plan, new = super().compress(keys, values, scores, valid, positions)
        if self.frequencies is None or not self.sinks:
            return plan, new
        held = keys.shape[-2] if valid is None else valid.sum(-1)[:, None, None]
        gone = torch.as_tensor(held, device=keys.device) - self.mem_size
        moved = turned(new[..., : self.sinks, :], gone.expand(*new.shape[:2], self.sinks), self.frequencies)
        return plan, torch.cat((moved, new[..., self.sinks :, :]), -2)


class Priorities:
    """A random number for each token of each head, that neither batch nor chunks change."""

    def __init__(self, seed: int) -> None:
        self.seed, self.table = seed, torch.zeros(0, 0)

    def of(self, positions: Tensor, heads: int) -> Tensor:
        """(b, q) positions of tokens -> (b, heads, q) numbers in [0, 1); padding has negative positions."""
        longest = int(positions.max()) + 1 if positions.numel() else 0
        if self.table.shape[1] < longest or self.table.shape[0] != heads:
            blocks = spawn(self.seed, -(-longest // 1024))
            self.table = torch.cat([torch.rand(heads, 1024, generator=rng(block, "cpu")) for block in blocks], 1)
        return self.table.to(positions.device)[:, positions.clamp(min=0)].transpose(0, 1)


class RandomSubset(Policy):
    """M − L tokens drawn at random from all that were seen, each as likely, and the last L."""

    def __init__(self, mem_size: int, local_len: int, buffer: int, seed: int) -> None:
        super().__init__(mem_size, buffer)
        require_range("local_len", local_len, low=0, high=mem_size, high_open=True, integer=True, because="mem_size")
        require_range("seed", seed, low=0, integer=True)
        self.local_len, self.priorities = local_len, Priorities(seed)

    def kept(self, scores: Tensor, valid: Tensor | None) -> tuple[Tensor, Tensor]:
        """By the random number that a token got when it came."""
        return choose(scores, self.mem_size, self.local_len)


class Fusion(Policy):
    """LoCoCo: `ConvCompressor` (Section 3).

    Args:
        conv: of the layer.
        scores: as of `Policy`.
        decay: of "ema".
        window: as of `Policy`.
        frequencies: of the rotary embedding, for `rope_mode="pre"`.
    """

    def __init__(
        self,
        conv: ConvCompressor,
        scores: str = "last",
        decay: float = 0.9,
        window: int | None = None,
        frequencies: Tensor | None = None,
    ) -> None:
        require_choice("scores", scores, SCORES)
        super().__init__(conv.config.mem_size, conv.config.buffer, scores, decay, window)
        self.conv, self.frequencies = conv, frequencies
        self.needs_positions = conv.config.rope_mode == "pre"
        if self.needs_positions and frequencies is None:
            raise ValueError('model must be given itself, not its config, for rope_mode="pre" (it knows its rotation).')

    def compress(
        self, keys: Tensor, values: Tensor, scores: Tensor, valid: Tensor | None, positions: Tensor | None
    ) -> tuple[Plan, Tensor]:
        """As every policy; with `rope_mode="pre"` keys are fused without their rotations."""
        if positions is None or self.frequencies is None:
            plan = self.conv.plan(keys, values, scores, valid)
            return plan, plan.apply(keys)
        bare = turned(keys, -positions, self.frequencies)
        plan = self.conv.plan(bare, values, scores, valid)
        return plan, turned(plan.apply(bare), plan.apply(positions), self.frequencies)
