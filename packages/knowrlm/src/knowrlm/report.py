"""What a campaign found, plate by plate, and a plot of it (Section 4)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from knowrlm.ppo import TrainingLog


@dataclass(frozen=True)
class EvolutionReport:
    """The history of a campaign (Section 4): one row a plate.

    Attributes:
        history: columns plate, measured (so far), best (so far), top (mean of the best `batch` so far), mean (of the
            plate).
        reward: mean predicted fitness at every step of the last walk; empty before it.
        window: mean lower end of its windows.
    """

    history: pd.DataFrame
    reward: np.ndarray
    window: np.ndarray

    @classmethod
    def of(
        cls, fitness: np.ndarray, plate: np.ndarray, batch: int, log: "TrainingLog | None" = None
    ) -> "EvolutionReport":
        """From (n,) fitness and (n,) numbers of the plates it came with."""
        rows = []
        for number in np.unique(plate):
            known = np.sort(fitness[plate <= number])[::-1]
            rows.append(
                {
                    "plate": int(number),
                    "measured": len(known),
                    "best": float(known[0]),
                    "top": float(known[:batch].mean()),
                    "mean": float(fitness[plate == number].mean()),
                }
            )
        history = pd.DataFrame(rows, columns=["plate", "measured", "best", "top", "mean"])
        reward, window = (np.array(values) for values in ((log.reward, log.low) if log else ([], [])))
        return cls(history, reward, window)

    def plot(self) -> "Figure":
        """Best and mean of the best against what was measured, and the last walk's reward and window.

        Raises:
            ImportError: without matplotlib, naming the extra.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError('plots need matplotlib: pip install "knowrlm[plot]"') from error
        drawn = Figure(figsize=(9, 3.2), layout="constrained")
        left, right = drawn.subplots(1, 2)
        for column, label in (("best", "best so far"), ("top", "mean of the best"), ("mean", "mean of the plate")):
            left.plot(self.history["measured"], self.history[column], marker="o", label=label)
        left.set(xlabel="measured variants", ylabel="fitness")
        left.legend(frameon=False)
        right.plot(self.reward, label="predicted fitness")
        right.set(xlabel="step of the walks", ylabel="predicted fitness")
        other = right.twinx()
        other.plot(self.window, color="tab:orange")
        other.set_ylabel("lower end of the window")
        return drawn

    def __str__(self) -> str:
        return self.history.to_string(index=False)
