"""Neighbour sampling for graphs that do not fit, by direction (beyond the paper, § complexity).

A hub keeps neighbours of both kinds.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from offprints.checks import require_kind, require_range

from duplex_embed.graph import as_graph
from duplex_embed.messages import LOOP, OUT, RECIPROCAL, Messages, by_receiver, message_edges

if TYPE_CHECKING:
    from torch_geometric.data import Data


@dataclass(frozen=True)
class Neighborhood:
    """What L layers need to embed some nodes.

    Attributes:
        nodes: (k,) node indices in the whole graph; the seeds come first.
        seeds: how many they are.
        messages: one for each layer, from the outside in; numbers are places in `nodes`.
    """

    nodes: torch.Tensor
    seeds: int
    messages: list[Messages]

    def to_pyg(self) -> "Data":
        """The outermost messages as `torch_geometric.data.Data`: `n_id`, `batch_size`, `edge_index`, `edge_attr`."""
        from torch_geometric.data import Data

        outer = self.messages[0]
        index = torch.stack((outer.src, outer.dst))
        size = {"num_nodes": len(self.nodes), "batch_size": self.seeds}
        return Data(edge_index=index, edge_attr=outer.weight.t(), n_id=self.nodes, **size)


class NeighborSampler:
    """Draws, for each layer, at most `fanout` neighbours of every node that is still needed.

    A node hears from at most k_in of its in-neighbours and k_out of its out-neighbours, drawn without replacement and
    separately (a neighbour both ways may be drawn as either), and from itself. Weights are not rescaled: attention
    normalises. Time O(nodes k^2), whatever the degrees; no loop over nodes.

    Args:
        data: a graph of any kind.
        layers: L of the encoder.
        fanout: (k_in, k_out), or one such pair for each layer from the outside in; None takes all neighbours.

    Raises:
        ValueError: if a fan-out is below 1, or there is not one for each layer.
    """

    def __init__(
        self, data: object, layers: int, fanout: tuple[int, int] | Sequence[tuple[int, int]] | None = None
    ) -> None:
        self.layers = int(require_range("layers", layers, low=1, integer=True))
        self.fanouts: list[tuple[int, int] | None] = [None] * layers
        if fanout is not None:
            require_kind("fanout", fanout, Sequence, hint="Give (k_in, k_out).")
            each = [fanout] * layers if isinstance(fanout[0], int | np.integer) else list(fanout)
            if len(each) != layers:
                raise ValueError(f"fanout must be one (k_in, k_out) or one for each of {layers} layers, got {fanout}.")
            for k in (k for pair in each for k in pair):  # type: ignore[not-iterable]
                require_range("fanout", k, low=1, integer=True)
            self.fanouts = [(int(a), int(b)) for a, b in each]  # type: ignore[not-iterable]
        graph = as_graph(data)
        edges, weight, kind = message_edges(graph)
        self.num_nodes, kinds = graph.num_nodes, kind.numpy()
        # what a message needs lies together, as its look-up costs more than all else on a large graph
        self._messages = np.column_stack((edges[0].numpy().astype(np.int32), weight.numpy().T.view(np.int32)))
        # by receiver the messages stand in the order in, both, out, itself: two overlapping slices
        key = edges[1].numpy() * 4 + kinds
        first = np.arange(self.num_nodes) * 4
        bounds = [np.searchsorted(key, first + k) for k in (0, RECIPROCAL, OUT, LOOP, LOOP + 1)]
        self._bounds = np.column_stack(bounds)

    def sample(self, seeds: torch.Tensor, generator: np.random.Generator | None = None) -> Neighborhood:
        """The neighbourhood of some different nodes.

        Args:
            seeds: (s,) node indices, each once.
            generator: draws the neighbours; only needed with a fan-out.

        Raises:
            ValueError: if neighbours are to be drawn without a generator.
        """
        if generator is None and any(self.fanouts):
            raise ValueError(
                "sample must be given a generator, since a fan-out is set. Pass numpy's default_rng(seed)."
            )
        nodes = seeds.cpu().numpy()
        place = np.full(self.num_nodes, -1)
        place[nodes] = np.arange(len(nodes))
        layers = []
        for fanout in reversed(self.fanouts):
            receivers = len(nodes)
            ids, dst = self._draw(nodes, fanout, generator)
            src, *weight = np.ascontiguousarray(self._messages.take(ids, axis=0).T)
            new = _distinct(src[place.take(src) < 0])
            place[new] = receivers + np.arange(len(new))
            nodes = np.concatenate((nodes, new))
            index = torch.from_numpy(np.stack((place.take(src), dst)))
            weights = torch.from_numpy(np.stack(weight).view(np.float32))
            layers.append(by_receiver(index, weights, len(nodes), receivers))
        return Neighborhood(torch.from_numpy(nodes), len(seeds), layers[::-1])

    def _draw(
        self, receivers: np.ndarray, fanout: tuple[int, int] | None, generator: np.random.Generator | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Indices of the messages that the receivers hear, and the places of the receivers, which ascend."""
        start, both, out, loop, end = self._bounds.take(receivers, axis=0).T
        who = np.arange(len(receivers))
        if fanout is None or generator is None:
            return _ranges(start, end - start), np.repeat(who, end - start)
        total = len(self._messages)
        into = _choose(start, out - start, fanout[0], generator, who * total)
        from_out = _choose(both, loop - both, fanout[1], generator, who * total)
        # a neighbour both ways may have been drawn twice
        dst, ids = np.divmod(_distinct(np.concatenate((into, from_out, who * total + loop))), total)
        return ids, dst


def _distinct(values: np.ndarray) -> np.ndarray:
    """Each value once, ascending; for few values quicker than `np.unique`, which hashes."""
    values = np.sort(values)
    return values[np.concatenate(([True], values[1:] != values[:-1]))] if len(values) else values


def _ranges(start: np.ndarray, count: np.ndarray) -> np.ndarray:
    """start, start + 1, ... of each, `count` of them, joined."""
    offset = np.concatenate(([0], np.cumsum(count)[:-1])) if len(count) else count
    return np.repeat(start - offset, count) + np.arange(int(count.sum()))


def _choose(
    start: np.ndarray, count: np.ndarray, k: int, generator: np.random.Generator, offset: np.ndarray
) -> np.ndarray:
    """At most k of each range without replacement, plus its offset: Floyd's algorithm, all ranges at once."""
    few = count <= k
    shifted = start + offset
    kept, many = _ranges(shifted[few], count[few]), count[~few]
    chosen = np.full((len(many), k), -1)
    for j in range(k):
        top = many - k + j
        guess = (generator.random(len(many)) * (top + 1)).astype(np.int64)
        taken = (chosen[:, :j] == guess[:, None]).any(1)
        chosen[:, j] = np.where(taken, top, guess)
    return np.concatenate((kept, (shifted[~few, None] + chosen).ravel()))
