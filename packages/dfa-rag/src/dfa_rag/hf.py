"""Sentence vectors from a transformers encoder, for retrieval and taggers (dense retrieval of Section 4)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from offprints.checks import require_range

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class SentenceEncoder:
    """Mean-pooled last hidden states, of length one: a callable texts -> (texts, dimensions) float64.

    Texts that were seen before are not encoded again. A text longer than `max_length` tokens keeps its end, where a
    conversation stands.

    Args:
        model: a loaded encoder, or a name or folder for `from_pretrained`.
        tokenizer: its tokenizer; needed with a loaded model.
        batch: texts at a time.
        max_length: tokens of a text.

    Raises:
        TypeError: if a loaded model comes without a tokenizer.
    """

    def __init__(
        self,
        model: "str | PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase | None" = None,
        batch: int = 32,
        max_length: int = 256,
    ) -> None:
        if isinstance(model, str):
            from transformers import AutoModel, AutoTokenizer

            tokenizer = tokenizer or AutoTokenizer.from_pretrained(model)
            model = AutoModel.from_pretrained(model).eval()
        if tokenizer is None:
            raise TypeError("tokenizer must be given with a loaded model, got None.")
        self.model, self.tokenizer = model, tokenizer
        self.batch = require_range("batch", batch, low=1, integer=True)
        self.max_length = require_range("max_length", max_length, low=1, integer=True)
        self._seen: dict[str, np.ndarray] = {}

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, dimensions) unit vectors."""
        new = sorted({text for text in texts if text not in self._seen}, key=len)  # alike lengths, little padding
        for start in range(0, len(new), self.batch):
            part = new[start : start + self.batch]
            self._seen.update(zip(part, self._encode(part), strict=True))
        if not texts:
            return np.zeros((0, self.model.config.hidden_size))
        return np.stack([self._seen[text] for text in texts])

    def _encode(self, texts: list[str]) -> np.ndarray:
        import torch

        side, self.tokenizer.truncation_side = self.tokenizer.truncation_side, "left"
        batch = self.tokenizer(texts, padding=True, truncation=True, max_length=self.max_length, return_tensors="pt")
        self.tokenizer.truncation_side = side
        with torch.no_grad():
            hidden = self.model(**batch.to(self.model.device)).last_hidden_state.double()
        mask = batch["attention_mask"].unsqueeze(-1).double()
        mean = (hidden * mask).sum(1) / mask.sum(1)
        return torch.nn.functional.normalize(mean, dim=-1).cpu().numpy()
