"""The 586 amino-acid scales of AAontology, read from where aaanalysis keeps them (it is not imported)."""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from offprints.checks import Problems, message, require_choice, require_range

from knowrlm.space import RESIDUES


@dataclass(frozen=True)
class Scales:
    """Min–max scaled property scales of the twenty amino acids, with their place in the ontology (Section 3).

    Attributes:
        values: (20, s), rows in the order of `RESIDUES`, entries in [0, 1].
        table: s rows with the columns scale_id, category, subcategory, scale_name.
    """

    values: np.ndarray
    table: pd.DataFrame

    @property
    def categories(self) -> list[str]:
        """The names of the categories."""
        return sorted(self.table["category"].unique())

    def weights(self, categories: Sequence[str] | Mapping[str, float] | None) -> np.ndarray:
        """(s,) weight of each scale: 1, or that of its category (0 for a category that is not named).

        Raises:
            ValueError: naming unknown categories and negative weights; if every weight is 0.
        """
        if categories is None:
            return np.ones(len(self.table))
        if isinstance(categories, str):
            categories = [categories]
        given = dict(categories) if isinstance(categories, Mapping) else dict.fromkeys(categories, 1.0)
        with Problems("cannot weight the scales") as problems:
            for name, weight in given.items():
                problems.check(require_choice, "category", name, self.categories)
                problems.check(require_range, f"weight of {name}", weight, low=0)
            if not any(given.values()):
                problems.add(message("categories", "of some weight above 0", str(given)))
        return self.table["category"].map(lambda name: float(given.get(name, 0.0))).to_numpy()


def load_scales(path: str | Path | None = None) -> Scales:
    """The scales of AAontology: `scales.tsv` and `scales_cat.tsv` of a folder, by default those in aaanalysis.

    The graph of Section 3 needs them only to weight categories or to be rebuilt; its distances ship with knowrlm.

    Raises:
        FileNotFoundError: if neither the folder nor aaanalysis is there, naming the pip command.
        ValueError: if the table does not hold the 20 amino acids, or its two files do not match.
    """
    folder = Path(path) if path is not None else _installed()
    files = [folder / name for name in ("scales.tsv", "scales_cat.tsv")]
    for file in files:
        if not file.exists():
            raise FileNotFoundError(f'no {file.name} in {folder}. Try: pip install "knowrlm[scales]"')
    values = pd.read_csv(files[0], sep="\t", index_col=0)
    table = pd.read_csv(files[1], sep="\t")
    if sorted(map(str, values.index)) != list(RESIDUES):
        raise ValueError(
            message(f"{files[0]}: the first column", f"the 20 letters {RESIDUES}", str(list(values.index)))
        )
    if set(values.columns) != set(table["scale_id"]):
        raise ValueError(message(f"{files[1]}: scale_id", f"the columns of {files[0].name}", "others"))
    table = table[["scale_id", "category", "subcategory", "scale_name"]].reset_index(drop=True)
    matrix = values.loc[list(RESIDUES), table["scale_id"].tolist()].to_numpy(dtype=float)
    return Scales(matrix, table)


def _installed() -> Path:
    found = importlib.util.find_spec("aaanalysis")
    if found is None or not found.submodule_search_locations:
        raise FileNotFoundError('the scales ship with aaanalysis, which is not here: pip install "knowrlm[scales]"')
    return Path(found.submodule_search_locations[0]) / "_data"
