"""Decoders side by side on one's own prompts: equal numbers of new tokens, equal random numbers (Section 4)."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from offprints.checks import message, require_choice, require_range

from adaptive_decoding.calibration import match_size, mean_size, record_logits
from adaptive_decoding.decoders import Decoder, make_decoder
from adaptive_decoding.distance import MauveScore, averaged, mauve
from adaptive_decoding.generation import Continuation, continuations
from adaptive_decoding.metrics import Embed, cosines, diversity, log_likelihood_coherence, rep_n, self_bleu, zipf
from adaptive_decoding.report import DecoderReport, Row, summarised

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PER_TEXT = ("diversity", "rep_2", "rep_3", "rep_4", "perplexity", "coherence", "ll_coherence", "k", "mass")
POOLED = ("mauve", "zipf", "self_bleu")
STANDARD = ("diversity", "perplexity", "k", "mass")


def compare(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    decoders: Sequence[str | Decoder],
    metrics: Sequence[str] = STANDARD,
    *,
    references: Sequence[str] | None = None,
    embed: Embed | None = None,
    scorer: "PreTrainedModel | None" = None,
    max_new_tokens: int = 64,
    seeds: Sequence[int] = (0,),
    batch_size: int = 16,
    match: bool = True,
    rerun_matched: bool = False,
    resamples: int = 1000,
) -> DecoderReport:
    """Generate with every decoder and measure what Section 4 measures.

    Every decoder writes exactly `max_new_tokens` after each prompt (no text may end before) with the same random
    numbers for each (prompt, seed), so that differences are paired. Intervals are 95 % by bootstrap over prompts.
    Metrics of a text: diversity, rep_2, rep_3, rep_4, perplexity (of the model itself: exp of the mean −ln p),
    coherence (cosine with the prompt; needs `embed`), ll_coherence (mean ln p under `scorer`), k and mass (of the
    candidates; p, candidates and mass as in `Continuation`). Metrics of the texts of one seed together, averaged over
    seeds: mauve (needs `references` and `embed`), zipf, self_bleu.

    Args:
        model: a causal language model of transformers.
        tokenizer: its tokenizer.
        prompts: texts.
        decoders: as `make_decoder` reads them; differences are to the first.
        metrics: which ones.
        references: what people wrote after each prompt.
        embed: texts -> (texts, dimensions), such as a `SentenceEncoder`.
        scorer: another causal model with the same tokenizer; the model itself by default.
        max_new_tokens: of every text.
        seeds: of the random numbers; deterministic decoders run once, and their texts count once for each seed.
        batch_size: prompts at a time.
        match: whether each decoder's parameter is also reported at equal mean candidate-set size: that of the first
            adaptive decoder (of the first that samples, without one), on logits of plain sampling.
        rerun_matched: whether the decoders at those parameters are generated with and measured too.
        resamples: of the bootstrap.

    Raises:
        TypeError: if a kind is wrong.
        ValueError: naming a prompt that is empty or too long, an unknown decoder or metric or one given twice, or what
            a metric needs and was not given.
        ImportError: naming the extra that a metric needs.
    """
    chosen = [make_decoder(decoder) for decoder in decoders]
    _check(prompts, chosen, metrics, references, embed, seeds)
    size, tuned = None, {}
    if match or rerun_matched:
        size, tuned = _matched(model, tokenizer, prompts, chosen, max_new_tokens, seeds[0], batch_size)
    if rerun_matched:
        more = [decoder for decoder in tuned.values() if decoder and decoder.name not in {c.name for c in chosen}]
        chosen += list({decoder.name: decoder for decoder in more}.values())
    rows = []
    for decoder in chosen:
        texts = [
            continuations(
                model, tokenizer, prompts, decoder,
                max_new_tokens=max_new_tokens, seed=seed, batch_size=batch_size, exact_length=True,
            )
            for seed in (seeds if decoder.samples else seeds[:1])
        ]  # fmt: skip
        texts *= len(seeds) // len(texts)  # as many of each decoder
        values = {
            name: np.stack([_per_text(name, tokenizer, prompts, part, embed, scorer or model) for part in texts])
            for name in metrics
            if name in PER_TEXT
        }
        flat = [text for part in texts for text in part]
        pooled = {
            name: averaged([_pooled(name, part, references, embed, resamples=min(resamples, 100)) for part in texts])
            for name in metrics
            if name in POOLED
        }
        wanted = tuned.get(decoder.name)
        rows.append(Row(decoder.name, values, pooled, wanted.name if wanted else None, [t.text for t in flat]))
    return summarised(rows, list(metrics), size, resamples, seeds[0])


def _check(
    prompts: Sequence[str],
    decoders: Sequence[Decoder],
    metrics: Sequence[str],
    references: Sequence[str] | None,
    embed: Embed | None,
    seeds: Sequence[int],
) -> None:
    if not decoders:
        raise ValueError(message("decoders", "one or more", "none"))
    names = [decoder.name for decoder in decoders]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(message("decoders", "different", f"{twice[0]!r} twice"))
    if isinstance(metrics, str):
        raise TypeError(message("metrics", "a list of names", f"the text {metrics!r}"))
    for name in metrics:
        require_choice("metric", name, (*PER_TEXT, *POOLED))
    for seed in seeds:
        require_range("seed", seed, low=0, integer=True)
    if not seeds:
        raise ValueError(message("seeds", "one or more", "none"))
    if embed is None and (needing := [name for name in metrics if name in ("coherence", "mauve")]):
        raise ValueError(message("embed", f"given for {needing[0]}", "None", "Pass a SentenceEncoder."))
    if "mauve" in metrics and references is None:
        raise ValueError(message("references", "given for mauve", "None", "Pass what people wrote after each prompt."))
    if references is not None and len(references) != len(prompts):
        raise ValueError(message("references", f"as many as the {len(prompts)} prompts", len(references)))


def _per_text(
    name: str,
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    texts: Sequence[Continuation],
    embed: Embed | None,
    scorer: "PreTrainedModel",
) -> np.ndarray:
    """(prompts,) values; of perplexity −ln p, the exponential of whose mean is reported."""
    simple: Mapping[str, Callable[[Continuation], float]] = {
        "diversity": lambda text: diversity(text.ids),
        "rep_2": lambda text: rep_n(text.ids, 2),
        "rep_3": lambda text: rep_n(text.ids, 3),
        "rep_4": lambda text: rep_n(text.ids, 4),
        "perplexity": lambda text: -float(text.log_probs.mean()),
        "k": lambda text: float(text.k.mean()),
        "mass": lambda text: float(text.mass.mean()),
    }
    if name in simple:
        return np.array([simple[name](text) for text in texts])
    written = [text.text for text in texts]
    if name == "coherence" and embed is not None:
        return cosines(prompts, written, embed)
    return log_likelihood_coherence(scorer, tokenizer, prompts, written)


def _pooled(
    name: str, texts: Sequence[Continuation], references: Sequence[str] | None, embed: Embed | None, resamples: int
) -> MauveScore:
    if name == "zipf":
        return MauveScore(zipf([text.ids for text in texts]), None, np.zeros(0))
    written = [text.text for text in texts]
    if name == "self_bleu":
        return MauveScore(self_bleu(written), None, np.zeros(0))
    if references is None or embed is None:
        raise ValueError("mauve must have references and embed.")
    return mauve(list(references), written, embed, resamples=resamples)


def _matched(
    model: "PreTrainedModel",
    tokenizer: "PreTrainedTokenizerBase",
    prompts: Sequence[str],
    decoders: Sequence[Decoder],
    steps: int,
    seed: int,
    batch_size: int,
    most: int = 384,
) -> tuple[float | None, dict[str, Decoder | None]]:
    """The mean candidate-set size to match, and each decoder at it, on at most `most` recorded steps."""
    sampling = [decoder for decoder in decoders if decoder.samples and decoder.kind != "sampling"]
    first = next((decoder for decoder in sampling if decoder.kind == "adaptive"), sampling[0] if sampling else None)
    if first is None:
        return None, {}
    few, count = prompts[: max(1, most // steps)], min(steps, most)
    recorded = record_logits(model, tokenizer, few, max_new_tokens=count, seed=seed, batch_size=batch_size)
    size = mean_size(first, recorded)
    found: dict[str, Decoder | None] = {}
    for decoder in decoders:
        try:
            found[decoder.name] = decoder if decoder is first else match_size(decoder, recorded, size)
        except ValueError:  # what it cannot reach has no parameter to report
            found[decoder.name] = None
    return size, found
