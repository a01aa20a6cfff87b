"""The claims of the paper: identities in `claims_exact`, training in `claims_plane` and `claims_sphere`."""

from direct_spectral import claims_exact, claims_plane, claims_sphere, figures
from direct_spectral._method import METHOD

__all__ = ["METHOD", "claims_exact", "claims_plane", "claims_sphere", "figures"]
