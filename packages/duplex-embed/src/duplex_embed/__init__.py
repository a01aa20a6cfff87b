"""Inductive complex embeddings of directed graphs: is there a link, in which direction, or both ways.

From "DUPLEX: Dual GAT for Complex Embedding of Directed Graphs" (ICML 2024): every node gets amplitudes and phases from
two graph attention networks; the Hermitian product of two nodes says whether they are joined and how, for seen and
unseen nodes, without trained decoders.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from duplex_embed._version import VERSION as __version__
from duplex_embed.decoder import duplex_loss, hermitian_decode, type_logits
from duplex_embed.embedding import Embedding
from duplex_embed.encoder import DualGATEncoder, DualGATLayer
from duplex_embed.graph import Graph, as_graph, from_networkx, from_pyg, hermitian_adjacency
from duplex_embed.messages import message_edges
from duplex_embed.pairs import pair_types
from duplex_embed.readers import read_edges, read_graph, read_konect, read_npz, read_snap
from duplex_embed.sampling import Neighborhood, NeighborSampler
from duplex_embed.splits import LinkSplit, NodeSplit, PairSet, split_edges, split_nodes

if TYPE_CHECKING:
    from duplex_embed import baselines, datasets, peers, plots
    from duplex_embed.classifier import DUPLEXClassifier
    from duplex_embed.evaluation import LinkReport, degree_buckets, evaluate, link_tasks
    from duplex_embed.model import DUPLEX, NotInductiveError
    from duplex_embed.pyg import WeightedGATConv
    from duplex_embed.readout import EmbeddingClassifier
    from duplex_embed.spectral import spectral_ham
    from duplex_embed.training import CollapseWarning, History

__all__ = [
    "DUPLEX",
    "CollapseWarning",
    "DUPLEXClassifier",
    "DualGATEncoder",
    "DualGATLayer",
    "Embedding",
    "EmbeddingClassifier",
    "Graph",
    "History",
    "LinkReport",
    "LinkSplit",
    "NeighborSampler",
    "Neighborhood",
    "NodeSplit",
    "NotInductiveError",
    "PairSet",
    "WeightedGATConv",
    "__version__",
    "as_graph",
    "baselines",
    "datasets",
    "degree_buckets",
    "duplex_loss",
    "evaluate",
    "from_networkx",
    "from_pyg",
    "hermitian_adjacency",
    "hermitian_decode",
    "link_tasks",
    "message_edges",
    "pair_types",
    "peers",
    "plots",
    "read_edges",
    "read_graph",
    "read_konect",
    "read_npz",
    "read_snap",
    "spectral_ham",
    "split_edges",
    "split_nodes",
    "type_logits",
]

_LATER = {
    "CollapseWarning": "training",
    "DUPLEX": "model",
    "DUPLEXClassifier": "classifier",
    "EmbeddingClassifier": "readout",
    "History": "training",
    "LinkReport": "evaluation",
    "NotInductiveError": "model",
    "WeightedGATConv": "pyg",
    "degree_buckets": "evaluation",
    "evaluate": "evaluation",
    "link_tasks": "evaluation",
    "spectral_ham": "spectral",
}
"""Names whose modules import scikit-learn or torch_geometric (seconds): loaded on first use."""


def __getattr__(name: str) -> object:
    if name in ("baselines", "datasets", "peers", "plots"):
        return import_module(f"{__name__}.{name}")
    if name in _LATER:
        value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
