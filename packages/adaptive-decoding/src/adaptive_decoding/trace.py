"""What the rule did at every step of a generation: numbers, text, a heat map (the quantities of Table 8)."""

import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from offprints.checks import require_choice, require_kind, require_range, require_shape
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

QUANTITIES = ("k", "mass", "confidence", "entropy")
SHADES = " .:-=+*#%@"
STYLE = (
    "body{font:15px/1.9 Georgia,serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color:#111;background:#fff}"
    "span.t{padding:.1em 0;border-radius:2px;white-space:pre-wrap}p.prompt{color:#666;white-space:pre-wrap}"
    "table{font-size:12px;border-collapse:collapse}td{padding:0 .6em}"
)


@dataclass(frozen=True)
class Step:
    """One step: (batch,) kept tokens k, their mass, the confidence of the kept set, the entropy of all in nats."""

    k: Tensor
    mass: Tensor
    confidence: Tensor
    entropy: Tensor


class DecodingTrace:
    """Kept tokens k, kept mass, confidence and entropy at every step of one generation and every row (Table 8).

    All of the distribution that the processor was given, after its temperature, and of what it kept: what other
    processors rule out before counts as gone, and what `generate` cuts afterwards as kept.

    Confidence is 1 − H_A / ln n, where H_A counts what is not kept as spread evenly; the entropy is that of the whole
    distribution in nats. A row that has ended goes on being recorded until the last one has: give the sequences and
    the end-of-text id to leave that out.

    Attributes:
        prompt_length: tokens before the first recorded step, padding included.
    """

    def __init__(self, prompt_length: int = 0) -> None:
        self.prompt_length = prompt_length
        self._steps: list[Step] = []

    def append(self, step: Step) -> None:
        """Record one step."""
        self._steps.append(step)

    def __len__(self) -> int:
        return len(self._steps)

    def values(self, quantity: str) -> np.ndarray:
        """(steps, rows) of "k", "mass", "confidence" or "entropy".

        Raises:
            ValueError: if it is another one.
        """
        require_choice("quantity", quantity, QUANTITIES)
        if not self._steps:
            return np.zeros((0, 0))
        return torch.stack([getattr(step, quantity) for step in self._steps]).cpu().numpy()

    @property
    def rows(self) -> int:
        """Rows of the batch."""
        return len(self._steps[0].k) if self._steps else 0

    def live(self, sequences: Tensor | None = None, eos_token_id: int | Sequence[int] | None = None) -> np.ndarray:
        """(steps, rows) whether the row was still going at that step: up to the end-of-text token, that one included.

        Raises:
            ValueError: if the sequences are not those of this generation.
        """
        alive = np.ones((len(self), self.rows), dtype=bool)
        if sequences is None or eos_token_id is None:
            return alive
        ends = [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id)
        ended = np.isin(self._tokens(sequences).T, ends)
        alive[1:] = np.cumsum(ended, axis=0)[:-1] == 0
        return alive

    def _tokens(self, sequences: Tensor) -> np.ndarray:
        """(rows, steps) the sampled tokens."""
        require_kind("sequences", sequences, Tensor)
        length = self.prompt_length + len(self)
        require_shape("sequences", sequences, (self.rows, length), hint="Pass what generate() returned for this trace.")
        return sequences[:, self.prompt_length :].cpu().numpy()

    def summary(
        self, sequences: Tensor | None = None, eos_token_id: int | Sequence[int] | None = None
    ) -> dict[str, object]:
        """Mean and standard deviation of each quantity over all steps, and its mean over rows at each step.

        Args:
            sequences: (rows, prompt and steps) what `generate` returned; with `eos_token_id`, ended rows are left out.
            eos_token_id: the id or ids that end a text.

        Raises:
            ValueError: if the sequences are not those of this generation.
        """
        alive = self.live(sequences, eos_token_id)
        found: dict[str, object] = {"steps": len(self), "rows": self.rows}
        for quantity in QUANTITIES:
            values = self.values(quantity).astype(float)
            chosen = values[alive]
            per_step = [float(row[on].mean()) if on.any() else math.nan for row, on in zip(values, alive, strict=True)]
            mean, deviation = (float(chosen.mean()), float(chosen.std())) if chosen.size else (math.nan, math.nan)
            found[quantity] = {"mean": mean, "std": deviation, "per_step": per_step}
        return found

    def records(self, row: int = 0) -> list[dict[str, float]]:
        """One dictionary of plain numbers a step, of one row.

        Raises:
            ValueError: if there is no such row.
        """
        require_range("row", row, low=0, high=max(self.rows - 1, 0), integer=True)
        table = {quantity: self.values(quantity) for quantity in QUANTITIES}
        return [{"step": i} | {name: float(table[name][i, row]) for name in QUANTITIES} for i in range(len(self))]

    def to_json(self, path: str | Path) -> Path:
        """Write all values as JSON."""
        content = {"prompt_length": self.prompt_length, **{name: self.values(name).tolist() for name in QUANTITIES}}
        Path(path).write_text(json.dumps(content), encoding="utf-8")
        return Path(path)

    def to_text(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        sequences: Tensor,
        row: int = 0,
        quantity: str = "k",
        eos_token_id: int | Sequence[int] | None = None,
    ) -> str:
        """The continuation of one row, token by token, each with its value and a mark that is darker for more.

        Raises:
            ValueError: if the sequences are not those of this generation, or there is no such row or quantity.
        """
        lines = []
        for token, values, shade in self._shaded(tokenizer, sequences, row, quantity, eos_token_id):
            lines.append(f"{SHADES[min(int(shade * len(SHADES)), len(SHADES) - 1)]} {values[quantity]:9.4g}  {token!r}")
        return "\n".join(lines)

    def to_html(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        sequences: Tensor,
        row: int = 0,
        quantity: str = "k",
        eos_token_id: int | Sequence[int] | None = None,
    ) -> str:
        """A page of its own with the text of one row: the darker a token, the greater `quantity` when it was chosen.

        Every token tells its k, mass, confidence and entropy when pointed at.

        Raises:
            ValueError: if the sequences are not those of this generation, or there is no such row or quantity.
        """
        shaded = self._shaded(tokenizer, sequences, row, quantity, eos_token_id)
        spans = []
        for token, values, shade in shaded:
            told = ", ".join(f"{name} {values[name]:.4g}" for name in QUANTITIES)
            colour = f"rgba(213,94,0,{0.85 * shade:.3f})"
            spans.append(f'<span class="t" style="background:{colour}" title="{told}">{html.escape(token)}</span>')
        prompt = tokenizer.decode(sequences[row, : self.prompt_length], skip_special_tokens=True)
        head = (
            f"<!doctype html><html><head><meta charset='utf-8'><title>{quantity}</title><style>{STYLE}</style></head>"
        )
        most = max((values[quantity] for _, values, _ in shaded), default=0.0)
        legend = f"<p><small>darker: greater {quantity}, {most:.4g} at most</small></p>"
        return (
            f"{head}<body><p class='prompt'>{html.escape(str(prompt))}</p><p>{''.join(spans)}</p>{legend}</body></html>"
        )

    def _shaded(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        sequences: Tensor,
        row: int,
        quantity: str,
        eos_token_id: int | Sequence[int] | None,
    ) -> list[tuple[str, Mapping[str, float], float]]:
        """Token, values and a darkness in [0, 1], logarithmic for k, of each live step of a row."""
        require_choice("quantity", quantity, QUANTITIES)
        records, ids = self.records(row), self._tokens(sequences)
        alive = self.live(sequences, eos_token_id)[:, row] if self._steps else []
        chosen = [(int(ids[row, i]), records[i]) for i in range(len(records)) if alive[i]]
        scale = [math.log1p(v[quantity]) if quantity == "k" else max(v[quantity], 0.0) for _, v in chosen]
        top = max(scale, default=0.0) or 1.0
        return [
            (str(tokenizer.decode([token])), values, height / top)
            for (token, values), height in zip(chosen, scale, strict=True)
        ]
