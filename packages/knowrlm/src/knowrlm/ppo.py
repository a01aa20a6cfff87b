"""Proximal policy optimisation of the knowledge-aware policy over many walks at once (Section 3)."""

from dataclasses import dataclass, field, fields

import numpy as np
import torch
from offprints.checks import Problems, require_range
from offprints.seeding import rng
from torch import Tensor

from knowrlm.policy import KnowledgePolicy, entropy_of, site_log_prob
from knowrlm.scorer import StateBank, preferences
from knowrlm.walk import Visit, Walks


@dataclass(frozen=True)
class PPOConfig:
    """Settings of Section 3 (those of the released code): 10 walks, 20 steps a rollout, 10 epochs of batches of 64.

    Attributes:
        rollout: steps of every walk between updates.
        batch: transitions a gradient step.
        epochs: over a rollout.
        lr: of Adam.
        gamma: discount γ.
        gae: λ of the advantage estimate.
        clip: ε of the ratio.
        entropy: weight of the entropy.
        value: weight of the value loss.
        max_norm: of the gradient.
        joint_logprob: whether log P(residue) counts in the policy's log-probability.
    """

    rollout: int = 20
    batch: int = 64
    epochs: int = 10
    lr: float = 1e-4
    gamma: float = 0.99
    gae: float = 0.95
    clip: float = 0.2
    entropy: float = 0.2
    value: float = 0.5
    max_norm: float = 0.5
    joint_logprob: bool = True

    def __post_init__(self) -> None:
        with Problems("cannot train with these settings") as problems:
            for name in ("rollout", "batch", "epochs"):
                problems.check(require_range, name, getattr(self, name), low=1, integer=True)
            for name in ("lr", "clip", "max_norm"):
                problems.check(require_range, name, getattr(self, name), low=0, low_open=True)
            for name in ("gamma", "gae"):
                problems.check(require_range, name, getattr(self, name), low=0, high=1)
            for name in ("entropy", "value"):
                problems.check(require_range, name, getattr(self, name), low=0)


@dataclass
class TrainingLog:
    """What training saw (Section 3, Algorithm 1).

    Attributes:
        reward: mean predicted fitness over walks, one entry a step.
        low: mean lower end of the windows, likewise.
        episodes: mean reward of every finished walk, in order.
        visited: variant (bytes of its codes) -> (prediction, path), the first path that led there.
        loss: of every gradient step.
    """

    reward: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    episodes: list[float] = field(default_factory=list)
    visited: dict[bytes, tuple[float, Visit]] = field(default_factory=dict)
    loss: list[float] = field(default_factory=list)


def advantages(
    reward: Tensor, value: Tensor, following: Tensor, ended: Tensor, gamma: float, gae: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates Â_t = δ_t + γ λ (1 − end_t) Â_{t+1} and returns Â_t + V_t (for PPO, Section 3).

    δ_t = r_t + γ V'_t − V_t with V'_t the value of the state that the step led to (0 where the walk reached its goal).

    Args:
        reward: (T, n).
        value: (T, n) V_t.
        following: (T, n) V'_t.
        ended: (T, n) whether the walk started anew after the step.
        gamma: γ.
        gae: λ.
    """
    delta = reward + gamma * following - value
    found = torch.zeros_like(reward)
    running = torch.zeros_like(reward[0])
    for t in range(len(reward) - 1, -1, -1):
        running = delta[t] + gamma * gae * torch.where(ended[t], 0.0, running)
        found[t] = running
    return found, found + value


class PPO:
    """Trains a `KnowledgePolicy` on walks by the clipped objective (Section 3).

    L = −E[min(r Â, clip(r, 1 ± ε) Â)] + c_v (V − R)² − c_e H, with r the ratio of the joint probabilities of site and
    residue. Advantages are normalised in each batch. Rewards are divided by `scale` for the value's sake; windows and
    ends of walks see them as they are.

    Args:
        policy: trained in place.
        walks: the environment.
        config: settings.
        scale: of the rewards, > 0.
        seed: of the actions and batches.

    Raises:
        ValueError: if the scale is not positive.
    """

    def __init__(
        self,
        policy: KnowledgePolicy,
        walks: Walks,
        config: PPOConfig | None = None,
        *,
        scale: float = 1.0,
        seed: int = 0,
    ) -> None:
        require_range("scale", scale, low=0, low_open=True)
        self.policy, self.walks, self.scale = policy, walks, scale
        self.config = config if config is not None else PPOConfig()
        self.bank = StateBank(policy, walks.space)
        self.device = policy.site_head.weight.device
        self.gen = rng(seed, "cpu")
        self.movable = torch.from_numpy(walks.movable).to(self.device)
        trained = [parameter for parameter in policy.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.Adam(trained, lr=self.config.lr)
        self._running: list[list[float]] = [[] for _ in range(len(walks.codes))]

    def train(self, steps: int, *, learn: bool = True) -> TrainingLog:
        """Take at least `steps` steps, over all walks together, updating after every rollout if `learn`.

        Raises:
            ValueError: if `steps` is not positive.
        """
        require_range("steps", steps, low=1, integer=True)
        log = TrainingLog()
        taken = 0
        while taken < steps:
            rollout = self._roll(log)
            taken += self.config.rollout * len(self.walks.codes)
            if learn:
                self._update(rollout, log)
        return log

    @torch.no_grad()
    def act(self) -> tuple[dict[str, Tensor], np.ndarray, np.ndarray]:
        """Draw a site and a residue for every walk; what the update needs, and both as arrays."""
        walks = self.walks
        states = self.bank.states(walks.codes)
        logits, value = self.policy.heads(states)
        logits = torch.log_softmax(torch.where(self.movable, logits, -torch.inf), dim=1)
        site = torch.multinomial(logits.exp().cpu(), 1, generator=self.gen).squeeze(1)
        allowed = walks.allowed(site.numpy())
        walk = preferences(self.bank, walks.codes, site.numpy(), allowed, states)
        residue = torch.multinomial(walk.exp().cpu(), 1, generator=self.gen).squeeze(1)
        site, residue = site.to(self.device), residue.to(self.device)
        site_log, residue_log = (x.gather(1, y[:, None]).squeeze(1) for x, y in ((logits, site), (walk, residue)))
        tokens = torch.from_numpy(walks.space.tokens(walks.codes).astype(np.int64)).to(self.device)
        seen = {
            "tokens": tokens, "site": site, "residue": residue, "value": value, "site_log": site_log,
            "residue_log": residue_log, "residue_entropy": entropy_of(walk),
            "allowed": torch.from_numpy(allowed).to(self.device),
        }  # fmt: skip
        if not self.policy.finetune:
            seen["states"] = states
        return seen, site.cpu().numpy(), residue.cpu().numpy()

    def _roll(self, log: TrainingLog) -> dict[str, Tensor]:
        columns: dict[str, list[Tensor]] = {}
        for _ in range(self.config.rollout):
            seen, site, residue = self.act()
            visits = list(self.walks.visits)
            outcome = self.walks.step(site, residue)
            self._note(outcome.codes, outcome.reward, visits, log)
            ended = outcome.terminated | outcome.truncated
            for walk in range(len(ended)):
                self._running[walk].append(float(outcome.reward[walk]))
                if ended[walk]:
                    log.episodes.append(float(np.mean(self._running[walk])))
                    self._running[walk] = []
            log.reward.append(float(outcome.reward.mean()))
            log.low.append(float(self.walks.window.low.mean()))
            with torch.no_grad():
                _, following = self.policy.heads(self.bank.states(outcome.codes))
            goal = torch.from_numpy(outcome.terminated).to(self.device)
            seen["following"] = torch.where(goal, 0.0, following)
            seen["reward"] = torch.as_tensor(outcome.reward / self.scale, dtype=following.dtype, device=self.device)
            seen["ended"] = torch.from_numpy(ended).to(self.device)
            for name, part in seen.items():
                columns.setdefault(name, []).append(part)
        return {name: torch.stack(parts) for name, parts in columns.items()}

    def _note(self, codes: np.ndarray, reward: np.ndarray, visits: list[Visit], log: TrainingLog) -> None:
        for row, value, visit in zip(np.ascontiguousarray(codes), reward, visits, strict=True):
            log.visited.setdefault(row.tobytes(), (float(value), Visit(visit.start, list(visit.steps))))

    def _update(self, rollout: dict[str, Tensor], log: TrainingLog) -> None:
        config = self.config
        advantage, target = advantages(
            rollout["reward"], rollout["value"], rollout["following"], rollout["ended"], config.gamma, config.gae
        )
        flat = {name: part.flatten(0, 1) for name, part in rollout.items()}
        flat |= {"advantage": advantage.flatten(), "target": target.flatten()}
        total = len(flat["advantage"])
        for _ in range(config.epochs):
            for rows in torch.randperm(total, generator=self.gen).to(self.device).split(config.batch):
                loss = self.loss({name: part[rows] for name, part in flat.items()})
                self.optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), config.max_norm)
                self.optimizer.step()
                log.loss.append(float(loss.detach()))
        if self.policy.finetune:
            self.bank.clear()

    def loss(self, part: dict[str, Tensor]) -> Tensor:
        """The clipped loss of one batch."""
        config, joint = self.config, self.config.joint_logprob
        before = part["site_log"] + (part["residue_log"] if joint else 0.0)
        if self.policy.finetune:
            now, entropy, value = self.policy.log_prob(
                part["tokens"], part["site"], part["residue"], part["allowed"], self.movable, joint
            )
        else:  # the residue's preference does not depend on what is trained
            logits, value = self.policy.heads(part["states"])
            now, entropy = site_log_prob(logits, part["site"], self.movable)
            if joint:
                now, entropy = now + part["residue_log"], entropy + part["residue_entropy"]
        advantage = part["advantage"]
        if len(advantage) > 1:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        ratio = torch.exp(now - before)
        clipped = ratio.clamp(1 - config.clip, 1 + config.clip)
        gain = torch.minimum(ratio * advantage, clipped * advantage).mean()
        return -gain + config.value * (value - part["target"]).square().mean() - config.entropy * entropy.mean()


def config_dict(config: PPOConfig) -> dict[str, float | int | bool]:
    """The settings as JSON values."""
    return {item.name: getattr(config, item.name) for item in fields(config)}
