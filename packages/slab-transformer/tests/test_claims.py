"""The path of every claim and figure, at smoke scale."""

import json
from pathlib import Path

import pytest
import slab_transformer
from offprints.claims import Runs, Scale
from slab_transformer.claims import METHOD
from slab_transformer.published import PUBLISHED, TOP1


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
    found = outputs["inference-free"]["metrics"]
    for name in ("vit", "swin", "pvt", "llama"):
        assert found[f"norms_left_{name}"] == found[f"affines_left_{name}"] == 0
        assert 0 < found[f"difference_{name}"] < 1e-10
    found = outputs["swap"]["metrics"]
    assert found["change_prepbn"] < 1e-5
    assert found["first_prepbn"] == pytest.approx(found["first_ln"], abs=1e-4)
    assert abs(found["first_bn"] - found["first_ln"]) > 1e-3
    assert outputs["language"]["metrics"]["fused_difference"] < 1e-3
    assert outputs["linear-cost"]["metrics"]["share_3136"] < 1


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    runs = {need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs}
    declared.draw(runs).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


TINY = {
    "swap": {"layers": 1, "epochs": 0.1, "tune_epochs": 0.1},
    "linear": {"layers": 1, "epochs": 0.1, "rates": (1e-3,)},
    "inference-free": {"epochs": 0},
    "linear-cost": {"sides": (14, 28, 56), "calls": 1},
    "language": {"layers": 1, "hidden": 16, "steps": 2, "tokens": 5},
    "statistics": {"epochs": 0.1},
}


@pytest.mark.parametrize("claim", METHOD.claims.values(), ids=lambda claim: claim.id)
def test_the_full_scale_recipe_takes_a_step(claim):
    assert claim.full.needs
    assert claim.measure(1, Scale(seeds=1, **(claim.full.sizes | TINY[claim.id])), "cpu")[0]


def test_published_numbers_are_shown_as_they_stand():
    held = json.loads((Path(slab_transformer.__file__).parent / "published.json").read_text("utf-8"))
    assert held == PUBLISHED
    assert TOP1["prepbn_deit_t"] == 73.6
    assert TOP1["slab_swin_s"] == 83.6
    assert METHOD.claims["linear"].paper["slab_cswin_t"] == 82.8
    assert len(TOP1) == 12
