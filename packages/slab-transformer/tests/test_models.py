"""The bodies that no library has: CSwin's stripes against a loop, and small versions of the paper's networks."""

import pytest
import slab_transformer as st
import torch
from slab_transformer import models
from slab_transformer.cswin import CSwin, StripeAttention
from slab_transformer.fuse import find_norms
from torch.nn import functional as F


@pytest.mark.parametrize("stripe", [1, 2, 4])
def test_stripes_against_a_loop(stripe, gen):
    """Half of the channels look along columns of that width, the others along rows; all at the whole grid."""
    module = StripeAttention(8, 2, (4, 4), stripe).double()
    x = torch.randn(1, 16, 8, generator=gen, dtype=torch.float64)
    q, k, v = (part[0].reshape(4, 4, 8) for part in module.qkv(x).chunk(3, -1))
    out = torch.zeros(4, 4, 8, dtype=torch.float64)
    if stripe == 4:
        places = [(slice(0, 4), slice(0, 4), head * 4, 0, (4, 4)) for head in range(2)]
    else:
        columns = [(slice(0, 4), slice(i, i + stripe), 0, 0, (4, stripe)) for i in range(0, 4, stripe)]
        rows = [(slice(i, i + stripe), slice(0, 4), 4, 1, (stripe, 4)) for i in range(0, 4, stripe)]
        places = columns + rows
    for rows, columns, channel, conv, shape in places:
        cut = slice(channel, channel + 4)
        one, two, three = (t[rows, columns, cut].reshape(-1, 4) for t in (q, k, v))
        weights = torch.softmax(one @ two.T / 2, -1)
        image = three.T.reshape(1, 4, *shape)
        kernel, bias = module.enhance[conv].weight, module.enhance[conv].bias
        if stripe == 4:
            kernel, bias = kernel[cut], bias[cut]
        local = F.conv2d(image, kernel, bias, padding=1, groups=4)[0].reshape(4, -1).T
        out[rows, columns, cut] = (weights @ three + local).reshape(*shape, 4)
    torch.testing.assert_close(module(x)[0], module.proj(out.reshape(16, 8)), rtol=0, atol=1e-12)


def test_small_cswin_is_trained_fused_and_loaded(tmp_path, gen):
    model = models._cswin((1, 1, 1, 1), 5, 32, {"total_steps": 3})
    kinds = [type(block.attention).__name__ for stage in model.stages for block in stage]
    assert kinds == ["SimplifiedLinearAttention"] * 2 + ["StripeAttention"] * 2
    schedule = st.PRepBNSchedule(model)
    for _ in range(3):
        model(torch.randn(4, 3, 32, 32, generator=gen)).sum().backward()
        schedule.step()
    fused = st.fuse(model.eval())
    assert not fused.fusion_report.affine
    assert len(fused.fusion_report.norms) == 4 + 8 + 1
    x = torch.randn(2, 3, 32, 32, generator=gen)
    torch.testing.assert_close(fused(x), model(x), rtol=1e-3, atol=1e-4)
    st.save(fused, tmp_path)
    loaded = st.load_fused(tmp_path, CSwin(5, 32, depths=(1, 1, 1, 1), linear_stages=(0, 1)))
    assert torch.equal(loaded(x), fused(x))


@pytest.mark.parametrize("name", ["_swin", "_pvt"])
def test_small_pyramids_of_the_paper(name):
    depth = 1
    made = (
        models._swin(24, depth, 3, 5, 224, {"total_steps": 4}) if name == "_swin" else models._pvt([1] * 4, 5, 64, {})
    )
    linear = [m for m in made.modules() if isinstance(m, st.SimplifiedLinearAttention)]
    assert len(linear) == 4
    assert {m.sr_ratio for m in linear} == {1}
    if name == "_swin":
        assert [m.grid for m in linear] == [(56, 56)] * 2 + [(28, 28)] * 2
    assert all((norm.rep.alpha == 1).all() for norm in find_norms(made).values())


def test_public_builders_have_the_depths_of_the_paper(monkeypatch):
    seen = []
    for name in ("_swin", "_pvt", "_cswin", "_deit"):
        monkeypatch.setattr(models, name, lambda *args, name=name: seen.append((name, args[0], args[1])))
    for name in sorted(name for name in vars(models) if name.startswith("slab_")):
        getattr(models, name)()
    assert seen == [
        ("_cswin", (2, 4, 32, 2), 1000), ("_cswin", (1, 2, 21, 1), 1000), ("_deit", 384, 6), ("_deit", 192, 3),
        ("_pvt", [3, 4, 18, 3], 1000), ("_pvt", [3, 4, 6, 3], 1000), ("_pvt", [2, 2, 2, 2], 1000),
        ("_swin", 128, 18), ("_swin", 96, 18), ("_swin", 96, 6),
    ]  # fmt: skip
