"""The path of every claim and figure, at smoke scale, and of the full scale at tiny sizes."""

import numpy as np
import pytest
from collage_optim.claims import METHOD
from offprints.claims import Runs, Scale


@pytest.fixture(scope="module")
def outputs():
    found = {}
    for claim in METHOD.claims.values():
        metrics, series = claim.measure(0, claim.smoke, "cpu")
        found[claim.id] = {"metrics": metrics, "series": series}
    return found


@pytest.mark.parametrize("claim", METHOD.claims)
def test_smoke(claim, outputs):
    metrics = outputs[claim]["metrics"]
    assert metrics
    assert all(np.isfinite(value) for value in metrics.values())


def test_bytes_are_exact_at_any_size(outputs):
    metrics = outputs["memory"]["metrics"]
    assert (metrics["measured_plus"], metrics["measured_fp32_master"]) == (12, 16)


def test_modes_share_weights_and_data(outputs):
    curves = outputs["master-weights"]["series"]
    assert len({curve[0] for curve in curves.values()}) == 1
    assert len({curve[-1] for curve in curves.values()}) > 2


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    runs = {need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs}
    declared.draw(runs).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_the_full_scale_recipe_takes_a_step():
    claim = METHOD.claims["states"]
    sizes = claim.full.sizes | {"steps": 1, "width": 24, "layers": 1, "length": 32, "batch": 2}
    metrics, _ = claim.measure(0, Scale(seeds=1, **sizes), "cpu")
    assert "80 GB" in claim.full.needs
    assert all(np.isfinite(value) for value in metrics.values())
