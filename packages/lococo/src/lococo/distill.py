"""Attention outputs with the full cache as a target: heads learn from every layer at once, in fewer steps."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import Cache, DynamicCache

from lococo.chunked import run
from lococo.host import attention_modules, text_config, unwrapped

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Teacher:
    """The same model with its full cache, reading the same chunks.

    Args:
        model: a causal model.
        ids: (rows, length) the documents.
        chunk: tokens at a time.
    """

    def __init__(self, model: "PreTrainedModel", ids: Tensor, chunk: int) -> None:
        self.model, self.ids, self.chunk = model, ids, chunk
        inner: Any = unwrapped(model)
        self.cache = DynamicCache(config=text_config(inner))

    def compare(self, part: Tensor, start: int, cache: Cache) -> tuple[Tensor, Tensor]:
        """Logits through `cache`, and the mean over layers of ‖o − o_full‖² / ‖o_full‖² of the attention outputs."""
        with torch.no_grad():
            _, wanted = self._outputs(part, self.cache)
        logits, found = self._outputs(part, cache)
        errors = [
            (a.float() - b.float()).square().sum() / b.float().square().sum().clamp(min=1e-12)
            for a, b in zip(found, wanted, strict=True)
        ]
        return logits, torch.stack(errors).mean()

    def _outputs(self, part: Tensor, cache: Cache) -> tuple[Tensor, list[Tensor]]:
        outputs: list[Tensor] = []

        def keep(module: nn.Module, args: tuple, output: Any) -> None:
            outputs.append(output[0] if isinstance(output, tuple) else output)

        hooks = [module.register_forward_hook(keep) for module in attention_modules(self.model)]
        try:
            return run(self.model, part, cache), outputs
        finally:
            for hook in hooks:
                hook.remove()
