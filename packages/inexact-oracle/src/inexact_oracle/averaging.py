"""Zero-mean errors: how far k repeated answers shrink the bound, at a stated confidence for the whole run.

Beyond the paper, whose errors may be adversarial (Section 1).
"""

import math

from offprints.checks import require_range


def hoeffding_radius(repeats: int, confidence: float, query: int) -> float:
    """Factor c <= 1 such that the mean of k bounded zero-mean errors is below c * eta at query t = 0, 1, ...

    For independent errors with norm at most eta in a Hilbert space, P(|mean| >= c eta) <= 2 exp(-k c^2 / 2) (Hoeffding
    1963 for numbers, Pinelis 1994 for vectors). Value and gradient of query t each get 3 (1 - confidence) /
    (pi^2 (t+1)^2) of the failure probability; these sum to 1 - confidence over an endless run, and c grows only like
    sqrt(log t), so that past replies stay within the error of every later query.

    Args:
        repeats: k, answers averaged at one point.
        confidence: probability that all bounds of the run hold at once.
        query: t, from 0.

    Raises:
        ValueError: an argument out of range.
    """
    require_range("repeats", repeats, low=1, integer=True)
    require_range("confidence", confidence, low=0.0, high=1.0, low_open=True, high_open=True)
    require_range("query", query, low=0, integer=True)
    share = 3.0 * (1.0 - confidence) / (math.pi * (query + 1)) ** 2
    return min(1.0, math.sqrt(2.0 * math.log(2.0 / share) / repeats))
