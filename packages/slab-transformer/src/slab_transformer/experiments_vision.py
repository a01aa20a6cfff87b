"""Training runs on digits behind the vision claims (Guo et al., 2024, Sections 3 and 5.1-5.2)."""

import copy
import time
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from offprints.seeding import isolated
from torch import Tensor, nn
from torch.nn import functional as F

from .attention import SimplifiedLinearAttention, linear_attention
from .convert import convert
from .data import digits
from .fuse import fuse
from .recalibrate import recalibrate
from .train import train

Metrics = dict[str, float | list[float]]
_BATCH = 64


def vit(seed: int, layers: int, hidden: int = 32) -> nn.Module:
    """Transformers' ViT on 8 x 8 pixels in patches of 2: 16 tokens and the class token."""
    from transformers import ViTConfig, ViTForImageClassification

    with isolated(seed):
        return ViTForImageClassification(
            ViTConfig(
                image_size=8,
                patch_size=2,
                num_channels=1,
                num_labels=10,
                hidden_size=hidden,
                num_hidden_layers=layers,
                num_attention_heads=4,
                intermediate_size=2 * hidden,
            )
        )


def swin(seed: int, drop_path: float) -> nn.Module:
    """Transformers' Swin on 8 x 8 pixels: two stages, windows of 4, with stochastic depth."""
    from transformers import SwinConfig, SwinForImageClassification

    with isolated(seed):
        return SwinForImageClassification(
            SwinConfig(
                image_size=8,
                patch_size=1,
                num_channels=1,
                num_labels=10,
                embed_dim=16,
                depths=[2, 2],
                num_heads=[2, 4],
                window_size=4,
                drop_path_rate=drop_path,
            )
        )


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Cross entropy in nats."""
    return F.cross_entropy(model(pixel_values=batch[0]).logits, batch[1])


def endless(images: Tensor, labels: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of 64, epoch after epoch, each in an order of its own."""
    gen = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(labels), generator=gen)
        for begin in range(0, len(order) - _BATCH + 1, _BATCH):
            rows = order[begin : begin + _BATCH]
            yield images[rows], labels[rows]


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of right answers in eval mode."""
    model.eval()
    with torch.no_grad():
        return float((model(pixel_values=images).logits.argmax(-1) == labels).double().mean())


def _chunks(images: Tensor) -> list[dict[str, Tensor]]:
    return [{"pixel_values": part} for part in images.split(256)]


def swap(seed: int, layers: int, epochs: float, tune_epochs: float, lr: float) -> Metrics:
    """Train with LayerNorm, swap the norms, train on: all variants from the same weights, on the same batches."""
    x, y, test_x, test_y = digits(seed)
    per_epoch = len(y) // _BATCH
    base = vit(seed, layers)
    train(base, endless(x, y, seed), loss_of, round(epochs * per_epoch), lr)
    steps = round(tune_epochs * per_epoch)
    decay = max(1, round(0.7 * steps))
    found: Metrics = {}
    kinds = {
        "ln": {}, "bn": {"norm": "bn"}, "repbn": {"norm": "repbn", "init": "paper"},
        "prepbn": {"norm": "prepbn", "decay_steps": decay},
        "prepbn_paper": {"norm": "prepbn", "init": "paper", "decay_steps": decay},
    }  # fmt: skip
    for name, options in kinds.items():
        model = copy.deepcopy(base).train()
        with torch.no_grad():
            before = model(pixel_values=x[:_BATCH]).logits
        if options:
            convert(model, **options)
        if "prepbn" in name:
            with torch.no_grad():
                found[f"change_{name}"] = float((model(pixel_values=x[:_BATCH]).logits - before).abs().max())
        losses = train(model, endless(x, y, seed + 1), loss_of, steps, lr)
        if options:
            recalibrate(model, _chunks(x))
        found[f"first_{name}"], found[f"max_{name}"] = losses[0], max(losses)
        found[f"accuracy_{name}"] = accuracy(model, test_x, test_y)
        found[f"losses_{name}"] = losses
    found["lambda"] = [max(0.0, 1 - step / decay) for step in range(steps)]
    return found


def linear(seed: int, layers: int, epochs: float, rates: tuple[float, ...]) -> Metrics:
    """Softmax and linear attention, LayerNorm and BatchNorm, each at its best learning rate."""
    x, y, test_x, test_y = digits(seed)
    per_epoch = len(y) // _BATCH
    steps = round(epochs * per_epoch)
    found: Metrics = {}
    kinds = {
        "softmax": {}, "sla": {"norm": None, "attention": "sla"}, "softmax_bn": {"norm": "bn"},
        "slab": {"norm": "prepbn", "attention": "sla", "total_steps": steps},
    }  # fmt: skip
    cut = len(y) // 5  # of the training images, to choose the rate by
    for name, options in kinds.items():
        runs = []
        for lr in rates:
            model = vit(seed, layers)
            if options:
                convert(model, **options)
            train(model, endless(x[cut:], y[cut:], seed), loss_of, steps, lr, warmup=per_epoch, final_lr=lr / 100)
            if options.get("norm"):
                recalibrate(model, _chunks(x[cut:]))
            runs.append((accuracy(model, x[:cut], y[:cut]), accuracy(model, test_x, test_y)))
        found[f"accuracy_{name}"] = max(runs)[1]
        found[f"parameters_{name}"] = float(sum(p.numel() for p in model.parameters()))
        found[f"ms_{name}"] = _latency(fuse(model) if options.get("norm") else model, test_x[:_BATCH])
    return found


def _latency(model: nn.Module, images: Tensor) -> float:
    times = []
    with torch.no_grad():
        for _ in range(12):
            begun = time.process_time()
            model(pixel_values=images)
            times.append(time.process_time() - begun)
    return 1000 * float(np.median(times[2:]))


def after_training(seed: int, drop_path: float, epochs: float, lr: float) -> Metrics:
    """Loss on test images before and after the statistics are measured again without stochastic depth."""
    x, y, test_x, test_y = digits(seed)
    per_epoch = len(y) // _BATCH
    steps = round(epochs * per_epoch)
    model = swin(seed, drop_path)
    convert(model, total_steps=steps)
    with isolated(seed):
        train(model, endless(x, y, seed), loss_of, steps, lr)
    found: Metrics = {}
    for name in ("before", "exact", "ema"):
        again = copy.deepcopy(model)
        if name != "before":
            recalibrate(again, _chunks(x) if name == "exact" else _chunks(x) * 10, mode=name)
        with torch.no_grad():
            found[name] = float(loss_of(again, (test_x, test_y)))
        found[f"accuracy_{name}"] = accuracy(again, test_x, test_y)
    return found


def inference_free(seed: int, epochs: int) -> Metrics:
    """Norms left, and the largest difference of outputs in float64, after training and fusing four kinds of model."""
    from transformers import LlamaConfig, LlamaForCausalLM, PvtConfig, PvtForImageClassification

    x, y, test_x, _ = digits(seed)
    steps = max(4, epochs * (len(y) // _BATCH))
    with isolated(seed):
        pvt = PvtForImageClassification(
            PvtConfig(
                image_size=32,
                num_channels=1,
                num_labels=10,
                hidden_sizes=[8, 16, 16, 16],
                depths=[1] * 4,
                num_attention_heads=[1, 2, 2, 2],
                sequence_reduction_ratios=[4, 2, 2, 1],
            )
        )
        llama = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=17,
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                num_key_value_heads=2,
                bos_token_id=0,
                eos_token_id=1,
            )
        )
    found: Metrics = {}
    large = x.repeat_interleave(4, 2).repeat_interleave(4, 3)  # PVT begins with patches of 4
    images = {"pixel_values": test_x[:32].double()}
    tokens = {"input_ids": ((x[:32] * 6 + 4.9).round().long().clamp(0, 16)).flatten(1)}
    large_images = {"pixel_values": large[:32].double()}
    for name, model, given in (
        ("vit", vit(seed, 4), images), ("swin", swin(seed, 0.1), images), ("pvt", pvt, large_images),
        ("llama", llama, tokens),
    ):  # fmt: skip
        convert(model, total_steps=steps)
        if name == "llama":
            rows = iter([tokens["input_ids"]] * steps)
            train(model, rows, lambda m, ids: m(input_ids=ids, labels=ids).loss, steps, 1e-3)
        else:
            train(model, endless(large if name == "pvt" else x, y, seed), loss_of, steps, 1e-3)
        model.double()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            fused = fuse(model, example=given, fixed_size=True)
        left = sum(1 for m in fused.modules() if "Norm" in type(m).__name__ or type(m).__name__ in ("RepBN", "PRepBN"))
        with torch.no_grad():
            one, two = model(**given).logits, fused(**given).logits
        found[f"norms_left_{name}"] = float(left)
        found[f"affines_left_{name}"] = float(len(fused.fusion_report.affine))
        found[f"difference_{name}"] = float((one - two).abs().max() / one.abs().max())
    return found


def attention_cost(seed: int, sides: tuple[int, ...], calls: int) -> Metrics:
    """Processor seconds of softmax (SDPA) and of linear attention with its convolution: 3 heads of 32, on one image."""
    gen = torch.Generator().manual_seed(seed)
    found: Metrics = {}
    for side in sides:
        tokens = side * side
        q, k, v = (torch.randn(1, 3, tokens, 32, generator=gen) for _ in range(3))
        module = SimplifiedLinearAttention(96, 3, (side, side))
        times: dict[str, list[float]] = {"softmax": [], "sla": []}
        with torch.no_grad():
            for _ in range(calls + 2):
                for name in times:
                    begun = time.process_time()
                    if name == "softmax":
                        F.scaled_dot_product_attention(q, k, v)
                    else:
                        _ = linear_attention(q, k, v) + module.convolve(v)
                    times[name].append(time.process_time() - begun)
        for name, values in times.items():
            found[f"{name}_{tokens}"] = 1000 * float(np.median(values[2:]))
        found[f"share_{tokens}"] = float(found[f"sla_{tokens}"]) / float(found[f"softmax_{tokens}"])
    return found
