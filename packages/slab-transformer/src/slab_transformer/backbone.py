"""Feature maps for detectors (Guo et al., 2024, Section 5.2): one map a stage, statistics of real pixels only."""

from functools import partial

from offprints.checks import require_kind, require_shape
from torch import Tensor, nn
from torch.nn import functional as F

from .errors import UnsupportedModuleError
from .norms import PRepBN


class FeatureBackbone(nn.Module):
    """A backbone of transformers whose forward gives a list of maps, largest first, as a feature pyramid takes them.

    Norms at the outputs of stages are returned to the caller, so fusing leaves them as `ChannelAffine`.

    Args:
        body: `SwinBackbone`, `PvtV2Backbone`, or another model whose output has `feature_maps`.

    Attributes:
        channels: Of each map.
    """

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body
        self.channels = list(body.channels)

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor | None = None) -> list[Tensor]:
        """Maps (B, C_s, H_s, W_s) of images (B, c, H, W).

        With `pixel_mask` (B, H, W), True = real, what was padded to give images of several sizes one size takes no part
        in the statistics of training.
        """
        require_shape("pixel_values", pixel_values, ["B", "c", "H", "W"])
        if pixel_mask is None or not self.training:
            return list(self.body(pixel_values).feature_maps)
        require_shape("pixel_mask", pixel_mask, [pixel_values.shape[0], *pixel_values.shape[2:]])
        norms = [(name, module) for name, module in self.body.named_modules() if isinstance(module, PRepBN)]
        handles = [norm.register_forward_pre_hook(partial(_mask_norm, name, pixel_mask)) for name, norm in norms]
        try:
            return list(self.body(pixel_values).feature_maps)
        finally:
            for handle in handles:
                handle.remove()
            for _, norm in norms:
                norm.mask = None


def as_feature_backbone(model: nn.Module) -> FeatureBackbone:
    """Wrap a converted backbone model; torchvision's `FeaturePyramidNetwork` takes an ordered dict of its maps.

    Raises:
        UnsupportedModuleError: A model that gives no feature maps.
    """
    require_kind("model", model, nn.Module)
    if not hasattr(model, "channels") or not hasattr(model, "out_features"):
        raise UnsupportedModuleError(
            f"{type(model).__name__} gives no feature maps: use SwinBackbone, PvtV2Backbone or another backbone class."
        )
    return FeatureBackbone(model)


def _mask_norm(name: str, pixel_mask: Tensor, norm: PRepBN, args: tuple) -> None:
    x = args[0]
    tokens = x.shape[1] if x.dim() == 3 else x.shape[1] * x.shape[2]
    height, width = pixel_mask.shape[1:]
    stride = 1
    while stride <= max(height, width):
        grid = (-(-height // stride), -(-width // stride))
        if grid[0] * grid[1] == tokens:
            small = F.adaptive_max_pool2d(pixel_mask[:, None].float(), grid)[:, 0] > 0
            norm.mask = small.flatten(1) if x.dim() == 3 else small
            return
        stride *= 2
    raise ValueError(
        f"{name}: {tokens} tokens are no grid of an image of {height} x {width} at a stride of a power of two."
    )
