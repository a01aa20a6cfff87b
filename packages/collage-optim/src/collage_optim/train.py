r"""Full-scale language-model training: a model of transformers, tokens from a file, any number of GPUs.

    accelerate launch -m collage_optim.cli train --hf-config gpt2 --tokens data/train.bin \
        --lr 6e-4 --betas 0.9 0.95 --wd 0.1 --warmup 200 --steps 20000 --seq 2048 --global-batch 1024

are the paper's settings for GPT-125M.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from offprints import checkpoint
from offprints.checks import require_range
from offprints.seeding import isolated, rng, spawn

from collage_optim._version import DIST, VERSION
from collage_optim.adamw import CollageAdamW, Mode
from collage_optim.data import batches, load_tokens
from collage_optim.metrics import PrecisionMonitor
from collage_optim.schedule import schedule


@dataclass(frozen=True)
class Settings:
    """What a run is made of; rates go from a linear warm-up down a cosine to a tenth."""

    tokens: Path
    hf_config: str = "gpt2"
    mode: Mode = "plus"
    lr: float = 6e-4
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.1
    warmup: int = 200
    steps: int = 20_000
    length: int = 2048
    global_batch: int = 1024
    micro_batch: int = 8
    clip: float = 1.0
    every: int = 100
    seed: int = 0
    math: Literal["strict", "fp32"] = "fp32"
    save: Path | None = None


def train(settings: Settings) -> Iterator[dict[str, float]]:
    """Train in bfloat16 and give loss, EDQ ratio and share of lost updates every `every` steps.

    Processes that `accelerate launch` started share a global batch; each draws windows of its own.

    Args:
        settings: the run.

    Yields:
        {"step", "loss", "edq_ratio", "lost_fraction"}.

    Raises:
        ImportError: transformers or accelerate are not installed.
        ValueError: sizes that do not divide, or tokens beyond the model's vocabulary.
        FileNotFoundError: no token file.
    """
    try:
        from accelerate import Accelerator
        from transformers import AutoConfig, AutoModelForCausalLM
    except ImportError as err:
        raise ImportError('training at scale needs transformers: pip install "collage-optim[hf]"') from err
    tokens = load_tokens(settings.tokens)
    config = AutoConfig.from_pretrained(settings.hf_config)
    if int(tokens[:10_000_000].max()) >= config.vocab_size:
        raise ValueError(f"tokens must be below the vocabulary of {config.vocab_size}, got {int(tokens.max())}.")
    with isolated(settings.seed):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    optimizer = CollageAdamW(
        _groups(model, settings.weight_decay),
        lr=settings.lr,
        betas=settings.betas,
        mode=settings.mode,
        math=settings.math,
    )
    monitor = PrecisionMonitor(optimizer, every=settings.every)
    accelerator = Accelerator()
    together = settings.micro_batch * accelerator.num_processes
    require_range("global_batch", settings.global_batch, low=together, integer=True)
    if settings.global_batch % together:
        raise ValueError(
            f"global_batch must be a multiple of {together} (micro batch x processes), got {settings.global_batch}."
        )
    model, prepared = accelerator.prepare(model, optimizer)
    generator = rng(spawn(settings.seed, accelerator.num_processes)[accelerator.process_index], "cpu")
    parts = settings.global_batch // together
    for step in range(settings.steps):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * schedule(step, settings.steps, settings.warmup)
        total = 0.0
        for _ in range(parts):
            inputs, targets = batches(tokens, settings.length, settings.micro_batch, generator)
            logits = model(input_ids=inputs.to(accelerator.device)).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten().to(logits.device))
            accelerator.backward(loss / parts)
            total += loss.item() / parts
        accelerator.clip_grad_norm_(model.parameters(), settings.clip)
        prepared.step()
        prepared.zero_grad()
        if (step + 1) % settings.every == 0 or step + 1 == settings.steps:
            report = monitor.last.as_dict() if monitor.last else {}
            yield {"step": step + 1, "loss": total} | {
                k: report.get(k, float("nan")) for k in ("edq_ratio", "lost_fraction")
            }
    if settings.save is not None and accelerator.is_main_process:
        bare = accelerator.unwrap_model(model)
        weights = optimizer.export_fp32(bare)
        checkpoint.save(settings.save, weights, method=DIST, version=VERSION, config={"hf_config": settings.hf_config})


def _groups(model: torch.nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """No decay on biases and norms, as in the paper's runs."""
    params = [p for p in model.parameters() if p.requires_grad]
    decayed, rest = [p for p in params if p.dim() > 1], [p for p in params if p.dim() <= 1]
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": rest, "weight_decay": 0.0}]
