"""Memory and time per token against the length of the context, with a fixed-size cache and the full one."""

import time

import numpy as np
import torch
from offprints.seeding import isolated, rng
from transformers import Cache, DynamicCache, LlamaConfig, LlamaForCausalLM

from lococo.cache import CompressedCache, LoCoCoCache
from lococo.chunked import run
from lococo.evaluate import cache_bytes
from lococo.heads import LoCoCoCompressor
from lococo.watching import observe

Metrics = dict[str, float | list[float]]


def tiny(hidden: int, layers: int, longest: int) -> LlamaForCausalLM:
    """A random Llama with 8 query and 4 key-value heads."""
    with isolated(0):
        config = LlamaConfig(
            vocab_size=256, hidden_size=hidden, intermediate_size=2 * hidden, num_hidden_layers=layers,
            num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=longest, eos_token_id=None,
        )  # fmt: skip
        return LlamaForCausalLM(config).eval()


@torch.no_grad()
def growth(seed: int, lengths: tuple[int, ...], mem: int, hidden: int, layers: int, chunk: int, steps: int) -> Metrics:
    """Slots, bytes and processor seconds per token: the mean over `steps`, lengths taking turns.

    With whole cycles of β + 1 steps every length compresses equally often.
    """
    model = tiny(hidden, layers, 2 * lengths[-1])
    heads = LoCoCoCompressor.for_model(model, mem_size=mem, seed=seed)
    limit, gen = heads.configs[0].mem_size + heads.configs[0].buffer, rng(seed)
    ids = torch.from_numpy(gen.integers(1, 256, size=(1, lengths[-1])))
    caches: dict[tuple[str, int], Cache] = {}
    excess, bytes_held = 0, {length: 0 for length in lengths}
    with observe(model):
        for length in lengths:
            for kind in ("lococo", "full"):
                cache: Cache = LoCoCoCache(model, heads) if kind == "lococo" else DynamicCache(config=model.config)
                for part in ids[:, :length].split(chunk, 1):
                    run(model, part, cache)
                    if isinstance(cache, CompressedCache):
                        excess = max(excess, *(slots - limit - part.shape[1] for slots in cache.report().slots))
                caches[kind, length] = cache
        seconds: dict[tuple[str, int], list[float]] = {key: [] for key in caches}
        keys = list(caches)
        for step in range(steps + 2):
            for place in gen.permutation(len(keys)).tolist():
                key = keys[place]
                begun = time.process_time()
                run(model, ids[:, step : step + 1], caches[key])
                if step >= 2:
                    seconds[key].append(time.process_time() - begun)
                if key[0] == "lococo" and isinstance(cache := caches[key], CompressedCache):
                    bytes_held[key[1]] = max(bytes_held[key[1]], cache.memory_bytes())
                    excess = max(excess, *(slots - limit - 1 for slots in cache.report().slots))
    found: Metrics = {"slots_excess": float(max(0, excess))}
    typical = {key: float(np.mean(values)) for key, values in seconds.items()}
    for (kind, length), value in typical.items():
        found[f"ms_{kind}_{length}"] = 1e3 * value
        held = bytes_held[length] if kind == "lococo" else cache_bytes(caches[kind, length])
        found[f"bytes_{kind}_{length}"] = float(held)
    ours = [typical["lococo", length] for length in lengths]
    found["bytes_spread"] = float(max(bytes_held.values()) - min(bytes_held.values()))
    found["time_spread"] = (max(ours) - min(ours)) / float(np.median(ours))
    found["times_smaller"] = cache_bytes(caches["full", lengths[-1]]) / bytes_held[lengths[-1]]
    found["times_faster"] = typical["full", lengths[-1]] / typical["lococo", lengths[-1]]
    return found
