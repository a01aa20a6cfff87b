"""Fixed-size caches for transformers models: LoCoCo and its baselines behind one interface (Section 4)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from offprints.checks import require_range
from torch import Tensor
from transformers import Cache

from lococo.compressor import ConvCompressor
from lococo.heads import LoCoCoCompressor, require_fit
from lococo.host import full_attention_layers, inverse_frequencies, plain_layers, shape_of, text_config
from lococo.layer import CompressedLayer
from lococo.policies import Fusion, HeavyHitters, Policy, Pooled, RandomSubset, SinksAndWindow

if TYPE_CHECKING:
    from pathlib import Path

    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

    Source = PreTrainedModel | PreTrainedConfig

Budget = int | Sequence[int]


@dataclass(frozen=True)
class CacheReport:
    """What a cache holds.

    Attributes:
        tokens: seen, padding included.
        slots: of each compressed layer.
        bytes: of keys, values and what goes with them, in all layers.
        full_bytes: what keys and values of all tokens seen would take.
    """

    tokens: int
    slots: list[int]
    bytes: int
    full_bytes: int

    @property
    def ratio(self) -> float:
        """full_bytes / bytes."""
        return self.full_bytes / self.bytes if self.bytes else 1.0

    def __str__(self) -> str:
        few, many = min(self.slots, default=0), max(self.slots, default=0)
        slots = str(few) if few == many else f"{few} to {many}"
        held = f"{self.bytes:,} bytes instead of {self.full_bytes:,} ({self.ratio:.1f} times fewer)"
        return f"{self.tokens} tokens seen, {slots} slots in each of {len(self.slots)} layers, {held}"


class CompressedCache(Cache):
    """A transformers cache whose full-attention layers hold a bounded number of slots (Section 3).

    Layers with sliding windows or linear attention keep the cache layer that transformers gives them. Use it inside
    `observe(model)`; one cache serves one generation, `reset()` empties it.

    Args:
        model: a model of transformers, or its configuration.
        policy: layer number -> what happens to its slots.
        provenance: whether to remember which tokens live in which slot.

    Raises:
        TypeError: if it is neither model nor configuration.
        ValueError: if the model has an encoder, or no layer with full attention.
    """

    def __init__(self, model: "Source", policy: Callable[[int], Policy], provenance: bool = False) -> None:
        layers: list[Any] = list(plain_layers(model))
        for number in full_attention_layers(model):
            layers[number] = CompressedLayer(policy(number), provenance)
        self.shape, self.device = shape_of(model), getattr(model, "device", None)
        super().__init__(layers=layers)

    @property
    def compressed_layers(self) -> list[CompressedLayer]:
        """The layers that are compressed."""
        return [layer for layer in self.layers if isinstance(layer, CompressedLayer)]

    def memory_bytes(self) -> int:
        """Bytes of all tensors that the cache holds."""
        names = ("keys", "values", "scores", "positions", "origins")
        found = [getattr(layer, name, None) for layer in self.layers for name in names]
        return sum(x.numel() * x.element_size() for x in found if isinstance(x, Tensor))

    def report(self) -> CacheReport:
        """Tokens seen, slots of each layer, bytes, and how many times fewer they are than without compression."""
        layers, others, full = self.compressed_layers, 0, 0
        for layer in self.layers:
            keys, values = getattr(layer, "keys", None), getattr(layer, "values", None)
            if not isinstance(keys, Tensor) or not isinstance(values, Tensor) or keys.ndim != 4:
                continue
            size = sum(x.shape[0] * x.shape[1] * x.shape[3] * x.element_size() for x in (keys, values))
            full += size * layer.seen if isinstance(layer, CompressedLayer) else 0
            others += 0 if isinstance(layer, CompressedLayer) else size * keys.shape[2]
        slots = [0 if layer.keys is None else layer.keys.shape[2] for layer in layers]
        return CacheReport(max((x.seen for x in layers), default=0), slots, self.memory_bytes(), full + others)

    def provenance(self) -> list[Tensor | None]:
        """For each compressed layer (b, h, S, T): how much of slot i is token j, W* traced back.

        Tokens count from 0 with padding; rows of real slots sum to 1.

        Raises:
            ValueError: if the cache was not made with `provenance=True`.
        """
        if not all(layer.provenance for layer in self.compressed_layers):
            raise ValueError("provenance must be asked for when the cache is made: provenance=True.")
        return [layer.origins for layer in self.compressed_layers]

    def detach_(self) -> None:
        """Cut the graph between chunks: what is cached is data for what follows."""
        for layer in self.compressed_layers:
            layer.detach_()

    def save(self, path: "str | Path") -> "Path":
        """Write the compressed context to `<path>.safetensors` and `.json`, to go on from it another time.

        Raises:
            ValueError: if nothing was cached.
            NotImplementedError: if a layer with linear attention is in it.
        """
        from lococo.store import save

        return save(self, path)

    def restore(self, path: "str | Path") -> "CompressedCache":
        """Fill this cache, made as the saved one was, with what `save` wrote; returns it.

        Raises:
            FileNotFoundError: if there is nothing.
            ValueError: if the file is broken, or of a cache for another model, size or kind.
        """
        from lococo.store import restore

        return restore(self, path)


class LoCoCoCache(CompressedCache):
    """Old slots fused by learned convolutions (Section 3).

    Args:
        model: a model or its configuration (the model itself, if the heads fuse keys without their rotation).
        compressor: its heads.
        scores: "last" as in the released code: the attention mass of the last forward; "sum", or "ema".
        decay: of "ema".
        score_window: only the last so many queries of a forward count.
        buffer: β, instead of the heads' own.
        provenance: whether to remember which tokens live in which slot.

    Raises:
        ValueError: if the heads were made for another model.
    """

    def __init__(
        self,
        model: "Source",
        compressor: LoCoCoCompressor,
        *,
        scores: str = "last",
        decay: float = 0.9,
        score_window: int | None = None,
        buffer: int | None = None,
        provenance: bool = False,
    ) -> None:
        require_fit(compressor.shape, compressor.layers, shape_of(model), full_attention_layers(model))
        if buffer is not None:
            require_range("buffer", buffer, low=0, integer=True)
        self.compressor = compressor
        heads = dict(zip(compressor.layers, compressor, strict=True))
        bare = any(config.rope_mode == "pre" for config in compressor.configs)
        frequencies = inverse_frequencies(cast("nn.Module", model)) if bare and hasattr(model, "modules") else None

        def policy(number: int) -> Policy:
            made = Fusion(cast("ConvCompressor", heads[number]), scores, decay, score_window, frequencies)
            made.buffer = made.buffer if buffer is None else buffer
            return made

        super().__init__(model, policy, provenance)


class H2OCache(CompressedCache):
    """The slots that got most attention so far, and the last ones (H2O, the baseline of Section 4).

    Args:
        model: a model or its configuration.
        mem_size: M, or one for each compressed layer.
        local_len: how many of them are the last; M/2 by default, 0 for heavy hitters alone.
        buffer: β.
        scores: "sum" over all queries so far, "last" forward, or "ema".
        provenance: whether to remember which tokens live in which slot.
    """

    def __init__(
        self,
        model: "Source",
        mem_size: Budget,
        local_len: int | None = None,
        *,
        buffer: int = 16,
        scores: str = "sum",
        provenance: bool = False,
    ) -> None:
        size = _budgets(model, mem_size)
        super().__init__(
            model,
            lambda number: HeavyHitters(
                size(number), size(number) // 2 if local_len is None else local_len, buffer, scores
            ),
            provenance,
        )


class StreamingLLMCache(CompressedCache):
    """The first tokens and the last ones (StreamingLLM, the baseline of Section 4).

    Args:
        model: a model or its configuration (the model itself, for `reposition`).
        mem_size: M, or one for each compressed layer.
        sinks: how many of the first tokens.
        reposition: whether the first tokens move up to the window, so that distances are those within the cache; beyond
            the trained context only that works.
        buffer: β.
        provenance: whether to remember which tokens live in which slot.

    Raises:
        ValueError: if only a configuration is given for `reposition`, or a number is out of range.
    """

    def __init__(
        self,
        model: "Source",
        mem_size: Budget,
        sinks: int = 4,
        *,
        reposition: bool = False,
        buffer: int = 16,
        provenance: bool = False,
    ) -> None:
        size = _budgets(model, mem_size)
        if reposition and not hasattr(model, "modules"):
            raise ValueError(
                "model must be given itself, not its config, for reposition=True (its rotation is needed)."
            )
        frequencies = inverse_frequencies(cast("nn.Module", model)) if reposition else None
        super().__init__(model, lambda number: SinksAndWindow(size(number), sinks, buffer, frequencies), provenance)


class RandomEvictionCache(CompressedCache):
    """A random subset of the tokens, each as likely, and the last ones: the floor of any comparison in Section 4.

    Args:
        model: a model or its configuration.
        mem_size: M, or one for each compressed layer.
        local_len: how many of them are the last.
        seed: of the draw.
        buffer: β.
        provenance: whether to remember which tokens live in which slot.
    """

    def __init__(
        self,
        model: "Source",
        mem_size: Budget,
        local_len: int = 0,
        *,
        seed: int = 0,
        buffer: int = 16,
        provenance: bool = False,
    ) -> None:
        from offprints.seeding import spawn

        size = _budgets(model, mem_size)
        seeds = spawn(seed, text_config(model).num_hidden_layers)
        super().__init__(model, lambda number: RandomSubset(size(number), local_len, buffer, seeds[number]), provenance)


class SnapKVCache(CompressedCache):
    """The slots that the last queries looked at, smoothed over neighbours (in the way of SnapKV), and the last ones.

    SnapKV compresses a prompt once; here, as for the other caches of Section 4, whenever there are too many slots, by
    the mass of about the last `window` queries (a sum that forgets).

    Args:
        model: a model or its configuration.
        mem_size: M, or one for each compressed layer.
        window: queries, and last slots that stay.
        pool: odd; neighbours over which the mass is averaged.
        buffer: β.
        provenance: whether to remember which tokens live in which slot.
    """

    def __init__(
        self,
        model: "Source",
        mem_size: Budget,
        window: int = 16,
        pool: int = 5,
        *,
        buffer: int = 16,
        provenance: bool = False,
    ) -> None:
        size = _budgets(model, mem_size)
        super().__init__(model, lambda number: Pooled(size(number), window, pool, buffer), provenance)


def _budgets(model: "Source", mem_size: Budget) -> Callable[[int], int]:
    """Layer number -> M.

    Raises:
        ValueError: if a list has another length than there are compressed layers.
    """
    if isinstance(mem_size, int):
        return lambda number: mem_size
    layers, sizes = full_attention_layers(model), list(mem_size)
    if len(layers) != len(sizes):
        raise ValueError(f"mem_size must have {len(layers)} entries (the compressed layers), got {len(sizes)}.")
    return dict(zip(layers, sizes, strict=True)).__getitem__
