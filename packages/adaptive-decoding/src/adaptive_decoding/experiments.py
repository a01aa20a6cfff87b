"""The runs behind the claims: candidate sets, diversity against perplexity, MAUVE, arithmetic, the exact tail mass."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from offprints.seeding import isolated, rng, spawn
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from adaptive_decoding import _reference as reference
from adaptive_decoding.candidates import candidate_mask
from adaptive_decoding.decoders import make_decoder
from adaptive_decoding.distance import feature_mauve
from adaptive_decoding.experiments_models import Bench, bench, prompts_of
from adaptive_decoding.generation import Continuation, continuations, end_ids, own_settings, padded, without
from adaptive_decoding.increments import confidence_increments
from adaptive_decoding.metrics import cosines, diversity
from adaptive_decoding.processor import AdaptiveLogitsProcessor

Metrics = dict[str, float | list[float]]
EPSILONS = (5e-4, 1e-3, 5e-3, 1e-2, 2e-2)
SAMPLINGS = ("uniform", "multinomial")
BALANCE = (
    "greedy", "top_k:k=10", "min_p:p=0.05", "mirostat:tau=3", "adaptive:epsilon=0.001", "adaptive:epsilon=0.0005",
    "top_p:p=0.95", "eta:epsilon=0.0003", "sampling",
)  # fmt: skip
COMPARED = ("top_k:k=10", "adaptive:epsilon=0.001", "top_p:p=0.95", "sampling")  # drawn from several times
EVERY = (*BALANCE, "typical:p=0.95", "epsilon:epsilon=0.0003", "top_h:h=0.4", "contrastive:k=5,alpha=0.6")


def label(decoder: str) -> str:
    """A decoder as part of the name of a metric: "top_p_0.95"."""
    made = make_decoder(decoder)
    first = next(iter(made.parameters.values()), "")
    return made.kind + (f"_{first:g}" if isinstance(first, float | int) else "")


class _Both(LogitsProcessor):
    """The processor without the end of the text; the mass it keeps of all, as in `Continuation`.

    And how often its rule and the pointwise rule of the released code keep different sets.
    """

    def __init__(self, inner: AdaptiveLogitsProcessor, ends: Sequence[int]) -> None:
        self.inner, self.ends, self.differ, self.mass = inner, ends, [], []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        left = without(scores, self.ends)
        prefix, pointwise = (
            candidate_mask(left, self.inner.epsilon, rule=rule, min_tokens_to_keep=1)
            for rule in ("prefix", "pointwise")
        )
        self.differ.append((prefix != pointwise).any(-1))
        self.mass.append((scores.softmax(-1) * prefix).sum(-1))
        return self.inner(input_ids, left)


def candidate_sets(seed: int, model: str, prompts: int, length: int, steps: int) -> Metrics:
    """Mean and spread of k, mass and confidence for all ε at once: every row of one batch has its own."""
    here = bench(model)
    texts, _ = prompts_of(here, seed, prompts, length, 0, first=True)
    ids = [here.tokenizer(text)["input_ids"] for text in texts for _ in EPSILONS]
    table, mask = padded(ids, 0, here.model.device)
    found: Metrics = {}
    for sampling in SAMPLINGS:
        limits = torch.tensor(EPSILONS, dtype=torch.float64).repeat(prompts)
        ends = end_ids(here.model, here.tokenizer)
        both = _Both(AdaptiveLogitsProcessor(limits, sampling=sampling, record=True), ends)
        config = GenerationConfig(do_sample=True, top_k=0, max_new_tokens=steps, pad_token_id=0)
        with isolated(seed), own_settings(here.model):
            cast("Any", here.model).generate(
                table, attention_mask=mask, generation_config=config, logits_processor=LogitsProcessorList([both])
            )
        trace, differ, mass = both.inner.trace, *(torch.stack(x).cpu().numpy() for x in (both.differ, both.mass))
        for column, epsilon in enumerate(EPSILONS):
            rows = slice(column, None, len(EPSILONS))
            name = f"{sampling}_{epsilon:g}"
            k = trace.values("k")[:, rows].astype(float)
            found[f"k_{name}"], found[f"spread_{name}"] = float(k.mean()), float(k.std() / k.mean())
            found[f"mass_{name}"] = float(mass[:, rows].mean())
            found[f"confidence_{name}"] = float(trace.values("confidence")[:, rows].mean())
            found[f"rules_differ_{name}"] = float(differ[:, rows].mean())
    return found


def _texts(here: Bench, decoder: str, prompts: Sequence[str], steps: int, seed: int, batch: int) -> list[Continuation]:
    return continuations(
        here.model, here.tokenizer, prompts, make_decoder(decoder),
        max_new_tokens=steps, seed=seed, batch_size=batch, exact_length=True,
    )  # fmt: skip


def balance(seed: int, model: str, prompts: int, length: int, steps: int, batch: int, draws: int) -> Metrics:
    """Diversity, coherence and perplexity of every decoder; paired: same prompts, random numbers and lengths.

    `low_…` is the lower end of the 90 % bootstrap interval, over prompts, of a paired difference: of diversity, or of
    ln perplexity. What is compared so is drawn from `draws` times.
    """
    here = bench(model)
    texts, _ = prompts_of(here, seed, prompts, length, 0, first=True)
    found: Metrics = {}
    told: dict[str, np.ndarray] = {}
    for decoder in BALANCE:
        name, seeds = label(decoder), spawn(seed, draws if decoder in COMPARED else 1)
        written = [_texts(here, decoder, texts, steps, one, batch) for one in seeds]
        various = np.array([[diversity(text.ids) for text in part] for part in written]).mean(0)
        surprise = -np.array([[text.log_probs.mean() for text in part] for part in written]).mean(0)
        told[f"diversity_{name}"], told[f"surprise_{name}"] = various, surprise
        found[f"diversity_{name}"], found[f"perplexity_{name}"] = float(various.mean()), float(np.exp(surprise.mean()))
        found[f"coherence_{name}"] = float(
            np.mean([cosines(texts, [text.text for text in part], here.embed) for part in written])
        )
        found[f"k_{name}"] = float(np.mean([text.k.mean() for part in written for text in part]))
    rule, top_p = label("adaptive:epsilon=0.001"), label("top_p:p=0.95")
    for other in (label("top_k:k=10"), "greedy"):
        found[f"low_diversity_over_{other}"] = low_end(told[f"diversity_{rule}"] - told[f"diversity_{other}"], seed)
    for more, less in ((top_p, rule), ("sampling", top_p)):
        found[f"low_surprise_{more}_over_{less}"] = low_end(told[f"surprise_{more}"] - told[f"surprise_{less}"], seed)
    return found


def low_end(gaps: np.ndarray, seed: int, resamples: int = 2000) -> float:
    """The lower end of the 90 % interval of the mean, by bootstrap over prompts."""
    drawn = np.random.default_rng(seed).choice(gaps, (resamples, len(gaps)))
    return float(np.quantile(drawn.mean(1), 0.05))


def closeness(seed: int, model: str, prompts: int, length: int, steps: int, batch: int, resamples: int) -> Metrics:
    """MAUVE of every decoder's texts against the same paragraphs as people went on with them."""
    here = bench(model)
    texts, references = prompts_of(here, seed, prompts, length, steps, first=False)
    human = here.embed(references)
    found: Metrics = {}
    for decoder in EVERY:
        written, name = _texts(here, decoder, texts, steps, seed, batch), label(decoder)
        score = feature_mauve(human, here.embed([text.text for text in written]), seed=seed, resamples=resamples)
        found[name] = score.score
        if score.interval:
            found[f"low_{name}"], found[f"high_{name}"] = score.interval
    return found


def exact_tail(seed: int, vocabulary: int, rows: int) -> Metrics:
    """Kept sets against those of the literal equations, in float32 and bfloat16: ours, and with 1 − cumsum."""
    two = torch.zeros(1, vocabulary)
    two[0, :2] = torch.tensor([0.6, 0.4])
    found: Metrics = {
        "kept_of_two": float(candidate_mask(two.log(), 0.39).sum()),
        "released_kept_of_two": float((released_increments(two.log()) > 0.39).sum()),
        "second_increment": float(confidence_increments(two, k_max=2, probs=True).delta[0, 1]),
    }
    logits = 3.0 * torch.randn(rows, vocabulary, generator=rng(seed, "cpu"))
    for dtype in (torch.float32, torch.bfloat16):
        given = logits.to(dtype)
        exact = torch.zeros_like(given, dtype=torch.bool)
        for row, values in enumerate(given.double().numpy()):
            p = np.exp(values - values.max())
            exact[row, list(reference.kept(p / p.sum(), 1e-3, "pointwise"))] = True
        ours = candidate_mask(given, 1e-3, rule="pointwise")
        theirs = torch.zeros_like(exact).scatter_(
            1, given.sort(dim=-1, descending=True, stable=True).indices, released_increments(given) > 1e-3
        )
        theirs[torch.arange(rows), given.argmax(-1)] = True
        name = str(dtype).removeprefix("torch.")
        found[f"ours_wrong_{name}"] = float((ours != exact).any(-1).double().mean())
        found[f"released_wrong_{name}"] = float((theirs != exact).any(-1).double().mean())
    return found


def released_increments(scores: Tensor) -> Tensor:
    """The increments as the released code computes them: tail mass by 1 − cumsum in the dtype given, NaN set to 0."""
    n = scores.shape[-1]
    p = scores.sort(dim=-1, descending=True, stable=True).values.softmax(-1)
    tail = 1 - p.cumsum(-1)
    left = torch.arange(n - 1, -1, -1, dtype=scores.dtype)
    unknown = tail * torch.log(tail / left)
    before = torch.cat((torch.full_like(unknown[:, :1], -np.log(n)), unknown[:, :-1]), -1)
    delta = (p * p.log() + unknown - before) / np.log(n)
    return torch.where(delta.isnan(), torch.zeros_like(delta), delta)
