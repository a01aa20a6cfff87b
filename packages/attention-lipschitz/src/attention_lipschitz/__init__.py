"""Local and global Lipschitz constants of self-attention: measured, bounded, certified.

From "How Smooth Is Attention?" (Castin, Ablin and Peyré, ICML 2024). Models of transformers and torch are measured on
their own activations: `scan`, or `extract_attention`, `capture_inputs` and `local_lipschitz` by hand.
"""

from attention_lipschitz import bounds
from attention_lipschitz._version import VERSION as __version__
from attention_lipschitz.adapters import Site, UnsupportedArchitectureError, register_adapter
from attention_lipschitz.adversarial import NoRealEigenvalueError, adversarial_tokens
from attention_lipschitz.blocks import AttentionBlock, TokenNorm
from attention_lipschitz.bounds import BoundTable
from attention_lipschitz.byte_gpt import byte_gpt, byte_ids, train_byte_gpt
from attention_lipschitz.certificates import PositionalBoundError, certified_bound
from attention_lipschitz.core import AttentionHead, AttentionLayer
from attention_lipschitz.data import WordHashTokenizer, documentation, read_text, windows
from attention_lipschitz.diagnostics import (
    Sinks,
    Temperature,
    attention_sinks,
    head_constants,
    largest_temperature,
    rank_heads,
    responsible_pairs,
)
from attention_lipschitz.extract import (
    ExtractionMismatchError,
    attention_norm,
    capture_inputs,
    extract_attention,
    layernorm_radius,
)
from attention_lipschitz.linearization import Linearization
from attention_lipschitz.measure import (
    ConvergenceWarning,
    LipschitzResult,
    Spectrum,
    jacobian_spectrum,
    local_lipschitz,
    local_lipschitz_batch,
    module_lipschitz,
    paper_code_estimate,
)
from attention_lipschitz.models import TrainingModeWarning
from attention_lipschitz.report import Growth, LipschitzReport, Row
from attention_lipschitz.scan import scan
from attention_lipschitz.worst import WorstCase, lipschitz_penalty, worst_case

__all__ = [
    "AttentionBlock",
    "AttentionHead",
    "AttentionLayer",
    "BoundTable",
    "ConvergenceWarning",
    "ExtractionMismatchError",
    "Growth",
    "Linearization",
    "LipschitzReport",
    "LipschitzResult",
    "NoRealEigenvalueError",
    "PositionalBoundError",
    "Row",
    "Sinks",
    "Site",
    "Spectrum",
    "Temperature",
    "TokenNorm",
    "TrainingModeWarning",
    "UnsupportedArchitectureError",
    "WordHashTokenizer",
    "WorstCase",
    "__version__",
    "adversarial_tokens",
    "attention_norm",
    "attention_sinks",
    "bounds",
    "byte_gpt",
    "byte_ids",
    "capture_inputs",
    "certified_bound",
    "documentation",
    "extract_attention",
    "head_constants",
    "jacobian_spectrum",
    "largest_temperature",
    "layernorm_radius",
    "lipschitz_penalty",
    "local_lipschitz",
    "local_lipschitz_batch",
    "module_lipschitz",
    "paper_code_estimate",
    "rank_heads",
    "read_text",
    "register_adapter",
    "responsible_pairs",
    "scan",
    "train_byte_gpt",
    "windows",
    "worst_case",
]
