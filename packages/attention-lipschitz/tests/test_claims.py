"""The path of every claim and figure, at smoke scale."""

import pytest
from attention_lipschitz.claims import METHOD
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
    assert outputs[claim]["metrics"]


def test_what_must_hold_holds_at_smoke_scale_too(outputs):
    for claim in ("bounds", "tight", "tight-any-values", "masked", "large-radius"):
        assert outputs[claim]["metrics"]["violations"] == 0
    assert 1 <= outputs["looseness"]["metrics"]["ratio_local"] <= outputs["looseness"]["metrics"]["ratio_ball"]
    assert outputs["tight"]["metrics"]["L_3_300"] == pytest.approx(
        outputs["tight"]["metrics"]["L_3_5"] * (299 / 4) ** 0.5, rel=0.05
    )
    found = outputs["published-curve"]["metrics"]
    assert found["exponent"] > found["exact_exponent"]
    assert outputs["worst-case"]["metrics"]["bound_over_worst"] > 1


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    runs = {need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs}
    declared.draw(runs).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5_000


def test_the_full_scale_recipe_takes_a_step():
    for claim in METHOD.claims.values():
        if claim.full is not None:
            assert claim.full.needs
            claim.measure(0, Scale(seeds=1, **(claim.full.sizes | claim.smoke.sizes)), "cpu")
