"""What the paper compares with, where no library has it: source/target embeddings by SVD, HOPE and NERD."""

from dataclasses import dataclass

import numpy as np
import torch
from offprints.checks import require_choice, require_range
from offprints.seeding import rng
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import LinearOperator, splu, svds
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from duplex_embed.evaluation import COLUMNS, TASKS
from duplex_embed.graph import Graph, as_graph
from duplex_embed.pairs import BOTH, FORWARD, NONE, REVERSE, require_pairs
from duplex_embed.training import training_pairs


@dataclass(frozen=True)
class SourceTarget:
    """Two vectors a node: u->v has score s_u . t_v. A node without out-edges has s = 0, one without in-edges t = 0.

    Attributes:
        graph: the training graph.
        source: (n, d).
        target: (n, d).
    """

    graph: Graph
    source: torch.Tensor
    target: torch.Tensor

    def predict_edges(self, pairs: torch.Tensor, task: str = "type") -> np.ndarray:
        """(m,) scores: "existence" s_u . t_v, "direction" the same minus s_v . t_u.

        Raises:
            NotImplementedError: for types, which inner products alone do not tell; see `with_readout`.
        """
        require_choice("task", task, TASKS)
        u, v = require_pairs(pairs, self.graph.num_nodes).t()
        ahead = (self.source[u] * self.target[v]).sum(1)
        if task in COLUMNS:
            raise NotImplementedError("inner products of source and target vectors have no types; use with_readout.")
        return (ahead if task == "existence" else ahead - (self.source[v] * self.target[u]).sum(1)).numpy()


@dataclass(frozen=True)
class Readout:
    """Logistic regression of the four types on [s_u, t_u, s_v, t_v] of the training pairs."""

    base: SourceTarget
    regression: Pipeline

    @property
    def graph(self) -> Graph:
        """The training graph."""
        return self.base.graph

    def predict_edges(self, pairs: torch.Tensor, task: str = "type") -> np.ndarray:
        """Probabilities, as `Embedding.predict_edges` gives them."""
        require_choice("task", task, TASKS)
        p = np.zeros((len(pairs), 4))
        found = self.regression.predict_proba(pair_features(self.base, pairs))
        p[:, self.regression.classes_] = found
        return from_types(p, task)


def from_types(p: np.ndarray, task: str) -> np.ndarray:
    """What a task asks for, from (m, 4) probabilities of the types."""
    if task == "existence":
        return p[:, FORWARD] + p[:, BOTH]
    if task == "direction":
        return p[:, FORWARD] / np.maximum(p[:, FORWARD] + p[:, REVERSE], 1e-300)
    if task == "three":
        chosen = p[:, [REVERSE, FORWARD, NONE]]
        return chosen / np.maximum(chosen.sum(1, keepdims=True), 1e-300)
    return p


def pair_features(model: SourceTarget, pairs: torch.Tensor) -> np.ndarray:
    """(m, 4 d) what the read-out sees of each pair.

    Products s_u t_v are left out on purpose: they sum to 1 on training edges and nearly 0 on others, so that a
    regression leans on them and has nothing to go by on test edges (existence AUC near 0.6 on sympy's imports).
    """
    u, v = require_pairs(pairs, model.graph.num_nodes).t()
    s, t = model.source, model.target
    return torch.cat((s[u], t[u], s[v], t[v]), 1).numpy()


def with_readout(model: SourceTarget, seed: int = 0, neg_ratio: float = 1.0) -> Readout:
    """Train the logistic read-out on the training pairs and as many non-edges."""
    pairs, types = training_pairs(model.graph, neg_ratio, rng(seed))
    regression = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
    return Readout(model, regression.fit(pair_features(model, pairs), types.numpy()))


def adjacency(graph: Graph) -> sparse.csr_array:
    """(n, n) of 0 and 1: row u, column v for u->v."""
    u, v = graph.edge_index.numpy().astype(np.int32)  # older csgraph and SuperLU take no other
    return sparse.csr_array((np.ones(len(u)), (u, v)), shape=(graph.num_nodes,) * 2)


def _factored(graph: Graph, operator: object, dim: int) -> SourceTarget:
    """U sqrt(S) and V sqrt(S) of the d largest singular values."""
    n = graph.num_nodes
    kept = min(dim, n - 1)
    if kept < 1 or graph.num_edges == 0:
        return SourceTarget(graph, torch.zeros(n, dim), torch.zeros(n, dim))
    left, values, right = svds(operator, k=kept, v0=rng(0).normal(size=n))
    root = np.sqrt(np.maximum(values, 0))
    parts = [np.pad(part * root, ((0, 0), (0, dim - kept))) for part in (left, right.T)]
    return SourceTarget(graph, *(torch.from_numpy(part.astype(np.float32)) for part in parts))


def svd(data: object, dim: int = 32) -> SourceTarget:
    """Truncated singular value decomposition A = U S V^T: s = U sqrt(S), t = V sqrt(S)."""
    graph = as_graph(data)
    require_range("dim", dim, low=1, integer=True)
    return _factored(graph, adjacency(graph), dim)


def spectral_radius(matrix: sparse.csr_array) -> float:
    """Largest modulus of an eigenvalue of a non-negative matrix; 0 for an acyclic graph.

    Only edges inside strongly connected components count; there A + I is primitive, so that powers converge.
    """
    _, part = csgraph.connected_components(matrix, connection="strong")
    entries = matrix.tocoo()
    inside = part[entries.coords[0]] == part[entries.coords[1]]
    if not inside.any():
        return 0.0
    places = tuple(side[inside].astype(np.int32) for side in entries.coords)
    cycles = sparse.csr_array((entries.data[inside], places), shape=matrix.shape)
    x, growth = np.ones(matrix.shape[0]), 1.0  # type: ignore[unsupported-operation]
    for _ in range(200):
        x = cycles @ x + x
        growth = float(x.max())
        x /= growth
    return growth - 1


def hope(data: object, dim: int = 32, beta: float | None = None) -> SourceTarget:
    """HOPE: the same decomposition of the Katz matrix S = (I - beta A)^-1 beta A, never formed.

    Args:
        data: a graph of any kind.
        dim: d.
        beta: below 1 / spectral radius; 0.1 by default, or half of that limit where it is less.

    Raises:
        ValueError: if `beta` is at the limit or above, where the series diverges.
    """
    graph = as_graph(data)
    require_range("dim", dim, low=1, integer=True)
    a = adjacency(graph)
    radius = spectral_radius(a)
    limit = np.inf if radius == 0 else 1 / radius
    beta = min(0.1, limit / 2) if beta is None else beta
    require_range("beta", beta, low=0, low_open=True, high=limit, high_open=True, because="the Katz series converges")
    n = graph.num_nodes
    if n < 2:
        return _factored(graph, a, dim)
    solve = splu(sparse.csc_array(sparse.eye_array(n) - beta * a))
    katz = LinearOperator(  # type: ignore[missing-argument]
        (n, n),
        matvec=lambda x: solve.solve(beta * (a @ x)),  # type: ignore[unexpected-keyword]
        rmatvec=lambda x: beta * (a.T @ solve.solve(x, trans="T")),  # type: ignore[unexpected-keyword]
        dtype=np.float64,  # type: ignore[bad-keyword-argument]
    )  # pyrefly: ignore
    return _factored(graph, katz, dim)


def nerd(
    data: object,
    dim: int = 32,
    *,
    walks: int = 20,
    length: int = 5,
    negatives: int = 5,
    epochs: int = 3,
    batch_size: int = 4096,
    lr: float = 0.025,
    seed: int = 0,
) -> SourceTarget:
    """NERD: skip-gram on random walks that alternate between the source and the target role.

    A walk goes from a source along an out-edge to a target, back along an in-edge to a source, and so on. The first
    source is paired with the targets met, the first target with the sources; negatives are drawn by degree^0.75. The
    products estimate log(p_uv / (p_u p_v)) - log(negatives); one more coordinate takes the shift back, so that the 0 of
    a missing role stands for "no more than by chance".

    Args:
        data: a graph of any kind.
        dim: d.
        walks: per edge-weighted node: walks start at sources drawn by out-degree, `walks` n in all per epoch.
        length: targets (and sources) in a walk.
        negatives: per positive pair.
        epochs: passes.
        batch_size: walks in a step.
        lr: of Adam.
        seed: of walks and weights.
    """
    graph, generator = as_graph(data), rng(seed)
    for name, value in {"dim": dim, "walks": walks, "length": length, "negatives": negatives, "epochs": epochs}.items():
        require_range(name, value, low=1, integer=True)
    a = adjacency(graph)
    n, steps = graph.num_nodes, {"out": a, "in": sparse.csr_array(a.T)}
    weights = [torch.nn.Parameter(0.1 * torch.randn(n, dim, generator=rng(seed, "cpu"))) for _ in range(2)]
    degrees = [np.diff(steps[way].indptr) for way in ("out", "in")]
    optimizer = torch.optim.Adam(weights, lr=lr)
    noise = [np.cumsum(d**0.75) / max((d**0.75).sum(), 1e-300) for d in degrees]
    total = walks * n if graph.num_edges else 0
    for _ in range(epochs):
        starts = generator.integers(0, max(graph.num_edges, 1), total)
        for begin in range(0, total, batch_size):
            edges = graph.edge_index[:, torch.from_numpy(starts[begin : begin + batch_size])].numpy()
            loss = _walk_loss(edges, steps, weights, noise, length, negatives, generator)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    known = [torch.from_numpy(d > 0).float()[:, None] for d in degrees]
    shift = float(np.log(negatives)) ** 0.5
    parts = [torch.cat((weight.detach() * role, shift * role), 1) for weight, role in zip(weights, known, strict=True)]
    return SourceTarget(graph, *parts)


def _walk_loss(
    edges: np.ndarray,
    steps: dict[str, sparse.csr_array],
    weights: list[torch.nn.Parameter],
    noise: list[np.ndarray],
    length: int,
    negatives: int,
    generator: np.random.Generator,
) -> torch.Tensor:
    """Negative-sampling loss of walks that begin with these edges (2, w)."""
    first = [torch.from_numpy(side) for side in edges]
    now = list(edges)
    losses = []
    for _ in range(length):
        for role in (0, 1):  # the first node of this role, and one met in the other
            mine, met = weights[role][first[role]], weights[1 - role][torch.from_numpy(now[1 - role])]
            wrong = np.searchsorted(noise[1 - role], generator.random((len(mine), negatives)))
            against = weights[1 - role][torch.from_numpy(np.minimum(wrong, len(noise[0]) - 1))]
            losses.append(-torch.nn.functional.logsigmoid((mine * met).sum(1)).mean())
            losses.append(-torch.nn.functional.logsigmoid(-(mine[:, None] * against).sum(2)).sum(1).mean())
        now[0] = _step(steps["in"], now[1], generator)
        now[1] = _step(steps["out"], now[0], generator)
    return torch.stack(losses).sum() / (2 * length)


def _step(matrix: sparse.csr_array, nodes: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """A uniform neighbour of each node (which has one, as the walk came along it)."""
    start, count = matrix.indptr[nodes], np.diff(matrix.indptr)[nodes]
    return matrix.indices[start + (generator.random(len(nodes)) * count).astype(np.int64)].astype(np.int64)
