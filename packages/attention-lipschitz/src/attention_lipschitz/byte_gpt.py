"""A small trained language model made on the spot, so that trained and random weights can be compared offline.

The paper (Section 5) compares pretrained and randomly initialised GPT-2; this one reads bytes of a given text.
"""

from typing import TYPE_CHECKING

import torch
from offprints.checks import require_range
from offprints.progress import track
from offprints.seeding import isolated, rng
from torch import Tensor

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel


def byte_ids(text: str) -> Tensor:
    """(n,) the bytes of the text in UTF-8, as ids from 0 to 255."""
    return torch.tensor(list(text.encode()), dtype=torch.long)


def byte_gpt(seed: int = 0, width: int = 128, layers: int = 2, heads: int = 4, context: int = 128) -> "GPT2LMHeadModel":
    """A GPT-2 over bytes with random weights, in evaluation mode; the global random state is left alone (Section 5)."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=256, n_positions=context, n_embd=width, n_layer=layers, n_head=heads, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    with isolated(seed):
        return GPT2LMHeadModel(config).eval()


def train_byte_gpt(
    model: "GPT2LMHeadModel", text: str, *, steps: int = 300, batch: int = 16, lr: float = 2e-3, seed: int = 0
) -> list[float]:
    """Train in place to predict the next byte (AdamW, linear decay); returns the loss of each step, in nats a byte.

    Args:
        model: from `byte_gpt`.
        text: at least as many bytes as the model's context and one.
        steps: of training.
        batch: windows a step.
        lr: first learning rate.
        seed: of the windows.

    Raises:
        ValueError: if the text is too short, or a number out of range.
    """
    require_range("steps", steps, low=1, integer=True)
    require_range("batch", batch, low=1, integer=True)
    require_range("lr", lr, low=0.0, low_open=True)
    ids, length = byte_ids(text), model.config.n_positions
    if len(ids) <= length:
        raise ValueError(f"text must have more than {length} bytes (the context), got {len(ids)}.")
    gen = rng(seed, "cpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.01)
    device = next(model.parameters()).device
    losses = []
    with isolated(seed):  # dropout draws from the global generator
        model.train()
        for step in track(range(steps), "byte GPT"):
            for group in optimizer.param_groups:
                group["lr"] = lr * (1 - step / steps)
            starts = torch.randint(0, len(ids) - length, (batch,), generator=gen)
            rows = ids[starts[:, None] + torch.arange(length)].to(device)
            loss = model(input_ids=rows, labels=rows).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        model.eval()
    return losses
