"""Unmasking in blocks of a fixed size: fast, and no row's result depends on which other rows there are.

The rules are those of Section 3. A block always holds BLOCK rows: a row that stops hands its place to the next one, so
that no work is done for finished rows, and every matrix product has the same shape, and therefore the same rounding,
whatever is asked. The first layer is kept up to date: revealing feature j adds x_j W[:, j] + W[:, d + j] to its
pre-activation, O(h) instead of O(d h).
"""

from typing import Any, NamedTuple

import torch
from offprints.checks import require_choice, require_range, require_shape
from torch.nn import functional as F

from suwr.policy import SequentialPolicy
from suwr.space import Space

BLOCK = 256


class Unmasked(NamedTuple):
    """The unmasking of every row, up to where it stopped; T = budget.

    Attributes:
        mask: (n, d) bool.
        output: (n, K) class logits, or numbers, from what the mask shows.
        order: (n, T) units in the order of their choice, padded with -1.
        stop_prob: (n, T + 1) probability of stopping at each state that was reached, 1 at the last one where it must,
            else NaN.
        select_prob: (n, T) probability of each choice among what was left, else NaN; all NaN unless recorded or drawn.
        outputs: (n, T + 1, K) at every state that was reached, else NaN; None unless recorded.
    """

    mask: torch.Tensor
    output: torch.Tensor
    order: torch.Tensor
    stop_prob: torch.Tensor
    select_prob: torch.Tensor
    outputs: torch.Tensor | None


class _Layers:
    """The first layers by columns, and all others as they are, without dropout."""

    def __init__(self, policy: SequentialPolicy) -> None:
        self.policy, d = policy, policy.n_features
        self.bodies: list[Any] = list(policy.bodies)
        first = [body[0] for body in self.bodies]
        weights = torch.cat([layer.weight for layer in first]).detach()
        self.bias = torch.cat([layer.bias for layer in first]).detach()
        self.values, self.presence = weights[:, :d].t().contiguous(), weights[:, d : 2 * d].t().contiguous()
        self.count = weights[:, 2 * d] / d if policy.step_input else None
        self.hidden = len(first[0].bias)

    def trunks(self, pre: torch.Tensor) -> list[torch.Tensor]:
        """(n, bodies * h) pre-activations -> what each trunk says."""
        said = []
        for part, body in zip(pre.split(self.hidden, dim=1), self.bodies, strict=True):
            norm = body[1]
            part = torch.tanh(F.layer_norm(part, norm.normalized_shape, norm.weight, norm.bias, norm.eps))
            for deep in list(body)[3:]:
                part = torch.tanh(deep[0](part))
            said.append(part)
        return said

    def reveal(self, value: torch.Tensor, columns: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        """(n, bodies * h) what revealing (n, g) columns of these values adds, where `new`."""
        value = torch.where(new, value, torch.zeros_like(value))
        if columns.shape[1] == 1:
            added = torch.addcmul(self.presence[columns[:, 0]], value, self.values[columns[:, 0]])
            added = torch.where(new, added, torch.zeros_like(added[:, :1]))
        else:
            added = (value.unsqueeze(2) * self.values[columns] + new.unsqueeze(2) * self.presence[columns]).sum(dim=1)
        return added if self.count is None else added + new.sum(dim=1, keepdim=True) * self.count


@torch.no_grad()
def unmask(
    policy: SequentialPolicy, x: torch.Tensor, budget: int, *, space: Space | None = None, stop: str = "threshold",
    observed: torch.Tensor | None = None, uniforms: torch.Tensor | None = None, record: bool = False,
) -> Unmasked:  # fmt: skip
    """Unmask every row until it stops; deterministic for `stop="threshold"`.

    Threshold: stop where sigma(z) >= 1/2, else reveal the unit of the largest logit. Sample: stop with sigma(z), else
    draw the unit from the softmax. A row also stops at the budget, and when nothing is left. Results come on the device
    and in the floating-point type of x. O(n T h (h + U)) time, O(n (d + T)) memory.

    Args:
        policy: the network, in evaluation mode or not: dropout is never applied.
        x: (n, d) on the policy's device; NaN is allowed where not `observed`.
        budget: T, units at most.
        space: units and step; None: single features.
        stop: "threshold" or "sample".
        observed: (n, d) bool, False where a value is missing; None: all are there.
        uniforms: (n, T, 2) in [0, 1), the draws of "sample": for stopping and for choosing at each step.
        record: whether to keep the outputs of all states, and the probabilities of all choices.

    Raises:
        TypeError, ValueError: for other values, or "sample" without `uniforms`.
    """
    require_shape("x", x, ("n", policy.n_features))
    require_range("budget", budget, low=0, high=policy.n_units, integer=True)
    require_choice("stop", stop, ("threshold", "sample"))
    if stop == "sample":
        require_shape("uniforms", uniforms, (len(x), budget, 2), hint="stop='sample' needs its draws.")
    dtype = policy.select.weight.dtype
    space = space or Space.single(policy.n_features, x.device, dtype)
    run = _Run(policy, x.to(dtype), budget, space, observed, uniforms if stop == "sample" else None, record)
    run.all_rows()
    outputs = None if run.outputs is None else run.outputs.to(x.dtype)
    return Unmasked(
        run.mask, run.final().to(x.dtype), run.order, run.stop_prob.to(x.dtype), run.select_prob.to(x.dtype), outputs
    )


class _Run:
    """The state of one call of `unmask`: results by row, and a block of rows at work."""

    def __init__(
        self, policy: SequentialPolicy, x: torch.Tensor, budget: int, space: Space, observed: torch.Tensor | None,
        uniforms: torch.Tensor | None, record: bool,
    ) -> None:  # fmt: skip
        n, d, device = len(x), x.shape[1], x.device
        self.policy, self.layers, self.space, self.budget = policy, _Layers(policy), space, budget
        # one more row, for the idle places of the block
        self.x = torch.cat([x, x.new_zeros(1, d)])
        none = torch.zeros(1, d, dtype=torch.bool, device=device)
        self.observed = None if observed is None else torch.cat([observed, none])
        self.uniforms = (
            None if uniforms is None else torch.cat([uniforms, uniforms.new_zeros(1, budget, 2)]).to(x.dtype)
        )
        self.n, empty = n, x.new_full((), float("nan"))
        self._mask = torch.zeros(n + 1, d, dtype=torch.bool, device=device)
        self._order = torch.full((n + 1, budget), -1, dtype=torch.long, device=device)
        self._stop = empty.repeat(n + 1, budget + 1)
        self._select = empty.repeat(n + 1, budget)
        self._said = x.new_zeros(n + 1, self.layers.hidden)
        self._outputs = empty.repeat(n + 1, budget + 1, policy.n_outputs) if record else None

    @property
    def mask(self) -> torch.Tensor:
        return self._mask[: self.n]

    @property
    def order(self) -> torch.Tensor:
        return self._order[: self.n]

    @property
    def stop_prob(self) -> torch.Tensor:
        return self._stop[: self.n]

    @property
    def select_prob(self) -> torch.Tensor:
        return self._select[: self.n]

    @property
    def outputs(self) -> torch.Tensor | None:
        return None if self._outputs is None else self._outputs[: self.n]

    def all_rows(self) -> None:
        """Work through the rows, a block at a time, refilling places."""
        device = self.x.device
        row = torch.full((BLOCK,), self.n, dtype=torch.long, device=device)
        taken, at = torch.zeros(BLOCK, dtype=torch.long, device=device), 0
        pre = self.layers.bias.repeat(BLOCK, 1)
        while True:
            idle = (row == self.n).nonzero().squeeze(1)
            fill = idle[: self.n - at]
            if len(fill):
                row[fill] = torch.arange(at, at + len(fill), device=device)
                taken[fill], pre[fill], at = 0, self.layers.bias, at + len(fill)
            elif len(idle) == BLOCK:
                return
            pre, row, taken = self._step(pre, row, taken)

    def _step(
        self, pre: torch.Tensor, row: torch.Tensor, taken: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """One state of each row in the block: stop, or reveal `space.step` units."""
        trunks = self.layers.trunks(pre)
        mask, real = self._mask[row], row < self.n
        observed = None if self.observed is None else self.observed[row]
        left = self.space.left(mask, observed)
        must = (taken >= self.budget) | ~left.any(dim=1)
        z = self.policy.stop(trunks[-1]).squeeze(1)
        chance = torch.where(must, torch.ones_like(z), torch.sigmoid(z))
        self._stop[row, taken] = chance
        if self._outputs is not None:
            self._outputs[row, taken] = self._read(trunks, mask)
        draw = self._draw(row, taken)
        ends = must | ((z >= 0) if draw is None else (draw[:, 0] < chance))
        self._said[row] = trunks[len(trunks) // 2]
        go = real & ~ends
        if bool(go.any()):
            select = self.policy.select(trunks[0])
            for place in range(self.space.step):
                open_ = go & left.any(dim=1) & (taken < self.budget)
                if place and not bool(open_.any()):
                    break
                pre, mask, taken = self._reveal(select, left, open_, draw, pre, mask, row, taken)
                if place + 1 < self.space.step:
                    left, draw = self.space.left(mask, observed), self._draw(row, taken)
            self._mask[row] = mask
        return pre, torch.where(go, row, torch.full_like(row, self.n)), taken

    def _reveal(
        self, select: torch.Tensor, left: torch.Tensor, go: torch.Tensor, draw: torch.Tensor | None, pre: torch.Tensor,
        mask: torch.Tensor, row: torch.Tensor, taken: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
        """Choose one unit for the rows that go on, and bring mask and pre-activations up to date."""
        logits = select.masked_fill(~left, float("-inf"))
        q = torch.softmax(logits, dim=1) if self._outputs is not None or draw is not None else None
        if draw is None or q is None:
            unit = logits.argmax(dim=1)
        else:
            rising = q.nan_to_num(0.0).cumsum(dim=1)
            unit = (rising <= draw[:, 1:] * rising[:, -1:]).sum(dim=1).clamp_max(q.shape[1] - 1)
            unit = torch.where(left.gather(1, unit[:, None]).squeeze(1), unit, logits.argmax(dim=1))
        safe = torch.where(go, row, torch.full_like(row, self.n))  # idle places write to the spare row
        place = taken.clamp_max(max(self.budget - 1, 0))
        self._order[safe, place] = unit
        if q is not None:
            self._select[safe, place] = q.gather(1, unit[:, None]).squeeze(1)
        columns = self.space.members[unit]
        new = self.space.real[unit] & ~mask.gather(1, columns) & go[:, None]
        if self.observed is not None:
            new = new & self.observed[row].gather(1, columns)
        pre = pre + self.layers.reveal(self.x[row[:, None], columns], columns, new)
        mask = mask | (self.space.units[unit] & go[:, None])
        if self.observed is not None:
            mask = mask & self.observed[row]
        return pre, mask, taken + go.long()

    def _draw(self, row: torch.Tensor, taken: torch.Tensor) -> torch.Tensor | None:
        return (
            self.uniforms[row, taken.clamp_max(self.budget - 1)] if self.uniforms is not None and self.budget else None
        )

    def _read(self, trunks: list[torch.Tensor], mask: torch.Tensor) -> torch.Tensor:
        return self.policy.tops(trunks, mask).output

    def final(self) -> torch.Tensor:
        """(n, K) outputs of the states in which the rows stopped, in blocks of the same size again."""
        parts = []
        for start in range(0, self.n, BLOCK):
            said = self._said[start : min(start + BLOCK, self.n)]
            known = F.pad(said, (0, 0, 0, BLOCK - len(said)))
            parts.append(self.policy.predict(torch.tanh(self.policy.mix(known)))[: len(said)])
        known = torch.cat(parts) if parts else self.x.new_zeros(0, self.policy.n_outputs)
        return torch.where(self.mask.any(dim=1, keepdim=True), known, self.policy.prior.to(known.dtype))
