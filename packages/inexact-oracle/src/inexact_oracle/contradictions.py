"""How contradictions to the declared errors (Section 1 of the paper) are reported: a warning, or an error if strict."""

import sys


class ConsistencyWarning(UserWarning):
    """The declared errors cannot explain the replies by any convex function of the class."""


class InconsistentOracleError(ValueError):
    """The replies of queries `i` and `j` contradict each other by `violation` (strict mode)."""

    def __init__(self, i: int, j: int, violation: float, reason: str) -> None:
        super().__init__(f"{reason} (queries {i} and {j}, violation {violation:.3g}).")
        self.i, self.j, self.violation = i, j, violation


def callers_level() -> int:
    """The `stacklevel` that makes a warning name the line that called this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(f"{__package__}."):
        level, frame = level + 1, frame.f_back
    return level
