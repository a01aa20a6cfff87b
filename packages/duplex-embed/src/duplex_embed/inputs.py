"""What goes into the encoder where nodes have no features, and where they have (paper, § encoder)."""

import torch
from offprints.checks import require_choice, require_range, require_shape
from offprints.seeding import rng

from duplex_embed.graph import Graph
from duplex_embed.spectral import spectral_ham

INITS = ("degree", "normal", "spectral", "features")
NOISE = 0.1
"""Scale of the noise that tells nodes of equal degrees apart."""


def input_width(init: str, dim: int, features: int = 0) -> int:
    """Numbers per node and channel that `node_inputs` gives."""
    return {"degree": max(dim - 4, 4) + 4, "normal": dim, "spectral": dim, "features": features}[init]


def node_inputs(graph: Graph, init: str, dim: int, seed: int) -> torch.Tensor:
    """Inputs of both channels, (2, n, f) float32.

    Args:
        graph: n nodes; the degrees are those of the edges that carry messages.
        init: "degree": [0.1 noise, log(1 + in), log(1 + out), in > 0, out > 0], the noise its own in each channel and
            the same for the node at place u in every graph. "normal": N(0, 1) in each channel, as in the paper without
            features; not inductive. "spectral": amplitudes and phases of `spectral_ham`. "features": x in both
            channels.
        dim: d.
        seed: of the noise.

    Raises:
        ValueError: if features are asked for and there are none.
    """
    require_choice("init", init, INITS)
    require_range("dim", dim, low=1, integer=True)
    if init == "features":
        return graph.features().float().expand(2, -1, -1)
    if init == "spectral":
        found = spectral_ham(graph.carriers, dim)
        return torch.stack((found.amplitude, found.phase)).float()
    width = input_width(init, dim) - 4 * (init == "degree")
    noise = torch.from_numpy(rng(seed).standard_normal((graph.num_nodes, 2, width))).float().transpose(0, 1)
    if init == "normal":
        return noise.contiguous()
    into, out = (degree.float() for degree in graph.carriers.degrees())
    known = torch.stack((into.log1p(), out.log1p(), (into > 0).float(), (out > 0).float()), 1)
    return torch.cat((NOISE * noise, known.expand(2, -1, -1)), 2)


def require_features(graph: Graph, wanted: int) -> None:
    """Check that a graph has the features that the model was fitted on.

    Raises:
        ValueError: if there are none, or of another width.
    """
    if graph.x is None:
        raise ValueError(f"graph must have features x (n, {wanted}), as in training, got none.")
    require_shape("x", graph.x, (graph.num_nodes, wanted))
