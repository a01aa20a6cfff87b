"""The claims of the paper: links in `claims_links`, the others in `claims_nodes`; figures."""

from duplex_embed import claims_links, claims_nodes, figures
from duplex_embed._method import METHOD

__all__ = ["METHOD", "claims_links", "claims_nodes", "figures"]
