"""Amplitudes and phases of all nodes, and what they say about pairs."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from offprints import checkpoint
from offprints.checks import require_choice, require_range, require_shape

from duplex_embed._version import DIST, VERSION
from duplex_embed.decoder import hermitian_decode, type_logits
from duplex_embed.graph import Graph
from duplex_embed.pairs import BOTH, FORWARD, NONE, REVERSE

TASKS = ("existence", "direction", "three", "type")


@dataclass(frozen=True)
class Embedding:
    """x_u = a_u exp(i th_u) of every node.

    Attributes:
        amplitude: (n, d) a, any real numbers.
        phase: (n, d) th, radians.
        names: the user's names of the nodes, or None.
        classes: 4 types of pairs, or 5 in signed graphs.
        norm: "l2" or "l1", of the distance to the targets.
        temperature: the logits are divided by it (see `calibrate`).
    """

    amplitude: torch.Tensor
    phase: torch.Tensor
    names: tuple[Hashable, ...] | None = None
    classes: int = 4
    norm: str = "l2"
    temperature: float = 1.0

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self.amplitude)

    def pairs(self, pairs: "torch.Tensor | np.ndarray | Sequence[tuple[Hashable, Hashable]]") -> torch.Tensor:
        """(m, 2) node indices; see `Graph.indices`."""
        return Graph(torch.empty(2, 0, dtype=torch.int64), self.num_nodes, names=self.names).indices(pairs)

    def logits(self, pairs: "torch.Tensor | np.ndarray | Sequence[tuple[Hashable, Hashable]]") -> torch.Tensor:
        """(m, classes) logits of the types."""
        u, v = self.pairs(pairs).to(self.amplitude.device).t()
        re, im, _ = hermitian_decode(self.amplitude, self.phase, u, v)
        return type_logits(re, im, self.norm, self.classes) / self.temperature

    def predict_edges(
        self, pairs: "torch.Tensor | np.ndarray | Sequence[tuple[Hashable, Hashable]]", task: str = "type"
    ) -> np.ndarray:
        """Probabilities of the pairs (u, v).

        Args:
            pairs: m pairs: an array of indices, or a sequence of names.
            task: "existence": of an edge u->v, forward or both (m,). "direction": of u->v, given that there is one
                edge (m,). "three": (m, 3) reverse, forward, none. "type": (m, 4) reverse, forward, both, none (and
                negative, in signed graphs).

        Raises:
            ValueError: if the task is unknown, or a pair is not of two nodes of the graph.
        """
        require_choice("task", task, TASKS)
        logits = self.logits(pairs)
        if task == "direction":
            return torch.sigmoid(logits[:, FORWARD] - logits[:, REVERSE]).cpu().numpy()
        if task == "three":
            return torch.softmax(logits[:, [REVERSE, FORWARD, NONE]], 1).cpu().numpy()
        p = torch.softmax(logits, 1)
        return (p if task == "type" else p[:, FORWARD] + p[:, BOTH]).cpu().numpy()

    def concatenated(self) -> torch.Tensor:
        """(n, 2d) amplitudes beside phases: features for other models (paper, § experiments)."""
        return torch.cat((self.amplitude, self.phase), 1)

    def to_source_target(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Real vectors (n, 2d) whose inner products are the decoder's, for any nearest-neighbour index.

        With source_u = [a sin th, -a cos th] and target_u = [a cos th, a sin th]: source_u . target_v = im_uv, which is
        1 for an edge u->v alone, and target_u . target_v = re_uv, which is 1 for edges both ways.
        """
        a, th = self.amplitude, self.phase
        cos, sin = a * torch.cos(th), a * torch.sin(th)
        return torch.cat((sin, -cos), 1), torch.cat((cos, sin), 1)

    def top_targets(self, nodes: torch.Tensor, k: int = 10, shortlist: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
        """The k most probable targets of each node.

        Inner products with im and with re make a shortlist each, the probability of an edge u->v orders it. Exact when
        `shortlist` is n or more.

        Args:
            nodes: (s,) node indices.
            k: targets per node.
            shortlist: candidates per node and product.

        Returns:
            targets (s, k) and probabilities (s, k), descending; -1 and 0 where there are fewer than k nodes.
        """
        require_shape("nodes", nodes, (None,))
        require_range("k", k, low=1, integer=True)
        require_range("shortlist", shortlist, low=k, integer=True, because="it holds the k that are returned")
        source, target = self.to_source_target()
        found, sure = torch.full((len(nodes), k), -1), torch.zeros(len(nodes), k, dtype=source.dtype)
        for row, u in enumerate(nodes.tolist()):
            most = min(shortlist, self.num_nodes)
            near = [(side[u] @ target.t()).topk(most).indices for side in (source, target)]
            rivals = torch.cat(near).unique()
            rivals = rivals[rivals != u].cpu()
            if len(rivals):
                p = self.predict_edges(torch.stack((torch.full_like(rivals, u), rivals), 1), "existence")
                best = torch.from_numpy(p).topk(min(k, len(rivals)))
                found[row, : len(best.indices)] = rivals[best.indices]
                sure[row, : len(best.indices)] = best.values.to(sure.dtype)
        return found, sure

    def save(self, path: str | Path) -> Path:
        """Write `<path>.safetensors` and `<path>.json`."""
        config = {"names": require_saveable(self.names), "classes": self.classes, "norm": self.norm}
        config |= {"temperature": self.temperature, "kind": "embedding"}
        tensors = {"amplitude": self.amplitude, "phase": self.phase}
        return checkpoint.save(path, tensors, method=DIST, version=VERSION, config=config)

    @classmethod
    def load(cls, path: str | Path) -> "Embedding":
        """Read what `save` wrote, to the bit."""
        found = checkpoint.load(path, method=DIST, framework="torch")
        config = dict(found.config)
        if config.pop("kind", None) != "embedding":
            raise ValueError(f"{path} must hold an embedding, got another file of {DIST}. Try DUPLEX.load.")
        names = config.pop("names")
        return cls(**found.tensors, names=None if names is None else tuple(names), **config)  # type: ignore[bad-argument-type]


def require_saveable(names: tuple[Hashable, ...] | None) -> list[str | int] | None:
    """Names as JSON gives them back.

    Raises:
        ValueError: if a name is neither text nor an integer.
    """
    if names is None:
        return None
    kept = [int(name) if isinstance(name, np.integer) else name for name in names]
    bad = next((name for name in kept if not isinstance(name, str | int) or isinstance(name, bool)), None)
    if bad is not None:
        raise ValueError(f"names of nodes must be text or integers to be saved, got {bad!r}. Rename them before.")
    return kept  # type: ignore[bad-return]
