"""A longer context: low-rank adapters, interpolated positions and the heads, trained together (Section 3, tuning)."""

import math
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from offprints import checkpoint
from offprints.checks import message, require_kind, require_range
from offprints.progress import track
from offprints.seeding import rng
from torch import Tensor, nn
from transformers import Cache, DynamicCache

from lococo.cache import LoCoCoCache
from lococo.chunked import chunks, run, token_nll
from lococo.data import token_rows
from lococo.heads import LoCoCoCompressor
from lococo.host import text_config, unwrapped, version
from lococo.train import _drawn, _rate
from lococo.watching import observe

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")


@dataclass
class Tuned:
    """A model for a longer context (Section 3).

    Attributes:
        model: with its adapters, as PEFT wraps it.
        compressor: the heads; None after full-attention tuning.
        factor: by which positions are interpolated.
        losses: of each step.
        softened: names of the norms and embeddings that were trained too.
    """

    model: nn.Module
    compressor: LoCoCoCompressor | None
    factor: float
    losses: list[float] = field(default_factory=list)
    softened: list[str] = field(default_factory=list)

    def save(self, folder: str | Path) -> Path:
        """Write adapters (as PEFT does), heads, and the trained norms and embeddings into a folder."""
        folder, model = Path(folder), self.model
        folder.mkdir(parents=True, exist_ok=True)
        keep: Any = model
        keep.save_pretrained(folder, save_embedding_layers=False)  # they are below, and need no look-up of the base
        if self.compressor is not None:
            self.compressor.save_pretrained(folder)
        named = dict(unwrapped(model).named_parameters())
        tensors = {name: named[name] for name in self.softened} or {"none": torch.zeros(1)}
        config = {"factor": self.factor, "heads": self.compressor is not None}
        return checkpoint.save(folder / "norms", tensors, method="lococo", version=version(), config=config)


def load_tuned(folder: str | Path, model: "PreTrainedModel") -> Tuned:
    """Put what `Tuned.save` wrote onto the model that it was made from; the model is changed.

    Raises:
        FileNotFoundError: if there is nothing.
        ValueError: if a file is broken, or of another model.
    """
    from peft import PeftModel

    found = checkpoint.load(Path(folder) / "norms", method="lococo", framework="torch")
    factor = float(found.config["factor"])  # type: ignore[arg-type]
    interpolate_positions(model, factor)
    with _quiet():
        wrapped = PeftModel.from_pretrained(model, str(folder))
    named = dict(unwrapped(wrapped).named_parameters())
    tensors: dict[str, Tensor] = {name: x for name, x in found.tensors.items() if name != "none"}  # type: ignore[assignment]
    if unknown := sorted(set(tensors) - set(named)):
        raise ValueError(message(f"{folder}", "made from this model", f"a parameter {unknown[0]} that it lacks"))
    with torch.no_grad():
        for name, x in tensors.items():
            named[name].copy_(x)
    heads = LoCoCoCompressor.from_pretrained(folder, model) if found.config["heads"] else None
    return Tuned(wrapped.eval(), heads, factor, softened=sorted(tensors))


def interpolate_positions(model: "PreTrainedModel", factor: float) -> None:
    """Linear position interpolation, in place: positions are divided by `factor` (Section 4, context extension).

    It is written into the model's configuration (`rope_parameters`), so that a saved model keeps it.

    Raises:
        ValueError: if the factor is less than 1, or the model already scales its positions.
    """
    require_range("factor", factor, low=1)
    config: Any = text_config(unwrapped(model))  # type: ignore[arg-type]
    given = dict(getattr(config, "rope_parameters", None) or {})
    if given.get("rope_type", "default") != "default":
        raise ValueError(message("model", "one without scaled positions", f"rope type {given['rope_type']!r}"))
    if factor == 1:
        return
    config.rope_parameters = {**given, "rope_type": "linear", "factor": float(factor)}
    config.max_position_embeddings = math.ceil(config.max_position_embeddings * factor)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if hasattr(child, "inv_freq"):
                kind: Any = type(child)
                setattr(parent, name, kind(config=config).to(child.inv_freq.device))


@contextmanager
def _quiet() -> Generator[None, None, None]:
    """PEFT asks transformers for a name that the newest versions deprecate: its warning is nobody's to act on."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing", category=FutureWarning)
        yield


def tune_long_context(
    model: "PreTrainedModel",
    compressor: LoCoCoCompressor | None,
    data: "Sequence[str] | Tensor",
    *,
    target: int,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    chunk: int = 512,
    steps: int = 1000,
    batch_size: int = 1,
    lr: float = 5e-5,
    head_factor: float = 1000.0,
    norm_factor: float = 5.0,
    rank: int = 8,
    lora_alpha: int = 16,
    accumulation: int = 1,
    grad_clip: float | None = 1.0,
    schedule: str = "linear",
    seed: int = 0,
) -> Tuned:
    """Extend the context of a model to `target` tokens (Section 3, post-training tuning, with its defaults).

    Positions are interpolated by target / max_position; adapters of rank r go on q, k, v and o; norms and embeddings
    learn at `norm_factor` times and the heads at `head_factor` times the learning rate. Without heads the same budget
    goes into tuning with full attention, the comparison of Section 4: `chunk` is then the whole text.

    Args:
        model: a causal model; it is changed (interpolation, adapters).
        compressor: its heads, trained in place; None for full attention.
        data: texts, or (documents, ≥ target) token ids.
        target: tokens.
        tokenizer: for texts.
        chunk: tokens at a time.
        steps: of the optimiser (AdamW).
        batch_size: documents at a time.
        lr: of the adapters.
        head_factor: of the heads' learning rate.
        norm_factor: of norms and embeddings.
        rank: r of the adapters.
        lora_alpha: their scale.
        accumulation: batches in one step.
        grad_clip: largest norm of all gradients, or None.
        schedule: "linear" down to 0, or "constant".
        seed: of adapters and of the order of documents.

    Raises:
        ImportError: naming the extra, without PEFT.
        TypeError: if a kind is wrong.
        ValueError: if a number is out of range, or documents are shorter than `target`.
    """
    try:
        import peft
    except ImportError as error:
        raise ImportError("tuning needs PEFT: pip install 'lococo[tune]'") from error
    from offprints.seeding import isolated

    for name, value in (("target", target), ("chunk", chunk), ("steps", steps), ("batch_size", batch_size)):
        require_range(name, value, low=1, integer=True)
    require_range("accumulation", accumulation, low=1, integer=True)
    if compressor is not None:
        require_kind("compressor", compressor, LoCoCoCompressor)
    rows = token_rows(data, tokenizer, target, model.device)
    config: Any = text_config(model)
    factor = max(1.0, target / config.max_position_embeddings)
    interpolate_positions(model, factor)
    lora = peft.LoraConfig(
        r=rank, lora_alpha=lora_alpha, lora_dropout=0.0, target_modules=list(PROJECTIONS), task_type="CAUSAL_LM"
    )
    with isolated(seed), _quiet():
        wrapped: Any = peft.get_peft_model(model, lora)
    groups, softened = _tuned_groups(wrapped, compressor, lr, head_factor, norm_factor)
    optimizer = torch.optim.AdamW(groups)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps, 0, schedule))
    trained = [p for group in groups for p in group["params"]]
    told = Tuned(wrapped, compressor, factor, softened=softened)
    gen = rng(seed)
    wrapped.eval()
    with observe(wrapped):
        for _ in track(range(steps), desc="tune"):
            optimizer.zero_grad()
            loss = 0.0
            for _ in range(accumulation):
                batch = rows[_drawn(gen, len(rows), batch_size)]
                size = target if compressor is None else chunk
                cache: Cache = (
                    DynamicCache(config=config) if compressor is None else LoCoCoCache(unwrapped(wrapped), compressor)  # type: ignore[arg-type]
                )
                loss += _chunkwise(wrapped, batch, cache, size, accumulation)
            if grad_clip is not None:
                nn.utils.clip_grad_norm_(trained, grad_clip)
            optimizer.step()
            rate.step()
            told.losses.append(loss)
    optimizer.zero_grad()
    return told


def _chunkwise(model: nn.Module, ids: Tensor, cache: Cache, chunk: int, parts: int) -> float:
    """Gradients of one batch, chunk by chunk, the cache cut off between them; the mean loss."""
    total, tokens = 0.0, ids.shape[1] - 1
    for start, part in chunks(ids, chunk):
        nll = token_nll(run(model, part, cache), ids, start)
        if not nll.numel():
            continue
        loss = nll.mean() * (nll.shape[1] / tokens / parts)
        loss.backward()
        total += float(loss.detach())
        if isinstance(cache, LoCoCoCache):
            cache.detach_()
    return total


def _tuned_groups(
    model: nn.Module, compressor: nn.Module | None, lr: float, head_factor: float, norm_factor: float
) -> tuple[list[dict], list[str]]:
    adapters = [p for name, p in model.named_parameters() if "lora_" in name]
    softer = {name: p for name, p in unwrapped(model).named_parameters() if "norm" in name or "embed" in name}
    for p in softer.values():
        p.requires_grad_(True)
    groups = [
        {"params": adapters, "lr": lr, "weight_decay": 0.01},
        {"params": list(softer.values()), "lr": lr * norm_factor, "weight_decay": 0.0},
    ]
    if compressor is not None:
        for decays in (True, False):
            chosen = [p for name, p in compressor.named_parameters() if name.endswith(".weight") == decays]
            groups.append({"params": chosen, "lr": lr * head_factor, "weight_decay": 0.01 * decays})
    return groups, sorted(softer)
