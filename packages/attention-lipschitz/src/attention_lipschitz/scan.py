"""Scans: local constants of the layers of a model on real text, by length, sample and head (Section 5 of the paper)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from offprints.checks import require_choice, require_range
from offprints.device import pick_device
from offprints.progress import track
from torch import Tensor, nn

from attention_lipschitz.adapters import attention_layers
from attention_lipschitz.blocks import AttentionBlock
from attention_lipschitz.certificates import PositionalBoundError, local
from attention_lipschitz.core import AttentionLayer
from attention_lipschitz.data import windows
from attention_lipschitz.extract import (
    SCOPES,
    WHOLE_SCOPES,
    entrance,
    extract_attention,
    find_site,
    require_places,
)
from attention_lipschitz.measure import local_lipschitz, paper_code_estimate
from attention_lipschitz.models import Inputs, Sequence1, between, caught, evaluated, sequences, single_precision
from attention_lipschitz.operators import Map
from attention_lipschitz.report import LipschitzReport, Row
from attention_lipschitz.tables import bound_table
from attention_lipschitz.worst import head_tokens

ESTIMATORS = ("exact", "paper_code", "both")
Tokenizer = Callable[[str], object]


@dataclass(frozen=True)
class _Settings:
    """What a scan was asked for, in plain values."""

    layers: tuple[int, ...]
    samples: int
    heads: bool
    estimator: str
    scope: str
    adversarial: float | None
    adversarial_head: int
    allow_loose: bool
    bounds: bool
    rtol: float
    seed: int


def scan(
    model: nn.Module,
    inputs: Inputs | str | Sequence[str],
    *,
    layers: Sequence[int] | None = None,
    lengths: Sequence[int] | None = None,
    samples: int = 10,
    heads: bool = False,
    estimator: str = "exact",
    scope: str = "self+out",
    adversarial: float | None = None,
    adversarial_head: int = 0,
    tokenizer: Tokenizer | None = None,
    bounds: bool = True,
    allow_loose: bool = False,
    drop_padding: bool = True,
    rtol: float = 1e-5,
    device: "str | torch.device | None" = "cpu",
    progress: bool = True,
    seed: int = 0,
) -> LipschitzReport:
    """Local Lipschitz constants of attention layers on a model's own activations, with bounds (Section 5).

    Args:
        model: any that `extract_attention` knows; evaluated, then put back into its mode.
        inputs: with `lengths`, a stream of ids (or texts, with `tokenizer`), cut into consecutive windows that do not
            overlap and start over at its end. Without, sequences as they are: ids, rows of ids, pixels, or a
            tokenizer's output; padding is removed.
        layers: which layers, all by default.
        lengths: numbers of tokens n.
        samples: windows for each n, or most sequences.
        heads: measure each head by itself too.
        estimator: "exact" (the local constant), "paper_code" (what the released scripts return, no Lipschitz constant),
            or "both".
        scope: "self", "self+out", "block" (attention, residual, norm), "layer" (a whole transformer layer), "model"
            (from the first layer's input to the last one's output; `layers` is then ignored).
        adversarial: radius R of adversarial tokens (Section 5), measured for each layer and n as well.
        adversarial_head: the head that they are made for.
        tokenizer: text -> ids, for texts: a transformers tokenizer or a `WordHashTokenizer`.
        bounds: whether the local bound and the bound by radius are computed.
        allow_loose: bounds by radius for layers with positions in their logits too; None otherwise.
        drop_padding: whether masked tokens are removed; if not, any is an error.
        rtol: of the local constants.
        device: where they are computed (the model stays where it is); "auto" takes an accelerator.
        progress: show a bar on a terminal.
        seed: of Lanczos' start vectors.

    Raises:
        TypeError: if texts come without a tokenizer, or inputs are of no known kind.
        ValueError: if a length exceeds the position table, a number is out of range, or an option is unknown.
        UnsupportedArchitectureError: if no adapter fits.
    """
    require_choice("estimator", estimator, ESTIMATORS)
    require_choice("scope", scope, (*SCOPES, *WHOLE_SCOPES))
    require_range("samples", samples, low=1, integer=True)
    if adversarial is not None:
        require_range("adversarial", adversarial, low=0.0, low_open=True)
        if scope not in ("self", "self+out"):
            raise ValueError(f'adversarial tokens are of attention alone: scope must be "self+out", got {scope!r}.')
    count = len(attention_layers(model))
    for layer in layers or ():
        require_range("layers", layer, low=-count, high=count - 1, integer=True, because=f"{count} layers")
    chosen = (
        (0,) if scope == "model" else tuple(layer % count for layer in (range(count) if layers is None else layers))
    )
    asked = _Settings(
        chosen, samples, heads, estimator, scope, adversarial, adversarial_head, allow_loose, bounds, rtol, seed
    )
    rows_by_length = _cut(inputs, lengths, samples, tokenizer, drop_padding)
    model = single_precision(model) if scope in WHOLE_SCOPES else model
    where, found = pick_device(device), []
    with evaluated(model):
        for layer in chosen:
            maps = _Maps(model, layer, asked, where)
            for n, rows in track(rows_by_length, f"layer {layer}") if progress else rows_by_length:
                found += maps.measured(n, rows)
    settings = {**vars(asked), "layers": list(chosen), "model": type(model).__name__}
    return LipschitzReport(tuple(found), settings)


def _cut(
    inputs: Inputs | str | Sequence[str],
    lengths: Sequence[int] | None,
    samples: int,
    tokenizer: Tokenizer | None,
    drop_padding: bool,
) -> list[tuple[int | None, list[Sequence1]]]:
    """(n, its sequences) for each length; n is None where sequences come as they are."""
    texts: Any = [inputs] if isinstance(inputs, str) else inputs
    if isinstance(texts, Sequence) and texts and all(isinstance(text, str) for text in texts):
        if tokenizer is None:
            raise TypeError("tokenizer must be given with texts: the model's, or WordHashTokenizer for random weights.")
        inputs = [_ids_of(tokenizer, text) for text in texts]
    given: Any = inputs
    rows = sequences(given, drop_padding)
    if lengths is None:
        return [(None, [row]) for row in rows[:samples]]
    if not all("input_ids" in row for row in rows):
        raise ValueError("lengths must be None for inputs that are not token ids: they have the length they have.")
    if not list(lengths):
        raise ValueError("lengths must be one length or more, got none.")
    stream = torch.cat([row["input_ids"].flatten() for row in rows])
    return [(int(n), [{"input_ids": cut[None]} for cut in windows(stream, n, samples)]) for n in lengths]


def _ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    found = tokenizer(text)
    ids = found["input_ids"] if hasattr(found, "keys") else found  # type: ignore[index]
    return torch.as_tensor(ids).flatten().tolist()


class _Maps:
    """What is measured of one layer: extracted once, then applied to each sequence."""

    def __init__(self, model: nn.Module, index: int, asked: _Settings, device: torch.device) -> None:
        self.model, self.index, self.asked, self.device = model, index, asked, device
        self.site = find_site(model, index)
        self.entrance = entrance(model, self.site, asked.scope)
        self.layer: AttentionLayer | AttentionBlock | None = None
        if asked.scope in SCOPES:
            self.layer = extract_attention(model, index, asked.scope).to(device).measured()

    def measured(self, n: int | None, rows: list[Sequence1]) -> Iterator[Row]:
        """The rows of the table for some sequences, and the adversarial one of that length."""
        for sample, row in enumerate(rows):
            require_places(row, self.site.limit)
            (tokens,) = caught(self.model, row, before=[self.entrance])
            X = (tokens[0] if self.site.batch_first else tokens[:, 0]).to(self.device)
            yield from self._rows(self._map(row), X, sample, "real")
        if self.asked.adversarial is not None and n is not None and isinstance(self.layer, AttentionLayer):
            X = head_tokens(self.layer, self.asked.adversarial_head, n, self.asked.adversarial).to(self.layer.query)
            yield from self._rows(self.layer, X, 0, "adversarial")

    def _map(self, row: Sequence1) -> Map:
        if self.layer is not None:
            return self.layer
        last = find_site(self.model, -1).block if self.asked.scope == "model" else self.site.block
        return between(self.model, row, self.entrance, last)

    def _rows(self, fn: Map, X: Tensor, sample: int, data: str) -> Iterator[Row]:
        yield self._row(fn, X, sample, None, data)
        if self.asked.heads and isinstance(fn, AttentionLayer):
            for h in range(fn.query.shape[0]):
                yield self._row(fn.head(h), X, sample, h, data)

    def _row(self, fn: Map, X: Tensor, sample: int, head: int | None, data: str) -> Row:
        asked, exact, published = self.asked, None, None
        if asked.estimator != "paper_code":
            exact = local_lipschitz(fn, X, rtol=asked.rtol, seed=asked.seed)
        if asked.estimator != "exact":
            published = paper_code_estimate(fn, X)
        norms = torch.linalg.vector_norm(X.double() if X.device.type != "mps" else X, dim=-1)
        near, wide = self._bounds(fn, X, float(norms.max()))
        return Row(
            self.index, len(X), sample, head, data, exact.value if exact else None, published,
            float(norms.square().mean().sqrt()), near, wide, exact.converged if exact else None,
        )  # fmt: skip

    def _bounds(self, fn: Map, X: Tensor, largest: float) -> tuple[float | None, float | None]:
        if not self.asked.bounds or not isinstance(fn, AttentionLayer) or largest == 0:
            return None, None
        try:
            wide = bound_table(fn, len(X), largest, allow_loose=self.asked.allow_loose).sharp
        except PositionalBoundError:
            wide = None
        return local(fn, X), wide


__all__ = ["ESTIMATORS", "scan"]
