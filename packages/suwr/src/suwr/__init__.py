"""Leakage-free local feature selection (Oosterhuis, Lyu and Anand, ICML 2024).

A few features for every row, a prediction from those alone, and a selection that tells nothing about the others; exact
optima on discrete data; leakage tests for any selector. Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from suwr.abstention import Abstention, calibrate
    from suwr.baselines import INVASE, L2X, REALX
    from suwr.data import (
        Synthetic,
        load_digits_grouped,
        load_idx,
        load_table,
        make_and_toy,
        make_syn,
    )
    from suwr.diagnostics import argmax_time_support
    from suwr.distillation import distill
    from suwr.estimators import SUWRClassifier, SUWRRegressor
    from suwr.exact import DiscreteProblem
    from suwr.global_selection import GlobalSelector
    from suwr.inference import Unmasked, unmask
    from suwr.leakage import LeakageReport, assert_leak_free, leakage_report
    from suwr.measures import ExactLeakage, exact_leakage
    from suwr.narrative import Narrative, Session
    from suwr.path import SparsityPath
    from suwr.policy import SequentialPolicy
    from suwr.probes import Certificate, ProbeReport, probe_selector
    from suwr.selectors import MissingExtraError, TopK, shap_top_k
    from suwr.solution import Solution
    from suwr.space import Space
    from suwr.surrogates import LabelLeakage, label_leakage
    from suwr.tree import PolicyTree
    from suwr.units import Patches, image_patches
    from suwr.unrolling import Rollout, rollout, suwr_loss

_HOMES = {
    "abstention": ("Abstention", "calibrate"),
    "baselines": ("INVASE", "L2X", "REALX"),
    "data": ("Synthetic", "load_digits_grouped", "load_idx", "load_table", "make_and_toy", "make_syn"),
    "diagnostics": ("argmax_time_support",),
    "distillation": ("distill",),
    "estimators": ("SUWRClassifier", "SUWRRegressor"),
    "exact": ("DiscreteProblem",),
    "global_selection": ("GlobalSelector",),
    "inference": ("Unmasked", "unmask"),
    "leakage": ("LeakageReport", "assert_leak_free", "leakage_report"),
    "measures": ("ExactLeakage", "exact_leakage"),
    "narrative": ("Narrative", "Session"),
    "path": ("SparsityPath",),
    "policy": ("SequentialPolicy",),
    "probes": ("Certificate", "ProbeReport", "probe_selector"),
    "unrolling": ("Rollout", "rollout", "suwr_loss"),
    "selectors": ("MissingExtraError", "TopK", "shap_top_k"),
    "solution": ("Solution",),
    "space": ("Space",),
    "surrogates": ("LabelLeakage", "label_leakage"),
    "tree": ("PolicyTree",),
    "units": ("Patches", "image_patches"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "INVASE",
    "L2X",
    "REALX",
    "Abstention",
    "Certificate",
    "DiscreteProblem",
    "ExactLeakage",
    "GlobalSelector",
    "LabelLeakage",
    "LeakageReport",
    "MissingExtraError",
    "Narrative",
    "Patches",
    "PolicyTree",
    "ProbeReport",
    "Rollout",
    "SUWRClassifier",
    "SUWRRegressor",
    "SequentialPolicy",
    "Session",
    "Solution",
    "Space",
    "SparsityPath",
    "Synthetic",
    "TopK",
    "Unmasked",
    "argmax_time_support",
    "assert_leak_free",
    "calibrate",
    "distill",
    "exact_leakage",
    "image_patches",
    "label_leakage",
    "leakage_report",
    "load_digits_grouped",
    "load_idx",
    "load_table",
    "make_and_toy",
    "make_syn",
    "probe_selector",
    "rollout",
    "shap_top_k",
    "suwr_loss",
    "unmask",
]


def __getattr__(name: str) -> object:
    """scikit-learn takes half a second to import, and comes with the first name that needs it."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
