"""The path of every claim and figure, at smoke scale."""

import pytest
from adaptive_decoding.claims import METHOD
from adaptive_decoding.experiments_arithmetic import FIRST, problems
from adaptive_decoding.reasoning import read_answer
from offprints.claims import Runs, Scale
from offprints.testing import run_smoke


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
    if claim != "mauve":
        assert run_smoke(METHOD, claim) == outputs[claim]["metrics"]


def test_what_must_hold_holds_at_smoke_scale_too(outputs):
    found = outputs["exact-tail"]["metrics"]
    assert (found["kept_of_two"], found["released_kept_of_two"]) == (2, 1)
    assert found["ours_wrong_float32"] == found["ours_wrong_bfloat16"] == 0 < found["released_wrong_bfloat16"]
    found = outputs["candidate-sets"]["metrics"]
    assert found["k_uniform_0.0005"] > found["k_uniform_0.02"] >= 1
    found = outputs["balance"]["metrics"]
    assert found["k_greedy"] == 1
    assert found["k_top_k_10"] == 10


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figures_are_drawn(figure, outputs, tmp_path):
    declared = METHOD.figures[figure]
    runs = {need: Runs((0, 1), (outputs[need], outputs[need])) for need in declared.needs}
    declared.draw(runs).savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


TINY = {
    "exact-tail": {"vocabulary": 500, "rows": 2},
    "candidate-sets": {"prompts": 2, "length": 8, "steps": 2},
    "balance": {"prompts": 2, "length": 8, "steps": 5, "batch": 2, "draws": 2},
    "reasoning": {"items": 2, "steps": 2, "batch": 2, "resamples": 2},
    "mauve": {"prompts": 6, "length": 8, "steps": 3, "batch": 6, "resamples": 0},
}


@pytest.mark.parametrize("claim", [claim for claim in METHOD.claims.values() if claim.full], ids=lambda claim: claim.id)
def test_the_full_scale_recipe_takes_a_step(claim):
    sizes = claim.full.sizes | TINY[claim.id] | ({"model": "tiny"} if "model" in claim.full.sizes else {})
    assert claim.full.needs
    assert claim.measure(0, Scale(seeds=1, **sizes), "cpu")[0]


def test_word_problems_have_right_answers():
    found = problems(0, 60)
    assert problems(0, 60) == found != problems(1, 60)
    for question in found:
        a, b = [int(word.strip(".")) for word in question.text.split() if word.strip(".").isdigit()]
        wanted = a + b if "buys" in question.text else a - b if "gives" in question.text else a * b
        assert int(question.answer) == wanted
    assert read_answer(" 5 - 3 = 2. The answer is 2.\n\nQuestion: what? The answer is 9", FIRST) == "2"
    assert read_answer("no idea", FIRST) is None
