"""Duels: a fused model against the one it came from, linear attention against softmax, RepBN against BatchNorm."""

import functools
import shutil

import pytest
import slab_transformer as st
import torch
import transformers as tf
from offprints.seeding import isolated, rng
from slab_transformer.fuse import find_norms
from torch import nn
from torch.nn import functional as F


def near(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def finite(_, out):
    return float(out.isfinite().double().mean())


def both_finite(ours, theirs):
    return ours == theirs == 1.0


def shares(model):
    """A converted copy with statistics of data, fused, and the unfused one."""
    with isolated(0):
        for norm in find_norms(model).values():
            norm.set_lam(0.0)
            norm.rep.bn.running_var.fill_(1.5)
    return st.fuse(model.eval(), fixed_size=True), model


@functools.cache
def vit():
    """DeiT-T's sizes: 12 layers of width 192, 197 tokens."""
    config = tf.ViTConfig(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768)
    with isolated(0):
        plain = tf.ViTForImageClassification(config).eval()
        model = tf.ViTForImageClassification(config)
    st.convert(model)
    fused, unfused = shares(model)
    return plain, unfused, fused


@functools.cache
def llama():
    """12 layers of width 256, grouped queries, a head of its own."""
    config = tf.LlamaConfig(
        vocab_size=1000, hidden_size=256, intermediate_size=688, num_hidden_layers=12, num_attention_heads=8,
        num_key_value_heads=4,
    )  # fmt: skip
    with isolated(0):
        plain = tf.LlamaForCausalLM(config).eval()
        model = tf.LlamaForCausalLM(config)
    st.convert(model)
    fused, unfused = shares(model)
    return plain, unfused, fused


def pixels(batch):
    return torch.randn(batch, 3, 224, 224, generator=rng(batch, "cpu"))


def logits(model):
    def run(x):
        with torch.no_grad():
            return model(x).logits

    return run


def tokens(length):
    return torch.randint(0, 1000, (1, length), generator=rng(length, "cpu"))


def test_fused_vit_against_layernorm(duel):
    """Sizes are images of a batch; other norms give other outputs, so only their being finite is compared."""
    plain, _, fused = vit()
    duel(
        sizes=[1, 4],
        make=pixels,
        ours=logits(fused),
        peers={"transformers ViT": logits(plain)},
        quality=(finite, both_finite),
        target={"transformers ViT": 0.98},
    )


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler for torch.compile")
def test_fused_vit_against_compiled(duel):
    """Both compiled: the peer's compiler fuses LayerNorm's own steps."""
    plain, _, fused = vit()
    duel(
        sizes=[1],
        make=pixels,
        ours=logits(torch.compile(fused)),
        peers={"torch.compile of transformers ViT": logits(torch.compile(plain))},
        quality=(finite, both_finite),
        target={"torch.compile of transformers ViT": 0.98},
    )


def test_fused_vit_against_unfused(duel):
    """The same function before fusion."""
    _, unfused, fused = vit()
    duel(sizes=[1, 4], make=pixels, ours=logits(fused), peers={"unfused RepBN": logits(unfused)}, same=near,
         target={"unfused RepBN": 0.98})  # fmt: skip


def test_fused_llama_against_rmsnorm(duel):
    """Sizes are tokens of a prompt."""
    plain, _, fused = llama()
    duel(
        sizes=[1, 64, 256],
        make=tokens,
        ours=logits(fused),
        peers={"transformers Llama": logits(plain)},
        quality=(finite, both_finite),
        target={"transformers Llama": 1.0},
    )


def heads(count):
    q, k, v = torch.randn(3, 1, 3, count, 32, generator=rng(count, "cpu")).unbind()
    return q, k, v


@functools.cache
def attention(count):
    side = round(count**0.5)
    return st.SimplifiedLinearAttention(96, 3, (side, side)).eval()


def linear(data):
    with torch.no_grad():
        return st.linear_attention(*data) + attention(data[0].shape[2]).convolve(data[2])


def softmax(data):
    with torch.no_grad():
        return F.scaled_dot_product_attention(*data)


def test_linear_attention_against_softmax(duel):
    """Sizes are tokens; 3 heads of 32; ours with its convolution."""
    duel(
        sizes=[196, 784, 3136],
        make=heads,
        ours=linear,
        peers={"torch SDPA": softmax},
        quality=(finite, both_finite),
        target={"torch SDPA": {784: 5.0, 3136: 15.0}},
        growth="n",
    )


def test_order_of_the_products(duel):
    """The same result with the scores formed first."""
    duel(
        sizes=[784, 3136],
        make=heads,
        ours=lambda data: st.linear_attention(*data),
        peers={"(q k) v": lambda data: st.linear_attention(*data, order="qk")},
        same=near,
        target={"(q k) v": {784: 3.0, 3136: 10.0}},
    )


@pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])
def test_repbn_against_batchnorm(duel, training):
    """Sizes are images of 197 tokens of width 192; alpha is 0, so that the outputs are equal."""
    ours, theirs = st.RepBN(192, alpha_init=0.0), nn.BatchNorm1d(192)
    for module in (ours, theirs):
        module.train(training)

    def plain(x):
        with torch.no_grad():
            return theirs(x.flatten(0, 1)).view(x.shape)

    def rep(x):
        with torch.no_grad():
            return ours(x)

    duel(
        sizes=[32, 128],
        make=lambda batch: torch.randn(batch, 197, 192, generator=rng(batch, "cpu")),
        ours=rep,
        peers={"torch BatchNorm1d": plain},
        same=near,
        target={"torch BatchNorm1d": 1 / 1.15},
        id=f"repbn_{'training' if training else 'eval'}",
    )
