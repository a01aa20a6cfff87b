"""For torch_geometric: the weighted attention as a `MessagePassing` layer, one channel, to build models with."""

import math
import warnings
from typing import Optional

import torch
from offprints.checks import require_range, require_shape
from torch import Tensor

from duplex_embed.attention import SLOPE

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # torch_geometric scripts some of its own classes
    from torch_geometric.nn import MessagePassing
    from torch_geometric.typing import OptTensor
    from torch_geometric.utils import softmax


class WeightedGATConv(MessagePassing):
    """out_v = sum over messages u->v of alpha_uv w_uv W x_u + b, the weights behind the softmax (paper, § encoder).

    alpha is the softmax over the messages into v of LeakyReLU_0.2(a_src . W x_u + a_dst . W x_v). With weights of 1 it
    is `torch_geometric.nn.GATConv(add_self_loops=False)`. `DualGATLayer` does both channels at once, faster.

    Args:
        in_channels: f.
        out_channels: o, of one head.
        heads: H.
        concat: join the heads instead of averaging them.
        generator: draws the weights (Xavier normal, gain sqrt 2; bias 0).
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ValueError: if a size is below 1.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int = 1,
        concat: bool = True,
        *,
        generator: torch.Generator | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(aggr="add", node_dim=0)
        for name, value in {"in_channels": in_channels, "out_channels": out_channels, "heads": heads}.items():
            require_range(name, value, low=1, integer=True)
        self.in_channels, self.out_channels, self.heads, self.concat = in_channels, out_channels, heads, concat
        where = {"device": device, "dtype": dtype}
        self.weight = torch.nn.Parameter(torch.empty(in_channels, heads * out_channels, **where))
        self.att_src = torch.nn.Parameter(torch.empty(1, heads, out_channels, **where))
        self.att_dst = torch.nn.Parameter(torch.empty(1, heads, out_channels, **where))
        self.bias = torch.nn.Parameter(torch.empty(heads * out_channels if concat else out_channels, **where))
        self.reset_parameters(generator)

    @torch.no_grad()
    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights afresh."""
        total = self.heads * self.out_channels
        self.weight.normal_(0, math.sqrt(4 / (self.in_channels + total)), generator=generator)
        for part in (self.att_src, self.att_dst):
            part.normal_(0, math.sqrt(4 / (total + self.out_channels)), generator=generator)
        self.bias.zero_()

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """(n, H o), or (n, o) without `concat`.

        Args:
            x: (n, f).
            edge_index: (2, E) messages, sender above receiver.
            edge_weight: (E,) w; ones by default.

        Raises:
            ValueError: if shapes disagree.
        """
        require_shape("x", x, (None, self.in_channels))
        h = (x @ self.weight).unflatten(-1, (self.heads, self.out_channels))
        weight = h.new_ones(edge_index.shape[1]) if edge_weight is None else edge_weight
        require_shape("edge_weight", weight, (edge_index.shape[1],))
        scores = ((h * self.att_src).sum(-1), (h * self.att_dst).sum(-1))
        out = self.propagate(edge_index, x=h, left=scores[0], right=scores[1], weight=weight, size=(len(x), len(x)))
        return (out.flatten(1) if self.concat else out.mean(1)) + self.bias

    def message(  # type: ignore[bad-override]
        self,
        x_j: Tensor,
        left_j: Tensor,
        right_i: Tensor,
        weight: Tensor,
        index: Tensor,
        ptr: OptTensor,
        size_i: Optional[int],  # noqa: UP045 (torch_geometric reads these, and not `int | None`)
    ) -> Tensor:
        """Alpha w W x_u of each message, (E, H, o)."""
        score = torch.nn.functional.leaky_relu(left_j + right_i, SLOPE)
        return (softmax(score, index, ptr, size_i) * weight[:, None]).unsqueeze(-1) * x_j
