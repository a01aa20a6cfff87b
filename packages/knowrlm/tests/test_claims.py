"""The path of every claim and figure, at smoke scale."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from knowrlm import experiments
from knowrlm.claims import METHOD
from knowrlm.space import VariantSpace
from offprints.claims import MissingResource, Runs, Scale
from offprints.seeding import rng
from offprints.testing import run_smoke


@pytest.fixture(scope="module")
def outputs(data_wheels):
    found = {}
    for claim in METHOD.claims.values():
        metrics, series = claim.measure(0, claim.smoke, "cpu")
        found[claim.id] = {"metrics": metrics, "series": series}
    yield found
    experiments.landscape_of.cache_clear()
    experiments.campaign.cache_clear()


@pytest.mark.parametrize("claim", METHOD.claims)
def test_smoke(claim, outputs):
    assert outputs[claim]["metrics"]


def test_exact_claims_hold_at_smoke_scale_too():
    found = run_smoke(METHOD, "graph")
    assert found["columns"] == 20
    found = run_smoke(METHOD, "policy-gradient")
    assert found["error_joint"] < 1e-10
    assert found["error_site"] > 0.01


def test_ranks_of_measured_ratios():
    ratio, rank = np.array([1.0, 0.5, np.nan, 0.1]), np.array([2, 8, 3, 15])
    found = experiments.by_window(ratio, rank)
    assert found == {"near": 1.0, "mid": 0.5, "far": 0.1, "overall": pytest.approx(1.6 / 3)}


def test_a_claim_without_its_data_is_not_run(monkeypatch):
    experiments.landscape_of.cache_clear()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for claim in ("graph", "neighbours-measured", "measured-table", "language-model", "beats-random"):
        with pytest.raises(MissingResource, match="pip install"):
            METHOD.claims[claim].measure(7, METHOD.claims[claim].smoke, "cpu")
    experiments.landscape_of.cache_clear()


def test_the_full_scale_recipe_takes_a_step_on_a_table_of_its_format(tmp_path):
    claim = METHOD.claims["efficiency"]
    assert claim.full.needs
    space = VariantSpace("AC", [1, 2])
    codes = np.delete(space.codes(np.arange(400)), np.s_[5::15], axis=0)  # as in GB1, 7 % were not measured
    frame = pd.DataFrame({"Variants": space.decode(codes), "Fitness": rng(0).random(len(codes))})
    path = tmp_path / "two_sites.xlsx"
    frame.to_excel(path, index=False)
    sizes = claim.full.sizes | {"landscape": str(path), "batch": 8, "steps": 20, "rounds": 1, "plm": "scales"}
    metrics, _ = claim.measure(0, Scale(seeds=1, **sizes), "cpu")
    assert all(np.isfinite(value) for value in metrics.values())
    experiments.landscape_of.cache_clear()


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    runs = {need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs}
    declared.draw(runs).savefig(tmp_path / "figure.png")
    assert Path(tmp_path / "figure.png").stat().st_size > 10_000
