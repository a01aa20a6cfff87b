"""The claims of the paper, cheap ones first: theorems in `claims_theory`, training runs in `claims_training`."""

from grokking_theory import claims_theory, claims_training, figures
from grokking_theory._method import METHOD

__all__ = ["METHOD", "claims_theory", "claims_training", "figures"]
