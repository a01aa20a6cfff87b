"""Plates for directed evolution: a reinforced protein language model walks an amino-acid knowledge graph.

From "Knowledge-aware Reinforced Language Models for Protein Directed Evolution" (ICML 2024): the graph, the
preferential walk in a sliding window, PPO on a protein language model, an ensemble predictor as its reward, and the
loop of plates.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from knowrlm._version import VERSION as __version__

if TYPE_CHECKING:
    from knowrlm.benchmark import METHODS, Campaign, Evaluation, evaluate, run_campaign
    from knowrlm.constraints import PlateConstraints, codon_residues
    from knowrlm.encode import FeatureMap, additive_prediction
    from knowrlm.env import MutationEnv
    from knowrlm.evolve import DirectedEvolution
    from knowrlm.exports import distance_graph, learn_weights, ontology_graph, rank_graph, write_graphml
    from knowrlm.graph import AminoAcidGraph
    from knowrlm.landscape import Landscape, load_landscape
    from knowrlm.landscapes import Ehrlich, aav, aav_effects, cr6261, make_epistatic
    from knowrlm.measurements import MeasurementWarning, read_measurements
    from knowrlm.metrics import Scores, ndcg, scores
    from knowrlm.plm import EsmEncoder, OneHotEncoder, adapt, load_plm, scales_encoder
    from knowrlm.policy import KnowledgePolicy
    from knowrlm.ppo import PPO, PPOConfig, TrainingLog, advantages
    from knowrlm.predictor import EnsemblePredictor, predict_space
    from knowrlm.properties import Substitution, grantham_distances, substitution
    from knowrlm.report import EvolutionReport
    from knowrlm.sampling import ClusterSampler, farthest_first
    from knowrlm.sb3 import stable_baselines_ppo
    from knowrlm.scales import Scales, load_scales
    from knowrlm.scorer import StateBank, preferences
    from knowrlm.settings import WalkSettings
    from knowrlm.space import RESIDUES, VariantSpace
    from knowrlm.surrogate import Surrogate
    from knowrlm.unirep import UniRep, load_unirep
    from knowrlm.walk import Library, Walks
    from knowrlm.window import SlidingWindow

__all__ = [
    "METHODS",
    "PPO",
    "RESIDUES",
    "AminoAcidGraph",
    "Campaign",
    "ClusterSampler",
    "DirectedEvolution",
    "Ehrlich",
    "EnsemblePredictor",
    "EsmEncoder",
    "Evaluation",
    "EvolutionReport",
    "FeatureMap",
    "KnowledgePolicy",
    "Landscape",
    "Library",
    "MeasurementWarning",
    "MutationEnv",
    "OneHotEncoder",
    "PPOConfig",
    "PlateConstraints",
    "Scales",
    "Scores",
    "SlidingWindow",
    "StateBank",
    "Substitution",
    "Surrogate",
    "TrainingLog",
    "UniRep",
    "VariantSpace",
    "WalkSettings",
    "Walks",
    "__version__",
    "aav",
    "aav_effects",
    "adapt",
    "additive_prediction",
    "advantages",
    "codon_residues",
    "cr6261",
    "distance_graph",
    "evaluate",
    "farthest_first",
    "grantham_distances",
    "learn_weights",
    "load_landscape",
    "load_plm",
    "load_scales",
    "load_unirep",
    "make_epistatic",
    "ndcg",
    "ontology_graph",
    "predict_space",
    "preferences",
    "rank_graph",
    "read_measurements",
    "run_campaign",
    "scales_encoder",
    "scores",
    "stable_baselines_ppo",
    "substitution",
    "write_graphml",
]

_HOMES = {  # pandas, scikit-learn and gymnasium take a second to import: a module comes with the first of its names
    "benchmark": ("METHODS", "Campaign", "Evaluation", "evaluate", "run_campaign"),
    "constraints": ("PlateConstraints", "codon_residues"),
    "encode": ("FeatureMap", "additive_prediction"),
    "env": ("MutationEnv",),
    "evolve": ("DirectedEvolution",),
    "exports": ("distance_graph", "learn_weights", "ontology_graph", "rank_graph", "write_graphml"),
    "graph": ("AminoAcidGraph",),
    "landscape": ("Landscape", "load_landscape"),
    "landscapes": ("Ehrlich", "aav", "aav_effects", "cr6261", "make_epistatic"),
    "measurements": ("MeasurementWarning", "read_measurements"),
    "metrics": ("Scores", "ndcg", "scores"),
    "plm": ("EsmEncoder", "OneHotEncoder", "adapt", "load_plm", "scales_encoder"),
    "policy": ("KnowledgePolicy",),
    "ppo": ("PPO", "PPOConfig", "TrainingLog", "advantages"),
    "predictor": ("EnsemblePredictor", "predict_space"),
    "properties": ("Substitution", "grantham_distances", "substitution"),
    "report": ("EvolutionReport",),
    "sampling": ("ClusterSampler", "farthest_first"),
    "sb3": ("stable_baselines_ppo",),
    "scales": ("Scales", "load_scales"),
    "scorer": ("StateBank", "preferences"),
    "settings": ("WalkSettings",),
    "space": ("RESIDUES", "VariantSpace"),
    "surrogate": ("Surrogate",),
    "unirep": ("UniRep", "load_unirep"),
    "walk": ("Library", "Walks"),
    "window": ("SlidingWindow",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
