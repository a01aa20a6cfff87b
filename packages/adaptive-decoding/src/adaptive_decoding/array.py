"""The same rule in NumPy alone, for servers that sample without torch (Section 3)."""

import numpy as np
from offprints.checks import message, require_choice, require_range


def adaptive_filter(
    logits: np.ndarray,
    epsilon: float = 1e-3,
    *,
    rule: str = "prefix",
    flat: str = "top1",
    min_tokens_to_keep: int = 1,
    vocab_size: int | None = None,
    count_masked: bool = True,
    filter_value: float = -np.inf,
) -> np.ndarray:
    """Logits (..., V) with `filter_value` for every token that the rule does not keep (Section 3).

    Tokens are admitted, most probable first, while ΔConf_k = [p_k (ln p_k − g_{k−1}) + R_k (g_k − g_{k−1})] / ln V > ε,
    with R_k the mass behind rank k and g_k = ln(R_k / (V − k)). Imports no torch. Keeps what `candidate_mask` keeps.

    Args:
        logits: (..., V) real numbers; −inf for tokens that are ruled out.
        epsilon: ε in [0, 1).
        rule: "prefix", "pointwise" or "last".
        flat: "top1" or "keep_all".
        min_tokens_to_keep: the most probable tokens that stay in any case, unless they are at −inf.
        vocab_size: n, where the last logits only fill the vocabulary up; ids from n on are never kept. V by default.
        count_masked: whether tokens at −inf count in n.
        filter_value: the score of what is not kept, 0 at most (the least of the dtype, where that cannot hold it).

    Returns:
        (..., V) a new array of the same dtype.

    Raises:
        TypeError: if a number is of the wrong kind.
        ValueError: if an argument is out of range, the dtype is no floating-point one, or a row holds NaN or +inf or
            nothing finite (the row is named).
    """
    require_range("epsilon", epsilon, low=0, high=1, high_open=True)
    require_choice("rule", rule, ("prefix", "pointwise", "last"))
    require_choice("flat", flat, ("top1", "keep_all"))
    require_range("min_tokens_to_keep", min_tokens_to_keep, low=1, integer=True)
    given = np.asarray(logits)
    if given.dtype.kind != "f" or given.ndim == 0 or given.shape[-1] == 0:
        raise ValueError(message("logits", "floating-point (..., vocabulary)", f"{given.dtype} {given.shape}"))
    require_range("filter_value", filter_value, high=0.0)
    size = given.shape[-1]
    if vocab_size is not None:
        size = require_range("vocab_size", vocab_size, low=1, high=size, integer=True, because="the logits of a row")
    rows = given.reshape(-1, given.shape[-1])
    out = np.full_like(
        rows, filter_value if np.isinf(filter_value) else max(filter_value, float(np.finfo(rows.dtype).min))
    )
    for row, values in enumerate(rows[:, :size]):
        fine = values.astype(np.float64)
        top = fine.max()
        if not np.isfinite(top):
            what = "no finite entry" if top == -np.inf else "NaN or +inf"
            raise ValueError(message("logits", "finite or -inf, with a finite entry", f"{what} in row {row}"))
        n = size if count_masked else int(np.isfinite(fine).sum())
        kept = _kept(fine, top, epsilon, rule, flat, min_tokens_to_keep, n)
        out[row, kept] = values[kept]
    return out.reshape(given.shape)


def _kept(x: np.ndarray, top: float, epsilon: float, rule: str, flat: str, least: int, n: int) -> np.ndarray:
    """Ids of the kept tokens of one row, in a vocabulary of n."""
    if epsilon == 0:  # exactly: an increment is 0 for the tokens that are as improbable as the last one
        ids = np.argsort(-x, kind="stable")
        passes = x[ids] > (x.min() if n == len(x) else x[x > -np.inf].min())
    else:
        weights = np.exp(x - top)
        ids = np.flatnonzero(weights > epsilon * weights.sum())
        if len(ids) < least:
            ids = np.flatnonzero(x >= np.sort(x)[-min(least, len(x))])
        ids = ids[np.argsort(-x[ids], kind="stable")]
        p = weights[ids]
        weights[ids] = 0.0
        rest = np.cumsum(np.append(weights.sum(), p[::-1]))[::-1]
        p, rest = p / rest[0], rest / rest[0]
        left = np.maximum(n - np.arange(len(rest)), 1)
        mean = np.log(np.maximum(rest, np.finfo(float).tiny)) - np.log(left)
        logs = np.log(np.maximum(p, np.finfo(float).tiny))
        gain = p * (logs - mean[:-1]) + rest[1:] * np.diff(mean)
        passes = gain > epsilon * np.log(max(n, 2))
    if rule == "prefix":
        passes = np.cumprod(passes).astype(bool)
    elif rule == "last":
        passes = np.cumsum(passes[::-1])[::-1] > 0
    if flat == "keep_all" and not passes.any():
        return np.flatnonzero(x > -np.inf)
    passes[:least] = True
    return ids[passes & (x[ids] > -np.inf)]
