"""The path of every claim and figure, at smoke scale."""

import pytest
from dfa_rag.claims import METHOD
from dfa_rag.experiments import act_judge
from offprints.claims import Runs, Scale
from offprints.testing import run_smoke

MODELS = {"sentence-embeddings", "plug-and-play", "small-model"}
SLOW = [pytest.param(name, marks=pytest.mark.slow) if name in MODELS else name for name in METHOD.claims]


@pytest.mark.parametrize("claim", SLOW)
def test_claim(claim):
    metrics = run_smoke(METHOD, claim)
    if claim not in MODELS:
        assert metrics == run_smoke(METHOD, claim)


def test_what_must_hold_holds_at_smoke_scale_too():
    assert run_smoke(METHOD, "multiwoz")["disagreements"] == 0
    assert run_smoke(METHOD, "judge")["taste_asymmetry"] == 0
    found = run_smoke(METHOD, "off-path")
    assert found["not_fallen"] == found["moved"] == found["greedy_lost"] == 0
    assert run_smoke(METHOD, "interpretable")["drawing_faults"] == 0
    found = run_smoke(METHOD, "threshold")
    assert found["paper"] < found["lookahead"]
    found = run_smoke(METHOD, "support")
    assert found["random"] < 0.5 < found["hybrid"]
    assert found["copy_hybrid"] >= found["hybrid"]


def test_the_judge_knows_the_acts():
    from dfa_rag import Turn
    from dfa_rag.evaluate import JudgeCase, win_rate

    judge = act_judge({"good": "x", "fine": "x", "bad": "y"})
    case = lambda ours, other: JudgeCase((Turn("user", "hi"),), "good", ours, other)  # noqa: E731
    found = win_rate(judge, [case("fine", "bad"), case("bad", "fine"), case("fine", "good"), case("fine", "bad")])
    assert (found.wins, found.ties, found.losses, found.rate) == (2, 1, 1, 0.625)


@pytest.mark.parametrize("figure", METHOD.figures)
def test_figure(figure, tmp_path):
    declared, runs = METHOD.figures[figure], {}
    for name in declared.needs:
        claim = METHOD.claims[name]
        outputs = [
            dict(zip(("metrics", "series"), claim.measure(seed, claim.smoke, "cpu"), strict=True)) for seed in (0, 1)
        ]
        runs[name] = Runs((0, 1), tuple(outputs))
    drawn = declared.draw(runs)
    drawn.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert len(drawn.axes) == {"automaton": 1, "noise": 1, "threshold": 2}[figure]


@pytest.mark.parametrize("claim", [c for c in METHOD.claims.values() if c.full], ids=lambda c: c.id)
def test_the_full_scale_recipe_takes_a_step(claim):
    tiny = {"train": 30, "test": 2} | ({"graphs": (10,)} if "graphs" in claim.full.sizes else {})
    assert claim.full.needs
    assert claim.measure(0, Scale(seeds=1, **(claim.full.sizes | tiny)), "cpu")[0]
