"""How many slots each layer gets: where a slot saves most loss, found on some text (beyond Section 4)."""

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from offprints.checks import message, require_range
from offprints.progress import track
from torch import Tensor

from lococo.cache import H2OCache
from lococo.chunked import chunked_nll
from lococo.data import token_rows
from lococo.host import full_attention_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def allocate(
    model: "PreTrainedModel",
    data: "Sequence[str] | Tensor",
    mean_size: int,
    *,
    sizes: Sequence[int] | None = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    context: int = 1024,
    chunk: int = 128,
    buffer: int = 16,
) -> list[int]:
    """`mem_size` of each compressed layer, `mean_size` on average, for caches and heads (beyond Section 4).

    Each layer alone is compressed to each of `sizes` (heavy hitters with a local half), the others hold everything; the
    rise in NLL is measured. From the smallest size on, the layer goes up whose step saves most NLL per slot, until the
    slots are spent. Rises are taken to add up.

    Args:
        model: a causal model of transformers.
        data: texts, or (documents, ≥ context) token ids.
        mean_size: slots per layer.
        sizes: that a layer may have, rising; ½, ¾, 1, 1½ and 2 times `mean_size` by default.
        tokenizer: for texts.
        context: tokens of a document.
        chunk: tokens at a time.
        buffer: β.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: if sizes do not rise or the smallest exceeds the mean, or the context is too short to compress.
    """
    require_range("mean_size", mean_size, low=4, integer=True)
    steps = list(sizes) if sizes is not None else sorted({int(f * mean_size) for f in (0.5, 0.75, 1.0, 1.5, 2.0)})
    if any(b <= a for a, b in pairwise(steps)) or not steps or steps[0] > mean_size:
        raise ValueError(message("sizes", f"rising and begin at mean_size ({mean_size}) or less", steps))
    if context <= steps[-1] + buffer:
        raise ValueError(
            message("context", f"greater than the largest size and buffer ({steps[-1] + buffer})", context)
        )
    rows, layers = token_rows(data, tokenizer, context, model.device), full_attention_layers(model)

    def loss(place: int, size: int) -> float:
        budgets = [size if i == place else context for i in range(len(layers))]
        return float(chunked_nll(model, rows, H2OCache(model, budgets, buffer=buffer), chunk).mean())

    found = [[loss(place, size) for size in steps] for place in track(range(len(layers)), desc="layers")]
    levels, left = [0] * len(layers), (mean_size - steps[0]) * len(layers)
    while True:
        gains = [
            ((found[i][k] - found[i][k + 1]) / (steps[k + 1] - steps[k]), i)
            for i, k in enumerate(levels)
            if k + 1 < len(steps) and steps[k + 1] - steps[k] <= left
        ]
        if not gains:
            return [steps[k] for k in levels]
        _, best = max(gains, key=lambda gain: (gain[0], -gain[1]))
        left -= steps[levels[best] + 1] - steps[levels[best]]
        levels[best] += 1
