"""How good a campaign was: its best variant, its best 96, the ranking of its predictions (Section 4)."""

from dataclasses import dataclass

import numpy as np
from offprints.checks import message, require_finite, require_range, require_shape
from sklearn.metrics import ndcg_score


@dataclass(frozen=True)
class Scores:
    """The four metrics of Section 4, in units of the landscape; divide by its maximum to compare landscapes.

    Attributes:
        maximum: best fitness measured, the last plate included.
        top: mean of the best `plate` of everything measured.
        final: mean of the last plate.
        ndcg: of the predictions over the landscape; NaN where none were made.
    """

    maximum: float
    top: float
    final: float
    ndcg: float

    def normalized(self, maximum: float) -> "Scores":
        """The first three divided by the landscape's maximum.

        Raises:
            ValueError: unless that is above 0.
        """
        require_range("maximum", maximum, low=0, low_open=True)
        return Scores(self.maximum / maximum, self.top / maximum, self.final / maximum, self.ndcg)


def scores(library: np.ndarray, final: np.ndarray, ndcg: float = float("nan"), plate: int = 96) -> Scores:
    """Max, mean of the best `plate`, and mean of the last plate (Section 4).

    Args:
        library: (n,) measured fitness before the last plate.
        final: (m,) measured fitness of the last plate.
        ndcg: of the predictions.
        plate: size of a plate.

    Raises:
        ValueError: if nothing was measured, or not finite.
    """
    require_range("plate", plate, low=1, integer=True)
    require_finite("library", library)
    require_finite("final", final)
    everything = np.sort(np.concatenate([library, final]))[::-1]
    if not len(everything):
        raise ValueError(message("measurements", "at least one", "none"))
    last = float(np.mean(final)) if len(final) else float("nan")
    return Scores(float(everything[0]), float(everything[:plate].mean()), last, ndcg)


def ndcg(truth: np.ndarray, predicted: np.ndarray) -> float:
    """Normalised discounted cumulative gain of a ranking over a whole landscape (Section 4): 1 for a perfect one.

    NDCG = DCG(predicted order) / DCG(true order), DCG = Σ_i f_i / log₂(i + 1), i the place of variant i. Fitness is
    shifted to be at least 0 where some of it is negative.

    Args:
        truth: (n,) measured fitness.
        predicted: (n,) predictions.

    Raises:
        ValueError: if the shapes differ, fewer than two are given, or one is not finite.
    """
    require_shape("predicted", predicted, np.shape(truth))
    require_range("variants", len(truth), low=2, integer=True)
    require_finite("truth", truth)
    require_finite("predicted", predicted)
    gains = np.asarray(truth, dtype=float) - min(0.0, float(np.min(truth)))
    if not gains.any():
        return 1.0
    return float(ndcg_score(gains[None], np.asarray(predicted, dtype=float)[None]))
