"""LayerNorm that turns into a foldable BatchNorm, and simplified linear attention (Guo et al., ICML 2024)."""

from .attention import SimplifiedLinearAttention, linear_attention
from .backbone import FeatureBackbone, as_feature_backbone
from .convert import convert
from .errors import FusionError, UnsupportedModuleError
from .fuse import FixedShape, fuse
from .graph import count_operations, export_onnx
from .io import load, load_fused, save
from .masking import padding_mask
from .monitor import DivergenceMonitor, find_decay_steps
from .norms import ChannelAffine, PRepBN, RepBN
from .recalibrate import recalibrate
from .report import ConversionReport, FusionReport
from .schedule import PRepBNSchedule
from .verify import verify_fusion

__all__ = [
    "ChannelAffine",
    "ConversionReport",
    "DivergenceMonitor",
    "FeatureBackbone",
    "FixedShape",
    "FusionError",
    "FusionReport",
    "PRepBN",
    "PRepBNSchedule",
    "RepBN",
    "SimplifiedLinearAttention",
    "UnsupportedModuleError",
    "as_feature_backbone",
    "convert",
    "count_operations",
    "export_onnx",
    "find_decay_steps",
    "fuse",
    "linear_attention",
    "load",
    "load_fused",
    "padding_mask",
    "recalibrate",
    "save",
    "verify_fusion",
]
