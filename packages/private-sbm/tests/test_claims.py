"""Each claim runs at smoke scale; the figures draw."""

import pytest
from offprints.claims import MissingResource, Runs
from offprints.testing import run_smoke
from private_sbm import exact, experiments
from private_sbm.claims import METHOD


@pytest.mark.parametrize("claim", METHOD.claims)
def test_claim(claim):
    metrics = run_smoke(METHOD, claim)
    if claim not in ("polynomial-time", "privacy"):
        again = METHOD.claims[claim].measure(0, METHOD.claims[claim].smoke, "cpu")[0]
        assert metrics == pytest.approx(again, abs=1e-12)


def test_the_claims_measure_what_they_say():
    found = experiments.phases(0, 80, 0.3, 3, 1)
    assert 0 <= found["exact_14_3"] <= 3
    assert found["share_14_3"] == found["exact_14_3"] / 3
    assert len(found["grid"]) == len(experiments.GRID_A) * len(experiments.GRID_B)
    local = experiments.against_local(0, 150, 20, 1, 8.0)
    assert local["rr_exact"] == local["rr_overlap"] == local["laplace_exact"] == 1.0
    lost = experiments.against_local(0, 150, 20, 1, 0.1)
    assert lost["rr_exact"] == lost["laplace_exact"] == 0.0
    assert lost["rr_overlap"] < 0.9


def test_without_scs_the_comparison_is_not_run(monkeypatch):
    monkeypatch.setattr(exact, "find_spec", lambda name: None)
    with pytest.raises(MissingResource, match="repro"):
        experiments.growth(0, (100,), (40,))


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figure(figure):
    pytest.importorskip("matplotlib")
    runs = {}
    for claim in METHOD.figures[figure].needs:
        metrics, series = METHOD.claims[claim].measure(0, METHOD.claims[claim].smoke, "cpu")
        runs[claim] = Runs((0, 1), ({"metrics": metrics, "series": series},) * 2)
    drawn = METHOD.figures[figure].draw(runs)
    assert drawn.axes[0].get_xlabel()
    assert drawn.axes[0].lines or drawn.axes[0].images
