"""The network of SUWR: at every state it says what comes next, what it predicts, and whether to stop (Section 3)."""

from typing import NamedTuple

import torch
from offprints.checks import require_choice, require_range, require_shape
from torch import nn
from torch.nn import functional as F

DROPOUT = 0.2
TRUNKS = ("shared", "separate")


class Heads(NamedTuple):
    """What the network says about states.

    Attributes:
        select: (n, U) logits of the next unit, not yet masked.
        output: (n, K) class logits, or the predicted number.
        stop: (n,) logit of stopping.
        value: (n,) expected cost to go, or None without a value head.
    """

    select: torch.Tensor
    output: torch.Tensor
    stop: torch.Tensor
    value: torch.Tensor | None


class SequentialPolicy(nn.Module):
    """Reads (x where revealed, mask) and nothing else: hidden values are replaced by 0 before the first layer.

    Trunk "shared": Linear(2d -> h), LayerNorm, Tanh, then (layers - 2) times Linear(h -> h), Tanh, Dropout 0.2. Stop,
    value: Linear(h -> 1). Select: Linear(h -> U). Output: Linear(h -> h), Tanh, Linear(h -> K), and the `prior` where
    nothing is revealed. "separate": a trunk of its own for each of select, output and stop. The input holds the mask
    too, so that a true zero and a hidden value differ; the paper's network reads x * mask alone.

    Args:
        n_features: d.
        n_outputs: K.
        n_units: U; d by default.
        hidden: h.
        layers: L, at least 2.
        trunk: "shared" or "separate".
        value: whether there is a value head (the learned baseline).
        step_input: whether the number of revealed features / d is a further input; no leak, it follows from the mask.
        device: where it is built.
        dtype: of its parameters.

    Raises:
        TypeError, ValueError: for other values.
    """

    prior: torch.Tensor

    def __init__(
        self, n_features: int, n_outputs: int, n_units: int | None = None, hidden: int = 100, layers: int = 3,
        trunk: str = "shared", value: bool = False, step_input: bool = False,
        device: torch.device | str | None = None, dtype: torch.dtype | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        require_range("n_features", n_features, low=1, integer=True)
        require_range("n_outputs", n_outputs, low=1, integer=True)
        require_range("hidden", hidden, low=1, integer=True)
        require_range("layers", layers, low=2, integer=True)
        require_choice("trunk", trunk, TRUNKS)
        self.n_features, self.n_outputs = n_features, n_outputs
        self.n_units = n_features if n_units is None else require_range("n_units", n_units, low=1, integer=True)
        self.trunk, self.step_input = trunk, step_input
        factory = {"device": device, "dtype": dtype}
        wide = 2 * n_features + step_input

        def body() -> nn.Sequential:
            deep = [
                nn.Sequential(nn.Linear(hidden, hidden, **factory), nn.Tanh(), nn.Dropout(DROPOUT))
                for _ in range(layers - 2)
            ]
            return nn.Sequential(nn.Linear(wide, hidden, **factory), nn.LayerNorm(hidden, **factory), nn.Tanh(), *deep)

        self.bodies = nn.ModuleList([body() for _ in range(1 if trunk == "shared" else 3)])
        self.select = nn.Linear(hidden, self.n_units, **factory)
        self.stop = nn.Linear(hidden, 1, **factory)
        self.mix = nn.Linear(hidden, hidden, **factory)
        self.predict = nn.Linear(hidden, n_outputs, **factory)
        self.value = nn.Linear(hidden, 1, **factory) if value else None
        self.register_buffer("prior", torch.zeros(n_outputs, **factory))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Heads:
        """The heads at the states (x_S, S).

        Args:
            x: (n, d); what lies under a hidden entry is never read.
            mask: (n, d) bool, True where revealed.

        Raises:
            TypeError, ValueError: for other shapes.
        """
        require_shape("x", x, ("n", self.n_features))
        require_shape("mask", mask, (x.shape[0], self.n_features))
        trunks = self.trunks(x, mask)
        return self.tops(trunks, mask)._replace(select=self.select(trunks[0]))

    def trunks(self, x: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
        """(n, h) of each trunk: one, or those of select, output and stop."""
        parts = [torch.where(mask, x, torch.zeros_like(x)), mask.to(x.dtype)]
        if self.step_input:
            parts.append(mask.to(x.dtype).mean(dim=1, keepdim=True))
        inputs = torch.cat(parts, dim=1)
        return [body(inputs) for body in self.bodies]

    def tops(self, trunks: list[torch.Tensor], mask: torch.Tensor) -> Heads:
        """Output, stop and value from what the trunks say, (..., h); `select` is left out (its input comes back)."""
        known = self.predict(torch.tanh(self.mix(trunks[len(trunks) // 2])))
        blank = ~mask.any(dim=-1, keepdim=True)
        value = None if self.value is None else self.value(trunks[-1]).squeeze(-1)
        output = torch.where(blank, self.prior.to(known.dtype), known)
        return Heads(trunks[0], output, self.stop(trunks[-1]).squeeze(-1), value)


def losses(output: torch.Tensor, y: torch.Tensor, kind: str) -> torch.Tensor:
    """(n,) loss of outputs (n, K): cross-entropy against labels (n,) or probabilities (n, K), or squared error.

    Args:
        output: class logits, or numbers (n, 1).
        y: labels, probabilities, or numbers (n,).
        kind: "log" or "squared".
    """
    if kind == "squared":
        return (output.squeeze(-1) - y).square()
    return F.cross_entropy(output, y, reduction="none")
