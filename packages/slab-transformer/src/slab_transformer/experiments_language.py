"""Character models of Python's documentation with three norms (Guo et al., 2024, Section 5.3)."""

import inspect
import time
from collections.abc import Iterator

import numpy as np
import torch
from offprints.seeding import isolated
from torch import Tensor, nn

from .convert import convert
from .data import documentation
from .fuse import fuse
from .recalibrate import recalibrate
from .train import train

Metrics = dict[str, float | list[float]]
_LENGTH, _BATCH = 64, 32


def llama(seed: int, layers: int, hidden: int) -> nn.Module:
    """Transformers' Llama over bytes, grouped queries."""
    from transformers import LlamaConfig, LlamaForCausalLM

    with isolated(seed):
        return LlamaForCausalLM(
            LlamaConfig(
                vocab_size=128,
                hidden_size=hidden,
                intermediate_size=2 * hidden,
                num_hidden_layers=layers,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=256,
                bos_token_id=0,
                eos_token_id=None,
            )
        )


def _loss(model: nn.Module, ids: Tensor) -> Tensor:
    return model(input_ids=ids, labels=ids).loss


def _batches(text: Tensor, seed: int) -> Iterator[Tensor]:
    gen = torch.Generator().manual_seed(seed)
    while True:
        begin = torch.randint(0, len(text) - _LENGTH, (_BATCH,), generator=gen)
        yield text[begin[:, None] + torch.arange(_LENGTH)]


def compare(seed: int, layers: int, hidden: int, steps: int, rates: tuple[float, ...], tokens: int) -> Metrics:
    """Held-out loss in nats per byte of RMSNorm, PRepBN and BN, each at its best rate; time of a step of decoding."""
    text = documentation()
    cut = int(0.9 * len(text))
    held = text[cut:][: 64 * (2 * _LENGTH)].reshape(-1, _LENGTH)
    choose, test = held[::2], held[1::2]
    found: Metrics = {}
    best: dict[str, nn.Module] = {}
    kinds = {
        "rms": {}, "bn": {"norm": "bn", "init": "paper"},
        "prepbn": {"norm": "prepbn", "init": "paper", "warmup_steps": steps // 10, "total_steps": steps,
                   "decay_fraction": 0.6},
    }  # fmt: skip
    for name, options in kinds.items():
        runs = []
        for lr in rates:
            model = llama(seed, layers, hidden)
            if options:
                convert(model, **options)
            losses = train(
                model, _batches(text[:cut], seed), _loss, steps, lr, warmup=max(1, steps // 20), final_lr=lr / 10
            )
            if options:
                fresh = _batches(text[:cut], seed + 1)
                recalibrate(model, ({"input_ids": next(fresh)} for _ in range(20)))
            with torch.no_grad():
                runs.append((float(_loss(model, choose)), float(_loss(model, test)), len(runs), model, losses))
        _, found[f"loss_{name}"], _, best[name], found[f"losses_{name}"] = min(runs)
    fused = fuse(best["prepbn"])
    with torch.no_grad():
        found["fused_difference"] = float((fused(test[:4]).logits - best["prepbn"](test[:4]).logits).abs().max())
    found.update(_decode({"rms": best["rms"], "fused": fused}, test[:1], tokens))
    return found


@torch.no_grad()
def _decode(models: dict[str, nn.Module], prompt: Tensor, tokens: int) -> Metrics:
    """Processor time of one more token, cached; the models take turns."""
    from transformers import DynamicCache, LlamaForCausalLM

    times: dict[str, list[float]] = {name: [] for name in models}
    state = {name: DynamicCache(config=model.config) for name, model in models.items()}
    word = "cache" if "cache" in inspect.signature(LlamaForCausalLM.forward).parameters else "past_key_values"
    for name, model in models.items():
        model(prompt, use_cache=True, **{word: state[name]})
    for step in range(tokens):
        for name, model in models.items():
            begun = time.process_time()
            model(prompt[:, :1], use_cache=True, **{word: state[name]})
            if step >= 3:
                times[name].append(time.process_time() - begun)
    return {f"ms_{name}": 1000 * float(np.median(values)) for name, values in times.items()}
