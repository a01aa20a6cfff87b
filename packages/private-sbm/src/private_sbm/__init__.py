"""Exact communities of a graph under edge differential privacy (Nguyen and Vullikanti, ICML 2024).

Give a graph, eps and delta; get the exact communities, or a refusal. Names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from private_sbm.auditing import AuditReport, audit
    from private_sbm.baselines import (
        ConcentrationSBM,
        MLEStability,
        RandomizedResponseSBM,
        SpectralLaplaceSBM,
        louvain_recover,
        mle_recover,
        sdp_recover,
        spectral_recover,
    )
    from private_sbm.certificates import Certificate, certificate
    from private_sbm.data import load_graph, unweighted
    from private_sbm.estimator import PrivateSBM, Release
    from private_sbm.exact import MissingExtraError
    from private_sbm.explain import Outlook, explain_refusal, utility_report
    from private_sbm.general import GeneralCertificate, general_certificate
    from private_sbm.ledger import BudgetExceededError, PrivacyLedger
    from private_sbm.margins import margin
    from private_sbm.mechanism import release_probability, threshold_T
    from private_sbm.models import asymmetric_sbm, censored_sbm, general_sbm
    from private_sbm.thresholds import (
        asymmetric_exponent,
        censored_exponent,
        general_exponent,
        private_threshold,
        rate,
    )

__all__ = [
    "AuditReport",
    "BudgetExceededError",
    "Certificate",
    "ConcentrationSBM",
    "GeneralCertificate",
    "MLEStability",
    "MissingExtraError",
    "Outlook",
    "PrivacyLedger",
    "PrivateSBM",
    "RandomizedResponseSBM",
    "Release",
    "SpectralLaplaceSBM",
    "asymmetric_exponent",
    "asymmetric_sbm",
    "audit",
    "censored_exponent",
    "censored_sbm",
    "certificate",
    "explain_refusal",
    "general_certificate",
    "general_exponent",
    "general_sbm",
    "load_graph",
    "louvain_recover",
    "margin",
    "mle_recover",
    "private_threshold",
    "rate",
    "release_probability",
    "sdp_recover",
    "spectral_recover",
    "threshold_T",
    "unweighted",
    "utility_report",
]

_HOMES = {
    "auditing": ("AuditReport", "audit"),
    "baselines": (
        "ConcentrationSBM", "MLEStability", "RandomizedResponseSBM", "SpectralLaplaceSBM", "louvain_recover",
        "mle_recover", "sdp_recover", "spectral_recover",
    ),
    "certificates": ("Certificate", "certificate"),
    "data": ("load_graph", "unweighted"),
    "estimator": ("PrivateSBM", "Release"),
    "exact": ("MissingExtraError",),
    "explain": ("Outlook", "explain_refusal", "utility_report"),
    "general": ("GeneralCertificate", "general_certificate"),
    "ledger": ("BudgetExceededError", "PrivacyLedger"),
    "margins": ("margin",),
    "mechanism": ("release_probability", "threshold_T"),
    "models": ("asymmetric_sbm", "censored_sbm", "general_sbm"),
    "thresholds": (
        "asymmetric_exponent", "censored_exponent", "general_exponent", "private_threshold", "rate",
    ),
}  # fmt: skip
_HOME = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """scikit-learn and networkx take half a second to import, and come with the first name that needs them."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
