"""Fitness landscapes that were measured: tables from files, looked up variant by variant (Section 4)."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypedDict, Unpack, runtime_checkable

import numpy as np
import pandas as pd
from offprints.checks import message, require_kind

from knowrlm.measurements import VARIANT_COLUMNS, checked_fitness, find_column, read_measurements, read_table
from knowrlm.space import RESIDUES, VariantSpace

PARENTS = {  # the two landscapes of Section 4, whose public tables hold the residues at the sites only
    "GB1": ("MQYKLILNGKTLKGETTTEAVDAATAEKVFKQYANDNGVDGEWTYDDATKTFTVTE", ("V39", "D40", "G41", "V54")),
}
_MUTATION = re.compile(r"([A-Z])(\d+)([A-Z])")


@runtime_checkable
class Oracle(Protocol):
    """What measures variants: a table that was measured, or a function (Section 4)."""

    space: VariantSpace
    name: str
    maximum: float

    def measure(self, codes: np.ndarray) -> np.ndarray:
        """(n,) fitness of (n, k) variants, NaN where there is none."""
        ...


class LandscapeOptions(TypedDict, total=False):
    """Options of `Landscape.from_frame`, for the readers of files (Section 4)."""

    parent: str | None
    sites: Sequence[int | str] | None
    allowed: str | Mapping[int, str] | None
    variant: str | None
    fitness: str | None
    name: str


class Landscape:
    """A table of measured variants (Section 4); what was not measured is NaN, never 0.

    Args:
        space: the space that the variants belong to.
        codes: (n, k) distinct variants.
        fitness: (n,) finite.
        name: for tables and figures.

    Raises:
        TypeError: if codes are no integers or fitness no numbers.
        ValueError: if it is empty, the shapes differ, a variant is outside the space or occurs twice, or as
        `checked_fitness`.
    """

    def __init__(self, space: VariantSpace, codes: np.ndarray, fitness: np.ndarray, name: str = "landscape") -> None:
        self.space, self.name = space, name
        self.codes, self.fitness = space.checked("codes", codes), checked_fitness("fitness", fitness)
        if not len(self.codes) or len(self.codes) != len(self.fitness):
            expected = f"({len(self.fitness)}, {space.k}) and not empty"
            raise ValueError(message("codes", f"of shape {expected}", np.shape(codes)))
        self.maximum = float(self.fitness.max())
        self._rows = {row.tobytes(): place for place, row in enumerate(np.ascontiguousarray(self.codes))}
        if len(self._rows) < len(self.codes):
            raise ValueError(message("codes", "distinct", f"{len(self.codes) - len(self._rows)} repeats"))

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        parent: str | None = None,
        sites: Sequence[int | str] | None = None,
        allowed: str | Mapping[int, str] | None = None,
        variant: str | None = None,
        fitness: str | None = None,
        name: str = "landscape",
    ) -> "Landscape":
        """A landscape from a table with a column of variants and one of fitness.

        Reads the public tables of GB1 and PhoQ (`Variants`, `Fitness`, maybe `HD`; Section 4), of ProteinGym (`mutant`,
        `mutated_sequence`, `DMS_score`) and your own. Rows without fitness are left out with a warning.

        Args:
            frame: the table.
            parent: the whole parent; by default worked out from mutations and sequences, or the residues of the variant
                with `HD` 0, else of the first variant.
            sites: 1-based sites; by default all that change.
            allowed: residues per site; "observed" for those that occur.
            variant: column of variants; fitness: column of fitness.
            fitness: its name.
            name: of the landscape.

        Raises:
            ValueError: if columns are missing, variants unreadable, or the parent cannot be worked out.
        """
        column = find_column(frame, variant, VARIANT_COLUMNS, "variant")
        if parent is None or sites is None:
            parent, sites = _worked_out(frame, column, parent, sites)
        observed = allowed == "observed"
        space = VariantSpace(parent, sites, allowed=None if observed else allowed)
        codes, values = read_measurements(frame, space, variant=column, fitness=fitness)
        if observed:
            seen = {site: "".join(RESIDUES[b] for b in np.unique(codes[:, j])) for j, site in enumerate(space.sites)}
            space = VariantSpace(parent, sites, allowed=seen)
        return cls(space, codes, values, name)

    @classmethod
    def from_csv(cls, path: str | Path, **options: Unpack[LandscapeOptions]) -> "Landscape":
        """`from_frame` of a .csv or .tsv file (Section 4)."""
        return load_landscape(path, **options)

    @classmethod
    def from_xlsx(cls, path: str | Path, **options: Unpack[LandscapeOptions]) -> "Landscape":
        """`from_frame` of the first sheet of an .xlsx file (Section 4); needs openpyxl."""
        return load_landscape(path, **options)

    def measure(self, codes: np.ndarray) -> np.ndarray:
        """(n,) fitness of (n, k) variants, NaN where none was measured."""
        rows = np.ascontiguousarray(codes, dtype=np.int8)
        places = [self._rows.get(row.tobytes(), -1) for row in rows]
        return np.where(np.array(places) < 0, np.nan, self.fitness[places]) if len(places) else np.zeros(0)

    def __len__(self) -> int:
        return len(self.fitness)

    def __repr__(self) -> str:
        return f"Landscape({self.name}, {len(self)} of {self.space.size:.6g} variants, maximum {self.maximum:.4g})"


def load_landscape(path: str | Path, **options: Unpack[LandscapeOptions]) -> Landscape:
    """The landscape in a .csv, .tsv or .xlsx file; options are those of `Landscape.from_frame` (Section 4).

    A file whose name begins with a known landscape (GB1) gets that parent and its sites unless they are given.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: as `Landscape.from_frame`.
    """
    require_kind("path", path, (str, Path))
    stem = Path(path).stem
    known = next((entry for name, entry in PARENTS.items() if stem.lower().startswith(name.lower())), None)
    if known and "parent" not in options and "sites" not in options:
        options["parent"], options["sites"] = known
    options.setdefault("name", stem)
    return Landscape.from_frame(read_table(path), **options)


def _worked_out(
    frame: pd.DataFrame, column: str, parent: str | None, sites: Sequence[int | str] | None
) -> tuple[str, Sequence[int | str]]:
    variants = [str(entry).strip() for entry in frame[column]]
    lower = {str(name).lower(): name for name in frame.columns}
    mutations = [_MUTATION.findall(entry) for entry in variants]
    written = [bool(re.fullmatch(r"[A-Z]\d+[A-Z]([;:,] ?[A-Z]\d+[A-Z])*", entry)) for entry in variants]
    if any(written):
        if parent is None:
            if "mutated_sequence" not in lower:
                hint = "Pass parent=, or a column mutated_sequence."
                raise ValueError(message("parent", "known where variants are mutations", "none", hint))
            row = written.index(True)
            letters = list(str(frame[lower["mutated_sequence"]].iloc[row]))
            for old, place, _ in mutations[row]:
                letters[int(place) - 1] = old
            parent = "".join(letters)
        places = {int(place) for row, ok in zip(mutations, written, strict=True) if ok for _, place, _ in row}
        return parent, sites if sites is not None else sorted(places)
    if not variants:
        raise ValueError(message("table", "of at least one row", "none"))
    if parent is None:
        first = frame[lower["hd"]].tolist().index(0) if "hd" in lower and 0 in frame[lower["hd"]].tolist() else 0
        parent = variants[first]
    return parent, sites if sites is not None else _changing(parent, variants)


def _changing(parent: str, variants: list[str]) -> list[int]:
    if any(len(entry) != len(parent) for entry in variants):
        raise ValueError(message("variants", f"all as long as the parent ({len(parent)})", "others", "Pass sites=."))
    if len(parent) <= 6:
        return list(range(1, len(parent) + 1))
    letters = np.array([list(entry) for entry in variants])
    return [place + 1 for place in range(len(parent)) if len(set(letters[:, place])) > 1]
