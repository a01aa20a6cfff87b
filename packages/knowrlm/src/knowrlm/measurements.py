"""Tables of measured variants: which columns hold what, and what is wrong with the rows (Algorithm 1, the library)."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from offprints.checks import Problems, message, require_finite, require_kind, require_shape

from knowrlm.space import VariantSpace

VARIANT_COLUMNS = ("variant", "variants", "aacombo", "combo", "mutant", "mutations", "mutated_sequence", "sequence")
FITNESS_COLUMNS = ("fitness", "dms_score", "score")
MISSING = ["", "NaN", "nan"]  # of a table's cells; "NA" is a variant of two residues
SCALE_JUMP, REPEAT_JUMP, FEW = 10.0, 3.0, 5
LEAST, LARGEST = 1e-30, 1e30  # of the greatest |fitness|: within, its squares and float32 predictions keep their digits


class MeasurementWarning(UserWarning):
    """Measurements were dropped, averaged, or look as if they were on another scale."""


def read_table(source: str | Path | pd.DataFrame, sheet: str | int = 0) -> pd.DataFrame:
    """A data frame, or the table in a .csv, .tsv or .xlsx file.

    Raises:
        FileNotFoundError: if there is no such file.
        TypeError: if it is neither a path nor a frame.
        ValueError: if the file's kind is unknown, or .xlsx is asked for without openpyxl.
    """
    if isinstance(source, pd.DataFrame):
        return source
    require_kind("table", source, (str, Path))
    path = Path(source)
    if not path.exists():
        raise FileNotFoundError(f"no file {path}.")
    kind = path.suffix.lower()
    if kind in (".csv", ".tsv", ".txt"):
        separator = "," if kind == ".csv" else "\t"
        try:  # no column of names: a row that ends with a separator would move the columns by one
            return pd.read_csv(path, sep=separator, index_col=False, keep_default_na=False, na_values=MISSING)
        except ValueError as error:
            raise ValueError(message(str(path), f"a table in UTF-8 separated by {separator!r}", str(error))) from error
    if kind in (".xlsx", ".xlsm"):
        try:
            return pd.read_excel(path, sheet_name=sheet, keep_default_na=False, na_values=MISSING)
        except ImportError as error:
            raise ValueError(f'{path} needs openpyxl: pip install "knowrlm[excel]"') from error
    raise ValueError(message(str(path), "a .csv, .tsv or .xlsx file", path.suffix or "no suffix"))


def find_column(frame: pd.DataFrame, name: str | None, known: Sequence[str], what: str) -> str:
    """The column of that name, or the first one with a known name (upper and lower case alike).

    Raises:
        ValueError: listing the columns there are; if two have that name.
    """
    if name is not None:
        known = (name,)
    columns = [str(column) for column in frame.columns]
    for candidate in known:
        found = [column for column in columns if column == candidate]
        found = found or [column for column in columns if column.lower() == candidate.lower()]
        if len(found) > 1:
            raise ValueError(message(f"the {what} column", "one", f"columns {found}", f"Pass {what}= or rename them."))
        if found:
            return found[0]
    raise ValueError(message(f"the {what} column", "one of " + ", ".join(known), f"columns {list(frame.columns)}"))


def read_measurements(
    table: str | Path | pd.DataFrame,
    space: VariantSpace,
    *,
    variant: str | None = None,
    fitness: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """(n, k) codes and (n,) fitness of a plate or library (Algorithm 1).

    Rows without fitness are left out with a warning (not measured is not zero), repeated variants averaged (with a
    warning when they disagree). Negative fitness is allowed.

    Args:
        table: a frame or a file; see `read_table`.
        space: the variants that may occur.
        variant: name of the column of variants, in any spelling that `VariantSpace.encode` reads.
        fitness: name of the column of fitness.

    Raises:
        TypeError: if the fitness column holds truth values, dates or complex numbers.
        ValueError: if a column is missing, a variant unreadable or outside the space, or a fitness infinite, no
        number, or beyond `checked_fitness`.
    """
    frame = read_table(table)
    names = find_column(frame, variant, VARIANT_COLUMNS, "variant")
    values = _numbers(frame[find_column(frame, fitness, FITNESS_COLUMNS, "fitness")])
    entries = ["" if pd.isna(entry) else str(entry).strip() for entry in frame[names]]
    if "" in entries:
        raise ValueError(
            message(f"{names} in row {entries.index('')}", "a variant", "an empty cell", "'_wt' is the parent.")
        )
    codes = space.encode(entries)
    outside = ~space.contains(codes)
    if outside.any():
        row = int(np.argmax(outside))
        expected = "made of the residues allowed at the sites"
        raise ValueError(message(f"variant in row {row}", expected, space.decode(codes[row : row + 1])[0]))
    missing = np.isnan(values)
    if missing.any():
        warnings.warn(
            f"{int(missing.sum())} of {len(values)} variants have no fitness: left out, not measured is not zero.",
            MeasurementWarning,
            stacklevel=2,
        )
    return average(codes[~missing], checked_fitness("fitness", values[~missing]))[:2]


def checked_fitness(name: str, fitness: np.ndarray) -> np.ndarray:
    """(n,) measurements as float64, such as the library of Algorithm 1.

    Raises:
        TypeError: if they are no integers or floats (truth values are not).
        ValueError: if they are not finite, no list, or the greatest of them in size is not 0 or between 1e-30 and 1e30,
        where squares and float32 predictions would lose them.
    """
    values = np.asarray(fitness)
    if values.dtype.kind not in "iuf":
        raise TypeError(message(name, "of integers or floats", f"dtype {values.dtype}", "Use .astype(float) if meant."))
    require_shape(name, values, ("n",))
    require_finite(name, values)
    values = values.astype(np.float64)
    largest = float(np.abs(values).max(initial=0.0))
    if largest and not LEAST <= largest <= LARGEST:
        expected = f"0, or between {LEAST:g} and {LARGEST:g} in size"
        raise ValueError(message(f"the largest {name}", expected, f"{largest:g}", "Divide all by one number."))
    return values


def average(
    codes: np.ndarray, fitness: np.ndarray, repeats: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct variants in order of appearance, the mean of their measurements, and how many these were.

    Warns where measurements disagree. A value that is a mean already counts `repeats` times.
    """
    repeats = np.ones(len(codes), dtype=np.int64) if repeats is None else repeats
    if not len(codes):
        return codes, fitness, repeats
    _, first, group = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    group = group.ravel()
    count = np.bincount(group, repeats)
    mean = np.bincount(group, fitness * repeats) / count
    spread = np.bincount(group, repeats * (fitness - mean[group]) ** 2) / count
    tolerance = 1e-9 * float(np.abs(fitness).max())
    if (conflicts := int((np.sqrt(spread) > tolerance).sum())) > 0:
        warnings.warn(
            f"{conflicts} variants were measured more than once with different fitness; the mean is taken.",
            MeasurementWarning,
            stacklevel=3,
        )
    order = np.argsort(first)
    return codes[first[order]], mean[order], count[order].astype(np.int64)


def warn_of_scale(known: np.ndarray, before: np.ndarray, codes: np.ndarray, fitness: np.ndarray) -> None:
    """Warn when a plate looks as if it were measured on another scale than the library (Algorithm 1).

    Repeated variants that moved by a common factor, or a plate far above or below everything before.

    Args:
        known: (n, k) measured variants.
        before: (n,) their fitness.
        codes: (m, k) new ones.
        fitness: (m,) theirs.
    """
    if len(fitness) < FEW or len(before) < FEW:
        return
    before, now = np.abs(before), np.abs(fitness)
    old = {row.tobytes(): value for row, value in zip(known, before, strict=True)}
    ratios = [
        value / old[row.tobytes()]
        for row, value in zip(codes, now, strict=True)
        if old.get(row.tobytes(), 0) > 0 and value > 0
    ]
    again = float(np.median(ratios)) if len(ratios) >= 2 else 1.0
    jumped = np.median(now) > SCALE_JUMP * before.max() or now.max() * SCALE_JUMP < np.median(before)
    if jumped or not 1 / REPEAT_JUMP <= again <= REPEAT_JUMP:
        warnings.warn(
            f"The new fitness has median {np.median(now):.3g}, where {np.median(before):.3g} was measured before"
            + (f", and repeated variants changed {again:.3g} times" if ratios else "")
            + ": is it on another scale? Measure some variants again and normalise.",
            MeasurementWarning,
            stacklevel=4,
        )


def _numbers(column: pd.Series) -> np.ndarray:
    if any(isinstance(entry, bool | np.bool_) for entry in column):
        hint = "Use .astype(float) if 0 and 1 are meant."
        raise TypeError(message("the fitness column", "of numbers", "truth values", hint))
    if column.dtype.kind in "cmM":
        raise TypeError(message("the fitness column", "of numbers", str(column.dtype)))
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float)
    with Problems("cannot read the fitness") as problems:
        for row in np.flatnonzero(np.isnan(values) & column.notna().to_numpy())[:20]:
            entry = column.iloc[row]
            if str(entry).strip().lower() not in ("", "nan", "na", "n/a"):
                problems.add(message(f"fitness in row {row}", "a number", repr(entry)))
        for row in np.flatnonzero(np.isinf(values))[:20]:
            problems.add(message(f"fitness in row {row}", "finite", str(values[row])))
    return values
