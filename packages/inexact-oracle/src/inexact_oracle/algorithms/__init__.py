"""First-order algorithms that take any oracle x -> (value, subgradient): exact, naive or wrapped.

With a guarantee for nonsmooth functions, for `LipschitzOracle`: projected_subgradient, kelley, level_bundle, ellipsoid,
center_of_gravity, outer_approximation. With a guarantee for smooth ones, for `SmoothOracle`: accelerated_gradient,
frank_wolfe, scipy_minimize.
"""

from inexact_oracle.algorithms.cutting import kelley, level_bundle
from inexact_oracle.algorithms.first_order import (
    accelerated_gradient,
    frank_wolfe,
    projected_subgradient,
    scipy_minimize,
)
from inexact_oracle.algorithms.lmo import Box, L1Ball, NuclearBall, Simplex
from inexact_oracle.algorithms.localization import center_of_gravity, ellipsoid
from inexact_oracle.algorithms.mixed_integer import outer_approximation
from inexact_oracle.algorithms.result import History, Result

__all__ = [
    "Box",
    "History",
    "L1Ball",
    "NuclearBall",
    "Result",
    "Simplex",
    "accelerated_gradient",
    "center_of_gravity",
    "ellipsoid",
    "frank_wolfe",
    "kelley",
    "level_bundle",
    "outer_approximation",
    "projected_subgradient",
    "scipy_minimize",
]
