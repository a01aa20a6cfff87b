"""Candidates scored in one call of the language model, and remembered (the hot path of Section 3)."""

import numpy as np
import torch
from torch import Tensor

from knowrlm.policy import KnowledgePolicy
from knowrlm.space import VariantSpace


class StateBank:
    """Encoder states of whole variants, computed in batches and kept as long as memory allows.

    All variants that a step of the walks of Section 3 asks for are encoded in one call; those seen before are looked
    up. When the bank is full it is emptied. With an encoder that trains, call `clear` after every update.

    Args:
        policy: whose encoder is asked.
        space: the variants.
        max_bytes: of the states that are kept.
        batch: at most so many sequences per call.
    """

    def __init__(
        self, policy: KnowledgePolicy, space: VariantSpace, max_bytes: int = 128 * 2**20, batch: int = 512
    ) -> None:
        self.policy, self.space, self.batch = policy, space, batch
        weight = policy.site_head.weight
        length, width = policy.reference.shape
        self.capacity = max(1024, max_bytes // (length * width * weight.element_size()))
        self._bank = weight.new_empty(0, length, width)
        self._rows: dict[bytes, int] = {}
        self.calls = 0

    def clear(self) -> None:
        """Forget everything."""
        self._rows.clear()

    @torch.no_grad()
    def states(self, codes: np.ndarray) -> Tensor:
        """(n, L, e) states of (n, k) variants."""
        codes = np.ascontiguousarray(codes, dtype=np.int8)
        keys = [row.tobytes() for row in codes]
        fresh = {key: place for place, key in enumerate(keys) if key not in self._rows}
        if len(self._rows) + len(fresh) > self.capacity:
            self.clear()
            fresh = {key: place for place, key in enumerate(keys)}
        if fresh:
            self._encode(codes[list(fresh.values())], list(fresh))
        rows = [self._rows[key] for key in keys]
        return self._bank[torch.tensor(rows, device=self._bank.device)]

    def _encode(self, codes: np.ndarray, keys: list[bytes]) -> None:
        device = self._bank.device
        tokens = torch.from_numpy(self.space.tokens(codes).astype(np.int64)).to(device)
        found = []
        for part in tokens.split(self.batch):
            found.append(self.policy.encoder(part))
            self.calls += 1
        used = len(self._rows)
        needed = used + len(keys)
        if needed > len(self._bank):
            grown = self._bank.new_empty(max(needed, 2 * len(self._bank)), *self._bank.shape[1:])
            grown[:used] = self._bank[:used]
            self._bank = grown
        self._bank[used:needed] = torch.cat(found).to(self._bank.dtype)
        self._rows.update({key: used + place for place, key in enumerate(keys)})


@torch.no_grad()
def preferences(
    bank: StateBank, codes: np.ndarray, site: np.ndarray, allowed: np.ndarray, own: Tensor | None = None
) -> Tensor:
    """(n, 20) log P(b) of the preferential walk of Section 3 for n walks, every candidate encoded in one call.

    Args:
        bank: the encoder's memory.
        codes: (n, k) where the walks stand.
        site: (n,) index of the site of each.
        allowed: (n, 20) windows.
        own: (n, L, e) states of `codes`, if they are known.
    """
    policy = bank.policy
    own = bank.states(codes) if own is None else own
    row, residue = np.nonzero(allowed)
    changed = np.asarray(codes, dtype=np.int8)[row].copy()
    changed[np.arange(len(row)), site[row]] = residue
    places = np.array(policy.places)[site]
    encoded = bank.states(changed)
    at = torch.from_numpy(places).to(encoded.device)
    picked = encoded[torch.arange(len(row), device=at.device), at[torch.from_numpy(row).to(at.device)]]
    candidates = own.new_zeros(len(codes), 20, own.shape[2])
    candidates[torch.from_numpy(row).to(at.device), torch.from_numpy(residue).to(at.device)] = picked
    window = torch.from_numpy(allowed).to(at.device)
    return policy.residue_logits(own[torch.arange(len(codes), device=at.device), at], candidates, window)
