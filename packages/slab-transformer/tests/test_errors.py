"""What is refused, in which words: every kind of bad input."""

import copy
import math

import pytest
import slab_transformer as st
import torch
from slab_tiny import as_if_trained, build, first_layer
from slab_transformer.cli import main
from slab_transformer.cswin import CSwin, StripeAttention
from slab_transformer.data import digits, image_batches, image_folder
from torch import nn

X = torch.zeros(2, 5, 4)


def stack(*layers):
    return nn.Sequential(*(layers or (nn.LayerNorm(4), nn.Linear(4, 2))))


def converted(*layers, **options):
    model = stack(*layers)
    st.convert(model, **options)
    return model


def ready(*layers):
    return as_if_trained(converted(*layers))


class Twice(nn.Module):
    def __init__(self, norm=None):
        super().__init__()
        self.one = norm or nn.LayerNorm(4)
        self.two = self.one
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(self.one(x)) + self.linear(self.two(x))


class Looped(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(self.norm(self.linear(self.norm(x))))


class Linear4bit(nn.Linear):
    """The name that bitsandbytes gives to its layer."""


class LoraLinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.base_layer, self.lora_A = nn.Linear(4, 2), nn.ModuleDict()

    def forward(self, x):
        return self.base_layer(x)


def nan_model():
    model = ready()
    model[0].rep.bn.running_mean[2] = math.nan
    return model


ATTENTION = st.SimplifiedLinearAttention(8, 2, (2, 3))
Q = torch.zeros(1, 2, 3, 4)

VALUES = {
    "no norm": (lambda: st.convert(stack(nn.Linear(4, 4), nn.ReLU())), st.UnsupportedModuleError,
                r"must hold LayerNorm or RMSNorm, got Linear x 1, ReLU x 1"),
    "no module": (lambda: st.convert(nn.Sequential()), st.UnsupportedModuleError, "got Sequential x 1"),
    "no attention": (lambda: st.convert(build("llama"), attention="sla"), st.UnsupportedModuleError,
                     "LlamaForCausalLM has no attention that can be replaced"),
    "early": (lambda: st.fuse(converted(decay_steps=5).eval(), example=X), st.FusionError,
              r"schedule has not finished: lambda of 0 is 1 \(1 norms\).*force=True"),
    "train mode": (lambda: st.fuse(ready().train(), example=X), st.FusionError, "training mode: call model.eval"),
    "nothing to fuse": (lambda: st.fuse(stack().eval(), example=X), st.UnsupportedModuleError, "no RepBN or PRepBN"),
    "strict": (lambda: st.fuse(ready(nn.LayerNorm(4), nn.ReLU()), example=X, strict=True), st.FusionError,
               "cannot fold all norms:\n0: read by relu"),
    "no example": (lambda: st.fuse(ready()), ValueError, "example must be given"),
    "one position": (lambda: converted().train()(torch.zeros(1, 1, 4)), ValueError,
                     "0: a batch must hold at least 2 positions in training, got 1"),
    "one real position": (lambda: st.RepBN(4)(X, torch.zeros(2, 5, dtype=torch.bool)), ValueError,
                          "at least 2 positions in training that are not padding, got 0"),
    "mask size": (lambda: st.RepBN(4)(X, torch.ones(2, 4, dtype=torch.bool)), ValueError,
                  r"one entry for each position \(10\), got 8"),
    "nan statistics": (lambda: st.fuse(nan_model(), example=X), ValueError, "shift of 0"),
    "nan activations": (lambda: st.recalibrate(ready(), [X, X / 0]), ValueError,
                        "0: activations must be finite, got NaN or infinity. The statistics were put back"),
    "no batches": (lambda: st.recalibrate(ready(), []), ValueError, "at least one batch, got none"),
    "recalibrate what": (lambda: st.recalibrate(stack(), [X]), ValueError, "must hold RepBN or PRepBN norms, got none"),
    "recalibrate mode": (lambda: st.recalibrate(ready(), [X], mode="mean"), ValueError, "mode must be"),
    "shared": (lambda: st.convert(Twice()), ValueError, "one and two are one norm module"),
    "shared later": (lambda: st.fuse(as_if_trained(Twice(st.PRepBN(nn.LayerNorm(4), st.RepBN(4)))), example=X),
                     st.FusionError, "two and one are one module: a norm that is shared"),
    "used twice": (lambda: st.fuse(as_if_trained(made(Looped())), example=X), st.FusionError,
                   "norm is used 2 times in one forward"),
    "quantised": (lambda: st.convert(stack(nn.LayerNorm(4), Linear4bit(4, 2))), st.UnsupportedModuleError,
                  "quantised layers: 1"),
    "quantised later": (lambda: st.fuse(with_layer(Linear4bit(4, 2)), example=X), st.FusionError,
                        r"quantised layers: 1 \(Linear4bit\). Fuse first, then quantise"),
    "adapters": (lambda: st.fuse(with_layer(LoraLinear()), example=X), st.FusionError,
                 "layers with adapters: 1. Merge them first"),
    "residual": (lambda: st.fuse(ready(), example=X, headless="residual"), st.FusionError, "known for .* Swin"),
    "headless": (lambda: st.fuse(ready(), example=X, headless="both"), ValueError, "headless must be"),
    "norm": (lambda: st.convert(stack(), norm="group"), ValueError, "norm must be"),
    "attention": (lambda: st.convert(stack(), attention="flash"), ValueError, "attention must be"),
    "init": (lambda: st.convert(stack(), init="zero"), ValueError, "init must be"),
    "stages": (lambda: st.convert(build("swin"), attention="sla", stages=[4]), ValueError,
               r"stages must be among \[0, 1\], got \[4\]"),
    "total": (lambda: st.PRepBNSchedule(converted()), ValueError, "total_steps must be given .* got none"),
    "total too few": (lambda: st.convert(stack(), total_steps=5, warmup_steps=5), ValueError,
                      r"total_steps must be more than warmup_steps \(5\), got 5"),
    "fraction": (lambda: st.convert(stack(), total_steps=5, decay_fraction=1.5), ValueError, "decay_fraction must be"),
    "r0": (lambda: st.convert(stack(), total_steps=5, r0=2.0), ValueError, "r0 must be"),
    "shape": (lambda: st.convert(stack(), total_steps=5, shape="square"), ValueError, "shape must be"),
    "decay": (lambda: st.PRepBNSchedule(converted(), decay_steps=0), ValueError, "decay_steps must be"),
    "no PRepBN": (lambda: st.PRepBNSchedule(stack(), total_steps=4), ValueError, "must hold PRepBN norms, got none"),
    "state": (lambda: st.PRepBNSchedule(converted(), total_steps=4).load_state_dict({"steps": 1}), ValueError,
              "state must hold"),
    "lam": (lambda: converted()[0].set_lam(1.5), ValueError, "lam must be"),
    "channels": (lambda: st.RepBN(4)(torch.zeros(2, 3)), ValueError, "input"),
    "features": (lambda: st.RepBN(0), ValueError, "num_features must be"),
    "momentum": (lambda: st.RepBN(3, momentum=0.0), ValueError, "momentum must be"),
    "affine shapes": (lambda: st.ChannelAffine(torch.ones(3), torch.ones(4)), ValueError, "b"),
    "affine nan": (lambda: st.ChannelAffine(torch.full((3,), math.nan), torch.ones(3)), ValueError, "a"),
    "grid": (lambda: ATTENTION(torch.zeros(1, 7, 8)), ValueError,
             r"must hold 6 tokens \(2 x 3 and 0 before them\), got 7"),
    "heads": (lambda: st.SimplifiedLinearAttention(9, 2, (2, 2)), ValueError, r"multiple of num_heads \(2\), got 9"),
    "kernel": (lambda: st.SimplifiedLinearAttention(8, 2, (2, 2), kernel_size=4), ValueError, "must be odd"),
    "sr": (lambda: st.SimplifiedLinearAttention(8, 2, (3, 4), sr_ratio=2), ValueError,
           r"multiple of sr_ratio \(2\) on both sides, got 3 x 4"),
    "sr resize": (lambda: st.SimplifiedLinearAttention(8, 2, (4, 4), sr_ratio=2).resize_grid((5, 4)), ValueError,
                  "multiple of sr_ratio"),
    "head dims": (lambda: st.linear_attention(Q, torch.zeros(1, 2, 3, 5), Q), ValueError, "k"),
    "keys": (lambda: st.linear_attention(Q, Q, torch.zeros(1, 2, 4, 4)), ValueError, "v"),
    "causal": (lambda: st.linear_attention(Q, Q[:, :, :2], Q[:, :, :2], causal=True), ValueError,
               "as many keys as queries, got 2 and 3"),
    "order": (lambda: st.linear_attention(Q, Q, Q, order="vk"), ValueError, "order must be"),
    "mask of attention": (lambda: masked(), ValueError, "additive mask or position bias cannot be kept"),
    "verify nothing": (lambda: st.verify_fusion(stack(), stack()), ValueError, "inputs must be given"),
    "verify shapes": (lambda: st.verify_fusion(nn.Linear(4, 2), nn.Linear(4, 3), X), ValueError, "same shapes, got"),
    "candidates": (lambda: st.find_decay_steps(converted(), list, len, [], 1e-3), ValueError, "at least one T"),
    "backbone": (lambda: st.as_feature_backbone(build("vit")), st.UnsupportedModuleError, "gives no feature maps"),
    "onnx of what": (lambda: st.export_onnx(stack(), "x.onnx", X), st.FusionError, "must be fused before"),
    "stripes": (lambda: StripeAttention(8, 2, (6, 6), 4), ValueError, r"stripe must divide the grid \(6 x 6\), got 4"),
    "odd stripes": (lambda: StripeAttention(9, 3, (6, 6), 3), ValueError, "num_heads must be even"),
    "cswin": (lambda: CSwin(image_size=50), ValueError, "image_size must be a multiple of 32, got 50"),
    "digits": (lambda: digits(0, 1.0), ValueError, "test_share must be"),
}  # fmt: skip


def made(model):
    st.convert(model)
    return model


def with_layer(layer):
    model = ready()
    model[1] = layer
    return model.eval()


def masked():
    model = build("vit")
    st.convert(model, norm=None, attention="sla")
    return first_layer(model).attention(torch.zeros(1, 17, 16, dtype=torch.float64), torch.zeros(1, 1, 17, 17))


@pytest.mark.parametrize("case", VALUES)
def test_values(case):
    call, kind, message = VALUES[case]
    with pytest.raises(kind, match=message):
        call()


TYPES = {
    "unknown setting": (lambda: st.convert(stack(), steps=4), "convert has no argument 'steps'"),
    "pattern": (lambda: st.convert(stack(), include="0"), "include must be a list of patterns, got the string '0'"),
    "model": (lambda: st.convert("model"), "model"),
    "fused what": (lambda: st.fuse("model"), "model"),
    "steps": (lambda: st.convert(stack(), total_steps=4.5), "total_steps"),
    "grid": (lambda: st.SimplifiedLinearAttention(8, 2, 16), r"grid must be a pair \(height, width\), got 16"),
    "norm1": (lambda: st.PRepBN(None, st.RepBN(3)), "norm1"),
    "rep": (lambda: st.PRepBN(nn.LayerNorm(3), nn.BatchNorm1d(3)), "rep"),
    "mask": (lambda: st.padding_mask(stack(), [1, 0]).__enter__(), "mask"),
    "schedule": (lambda: st.DivergenceMonitor(converted(), None), "schedule"),
}


@pytest.mark.parametrize("case", TYPES)
def test_types(case):
    call, message = TYPES[case]
    with pytest.raises(TypeError, match=message):
        call()


def test_nan_leaves_the_statistics_as_they_were():
    model = ready()
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(ValueError, match="finite"):
        st.recalibrate(model, [X + 1.0, X * math.nan])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model[0].rep.bn.momentum == 0.1
    assert not model[0].rep.bn.training


def test_force_fuses_before_the_end():
    model = converted(decay_steps=5, init="paper").eval()
    fused = st.fuse(model, example=X, force=True)
    assert fused.fusion_report.folded == ["0"]


def test_a_channel_without_variance_stays_finite():
    norm = st.RepBN(4).train()
    for _ in range(200):
        norm(torch.ones(6, 4))
    with torch.no_grad():
        norm.bn.running_var.zero_()
    a, b = norm.eval().affine()
    assert a.isfinite().all()
    assert b.isfinite().all()
    assert norm(torch.ones(6, 4)).isfinite().all()


def test_a_tied_head_is_not_folded():
    model = as_if_trained(made(build("llama_tied")))
    before = model.model.embed_tokens.weight.clone()
    fused = st.fuse(model)
    assert torch.equal(fused.model.embed_tokens.weight, before)
    assert fused.lm_head.weight is fused.model.embed_tokens.weight


def test_saving_what_was_not_converted_and_loading_what_is_not_there(tmp_path):
    with pytest.raises(ValueError, match="must be converted"):
        st.save(stack(), tmp_path)
    with pytest.raises(FileNotFoundError):
        st.load(tmp_path / "nowhere", stack())
    st.save(ready(), tmp_path / "half")
    with pytest.raises(ValueError, match="not fused; use load"):
        st.load_fused(tmp_path / "half", stack())
    with pytest.raises(ValueError, match="model must be given to load"):
        st.load(tmp_path / "half")
    with pytest.raises(ValueError, match="must fit the model"):
        st.load(tmp_path / "half", stack(nn.LayerNorm(4), nn.Identity()))
    build("llama").save_pretrained(tmp_path / "plain")
    with pytest.raises(ValueError, match="must hold the recipe of a conversion, got none"):
        st.load(tmp_path / "plain")


def test_image_folders(tmp_path):
    with pytest.raises(ValueError, match="one folder for each class, got none"):
        image_folder(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(ValueError, match="cat must hold images"):
        image_folder(tmp_path)
    (tmp_path / "cat" / "a.png").write_bytes(b"no image")
    files, _ = image_folder(tmp_path)
    with pytest.raises(ValueError, match=r"a\.png must be an image"):
        next(image_batches(files, 8, 1))


def test_command_line_says_what_is_wrong(tmp_path, capsys):
    assert main(["fuse", "--model", str(tmp_path / "none"), "--out", str(tmp_path)]) == 2
    assert "slab-transformer fuse: " in capsys.readouterr().err
    with pytest.raises(SystemExit) as stop:
        main(["train", "--model", "unknown", "--data", "x", "--out", "y"])
    assert stop.value.code == 2
