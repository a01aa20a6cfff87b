"""The message graph: who tells whom, with which weight in the amplitude and in the phase channel (paper, § encoder)."""

from dataclasses import dataclass

import numpy as np
import torch

from duplex_embed.graph import Graph, unordered

IN, RECIPROCAL, OUT, LOOP = range(4)
"""Where a message comes from: an in-neighbour, a neighbour both ways, an out-neighbour, the node itself."""


@dataclass(frozen=True)
class Messages:
    """Messages in rows by receiver (CSR), and the way back for the gradient.

    Attributes:
        indptr: (receivers + 1,) where the messages of each receiver start.
        src: (E,) senders.
        dst: (E,) receivers, ascending.
        weight: (2, E) w_am and w_ph.
        back_indptr: (senders + 1,) where the messages of each sender start in the transposed order.
        back_dst: (E,) receivers in that order.
        back_order: (E,) which message stands there.
    """

    indptr: torch.Tensor
    src: torch.Tensor
    dst: torch.Tensor
    weight: torch.Tensor
    back_indptr: torch.Tensor
    back_dst: torch.Tensor
    back_order: torch.Tensor

    @property
    def receivers(self) -> int:
        """How many nodes receive."""
        return len(self.indptr) - 1

    def to(self, device: torch.device | str, dtype: torch.dtype | None = None) -> "Messages":
        """The same on a device, its weights in a dtype."""
        moved = {name: value.to(device) for name, value in vars(self).items()}
        return Messages(**moved | {"weight": self.weight.to(device, dtype)})


def index_messages(
    edge_index: torch.Tensor, weight: torch.Tensor, senders: int, receivers: int | None = None
) -> Messages:
    """Order messages by receiver.

    Args:
        edge_index: (2, E) sender above receiver.
        weight: (2, E) w_am and w_ph.
        senders: number of nodes that may send.
        receivers: number of nodes that may receive; they are the first of the senders. All by default.
    """
    receivers = senders if receivers is None else receivers
    dst, order = torch.sort(edge_index[1], stable=True)
    ordered = torch.stack((edge_index[0].gather(0, order), dst))
    return by_receiver(ordered, weight.gather(1, order.expand(len(weight), -1)), senders, receivers)


def by_receiver(edge_index: torch.Tensor, weight: torch.Tensor, senders: int, receivers: int) -> Messages:
    """`index_messages` of messages whose receivers ascend."""
    src, dst = edge_index
    back_src, back_order = torch.sort(src, stable=True)
    return Messages(
        _starts(dst, receivers),
        src,
        dst,
        weight,
        _starts(back_src, senders),
        dst.gather(0, back_order),
        back_order,
    )


def _starts(rows: torch.Tensor, count: int) -> torch.Tensor:
    """(count + 1,) where each row starts."""
    sizes = rows.new_zeros(count + 1)
    return sizes.scatter_add(0, rows + 1, torch.ones_like(rows)).cumsum(0)


def message_edges(graph: Graph) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The messages of a graph.

    A one-way edge u->v sends u->v with weights (1, +1) and v->u with (1, -1): phases of in-neighbours are added, those
    of out-neighbours subtracted. A reciprocal pair sends both ways with (1, 0). Every node sends to itself with (1, 1).
    Edge weights scale the first by |w|; an edge of negative sign has phase weight 0, as its entry of H is real.

    Returns:
        edge_index: (2, M) sender above receiver, ascending by receiver, then kind, then sender.
        weight: (2, M) float32: w_am, w_ph.
        kind: (M,) `IN`, `RECIPROCAL`, `OUT` or `LOOP`, as the receiver sees it.
    """
    graph = graph.carriers
    u, v, one_way, w = unordered(graph)
    loops = np.arange(graph.num_nodes)
    directed = one_way & (w >= 0)
    phase = directed.astype(np.float32)
    kind = np.where(directed, IN, RECIPROCAL), np.where(directed, OUT, RECIPROCAL), np.full(len(loops), LOOP)
    ones = np.ones(len(loops), np.float32)
    src, dst, kinds = (np.concatenate(parts) for parts in ((u, v, loops), (v, u, loops), kind))
    order = np.argsort((dst * 4 + kinds) * len(loops) + src)  # by receiver, kind, sender; all keys differ
    weight = np.stack((np.concatenate((abs(w), abs(w), ones)), np.concatenate((phase, -phase, ones))))
    index = torch.from_numpy(np.stack((src, dst))[:, order])
    return index, torch.from_numpy(weight[:, order].astype(np.float32)), torch.from_numpy(kinds[order])


def message_graph(graph: Graph) -> Messages:
    """The messages of a graph in the order that the encoder works in."""
    edges, weight, _ = message_edges(graph)
    return index_messages(edges, weight, graph.num_nodes)
