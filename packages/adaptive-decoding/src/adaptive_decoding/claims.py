"""The paper's claims and how each is measured; the runs themselves are in the `experiments` modules."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from offprints.claims import Method, Runs, Scale, best, exact, greater, less, monotone

from adaptive_decoding import experiments, experiments_arithmetic, figures
from adaptive_decoding.experiments import EPSILONS, EVERY, SAMPLINGS, label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHOD = Method(
    dist="adaptive-decoding",
    title="Improving Open-Ended Text Generation via Adaptive Decoding",
    authors="Wenhong Zhu, Hongkun Hao, Zhiwei He, Yiming Ai, Rui Wang",
    field="Text generation",
    summary="Sample from a language model with one knob that adapts the candidate set to each step.",
    venue="ICML 2024",
    arxiv="2402.18223",
    code="zwhong714/adaptive_decoding",
    bibtex="""@inproceedings{zhu2024adaptive,
  title = {Improving Open-Ended Text Generation via Adaptive Decoding},
  author = {Zhu, Wenhong and Hao, Hongkun and He, Zhiwei and Ai, Yiming and Wang, Rui},
  booktitle = {Proceedings of the 41st International Conference on Machine Learning},
  series = {PMLR},
  volume = {235},
  year = {2024},
}""",
    dtype="bfloat16 weights, float32 logits",
    deviations=[
        "The default rule stops at the first token whose increment is at most ε, the paper's loop; the released code "
        'keeps each token by itself, which is rule="pointwise".',
        "The released code takes the tail mass as 1 − cumsum in the dtype of the logits; where it is 0 or negative "
        "the increment is set to 0, and probable tokens are lost (claim exact-tail). Here it is summed from the tail.",
        "ε = 0 is allowed and keeps every token with a positive increment; ε ≥ 1, NaN and negative ε are refused.",
        "The paper's models (GPT2-XL, Llama-2) and prompts (WritingPrompts, WikiText-103) are replaced by SmolLM2-135M "
        "and paragraphs of Wikipedia; weights in bfloat16, last layer in float32. Coherence and MAUVE use MiniLM.",
        "GSM8K and MultiArith are replaced by one-step word problems made from templates, with three worked examples: "
        "200 of them, in five runs of 40.",
        "Perplexity, mass and candidates are taken under the model's own distribution for every decoder, although none "
        "may end a text early.",
        "The paper's human preferences cannot be reproduced here.",
    ],
)

ADAPTIVE = label("adaptive:epsilon=0.001")
SMOL = {"model": "smollm2-135m"}
FULL = "a GPU with 16 GB for GPT2-XL, 80 GB for Llama-2; 1 to 2 hours a model and decoder"
OTHERS = [label(decoder) for decoder in EVERY if not decoder.startswith("adaptive")]


@METHOD.claim(
    "exact-tail",
    where="Section 3, confidence",
    says="Increments are exact: of p = (0.6, 0.4) both tokens are kept; of random logits in float32 and bfloat16 every "
    "kept set is that of the equations, and of those by 1 − cumsum in bfloat16 more than a quarter are not.",
    expect=[
        exact("kept_of_two", 2.0, tol=0.0),
        exact("released_kept_of_two", 1.0, tol=0.0),
        exact("second_increment", 0.399999, tol=1e-6),
        exact("ours_wrong_float32", 0.0, tol=0.0),
        exact("ours_wrong_bfloat16", 0.0, tol=0.0),
        greater("released_wrong_bfloat16", 0.25),
    ],
    smoke=Scale(seeds=2, vocabulary=2000, rows=8),
    cpu=Scale(seeds=8, vocabulary=50257, rows=64),
    full=Scale(seeds=8, vocabulary=256_000, rows=256, needs="1 CPU hour"),
)
def exact_tail(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Kept sets by the literal equations, by this package and by 1 − cumsum, on random logits."""
    return experiments.exact_tail(seed, scale.vocabulary, scale.rows)


@METHOD.claim(
    "candidate-sets",
    where="Table 8",
    says="The mean number of candidates falls with ε, is 15 to 50 at ε = 0.001, and varies from step to step; prefix "
    "and pointwise rule keep the same set at 98 % of them.",
    paper={
        "k_gpt2xl_uniform_0.001": 30.34,
        "k_gpt2xl_uniform_0.005": 8.13,
        "k_gpt2xl_uniform_0.01": 4.31,
        "k_gpt2xl_uniform_0.02": 1.8,
        "k_llama2_multinomial_0.001": 21.73,
        "k_llama2_multinomial_0.02": 1.67,
    },
    expect=[
        rule
        for sampling in SAMPLINGS
        for rule in (
            monotone([f"k_{sampling}_{epsilon:g}" for epsilon in EPSILONS], "decreasing"),
            greater(f"k_{sampling}_0.001", 15.0),
            less(f"k_{sampling}_0.001", 50.0),
            greater(f"spread_{sampling}_0.001", 0.4),
            less(f"rules_differ_{sampling}_0.001", 0.02),
        )
    ],
    smoke=Scale(seeds=2, model="tiny", prompts=2, length=16, steps=4),
    cpu=Scale(seeds=6, **SMOL, prompts=12, length=32, steps=24),
    full=Scale(seeds=6, model="gpt2-xl", prompts=200, length=32, steps=256, needs=FULL),
    tolerance=0.05,
)
def candidate_sets(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Mean, spread, mass and confidence of the candidate sets for every ε and both samplings."""
    return experiments.candidate_sets(seed, scale.model, scale.prompts, scale.length, scale.steps)


@METHOD.claim(
    "balance",
    where="Section 4, open-ended generation",
    says="Texts have a diversity above 0.85, greater than that of greedy decoding and of top-k, and a lower perplexity "
    "than those of top-p, whose in turn is lower than that of sampling; each of these also by the 90 % interval of the "
    "paired difference, by bootstrap over prompts, in one run after another.",
    expect=[
        greater(f"diversity_{ADAPTIVE}", 0.85),
        greater(f"diversity_{ADAPTIVE}", best("diversity_top_k_10", "diversity_greedy")),
        less(f"perplexity_{ADAPTIVE}", "perplexity_top_p_0.95"),
        less("perplexity_top_p_0.95", "perplexity_sampling"),
        greater("low_diversity_over_top_k_10", 0.0),
        greater("low_diversity_over_greedy", 0.0),
        greater(f"low_surprise_top_p_0.95_over_{ADAPTIVE}", 0.0),
        greater("low_surprise_sampling_over_top_p_0.95", 0.0),
    ],
    smoke=Scale(seeds=2, model="tiny", prompts=2, length=16, steps=6, batch=2, draws=2),
    cpu=Scale(seeds=6, **SMOL, prompts=24, length=32, steps=64, batch=24, draws=3),
    full=Scale(seeds=5, model="gpt2-xl", prompts=1000, length=32, steps=256, batch=64, draws=3, needs=FULL),
    tolerance=0.05,
    note="Diversity is a little below that of plain sampling. The margin over top-k hangs on the prompts: each run has "
    "other ones, and the last four expectations ask each run for an interval above 0.",
)
def balance(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Diversity, perplexity and coherence of nine decoders on the same prompts."""
    return experiments.balance(seed, scale.model, scale.prompts, scale.length, scale.steps, scale.batch, scale.draws)


@METHOD.claim(
    "reasoning",
    where="Section 4, GSM8K and MultiArith",
    says="On questions with one right answer (200 in all, 40 a run) ε = 0.0005 does better than plain sampling, and at "
    "most 5 points worse than top-p and than greedy decoding.",
    expect=[
        greater(label("adaptive:epsilon=0.0005"), "sampling"),
        greater(label("adaptive:epsilon=0.0005"), "top_p_0.95", by=-0.05),
        greater(label("adaptive:epsilon=0.0005"), "greedy", by=-0.05),
    ],
    smoke=Scale(seeds=2, model="tiny", items=3, steps=4, batch=3, resamples=20),
    cpu=Scale(seeds=5, **SMOL, items=40, steps=24, batch=40, resamples=1000),
    full=Scale(
        seeds=5, model="meta-llama/Llama-2-7b-chat-hf", items=300, steps=256, batch=32, resamples=1000, needs=FULL
    ),
    tolerance=0.2,
    note="Where one token is right, every decoder that samples from tens of them loses to greedy decoding: a model "
    "this small has the right digit first but with little probability. Contrastive search and top-h, which keep few, "
    "come nearest to it. The paper's Llama-2-chat is not measured here.",
)
def reasoning(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """Accuracy of every decoder on the same word problems."""
    return experiments_arithmetic.accuracy(seed, scale.model, scale.items, scale.steps, scale.batch, scale.resamples)


@METHOD.claim(
    "mauve",
    where="Section 4, open-ended generation",
    says="Its texts are nearer to what people wrote (MAUVE) than those of every other decoder: than the best of the "
    "eleven in each run, which favours them.",
    expect=[greater(ADAPTIVE, best(*OTHERS))],
    smoke=Scale(seeds=2, model="tiny", prompts=6, length=16, steps=6, batch=6, resamples=2),
    cpu=Scale(seeds=5, **SMOL, prompts=200, length=32, steps=24, batch=100, resamples=40),
    full=Scale(seeds=5, model="gpt2-xl", prompts=1000, length=32, steps=256, batch=64, resamples=100, needs=FULL),
    tolerance=0.2,
    note="MAUVE saturates: on MiniLM features of so short texts every decoder comes near 1, and which is first "
    "changes from run to run, so that the best of eleven is above any one by chance. It ranks nothing at this size; "
    "the paper's headline is neither shown nor contradicted.",
)
def mauve(seed: int, scale: Scale, device: str) -> experiments.Metrics:
    """MAUVE of every decoder's texts against the paragraphs that the prompts come from."""
    return experiments.closeness(
        seed, scale.model, scale.prompts, scale.length, scale.steps, scale.batch, scale.resamples
    )


@METHOD.figure("candidate-sets", needs=["candidate-sets"], caption="Kept tokens against ε, with the means of Table 8.")
def draw_candidate_sets(runs: Mapping[str, Runs]) -> "Figure":
    """Mean ± standard deviation of k."""
    return figures.candidate_sets(runs)


@METHOD.figure("trade-off", needs=["balance"], caption="Diversity against perplexity, one point a decoder.")
def draw_trade_off(runs: Mapping[str, Runs]) -> "Figure":
    """The decoders of `balance`."""
    return figures.trade_off(runs)


@METHOD.figure("one-step", needs=["exact-tail"], caption="One step: probabilities, increments and where ε cuts.")
def draw_one_step(runs: Mapping[str, Runs]) -> "Figure":
    """The overview of the method on a power law."""
    return figures.one_step(runs)


@METHOD.figure("mauve", needs=["mauve"], caption="MAUVE of every decoder.")
def draw_mauve(runs: Mapping[str, Runs]) -> "Figure":
    """The decoders of `mauve`."""
    return figures.mauve(runs)
