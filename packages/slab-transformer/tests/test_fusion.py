"""Fusion: the two folding rules against the explicit composition, then every arrangement of every family."""

import copy

import pytest
import slab_transformer as st
import torch
import transformers as tf
from slab_tiny import BUILD, VISION, as_if_trained, build, first_layer, linear_of, logits, swin_config
from slab_transformer import _reference as reference
from slab_transformer.example import call, example_inputs
from slab_transformer.fuse import find_norms
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

LEFT = {  # norms that may not be folded, by the rules: tied heads, post-norm, before a convolution that pads
    "llama_tied": ["model.norm"],
    "gemma": ["model.norm"],
    "gpt2": ["transformer.ln_f"],
    "pvt_v2": [f"pvt_v2.encoder.layers.{stage}.layer_norm" for stage in range(3)],
}
for name in ("bert", "roberta"):
    inner = [f"{name}.encoder.layer.{i}.{part}.LayerNorm" for i in range(2) for part in ("attention.output", "output")]
    LEFT[name] = [f"{name}.embeddings.LayerNorm", *inner]
LEFT["bert"].pop()  # feeds the pooler's linear layer alone
LEFT["roberta"].pop()


def trained(layers, **options):
    return as_if_trained_plain(nn.Sequential(*layers).double(), **options)


def as_if_trained_plain(model):
    st.convert(model)
    return as_if_trained(model)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("channels", "outputs"), [(4, 6), (1, 3), (7, 7)])
def test_norm_then_linear(channels, outputs, bias, gen):
    model = trained([nn.LayerNorm(channels), nn.Linear(channels, outputs, bias=bias)])
    x = torch.randn(2, 5, channels, generator=gen, dtype=torch.float64)
    fused = st.fuse(model, example=x, strict=True)
    assert fused.fusion_report.folded == ["0"]
    assert isinstance(fused[0], nn.Identity)
    a, b = model[0].rep.affine()
    expected = model[1](a * x + b)
    assert (fused(x) - expected).abs().max() < 1e-12
    zero = torch.zeros(outputs, dtype=torch.float64) if model[1].bias is None else model[1].bias.detach()
    weight, shift = reference.fold_after(*(t.detach().numpy() for t in (model[1].weight, zero, a, b)))
    assert abs(fused[1].weight.detach().numpy() - weight).max() < 1e-14
    assert abs(fused[1].bias.detach().numpy() - shift).max() < 1e-14


@pytest.mark.parametrize("bias", [True, False])
def test_linear_then_norm(bias, gen):
    """Rule 2, and the same from torch's own fusion of the one BatchNorm that equals RepBN."""
    model = trained([nn.Linear(4, 6, bias=bias), nn.LayerNorm(6), nn.GELU()])
    x = torch.randn(2, 5, 4, generator=gen, dtype=torch.float64)
    fused = st.fuse(model, example=x, strict=True)
    a, b = model[1].rep.affine()
    assert (fused(x) - nn.functional.gelu(a * model[0](x) + b)).abs().max() < 1e-12
    peer = fuse_linear_bn_eval(model[0], model[1].rep.to_batchnorm())
    torch.testing.assert_close(fused[0].weight, peer.weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(fused[0].bias, peer.bias, rtol=0, atol=1e-12)
    if bias:
        literal = reference.fold_before(*(t.detach().numpy() for t in (model[0].weight, model[0].bias, a, b)))
        assert abs(fused[0].bias.detach().numpy() - literal[1]).max() < 1e-13


class Patches(nn.Module):
    """An embedding by a convolution, its norm, and something that is not linear."""

    def __init__(self, groups=1, bias=True):
        super().__init__()
        self.proj = nn.Conv2d(4, 6, 2, stride=2, groups=groups, bias=bias)
        self.norm = nn.LayerNorm(6)

    def forward(self, x):
        return torch.tanh(self.norm(self.proj(x).flatten(2).transpose(1, 2)))


@pytest.mark.parametrize(("groups", "bias"), [(1, True), (1, False), (2, True)])
def test_convolution_then_norm(groups, bias, gen):
    model = as_if_trained_plain(Patches(groups, bias).double())
    x = torch.randn(2, 4, 6, 6, generator=gen, dtype=torch.float64)
    fused = st.fuse(model, example=x, strict=True)
    a, b = model.norm.rep.affine()
    expected = torch.tanh(a * model.proj(x).flatten(2).transpose(1, 2) + b)
    assert (fused(x) - expected).abs().max() < 1e-12
    peer = fuse_conv_bn_eval(model.proj, as_2d(model.norm.rep.to_batchnorm()))
    torch.testing.assert_close(fused.proj.bias, peer.bias, rtol=0, atol=1e-12)
    wrong = (
        b - a * 0 + (a - model.norm.rep.alpha.detach()) * (0 if model.proj.bias is None else model.proj.bias.detach())
    )
    if bias:  # without alpha d, as in the released code, the bias is off by just that
        missing = fused.proj.bias - wrong
        torch.testing.assert_close(missing, model.norm.rep.alpha * model.proj.bias, rtol=0, atol=1e-12)


def as_2d(bn):
    made = nn.BatchNorm2d(bn.num_features, bn.eps, dtype=torch.float64)
    made.load_state_dict(bn.state_dict())
    return made.eval()


class Reduced(nn.Module):
    """A norm that feeds a convolution, as in spatial reduction."""

    def __init__(self, padding=0, groups=1, kernel=2, mode="zeros"):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.conv = nn.Conv2d(4, 8, kernel, stride=kernel, padding=padding, groups=groups, padding_mode=mode)

    def forward(self, x):
        return self.conv(self.norm(x).permute(0, 2, 1).reshape(len(x), 4, 6, 6))


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"groups": 4}, {"padding": 1, "mode": "circular"}])
def test_norm_then_convolution(options, gen):
    model = as_if_trained_plain(Reduced(**options).double())
    x = torch.randn(2, 36, 4, generator=gen, dtype=torch.float64)
    fused = st.fuse(model, example=x)
    assert fused.fusion_report.folded == ["norm"]
    assert (fused(x) - model(x)).abs().max() < 1e-12


@pytest.mark.parametrize("padding", [1, "same"])
def test_a_convolution_that_pads_with_zeros_is_not_folded_into(padding, gen):
    model = Reduced().double()
    model.conv = nn.Conv2d(4, 8, 3, padding=padding).double()
    model = as_if_trained_plain(model)
    x = torch.randn(2, 36, 4, generator=gen, dtype=torch.float64)
    fused = st.fuse(model, example=x)
    assert fused.fusion_report.affine == ["norm"]
    assert "pads with zeros" in fused.fusion_report.norms[0].detail
    assert (fused(x) - model(x)).abs().max() < 1e-12


class Odd(nn.Module):
    """A norm whose output is used in a way that forbids folding."""

    def __init__(self, use):
        super().__init__()
        self.norm, self.one, self.two = nn.LayerNorm(4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.use = use

    def forward(self, x):
        normed = self.norm(x)
        return self.use(self, x, normed)


USES = {
    "residual": lambda m, x, n: n + m.one(n),
    "returned": lambda m, x, n: (m.one(n), n),
    "other input too": lambda m, x, n: m.one(n) + m.one(x),
    "transposed": lambda m, x, n: m.one(n[:, :4].transpose(1, 2)),
    "nonlinear": lambda m, x, n: m.one(torch.relu(n)),
    "maximum": lambda m, x, n: m.one(n.max(1).values),
    "written to": lambda m, x, n: m.one(n.clone().mul_(2)),
    "weight elsewhere": lambda m, x, n: m.one(n) + x @ m.one.weight,
    "concatenated": lambda m, x, n: m.one(torch.cat([n, x], 1)),
    "product": lambda m, x, n: n @ n.transpose(1, 2),
    "zero tokens": lambda m, x, n: m.one(nn.functional.pad(n, (0, 0, 0, 1))),
    "dropped": lambda m, x, n: m.one(x),
    "no hook sees it": lambda m, x, n: m.one(n.T.T if n.dim() == 2 else n.mT.mT),
}


@pytest.mark.parametrize("use", USES)
def test_a_norm_that_is_read_otherwise_stays_as_an_affine(use, gen):
    model = as_if_trained_plain(Odd(USES[use]).double())
    x = torch.randn(2, 5, 4, generator=gen, dtype=torch.float64)
    fused = st.fuse(model, example=x)
    assert fused.fusion_report.affine == ["norm"]
    assert isinstance(fused.norm, st.ChannelAffine)
    assert st.verify_fusion(model, fused, x).max_abs_error < 1e-12


ALLOWED = {
    "two readers": lambda m, x, n: m.one(n) * m.two(n),
    "mean over tokens": lambda m, x, n: m.one(n.mean(1)),
    "first token": lambda m, x, n: m.one(n[:, 0]),
    "pooled": lambda m, x, n: m.one(nn.functional.adaptive_avg_pool1d(n.transpose(1, 2), 1).flatten(1)),
    "rolled": lambda m, x, n: m.one(torch.roll(n, 2, 1)),
    "split and dropped": lambda m, x, n: m.one(nn.functional.dropout(n, 0.5, m.training).split(2, 1)[0]),
}


@pytest.mark.parametrize("use", ALLOWED)
def test_moves_and_means_commute_with_the_affine_map(use, gen):
    model = as_if_trained_plain(Odd(ALLOWED[use]).double())
    x = torch.randn(2, 5, 4, generator=gen, dtype=torch.float64)
    fused = st.fuse(model, example=x, strict=True)
    assert (fused(x) - model(x)).abs().max() < 1e-12


@pytest.mark.parametrize(("family", "attention"), [(name, None) for name in BUILD] + [(name, "sla") for name in VISION])
def test_every_family(family, attention):
    model = build(family)
    report = st.convert(model, attention=attention)
    as_if_trained(model)
    given = example_inputs(model)
    fused = st.fuse(model, fixed_size=family == "swin")
    assert sorted(fused.fusion_report.affine) == sorted(LEFT.get(family, []))
    assert len(fused.fusion_report.norms) == sum(c.action == "prepbn" for c in report.replaced)
    with torch.no_grad():
        one, two = logits(call(model, given)), logits(call(fused, given))
    assert (one - two).abs().max() <= 1e-10 * one.abs().max()
    assert one.std() > 0.001
    kinds = {type(module).__name__ for module in fused.modules()}
    assert not kinds & {"LayerNorm", "BatchNorm1d", "RepBN", "PRepBN", "LlamaRMSNorm"}
    single = copy.deepcopy(model).float()
    with torch.no_grad():
        given32 = {k: v.float() if v.is_floating_point() else v for k, v in given.items()}
        found = logits(call(st.fuse(single, fixed_size=family == "swin"), given32))
    assert (found.double() - one).abs().max() <= 1e-4 * one.abs().max()


def test_float16_and_bfloat16_are_folded_in_float64(gen):
    model = build("vit", torch.bfloat16)
    st.convert(model)
    as_if_trained(model)
    fused = st.fuse(model)
    a, _ = first_layer(model).layernorm_after.rep.affine()
    exact = linear_of(first_layer(model)).weight.double() * a
    assert torch.equal(linear_of(first_layer(fused)).weight, exact.to(torch.bfloat16))


def test_post_norm_model_without_head_is_affines_only():
    model = tf.BertModel(build("bert").config, add_pooling_layer=False).double().eval()
    st.convert(model)
    as_if_trained(model)
    fused = st.fuse(model)
    assert len(fused.fusion_report.affine) == 5
    assert not fused.fusion_report.folded
    given = example_inputs(model)
    with torch.no_grad():
        assert (call(model, given)[0] - call(fused, given)[0]).abs().max() < 1e-12


def test_swin_folds_over_windows_only_at_a_fixed_size(gen):
    model = as_if_trained(converted("swin"))
    free = st.fuse(model)
    assert len(free.fusion_report.affine) == 4  # the norm before the windows of each block
    larger = torch.randn(1, 3, 40, 40, generator=gen, dtype=torch.float64)  # grid 20: windows of 4, then 10: padded
    with torch.no_grad():
        torch.testing.assert_close(free(larger).logits, model(larger).logits)
    fixed = st.fuse(model, fixed_size=True)
    assert not fixed.fusion_report.affine
    with pytest.raises(ValueError, match=r"must have the size it was fused for \(\(256, 8\)\)"):
        fixed(larger)


def converted(family, **options):
    model = build(family)
    st.convert(model, **options)
    return model


@pytest.mark.parametrize("attention", [None, "sla"])
def test_last_norm_of_a_headless_swin_goes_into_the_residual_stream(attention):
    model = tf.SwinModel(swin_config(), add_pooling_layer=False).double().eval()
    st.convert(model, attention=attention)
    as_if_trained(model)
    given = example_inputs(model)
    assert st.fuse(model, fixed_size=True).fusion_report.affine == ["layernorm"]
    fused = st.fuse(model, headless="residual", fixed_size=True)
    assert not fused.fusion_report.affine
    with torch.no_grad():
        one, two = call(model, given)[0], call(fused, given)[0]
    assert (one - two).abs().max() < 1e-10
    with torch.no_grad():
        model.layernorm.rep.bn.weight[3] = 0.0
        model.layernorm.rep.alpha.zero_()
    with pytest.raises(st.FusionError, match="channel 3"):
        st.fuse(model, headless="residual", fixed_size=True)


def test_fusing_twice_changes_nothing():
    model = as_if_trained(converted("vit"))
    once = st.fuse(model)
    twice = st.fuse(once)
    assert twice is not once
    assert st.fuse(once, inplace=True) is once
    for (name, one), (_, two) in zip(once.state_dict().items(), twice.state_dict().items(), strict=True):
        assert torch.equal(one, two), name


def test_inplace_and_copy():
    model = as_if_trained(converted("llama"))
    before = copy.deepcopy(model.state_dict())
    fused = st.fuse(model)
    assert find_norms(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    same = st.fuse(model, inplace=True)
    assert same is model
    assert torch.equal(same.lm_head.weight, fused.lm_head.weight)


def test_generation_of_a_fused_llama_equals_the_unfused_one(gen):
    model = as_if_trained(converted("llama"))
    fused = st.fuse(model)
    ids = torch.randint(3, 50, (2, 6), generator=gen)
    mask = torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])
    for options in ({}, {"num_beams": 3}):
        kept = {"max_new_tokens": 8, "do_sample": False, "attention_mask": mask, **options}
        assert torch.equal(model.generate(ids, **kept), fused.generate(ids, **kept))


def test_what_cannot_be_seen_is_caught_by_the_comparison(gen):
    def use(m, x, n):
        with torch._C.DisableTorchFunction():  # as a kernel of one's own would
            return m.one(x) + n if not isinstance(n, nn.Module) else n

    def both(m, x, n):
        return m.one(n) + use(m, x, n)

    model = as_if_trained_plain(Odd(both).double())
    with pytest.raises(st.FusionError, match="differs from the original"):
        st.fuse(model, example=torch.randn(2, 5, 4, generator=gen, dtype=torch.float64))


def test_reports(gen):
    model = as_if_trained(converted("llama_tied"))
    report = st.fuse(model).fusion_report
    assert "model.norm" in str(report)
    assert '"action": "affine"' in report.to_json()
    assert "nothing" in str(st.ConversionReport())
