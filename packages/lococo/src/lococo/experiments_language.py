"""Language modelling: SmolLM2 on Wikipedia with every cache; the frozen base; a longer context by tuning."""

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from offprints.seeding import isolated, rng, spawn
from offprints.testing import offline_lm
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from lococo.cache import H2OCache, LoCoCoCache, RandomEvictionCache, SnapKVCache, StreamingLLMCache
from lococo.chunked import MakeCache
from lococo.evaluate import compare_caches, perplexity
from lococo.experiments_texts import articles, documentation
from lococo.heads import LoCoCoCompressor
from lococo.host import unwrapped
from lococo.train import calibrate
from lococo.tune import tune_long_context

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Metrics = dict[str, float | list[float]]
RIVALS = ("lococo", "alpha0", "h2o", "h2o_local", "streaming", "random", "snapkv")


@cache
def language_model(name: str) -> "tuple[PreTrainedModel, PreTrainedTokenizerBase | None]":
    """The model "smollm2-135m", "tiny" (random, over bytes), or any other by its name or folder."""
    if name == "smollm2-135m":
        return offline_lm(name)
    if name == "tiny":
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "max_position_embeddings": 512}
        with isolated(0):
            config = LlamaConfig(vocab_size=256, num_attention_heads=4, num_key_value_heads=2, **sizes)
            return LlamaForCausalLM(config).eval(), None
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(name, dtype="auto", device_map="auto").eval()
    return model, AutoTokenizer.from_pretrained(name)


@cache
def windows(name: str, context: int) -> Tensor:
    """(articles, context) the first tokens of each long article; of the documentation of Python for "tiny"."""
    model, tokenizer = language_model(name)
    if tokenizer is None:
        return byte_rows(context)
    rows = [tokenizer(text[: 12 * context])["input_ids"][:context] for text in articles()]
    return torch.tensor([row for row in rows if len(row) == context], device=model.device)


def byte_rows(context: int) -> Tensor:
    """(windows, context) bytes of the documentation."""
    raw = np.frombuffer(documentation().encode("ascii", "replace"), dtype=np.uint8)
    whole = len(raw) // context * context
    return torch.from_numpy(raw[:whole].astype(np.int64)).view(-1, context)


@cache
def trained_heads(name: str, mem: int, context: int, chunk: int, steps: int, train: int) -> LoCoCoCompressor:
    """Heads calibrated on the last `train` articles (two put aside), which no comparison reads; one for all seeds."""
    model, _ = language_model(name)
    heads = LoCoCoCompressor.for_model(model, mem_size=mem, local_len=3 * mem // 8, alpha_init=0.15)
    rows = windows(name, context)[-train:]
    calibrate(
        model, heads, rows, context=context, chunk=chunk, steps=steps, batch_size=2, lr=1e-3, lr_alpha=2e-3,
        held_out=2, eval_every=max(1, steps // 2), seed=0,
    )  # fmt: skip
    return heads


def text_quality(
    seed: int, name: str, mems: tuple[int, ...], context: int, chunk: int, steps: int, train: int, documents: int
) -> Metrics:
    """NLL of the same tokens with every cache at every size, on documents that differ from seed to seed."""
    model, _ = language_model(name)
    rows = windows(name, context)[:-train]
    mine = torch.from_numpy(np.arange(seed * documents, (seed + 1) * documents) % len(rows))
    found: Metrics = {}
    for mem in mems:
        heads = trained_heads(name, mem, context, chunk, steps, train)
        evict = LoCoCoCompressor.for_model(model, mem_size=mem, local_len=3 * mem // 8, alpha_init=0.0)
        caches: dict[str, MakeCache] = {
            "lococo": lambda heads=heads: LoCoCoCache(model, heads),
            "alpha0": lambda evict=evict: LoCoCoCache(model, evict),
            "h2o": lambda mem=mem: H2OCache(model, mem, 0),
            "h2o_local": lambda mem=mem: H2OCache(model, mem),
            "streaming": lambda mem=mem: StreamingLLMCache(model, mem),
            "random": lambda mem=mem: RandomEvictionCache(model, mem, mem // 4, seed=seed),
            "snapkv": lambda mem=mem: SnapKVCache(model, mem, mem // 4),
        }
        told = compare_caches(model, rows[mine], caches, context=context, chunk=chunk, batch_size=documents)
        for row in told.rows:
            found[f"{row.name}_{mem}"] = row.nll
            found[f"positions_{row.name}_{mem}"] = told.results[row.name].per_position.tolist()
        found[f"alpha_{mem}"] = float(np.mean([float(head.used_alpha().detach()) for head in heads]))  # type: ignore[operator]
    full = perplexity(model, rows[mine], context=context, chunk=chunk, batch_size=documents)
    return {**found, "full": full.nll, "positions_full": full.per_position.tolist()}


def drop_in(seed: int, name: str, mem: int, context: int, chunk: int) -> Metrics:
    """The model's parameters before and after a step of calibration, and the share of parameters that learn."""
    model, _ = language_model(name)
    heads = LoCoCoCompressor.for_model(model, mem_size=mem, seed=seed)
    start = {name: p.detach().clone() for name, p in heads.named_parameters()}
    before = fingerprint(model)
    told = calibrate(
        model, heads, windows(name, context)[seed : seed + 1], context=context, chunk=chunk, steps=1, batch_size=1
    )
    moved = sum(not torch.equal(start[name], p.detach()) for name, p in heads.named_parameters())
    return {
        "changed": float(fingerprint(model) != before),
        "share": told.share,
        "limit": 0.05,
        "heads_moved": moved / len(start),
    }


def fingerprint(model: nn.Module) -> str:
    """Hash of all parameters and buffers."""
    told = hashlib.sha256()
    for name, x in sorted(model.state_dict().items()):
        told.update(name.encode())
        told.update(x.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return told.hexdigest()


# ---- a longer context


def byte_model(seed: int, context: int, steps: int, batch: int) -> LlamaForCausalLM:
    """A byte-level Llama that has seen no text longer than `context`."""
    sizes = {"hidden_size": 96, "intermediate_size": 192, "num_hidden_layers": 3, "max_position_embeddings": context}
    with isolated(seed):
        config = LlamaConfig(vocab_size=256, num_attention_heads=4, num_key_value_heads=2, **sizes)
        model = LlamaForCausalLM(config)
    rows, gen = byte_rows(context), rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 50) * (1 - 0.9 * s / max(steps, 1)))
    train = rows[: len(rows) * 8 // 10]
    for _ in range(steps):
        x = train[torch.from_numpy(gen.integers(len(train), size=batch))]
        logits = model(x, use_cache=False).logits[:, :-1]
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
    return model.eval()


def extension(
    seed: int, short: int, target: int, mem: int, chunk: int, base_steps: int, steps: int, batch: int, tests: int
) -> Metrics:
    """NLL at `target` tokens: untuned, tuned with full attention, tuned with M slots; learning rates from one grid."""
    state = byte_model(seed, short, base_steps, 32).state_dict()
    rows = byte_rows(target)
    cut = len(rows) * 8 // 10
    order = rng(spawn(seed, 1)[0]).permutation(len(rows) - cut) + cut
    check, test = rows[torch.from_numpy(order[:tests])], rows[torch.from_numpy(order[tests : 2 * tests])]

    def fresh() -> LlamaForCausalLM:
        model = byte_model(seed, short, 0, 1)
        model.load_state_dict(state)
        return model

    def score(model: Any, data: Tensor, make: MakeCache | None) -> float:
        return perplexity(model, data, make, context=target, chunk=chunk, batch_size=tests).nll

    found: Metrics = {"untuned": score(fresh(), test, None)}
    for name in ("full_tuned", "lococo"):
        best = (np.inf, np.inf)
        for lr in (1e-3, 4e-3):
            model: Any = fresh()
            heads = LoCoCoCompressor.for_model(model, mem_size=mem, seed=seed) if name == "lococo" else None
            tuned = tune_long_context(
                model, heads, rows[:cut], target=target, chunk=chunk, steps=steps, batch_size=batch, lr=lr,
                head_factor=2.0, norm_factor=1.0, seed=seed,
            )  # fmt: skip
            inner: Any = unwrapped(tuned.model)
            make = None if heads is None else lambda inner=inner, heads=heads: LoCoCoCache(inner, heads)
            best = min(best, (score(inner, check, make), score(inner, test, make)))
        found[name] = float(best[1])
    return found
