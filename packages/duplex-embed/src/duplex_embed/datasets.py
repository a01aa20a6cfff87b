"""Directed graphs that anyone can rebuild: imports of Python packages, citation-shaped and block-model generators."""

import ast
import importlib.util
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from offprints import checkpoint
from offprints.checks import require_choice, require_range
from offprints.seeding import rng

from duplex_embed._version import DIST, VERSION
from duplex_embed.graph import Graph, as_graph

SHIPPED = ("sympy", "networkx")
FEATURES = 512
MIN_CLASS = 20
FLOWS = ("cyclic", "hierarchical")


def import_graph(package: str, *, parse: bool = False) -> Graph:
    """Who imports whom in a Python package: an edge from the importing module to the imported one.

    Features: which of 512 identifiers of middling frequency a module holds. Labels: the sub-package, -1 for those of
    fewer than 20 modules.

    Args:
        package: "sympy" or "networkx" (edge lists of one version ship with this package, so that results stay the
            same), or any installed package, whose sources are then parsed (about 7 s per 1000 modules).
        parse: parse the installed version of those two as well.

    Raises:
        ValueError: if it is not installed, or a single module.
    """
    if package in SHIPPED and not parse:
        return _read(Path(__file__).parent / "data" / package)
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"package must be an installed package with modules in it, got {package!r}.")
    return _parse(package, Path(next(iter(spec.submodule_search_locations))))


def _parse(package: str, root: Path) -> Graph:
    files = {}
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root).with_suffix("").parts
        files[".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = file
    names = sorted(files)
    place = {name: at for at, name in enumerate(names)}
    edges, words = [], []
    for name in names:
        try:
            tree = ast.parse(files[name].read_text("utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            tree = ast.Module([], [])
        inside = name if files[name].name == "__init__.py" else name.rpartition(".")[0]
        edges += [(place[name], place[other]) for other in _imported(tree, inside, place) if other != name]
        words.append(_identifiers(tree))
    groups = [name.split(".")[1] if "." in name else "" for name in names]
    large = sorted(group for group, count in Counter(groups).items() if count >= MIN_CLASS and group)
    y = torch.tensor([large.index(group) if group in large else -1 for group in groups])
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    return as_graph(index, num_nodes=len(names), x=_presence(words), y=y, names=names)


def _imported(tree: ast.AST, inside: str, known: dict[str, int]) -> Iterator[str]:
    """The modules of the package that a source imports; `inside` is the package that relative imports start from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = inside.split(".")
            above = above[: len(above) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                if full in known or base in known:
                    yield full if full in known else base


def _identifiers(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
    return found


def _presence(words: list[set[str]]) -> torch.Tensor:
    """(n, 512) of 0 and 1: the identifiers that stand in at most a quarter of the modules, the most frequent ones."""
    counts = Counter(word for each in words for word in each)
    middling = [word for word in counts if counts[word] <= len(words) / 4]
    chosen = sorted(middling, key=lambda word: (-counts[word], word))[:FEATURES]
    place = {word: at for at, word in enumerate(chosen)}
    x = torch.zeros(len(words), FEATURES)
    for row, each in enumerate(words):
        x[row, [place[word] for word in each if word in place]] = 1
    return x


def write_import_graph(package: str, path: str | Path) -> Path:
    """Parse an installed package and keep edges, names, labels and features (one bit each) as safetensors and JSON."""
    graph = import_graph(package, parse=True)
    bits = np.packbits(graph.x.numpy().astype(bool), axis=1)  # type: ignore[missing-attribute]
    tensors = {"edge_index": graph.edge_index.numpy().astype(np.int32), "y": graph.y.numpy().astype(np.int16)}  # type: ignore[missing-attribute]
    config = {"kind": "dataset", "names": list(graph.names or ()), "package": package, "of": version(package)}
    return checkpoint.save(path, tensors | {"x": bits}, method=DIST, version=VERSION, config=config)


def _read(path: Path) -> Graph:
    found = checkpoint.load(path, method=DIST)
    names = found.config["names"]
    x = np.unpackbits(found.tensors["x"], axis=1, count=FEATURES).astype(np.float32)  # type: ignore[no-matching-overload]
    index, y = (torch.as_tensor(found.tensors[name].astype(np.int64)) for name in ("edge_index", "y"))  # type: ignore[missing-attribute]
    return as_graph(index, num_nodes=len(names), x=x, y=y, names=names)  # type: ignore[bad-argument-type]


def citation_graph(
    n: int = 3300,
    edges_per_node: float = 1.4,
    communities: int = 6,
    within: float = 0.9,
    reciprocal: float = 0.01,
    seed: int = 0,
) -> Graph:
    """A graph shaped like citations: every node cites earlier ones, more cited ones rather, mostly of its community.

    Node t draws 1 + Poisson(edges_per_node - 1) different earlier nodes, each with probability proportional to 1 + its
    in-degree, with probability `within` from its own community; a small share of citations is returned.

    Args:
        n: nodes, in order of time.
        edges_per_node: mean number of citations made (those of the first nodes are fewer).
        communities: their number; labels y.
        within: share of citations inside the community.
        reciprocal: share of citations that are returned.
        seed: of the graph.
    """
    require_range("n", n, low=2, integer=True)
    require_range("edges_per_node", edges_per_node, low=1)
    require_range("communities", communities, low=1, integer=True)
    for name, share in {"within": within, "reciprocal": reciprocal}.items():
        require_range(name, share, low=0, high=1)
    generator = rng(seed)
    group = generator.integers(0, communities, n)
    pools: list[list[int]] = [[] for _ in range(communities + 1)]  # a node stands in it 1 + in-degree times
    edges = []
    for t in range(n):
        cited: set[int] = set()
        for _ in range(1 + generator.poisson(edges_per_node - 1)):
            own, everyone = pools[group[t]], pools[communities]
            pool = own if own and generator.random() < within else everyone
            if pool:
                cited.add(pool[generator.integers(len(pool))])
        for v in sorted(cited):
            edges.append((t, v))
            pools[group[v]].append(v)
            pools[communities].append(v)
            if generator.random() < reciprocal:
                edges.append((v, t))
        pools[group[t]].append(t)
        pools[communities].append(t)
    index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t()
    return as_graph(index, num_nodes=n, y=torch.from_numpy(group))


def directed_sbm(
    n: int = 600,
    blocks: int = 4,
    p: float = 0.05,
    q: float = 0.01,
    direction_bias: float = 0.9,
    flow: str = "cyclic",
    seed: int = 0,
) -> Graph:
    """Directed stochastic block model: pairs are joined with probability p within a block and q across.

    A joined pair of different blocks points with the flow with probability `direction_bias`: from block b to b + 1
    (mod blocks) when cyclic, from the lower to the higher block when hierarchical. Elsewhere the direction is a coin's.

    Args:
        n: nodes.
        blocks: k; labels y.
        p: within.
        q: across.
        direction_bias: share of edges across that go with the flow.
        flow: "cyclic" or "hierarchical".
        seed: of the graph.
    """
    require_range("n", n, low=1, integer=True)
    require_range("blocks", blocks, low=1, integer=True)
    for name, share in {"p": p, "q": q, "direction_bias": direction_bias}.items():
        require_range(name, share, low=0, high=1)
    require_choice("flow", flow, FLOWS)
    generator = rng(seed)
    group = generator.integers(0, blocks, n)
    u, v = np.triu_indices(n, 1)
    joined = generator.random(len(u)) < np.where(group[u] == group[v], p, q)
    u, v = u[joined], v[joined]
    step = (group[v] - group[u]) % blocks
    along = step == 1 if flow == "cyclic" else group[v] > group[u]
    against = step == blocks - 1 if flow == "cyclic" else group[v] < group[u]
    if blocks == 2 and flow == "cyclic":
        along, against = group[v] > group[u], group[v] < group[u]
    chance = np.where(along, direction_bias, np.where(against, 1 - direction_bias, 0.5))
    ahead = generator.random(len(u)) < chance
    index = torch.from_numpy(np.stack((np.where(ahead, u, v), np.where(ahead, v, u))))
    return as_graph(index, num_nodes=n, y=torch.from_numpy(group))


def random_dag(n: int = 500, degree: float = 4.0, seed: int = 0) -> Graph:
    """A random directed acyclic graph: about `degree` edges a node, all from earlier to later in a random order."""
    require_range("n", n, low=1, integer=True)
    require_range("degree", degree, low=0)
    generator = rng(seed)
    order = generator.permutation(n)
    u, v = np.sort(generator.integers(0, n, (2, round(n * degree))), axis=0)
    return as_graph(torch.from_numpy(np.stack((order[u], order[v]))), num_nodes=n)


def tournament(n: int = 60, upset: float = 0.1, seed: int = 0) -> Graph:
    """Every pair has one edge: from the stronger to the weaker (0 is the strongest), turned with chance `upset`."""
    require_range("n", n, low=1, integer=True)
    require_range("upset", upset, low=0, high=1)
    u, v = np.triu_indices(n, 1)
    turned = rng(seed).random(len(u)) < upset
    return as_graph(torch.from_numpy(np.stack((np.where(turned, v, u), np.where(turned, u, v)))), num_nodes=n)
