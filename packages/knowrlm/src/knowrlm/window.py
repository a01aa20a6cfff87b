"""The dynamic sliding window over ranks: near residues while the reward rises, farther ones when it does not."""

import numpy as np
from offprints.checks import message, require_choice, require_range

FLOOR = (0, 6)
CAP = (14, 20)


class SlidingWindow:
    """Windows [lo, hi] over the ranks of n walks at once (Section 3).

    Reset to [0, 6]. When the reward is above that of the step before, both ends fall by 1, to [0, 6] at least; from the
    second step in a row on that it is not, both rise by 1, to [14, 20] at most. The width stays 6.

    Args:
        walks: how many walks.
        mode: "dynamic", or a fixed pair of ends.

    Raises:
        ValueError: if a fixed window is not inside [0, 20] or empty.

    >>> window = SlidingWindow(1)
    >>> for reward in (0.3, 0.2, 0.1):
    ...     window.update(np.array([reward]))
    >>> window.low[0], window.high[0]
    (1, 7)
    """

    def __init__(self, walks: int = 1, mode: str | tuple[int, int] = "dynamic") -> None:
        require_range("walks", walks, low=1, integer=True)
        if isinstance(mode, str):
            require_choice("window", mode, ("dynamic",), hint="Or pass two ranks, such as (0, 6).")
        else:
            if len(mode) != 2:
                raise ValueError(message("window", "'dynamic' or two ranks", mode))
            require_range("window", mode[1], low=1, high=20, integer=True)
            require_range("window", mode[0], low=0, high=mode[1], integer=True, because="its upper end")
        self.mode = mode
        self.low = np.zeros(walks, dtype=np.int64)
        self.high = np.zeros(walks, dtype=np.int64)
        self._before = np.zeros(walks)
        self._stalled = np.zeros(walks, dtype=np.int64)
        self.reset(np.ones(walks, dtype=bool))

    def reset(self, which: np.ndarray) -> None:
        """Put the walks of an (n,) mask back to the start: a new episode."""
        low, high = FLOOR if self.mode == "dynamic" else self.mode
        self.low[which], self.high[which] = low, high
        self._before[which] = np.nan
        self._stalled[which] = 0

    def update(self, reward: np.ndarray) -> None:
        """Slide by the (n,) rewards of a step; the first of an episode is compared with nothing."""
        reward = np.asarray(reward, dtype=float)
        first = np.isnan(self._before)
        rose = ~first & (reward > self._before)
        self._stalled = np.where(first | rose, 0, self._stalled + 1)
        self._before = reward.copy()
        if self.mode == "dynamic":
            step = np.where(self._stalled >= 2, 1, np.where(rose, -1, 0))
            self.low = np.clip(self.low + step, FLOOR[0], CAP[0])
            self.high = np.clip(self.high + step, FLOOR[1], CAP[1])
