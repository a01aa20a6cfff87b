"""Watch the two branches of Eq. 3 (Guo et al., 2024, Section 3.2): hold lambda while they are apart, and choose T."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence

from offprints.checks import require_kind, require_range
from torch import Tensor, nn

from .norms import PRepBN
from .schedule import PRepBNSchedule, schedule_norms
from .train import train


class DivergenceMonitor:
    """mean |Norm1(x) - RepBN(x)| / mean |Norm1(x)| of each norm in the last training forward.

    Call `check()` before `schedule.step()`: while a layer is further apart than `limit`, lambda stays where it is.

    Args:
        model: A converted model.
        schedule: Its schedule.
        limit: Largest distance at which lambda goes on.
        patience: How many steps in all lambda may be held back.
    """

    def __init__(self, model: nn.Module, schedule: PRepBNSchedule, limit: float = 1.0, patience: int = 1000) -> None:
        require_kind("schedule", schedule, PRepBNSchedule)
        require_range("limit", limit, low=0.0, low_open=True)
        require_range("patience", patience, low=0, integer=True)
        self.schedule, self.limit, self.patience, self.held = schedule, limit, patience, 0
        schedule_norms(model)
        self._norms = {name: module for name, module in model.named_modules() if isinstance(module, PRepBN)}
        for norm in self._norms.values():
            norm.watched = True

    def by_layer(self) -> dict[str, float]:
        """The distance of each norm, by qualified name; only those whose two branches have run."""
        return {name: float(norm.divergence) for name, norm in self._norms.items() if norm.divergence is not None}

    def check(self) -> list[str]:
        """Names of the layers that lag; if any, and patience is left, the next step leaves lambda as it is."""
        lagging = [name for name, value in self.by_layer().items() if not value <= self.limit]
        running = self.schedule.steps - self.schedule.held >= self.schedule.warmup_steps
        if lagging and self.held < self.patience and running and not self.schedule.finished:
            self.schedule.hold_back()
            self.held += 1
        return lagging

    def close(self) -> None:
        """Stop watching."""
        for norm in self._norms.values():
            norm.watched, norm.divergence = False, None


def find_decay_steps(
    model: nn.Module,
    batches: Callable[[], Iterable[object]],
    loss: Callable[[nn.Module, object], Tensor],
    candidates: Sequence[int],
    lr: float,
    limit: float = 1.5,
) -> tuple[int, dict[int, float]]:
    """The smallest T for which training a copy does not lose what the model knows.

    Each candidate trains a copy until lambda is 0 and a tenth longer; its score is the largest mean loss over a window
    of a tenth of these steps, divided by the loss before the first step.

    Args:
        model: A converted model (init="identity"), not changed.
        batches: Makes an iterable of batches, the same each time.
        loss: loss(model, batch).
        candidates: T to try.
        lr: Learning rate.
        limit: Largest score that is accepted.

    Returns:
        T, and the score of all that were tried. If none is accepted, the one with the least score.

    Raises:
        ValueError: No candidates, or no PRepBN in the model.
    """
    if not candidates:
        raise ValueError("candidates must hold at least one T, got none.")
    schedule_norms(model)
    scores: dict[int, float] = {}
    for steps in sorted(candidates):
        require_range("candidates", steps, low=1, integer=True)
        trial = copy.deepcopy(model)
        schedule = PRepBNSchedule(trial, decay_steps=steps, warmup_steps=0)
        losses = train(trial, batches(), loss, math.ceil(1.1 * steps) + 1, lr, schedule=schedule)
        window = max(1, len(losses) // 10)
        means = [sum(losses[i : i + window]) / window for i in range(len(losses) - window + 1)]
        worst = max(means) if all(math.isfinite(value) for value in losses) else math.inf
        scores[steps] = worst / max(losses[0], 1e-12)
        if scores[steps] <= limit:
            return steps, scores
    return min(scores, key=lambda steps: (scores[steps], steps)), scores
