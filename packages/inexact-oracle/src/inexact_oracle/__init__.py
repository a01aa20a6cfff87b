"""Run any exact first-order algorithm on noisy values and subgradients (Kerger et al., ICML 2024).

A wrapper stands between solver and oracle; what the solver sees is exact first-order data of a convex function within
O(eta) of the user's.
"""

from inexact_oracle.averaging import hoeffding_radius
from inexact_oracle.certificate import Certificate
from inexact_oracle.estimate import ErrorEstimate, estimate_errors, smallest_errors
from inexact_oracle.lipschitz import LipschitzOracle
from inexact_oracle.oracle import ConsistencyWarning, FirstOrderOracle, InconsistentOracleError
from inexact_oracle.replay import Replay, replay, write_replies
from inexact_oracle.replies import Replies
from inexact_oracle.separation import SeparationOracle
from inexact_oracle.smooth import SmoothOracle

__all__ = [
    "Certificate",
    "ConsistencyWarning",
    "ErrorEstimate",
    "FirstOrderOracle",
    "InconsistentOracleError",
    "LipschitzOracle",
    "Replay",
    "Replies",
    "SeparationOracle",
    "SmoothOracle",
    "estimate_errors",
    "hoeffding_radius",
    "replay",
    "smallest_errors",
    "write_replies",
]
