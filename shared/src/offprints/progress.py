"""A progress bar that stays out of logs: on stderr, only on a terminal, with one switch (`OFFPRINTS_PROGRESS=0`)."""

import os
import sys
from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def track(iterable: Iterable[T], desc: str = "", total: int | None = None) -> Iterable[T]:
    """`iterable` itself, shown by tqdm where tqdm is installed and stderr is a terminal."""
    if os.environ.get("OFFPRINTS_PROGRESS") == "0" or not sys.stderr.isatty():
        return iterable
    try:
        from tqdm import tqdm
    except ImportError:
        return iterable
    return tqdm(iterable, desc=desc or None, total=total, file=sys.stderr, leave=False)
