from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from offprints import plot


def test_all_kinds_and_saving(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    drawn, axes = plot.figure(2, 2)
    plot.bands(axes[0], [1, 2, 3], np.array([[1.0, 2, np.nan], [2, 3, 4], [3, 4, 5]]), "ours")
    plot.bands(axes[0], [1, 2, 3], np.array([3.0, 3, 3]), "one run", colour=1, dash=1)
    plot.bars(axes[1], {"a": np.array([1.0, 3.0]), "b": np.array([2.0])})
    plot.heat(axes[2], np.eye(2), rows=["r", "s"], columns=["x", "y"], label="share")
    plot.heat(axes[2], np.eye(2))
    plot.points(axes[3], [1, 2], [3, 4], "dots")
    line, single = axes[0].lines
    assert line.get_ydata().tolist() == [2, 3, 4.5]
    assert single.get_linestyle() == "--"
    assert len(axes[0].collections) == 1  # a band for three runs, none for one
    band = axes[0].collections[0].get_paths()[0].get_extents()
    assert (band.y0, band.y1) == (1, 5)
    assert [bar.get_height() for bar in axes[1].patches] == [2, 2]
    assert [text.get_text() for text in axes[1].get_xticklabels()] == ["a", "b"]
    assert [text.get_text() for text in axes[2].get_yticklabels()] == ["r", "s"]
    first = [file.read_bytes() for file in plot.save(drawn, tmp_path / "f")]
    assert first[0][:4] == b"\x89PNG"
    assert b"<svg" in first[1]
    assert dict(mpl.rcParams) == before


def test_equal_figures_give_equal_bytes(tmp_path: Path) -> None:
    written = []
    for _ in range(2):
        drawn, (ax,) = plot.figure()
        plot.points(ax, [1, 2], [3, 4], "dots")
        written.append([file.read_bytes() for file in plot.save(drawn, tmp_path / "f")])
    assert written[0] == written[1]


def test_an_interval_of_bars() -> None:
    _, (ax,) = plot.figure()
    plot.bars(ax, {"a": np.array([1.0, 2, 3, 4, 5])})
    (segment,) = ax.collections[0].get_segments()
    assert segment[1][1] - segment[0][1] == pytest.approx(2 * 2.776445 * 0.5**0.5, rel=1e-5)
