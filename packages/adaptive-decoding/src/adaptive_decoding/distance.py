"""MAUVE between what people and models wrote after the same prompts, on features of any encoder (Section 4)."""

import os
import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from offprints.checks import require_finite, require_range, require_shape
from offprints.seeding import spawn

from adaptive_decoding.metrics import Embed

ENOUGH = 200


@dataclass(frozen=True)
class MauveScore:
    """MAUVE in (0, 1], the higher the nearer to what people wrote (Section 4).

    Attributes:
        score: mean over the runs of k-means.
        interval: 95 % over texts, by bootstrap, of the score that so many texts have on average; None without
            resamples. Texts drawn twice move MAUVE, so that the resampled values lie beside the score: how they
            scatter about their own mean is taken from them, not where they lie.
        resampled: (resamples,) the bootstrap values.
    """

    score: float
    interval: tuple[float, float] | None
    resampled: np.ndarray


def mauve(
    p_texts: Sequence[str],
    q_texts: Sequence[str],
    embed: Embed,
    *,
    buckets: int | None = None,
    runs: int = 5,
    seed: int = 0,
    resamples: int = 0,
) -> MauveScore:
    """MAUVE of texts by people and by a model, on features of `embed` (Section 4; mauve-text computes it).

    Texts of one length are taken to belong to the same prompts: the bootstrap draws pairs then. A score says little
    where there are fewer than 200 texts, and scores compare only between equal numbers of texts, features and buckets.

    Args:
        p_texts: what people wrote.
        q_texts: what a model wrote.
        embed: texts -> (texts, dimensions).
        buckets: of the k-means quantisation; a tenth of the smaller number of texts by default.
        runs: of k-means, with different seeds; the score is their mean.
        seed: of all random numbers.
        resamples: of the bootstrap.

    Raises:
        ImportError: naming the extra, without mauve-text.
        ValueError: with fewer than two texts on a side, or if a number is out of range.
    """
    for name, texts in (("p_texts", p_texts), ("q_texts", q_texts)):
        require_range(f"number of {name}", len(texts), low=2, integer=True)
    if min(len(p_texts), len(q_texts)) < ENOUGH:
        warnings.warn(f"MAUVE of fewer than {ENOUGH} texts says little.", stacklevel=2)
    p, q = (np.asarray(embed(list(texts)), dtype=float) for texts in (p_texts, q_texts))
    return feature_mauve(p, q, buckets=buckets, runs=runs, seed=seed, resamples=resamples)


def feature_mauve(
    p: np.ndarray, q: np.ndarray, *, buckets: int | None = None, runs: int = 5, seed: int = 0, resamples: int = 0
) -> MauveScore:
    """The same from (texts, dimensions) features.

    Raises:
        ImportError: naming the extra, without mauve-text.
        ValueError: if a shape does not fit, a feature is not finite or a number is out of range.
    """
    require_shape("p", p, (None, "dimensions"))
    require_shape("q", q, (None, p.shape[1]))
    require_finite("p", p)
    require_finite("q", q)
    require_range("runs", runs, low=1, integer=True)
    require_range("resamples", resamples, low=0, integer=True)
    least = min(len(p), len(q))
    buckets = max(2, round(least / 10)) if buckets is None else buckets
    require_range("buckets", buckets, low=2, high=least, integer=True, because="the texts of one side")
    seeds = [value % 2**31 for value in spawn(seed, runs)]
    score = float(np.mean([_once(p, q, buckets, one) for one in seeds]))
    gen, drawn = np.random.default_rng(seed), []
    for _ in range(resamples):
        rows = gen.integers(0, len(p), len(p))
        others = rows if len(p) == len(q) else gen.integers(0, len(q), len(q))
        drawn.append(_once(p[rows], q[others], buckets, int(gen.integers(2**31))))
    resampled = np.array(drawn)
    return MauveScore(score, centred_interval(score, resampled), resampled)


def centred_interval(score: float, resampled: np.ndarray, level: float = 0.95) -> tuple[float, float] | None:
    """Score − (θ* − mean θ*) for the middle `level` of the resampled values θ*, within [0, 1]; None without any."""
    if not resampled.size:
        return None
    low, high = score - (np.quantile(resampled, ((1 + level) / 2, (1 - level) / 2)) - resampled.mean())
    return float(np.clip(low, 0.0, 1.0)), float(np.clip(high, 0.0, 1.0))


def averaged(scores: Sequence[MauveScore]) -> MauveScore:
    """The mean of scores whose resampled values go together: those of the same texts, drawn for each alike."""
    score, resampled = float(np.mean([one.score for one in scores])), np.mean([one.resampled for one in scores], axis=0)
    return MauveScore(score, centred_interval(score, resampled), resampled)


def _once(p: np.ndarray, q: np.ndarray, buckets: int, seed: int) -> float:
    try:
        with _quiet():
            from mauve import compute_mauve
    except ImportError as error:
        raise ImportError('mauve needs mauve-text: pip install "adaptive-decoding[metrics]"') from error
    with _quiet():
        found = compute_mauve(p_features=p, q_features=q, num_buckets=buckets, seed=seed)
    # of equal histograms the curve is one corner, and the area that is returned hangs on the order of ties in a sort
    return 1.0 if np.array_equal(found.p_hist, found.q_hist) else float(found.mauve)


@contextmanager
def _quiet() -> Generator[None]:
    """Silence the k-means library, which writes to standard error below 39 texts a bucket; MAUVE takes about 20."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)
