"""LayerNorm that turns into a foldable BatchNorm, and simplified linear attention (Guo et al., ICML 2024, Section 3)."""

from .attention import SimplifiedLinearAttention, linear_attention
from .norms import ChannelAffine, PRepBN, RepBN
from .schedule import PRepBNSchedule

__all__ = [
    "ChannelAffine",
    "PRepBN",
    "PRepBNSchedule",
    "RepBN",
    "SimplifiedLinearAttention",
    "linear_attention",
]
