"""The paper's claims and how each is measured; the runs themselves are in the `experiments` modules."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offprints.claims import Method, Runs, Scale, exact, greater, less, scaled, slope, within

from slab_transformer import experiments_language, experiments_vision, figures
from slab_transformer.experiments_vision import Metrics
from slab_transformer.published import TOP1

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = Method(
    dist="slab-transformer",
    title="SLAB: Efficient Transformers with Simplified Linear Attention and Progressive Re-parameterized Batch "
    "Normalization",
    authors="Jialong Guo, Xinghao Chen, Yehui Tang, Yunhe Wang",
    field="Efficient transformers",
    summary="Replace LayerNorm by a BatchNorm that folds away at inference, and softmax by a linear attention.",
    venue="ICML 2024",
    arxiv="2405.11582",
    code="xinghaochen/SLAB",
    bibtex="""@inproceedings{guo2024slab,
  title = {SLAB: Efficient Transformers with Simplified Linear Attention and Progressive Re-parameterized Batch
           Normalization},
  author = {Guo, Jialong and Chen, Xinghao and Tang, Yehui and Wang, Yunhe},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  year = {2024},
}""",
    dtype="float32",
    deviations=[
        "One counter of optimiser steps for all norms; in the released code each norm counts its own forwards, so that "
        "accumulation, checkpointing or two views of a batch make lambda fall faster.",
        "Folding a patch embedding with its norm keeps the term alpha d; the released code drops it.",
        "Padding takes no part in the statistics; the released code has an argument for it that is never passed.",
        "By default lambda falls over 80 % of all steps, not 60 000 of them; a converted norm starts with the weights "
        "of the LayerNorm and alpha = 0 (init='paper' for the paper's).",
        "Digits of 8 x 8 and Python's documentation instead of ImageNet, COCO and 10 GB of text; transformers' models.",
    ],
)

TOKENS = (196, 784, 3136)
GPUS = "8 GPUs, 10 to 30 GPU-days: slab-transformer train --model slab_swin_tiny --data IMAGENET --epochs 300"
MODELS = ("vit", "swin", "pvt", "llama")


@METHOD.claim(
    "swap",
    where="Section 3.2, Table 1",
    says="Swapping LayerNorm for BatchNorm at once disturbs training; the progressive swap does not.",
    paper={name: value for name, value in TOP1.items() if name.startswith("prepbn")},
    expect=[
        less("change_prepbn", 1e-5),
        less("change_prepbn_paper", 1e-5),
        less("max_prepbn", scaled("max_bn", 0.7)),
        less("max_prepbn_paper", scaled("max_bn", 0.7)),
        greater("accuracy_prepbn", "accuracy_ln", by=-0.03),
        greater("accuracy_prepbn_paper", "accuracy_ln", by=-0.03),
    ],
    smoke=Scale(seeds=2, layers=1, epochs=0.3, tune_epochs=0.3),
    cpu=Scale(seeds=8, layers=4, epochs=12, tune_epochs=3),
    full=Scale(seeds=8, layers=12, epochs=300, tune_epochs=75, needs="one GPU, an hour"),
    tolerance=0.05,
    note="Every variant, LayerNorm too, is trained on from the same weights with the same batches.",
)
def swap(seed: int, scale: Scale, device: str) -> Metrics:
    """Losses and accuracy after the swap."""
    return experiments_vision.swap(seed, scale.layers, scale.epochs, scale.tune_epochs, 1e-3)


@METHOD.claim(
    "linear",
    where="Section 3.3, Table 2",
    says="Simplified linear attention keeps the accuracy of softmax attention.",
    paper={name: value for name, value in TOP1.items() if name.startswith("slab")},
    expect=[within("accuracy_sla", "accuracy_softmax", 0.02)],
    smoke=Scale(seeds=2, layers=1, epochs=0.2, rates=(1e-3,)),
    cpu=Scale(seeds=8, layers=4, epochs=24, rates=(1e-3, 3e-3)),
    full=Scale(seeds=8, layers=12, epochs=300, rates=(1e-3, 3e-3), needs=GPUS),
    tolerance=0.05,
    note="softmax_bn is BatchNorm from scratch: at this size it does not collapse, which the paper saw at its own. "
    "slab is linear attention with PRepBN, fused before it is timed.",
)
def linear(seed: int, scale: Scale, device: str) -> Metrics:
    """Accuracy from scratch, equal budgets."""
    return experiments_vision.linear(seed, scale.layers, scale.epochs, scale.rates)


@METHOD.claim(
    "inference-free",
    where="Lemma 4.1, Section 3.2",
    says="After training the norms are gone: nothing is computed for them at inference, and the outputs are equal.",
    expect=[
        rule
        for name in MODELS
        for rule in (
            exact(f"norms_left_{name}"),
            exact(f"affines_left_{name}"),
            exact(f"difference_{name}", tol=1e-10),
        )
    ],
    smoke=Scale(seeds=2, epochs=0),
    cpu=Scale(seeds=5, epochs=2),
    full=Scale(seeds=5, epochs=20, needs="10 CPU minutes"),
    tolerance=1e-6,
)
def inference_free(seed: int, scale: Scale, device: str) -> Metrics:
    """Norms left and differences, in float64."""
    return experiments_vision.inference_free(seed, scale.epochs)


@METHOD.claim(
    "linear-cost",
    where="Section 3.3",
    says="The cost of simplified linear attention grows with the number of tokens, that of softmax with its square.",
    paper={"slab_swin_ms": 16.2, "flatten_swin_ms": 18.6},
    expect=[
        less("share_784", 1 / 3),
        less("share_3136", 1 / 12),
        slope({tokens: f"sla_{tokens}" for tokens in TOKENS}, 0.0, 1.2),
    ],
    smoke=Scale(seeds=2, sides=(14, 28, 56), calls=1),
    cpu=Scale(seeds=8, sides=(14, 28, 56), calls=20),
    full=Scale(seeds=8, sides=(14, 28, 56), calls=200, needs="10 CPU minutes"),
    tolerance=1e9,
    note="Processor milliseconds on one thread: they differ from machine to machine.",
)
def linear_cost(seed: int, scale: Scale, device: str) -> Metrics:
    """Milliseconds at 196, 784 and 3136 tokens."""
    return experiments_vision.attention_cost(seed, scale.sides, scale.calls)


@METHOD.claim(
    "language",
    where="Section 5.3, Table 5",
    says="A language model with PRepBN is as good as with RMSNorm, and faster to decode with once it is fused.",
    expect=[less("loss_prepbn", "loss_rms", by=-0.1), less("ms_fused", "ms_rms")],
    smoke=Scale(seeds=2, layers=1, hidden=16, steps=4, rates=(3e-3,), tokens=8),
    cpu=Scale(seeds=6, layers=2, hidden=64, steps=400, rates=(1e-3, 3e-3), tokens=200),
    full=Scale(
        seeds=1,
        layers=18,
        hidden=1024,
        steps=200_000,
        rates=(3e-4,),
        tokens=200,
        needs="8 GPUs, days; 10 to 20 B tokens",
    ),
    tolerance=0.5,
    note="Milliseconds are the processor's, per token, on one thread; bn is BatchNorm from the first step.",
)
def language(seed: int, scale: Scale, device: str) -> Metrics:
    """Held-out nats per byte and milliseconds per token."""
    return experiments_language.compare(seed, scale.layers, scale.hidden, scale.steps, scale.rates, scale.tokens)


@METHOD.claim(
    "statistics",
    where="Section 5.1",
    says="With stochastic depth, measuring the statistics again after training lowers the loss.",
    expect=[less("exact", "before")],
    smoke=Scale(seeds=2, epochs=0.2),
    cpu=Scale(seeds=8, epochs=10),
    full=Scale(seeds=8, epochs=100, needs="one GPU, an hour"),
    tolerance=0.2,
    note="Without dropping, on the training images: exact averages over all of them, ema goes on with momentum 0.1.",
)
def statistics(seed: int, scale: Scale, device: str) -> Metrics:
    """Test loss before and after."""
    return experiments_vision.after_training(seed, 0.3, scale.epochs, 2e-3)


@METHOD.figure("swap", needs=["swap"], caption="Loss and lambda after the swap: LayerNorm, BatchNorm at once, PRepBN.")
def draw_swap(runs: Mapping[str, Runs]) -> "Figure":
    """Losses against steps."""
    return figures.swap(runs)


@METHOD.figure("cost", needs=["linear-cost"], caption="Processor time of attention against the number of tokens.")
def draw_cost(runs: Mapping[str, Runs]) -> "Figure":
    """Milliseconds against tokens."""
    return figures.cost(runs)


@METHOD.figure(
    "tradeoff", needs=["linear"], caption="Accuracy against latency: on digits, and as published for Swin-S."
)
def draw_tradeoff(runs: Mapping[str, Runs]) -> "Figure":
    """Accuracy against milliseconds."""
    return figures.tradeoff(runs)
