"""One layer of a fixed-size cache: what it holds, when it compresses, which slots a query may see (Section 3).

Slots of a row stand at the right end of the tensors; what is left of them is padding, masked and never fused. Every
row is compressed when it itself holds more than M + β tokens, so that padding a prompt changes nothing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from offprints.checks import require_finite
from torch import Tensor
from torch.nn.functional import pad
from transformers.cache_utils import DynamicLayer

from lococo.policies import Policy

UNWATCHED = (
    "a compressed cache must be used inside `with observe(model):`, which tells it the attention mass of its slots and "
    "which tokens are padding; this call came from outside. Wrap the call (also of generate) in it."
)
FIELDS = ("keys", "values", "scores", "positions", "origins")


class CompressedLayer(DynamicLayer):
    """Keys and values (b, h, S, d) of one layer with S ≤ M + β + q, whatever the length of the context.

    Args:
        policy: what is kept and fused.
        provenance: whether to remember which tokens live in which slot (memory grows with the context then).
    """

    keys: Any
    values: Any

    def __init__(self, policy: Policy, provenance: bool = False) -> None:
        super().__init__()
        self.policy, self.provenance = policy, provenance
        self._clear()

    def _clear(self) -> None:
        self.keys = self.values = None
        self.scores: Tensor | None = None
        self.positions: Tensor | None = None
        self.origins: Tensor | None = None
        self.lengths: list[int] = []
        self.tokens: list[int] = []
        self.seen = 0
        self.compressed = self.is_initialized = self.armed = False
        self.pads: list[int] | None = None
        self.own_mask = False

    # ---- one forward

    def arm(self, pads: Sequence[int] | None, own_mask: bool) -> None:
        """Announce a forward: how many new tokens of each row are padding, and whose mask to use."""
        self.own_mask = own_mask
        self.armed, self.pads = True, list(pads) if pads is not None and any(pads) else None

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Compress rows that hold more than M + β tokens, append (b, h, q, d) new keys and values, return all.

        Raises:
            RuntimeError: outside `observe(model)`.
            ValueError: if the batch changes, or keys or values that would be fused are not finite.
        """
        if not self.armed:
            raise RuntimeError(UNWATCHED)
        self.armed = False
        rows = key_states.shape[0]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.lengths, self.tokens = [0] * rows, [0] * rows
        if rows != len(self.lengths):
            raise ValueError(f"the batch must have the {len(self.lengths)} rows that this cache holds, got {rows}.")
        if due := self.due():
            self._compress(due)
        self._append(key_states, value_states)
        return self.keys, self.values

    def due(self) -> list[int]:
        """The rows that the next forward compresses."""
        return [row for row, length in enumerate(self.lengths) if length > self.policy.limit]

    def wants_scores(self) -> bool:
        """Whether this forward's attention mass will be used: of "last", only when it ends with a row too long."""
        return self.policy.scores in ("sum", "ema") or (self.policy.scores == "last" and bool(self.due()))

    def absorb(self, mass: Tensor, queries: int) -> None:
        """Take (b, h, S) attention mass of the forward just made, in which there were `queries` of them."""
        if self.scores is not None and self.policy.scores in ("sum", "ema"):
            fade = self.policy.decay**queries if self.policy.scores == "ema" else 1.0
            mass = mass + fade * pad(self.scores, (0, mass.shape[-1] - self.scores.shape[-1]))
        self.scores = mass

    def mask(self, queries: int) -> Tensor | None:
        """(b or 1, 1, q, S) which slots the last `queries` tokens see; None where all see all."""
        old = self.keys.shape[-2] - queries
        fresh = [queries - n for n in self.pads] if self.pads else [queries] * len(self.lengths)
        held = [length - new for length, new in zip(self.lengths, fresh, strict=True)]
        device = self.keys.device
        full = self.pads is None and all(length == old for length in held)
        if full and queries == 1:
            return None
        within = torch.ones(queries, queries, dtype=torch.bool, device=device).tril()[None, None]
        before = torch.ones(1, 1, queries, old, dtype=torch.bool, device=device)
        if not full:
            first = old - torch.tensor(held, device=device)
            before = (torch.arange(old, device=device) >= first[:, None])[:, None, None].expand(-1, -1, queries, -1)
            within = within.expand(len(held), -1, -1, -1)
        if self.pads:
            starts = torch.tensor(self.pads, device=device)[:, None]
            real = (torch.arange(queries, device=device) >= starts)[:, None, None]
            itself = torch.eye(queries, dtype=torch.bool, device=device)  # a padding query sees itself: finite
            within = (within & real) | itself
        return torch.cat((before, within), -1)

    def real_queries(self, queries: int) -> Tensor | None:
        """(b, q) which of the last tokens are no padding; None for all."""
        if not self.pads:
            return None
        device = self.keys.device
        return torch.arange(queries, device=device) >= torch.tensor(self.pads, device=device)[:, None]

    def _append(self, keys: Tensor, values: Tensor) -> None:
        rows, heads, new, _ = keys.shape
        pads = self.pads or [0] * rows
        places = torch.arange(new, device=keys.device) + torch.tensor(
            [count - skip for count, skip in zip(self.tokens, pads, strict=True)], device=keys.device
        ).unsqueeze(-1)  # (b, q)
        if self.pads:  # some back ends give NaN for queries that see nothing, and 0 times NaN would reach the others
            columns = torch.arange(new, device=keys.device)
            hidden = (columns < torch.tensor(self.pads, device=keys.device)[:, None])[:, None, :, None]
            keys, values = keys.masked_fill(hidden, 0), values.masked_fill(hidden, 0)
        started = bool(self.seen)
        self.keys = torch.cat((self.keys, keys), -2) if started else keys.clone()
        self.values = torch.cat((self.values, values), -2) if started else values.clone()
        if self.policy.needs_positions:
            more = places[:, None].expand(rows, heads, new).to(torch.float32)
            self.positions = torch.cat((self.positions, more), -1) if self.positions is not None else more
        if self.policy.priorities is not None:
            more = self.policy.priorities.of(places, heads)
            self.scores = torch.cat((self.scores, more), -1) if self.scores is not None else more
        elif self.policy.scores == "last":
            self.scores = None
        if self.provenance:
            eye = torch.eye(new, device=keys.device).expand(rows, heads, new, new)
            old = self.origins
            self.origins = (
                eye.clone() if old is None else torch.cat((pad(old, (0, new)), pad(eye, (old.shape[-1], 0))), -2)
            )
        for row, skip in enumerate(pads):
            self.lengths[row] += new - skip
            self.tokens[row] += new - skip
        self.seen += new

    def _compress(self, due: list[int]) -> None:
        if self.scores is None and self.policy.scores != "none":
            raise RuntimeError("the cache must have scores of the last forward, got none. " + UNWATCHED)
        length, everyone = self.keys.shape[-2], len(due) == len(self.lengths)
        index = torch.tensor(due, device=self.keys.device)
        part = {
            name: (x.detach() if everyone else x.detach().index_select(0, index))
            for name in FIELDS
            if (x := getattr(self, name)) is not None
        }
        for name in ("keys", "values"):
            require_finite(name, part[name], hint="A NaN would spread over all fused slots.")
        valid = None
        if any(self.lengths[row] < length for row in due):
            first = torch.tensor([length - self.lengths[row] for row in due], device=self.keys.device)
            valid = torch.arange(length, device=self.keys.device) >= first[:, None]
        scores = part.get("scores", torch.zeros(part["keys"].shape[:3], device=self.keys.device))
        plan, keys = self.policy.compress(part["keys"], part["values"], scores, valid, part.get("positions"))
        for row in due:
            self.lengths[row] = self.policy.mem_size
        width = max(self.lengths)
        for name, x in part.items():
            new = keys if name == "keys" else plan.apply(x)
            if not everyone:
                short = width - self.policy.mem_size
                new = pad(new, (0, 0, short, 0) if new.ndim == 4 else (short, 0))
                new = getattr(self, name)[:, :, length - width :].index_copy(0, index, new)
            setattr(self, name, new)
        self.compressed = True

    # ---- what transformers asks

    def get_seq_length(self) -> int:
        """Tokens seen, padding included: positions go on from there."""
        return self.seen

    def get_mask_sizes(self, query_length: int | Tensor) -> tuple[int, int]:
        """Length and offset of the keys in the coming forward, as transformers builds its mask from them."""
        queries = query_length if isinstance(query_length, int) else query_length.shape[0]
        return self._width() + queries, self.seen - self._width()

    def _width(self) -> int:
        """Slots after the compression that the coming forward begins with."""
        if not self.seen:
            return 0
        if not self.due():
            return self.keys.shape[-2]
        return max(min(length, self.policy.mem_size) if row in self.due() else length
                   for row, length in enumerate(self.lengths))  # fmt: skip

    @property
    def is_croppable(self) -> bool:  # pyrefly: ignore[bad-override]
        """Whether tokens can be taken back: until the first compression."""
        return not self.compressed

    def crop(self, tokens_to_remove: int) -> None:
        """Take back the last −`tokens_to_remove` tokens; a positive number is the length to keep.

        Raises:
            NotImplementedError: after a compression, which cannot be undone (so assisted decoding is not possible).
        """
        gone = -tokens_to_remove if tokens_to_remove <= 0 else max(0, self.seen - tokens_to_remove)
        if not gone or not self.seen:
            return
        if self.compressed:
            raise NotImplementedError("crop must come before the first compression, which cannot be undone.")
        gone = min(gone, self.seen)
        for name in FIELDS:
            if (x := getattr(self, name)) is not None:
                setattr(self, name, x[:, :, : x.shape[2] - gone])
        if self.origins is not None:
            self.origins = self.origins[..., : self.seen - gone]
        self.lengths = [max(0, length - gone) for length in self.lengths]
        self.tokens = [max(0, count - gone) for count in self.tokens]
        self.seen -= gone

    def reset(self) -> None:
        """Forget everything."""
        self._clear()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the rows, as beam search does: keys, values, scores and all that belongs to a slot."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these rows (numbers, or a mask), in this order."""
        chosen = torch.as_tensor(indices)
        chosen = chosen.nonzero()[:, 0] if chosen.dtype == torch.bool else chosen
        self._rows(lambda x: x.index_select(0, chosen.to(x.device)), chosen.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
        order = [row for row in range(len(self.lengths)) for _ in range(repeats)]
        self._rows(lambda x: x.repeat_interleave(repeats, dim=0), order)

    def _rows(self, change: Callable[[Tensor], Tensor], order: list[int]) -> None:
        if not self.seen:
            return
        for name in FIELDS:
            if (x := getattr(self, name)) is not None:
                setattr(self, name, change(x))
        self.lengths = [self.lengths[row] for row in order]
        self.tokens = [self.tokens[row] for row in order]

    def detach_(self) -> None:
        """Cut the graph: gradients of what follows end here."""
        for name in FIELDS:
            if (x := getattr(self, name)) is not None:
                setattr(self, name, x.detach())
