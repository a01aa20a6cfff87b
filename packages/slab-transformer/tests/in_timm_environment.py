"""timm's models, in an environment with a matched torch and torchvision: `pytest tests/in_timm_environment.py`.

Not collected by itself: torchvision must fit the torch build, so it is not in the locked environment. Last run with
torch 2.13.0, torchvision 0.28.0, timm 1.0.31.
"""

import pytest
import slab_transformer as st
import timm
import torch
from slab_transformer.fuse import find_norms, rep_of

CASES = {  # model -> affines left of how many norms, layers with linear attention
    "deit_tiny_patch16_224": (0, 25, 12),
    "deit_tiny_distilled_patch16_224": (0, 25, 12),
    "vit_tiny_patch16_224": (0, 25, 12),
    "swin_tiny_patch4_window7_224": (0, 29, 4),
    "pvt_v2_b0": (3, 30, 8),
    "cait_xxs24_224": (0, 53, 0),
    "swinv2_tiny_window8_256": (0, 29, 0),
}


def as_if_trained(model):
    gen = torch.Generator().manual_seed(0)
    for norm in find_norms(model).values():
        rep = rep_of(norm)
        with torch.no_grad():
            for tensor in (rep.bn.weight, rep.bn.bias, rep.bn.running_mean):
                tensor.copy_(torch.randn(tensor.shape, generator=gen) * 0.3 + 0.3)
            rep.bn.running_var.copy_(torch.rand(rep.bn.running_var.shape, generator=gen) + 0.5)
            rep.alpha.fill_(0.2)
        norm.set_lam(0.0)
    return model.eval()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("attention", [None, "sla"])
def test_timm(name, attention):
    affines, norms, layers = CASES[name]
    model = timm.create_model(name, num_classes=10).double()
    if attention and not layers:
        with pytest.raises(st.UnsupportedModuleError):
            st.convert(model, attention=attention)
        return
    report = st.convert(model, attention=attention)
    assert sum(change.action == "sla" for change in report.replaced) == (layers if attention else 0)
    fused = st.fuse(as_if_trained(model), fixed_size=True)
    assert (len(fused.fusion_report.affine), len(fused.fusion_report.norms)) == (affines, norms)
    size = timm.get_pretrained_cfg(name).input_size if hasattr(timm, "get_pretrained_cfg") else (3, 224, 224)
    x = torch.randn(2, *size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        one, two = model(x), fused(x)
    assert (one - two).abs().max() <= 1e-10 * one.abs().max()
    kept = timm.create_model(name, num_classes=10).double().train()
    for module in kept.modules():
        if hasattr(module, "drop_prob"):
            module.drop_prob = 0.0
    with torch.no_grad():
        before = kept(x)
        st.convert(kept)
        assert torch.equal(before, kept(x))
