"""The campaigns and probes that several claims share; each is computed once in a process."""

from functools import cache

import numpy as np
import torch
from offprints.claims import MissingResource, Scale
from offprints.seeding import rng

from knowrlm.benchmark import Campaign, run_campaign
from knowrlm.graph import AminoAcidGraph
from knowrlm.landscape import Landscape, Oracle, load_landscape
from knowrlm.landscapes import Ehrlich, aav, aav_effects, cr6261
from knowrlm.predictor import EnsemblePredictor
from knowrlm.settings import WalkSettings
from knowrlm.space import VariantSpace

WINDOWS = {"near": (1, 6), "mid": (7, 13), "far": (14, 19)}


@cache
def landscape_of(name: str, seed: int) -> Oracle:
    """The landscape of a seed: "aav-4", four AAV2 sites within 16 positions; "ehrlich-12-2-3"; "cr6261"; or a file.

    Raises:
        MissingResource: if the wheel or file that holds it is not here.
    """
    try:
        if name.startswith("aav"):
            gen = rng(seed)
            start = int(gen.integers(451, 525))
            sites = sorted(start + int(step) for step in gen.choice(16, size=int(name.split("-")[1]), replace=False))
            found = aav(sites)
            space = found.space.cropped(2)
            return Landscape(space, found.codes, found.fitness / found.maximum, found.name)
        if name == "cr6261":
            found = cr6261()
            lowest = found.fitness.min()
            scaled = (found.fitness - lowest) / (found.maximum - lowest)
            return Landscape(found.space.cropped(2), found.codes, scaled, found.name)
        if name.startswith("ehrlich"):
            length, motifs, each = map(int, name.split("-")[1:])
            return Ehrlich(length, motifs, each, seed=seed)
        return load_landscape(name)
    except FileNotFoundError as error:
        raise MissingResource(str(error)) from error


@cache
def campaign(
    name: str,
    method: str,
    seed: int,
    rounds: int,
    batch: int,
    steps: int,
    plm: str = "scales",
    adapt: int = 30,
    walks: int = 10,
) -> Campaign:
    """One method on one landscape; every method with ridge and extra trees on one-hot residues."""
    return run_campaign(
        method, landscape_of(name, seed), rounds=rounds, batch=batch, seed=seed,
        walk=WalkSettings(steps=steps, adapt=adapt, plm=plm, walks=walks),
        predictor=EnsemblePredictor(["ridge", "extra_trees"], top=2, random_state=seed),
    )  # fmt: skip


def metrics(methods: list[str], seed: int, scale: Scale) -> dict[str, float | list[float]]:
    """`top_<method>`, `max_<method>`, `final_<method>` over the landscape's maximum, and curves for figures."""
    options = {name: scale.sizes[name] for name in ("plm", "adapt", "walks") if name in scale.sizes}
    found: dict[str, float | list[float]] = {}
    peak = landscape_of(scale.landscape, seed).maximum
    for method in methods:
        run = campaign(scale.landscape, method, seed, scale.rounds, scale.batch, scale.steps, **options)
        relative = run.scores.normalized(peak)
        found |= {f"top_{method}": relative.top, f"max_{method}": relative.maximum, f"final_{method}": relative.final}
        if np.isfinite(relative.ndcg):
            found[f"ndcg_{method}"] = relative.ndcg
        found |= {f"curve_{method}": (run.top / peak).tolist(), f"best_{method}": (run.best / peak).tolist()}
        found["measured"] = run.measured.tolist()
    return found


def kept_fitness(landscape: Landscape, graph: AminoAcidGraph, best: int = 100) -> dict[str, float]:
    """Mean f(mutant) / f(parent) over all single substitutions of the `best` variants, by rank window, and overall."""
    parents = landscape.codes[np.argsort(-landscape.fitness, kind="stable")[:best]]
    ratios, ranks = [], []
    for parent in parents:
        mutants = landscape.space.neighbours(parent)
        own = landscape.measure(parent[None])[0]
        site = (mutants != parent).argmax(axis=1)
        ratios.append(landscape.measure(mutants) / own)
        ranks.append(graph.ranks[parent[site].astype(int), mutants[np.arange(len(mutants)), site].astype(int)])
    return by_window(np.concatenate(ratios), np.concatenate(ranks))


def by_window(ratio: np.ndarray, rank: np.ndarray) -> dict[str, float]:
    """Means of the measured ratios in each window of ranks, and over all."""
    there = np.isfinite(ratio)
    found = {name: float(ratio[there & (rank >= low) & (rank <= high)].mean()) for name, (low, high) in WINDOWS.items()}
    return found | {"overall": float(ratio[there].mean())}


def measured_block(block: int, blocks: int, graph: AminoAcidGraph) -> dict[str, float]:
    """`by_window` of the measured single substitutions of AAV2 at one of `blocks` equal stretches of the capsid.

    Raises:
        MissingResource: if the data are not here.
    """
    try:
        parent, effects = aav_effects()
    except FileNotFoundError as error:
        raise MissingResource(str(error)) from error
    rows = np.array_split(np.arange(len(parent)), blocks)[block]
    own = VariantSpace(parent, [1]).parent_codes[rows].astype(int)
    other = np.arange(20)[None] != own[:, None]
    return by_window((2.0 ** effects[rows])[other], graph.ranks[own][other])


def toy_gradients(seed: int, temperature: float = 0.5) -> tuple[float, float]:
    """Relative errors of the joint and the site-only estimator of ∇E[r], all actions of a small toy enumerated.

    Everything in the policy depends on a trained table of states.
    """
    from knowrlm.policy import KnowledgePolicy

    gen = rng(seed, "cpu")

    class States(torch.nn.Module):
        width = 3

        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(2, 21, 3, generator=gen, dtype=torch.float64))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return torch.stack([self.table[place][tokens[:, place]] for place in range(2)], dim=1)

    space = VariantSpace("AC", [1, 2], allowed="ACDE")
    policy = KnowledgePolicy(space, States(), finetune=True, temperature=temperature, dtype=torch.float64)
    actions = torch.tensor([(site, residue) for site in range(2) for residue in range(4) if residue != site])
    tokens = torch.tensor([0, 1]).repeat(len(actions), 1)
    allowed = (torch.arange(20) < 4).repeat(len(actions), 1)
    allowed[torch.arange(len(actions)), tokens.gather(1, actions[:, :1]).squeeze(1)] = False
    reward = torch.randn(len(actions), generator=gen, dtype=torch.float64)
    parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]

    def gradient(value: torch.Tensor) -> torch.Tensor:
        found = torch.autograd.grad(value, parameters, retain_graph=True, allow_unused=True)
        return torch.cat([part.flatten() for part in found if part is not None])

    joint, _, _ = policy.log_prob(tokens, actions[:, 0], actions[:, 1], allowed)
    site, _, _ = policy.log_prob(tokens, actions[:, 0], actions[:, 1], allowed, joint=False)
    chance = joint.exp()
    exact = gradient((chance * reward).sum())
    errors = [gradient((chance.detach() * log * reward).sum()) - exact for log in (joint, site)]
    return float(errors[0].norm() / exact.norm()), float(errors[1].norm() / exact.norm())
