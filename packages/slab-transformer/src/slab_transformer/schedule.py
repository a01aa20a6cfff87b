"""The schedule of lambda (Guo et al., 2024, Eq. 3): one counter of optimiser steps for all norms of a model."""

import math
from collections.abc import Mapping

from offprints.checks import require_choice, require_kind, require_range
from torch import nn

from .norms import PRepBN


def schedule_norms(model: nn.Module) -> list[PRepBN]:
    """All progressive norms of a model; raises ValueError where there is none."""
    require_kind("model", model, nn.Module)
    norms = [module for module in model.modules() if isinstance(module, PRepBN)]
    if not norms:
        raise ValueError('model must hold PRepBN norms, got none. Call convert(model, norm="prepbn") first.')
    return norms


class PRepBNSchedule:
    """Bring lambda of every PRepBN from r0 to 0: lambda_s = r0 max(0, 1 - s/T), s = t - W (Eq. 3).

    t counts optimiser steps, whatever the number of forwards for each (checkpointing, accumulation, two views). For
    t < W only Norm1 runs. With `shape="cosine"` the fall is r0 (1 + cos(pi s/T))/2.

    Args:
        model: A converted model.
        warmup_steps: W.
        decay_steps: T; or give
        total_steps: All optimiser steps of the training, of which (minus warm-up none)
        decay_fraction: This share is T. The paper's fixed T of 60 000 has been seen to diverge when it is a small part.
        r0: Where lambda starts after the warm-up, in [0, 1].
        shape: "linear" (the paper's) or "cosine".

    Raises:
        ValueError: Neither T nor the total is known, no PRepBN in the model, or a value outside its range.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        warmup_steps: int | None = None,
        decay_steps: float | None = None,
        total_steps: int | None = None,
        decay_fraction: float | None = None,
        r0: float | None = None,
        shape: str | None = None,
    ) -> None:
        self.norms = schedule_norms(model)
        known = {"warmup_steps": 0, "decay_fraction": 0.8, "r0": 1.0, "shape": "linear"}
        known.update(dict(getattr(model, "slab_recipe", {}).get("schedule", {})))
        mine = {
            "warmup_steps": warmup_steps, "decay_steps": decay_steps, "total_steps": total_steps,
            "decay_fraction": decay_fraction, "r0": r0, "shape": shape,
        }  # fmt: skip
        known.update({name: value for name, value in mine.items() if value is not None})
        settings = check_schedule(known)
        self.warmup_steps = int(settings["warmup_steps"])
        self.decay_steps = float(settings["decay_steps"])
        self.r0, self.shape = float(settings["r0"]), str(settings["shape"])
        self.steps = 0
        self.held = 0  # steps the counter was kept back for norms that lag (see `hold_back`)
        self._apply()

    def lam_at(self, step: int) -> float:
        """Lambda at optimiser step t (Eq. 3); 1 in the warm-up."""
        if step < self.warmup_steps:
            return 1.0
        share = (step - self.warmup_steps) / self.decay_steps
        if share >= 1:
            return 0.0
        return self.r0 * (1 - share if self.shape == "linear" else 0.5 * (1 + math.cos(math.pi * share)))

    @property
    def lam(self) -> float:
        """Lambda of the step at hand."""
        return self.lam_at(self.steps - self.held)

    @property
    def finished(self) -> bool:
        """Whether lambda is 0, so that eval mode and fusion use what was trained."""
        return self.steps - self.held >= self.warmup_steps and self.lam == 0.0

    def step(self) -> float:
        """Count one optimiser step (call it after `optimizer.step()`), set all norms, and return the new lambda."""
        self.steps += 1
        self._apply()
        return self.lam

    def hold_back(self) -> None:
        """Keep lambda where it is for the next step: called before `step()`, as `DivergenceMonitor` does."""
        self.held += 1

    def _apply(self) -> None:
        for norm in self.norms:
            if self.steps - self.held < self.warmup_steps:
                norm.hold()
            else:
                norm.set_lam(self.lam)

    def state_dict(self) -> dict[str, float | int | str]:
        """Counter and settings, as plain numbers."""
        return {
            "steps": self.steps, "held": self.held, "warmup_steps": self.warmup_steps,
            "decay_steps": self.decay_steps, "r0": self.r0, "shape": self.shape,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, float | int | str]) -> None:
        """Go on where the state was taken, with its settings; raises ValueError when entries are missing or unknown."""
        if set(state) != set(self.state_dict()):
            raise ValueError(f"state must hold {sorted(self.state_dict())}, got {sorted(state)}.")
        self.warmup_steps = require_range("warmup_steps", state["warmup_steps"], low=0, integer=True)
        self.decay_steps = require_range("decay_steps", state["decay_steps"], low=0.0, low_open=True)
        self.r0 = require_range("r0", state["r0"], low=0.0, high=1.0)
        self.shape = require_choice("shape", state["shape"], ("linear", "cosine"))
        self.held = require_range("held", state["held"], low=0, integer=True)
        self.steps = require_range("steps", state["steps"], low=0, integer=True)
        self._apply()


def check_schedule(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings with T worked out: `decay_steps`, or `decay_fraction` of `total_steps` (Section 3.2).

    Raises:
        ValueError: Neither is given, or a value is outside its range.
    """
    known = dict(settings)
    require_range("warmup_steps", known.setdefault("warmup_steps", 0), low=0, integer=True)
    require_range("decay_fraction", known.setdefault("decay_fraction", 0.8), low=0.0, high=1.0, low_open=True)
    require_range("r0", known.setdefault("r0", 1.0), low=0.0, high=1.0)
    require_choice("shape", known.setdefault("shape", "linear"), ("linear", "cosine"))
    if known.get("decay_steps") is None:
        total = known.get("total_steps")
        if total is None:
            raise ValueError(
                "total_steps must be given (the optimiser steps of the training), got none. It sets how long lambda "
                "takes to fall; or give decay_steps itself."
            )
        require_range("total_steps", total, low=1, integer=True)
        room = int(str(total)) - int(str(known["warmup_steps"]))
        if room < 1:
            raise ValueError(
                f"total_steps must be more than warmup_steps ({known['warmup_steps']}), got {total}. "
                "Lambda would never fall."
            )
        known["decay_steps"] = min(max(1, round(float(str(known["decay_fraction"])) * int(str(total)))), room)
    if known["decay_steps"] != math.inf:
        require_range("decay_steps", known["decay_steps"], low=0.0, low_open=True)
    return known
