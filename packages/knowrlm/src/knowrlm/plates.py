"""A plate as a table that explains itself: what each variant changes, and how it was found (Section 3)."""

import numpy as np
import pandas as pd

from knowrlm.graph import AminoAcidGraph
from knowrlm.space import RESIDUES, VariantSpace
from knowrlm.surrogate import Surrogate


def plate_frame(
    space: VariantSpace, graph: AminoAcidGraph, codes: np.ndarray, reasons: list[str], surrogate: Surrogate | None
) -> pd.DataFrame:
    """The columns variant, sequence, mutations, predicted, spread, why of (n, k) variants (Section 3).

    Args:
        space: of the variants.
        graph: ranks the substitutions.
        codes: the plate.
        reasons: how each variant was found: the path of its walk.
        surrogate: predicts; without one, predictions are NaN.
    """
    each = surrogate.each(codes) if surrogate is not None else np.full((1, len(codes)), np.nan)
    return pd.DataFrame(
        {
            "variant": space.decode(codes),
            "sequence": space.sequences(codes),
            "mutations": space.mutations(codes),
            "predicted": each.mean(axis=0),
            "spread": each.std(axis=0),
            "why": [f"{changes(space, graph, row)} [{why}]" for row, why in zip(codes, reasons, strict=True)],
        }
    )


def changes(space: VariantSpace, graph: AminoAcidGraph, row: np.ndarray) -> str:
    """What one variant changes against the parent, site by site, in words (Section 3)."""
    words = []
    for site, old, new in zip(space.sites, space.wild_type, row, strict=True):
        if old != new:
            words.append(f"{site} {graph.explain(RESIDUES[old], RESIDUES[new])}")
    return "; ".join(words) or "the parent"
