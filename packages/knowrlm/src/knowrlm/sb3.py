"""The environment under stable-baselines3, which the released code of the paper builds on (Section 3)."""

from typing import TYPE_CHECKING, cast

import gymnasium
import torch
from offprints.checks import require_range
from torch import Tensor, nn

from knowrlm.env import MutationEnv
from knowrlm.plm import OneHotEncoder

if TYPE_CHECKING:
    from stable_baselines3 import PPO as StablePPO


def stable_baselines_ppo(
    env: MutationEnv,
    encoder: nn.Module | None = None,
    *,
    rollout: int = 200,
    batch: int = 64,
    seed: int = 0,
    device: str = "cpu",
) -> "StablePPO":
    """PPO of stable-baselines3 on a `MutationEnv`, with a protein language model as its features (Section 3).

    It chooses site and residue with free heads: the window and the preferential walk are those of `KnowledgePolicy` and
    `knowrlm.PPO`; here they are what the method is compared with. Settings are those of the paper.

    Args:
        env: the environment.
        encoder: tokens (B, L) -> states (B, L, width); one-hot by default; not trained.
        rollout: steps between updates.
        batch: transitions a gradient step.
        seed: of everything.
        device: of the networks.

    Raises:
        ImportError: if stable-baselines3 is not installed, naming the extra.
        ValueError: if a number is out of range.
    """
    try:
        from stable_baselines3 import PPO
        from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
    except ImportError as error:
        raise ImportError('this needs stable-baselines3: pip install "knowrlm[sb3]"') from error
    require_range("rollout", rollout, low=2, integer=True)
    require_range("batch", batch, low=2, integer=True)
    length = len(env.space.parent)
    chosen = encoder if encoder is not None else OneHotEncoder()
    width = int(cast(int, chosen.width))

    class EncoderFeatures(BaseFeaturesExtractor):
        """One-hot observations back to tokens, through the encoder."""

        def __init__(self, observation_space: gymnasium.Space) -> None:
            super().__init__(observation_space, length * width)
            self.encoder = chosen.requires_grad_(False)

        def forward(self, observations: Tensor) -> Tensor:
            with torch.no_grad():
                return self.encoder(observations.view(-1, length, 20).argmax(2)).flatten(1)

    return PPO(
        "MlpPolicy", env, learning_rate=1e-4, n_steps=rollout, batch_size=batch, n_epochs=10, gamma=0.99,
        gae_lambda=0.95,
        clip_range=0.2, ent_coef=0.2, vf_coef=0.5, max_grad_norm=0.5, seed=seed, device=device,
        policy_kwargs={"features_extractor_class": EncoderFeatures},
    )  # fmt: skip
