"""The paper's architectures (Guo et al., 2024, Section 5), built from transformers' bodies, with random weights.

`slab_*` have PRepBN and simplified linear attention; give `total_steps` (and `warmup_steps`) of the training.
"""

from importlib import import_module
from types import SimpleNamespace
from typing import cast

import torch
from offprints.checks import require_range
from torch import Tensor, nn

from .convert import convert
from .cswin import CSwin


class PatchesOnly(nn.Module):
    """Patch embeddings with positions and no class token, in place of a ViT's embeddings (Section 5.1)."""

    def __init__(self, patches: nn.Module, count: int, width: int) -> None:
        super().__init__()
        self.patch_embeddings = patches
        self.position_embeddings = nn.Parameter(torch.randn(1, count, width) * 0.02)

    def forward(self, pixel_values: Tensor, *args: object, **kwargs: object) -> Tensor:
        """(B, 3, H, W) -> (B, N, C)."""
        return self.patch_embeddings(pixel_values) + self.position_embeddings


class MeanPooled(nn.Module):
    """A ViT without a class token: the mean over tokens, then a linear classifier (Section 5.1).

    Args:
        body: transformers' `ViTModel`.
        num_classes: Of the classifier.

    Shape:
        (B, 3, H, W) -> logits (B, num_classes).
    """

    def __init__(self, body: nn.Module, num_classes: int) -> None:
        super().__init__()
        count = body.embeddings.patch_embeddings.num_patches
        body.embeddings = PatchesOnly(body.embeddings.patch_embeddings, count, body.config.hidden_size)
        self.body = body
        self.head = nn.Linear(body.config.hidden_size, num_classes)
        side = body.config.image_size
        self.config = SimpleNamespace(image_size=side, patch_size=body.config.patch_size, num_channels=3)
        self.main_input_name = "pixel_values"

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Logits of images (B, 3, H, W)."""
        return cast(Tensor, self.head(self.body(pixel_values).last_hidden_state.mean(1)))


def _deit(width: int, heads: int, num_classes: int, image_size: int, schedule: dict[str, int | float]) -> nn.Module:
    library = import_module("transformers")
    config = library.ViTConfig(
        hidden_size=width, num_hidden_layers=12, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=image_size, patch_size=16,
    )  # fmt: skip
    model = MeanPooled(library.ViTModel(config, add_pooling_layer=False), num_classes)
    convert(model, attention="sla", init="paper", **schedule)
    return model


def slab_deit_tiny(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-DeiT-T: width 192, 3 heads, 12 layers, no class token (Table 2)."""
    return _deit(192, 3, num_classes, image_size, schedule)


def slab_deit_small(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-DeiT-S: width 384, 6 heads, 12 layers, no class token (Table 2)."""
    return _deit(384, 6, num_classes, image_size, schedule)


def _pvt(depths: list[int], num_classes: int, image_size: int, schedule: dict[str, int | float]) -> nn.Module:
    library = import_module("transformers")
    config = library.PvtConfig(
        image_size=image_size, depths=depths, hidden_sizes=[64, 128, 320, 512], num_attention_heads=[1, 2, 5, 8],
        sequence_reduction_ratios=[1, 1, 1, 1], num_labels=num_classes, drop_path_rate=0.1,
    )  # fmt: skip
    model = library.PvtForImageClassification(config)
    convert(model, attention="sla", init="paper", **schedule)
    return model


def slab_pvt_tiny(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-PVT-T: 2, 2, 2, 2 layers, linear attention without spatial reduction in all stages (Table 2)."""
    return _pvt([2, 2, 2, 2], num_classes, image_size, schedule)


def slab_pvt_small(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-PVT-S: 3, 4, 6, 3 layers (Table 2)."""
    return _pvt([3, 4, 6, 3], num_classes, image_size, schedule)


def slab_pvt_medium(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-PVT-M: 3, 4, 18, 3 layers (Table 2)."""
    return _pvt([3, 4, 18, 3], num_classes, image_size, schedule)


def _swin(width: int, depth: int, heads: int, num_classes: int, image_size: int, schedule: dict) -> nn.Module:
    library = import_module("transformers")
    config = library.SwinConfig(
        image_size=image_size, embed_dim=width, depths=[2, 2, depth, 2], num_heads=[heads * 2**i for i in range(4)],
        num_labels=num_classes, drop_path_rate=0.2,
    )  # fmt: skip
    model = library.SwinForImageClassification(config)
    convert(model, attention="sla", stages=(0, 1), init="paper", **schedule)
    return model


def slab_swin_tiny(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-Swin-T: linear attention over the whole grid in the first two stages, then windows of 7 (Table 2)."""
    return _swin(96, 6, 3, num_classes, image_size, schedule)


def slab_swin_small(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-Swin-S: 18 layers in the third stage (Table 2)."""
    return _swin(96, 18, 3, num_classes, image_size, schedule)


def slab_swin_base(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-Swin-B: width 128, 18 layers in the third stage."""
    return _swin(128, 18, 4, num_classes, image_size, schedule)


def _cswin(depths: tuple[int, ...], num_classes: int, image_size: int, schedule: dict) -> nn.Module:
    model = CSwin(num_classes, image_size, width=64, depths=depths, linear_stages=(0, 1))
    convert(model, init="paper", **schedule)
    return model


def slab_cswin_tiny(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-CSwin-T: 1, 2, 21, 1 layers; linear attention in the first two stages (Table 2)."""
    return _cswin((1, 2, 21, 1), num_classes, image_size, schedule)


def slab_cswin_small(num_classes: int = 1000, image_size: int = 224, **schedule: int | float) -> nn.Module:
    """SLAB-CSwin-S: 2, 4, 32, 2 layers."""
    return _cswin((2, 4, 32, 2), num_classes, image_size, schedule)


def llama_prepbn(
    vocab_size: int = 32_000,
    hidden_size: int = 1024,
    intermediate_size: int = 4096,
    num_layers: int = 18,
    num_heads: int = 8,
    warmup_steps: int = 10_000,
    decay_steps: int = 18_000,
) -> nn.Module:
    """LLaMA-350M with PRepBN: RMSNorm becomes RepBN, alpha = gamma = 0 at first; softmax attention stays (Table 5)."""
    require_range("num_layers", num_layers, low=1, integer=True)
    library = import_module("transformers")
    config = library.LlamaConfig(
        vocab_size=vocab_size, hidden_size=hidden_size, intermediate_size=intermediate_size,
        num_hidden_layers=num_layers, num_attention_heads=num_heads,
    )  # fmt: skip
    model = library.LlamaForCausalLM(config)
    convert(model, init="paper", warmup_steps=warmup_steps, decay_steps=decay_steps)
    return model
