"""Calibration: heads learn on some text while the model stays as it is (Section 3, training; "inference mode")."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from offprints.checks import message, require_choice, require_kind, require_range
from offprints.progress import track
from offprints.seeding import rng
from torch import Tensor, nn

from lococo.cache import LoCoCoCache
from lococo.chunked import chunked_nll, chunks, run, token_nll
from lococo.data import token_rows
from lococo.distill import Teacher
from lococo.heads import LoCoCoCompressor
from lococo.watching import observe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

OBJECTIVES = ("lm", "lm+distill", "distill")
PAPER = {
    "lr": 0.05, "lr_alpha": 0.05, "lr_norms": 2.5e-4, "steps": 1000, "accumulation": 128, "batch_size": 1, "chunk": 512,
    "context": 4096, "schedule": "linear", "train_norms": True, "grad_clip": None,
}  # fmt: skip
"""Arguments of `calibrate` for the paper's recipe (with heads of `init="paper"`)."""


@dataclass
class Calibration:
    """How a calibration went (Section 3).

    Attributes:
        losses: of each step, nats per token and, where asked for, the distillation error added.
        held_out: (step, NLL) on documents that were not trained on.
        alphas: α of each layer at the end.
        best_step: after how many steps the state that was kept was reached.
        trainable: parameters that were trained.
        share: of them among all of the model and the heads.
        tokens_per_second: of training.
    """

    losses: list[float] = field(default_factory=list)
    held_out: list[tuple[int, float]] = field(default_factory=list)
    alphas: list[float] = field(default_factory=list)
    best_step: int = 0
    trainable: int = 0
    share: float = 0.0
    tokens_per_second: float = 0.0


def calibrate(
    model: "PreTrainedModel",
    compressor: LoCoCoCompressor,
    data: "Sequence[str] | Tensor",
    *,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    context: int = 4096,
    chunk: int = 512,
    steps: int = 1000,
    batch_size: int = 2,
    lr: float = 1e-3,
    lr_alpha: float = 2e-2,
    lr_norms: float = 1e-4,
    weight_decay: float = 0.01,
    grad_clip: float | None = 1.0,
    accumulation: int = 1,
    warmup: int = 0,
    schedule: str = "constant",
    objective: str = "lm",
    train_norms: bool = False,
    held_out: int | Tensor = 0,
    eval_every: int = 20,
    patience: int | None = None,
    scores: str = "last",
    loss_on: Tensor | None = None,
    seed: int = 0,
) -> Calibration:
    """Train the heads in place, the model's weights untouched; the best state on held-out documents is kept.

    Documents are read in chunks; after each, its loss is differentiated and the cache cut off, so that memory is that
    of one chunk and M + β slots whatever the context (truncated to one chunk, Section 3).

    Args:
        model: a causal model of transformers, put into evaluation mode.
        compressor: its heads.
        data: texts, or (documents, ≥ context) token ids.
        tokenizer: for texts.
        context: tokens of a document that are read.
        chunk: tokens at a time.
        steps: of the optimiser (AdamW).
        batch_size: documents at a time.
        lr: of the convolutions; their biases without decay.
        lr_alpha: of α.
        lr_norms: of norms and embedding, with `train_norms`.
        weight_decay: of the weights of the convolutions.
        grad_clip: largest norm of all gradients, or None.
        accumulation: batches in one step.
        warmup: steps until the full learning rate.
        schedule: "constant", or "linear" down to 0 at the last step.
        objective: "lm": cross-entropy; "distill": mean squared error, relative, of the attention outputs against those
            with the full cache; or their sum.
        train_norms: whether the model's norms and embedding learn too (as in the released code): the model changes.
        held_out: how many documents are put aside for validation, or token ids for it.
        eval_every: steps between two validations.
        patience: stop after so many validations without a new best.
        scores: as of `LoCoCoCache`.
        loss_on: (context,) how much each token counts in the loss, ≥ 0, among all of a document; alike by default.
        seed: of the order of documents.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if a number is out of range, there are fewer documents than needed, or the context is so short that
            nothing is ever compressed.
    """
    _check(compressor, context, chunk, steps, batch_size, objective, schedule, accumulation, eval_every, loss_on)
    rows = token_rows(data, tokenizer, context, model.device)
    count = held_out if isinstance(held_out, int) else 0
    aside = rows[:count] if isinstance(held_out, int) else held_out.to(rows.device)
    rows = rows[count:]
    if len(rows) < 1:
        raise ValueError(message("data", f"more than {count} documents of {context} tokens", len(rows) + count))
    model.eval()
    frozen = {name: p.requires_grad for name, p in model.named_parameters()}
    groups = _groups(model, compressor, lr, lr_alpha, lr_norms if train_norms else None, weight_decay)
    optimizer = torch.optim.AdamW(groups, lr=lr)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps, warmup, schedule))
    trained = [p for group in groups for p in group["params"]]
    told = Calibration(trainable=sum(p.numel() for p in trained))
    told.share = told.trainable / (sum(p.numel() for m in (model, compressor) for p in m.parameters()))
    best, gen, begun, waited = (math.inf, _state(compressor)), rng(seed), time.perf_counter(), 0
    try:
        with observe(model):
            for step in track(range(steps), desc="calibrate"):
                if step % eval_every == 0 and len(aside):
                    best, waited = _validate(model, compressor, aside, chunk, scores, told, step, best, waited)
                    if patience is not None and waited > patience:
                        break
                optimizer.zero_grad()
                loss = 0.0
                for _ in range(accumulation):
                    batch = rows[_drawn(gen, len(rows), batch_size)]
                    loss += _document(model, compressor, batch, chunk, objective, scores, accumulation, loss_on)
                if grad_clip is not None:
                    nn.utils.clip_grad_norm_(trained, grad_clip)
                optimizer.step()
                rate.step()
                told.losses.append(loss)
            if len(aside):
                best, _ = _validate(model, compressor, aside, chunk, scores, told, len(told.losses), best, 0)
                compressor.load_state_dict(best[1])
            else:
                told.best_step = len(told.losses)
    finally:
        for name, p in model.named_parameters():
            p.requires_grad_(frozen[name])
        optimizer.zero_grad()
    seconds = time.perf_counter() - begun
    told.tokens_per_second = len(told.losses) * accumulation * batch_size * context / max(seconds, 1e-9)
    told.alphas = [float(head.used_alpha().detach()) for head in compressor]  # type: ignore[operator]
    return told


def _check(
    compressor: LoCoCoCompressor,
    context: int,
    chunk: int,
    steps: int,
    batch_size: int,
    objective: str,
    schedule: str,
    accumulation: int,
    eval_every: int,
    loss_on: Tensor | None,
) -> None:
    require_kind("compressor", compressor, LoCoCoCompressor)
    for name, value in (("context", context), ("chunk", chunk), ("batch_size", batch_size), ("steps", steps)):
        require_range(name, value, low=1, integer=True)
    require_range("accumulation", accumulation, low=1, integer=True)
    require_range("eval_every", eval_every, low=1, integer=True)
    require_choice("objective", objective, OBJECTIVES)
    require_choice("schedule", schedule, ("constant", "linear"))
    if loss_on is not None and tuple(loss_on.shape) != (context,):
        raise ValueError(message("loss_on", f"of shape ({context},) (context)", tuple(loss_on.shape)))
    least = min(config.mem_size + config.buffer for config in compressor.configs)
    if (context - 1) // chunk * chunk <= least:
        raise ValueError(
            message(
                "context", f"longer than mem_size + buffer ({least}) by more than one chunk ({chunk})", context,
                "Nothing would be compressed, so nothing learned.",
            )
        )  # fmt: skip


def _document(
    model: "PreTrainedModel",
    compressor: LoCoCoCompressor,
    ids: Tensor,
    chunk: int,
    objective: str,
    scores: str,
    parts: int,
    loss_on: Tensor | None = None,
) -> float:
    """Gradients of one batch of documents; the mean loss of the chunks that came after a compression."""
    cache = LoCoCoCache(model, compressor, scores=scores)
    teacher = Teacher(model, ids, chunk) if objective != "lm" else None
    learns = max(1, sum(1 for _ in chunks(ids, chunk)))
    total = 0.0
    for start, part in chunks(ids, chunk):
        compressing = any(layer.due() for layer in cache.compressed_layers)
        with torch.set_grad_enabled(compressing):
            if teacher is None:
                logits = run(model, part, cache)
                error: Tensor | float = 0.0
            else:
                logits, error = teacher.compare(part, start, cache)
            nll = token_nll(logits, ids, start)
            if loss_on is None:
                lm = nll.mean() if nll.numel() else nll.sum()
            else:  # of the whole document, so that a chunk without weight has none; the sum over chunks is its mean
                here = loss_on[start + 1 : start + 1 + nll.shape[1]].to(nll)
                lm = learns * (nll * here).sum() / (len(nll) * float(loss_on[1:].sum()))
            loss = error if objective == "distill" else lm + error
        if compressing and isinstance(loss, Tensor) and loss.requires_grad:
            (loss / (learns * parts)).backward()
        if compressing:
            total += float(loss.detach() if isinstance(loss, Tensor) else loss) / (learns * parts)
        cache.detach_()
    return total


def _validate(
    model: "PreTrainedModel",
    compressor: LoCoCoCompressor,
    aside: Tensor,
    chunk: int,
    scores: str,
    told: Calibration,
    step: int,
    best: tuple[float, dict[str, Tensor]],
    waited: int,
) -> tuple[tuple[float, dict[str, Tensor]], int]:
    nll = chunked_nll(model, aside, LoCoCoCache(model, compressor, scores=scores), chunk)
    value = float(nll[:, min(2 * chunk, nll.shape[1] - 1) :].mean())
    told.held_out.append((step, value))
    if value >= best[0]:
        return best, waited + 1
    told.best_step = step
    return (value, _state(compressor)), 0


def _groups(
    model: nn.Module, compressor: nn.Module, lr: float, lr_alpha: float, lr_norms: float | None, decay: float
) -> list[dict]:
    """Groups of parameters, by name as in the released code; all others of the model are frozen."""
    named = dict(compressor.named_parameters())
    pick = lambda end: [p for name, p in named.items() if name.endswith(end)]  # noqa: E731
    groups = [
        {"params": pick(".weight"), "lr": lr, "weight_decay": decay},
        {"params": pick(".bias"), "lr": lr, "weight_decay": 0.0},
        {"params": pick("alpha"), "lr": lr_alpha, "weight_decay": 0.0},
    ]
    softer = []
    for name, p in model.named_parameters():
        chosen = lr_norms is not None and ("norm" in name or "embed" in name)
        p.requires_grad_(chosen)
        softer += [p] if chosen else []
    if softer:
        groups.append({"params": softer, "lr": lr_norms or 0.0, "weight_decay": 0.0})
    return [group for group in groups if group["params"]]


def _rate(step: int, steps: int, warmup: int, schedule: str) -> float:
    rise = min(1.0, (step + 1) / (warmup + 1))
    return rise * (1 - step / steps if schedule == "linear" else 1.0)


def _drawn(gen: np.random.Generator, rows: int, count: int) -> Tensor:
    return torch.as_tensor(gen.choice(rows, count, replace=rows < count))


def _state(module: nn.Module) -> dict[str, Tensor]:
    return {name: x.detach().clone() for name, x in module.state_dict().items()}
