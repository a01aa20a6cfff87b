"""Associative recall: a tiny Llama that answers with its full cache, frozen, and then with caches of a few slots."""

from functools import cache

import numpy as np
import torch
from offprints.seeding import isolated, rng, spawn
from torch import Tensor, nn
from transformers import Cache, DynamicCache, LlamaConfig, LlamaForCausalLM

from lococo.cache import H2OCache, LoCoCoCache, RandomEvictionCache, SnapKVCache, StreamingLLMCache
from lococo.chunked import MakeCache, chunks, run
from lococo.data import associative_recall
from lococo.heads import LoCoCoCompressor
from lococo.train import calibrate
from lococo.watching import observe

Metrics = dict[str, float]
Series = dict[str, float | list[float]]
VOCABULARY, PREFIX, CHUNK = 25, 48, 16
WORDS = 24  # of the lists that come back, in the warm-up of the base model


@cache
def base(seed: int, steps: int, batch: int) -> LlamaForCausalLM:
    """A model with full attention that knows the task: answers + 0.02 · language modelling, AdamW 3e-3.

    Of the first `steps` batches three in four are lists that come back (a circular shift of themselves): what follows a
    token is learned there in minutes less. It stops when nine in ten validation answers are right, and then some.
    """
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "max_position_embeddings": 256}
    with isolated(seed):
        config = LlamaConfig(vocab_size=VOCABULARY, num_attention_heads=4, num_key_value_heads=2, **sizes)
        model = LlamaForCausalLM(config)
    gen = rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    total = 4 * steps
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 100) * max(0.05, 1 - s / total))
    check, places = associative_recall(256, rng(seed + 1000))
    for step in range(total):
        if step < 2 * steps and step % 4 != 3:
            x = torch.from_numpy(gen.integers(1, VOCABULARY, size=(batch, WORDS)))
            x = torch.cat((x, x.roll(-int(gen.integers(WORDS)), 1)), 1)
            loss = _errors(model, x)[:, WORDS:].mean()
        else:
            x, places = associative_recall(batch, gen)
            errors = _errors(model, x)
            loss = errors[:, places - 1].mean() + 0.02 * errors.mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        if step % 125 == 124 and accuracy(model, check, places, None) > 0.97:
            break
    return model.eval()


def _errors(model: LlamaForCausalLM, ids: Tensor) -> Tensor:
    logits = model(ids, use_cache=False).logits[:, :-1]
    return nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")


@torch.no_grad()
def accuracy(model: LlamaForCausalLM, ids: Tensor, places: Tensor, make: MakeCache | None) -> float:
    """The share of values that are answered right, reading CHUNK tokens at a time."""
    used: Cache = make() if make is not None else DynamicCache(config=model.config)
    with observe(model):
        logits = torch.cat([run(model, part, used) for _, part in chunks(ids, CHUNK)], 1)
    return float((logits[:, places - 1].argmax(-1) == ids[:, places]).double().mean())


def recall(
    seed: int, mems: tuple[int, ...], base_steps: int, base_batch: int, steps: int, batch: int, tests: int
) -> Series:
    """Accuracy with each cache at each size; heads trained for each size, judged on fresh sequences."""
    model = base(seed, base_steps, base_batch)
    train_seed, test_seed = spawn(seed, 2)
    ids, places = associative_recall(tests, rng(test_seed))
    train, _ = associative_recall(steps * batch, rng(train_seed))
    weights = torch.full((train.shape[1],), 0.02)
    weights[places] += 1
    drawn: Series = {}
    found: Metrics = {"full": accuracy(model, ids, places, None)}
    for mem in mems:
        heads, evict = (
            LoCoCoCompressor.for_model(model, mem_size=mem, buffer=0, alpha_init=alpha, seed=seed)
            for alpha in (0.5, 0.0)
        )
        rivals: dict[str, MakeCache] = {
            "h2o": lambda mem=mem: H2OCache(model, mem, 0, buffer=0),
            "h2o_local": lambda mem=mem: H2OCache(model, mem, buffer=0),
            "streaming": lambda mem=mem: StreamingLLMCache(model, mem, buffer=0),
            "random": lambda mem=mem: RandomEvictionCache(model, mem, seed=seed, buffer=0),
            "snapkv": lambda mem=mem: SnapKVCache(model, mem, mem // 4, 3, buffer=0),
            "alpha0": lambda evict=evict: LoCoCoCache(model, evict),
            "untrained": lambda heads=heads: LoCoCoCache(model, heads),
        }
        for name, make in rivals.items():
            found[f"{name}_{mem}"] = accuracy(model, ids, places, make)
        told = calibrate(
            model, heads, train, context=train.shape[1], chunk=CHUNK, steps=steps, batch_size=batch, lr=5e-3,
            loss_on=weights, seed=seed,
        )  # fmt: skip
        found[f"lococo_{mem}"] = accuracy(model, ids, places, lambda heads=heads: LoCoCoCache(model, heads))
        found[f"alpha_{mem}"] = float(np.mean(told.alphas))
        best = max(found[f"{name}_{mem}"] for name in ("h2o", "h2o_local", "streaming"))
        found[f"gain_{mem}"] = found[f"lococo_{mem}"] - best
        if mem == mems[0]:
            drawn = _map(model, heads, ids)
    return {**found, **drawn}


def _map(model: LlamaForCausalLM, heads: LoCoCoCompressor, ids: Tensor) -> Series:
    """W* of layer 1 traced back to tokens, when the prefix has been read: (slots · tokens) as a series."""
    used = LoCoCoCache(model, heads, provenance=True)
    with observe(model), torch.no_grad():
        for _, part in chunks(ids[:1, : PREFIX + 1], CHUNK):
            run(model, part, used)
    origins = used.provenance()[1]
    slots = origins[0, 0, :-1, :PREFIX] if isinstance(origins, Tensor) else torch.zeros(0)
    return {"map": slots.flatten().tolist(), "map_tokens": ids[0, :PREFIX].tolist()}
