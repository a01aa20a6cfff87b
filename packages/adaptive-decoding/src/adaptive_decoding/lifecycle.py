"""When a new generation begins: what a processor remembers of the last one is dropped then."""

import torch
from torch import Tensor


class Generation:
    """Tells whether a call goes on with the generation of the call before, from the ids that both were given.

    It does if there is one more token, as many rows, and the same prompts (the ids of the first call). In a beam search
    rows change places only among those of one prompt. A new prompt that is all of the last ids and one more cannot be
    told from the next step: that is what `reset()` is for.
    """

    def __init__(self) -> None:
        self.prompt: Tensor | None = None
        self.length = 0

    def goes_on(self, input_ids: Tensor) -> bool:
        """Whether `input_ids` (batch, length) goes on; remembers it either way."""
        before, prompt = self.length, self.prompt
        self.length = input_ids.shape[1]
        if (
            prompt is not None
            and self.length == before + 1
            and len(prompt) == len(input_ids)
            and prompt.device == input_ids.device
            and torch.equal(prompt, input_ids[:, : prompt.shape[1]])
        ):
            return True
        self.prompt = input_ids.clone()
        return False
