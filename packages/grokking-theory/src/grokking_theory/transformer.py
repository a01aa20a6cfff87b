"""The one-layer transformer of figure 5: it reads "a b =" and answers at "="."""

import math

import torch
from jaxtyping import Float, Int
from offprints.checks import require_range, require_shape
from offprints.seeding import rng
from torch import Tensor, nn
from torch.nn import functional as F

from grokking_theory.model import gather


class TinyTransformer(nn.Module):
    """One block of attention and MLP on the tokens a, b, "=", without normalisation; p outputs at "=".

        u = E[tokens] + P                            token and position embeddings
        u_= ← u_= + W_O softmax(q_=ᵀ k / √d) v       attention: the query at "=" sees all three tokens
        u_= ← u_= + W_2 relu(W_1 u_= + b_1) + b_2
        f(a, b) = U u_=

    Only "=" is read, and it stands last: a causal mask would change nothing, and no other position needs a query.

    Args:
        p: the modulus; the vocabulary has p + 1 tokens.
        dim: embedding size, a multiple of `heads`.
        heads: attention heads.
        mlp: hidden size of the MLP, 4 · dim for None.
        alpha: all initial weights are multiplied by it.
        seed: of the initial weights, which are torch's defaults: N(0, 1) embeddings, U(-1/√fan_in, 1/√fan_in) layers.
        device: where the weights lie.
        dtype: of the weights; float64 by default, see `QuadraticNetwork`.

    Shapes:
        forward: (batch, 2) int64 → (batch, p).

    Raises:
        TypeError: if a size is no integer.
        ValueError: if a size is below its minimum, or `heads` does not divide `dim`.
    """

    def __init__(
        self,
        p: int,
        dim: int = 128,
        heads: int = 4,
        mlp: int | None = None,
        alpha: float = 1.0,
        seed: int = 0,
        device: str | torch.device | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__()
        mlp = 4 * dim if mlp is None else mlp
        require_range("p", p, low=2, integer=True)
        for name, size in (("dim", dim), ("heads", heads), ("mlp", mlp)):
            require_range(name, size, low=1, integer=True)
        require_range("alpha", alpha, low=0, high=math.inf, low_open=True, high_open=True)
        if dim % heads:
            raise ValueError(f"dim must be a multiple of heads ({heads}), got {dim}.")
        self.p, self.dim, self.heads = p, dim, heads

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape, device=device, dtype=dtype))

        self.tokens, self.positions = weight(p + 1, dim), weight(3, dim)
        self.query, self.key, self.value = weight(dim, dim), weight(dim, dim), weight(dim, dim)
        self.mix = weight(dim, dim)
        self.rise, self.rise_bias = weight(mlp, dim), weight(mlp)
        self.fall, self.fall_bias = weight(dim, mlp), weight(dim)
        self.unembed = weight(p, dim)
        self.reset_parameters(alpha, seed)

    @torch.no_grad()
    def reset_parameters(self, alpha: float = 1.0, seed: int = 0) -> None:
        """Draw the weights anew; the arguments are those of the class."""
        generator = rng(seed, "cpu")
        fan_in = {"rise_bias": self.dim, "fall_bias": self.fall.shape[1]}
        for name, parameter in self.named_parameters():
            drawn = torch.empty(parameter.shape, dtype=parameter.dtype, device="cpu")
            if name in ("tokens", "positions"):
                drawn.normal_(generator=generator)
            else:
                limit = fan_in.get(name, parameter.shape[-1]) ** -0.5
                drawn.uniform_(-limit, limit, generator=generator)
            parameter.copy_(drawn.mul_(alpha))

    def extra_repr(self) -> str:
        """The sizes, for `print(network)`."""
        return f"p={self.p}, dim={self.dim}, heads={self.heads}, mlp={self.rise.shape[0]}"

    def forward(self, pairs: Int[Tensor, "batch 2"]) -> Float[Tensor, "batch p"]:
        """Logits of (a + b) mod p.

        Raises:
            TypeError: if the pairs are no integers.
            ValueError: if the shape differs, or a label lies outside [0, p) (on CUDA: a device assertion).
        """
        if pairs.dtype not in (torch.int64, torch.int32):
            raise TypeError(f"pairs must hold integers (token numbers), got {pairs.dtype}.")
        require_shape("pairs", pairs, ("batch", 2))
        operands = gather(self.tokens[: self.p], pairs)
        equals = self.tokens[self.p].expand(pairs.shape[0], 1, self.dim)
        stream = torch.cat([operands, equals], dim=1) + self.positions
        last = stream[:, 2]
        last = last + F.linear(self._attend(last, stream), self.mix)
        last = last + F.linear(F.relu(F.linear(last, self.rise, self.rise_bias)), self.fall, self.fall_bias)
        return F.linear(last, self.unembed)

    def _attend(
        self, last: Float[Tensor, "batch dim"], stream: Float[Tensor, "batch 3 dim"]
    ) -> Float[Tensor, "batch dim"]:
        size = self.dim // self.heads
        query = F.linear(last, self.query).unflatten(1, (self.heads, size))
        key = F.linear(stream, self.key).unflatten(2, (self.heads, size))
        value = F.linear(stream, self.value).unflatten(2, (self.heads, size))
        scores = torch.einsum("bhd,bthd->bht", query, key) / math.sqrt(size)
        return torch.einsum("bht,bthd->bhd", scores.softmax(2), value).flatten(1)
