"""What the saved wrappers share, and what a file must hold to become one again."""

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

METHOD_NAME = "inexact-oracle"


@contextmanager
def whole(path: str | Path) -> Generator[None, None, None]:
    """What a file that was tampered with makes go wrong, as one ValueError that names the file."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{path} must hold a whole saved wrapper, got {type(error).__name__}: {reason}.") from error


def restore_counters(wrapper: object, own: Mapping[str, object], saved: object) -> None:
    """Set the counters `own` of a wrapper to their saved values; all of them, and no other attribute."""
    if not isinstance(saved, dict) or saved.keys() != own.keys():
        raise ValueError(f"the counters must be {', '.join(own)}, got {saved}")
    for name, value in saved.items():
        setattr(wrapper, name, value)


def require_owner(process: int) -> None:
    """Refuse a query in a process other than the one whose answers the wrapper keeps.

    Raises:
        RuntimeError: this is a fork of it.
    """
    if os.getpid() != process:
        raise RuntimeError(
            "the wrapper belongs to another process, whose replies this one cannot see. "
            "Query it where it was made, or give every process a wrapper of its own."
        )
