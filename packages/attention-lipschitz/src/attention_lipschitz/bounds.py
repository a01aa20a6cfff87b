"""All bounds under one roof: by radius (Theorem 3.3 and Section 3 of the paper), near given tokens, and in the limit.

`general`, `mean_field`, `sharp`, `masked_mean_field` bound the Lipschitz constant on B_R from above and `lower` from
below, from norms alone; `bound_table` does so for a whole layer. `local` and `ball` certify what holds at and around
given tokens; `large_radius_limit` is what remains when tokens are scaled up; `layernorm_fold` puts a norm into the
layer.
"""

from attention_lipschitz.blocks import fold_norm as layernorm_fold
from attention_lipschitz.certificates import PositionalBoundError, ball, local
from attention_lipschitz.limits import large_radius_limit
from attention_lipschitz.radius import general, lower, masked_mean_field, mean_field, sharp
from attention_lipschitz.tables import BoundTable, bound_table

__all__ = [
    "BoundTable", "PositionalBoundError", "ball", "bound_table", "general", "large_radius_limit", "layernorm_fold",
    "local", "lower", "masked_mean_field", "mean_field", "sharp",
]  # fmt: skip
