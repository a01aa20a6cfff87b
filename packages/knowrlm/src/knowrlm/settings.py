"""How the policy walks (Section 3)."""

from dataclasses import dataclass, field
from pathlib import Path

from offprints.checks import Problems, require_choice, require_range
from torch import nn

from knowrlm.policy import REFERENCES
from knowrlm.ppo import PPOConfig
from knowrlm.window import SlidingWindow


@dataclass(frozen=True)
class WalkSettings:
    """How the policy walks (Section 3).

    Attributes:
        plm: encoder; see `load_plm`.
        context: residues that it sees before the first and after the last site; the whole sequence if None.
        adapt: steps of masked language modelling on the library for the offline encoder.
        steps: of the walks in each round, all together (the paper: 30 000).
        walks: side by side.
        max_steps: substitutions of one walk.
        window: "dynamic" or two ranks.
        temperature: τ.
        reference: "difference" or "ratio".
        knowledge: False draws residues uniformly from the window.
        finetune: train the encoder with the policy.
        learn: False walks with the untrained policy (an ablation).
        ppo: settings of the updates.

    Raises:
        ValueError: listing everything out of range.
    """

    plm: str | Path | nn.Module = "scales"
    context: int | None = None
    adapt: int = 60
    steps: int = 3000
    walks: int = 10
    max_steps: int = 20
    window: str | tuple[int, int] = "dynamic"
    temperature: float = 0.1
    reference: str = "difference"
    knowledge: bool = True
    finetune: bool = False
    learn: bool = True
    ppo: PPOConfig = field(default_factory=PPOConfig)

    def __post_init__(self) -> None:
        with Problems("cannot walk with these settings") as problems:
            if self.context is not None:
                problems.check(require_range, "context", self.context, low=0, integer=True)
            problems.check(require_range, "adapt", self.adapt, low=0, integer=True)
            for name in ("steps", "walks", "max_steps"):
                problems.check(require_range, name, getattr(self, name), low=1, integer=True)
            problems.check(require_range, "temperature", self.temperature, low=0)
            problems.check(SlidingWindow, 1, self.window)
            problems.check(require_choice, "reference", self.reference, REFERENCES)
