"""Claims about exactness, unseen nodes, several tasks from one embedding, and size."""

import numpy as np
import torch
from offprints.claims import Scale, exact, greater, less, slope
from offprints.seeding import rng

from duplex_embed._method import METHOD
from duplex_embed.claims_links import Output, sizes_of
from duplex_embed.classifier import DUPLEXClassifier
from duplex_embed.decoder import hermitian_decode
from duplex_embed.evaluation import evaluate
from duplex_embed.experiments import graph_of, plain_labels, split_of, tuned_duplex
from duplex_embed.graph import as_graph, hermitian_adjacency
from duplex_embed.pairs import NONE, pair_types
from duplex_embed.probe import cost_in_fresh_process
from duplex_embed.readout import EmbeddingClassifier, macro_f1
from duplex_embed.spectral import spectral_ham
from duplex_embed.splits import split_nodes

SETTINGS = ((1e-2, 1e-2), (1e-2, 5e-4))


@METHOD.claim(
    "exact-embedding",
    where="Section on the Hermitian adjacency matrix",
    says="Amplitudes and phases that give back every entry of the Hermitian adjacency matrix exist for every graph.",
    expect=[exact("error", tol=1e-10), exact("wrong_types")],
    smoke=Scale(2, nodes=20),
    cpu=Scale(8, nodes=200),
    full=Scale(8, needs="minutes on a CPU", nodes=2000),
    tolerance=1e3,
)
def exact_embedding(seed: int, scale: Scale, device: str) -> Output:
    """A random graph with one-way edges, reciprocal pairs, self loops and duplicates."""
    n, generator = scale.nodes, rng(seed)
    graph = as_graph(torch.from_numpy(generator.integers(0, n, (2, n * n // 4))), num_nodes=n)
    found = spectral_ham(graph)
    pairs = torch.from_numpy(np.stack(np.triu_indices(n, 1), 1))
    re, im, _ = hermitian_decode(found.amplitude, found.phase, *pairs.t())
    h = hermitian_adjacency(graph).toarray()[tuple(pairs.t().numpy())]
    wrong = found.logits(pairs).argmax(1) != pair_types(graph.edge_index, pairs, n)
    return {"error": float(np.abs(re.numpy() + 1j * im.numpy() - h).max()), "wrong_types": float(wrong.sum())}


@METHOD.claim(
    "unseen-nodes",
    where="Section of experiments, inductive node classification",
    says="Trained end to end without a fifth of the nodes, it labels these better than a network on features alone.",
    expect=[greater("duplex_f1", "mlp_f1", by=0.05)],
    smoke=Scale(1, nodes=400, dim=8, epochs=5),
    cpu=Scale(5, nodes=10_000, dim=64, epochs=100),
    full=Scale(5, needs="one GPU, minutes", nodes=10_000, dim=128, epochs=1000),
    tolerance=0.05,
    note="An undirected GCN of the same budget and size is better than both here (gcn_f1 in claims.json).",
)
def unseen_nodes(seed: int, scale: Scale, device: str) -> Output:
    """Macro-F1 on the test nodes of sympy's imports; the same settings, epochs and parameters (within 10 %) for all."""
    graph = graph_of("sympy", 0, scale.nodes)
    split = split_nodes(graph, seed=seed)
    inside = split.train | split.val
    part, masks = graph.subgraph(inside), (split.train[inside], split.val[inside])
    y = graph.labels()
    test, classes = split.test & (y >= 0), int(y.max()) + 1
    models = [
        DUPLEXClassifier(classes, dim=scale.dim, lr=lr, weight_decay=decay, random_state=seed, device=device).fit(
            part, *masks, epochs=scale.epochs
        )
        for lr, decay in SETTINGS
    ]
    ours = max(models, key=lambda model: max(model.history_))
    count = sum(p.numel() for module in (ours.encoder_, ours.linear_) for p in module.parameters())
    hidden = round((count - classes) / (graph.features().shape[1] + classes + 1))
    found: Output = {"duplex_f1": macro_f1(y[test], ours.predict(graph)[test.numpy()])}
    for kind in ("mlp", "gcn"):
        labels = plain_labels(kind, part, masks, graph, hidden, SETTINGS, scale.epochs, seed)
        found[f"{kind}_f1"] = macro_f1(y[test], labels[test.numpy()])
    return found


@METHOD.claim(
    "one-embedding",
    where="Abstract, section of experiments",
    says="One embedding, trained on links alone, serves existence, direction, types, and labels of nodes.",
    expect=[
        greater("ep", 0.5), greater("dp", 0.5), greater("type3", 1 / 3), greater("type4", 1 / 4),
        greater("f1", "majority_f1", by=0.2),
    ],
    smoke=Scale(1, nodes=400, dim=8, epochs=3, label_epochs=5),
    cpu=Scale(5, nodes=10_000, dim=32, epochs=150, label_epochs=1000),
    full=Scale(3, needs="one GPU, about an hour", nodes=10_000, dim=128, epochs=3000, label_epochs=1000),
    tolerance=0.05,
    note=(
        "Above the trivial level in everything; labels at the margin of 0.2 that was asked for (0.24 against 0.01, in "
        "24 classes and from links alone; two of five seeds below)."
    ),
)  # fmt: skip
def one_embedding(seed: int, scale: Scale, device: str) -> Output:
    """Sympy's imports; with the training curves and decoded pairs for the figures."""
    split, graph = split_of("sympy", seed, scale.nodes), graph_of("sympy", seed, scale.nodes)
    model = tuned_duplex("sympy", seed, sizes_of(scale), device)
    report, embedding = evaluate(model, split.test), model.embed()
    nodes = split_nodes(graph, seed=seed)
    labels = EmbeddingClassifier(random_state=seed)
    labels.fit(embedding, graph.labels(), nodes.train, nodes.val, epochs=scale.label_epochs)
    known = graph.labels() >= 0
    test = nodes.test & known
    y, common = graph.labels()[test], int(graph.labels()[nodes.train & known].mode().values)
    chosen = torch.cat([(split.test.types == kind).nonzero().squeeze(1)[:150] for kind in range(NONE + 1)])
    re, im, _ = hermitian_decode(embedding.amplitude, embedding.phase, *split.test.pairs[chosen].t())
    return {
        "ep": report["ep_auc"], "dp": report["dp_auc"], "type3": report["type3_accuracy"],
        "type4": report["type4_accuracy"], "f1": macro_f1(y, labels.predict(embedding)[test.numpy()]),
        "majority_f1": macro_f1(y, np.full(len(y), common)), "curve_ce": model.history_.ce,
        # pyrefly: ignore[bad-assignment]
        "curve_bce": model.history_.bce, "curve_checked": model.history_.checked, "curve_val": model.history_.val,
        "pair_re": re.tolist(), "pair_im": im.tolist(), "pair_type": split.test.types[chosen].tolist(),
    }  # fmt: skip


@METHOD.claim(
    "scaling",
    where="Section on complexity",
    says="Time and memory of an epoch grow linearly with the number of edges, up to a million.",
    expect=[
        slope({1.0: "seconds_1", 4.0: "seconds_4", 16.0: "seconds_16"}, 0.75, 1.16),
        slope({1.0: "mebibytes_1", 4.0: "mebibytes_4", 16.0: "mebibytes_16"}, 0.75, 1.16),
        less("ratio_of_time", 5.0),
    ],
    smoke=Scale(1, edges=500, dim=8),
    cpu=Scale(5, edges=62_500, dim=16),
    full=Scale(5, needs="32 GiB of memory", edges=625_000, dim=16),
    tolerance=10.0,
    note=(
        "Measured with nothing else running; beside other work the exponent of time was 1.16 [1.10, 1.22] and four "
        "times the edges took 5.0 times as long, which left it open: beyond the caches, looking up nodes at random is "
        "dearer."
    ),
)
def scaling(seed: int, scale: Scale, device: str) -> Output:
    """One epoch and one embedding of random acyclic graphs with 4 edges a node, of E, 4 E and 16 E edges.

    Each size in a new process, for the memory's sake; seconds of the processor, all threads together.
    """
    found: Output = {}
    for times in (1, 4, 16):
        spent = cost_in_fresh_process(times * scale.edges, scale.dim, seed)
        found |= {f"{what}_{times}": value for what, value in spent.items()}
    found["ratio_of_time"] = (found["seconds_16"] / found["seconds_1"]) ** 0.5  # type: ignore[unsupported-operation]
    return found
