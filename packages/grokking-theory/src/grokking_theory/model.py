"""The network of the paper: one hidden layer, quadratic activation, no biases (section 2)."""

from math import inf
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Float, Int
from offprints import checkpoint
from offprints.checks import require_choice, require_finite, require_kind, require_range, require_shape
from offprints.seeding import rng
from torch import Tensor, nn
from torch.nn import functional as F

from grokking_theory._version import DIST, VERSION
from grokking_theory.tasks import require_labels

Init = Literal["torch", "he", "uniform"]

BLOCK = 512
"""Rows whose hidden layer is computed at a time: it then stays in the cache, which is several times faster."""


class QuadraticNetwork(nn.Module):
    """f(θ; (a, b)) = V (W (e_a, e_b))^{⊙2}, with W = [Q R] of shape (width, 2p) and V of shape (p, width).

    The regression head reads one output: g(θ; (a, b, c)) = Σ_k V_ck (Q_ka + R_kb)². The network is 3-homogeneous:
    f(tθ) = t³ f(θ). Rows of W are gathered by number: the one-hot vectors are never built.

    Args:
        p: the modulus: 2p inputs, p outputs.
        width: hidden neurons h. The paper uses 4p to 8p; 4p - 3 suffice for an exact solution (odd p).
        init: "torch" U(-1/√fan_in, 1/√fan_in), "he" N(0, 2/fan_in), "uniform" U(-scale, scale); fan_in is 2p for W
            and h for V.
        alpha: all initial weights are multiplied by it (figures 1 and 2): large is lazy, small is rich.
        scale: the half-width of `init="uniform"`.
        seed: of the initial weights; they are drawn on the CPU, so that one seed is one network on every device.
        device: where the weights lie.
        dtype: of the weights. float64 by default: in float32 the cross-entropy reaches 0 exactly and training stops.

    Shapes:
        forward: (batch, 2) int64 → (batch, p), in the dtype of the weights.

    Raises:
        TypeError: if a size is no integer, or the dtype no real floating-point one.
        ValueError: if p < 2, width < 1, alpha or scale is not positive and finite, or the init is unknown.
    """

    def __init__(
        self,
        p: int,
        width: int,
        init: Init = "torch",
        alpha: float = 1.0,
        scale: float = 1.0,
        seed: int = 0,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        require_range("p", p, low=2, integer=True)
        require_range("width", width, low=1, integer=True)
        for name, factor in (("alpha", alpha), ("scale", scale)):
            require_range(name, factor, low=0, high=inf, low_open=True, high_open=True)
        if not dtype.is_floating_point:
            raise TypeError(f"dtype must be a real floating-point one, got {dtype}.")
        require_choice("init", init, ("torch", "he", "uniform"))
        self.p, self.width = p, width
        self.W = nn.Parameter(torch.empty(width, 2 * p, device=device, dtype=dtype))
        self.V = nn.Parameter(torch.empty(p, width, device=device, dtype=dtype))
        self.reset_parameters(init, alpha, scale, seed)

    @torch.no_grad()
    def reset_parameters(self, init: Init = "torch", alpha: float = 1.0, scale: float = 1.0, seed: int = 0) -> None:
        """Draw the weights anew; the arguments are those of the class."""
        generator = rng(seed, "cpu")
        for weight in (self.W, self.V):
            fan_in = weight.shape[1]
            drawn = torch.empty(weight.shape, dtype=weight.dtype, device="cpu")
            if init == "he":
                drawn.normal_(0.0, (2 / fan_in) ** 0.5, generator=generator)
            else:
                limit = scale if init == "uniform" else fan_in**-0.5
                drawn.uniform_(-limit, limit, generator=generator)
            weight.copy_(drawn.mul_(alpha))

    def extra_repr(self) -> str:
        """The sizes, for `print(network)`."""
        return f"p={self.p}, width={self.width}"

    def forward(self, pairs: Int[Tensor, "batch 2"]) -> Float[Tensor, "batch p"]:
        """All p outputs of each pair, in O(batch · width · p).

        Raises:
            TypeError: if the pairs are no integers.
            ValueError: if the shape differs, or a label lies outside [0, p) (on CUDA: a device assertion).
        """
        _require_tuples("pairs", pairs, 2)
        left, right = self._input_rows()
        blocks = [_hidden(left, right, block).square() @ self.V.t() for block in pairs.split(BLOCK)]
        return torch.cat(blocks)

    def forward_triples(self, triples: Int[Tensor, "batch 3"]) -> Float[Tensor, " batch"]:
        """Output number c of the pair (a, b): the regression head, in O(batch · width).

        Raises:
            TypeError: if the triples are no integers.
            ValueError: if the shape differs, or a label lies outside [0, p).
        """
        _require_tuples("triples", triples, 3)
        left, right = self._input_rows()
        blocks = [
            torch.linalg.vecdot(_hidden(left, right, block).square(), gather(self.V, block[:, 2]))
            for block in triples.split(BLOCK)
        ]
        return torch.cat(blocks)

    def _input_rows(self) -> tuple[Tensor, Tensor]:
        """Qᵀ and Rᵀ, (p, width) each, so that the weights of one symbol lie side by side."""
        left, right = self.W.t().contiguous().split(self.p)
        return left, right

    def population_table(self) -> Float[Tensor, "p p p"]:
        """All outputs F[a, b, c] = Σ_k V_ck (Q_ka + R_kb)², in O(width · p³)."""
        left, right = self.W.t().split(self.p)
        hidden = left[:, None, :] + right[None, :, :]
        return hidden.square() @ self.V.t()

    def population_loss(self, op: Tensor | None = None) -> float:
        """Mean of (F[a, b, c] - p · 1[op(a, b) = c])² over all p³ triples: the regression loss, p for F = 0.

        Args:
            op: (p, p) integer table; addition modulo p for None.
        """
        return float((self.population_table().detach() - self._target(op)).square().mean())

    def population_accuracy(self, op: Tensor | None = None) -> float:
        """Share of the p² pairs whose largest output is the right one (`op` as in `population_loss`)."""
        answers = self._target(op).argmax(2)
        return float((self.population_table().detach().argmax(2) == answers).double().mean())

    def _target(self, op: Tensor | None) -> Float[Tensor, "p p p"]:
        a = torch.arange(self.p, device=self.W.device)
        if op is None:
            op = (a[:, None] + a) % self.p
        else:
            require_labels("op", op, self.p)
            require_shape("op", op, (self.p, self.p))
        return self.p * F.one_hot(op.to(a.device).long(), self.p).to(self.W.dtype)

    def linf(self) -> float:
        """‖θ‖_∞, the largest absolute entry of W and V."""
        return float(torch.stack([self.W.detach().abs().amax(), self.V.detach().abs().amax()]).amax())

    @torch.no_grad()
    def load_weights(self, W: Float[Tensor, "h two_p"], V: Float[Tensor, "p h"]) -> "QuadraticNetwork":
        """Copy weights into the network, in its own dtype and device; returns the network.

        Raises:
            TypeError: if they are no tensors.
            ValueError: if a shape differs, or an entry is not finite (in the dtype of the network).
        """
        require_kind("W", W, Tensor)
        require_kind("V", V, Tensor)
        W, V = W.to(self.W), V.to(self.V)
        require_shape("W", W, tuple(self.W.shape), hint="Make the network with that p and width.")
        require_shape("V", V, tuple(self.V.shape), hint="Make the network with that p and width.")
        require_finite("W", W)
        require_finite("V", V)
        self.W.copy_(W)
        self.V.copy_(V)
        return self

    def save(self, path: str | Path) -> Path:
        """Write `<path>.safetensors` and `<path>.json`; returns the former."""
        config = {"p": self.p, "width": self.width}
        return checkpoint.save(path, self.state_dict(), method=DIST, version=VERSION, config=config)

    @classmethod
    def load(cls, path: str | Path, device: str | torch.device | None = None) -> "QuadraticNetwork":
        """Read a network that `save` wrote, in the dtype it had.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if the file is not one of this class.
        """
        found = checkpoint.load(path, method=DIST, device=device, framework="torch")
        tensors = {name: torch.as_tensor(value) for name, value in found.tensors.items()}
        if set(tensors) != {"W", "V"}:
            raise ValueError(f"{path} must hold the tensors W and V, got {sorted(tensors)}.")
        require_shape(f"W in {path}", tensors["W"], ("width", "2p"))
        (width, inputs), dtype = tensors["W"].shape, tensors["W"].dtype
        network = cls(inputs // 2, width, device=device, dtype=dtype)
        return network.load_weights(tensors["W"], tensors["V"])


def _hidden(left: Tensor, right: Tensor, tuples: Tensor) -> Tensor:
    """Pre-activations W (e_a, e_b) = Q_·a + R_·b, (batch, width)."""
    return gather(left, tuples[:, 0]).add_(gather(right, tuples[:, 1]))


def gather(rows: Float[Tensor, "p width"], labels: Int[Tensor, "..."]) -> Float[Tensor, "... width"]:
    """The rows of these numbers; an error names the range that a label left."""
    try:
        return F.embedding(labels, rows)
    except IndexError as error:
        raise ValueError(f"labels must be integers in [0, {len(rows)}): {error}.") from error


def _require_tuples(name: str, tuples: Tensor, columns: int) -> None:
    if not isinstance(tuples, Tensor):
        raise TypeError(f"{name} must be a tensor of integers, got {type(tuples).__name__}.")
    if tuples.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must hold integers (token numbers, not one-hot vectors), got {tuples.dtype}.")
    require_shape(name, tuples, ("batch", columns))


def regression_head(model: nn.Module, triples: Int[Tensor, "batch 3"]) -> Float[Tensor, " batch"]:
    """Output number c of the pair (a, b), of any model that maps pairs to p outputs."""
    if isinstance(model, QuadraticNetwork):
        return model.forward_triples(triples)
    return model(triples[:, :2]).gather(1, triples[:, 2:]).squeeze(1)
