"""The trainings of the claims: a small GPT on text, a classifier of digits, in 16-bit weights."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from offprints.device import pick_device
from offprints.seeding import isolated, rng
from torch import Tensor, nn
from torch.func import functional_call

from collage_optim.adamw import CollageAdamW
from collage_optim.data import Text, batches
from collage_optim.metrics import PrecisionMonitor
from collage_optim.schedule import schedule


class Block(nn.Module):
    """Pre-norm causal attention and MLP."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, length, width) -> the same."""
        batch, length, width = x.shape
        split = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class TinyGPT(nn.Module):
    """A GPT with learned positions; logits (batch, length, symbols) from codes (batch, length).

    Weights start as torch's modules make them (embeddings from N(0, 1)), or all from N(0, std^2).
    """

    def __init__(
        self, symbols: int, width: int, heads: int, layers: int, length: int, std: float | None = None
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(symbols, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols, bias=False)
        for module in self.modules():
            if std is not None and isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=std)

    def forward(self, codes: Tensor) -> Tensor:
        """Next-symbol logits."""
        x = self.tokens(codes) + self.positions.weight[: codes.shape[1]]
        return self.head(self.norm(self.blocks(x)))


@dataclass
class Run:
    """What a training leaves: validation loss, and by step training loss, EDQ ratio and share of lost updates."""

    loss: float
    losses: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    lost: list[float] = field(default_factory=list)


def wide_loss(model: nn.Module, codes: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy, computed in float32 from the 16-bit weights: their gradients arrive in 16 bits."""
    weights = {name: p.float() for name, p in model.named_parameters()}
    logits = functional_call(model, weights, (codes,))
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def train_gpt(
    text: Text,
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    *,
    seed: int,
    steps: int,
    lr: float = 1e-3,
    width: int = 64,
    heads: int = 4,
    layers: int = 2,
    length: int = 64,
    batch: int = 16,
    warmup: int = 40,
    dtype: torch.dtype = torch.bfloat16,
    loss_scale: float = 1.0,
    every: int = 10,
    std: float | None = None,
    device: str = "cpu",
) -> Run:
    """Train with gradients clipped to norm 1, times the loss scale; weights and the order of data depend on the seed.

    Args:
        text: characters.
        make: parameters -> optimizer; its lr is set by the schedule.
        seed: of weights and windows.
        steps: updates.
        lr: highest rate.
        width: of the model.
        heads: of attention.
        layers: blocks.
        length: window.
        batch: windows per step.
        warmup: steps of linear warm-up.
        dtype: of the weights; float32 for a control.
        loss_scale: factor on the loss that stays in the gradients, on whose scale Adam does not depend (for float16).
        every: steps between measurements of precision.
        std: of the initial weights; None for those of torch's modules.
        device: where to train.
    """
    where = pick_device(device)
    generator = rng(seed, "cpu")
    with isolated(seed):
        model = TinyGPT(len(text.symbols), width, heads, layers, length, std)
    model = model.to(device=where, dtype=dtype)
    params = list(model.parameters())
    optimizer = make(params)
    monitor = PrecisionMonitor(optimizer, every=every) if isinstance(optimizer, CollageAdamW) else None
    run = Run(float("nan"))
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * schedule(step, steps, warmup)
        codes, targets = batches(text.train, length, batch, generator)
        loss = wide_loss(model, codes.to(where), targets.to(where))
        (loss * loss_scale).backward()
        nn.utils.clip_grad_norm_(params, loss_scale)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.losses.append(loss.item())
    if monitor is not None:
        run.ratios = [report.edq_ratio for report in monitor.history]
        run.lost = [report.lost_fraction for report in monitor.history]
    run.loss = held_out_loss(model, text.held_out, length)
    return run


@torch.no_grad()
def held_out_loss(model: nn.Module, codes: Tensor, length: int, windows: int = 256) -> float:
    """Mean loss over evenly spaced windows."""
    starts = torch.linspace(0, len(codes) - length - 1, min(windows, len(codes) // length)).long()
    both = torch.stack([codes[s : s + length + 1] for s in starts.tolist()]).to(next(model.parameters()).device)
    return float(wide_loss(model, both[:, :-1], both[:, 1:]))
