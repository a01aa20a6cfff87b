"""What was computed of arrays before: pure functions of positions that come again every epoch."""

import hashlib
from collections import OrderedDict

import numpy as np


class Memo:
    """Results by the content of the arrays they were made of; the longest unused go when the memory is full.

    Args:
        max_bytes: of all results together.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.held = max_bytes, 0
        self.kept: OrderedDict[bytes, tuple[np.ndarray, ...]] = OrderedDict()

    def key(self, *parts: np.ndarray | int) -> bytes:
        """A digest of arrays and numbers."""
        digest = hashlib.sha256()
        for part in parts:
            digest.update(np.ascontiguousarray(part).tobytes() + str(np.shape(part)).encode())
        return digest.digest()

    def get(self, key: bytes) -> tuple[np.ndarray, ...] | None:
        """The result of that key, or None."""
        if key in self.kept:
            self.kept.move_to_end(key)
        return self.kept.get(key)

    def put(self, key: bytes, *result: np.ndarray) -> None:
        """Keep a result."""
        self.kept[key] = result
        self.held += sum(x.nbytes for x in result)
        while self.held > self.max_bytes and self.kept:
            _, gone = self.kept.popitem(last=False)
            self.held -= sum(x.nbytes for x in gone)
