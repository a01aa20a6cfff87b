"""The schedule of Guo et al. (2024), Eq. 3, in transformers' Trainer: optimiser steps are counted, not forwards."""

from torch import nn
from transformers import TrainerCallback

from .schedule import PRepBNSchedule


class PRepBNCallback(TrainerCallback):
    """Sets lambda of all PRepBN norms in a `transformers.Trainer`; resuming a checkpoint goes on at its step.

    Args:
        **settings: As for `PRepBNSchedule`; without `total_steps` and `decay_steps` the Trainer's own `max_steps`.
    """

    def __init__(self, **settings: float | int | str) -> None:
        self.settings = settings
        self.schedule: PRepBNSchedule | None = None

    def on_train_begin(self, args, state, control, model: nn.Module | None = None, **kwargs) -> None:
        """Make the schedule and go to the step at which training starts."""
        settings = dict(self.settings)
        stored = getattr(model, "slab_recipe", {}).get("schedule", {})
        if not {"total_steps", "decay_steps"} & {*settings, *stored}:
            settings["total_steps"] = state.max_steps
        self.schedule = PRepBNSchedule(model, **settings)
        self.schedule.load_state_dict({**self.schedule.state_dict(), "steps": state.global_step})

    def on_step_end(self, args, state, control, **kwargs) -> None:
        """One optimiser step was made."""
        if self.schedule is not None:
            self.schedule.step()
