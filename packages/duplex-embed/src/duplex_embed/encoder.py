"""The dual encoder: graph attention for amplitudes and phases side by side, with a fusion layer (paper, § encoder)."""

import math
from collections.abc import Sequence

import torch
from offprints.checks import require_choice, require_finite, require_range, require_shape
from torch import Tensor

from duplex_embed.attention import attention
from duplex_embed.messages import Messages, index_messages

FUSIONS = ("add", "none")


class DualGATLayer(torch.nn.Module):
    """One layer of both channels.

    Without fusion a' = GAT_a(a; w_am), th' = GAT_p(th; w_ph). With fusion
    a' = GAT_a(a; w_am) + GAT_a2(th; w_am) and th' = GAT_p(th; w_ph) + GAT_p2(a; w_ph).
    Each GAT is out_v = sum_u alpha_uv w_uv W x_u + b, alpha the softmax over the messages into v of
    LeakyReLU_0.2(a_src . W x_u + a_dst . W x_v). The official code builds the extra two from the wrong widths when
    there are two layers; here all four map `in_dim` to `out_dim`.

    Args:
        in_dim: f.
        out_dim: o, of one head.
        heads: H.
        concat: join the heads (H o outputs) instead of averaging them (o).
        fuse: whether this is the fusion layer.
        generator: draws the weights (Xavier normal, gain sqrt 2; biases 0).
        device: of the parameters.
        dtype: of the parameters.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        heads: int = 1,
        *,
        concat: bool = True,
        fuse: bool = False,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_dim, self.out_dim, self.heads, self.concat, self.fuse = in_dim, out_dim, heads, concat, fuse
        self.sources = (0, 1, 1, 0) if fuse else (0, 1)
        blocks, where = len(self.sources), {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(blocks, heads, in_dim, out_dim, **where))
        self.att_src = torch.nn.Parameter(torch.empty(blocks, heads, out_dim, **where))
        self.att_dst = torch.nn.Parameter(torch.empty(blocks, heads, out_dim, **where))
        self.bias = torch.nn.Parameter(torch.empty(blocks, self.width, **where))
        self.reset_parameters(generator)

    @property
    def width(self) -> int:
        """Numbers per node that come out."""
        return self.heads * self.out_dim if self.concat else self.out_dim

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights afresh."""
        total = self.heads * self.out_dim
        self.weight.normal_(0, math.sqrt(4 / (self.in_dim + total)), generator=generator)
        for part in (self.att_src, self.att_dst):
            part.normal_(0, math.sqrt(4 / (total + self.out_dim)), generator=generator)
        self.bias.zero_()

    def forward(self, x: Tensor, messages: Messages) -> Tensor:
        """(2, receivers, width) from x (2, senders, in_dim): amplitudes above phases."""
        h, left, right = self.project(x)
        return self.gather(h, left, right[:, : messages.receivers], messages)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """W x (K, n, o) and the scores of senders and receivers (K, n), for K = blocks x heads."""
        chosen = x[list(self.sources)] if self.fuse else x
        h = torch.matmul(chosen.unsqueeze(1), self.weight).flatten(0, 1)
        left, right = (
            torch.matmul(torch.einsum("bhfo,bho->bhf", self.weight, part), chosen.transpose(1, 2)).flatten(0, 1)
            for part in (self.att_src, self.att_dst)
        )
        return h, left, right

    def gather(self, h: Tensor, left: Tensor, right: Tensor, messages: Messages) -> Tensor:
        """The weighted attention over what was projected: (2, receivers, width)."""
        out = attention(left, right, h, messages)
        out = out.unflatten(0, (2, len(self.sources) // 2, self.heads)).sum(1)
        out = out.transpose(1, 2).flatten(2) if self.concat else out.mean(1)
        return out + self.bias.unflatten(0, (2, -1)).sum(1).unsqueeze(1)


class DualGATEncoder(torch.nn.Module):
    """L dual layers; ReLU and dropout behind all but the last, which averages its heads.

    Args:
        in_dim: f, of both inputs.
        out_dim: d, of both outputs.
        hidden: width between layers, all heads together; d by default.
        layers: L; 3 for transductive use, 2 for inductive (paper, § experiments).
        heads: H.
        dropout: share of hidden numbers that are dropped in training.
        fusion: "add", or "none" for two separate encoders.
        fuse_at: index of the fusion layer; L-2 by default (0 for L = 1).
        generator: draws the weights.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if a size is out of range or `hidden` no multiple of `heads`.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        *,
        hidden: int | None = None,
        layers: int = 3,
        heads: int = 1,
        dropout: float = 0.1,
        fusion: str = "add",
        fuse_at: int | None = None,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        hidden = out_dim if hidden is None else hidden
        for name, value in {"in_dim": in_dim, "out_dim": out_dim, "layers": layers, "heads": heads}.items():
            require_range(name, value, low=1, integer=True)
        require_range("hidden", hidden, low=1, integer=True)
        require_range("dropout", dropout, low=0, high=1, high_open=True)
        require_choice("fusion", fusion, FUSIONS)
        if hidden % heads:
            raise ValueError(f"hidden must be a multiple of heads ({heads}), got {hidden}.")
        fuse_at = max(layers - 2, 0) if fuse_at is None else fuse_at
        require_range("fuse_at", fuse_at, low=0, high=layers - 1, integer=True)
        self.dropout = dropout
        self.layers = torch.nn.ModuleList(
            DualGATLayer(
                in_dim if at == 0 else hidden,
                out_dim if at == layers - 1 else hidden // heads,
                heads,
                concat=at < layers - 1,
                fuse=fusion == "add" and at == fuse_at,
                generator=generator,
                device=device,
                dtype=dtype,
            )
            for at in range(layers)
        )

    def forward(
        self, x_am: Tensor, x_ph: Tensor, edge_index: Tensor, w_am: Tensor, w_ph: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Amplitudes and phases, (n, d) each.

        Args:
            x_am: (n, f) input of the amplitude channel.
            x_ph: (n, f) input of the phase channel.
            edge_index: (2, E) messages, sender above receiver (see `message_edges`).
            w_am: (E,) weights in the amplitude channel.
            w_ph: (E,) weights in the phase channel.

        Raises:
            ValueError: if shapes disagree, or an input is NaN or infinite.
        """
        in_dim = self.layers[0].in_dim
        for name, value in {"x_am": x_am, "x_ph": x_ph}.items():
            require_shape(name, value, (len(x_am), in_dim))  # type: ignore[bad-argument-type]
            require_finite(name, value)
        for name, value in {"w_am": w_am, "w_ph": w_ph}.items():
            require_shape(name, value, (edge_index.shape[1],))
            require_finite(name, value)
        messages = index_messages(edge_index, torch.stack((w_am, w_ph)), len(x_am))
        return tuple(self.run(torch.stack((x_am, x_ph)), [messages]).unbind(0))  # type: ignore[bad-return]

    def run(self, x: Tensor, messages: Sequence[Messages], generator: torch.Generator | None = None) -> Tensor:
        """(2, receivers, d) from x (2, n, f).

        Args:
            x: inputs of both channels.
            messages: one for all layers, or one for each (a sampled neighbourhood, from the outside in).
            generator: draws what dropout drops, in training mode.
        """
        last = len(self.layers) - 1
        for at, layer in enumerate(self.layers):
            x = layer(x, messages[at] if len(messages) > 1 else messages[0])
            if at < last:
                x = self._drop(torch.relu(x), generator)
        return x

    def _drop(self, x: Tensor, generator: torch.Generator | None) -> Tensor:
        if not self.training or self.dropout == 0:
            return x
        if generator is None:
            return torch.nn.functional.dropout(x, self.dropout)
        kept = torch.rand(x.shape, generator=generator, device=x.device) >= self.dropout
        return x * kept / (1 - self.dropout)

    @torch.no_grad()
    def infer(self, x: Tensor, messages: Messages, chunk: int = 65_536) -> Tensor:
        """The same as `run` on a whole graph, without gradients, layer by layer and `chunk` receivers at a time."""
        last = len(self.layers) - 1
        for at, layer in enumerate(self.layers):
            h, left, right = layer.project(x)  # type: ignore[not-callable]
            parts = []
            for start in range(0, max(messages.receivers, 1), chunk):
                stop = min(start + chunk, messages.receivers)
                # pyrefly: ignore[not-callable]
                parts.append(layer.gather(h, left, right[:, start:stop], _rows_of(messages, start, stop)))
            x = torch.cat(parts, 1)
            x = torch.relu(x) if at < last else x
        return x


def _rows_of(m: Messages, start: int, stop: int) -> Messages:
    """The messages into the receivers start ... stop-1; without the way back, which inference does not take."""
    if start == 0 and stop == m.receivers:
        return m
    low, high = int(m.indptr[start]), int(m.indptr[stop])
    none = m.src[:0]
    indptr = m.indptr[start : stop + 1] - low
    return Messages(indptr, m.src[low:high], m.dst[low:high] - start, m.weight[:, low:high], none, none, none)
