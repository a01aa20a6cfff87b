"""What the tests of a package share: the conformance suite, smoke runs of claims, README blocks, offline models.

Nothing here imports torch before a check of a torch kind runs. The pytest plugin is `offprints.testing.plugin`.
"""

from offprints.testing.conformance import Conformance, assert_all_covered, skipped_checks
from offprints.testing.documents import readme_blocks, run_smoke
from offprints.testing.models import offline_encoder, offline_lm
from offprints.testing.solvers import Outcome, Problem

__all__ = [
    "Conformance",
    "Outcome",
    "Problem",
    "assert_all_covered",
    "offline_encoder",
    "offline_lm",
    "readme_blocks",
    "run_smoke",
    "skipped_checks",
]
