"""What a training run recorded: the columns of figures 1, 2 and 5."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from offprints import checkpoint
from offprints.checks import require_choice

from grokking_theory._version import DIST, VERSION

Column = NDArray[np.float64]


@dataclass
class History:
    """One row per evaluation; all columns have the same length, and NaN where something was not measured.

    Attributes:
        step: updates done.
        train_loss: mean loss on the training points, without the ℓ∞ penalty.
        test_loss: the same on the held-out points (NaN if there are none).
        train_acc: classification: share of right answers. Regression: thresholded at p/2, the mean of the shares
            among targets p and among targets 0, so that predicting 0 scores ½.
        test_acc: classification: share of right answers on held-out points. Regression: share of all p² pairs whose
            largest output is the right one.
        linf: ‖θ‖_∞.
        margin: min q / ‖θ‖_∞³ on the training points (classification by a `QuadraticNetwork`; else NaN).
        ntk_change: ‖Θ_t - Θ_0‖_F, from an `NTKTracker`.
        ntk_relative: the same over ‖Θ_0‖_F.
        ntk_distance: 1 - cos(Θ_t, Θ_0).
        ntk_alignment: centred alignment of Θ_t with the labels.
        extra: further columns that callbacks returned.
        stopped: why training ended.
    """

    step: Column
    train_loss: Column
    test_loss: Column
    train_acc: Column
    test_acc: Column
    linf: Column
    margin: Column
    ntk_change: Column
    ntk_relative: Column
    ntk_distance: Column
    ntk_alignment: Column
    extra: dict[str, Column] = field(default_factory=dict)
    stopped: str = ""

    @classmethod
    def from_rows(cls, rows: list[dict[str, float]], stopped: str = "") -> "History":
        """Columns from one mapping per evaluation; what is missing in a row becomes NaN."""
        own = cls.column_names()
        others = sorted({name for row in rows for name in row} - set(own))
        columns = {
            name: np.array([row.get(name, np.nan) for row in rows], dtype=np.float64) for name in [*own, *others]
        }
        extra = {name: columns.pop(name) for name in others}
        return cls(**columns, extra=extra, stopped=stopped)

    @classmethod
    def column_names(cls) -> list[str]:
        """The columns that every history has."""
        return [entry.name for entry in fields(cls) if entry.name not in ("extra", "stopped")]

    def __len__(self) -> int:
        return len(self.step)

    def columns(self) -> dict[str, Column]:
        """All columns by name, those of callbacks too."""
        return {name: getattr(self, name) for name in self.column_names()} | self.extra

    def series(self, name: str) -> tuple[Column, Column]:
        """Steps and values of a column, where it was measured.

        Raises:
            ValueError: if there is no such column.
        """
        columns = self.columns()
        values = columns[require_choice("name", name, columns)]
        measured = ~np.isnan(values)
        return self.step[measured], values[measured]

    def at(self, name: str, step: float) -> float:
        """A column at a step, linearly between the measurements around it (NaN if there are none)."""
        steps, values = self.series(name)
        return float(np.interp(step, steps, values)) if len(steps) else float("nan")

    def save(self, path: str | Path) -> Path:
        """Write `<path>.safetensors` and `<path>.json`; returns the former."""
        config: Mapping[str, object] = {"kind": "history", "stopped": self.stopped}
        return checkpoint.save(path, self.columns(), method=DIST, version=VERSION, config=config)

    @classmethod
    def load(cls, path: str | Path) -> "History":
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: if there is none.
            ValueError: if the file holds no history.
        """
        found = checkpoint.load(path, method=DIST)
        if found.config.get("kind") != "history":
            raise ValueError(f"{path} must hold a training history, got {found.config.get('kind', 'a network')!r}.")
        columns = {name: np.asarray(value) for name, value in found.tensors.items()}
        missing = [name for name in cls.column_names() if name not in columns]
        if missing:
            raise ValueError(f"{path} must hold all columns of a history, got none of {', '.join(missing)}.")
        own = {name: columns.pop(name) for name in cls.column_names()}
        return cls(**own, extra=columns, stopped=str(found.config.get("stopped", "")))
