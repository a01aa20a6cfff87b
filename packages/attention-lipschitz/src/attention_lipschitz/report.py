"""What a scan found: a table of measurements, growth exponents, JSON, figures (as in Section 5 of the paper)."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from offprints.checkpoint import write_atomic
from offprints.checks import require_choice, require_range
from offprints.seeding import rng

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FORMAT = "attention-lipschitz.scan/1"
COLUMNS = ("lipschitz", "paper_code", "radius", "bound_local", "bound_radius")


@dataclass(frozen=True)
class Row:
    """One measurement.

    Attributes:
        layer: which layer of the model.
        n: number of tokens.
        sample: which window or sequence.
        head: which head, None for all together.
        data: "real" or "adversarial".
        lipschitz: ‖D_X f‖₂.
        paper_code: what the released scripts return, which is no Lipschitz constant.
        radius: √(mean ‖x_i‖²).
        bound_local: an upper bound of ‖D_X f‖₂ at these tokens.
        bound_radius: one on all tokens with norms up to max ‖x_i‖.
        converged: whether `lipschitz` reached its tolerance.
    """

    layer: int
    n: int
    sample: int
    head: int | None
    data: str
    lipschitz: float | None
    paper_code: float | None
    radius: float
    bound_local: float | None
    bound_radius: float | None
    converged: bool | None


class Growth(NamedTuple):
    """Log L = slope · log n + log coefficient by least squares, with a bootstrap interval; Theil and Sen's slope."""

    slope: float
    low: float
    high: float
    coefficient: float
    theil_sen: float


@dataclass(frozen=True)
class LipschitzReport:
    """The rows of a scan and the settings that made them."""

    rows: tuple[Row, ...]
    settings: dict[str, object]

    def select(self, *, layer: int | None = None, data: str = "real", head: int | None = None) -> list[Row]:
        """The rows of a layer (all if None), kind of data, and head (those of all heads together if None)."""
        return [r for r in self.rows if layer in (None, r.layer) and r.data == data and r.head == head]

    def to_frame(self) -> "DataFrame":
        """A pandas DataFrame, one row a measurement.

        Raises:
            ImportError: naming the extra, without pandas.
        """
        try:
            import pandas
        except ImportError as error:
            raise ImportError('a frame needs pandas: pip install "attention-lipschitz[frames]"') from error
        return pandas.DataFrame([asdict(row) for row in self.rows], columns=[f.name for f in fields(Row)])

    def growth_exponent(
        self,
        layer: int | None = None,
        *,
        column: str = "lipschitz",
        data: str = "real",
        n_min: int = 4,
        resamples: int = 1000,
        seed: int = 0,
    ) -> Growth:
        """How the constant grows with the number of tokens: the exponents of Section 5 (1/4 and 1/2 in the paper).

        Args:
            layer: which one, all if None.
            column: "lipschitz" or "paper_code", or another number of the rows.
            data: "real" or "adversarial".
            n_min: shorter sequences are left out.
            resamples: bootstrap over samples.
            seed: of the bootstrap.

        Raises:
            ValueError: if fewer than two lengths are left, or a value is not positive.
        """
        require_choice("column", column, COLUMNS)
        require_range("resamples", resamples, low=1, integer=True)
        rows = [r for r in self.select(layer=layer, data=data) if r.n >= n_min and getattr(r, column) is not None]
        lengths = sorted({r.n for r in rows})
        if len(lengths) < 2:
            raise ValueError(
                f"the report must hold two lengths ≥ {n_min} with {column}, got {lengths}. Scan more lengths."
            )
        values = [float(getattr(r, column)) for r in rows]
        if not all(0 < value < math.inf for value in values):
            raise ValueError(f"{column} must be positive and finite for a growth exponent, got {min(values):g}.")
        x, y = np.log([r.n for r in rows]), np.log(values)
        slope, intercept = np.polyfit(x, y, 1)
        drawn = _bootstrapped(x, y, [(r.layer, r.sample) for r in rows], resamples, seed)
        low, high = np.quantile(drawn, (0.025, 0.975))
        return Growth(float(slope), float(low), float(high), float(np.exp(intercept)), _theil_sen(x, y))

    def summary(self) -> str:
        """A few lines a layer: constants, bounds, growth, and what did not converge."""
        lines = []
        for layer in sorted({r.layer for r in self.rows}):
            rows = self.select(layer=layer)
            lines.append(
                f"layer {layer}: {len(rows)} samples, n = {min(r.n for r in rows)} to {max(r.n for r in rows)}"
            )
            for column, name in (("lipschitz", "local constant"), ("paper_code", "√‖Jᵀf‖ (no constant)")):
                found = [v for v in (getattr(r, column) for r in rows) if v is not None]
                if found:
                    lines.append(
                        f"  {name}: median {np.median(found):.4g}, largest {max(found):.4g}{self._grown(layer, column)}"
                    )
            ratios = [r.bound_local / r.lipschitz for r in rows if r.bound_local and r.lipschitz]
            if ratios:
                lines.append(f"  local bound / constant: median {np.median(ratios):.3g}")
            lost = sum(r.converged is False for r in rows)
            if lost:
                lines.append(f"  {lost} not converged: lower bounds")
        return "\n".join(lines)

    def _grown(self, layer: int, column: str) -> str:
        try:
            growth = self.growth_exponent(layer, column=column)
        except ValueError:
            return ""
        return f", grows as n^{growth.slope:.3f} [{growth.low:.3f}, {growth.high:.3f}]"

    def to_json(self, path: str | Path | None = None) -> str:
        """The report as JSON, also written to `path`; floats survive to the bit."""
        content = {"format": FORMAT, "settings": self.settings, "rows": [_plain(asdict(row)) for row in self.rows]}
        text = json.dumps(content, indent=1, allow_nan=False)
        if path is not None:
            write_atomic(Path(path), text.encode())
        return text

    @classmethod
    def from_json(cls, text: str | Path) -> "LipschitzReport":
        """Read what `to_json` gave: the text, or a `Path` to it.

        Raises:
            ValueError: if it is something else.
        """
        name = text.name if isinstance(text, Path) else "the text"
        try:
            content = json.loads(text.read_text("utf-8") if isinstance(text, Path) else text)
            if content["format"] != FORMAT:
                raise ValueError(f"{name} must be of format {FORMAT}, got {content['format']}.")
            return cls(tuple(Row(**_floats(row)) for row in content["rows"]), content["settings"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(
                f"{name} must be a report of a scan ({FORMAT}), got {type(error).__name__}: {error}."
            ) from error

    def plot(self, path: str | Path | None = None) -> "Figure":
        """Constants against length on log axes, real data coloured by radius, adversarial ones and both estimators.

        Guides show √n and n^(1/4) (Figures 1 and 2 of the paper). A report by heads becomes a heat map of layers and
        heads.

        Raises:
            ImportError: naming the extra, without matplotlib.
        """
        try:
            from attention_lipschitz import drawing
        except ImportError as error:
            raise ImportError('a plot needs matplotlib: pip install "attention-lipschitz[plots]"') from error
        drawn = drawing.heads(self) if any(r.head is not None for r in self.rows) else drawing.growth(self)
        if path is not None:
            drawn.savefig(path, dpi=140)
        return drawn


def _bootstrapped(
    x: np.ndarray, y: np.ndarray, samples: Sequence[tuple[int, int]], resamples: int, seed: int
) -> np.ndarray:
    """Slopes of resampled samples, each with all its lengths: weighted least squares, counts as weights."""
    names = sorted(set(samples))
    place = np.array([names.index(sample) for sample in samples])
    counts = rng(seed).multinomial(len(names), np.full(len(names), 1 / len(names)), size=resamples)
    weight = counts[:, place].astype(float)
    total = weight.sum(1)
    mean_x, mean_y = weight @ x / total, weight @ y / total
    spread = (weight * (x - mean_x[:, None]) ** 2).sum(1)
    usable = spread > 1e-12
    joint = (weight * (x - mean_x[:, None]) * (y - mean_y[:, None])).sum(1)
    return joint[usable] / spread[usable]


def _theil_sen(x: np.ndarray, y: np.ndarray) -> float:
    """The median slope over pairs of different lengths."""
    i, j = np.triu_indices(len(x), 1)
    apart = x[i] != x[j]
    i, j = i[apart], j[apart]
    return float(np.median((y[j] - y[i]) / (x[j] - x[i])))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {k: repr(v) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _floats(row: dict[str, Any]) -> dict[str, Any]:
    return {k: float(v) if k in COLUMNS and isinstance(v, str) else v for k, v in row.items()}
